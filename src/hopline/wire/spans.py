"""Spans: where the fields of many messages lie, on whole columns of positions.

An Arrow list<binary> is one buffer with the bytes of all frames, the bounds of the frames in it, and the bounds of the lists
in those. So a field is a span, two positions in that buffer, and to decode is to find spans.

    Source     the buffer and the bounds, as NumPy views of the Arrow memory
    Slot       the same places in each of many messages of one shape, in a copy of them that lies close together
    Found      where the fields of some messages lie: `metaframes.py` finds those of v6, `trailers.py` those of v5

Only the ordinary layouts are found. What is not of such a layout drops out (`DropOut`), and the rest is found again without
it. Nothing is copied and nothing rejected here: see `columnar.py`.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hopline.errors import DecodeError
from hopline.wire import v5, v6

U16: Final = np.dtype("<u2")
U32: Final = np.dtype("<u4")
I64: Final = np.dtype("<i8")

LONGEST: Final = 16
"""Bytes of the longest record that is read at once."""

Positions = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Span(NamedTuple):
    """Where a field lies in the buffer, for each message or each entry, and never before that of the one before."""

    start: Positions
    end: Positions


class Slot(NamedTuple):
    """Where a field lies in messages of one shape, or one of each entry: at the same places in all of them."""

    rows: NDArray[np.uint8]
    """A row for each message: its metaframe, so that fields are copied from memory that was fetched already."""
    start: Positions
    """Where each row begins in the buffer."""
    places: tuple[tuple[int, int], ...]
    """Where the field lies in each row, or that of one entry after the other: from, and to before."""

    def span(self) -> Span:
        """The same as positions in the buffer."""
        first, last = np.array(self.places, np.int64).reshape(-1, 2).T
        return Span(np.add.outer(self.start, first).ravel(), np.add.outer(self.start, last).ravel())

    def copy(self) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """The bounds of the fields, and their bytes."""
        count, each = len(self.rows), len(self.places)
        sizes = [last - first for first, last in self.places]
        width = sum(sizes)
        together = np.empty((count, width), np.uint8)
        bounds = np.empty(count * each + 1, np.int32)
        bounds[-1] = together.size
        starts, to = np.arange(count, dtype=np.int32) * np.int32(width), 0
        for number, ((first, _), size) in enumerate(zip(self.places, sizes, strict=True)):
            bounds[number:-1:each] = starts + np.int32(to)  # one place of all rows at a time: rows have few
            if size and count:
                _as_items(together, to, size)[:] = _as_items(self.rows, first, size)
            to += size
        return bounds, together


def _as_items(rows: NDArray[np.uint8], start: int, size: int) -> NDArray[np.void]:
    """Some bytes of each row as one item, which NumPy copies three times as fast as so many bytes."""
    return np.ndarray((len(rows),), f"V{size}", rows, start, strides=(rows.shape[1],))


class Entries(NamedTuple):
    """The entries of all messages in one line: how many each message has, and the fields of each entry."""

    counts: Positions
    spans: dict[str, Span | Slot]
    versions: Positions


class Found(NamedTuple):
    """Where the fields of some messages lie, and the numbers that were read on the way.

    Among the numbers, `format` and `variant` are indices into FORMATS and VARIANTS, and `distribution` is as on the wire.
    """

    rows: Positions
    numbers: dict[str, NDArray[Any]]
    spans: dict[str, Span | Slot]
    routing: Entries
    callbacks: Entries


FORMATS: Final = (v6.NAME, v5.NAME)
VARIANTS: Final = ("", "int32-stamp", "uint16-stamp")


def joined(parts: Sequence[Found]) -> Found:
    """Several finds as one, in the order of their rows. It holds what all of them do, and puts it together when asked."""
    if len(parts) == 1:
        return parts[0]
    places, rows = _in_order([part.rows for part in parts])
    return Found(
        rows,
        _When(lambda name: _together(places, [part.numbers[name] for part in parts])),
        _When(lambda name: _spans_together(places, [part.spans[name] for part in parts])),
        _entries_together(places, [part.routing for part in parts]),
        _entries_together(places, [part.callbacks for part in parts]),
    )


class _When(dict[str, Any]):
    """Values that are made when they are asked for."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, name: str) -> Any:  # noqa: ANN401 - as the dict
        self[name] = made = self._make(name)
        return made


def _in_order(rows: list[Positions]) -> tuple[list[Positions], Positions]:
    """Where each of the rows comes if all are put in order, and all in order."""
    together = np.concatenate(rows)
    order = np.argsort(together, kind="stable")
    places = np.empty_like(order)
    places[order] = np.arange(order.size)
    return np.split(places, np.cumsum([part.size for part in rows])[:-1]), together[order]


def _together(places: list[Positions], parts: list[NDArray[Any]]) -> NDArray[Any]:
    together = np.empty(sum(where.size for where in places), np.result_type(*parts))
    for where, part in zip(places, parts, strict=True):
        together[where] = part
    return together


def _spans_together(places: list[Positions], parts: list[Span | Slot]) -> Span:
    spans = [part.span() if isinstance(part, Slot) else part for part in parts]
    return Span(_together(places, [span.start for span in spans]), _together(places, [span.end for span in spans]))


def _entries_together(places: list[Positions], parts: list[Entries]) -> Entries:
    counts = _together(places, [part.counts for part in parts])
    ahead = np.cumsum(counts) - counts
    lines = []
    for where, part in zip(places, parts, strict=True):
        own = np.cumsum(part.counts) - part.counts
        lines.append(np.repeat(ahead[where] - own, part.counts) + np.arange(int(part.counts.sum())))
    return Entries(
        counts,
        _When(lambda name: _spans_together(lines, [part.spans[name] for part in parts])),
        _together(lines, [part.versions for part in parts]),
    )


class Source:
    """The frame lists of a block, as views of its memory.

    Attributes:
        base: the row of the first list in the batch.
        buffer: the bytes of all frames.
        bounds: frame i lies in the buffer from `bounds[i]` to `bounds[i + 1]`.
        first: for each list its first frame.
        last: for each list the frame after its last.
        whole: for each list whether neither it nor any of its frames is null.
    """

    def __init__(self, lists: pa.Array, base: int) -> None:
        self.base = base
        edges: Positions = np.asarray(lists.offsets).astype(np.int64)
        # Only the frames of these lists: `values` has those of the whole array that the block was sliced from.
        self._frames = lists.values.slice(edges[0], edges[-1] - edges[0])
        edges -= edges[0]
        self.first, self.last = edges[:-1], edges[1:]
        _, bounds, data = self._frames.buffers()
        width = np.int64 if pa.types.is_large_binary(self._frames.type) else np.int32
        within = slice(self._frames.offset, self._frames.offset + len(self._frames) + 1)
        self.bounds: Positions = np.frombuffer(bounds or bytes(8), width)[within].astype(np.int64)
        self.buffer = data or pa.py_buffer(b"")
        self.whole: Mask = np.asarray(lists.is_valid())
        if self._frames.null_count:
            nulls = np.concatenate(([0], np.cumsum(np.asarray(self._frames.is_null()))))
            self.whole = self.whole & (nulls[self.first] == nulls[self.last])
        # So that there is one record to read, even if all frames together are shorter.
        self._readable = self.buffer if self.buffer.size >= LONGEST else bytes(LONGEST)

    def read(self, kind: np.dtype[Any], at: Positions) -> NDArray[Any]:
        """Read a number or a record at each position; one that would reach beyond the buffer is nonsense."""
        last = len(self._readable) - kind.itemsize
        # One at every byte, aligned or not; and as plain bytes, for NumPy would copy each number of a record by itself.
        every = np.ndarray((last + 1,), f"V{kind.itemsize}", self._readable, strides=(1,))
        return every[np.minimum(at, last)].view(kind)

    def cut(self, start: int, end: int) -> bytes:
        """The bytes between two positions."""
        return memoryview(self.buffer)[start:end].tobytes()

    def span(self, frame: Positions, count: Positions | int = 1) -> Span:
        """Where a frame lies, or several that follow each other: nothing lies between them."""
        return Span(self.bounds[frame], self.bounds[frame + count])

    def frames(self, row: int) -> list[bytes]:
        """The frames of one list as the row codec takes them; raises DecodeError if one is null or all are."""
        first, last = int(self.first[row]), int(self.last[row])
        if not self.whole[row]:
            nulls = self._frames.slice(first, last - first).is_null().to_pylist()
            reason = f"frame {nulls.index(True)} is null" if True in nulls else "the frame list is null"
            raise DecodeError("WIRE_UNKNOWN_FORMAT", reason)
        return [self.cut(start, end) for start, end in pairwise(self.bounds[first : last + 1].tolist())]


class DropOut(Exception):  # noqa: N818 - no error: these messages are for the row codec
    """Some messages are not of the ordinary layout; `good` marks the others."""

    def __init__(self, good: Mask) -> None:
        super().__init__()
        self.good = good


def demand(good: Mask) -> None:
    """Go on only if all are good; else those that are not drop out of the fast path."""
    if not good.all():
        raise DropOut(good)


def constant(value: int, count: int) -> NDArray[Any]:
    """So many times the same number, which takes no memory: most of these columns nobody asks for."""
    return np.broadcast_to(np.array(value), count)


def numbers_of(records: NDArray[np.void]) -> dict[str, NDArray[Any]]:
    """The columns of records, wide enough to reckon with."""
    return {name: records[name].astype(np.int64) for name in records.dtype.names or ()}
