"""The timeline of a capture: all its records in the order of time, then of file and line, in bounded memory.

Segments are merged. One whose records are in order, as nearly all are, is read batch by batch, from the moment that its
first record is due; so what is held is a batch of each segment that overlaps in time. One that is out of order (a clock
that was set back, a file put together from others) is sorted in memory: 256 MiB of frames at most, for a segment is not
made larger.
"""

import heapq
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hopline.capture.reading import Problem, Reading
from hopline.capture.record import numbers_array, numbers_of
from hopline.capture.segment import Segment

COLUMNS: Final = ["seen_ns", "source", "seq", "node", "direction", "socket", "extra", "frames"]

_SLICE: Final = 256
"""Rows that are Python objects at the same time, of each segment that is being merged."""


class Moment(NamedTuple):
    """A record in the order of time; `source` is empty and `place` is its row if it was not imported, else its line."""

    seen_ns: int
    source: str
    place: int
    segment: int
    node: str | None
    direction: str | None
    socket: str | None
    extra: str | None
    frames: list[bytes]


def in_order(segments: list[Segment], problems: list[Problem]) -> Iterator[Moment]:
    """Read all records of segments in the order of time, file and line; what is wrong is added to `problems`."""
    looks = [(Reading(segment, facts_only=True).look(), number) for number, segment in enumerate(segments)]
    waiting = sorted(((look.min_ns, number, look) for look, number in looks if look.rows), reverse=True)
    problems += [problem for look, _ in looks if not look.rows for problem in look.problems]
    heap: list[tuple[Moment, Iterator[Moment]]] = []
    while waiting or heap:
        if waiting and (not heap or waiting[-1][0] <= heap[0][0].seen_ns):
            _, number, look = waiting.pop()
            rows = _rows(look, number, problems)
            if (moment := next(rows, None)) is not None:
                heapq.heappush(heap, (moment, rows))
            continue
        moment, rows = heap[0]
        yield moment
        following = next(rows, None)
        if following is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (following, rows))


def _rows(look: Reading, number: int, problems: list[Problem]) -> Iterator[Moment]:
    """The records of one segment in order."""
    reading = Reading(look.segment, COLUMNS, most_rows=1)
    if look.is_in_order:
        for first_row, batch in reading:
            yield from _moments(batch, _places(reading, batch, first_row), number)
    else:
        found = [(batch, _places(reading, batch, first_row)) for first_row, batch in reading]
        if found:
            table = pa.Table.from_batches([batch for batch, _ in found]).combine_chunks()
            places = np.concatenate([places for _, places in found])
            order = np.lexsort((places, np.concatenate([numbers_of(batch["seen_ns"]) for batch, _ in found])))
            for start in range(0, order.size, _SLICE):
                some = order[start : start + _SLICE]
                yield from _moments(table.take(numbers_array(some)), places[some], number)
    problems += reading.problems


def _places(reading: Reading, batch: pa.RecordBatch, first_row: int) -> NDArray[np.int64]:
    """The line of each imported record, the row of each other one."""
    if reading.head is not None and reading.head.is_import:
        return numbers_of(batch["seq"]).astype(np.int64)
    return np.arange(first_row, first_row + batch.num_rows)


def _moments(rows: pa.RecordBatch | pa.Table, places: NDArray[np.int64], number: int) -> Iterator[Moment]:
    for start in range(0, len(places), _SLICE):
        some = rows.slice(start, _SLICE)
        seen, source, *rest = (some[name].to_pylist() for name in COLUMNS if name != "seq")
        for when, file, place, *values in zip(seen, source, places[start : start + _SLICE].tolist(), *rest, strict=True):
            yield Moment(when, file or "", place, number, *values)
