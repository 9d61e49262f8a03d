"""Where the fields of many messages lie: the finding half of columnar decoding, on whole columns of positions.

An Arrow list<binary> is one buffer with the bytes of all frames, the bounds of the frames in it, and the bounds of the lists
in those. So a field is a span, two positions in that buffer, and to decode is to find spans: read the same number of every
message with one NumPy gather, add it to all positions, go on to the next field.

    Source     the buffer and the bounds, as NumPy views of the Arrow memory
    Found      where the fields of some messages lie: what `find_v6` and `find_v5` give

Finding is optimistic, as in `v6.py`. Lengths are read as unsigned, so a position only ever grows; a read beyond the buffer
is moved back to its end and gives nonsense; and comparing the last position with the end of the frame tells the messages in
which every read was good. The others drop out (`DropOut`), and the rest is found again without them.

Only the ordinary layouts of v6 and v5 are found. This file copies nothing and rejects nothing: see `columnar.py`.
"""

from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hopline.errors import DecodeError
from hopline.wire import v3, v5, v6
from hopline.wire.message import Distribution
from hopline.wire.regions import CALLBACK_FRAMES, ENVELOPE, ROUTING_FRAMES

_MOST_ENTRIES: Final = 32
"""Most entries of a v6 message on the fast path: each is a step over the messages that have so many, and few have more."""

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
        # So that there is one number to read, even if all frames together are shorter.
        readable = np.frombuffer(self.buffer if self.buffer.size >= 8 else bytes(8), np.uint8)
        self._views = {kind: _at_every_byte(readable, kind) for kind in (_U16, _U32, _I64)}

    def numbers(self, kind: str, at: Positions) -> Positions:
        """Read a number at each position; one that would reach beyond the buffer is nonsense."""
        view = self._views[kind]
        return view[np.minimum(at, view.size - 1)].astype(np.int64, copy=False)

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
        view = memoryview(self.buffer)
        return [view[start:end].tobytes() for start, end in pairwise(self.bounds[first : last + 1].tolist())]


def _at_every_byte(data: NDArray[np.uint8], kind: str) -> NDArray[np.int64]:
    """View a buffer as the numbers that start at each of its bytes, aligned or not."""
    return np.ndarray((data.size - np.dtype(kind).itemsize + 1,), kind, data, strides=(1,))


class DropOut(Exception):  # noqa: N818 - no error: these messages are for the row codec
    """Some messages are not of the ordinary layout; `good` marks the others."""

    def __init__(self, good: Mask) -> None:
        super().__init__()
        self.good = good


def demand(good: Mask) -> None:
    """Go on only if all are good; else those that are not drop out of the fast path."""
    if not good.all():
        raise DropOut(good)


def _lanes(word: NDArray[Any]) -> tuple[Positions, Positions, Positions, Positions]:
    return word & 0xFFFF, word >> 16 & 0xFFFF, word >> 32 & 0xFFFF, word >> 48 & 0xFFFF


_U16, _U32, _I64, _BYTES = "<u2", "<u4", "<i8", "bytes"
"""How a field is written: as a number, or as a length and so many bytes."""

_Layout = tuple[tuple[str, str], ...]

_V6_HEAD: Final[_Layout] = (
    ("wire_version", _U16),
    ("partition", _BYTES),
    ("version", _U16),
    ("identity", _BYTES),
    ("receiver_identity", _BYTES),
    ("receiver_node_identity", _BYTES),
    ("trace_word", _I64),
    ("callback_receiver_node_identity", _BYTES),
    ("callback_key", _I64),
    ("domain", _BYTES),
    ("signature", _BYTES),
    ("routing_word", _I64),
)
_V6_ROUTING: Final[_Layout] = (("uri", _BYTES), ("identity", _BYTES))
_V6_CALLBACK: Final[_Layout] = (("partition", _BYTES), ("version", _U16), ("identity", _BYTES))
_V6_TAIL: Final[_Layout] = (
    ("callback_receiver_identity", _BYTES),
    ("correlation_id", _BYTES),
    ("ttl_ticks", _I64),
    ("body_word", _I64),
)
_FAR: Final = 1 << 62
"""A position that no frame reaches."""


class _Cursor:
    """Walks through many metaframes at once, field by field, and keeps what it found."""

    def __init__(self, source: Source, pos: Positions) -> None:
        self._source = source
        self.pos = pos
        self.numbers: dict[str, NDArray[Any]] = {}
        self.spans: dict[str, Span] = {}
        self.has_rest: Mask = np.zeros(pos.size, np.bool_)

    def number(self, kind: str) -> Positions:
        """Read a number."""
        value = self._source.numbers(kind, self.pos)
        self.pos = self.pos + np.dtype(kind).itemsize
        return value

    def walk(self, layout: _Layout) -> None:
        """Walk over the fields of a layout."""
        for name, kind in layout:
            if kind == _BYTES:
                size = self.number(_U32)
                self.spans[name] = Span(self.pos, self.pos + size)
                self.pos = self.spans[name].end
            else:
                self.numbers[name] = self.number(kind)

    def walk_entries(self, layout: _Layout, counts: Positions) -> Entries:
        """Walk over the first entry of all messages, then over the second of those that have one, and so on."""
        total = int(counts.sum())
        first = np.cumsum(counts) - counts
        versions = np.empty(total, np.int64)
        spans = {name: Span(versions.copy(), versions.copy()) for name, kind in layout if kind == _BYTES}
        self.pos = self.pos.copy()
        rows, step = np.flatnonzero(counts), 0
        while rows.size:
            entry = _Cursor(self._source, self.pos[rows])
            size = entry.number(_U32)
            end = entry.pos + size
            entry.walk(layout)
            place = first[rows] + step
            for name, span in entry.spans.items():
                spans[name].start[place] = span.start
                spans[name].end[place] = span.end
            if "version" in entry.numbers:
                versions[place] = entry.numbers["version"]
            # An entry may hold more than its fields, but not less.
            self.has_rest[rows] |= entry.pos != end
            self.pos[rows] = np.where(entry.pos <= end, end, _FAR)
            step += 1
            rows = rows[counts[rows] > step]
        return Entries(counts, spans, versions)


def v6_candidates(source: Source) -> Positions:
    """The rows that end in a metaframe and are too short for v3. Number 5 is left out: it may repeat the body."""
    n = source.last - source.first
    rows = np.flatnonzero(source.whole & (n > ENVELOPE) & (n < v3.FEWEST))
    start, end = source.span(source.last[rows] - 1)
    number = source.numbers(_U16, start)
    is_meta: Mask = (end - start >= v6.SHORTEST) & ((number == 6) | (number == 4))
    return rows[is_meta]


def find_v6(source: Source, rows: Positions) -> Found:
    """Find the fields of v6 messages; raises DropOut if some are not ordinary."""
    first, last = source.first[rows], source.last[rows]
    start, end = source.span(last - 1)
    cursor = _Cursor(source, start)
    numbers, spans = cursor.numbers, cursor.spans
    cursor.walk(_V6_HEAD)
    routing_count, numbers["hops"], *_ = _lanes(numbers["routing_word"])
    demand(routing_count <= _MOST_ENTRIES)
    routing = cursor.walk_entries(_V6_ROUTING, routing_count)
    callback_count = cursor.number(_U16)
    demand(callback_count <= _MOST_ENTRIES)
    callbacks = cursor.walk_entries(_V6_CALLBACK, callback_count)
    cursor.walk(_V6_TAIL)
    numbers["trace_options"], numbers["distribution"], *_ = _lanes(numbers["trace_word"])
    body_offset, body_count, *_ = _lanes(numbers["body_word"])
    body = last - body_offset
    demand(
        (cursor.pos <= end)
        & (numbers["distribution"] <= Distribution.BROADCAST)
        & (body >= first + ENVELOPE)
        & (body + body_count < last)
    )
    spans["socket_identity"] = source.span(first)
    spans["body"] = source.span(body, body_count)
    numbers["variant"] = np.zeros(rows.size, np.int64)
    delimiter = source.span(first + 1)
    usual = (numbers["wire_version"] == 6) & (last - first == v6.FEWEST) & (body_offset == 2) & (body_count == 1)
    usual &= (delimiter.start == delimiter.end) & (cursor.pos == end) & ~cursor.has_rest
    usual &= (numbers["trace_word"] | numbers["routing_word"] | numbers["body_word"]) >> 32 == 0
    numbers["has_extra"] = ~usual
    return Found(rows, v6.NAME, numbers, spans, routing, callbacks)


_V5_SPANS: Final = {
    "callback_receiver_node_identity": 17,
    "domain": 15,
    "signature": 14,
    "receiver_identity": 11,
    "callback_receiver_identity": 10,
    "receiver_node_identity": 9,
    "partition": 8,
    "identity": 6,
    "correlation_id": 4,
}
_V5_NUMBERS: Final = {
    "callback_key": (16, _I64),
    "routing_word": (13, _I64),
    "callback_word": (12, _I64),
    "version": (7, _U16),
    "trace_word": (5, _I64),
    "ttl_ticks": (3, _I64),
    "body_word": (2, _I64),
}
"""Which frame from the end; a number must fill its frame."""


def v5_candidates(source: Source) -> Positions:
    """The rows that end in the stamp. None can be v3 if its BodyDescription is there: v3 has an empty frame at n-2."""
    rows = np.flatnonzero(source.whole & (source.last - source.first >= v5.FEWEST))
    start, end = source.span(source.last[rows] - 1)
    size = end - start
    four, two = (source.numbers(kind, start) == 5 for kind in (_U32, _U16))
    is_stamp: Mask = ((size == 4) & four) | ((size == 2) & two)
    return rows[is_stamp]


def find_v5(source: Source, rows: Positions) -> Found:
    """Find the fields of v5 messages; raises DropOut if some are not ordinary."""
    first, last = source.first[rows], source.last[rows]
    # edges[k] is where the k-th frame from the end starts, and edges[k - 1] where it ends.
    edges = [source.bounds[last - k] for k in range(v5.TRAILER + 1)]
    good = np.ones(rows.size, np.bool_)
    for k, kind in _V5_NUMBERS.values():
        good &= edges[k - 1] - edges[k] == np.dtype(kind).itemsize
    demand(good)
    numbers: dict[str, NDArray[Any]] = {name: source.numbers(kind, edges[k]) for name, (k, kind) in _V5_NUMBERS.items()}
    spans = {name: Span(edges[k], edges[k - 1]) for name, k in _V5_SPANS.items()}
    routing_offset, routing_count, routing_divisor, numbers["hops"] = _lanes(numbers["routing_word"])
    callback_offset, callback_count, callback_divisor, callback_reserved = _lanes(numbers["callback_word"])
    body_offset, body_count, *_ = _lanes(numbers["body_word"])
    numbers["trace_options"], numbers["distribution"], *_ = _lanes(numbers["trace_word"])
    # The ordinary layout: the parts follow each other without a gap, and entries are no larger than they must be.
    callbacks_at = v5.TRAILER + CALLBACK_FRAMES * callback_count
    routing_at = callbacks_at + ROUTING_FRAMES * routing_count
    no_callbacks, no_routing = callback_count == 0, routing_count == 0
    demand(
        (no_callbacks | ((callback_offset == v5.TRAILER + 1) & (callback_divisor == CALLBACK_FRAMES)))
        & (no_routing | ((routing_offset == callbacks_at + 1) & (routing_divisor == ROUTING_FRAMES)))
        & (body_offset == routing_at + body_count)
        & (last - body_offset >= first + ENVELOPE)
        & (numbers["distribution"] <= Distribution.BROADCAST)
    )
    _, (start, middle, end) = _each_entry(source, last - routing_at, routing_count, ROUTING_FRAMES)
    routing = Entries(routing_count, {"uri": Span(start, middle), "identity": Span(middle, end)}, start)
    owner, (start, version, identity, end) = _each_entry(source, last - callbacks_at, callback_count, CALLBACK_FRAMES)
    good[owner[identity - version != 2]] = False
    demand(good)
    points = {"partition": Span(start, version), "identity": Span(identity, end)}
    callbacks = Entries(callback_count, points, source.numbers(_U16, version))
    spans["socket_identity"] = source.span(first)
    spans["body"] = source.span(last - body_offset, body_count)
    numbers["wire_version"] = np.full(rows.size, 5)
    numbers["variant"] = (edges[0] - edges[1] == 2).astype(np.int64)
    delimiter = source.span(first + 1)
    usual = (last - body_offset == first + ENVELOPE) & (body_count == 1) & (delimiter.start == delimiter.end)
    usual &= ~no_routing | ((routing_offset == 0) & (routing_divisor == ROUTING_FRAMES))
    usual &= ~no_callbacks | ((callback_offset == 0) & (callback_divisor == CALLBACK_FRAMES))
    usual &= ((numbers["trace_word"] | numbers["body_word"]) >> 32 | callback_reserved) == 0
    numbers["has_extra"] = ~usual
    return Found(rows, v5.NAME, numbers, spans, routing, callbacks)


def _each_entry(source: Source, first: Positions, counts: Positions, size: int) -> tuple[Positions, list[Positions]]:
    """For every entry of every message: which message it belongs to, and where its frames start, and the last one ends."""
    owner = np.repeat(np.arange(counts.size), counts)
    ahead = np.cumsum(counts) - counts
    frame = (first - size * ahead)[owner] + size * np.arange(owner.size)
    return owner, [source.bounds[frame + k] for k in range(size + 1)]
