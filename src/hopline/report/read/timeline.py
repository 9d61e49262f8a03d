"""A timeline: how much happened when, in steps that grow with the time that it covers.

Nobody knows beforehand from when to when rows reach. So it begins with fine steps, and whenever there are too many it makes
them coarser; each width divides the next one, so nothing has to be counted again. It knows no table.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

MOST_STEPS: Final = 120
"""Steps of a timeline: bars of a chart that can still be told apart."""

_MS: Final = 1_000
_S: Final = 1_000 * _MS
_HOUR: Final = 3_600 * _S
_DAY: Final = 24 * _HOUR
WIDTHS: Final = (
    *(number * _MS for number in (10, 50, 100, 500)),
    *(number * _S for number in (1, 5, 10, 30, 60, 300, 600, 1_800)),
    *(number * _HOUR for number in (1, 2, 6, 12)),
    *(number * _DAY for number in (1, 7, 28, 364, 3_640, 36_400, 364_000)),
)
"""Widths of a step in microseconds. Each divides the next one; the last is a millennium."""


class Timeline:
    """Numbers by name and step.

    >>> line = Timeline()
    >>> line.add("a", np.array([0, 5_000, 3_000_000]))
    >>> line.width_us, line.steps, line.of("a")
    (50000, range(0, 61), {0: 2, 60: 1})
    """

    def __init__(self) -> None:
        self.first_us: int | None = None
        self.last_us: int | None = None
        self._level = 0
        self._counts: dict[str, Counter[int]] = {}

    @property
    def width_us(self) -> int:
        """The width of a step."""
        return WIDTHS[self._level]

    @property
    def steps(self) -> range:
        """Numbers of the steps, from the first with something in it to the last. A step begins at its number times width."""
        if self.first_us is None or self.last_us is None:
            return range(0)
        return range(self.first_us // self.width_us, self.last_us // self.width_us + 1)

    @property
    def names(self) -> list[str]:
        """All names, in the order in which they came."""
        return list(self._counts)

    def of(self, name: str) -> dict[int, int]:
        """How much there is of a name in each step; steps without any are left out."""
        return dict(self._counts.get(name, {}))

    def add(self, name: str, moments_us: npt.NDArray[np.int64]) -> None:
        """Count moments, in microseconds since 1970, for a name."""
        if not len(moments_us):
            return
        first, last = int(moments_us.min()), int(moments_us.max())
        self.first_us = first if self.first_us is None else min(self.first_us, first)
        self.last_us = last if self.last_us is None else max(self.last_us, last)
        self._widen()
        steps, counts = np.unique(moments_us // self.width_us, return_counts=True)
        self._counts.setdefault(name, Counter()).update(dict(zip(steps.tolist(), counts.tolist(), strict=True)))

    def join(self, names: Iterable[str], into: str) -> None:
        """Count some names as one."""
        for name in names:
            counts = self._counts.pop(name, None)
            if counts is not None:
                self._counts.setdefault(into, Counter()).update(counts)

    def _widen(self) -> None:
        while len(self.steps) > MOST_STEPS and self._level + 1 < len(WIDTHS):
            times = WIDTHS[self._level + 1] // WIDTHS[self._level]
            self._level += 1
            for name, counts in self._counts.items():
                wider: Counter[int] = Counter()
                for step, count in counts.items():
                    wider[step // times] += count
                self._counts[name] = wider
