"""Dead letters: messages that came to a bad end, kept for a look, bounded."""

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from hopline.wire import Message

DEFAULT_LIMIT: Final = 1000
"""Letters kept: enough to see what goes wrong, not enough to fill a node's memory with somebody's garbage."""

LONGEST_KEPT: Final = 64 * 1024
"""Bytes of frames kept of a message that could not be read."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One bad end: why, what is known of the message, and when by the node's monotonic clock.

    `message` is None if the bytes were no message; then `frames` holds them, cut to a bound.
    """

    code: str
    reason: str
    at_ns: int
    message: Message | None = None
    frames: tuple[bytes, ...] = ()


class DeadLetters:
    """The last dead letters, newest last, and how many there were of each code."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._letters: deque[DeadLetter] = deque(maxlen=limit)
        self._counts: Counter[str] = Counter()

    def add(self, letter: DeadLetter) -> None:
        """Keep a letter; the oldest gives way if there are too many."""
        self._letters.append(letter)
        self._counts[letter.code] += 1

    def __iter__(self) -> Iterator[DeadLetter]:
        """The letters that are still kept, oldest first."""
        return iter(tuple(self._letters))

    def __len__(self) -> int:
        """How many letters are kept."""
        return len(self._letters)

    @property
    def counts(self) -> dict[str, int]:
        """How many there were of each code, also of those no longer kept."""
        return dict(self._counts)


def cut(frames: list[bytes]) -> tuple[bytes, ...]:
    """Keep the beginning of a frame list, up to LONGEST_KEPT bytes."""
    kept, left = [], LONGEST_KEPT
    for frame in frames:
        if left <= 0:
            break
        kept.append(frame[:left])
        left -= max(len(frame), 1)
    return tuple(kept)
