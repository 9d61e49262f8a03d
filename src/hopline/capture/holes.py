"""The holes of a stream: sequence numbers that have not come, whatever the order of those that have.

A writer writes the numbers of a tap as they rise. What was recorded before that was so, or was put together by somebody
else, is as good if each number is there once; so a number that is late fills a hole, and only one that fills none was there
before.

What is held is a hole a gap, not a number a message, and no more than `MOST_HELD` of them: beyond that the oldest are gaps
for good, and what came into one of them later would seem to come twice. It knows no files.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

MOST_HELD: Final = 2**20
"""Holes that may still be filled: 16 MiB. A tap lets 200 000 messages wait, and by no more than that is a number late."""

MOST_LISTED: Final = 1000
"""Gaps of a stream that are listed one by one; the rest is only counted."""


class Gap(NamedTuple):
    """Sequence numbers that are missing, from the first to the last of them."""

    first: int
    last: int


class Holes:
    """The numbers of one stream that have not come, below the last one that has.

    >>> holes = Holes(1)
    >>> holes.take(np.array([2, 7, 4])), holes.take(np.array([1, 3, 4]))
    (3, 2)
    >>> holes.last, holes.missing, holes.gaps()
    (7, 2, [Gap(first=5, last=6)])

    Args:
        first: from which number on one that has not come is missing. Those before may come too.
        most_held: holes to hold.

    Attributes:
        first: the same.
        last: the last number that has come.
    """

    def __init__(self, first: int, *, most_held: int = MOST_HELD) -> None:
        self.first = first
        self.last = first - 1
        self._most_held = most_held
        # The first and the last number of each, rising; what is before the first number is the first of them.
        self._firsts = np.array([1] if first > 1 else [], np.int64)
        self._lasts = np.array([first - 1] if first > 1 else [], np.int64)
        self._missing = 0  # in those that are not held any more
        self._gaps: list[Gap] = []

    def take(self, numbers: NDArray[np.signedinteger]) -> int:
        """Take numbers that have come; says how many of them had not come before."""
        if (np.diff(numbers, prepend=self.last) < 1).any():
            numbers = np.unique(numbers)
        late = numbers[: np.searchsorted(numbers, self.last, side="right")]
        taken = self._fill(late) if late.size else 0
        following = numbers[late.size :]
        if following.size:
            steps = np.diff(following, prepend=self.last)
            ends = following[steps > 1]
            self._hold(ends - steps[steps > 1] + 1, ends - 1)
            self.last = int(following[-1])
        return taken + following.size

    @property
    def missing(self) -> int:
        """How many numbers have not come."""
        return self._missing + _count(*self._counted())

    def gaps(self) -> list[Gap]:
        """The numbers that have not come: the first thousand gaps."""
        return self._gaps + _listed(*self._counted(), MOST_LISTED - len(self._gaps))

    def _counted(self, oldest: int | None = None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The bounds of the holes that are held, or of the oldest of them; but for those that do not count."""
        firsts, lasts = self._firsts[:oldest], self._lasts[:oldest]
        return firsts[firsts >= self.first], lasts[firsts >= self.first]

    def _fill(self, late: NDArray[np.signedinteger]) -> int:
        """Take numbers, rising, out of the holes they are in; says how many are in one."""
        holes = np.searchsorted(self._firsts, late, side="right") - 1
        late, holes = late[holes >= 0], holes[holes >= 0]
        late = late[late <= self._lasts[holes]]
        # A number cuts its hole in two, and holes do not touch: so all bounds in order are those of what is left, in pairs.
        firsts, lasts = np.sort(np.append(self._firsts, late + 1)), np.sort(np.append(self._lasts, late - 1))
        is_left = firsts <= lasts
        self._firsts, self._lasts = firsts[is_left], lasts[is_left]
        self._bound()
        return late.size

    def _hold(self, firsts: NDArray[np.signedinteger], lasts: NDArray[np.signedinteger]) -> None:
        """Hold holes behind all others."""
        if firsts.size:
            self._firsts, self._lasts = np.append(self._firsts, firsts), np.append(self._lasts, lasts)
            self._bound()

    def _bound(self) -> None:
        """Let go of the oldest holes, if they are too many: nothing will fill them any more."""
        many = self._firsts.size - self._most_held
        if many > 0:
            gone = self._counted(many)
            self._missing += _count(*gone)
            self._gaps += _listed(*gone, MOST_LISTED - len(self._gaps))
            self._firsts, self._lasts = self._firsts[many:], self._lasts[many:]


def _count(firsts: NDArray[np.int64], lasts: NDArray[np.int64]) -> int:
    return int((lasts - firsts + 1).sum())


def _listed(firsts: NDArray[np.int64], lasts: NDArray[np.int64], most: int) -> list[Gap]:
    return [Gap(*bounds) for bounds in zip(firsts[:most].tolist(), lasts[:most].tolist(), strict=True)]
