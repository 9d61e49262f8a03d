"""What may happen to a message on a network in memory: dropped, late, out of order. Drawn from one seed, so repeatable."""

import random
from collections.abc import Callable

Victim = Callable[[str, str, list[bytes]], bool]
"""Whether a fault may strike a message: called with the addresses of sender and receiver, and the frames."""


class Faults:
    """The faults that were asked for. There are none at first; each call replaces the last one of its kind."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - must be repeatable
        self._probability = 0.0
        self._victim: Victim | None = None
        self._delay_s = self._jitter_s = 0.0
        self._window = 1

    def drop(self, probability: float = 1.0, *, when: Victim | None = None) -> None:
        """From now on drop messages: any, or only if `when(sender, receiver, frames)`. With probability 0 none."""
        self._probability, self._victim = probability, when

    def delay(self, seconds: float, *, jitter: float = 0.0) -> None:
        """From now on messages take so long, and up to `jitter` seconds more; those of one link keep their order."""
        self._delay_s, self._jitter_s = seconds, jitter

    def reorder(self, window: int) -> None:
        """From now on an inbox is not read in order: any of the oldest `window` messages is next. With 1 in order."""
        self._window = window

    def drops(self, source: str, target: str, frames: list[bytes]) -> bool:
        """Whether the next message is dropped."""
        if not self._probability or (self._victim is not None and not self._victim(source, target, frames)):
            return False
        return self._random.random() < self._probability

    def delay_ns(self) -> int:
        """How long the next message takes."""
        jitter_s = self._random.uniform(0, self._jitter_s) if self._jitter_s else 0.0
        return int((self._delay_s + jitter_s) * 1e9)

    def pick(self, waiting: int) -> int:
        """Which message of an inbox is next."""
        return self._random.randrange(min(waiting, self._window)) if self._window > 1 else 0
