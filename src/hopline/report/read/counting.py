"""Counting without end in bounded memory: sums by key, the spread of a value, and the greatest of many rows.

What comes from a network may have any number of different keys. So each of these holds a fixed number of things and says
what it left out. This file knows no table.
"""

import heapq
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Key = tuple[Any, ...]
Floats = npt.NDArray[np.float64]

MOST_KEYS: Final = 5_000
"""Different keys that are counted one by one. A page shows tens of them."""

_EXACT: Final = 4_096
"""Values of which percentiles are exact. Beyond it they are kept by size."""

_GROWTH: Final = 1.02
"""One size is so much greater than the one before: its middle is off by at most 1 %."""

_SMALLEST_MS: Final = 1e-6
_SIZES: Final = 2_000  # up to 1e-6 * 1.02 ** 2000 ms: five thousand years


def groups(batch: pa.RecordBatch, keys: Sequence[str], sums: Sequence[str] = ()) -> Iterator[tuple[Key, list[int]]]:
    """Group rows: each key with the number of its rows, and the sums of some columns; null counts as 0.

    >>> list(groups(pa.record_batch({"a": ["x", "x"], "n": [1, 2]}), ["a"], ["n"]))
    [(('x',), [2, 3])]
    """
    table = pa.Table.from_batches([batch]).group_by(list(keys), use_threads=False)
    found = table.aggregate([([], "count_all"), *((name, "sum") for name in sums)]).to_pydict()
    numbers = [found["count_all"], *(found[f"{name}_sum"] for name in sums)]
    for place, key in enumerate(zip(*(found[name] for name in keys), strict=True)):
        yield key, [column[place] or 0 for column in numbers]


class Tally:
    """Sums by key. When there are too many keys the smallest go, and are only counted together.

    Attributes:
        rest: the sums of what went.

    >>> tally = Tally(2)
    >>> tally.add(("a",), [1, 10]); tally.add(("b",), [2, 0]); tally.add(("a",), [1, 1])
    >>> tally.ordered()
    [(('a',), [2, 11]), (('b',), [2, 0])]
    >>> tally.total()
    [4, 11]
    """

    def __init__(self, width: int = 1, most: int = MOST_KEYS) -> None:
        self.rest = [0] * width
        self._most = most
        self._sums: dict[Key, list[int]] = {}
        self._notes: dict[Key, Any] = {}

    def __len__(self) -> int:
        return len(self._sums)

    def add(self, key: Key, values: Sequence[int], note: object = None) -> None:
        """Add to the sums of a key. The first note of a key stays: an example to look at."""
        sums = self._sums.get(key)
        if sums is None:
            if len(self._sums) >= 2 * self._most:
                self._shrink()
            self._sums[key] = list(values)
        else:
            for place, value in enumerate(values):
                sums[place] += value
        if note is not None:
            self._notes.setdefault(key, note)

    def ordered(self, by: int = 0) -> list[tuple[Key, list[int]]]:
        """All keys with their sums, the greatest first; equal ones in the order of their keys."""
        return sorted(self._sums.items(), key=lambda item: (-item[1][by], tuple(str(part) for part in item[0])))

    def note_of(self, key: Key) -> Any:  # noqa: ANN401 - whatever was noted
        """What was noted of a key."""
        return self._notes.get(key)

    def total(self) -> list[int]:
        """The sums of everything."""
        return [kept + rest for kept, rest in zip(self._kept(), self.rest, strict=True)]

    def _kept(self) -> list[int]:
        return [sum(column) for column in zip(*self._sums.values(), strict=True)] or [0] * len(self.rest)

    def _shrink(self) -> None:
        for key, values in self.ordered()[self._most :]:
            for place, value in enumerate(values):
                self.rest[place] += value
            del self._sums[key]
            self._notes.pop(key, None)


class Spread:
    """How values in milliseconds are spread. Exact for a few thousand, and beyond it within 1 %; the ends are always exact.

    It does not depend on the order in which they come.

    >>> spread = Spread()
    >>> spread.add(np.array([4.0, 1.0, 3.0, 2.0]))
    >>> spread.at(0.5), spread.at(0.99), spread.count
    (2.0, 4.0, 4)
    """

    def __init__(self) -> None:
        self.count = 0
        self.least, self.greatest = math.inf, -math.inf
        self._values: list[Floats] = []
        self._sizes: npt.NDArray[np.int64] | None = None

    def add(self, values: Floats) -> None:
        """Take values; what is no number is left out."""
        values = values[np.isfinite(values)]
        if not len(values):
            return
        self.count += len(values)
        self.least, self.greatest = min(self.least, float(values.min())), max(self.greatest, float(values.max()))
        if self._sizes is None:
            self._values.append(values)
            if self.count <= _EXACT:
                return
            values, self._values, self._sizes = np.concatenate(self._values), [], np.zeros(_SIZES + 1, np.int64)
        self._sizes += np.bincount(_places(values), minlength=_SIZES + 1)

    @property
    def is_exact(self) -> bool:
        """Whether percentiles are exact."""
        return self._sizes is None

    def at(self, share: float) -> float | None:
        """The value that this share of all is at most: the smallest one for which that holds. None if there are none."""
        if not self.count:
            return None
        rank = max(1, math.ceil(share * self.count))
        if self._sizes is None:
            return float(np.partition(np.concatenate(self._values), rank - 1)[rank - 1])
        place = int(np.searchsorted(np.cumsum(self._sizes), rank))
        middle = _SMALLEST_MS * _GROWTH**place * 2 / (1 + _GROWTH) if place else min(self.least, 0.0)
        return min(max(middle, self.least), self.greatest)

    def count_from(self, value: float) -> int:
        """How many are at least so great; beyond a few thousand values within 1 % of it.

        >>> spread = Spread()
        >>> spread.add(np.array([4.0, 1.0, 3.0, 2.0]))
        >>> spread.count_from(2.5), spread.count_from(9.0), Spread().count_from(0.0)
        (2, 0, 0)
        """
        if self._sizes is None:
            return sum(int((values >= value).sum()) for values in self._values)
        return int(self._sizes[int(_places(np.array([value]))[0]) :].sum())


def _places(values: Floats) -> npt.NDArray[np.int64]:
    """The size of each value: one is so much greater than the one before."""
    place = np.ceil(np.log(np.maximum(values, _SMALLEST_MS) / _SMALLEST_MS) / math.log(_GROWTH))
    return np.clip(place, 0, _SIZES).astype(np.int64)


class Greatest:
    """The rows with the greatest value in a column, as dictionaries.

    >>> greatest = Greatest("n", 1)
    >>> greatest.add(pa.record_batch({"n": [1, 3, 2, None]})); greatest.add(pa.record_batch({"n": [2]}))
    >>> greatest.rows
    [{'n': 3}]
    """

    def __init__(self, column: str, most: int, then: str = "") -> None:
        self.rows: list[dict[str, Any]] = []
        self._column, self._most, self._then = column, most, then

    def add(self, batch: pa.RecordBatch) -> None:
        """Look at more rows; those without a value do not count."""
        batch = batch.filter(pc.fill_null(pc.is_finite(batch[self._column]), fill_value=False))
        order = [(self._column, "descending"), *([(self._then, "ascending")] if self._then else [])]
        found = batch.take(pc.select_k_unstable(batch, self._most, order)) if batch.num_rows else batch
        self.rows = heapq.nsmallest(
            self._most, [*self.rows, *found.to_pylist()], key=lambda row: (-row[self._column], str(row.get(self._then)))
        )
