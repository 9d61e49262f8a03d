"""The replay window: a `full` signature is accepted once, and only while it is fresh.

Theory. Each signature carries the time it was made and a nonce. Inside the window the nonces are remembered; outside of it
the time alone refuses. The memory is bounded: if it is full of fresh nonces, the oldest gives way and everything as old as
that one is refused from then on. So a flood can make us refuse late messages, but never accept one twice.

Time comes in as an argument.
"""

import heapq
from typing import Final

from hopline.security.mac import FullSignature

DEFAULT_WINDOW_NS: Final = 300 * 1_000_000_000
"""Five minutes: the clock difference that common authentication systems forgive."""

DEFAULT_LIMIT: Final = 1_000_000
"""Signatures remembered: 3000 a second over the whole window, 190 MB at most (191 bytes each, measured)."""


class ReplayWindow:
    """Remembers which signatures have been seen.

    >>> window = ReplayWindow(window_ns=10)
    >>> signature = FullSignature(signed_ns=100, nonce=bytes(16), tag=b"")
    >>> window.admit(signature, now_ns=105), window.admit(signature, now_ns=106)
    (True, False)
    """

    def __init__(self, *, window_ns: int = DEFAULT_WINDOW_NS, limit: int = DEFAULT_LIMIT) -> None:
        self._window_ns = window_ns
        self._limit = limit
        self._floor_ns = -(1 << 63)
        self._seen: set[tuple[int, bytes]] = set()
        self._by_age: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        """How many signatures are remembered."""
        return len(self._seen)

    def admit(self, signature: FullSignature, now_ns: int) -> bool:
        """Whether this signature is fresh and new; if so it is remembered. Ask only for one whose code has been checked."""
        signed_ns = signature.signed_ns
        oldest_ns = now_ns - self._window_ns
        while self._by_age and self._by_age[0][0] < oldest_ns:
            self._forget_oldest()
        if not oldest_ns <= signed_ns <= now_ns + self._window_ns:
            return False
        if signed_ns <= self._floor_ns:
            return False
        entry = (signed_ns, signature.nonce)
        if entry in self._seen:
            return False
        if len(self._seen) >= self._limit:
            self._forget_oldest()
            if signed_ns <= self._floor_ns:
                return False
        self._seen.add(entry)
        heapq.heappush(self._by_age, entry)
        return True

    def _forget_oldest(self) -> None:
        # What was forgotten could come again, even by a clock that was set back: nothing as old is let in any more.
        oldest = heapq.heappop(self._by_age)
        self._seen.discard(oldest)
        self._floor_ns = oldest[0]
