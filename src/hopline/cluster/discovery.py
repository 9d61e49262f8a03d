"""Discovery: what the cluster is asked for, each thing once at a time and not too much of it.

Messages of one type may come by the thousand while nobody is known who takes them; that is one question. This file is pure.
"""

from collections.abc import Callable
from typing import Final

from hopline.identity import MessageType

MOST_MISSING: Final = 1000
"""Questions that may wait. Types come from outside too, in messages that we were to send on."""

Wanted = MessageType | bytes
"""A type, or the identity of a hub."""


class MissingRoutes:
    """Questions that wait to be asked.

    >>> missing = MissingRoutes()
    >>> kind = MessageType(b"HELLO", 1)
    >>> missing.add(kind), missing.add(kind), missing.take(10)
    (True, False, [MessageType(identity=b'HELLO', version=1, partition=b'')])
    """

    def __init__(self, most: int = MOST_MISSING) -> None:
        self._most = most
        self._wanted: dict[Wanted, None] = {}
        self.dropped = 0
        """Questions that were one too many."""

    def __len__(self) -> int:
        """How many wait."""
        return len(self._wanted)

    def add(self, wanted: Wanted) -> bool:
        """Something is missing; False if that is known already, or too much is."""
        if wanted in self._wanted:
            return False
        if len(self._wanted) >= self._most:
            self.dropped += 1
            return False
        self._wanted[wanted] = None
        return True

    def take(self, most: int) -> list[Wanted]:
        """The oldest questions, to be asked now."""
        taken = list(self._wanted)[:most]
        for wanted in taken:
            del self._wanted[wanted]
        return taken


class Soon:
    """Does something soon, and once for all who asked for it meanwhile, but not more often than every `gap_s` seconds.

    Args:
        later: calls back in some seconds.
        now_s: the time in seconds.
        gap_s: between two times.
        do: what is done.
    """

    def __init__(
        self,
        later: Callable[[float, Callable[[], None]], object],
        now_s: Callable[[], float],
        gap_s: float,
        do: Callable[[], None],
    ) -> None:
        self._later = later
        self._now_s = now_s
        self._gap_s = gap_s
        self._do = do
        self._last_s: float | None = None
        self._is_coming = False

    def ask(self) -> None:
        """Let it be done."""
        if not self._is_coming:
            self._is_coming = True
            wait_s = 0.0 if self._last_s is None else max(0.0, self._last_s + self._gap_s - self._now_s())
            self._later(wait_s, self._now)

    def _now(self) -> None:
        self._is_coming = False
        self._last_s = self._now_s()
        self._do()
