"""Spans: where the fields of many messages lie, on whole columns of positions.

An Arrow list<binary> is one buffer with the bytes of all frames, the bounds of the frames in it, and the bounds of the lists
in those. So a field is a span, two positions in that buffer, and to decode is to find spans.

    Source     the buffer and the bounds, as NumPy views of the Arrow memory
    Found      where the fields of some messages lie: `metaframes.py` finds those of v6, `trailers.py` those of v5

Only the ordinary layouts are found. What is not of such a layout drops out (`DropOut`), and the rest is found again without
it. Nothing is copied and nothing rejected here: see `columnar.py`.
"""

from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hopline.errors import DecodeError

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


class Entries(NamedTuple):
    """The entries of all messages in one line: how many each message has, and the fields of each entry."""

    counts: Positions
    spans: dict[str, Span]
    versions: Positions


class Found(NamedTuple):
    """Where the fields of some messages lie, and the numbers that were read on the way.

    Among the numbers, `variant` is an index into the variants of the format, and `distribution` is as on the wire.
    """

    rows: Positions
    format: str
    numbers: dict[str, NDArray[Any]]
    spans: dict[str, Span]
    routing: Entries
    callbacks: Entries


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


def numbers_of(records: NDArray[np.void]) -> dict[str, NDArray[Any]]:
    """The columns of records, wide enough to reckon with."""
    return {name: records[name].astype(np.int64) for name in records.dtype.names or ()}
