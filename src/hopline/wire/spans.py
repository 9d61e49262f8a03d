"""Where the fields of many messages lie: the finding half of columnar decoding, on whole columns of positions.

An Arrow list<binary> is one buffer with the bytes of all frames, the bounds of the frames in it, and the bounds of the lists
in those. So a field is a span, two positions in that buffer, and to decode is to find spans: read the same number of every
message with one NumPy gather, add it to all positions, go on to the next field. Numbers that follow each other are read as
one record: a gather of sixteen bytes takes no longer than one of two.

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
        # So that there is one record to read, even if all frames together are shorter.
        self._readable = self.buffer if self.buffer.size >= _LONGEST else bytes(_LONGEST)

    def read(self, kind: np.dtype[Any], at: Positions) -> NDArray[Any]:
        """Read a number or a record at each position; one that would reach beyond the buffer is nonsense."""
        last = len(self._readable) - kind.itemsize
        # One at every byte, aligned or not; and as plain bytes, for NumPy would copy each number of a record by itself.
        every = np.ndarray((last + 1,), f"V{kind.itemsize}", self._readable, strides=(1,))
        return every[np.minimum(at, last)].view(kind)

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


class DropOut(Exception):  # noqa: N818 - no error: these messages are for the row codec
    """Some messages are not of the ordinary layout; `good` marks the others."""

    def __init__(self, good: Mask) -> None:
        super().__init__()
        self.good = good


def demand(good: Mask) -> None:
    """Go on only if all are good; else those that are not drop out of the fast path."""
    if not good.all():
        raise DropOut(good)


_U16, _U32, _I64, _BYTES = "<u2", "<u4", "<i8", "bytes"
"""How a field is written: as a number, or as a size and so many bytes."""

_SIZE: Final = np.dtype(_U32)


class _Step(NamedTuple):
    """What is read at once: numbers, of which the last is the size of the bytes that follow, if they are a `field`."""

    record: np.dtype[np.void]
    field: str


def _step(**kinds: str) -> _Step:
    *_, (last, kind) = kinds.items()
    record = np.dtype([(name, _SIZE if of == _BYTES else of) for name, of in kinds.items()])
    return _Step(record, last if kind == _BYTES else "")


_Layout = tuple[_Step, ...]

_V6_HEAD: Final[_Layout] = (
    _step(wire_version=_U16, partition=_BYTES),
    _step(version=_U16, identity=_BYTES),
    _step(receiver_identity=_BYTES),
    _step(receiver_node_identity=_BYTES),
    _step(trace_options=_U16, distribution=_U16, trace_rest=_U32, callback_receiver_node_identity=_BYTES),
    _step(callback_key=_I64, domain=_BYTES),
    _step(signature=_BYTES),
    _step(routing_count=_U16, hops=_U16, routing_rest=_U32),
)
_V6_ROUTING: Final[_Layout] = (_step(size=_U32, uri=_BYTES), _step(identity=_BYTES))
_V6_MIDDLE: Final[_Layout] = (_step(callback_count=_U16),)
_V6_CALLBACK: Final[_Layout] = (_step(size=_U32, partition=_BYTES), _step(version=_U16, identity=_BYTES))
_V6_TAIL: Final[_Layout] = (
    _step(callback_receiver_identity=_BYTES),
    _step(correlation_id=_BYTES),
    _step(ttl_ticks=_I64, body_offset=_U16, body_count=_U16, body_rest=_U32),
)
_LONGEST: Final = 16
"""Bytes of the longest record."""

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

    def walk(self, layout: _Layout) -> None:
        """Walk over the fields of a layout."""
        for record, field in layout:
            found = self._source.read(record, self.pos)
            self.pos = self.pos + record.itemsize
            self.numbers |= _numbers(found)
            if field:
                self.spans[field] = Span(self.pos, self.pos + self.numbers.pop(field))
                self.pos = self.spans[field].end

    def walk_entries(self, layout: _Layout, counts: Positions) -> Entries:
        """Find the first entry of all messages, then the second of those that have one, and so on; then walk over all."""
        first = np.cumsum(counts) - counts
        start = np.empty(int(counts.sum()), np.int64)
        pos = self.pos.copy()
        rows, step = np.flatnonzero(counts), 0
        while rows.size:
            at = pos[rows]
            start[first[rows] + step] = at
            pos[rows] = at + _SIZE.itemsize + self._source.read(_SIZE, at)
            step += 1
            rows = rows[counts[rows] > step]
        entries = _Cursor(self._source, start)
        entries.walk(layout)
        end = start + _SIZE.itemsize + entries.numbers["size"]
        # An entry may hold more than its fields, but not less.
        owner = np.repeat(np.arange(counts.size), counts)
        self.has_rest[owner[entries.pos != end]] = True
        pos[owner[entries.pos > end]] = _FAR
        self.pos = pos
        return Entries(counts, entries.spans, entries.numbers.get("version", start))


def _numbers(records: NDArray[np.void]) -> dict[str, NDArray[Any]]:
    """The columns of records, wide enough to reckon with."""
    return {name: records[name].astype(np.int64) for name in records.dtype.names or ()}


def v6_candidates(source: Source) -> Positions:
    """The rows that end in a metaframe and are too short for v3. Number 5 is left out: it may repeat the body."""
    n = source.last - source.first
    rows = np.flatnonzero(source.whole & (n > ENVELOPE) & (n < v3.FEWEST))
    start, end = source.span(source.last[rows] - 1)
    number = source.read(np.dtype(_U16), start)
    is_meta: Mask = (end - start >= v6.SHORTEST) & ((number == 6) | (number == 4))
    return rows[is_meta]


def find_v6(source: Source, rows: Positions) -> Found:
    """Find the fields of v6 messages; raises DropOut if some are not ordinary."""
    first, last = source.first[rows], source.last[rows]
    start, end = source.span(last - 1)
    cursor = _Cursor(source, start)
    numbers, spans = cursor.numbers, cursor.spans
    cursor.walk(_V6_HEAD)
    demand(numbers["routing_count"] <= _MOST_ENTRIES)
    routing = cursor.walk_entries(_V6_ROUTING, numbers["routing_count"])
    cursor.walk(_V6_MIDDLE)
    demand(numbers["callback_count"] <= _MOST_ENTRIES)
    callbacks = cursor.walk_entries(_V6_CALLBACK, numbers["callback_count"])
    cursor.walk(_V6_TAIL)
    body_offset, body_count = numbers["body_offset"], numbers["body_count"]
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
    usual &= (numbers["trace_rest"] | numbers["routing_rest"] | numbers["body_rest"]) == 0
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
    16: _step(callback_key=_I64),
    13: _step(routing_offset=_U16, routing_count=_U16, routing_divisor=_U16, hops=_U16),
    12: _step(callback_offset=_U16, callback_count=_U16, callback_divisor=_U16, callback_rest=_U16),
    7: _step(version=_U16),
    5: _step(trace_options=_U16, distribution=_U16, trace_rest=_U32),
    3: _step(ttl_ticks=_I64),
    2: _step(body_offset=_U16, body_count=_U16, body_rest=_U32),
}
"""Which frame from the end; numbers must fill their frame."""


def v5_candidates(source: Source) -> Positions:
    """The rows that end in the stamp. None can be v3 if its BodyDescription is there: v3 has an empty frame at n-2."""
    rows = np.flatnonzero(source.whole & (source.last - source.first >= v5.FEWEST))
    start, end = source.span(source.last[rows] - 1)
    size = end - start
    four, two = (source.read(np.dtype(kind), start) == 5 for kind in (_U32, _U16))
    is_stamp: Mask = ((size == 4) & four) | ((size == 2) & two)
    return rows[is_stamp]


def find_v5(source: Source, rows: Positions) -> Found:
    """Find the fields of v5 messages; raises DropOut if some are not ordinary."""
    first, last = source.first[rows], source.last[rows]
    # edges[k] is where the k-th frame from the end starts, and edges[k - 1] where it ends.
    edges = [source.bounds[last - k] for k in range(v5.TRAILER + 1)]
    good = np.ones(rows.size, np.bool_)
    for k, (record, _) in _V5_NUMBERS.items():
        good &= edges[k - 1] - edges[k] == record.itemsize
    demand(good)
    numbers: dict[str, NDArray[Any]] = {}
    for k, (record, _) in _V5_NUMBERS.items():
        numbers |= _numbers(source.read(record, edges[k]))
    spans = {name: Span(edges[k], edges[k - 1]) for name, k in _V5_SPANS.items()}
    routing_offset, routing_count, routing_divisor = (numbers[f"routing_{of}"] for of in ("offset", "count", "divisor"))
    callback_offset, callback_count, callback_divisor = (numbers[f"callback_{of}"] for of in ("offset", "count", "divisor"))
    body_offset, body_count = numbers["body_offset"], numbers["body_count"]
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
    callbacks = Entries(callback_count, points, source.read(np.dtype(_U16), version))
    spans["socket_identity"] = source.span(first)
    spans["body"] = source.span(last - body_offset, body_count)
    numbers["wire_version"] = np.full(rows.size, 5)
    numbers["variant"] = (edges[0] - edges[1] == 2).astype(np.int64)
    delimiter = source.span(first + 1)
    usual = (last - body_offset == first + ENVELOPE) & (body_count == 1) & (delimiter.start == delimiter.end)
    usual &= ~no_routing | ((routing_offset == 0) & (routing_divisor == ROUTING_FRAMES))
    usual &= ~no_callbacks | ((callback_offset == 0) & (callback_divisor == CALLBACK_FRAMES))
    usual &= (numbers["trace_rest"] | numbers["body_rest"] | numbers["callback_rest"]) == 0
    numbers["has_extra"] = ~usual
    return Found(rows, v5.NAME, numbers, spans, routing, callbacks)


def _each_entry(source: Source, first: Positions, counts: Positions, size: int) -> tuple[Positions, list[Positions]]:
    """For every entry of every message: which message it belongs to, and where its frames start, and the last one ends."""
    owner = np.repeat(np.arange(counts.size), counts)
    ahead = np.cumsum(counts) - counts
    frame = (first - size * ahead)[owner] + size * np.arange(owner.size)
    return owner, [source.bounds[frame + k] for k in range(size + 1)]
