"""Arrow batches of frame lists to Arrow batches of messages: the row codec's answers, without a Python loop per message.

Theory of operation. An Arrow list<binary> is one buffer with the bytes of all frames, the bounds of the frames in it, and
the bounds of the lists in those. So a field is a span, two positions in that buffer, and to decode is to find spans. Finding
works on whole columns of positions: read the same number of every message with one NumPy gather, add it to all positions,
go on to the next field. Then each field of all messages is copied at once, in C++.

    _Source    the buffer and the bounds, as NumPy views of the Arrow memory
    _Found     where the fields of some messages lie: what `_find_v6` and `_find_v5` give
    _Part      the columns of some messages: copied from where they were found, or made of what the row codec gave

Finding is optimistic, as in `v6.py`. Lengths are read as unsigned, so a position only ever grows; a read beyond the buffer
is moved back to its end and gives nonsense; and comparing the last position with the end of the frame tells the messages in
which every read was good. The others drop out, and the rest is found again without them.

The fast path takes the ordinary layouts of v6 and v5 and never rejects. Whatever it does not take - v3, v4, early
metaframes, unknown frames between the parts, broken messages, text that is not UTF-8 - goes to `hopline.wire.decode`, one
message at a time, and that answer counts. So what is wrong with a message is known in one place, and it is not this one.
What the fast path does take it must read exactly as the row codec: the property test holds the two against each other.

This file does no I/O, reads no clock, and knows neither Spark nor where batches come from. It needs numpy and pyarrow.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hopline.errors import DecodeError
from hopline.identity import MessageType
from hopline.wire import v3, v5, v6
from hopline.wire.decoded import Decoded
from hopline.wire.formats import decode
from hopline.wire.message import Distribution, Message
from hopline.wire.regions import CALLBACK_FRAMES, ENVELOPE, ROUTING_FRAMES
from hopline.wire.v3 import TtlUnit

_CALLBACK_POINT: Final = pa.struct(
    [("identity", pa.binary()), ("version", pa.int32()), ("version_bytes", pa.binary()), ("partition", pa.binary())]
)
_NOT_BYTES: Final = {
    "version": pa.int32(),
    "distribution": pa.string(),
    "trace_options": pa.int64(),
    "callback_points": pa.list_(_CALLBACK_POINT),
    "callback_key": pa.int64(),
    "domain": pa.string(),
    "ttl_ticks": pa.int64(),
    "hops": pa.int32(),
    "routing": pa.list_(pa.struct([("uri", pa.string()), ("identity", pa.binary())])),
}
"""The types of those fields of Message that are not plain bytes."""


def _message_schema() -> pa.Schema:
    layout = [("row", pa.int64()), ("format", pa.string()), ("variant", pa.string()), ("wire_version", pa.int32())]
    fields = [(name, _NOT_BYTES.get(name, pa.binary())) for name in Message.__struct_fields__]
    fields.insert(Message.__struct_fields__.index("version") + 1, ("version_bytes", pa.binary()))
    return pa.schema([*layout, *fields, ("body_size", pa.int64()), ("has_extra", pa.bool_())])


MESSAGE_SCHEMA: Final = _message_schema()
"""A row per message: where it stood in the input, its layout, the fields of Message in their order, and two facts more.

`version` is null where the version is no number, and `version_bytes` is null where it is one. `has_extra` says that the
frames hold more than the fields: only the row codec keeps what is needed to write them again.
"""

REJECT_SCHEMA: Final = pa.schema(
    [
        ("row", pa.int64()),
        ("code", pa.string()),
        ("reason", pa.string()),
        ("tried", pa.list_(pa.struct([("format", pa.string()), ("reason", pa.string())]))),
    ]
)
"""A row per frame list that is no message: where it stood in the input, and what the row codec's DecodeError says."""

_BLOCK: Final = 8192
"""Rows that are worked on at once: few enough for the cache, many enough to forget the cost of a call. Measured."""

_LONG_RUN: Final = 64
"""Rows that come from one part without a break, on average, from which copying slices beats copying row by row. Measured."""

_MOST_ENTRIES: Final = 32
"""Most entries of a v6 message on the fast path: each is a step over the messages that have so many, and few have more."""

_LARGE: Final = 1 << 31
"""Bytes that are too many for 32-bit offsets."""

_TOO_LARGE: Final = "a column would hold 2 GiB or more; decode the batch in slices, or without that column"

_Positions = NDArray[np.int64]
_Mask = NDArray[np.bool_]


class DecodedBatch(NamedTuple):
    """Every row of the input is one row of `messages` or one row of `rejects`; both are in the order of the input."""

    messages: pa.RecordBatch
    rejects: pa.RecordBatch


def decode_batch(
    frames: pa.Array | pa.ChunkedArray | pa.RecordBatch, *, v3_ttl: TtlUnit = "ms", columns: Sequence[str] | None = None
) -> DecodedBatch:
    """Decode a batch of frame lists of any format; nothing that the bytes hold makes it raise.

    Args:
        frames: list<binary>, large or not, in one piece or in chunks; or a batch with a column `frames` of that type.
            A null list, or a list with a null frame, is a reject.
        v3_ttl: the unit of TTL in v3, as for `decode`.
        columns: the columns of `messages` to make, in this order; by default all of MESSAGE_SCHEMA. It decides what is
            copied, never what is a message and what is a reject.

    Raises:
        TypeError: the input is no list of binary.
        ValueError: there is no such column, or one would hold 2 GiB or more: decode such a batch in slices.

    >>> from hopline.wire import encode
    >>> batch = decode_batch(pa.array([encode(Message(identity=b"HELLO", version=1)), [b"junk"]]))
    >>> batch.messages["identity"].to_pylist(), batch.rejects["code"].to_pylist()
    ([b'HELLO'], ['WIRE_UNKNOWN_FORMAT'])
    """
    wanted = _wanted(columns)
    if isinstance(frames, pa.RecordBatch | pa.Table):
        if "frames" not in frames.schema.names:
            raise ValueError(f"the batch has no column 'frames', only {', '.join(frames.schema.names) or 'none at all'}")
        frames = frames.column("frames")
    if not isinstance(frames, pa.Array | pa.ChunkedArray) or not _is_frame_lists(frames.type):
        raise TypeError(f"frames must be list<binary>, large or not, and not {getattr(frames, 'type', type(frames))}")
    parts: list[_Part] = []
    rejects: list[dict[str, Any]] = []
    base = 0
    for lists in frames.chunks if isinstance(frames, pa.ChunkedArray) else [frames]:
        for start in range(0, len(lists), _BLOCK):
            _decode_block(_Source(lists.slice(start, _BLOCK), base + start), v3_ttl, wanted, parts, rejects)
        base += len(lists)
    return DecodedBatch(_merge(parts, wanted), pa.RecordBatch.from_pylist(rejects, REJECT_SCHEMA))


def _is_frame_lists(kind: pa.DataType) -> bool:
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    return bool(pa.types.is_binary(kind.value_type) or pa.types.is_large_binary(kind.value_type))


def _wanted(columns: Sequence[str] | None) -> pa.Schema:
    if columns is None:
        return MESSAGE_SCHEMA
    if not columns or len(set(columns)) != len(columns) or not set(columns) <= set(MESSAGE_SCHEMA.names):
        known = ", ".join(MESSAGE_SCHEMA.names)
        raise ValueError(f"columns must name some of {known}, each once, and not {', '.join(map(repr, columns)) or 'none'}")
    return pa.schema([MESSAGE_SCHEMA.field(name) for name in columns])


class _Span(NamedTuple):
    """Where a field lies in the buffer, for each message or each entry, and never before that of the one before."""

    start: _Positions
    end: _Positions


class _Entries(NamedTuple):
    """The entries of all messages in one line: how many each message has, and the fields of each entry."""

    counts: _Positions
    spans: dict[str, _Span]
    versions: _Positions


class _Found(NamedTuple):
    """Where the fields of some messages lie, and the numbers that were read on the way.

    Among the numbers, `variant` is an index into the variants of the format, and `distribution` is as on the wire.
    """

    rows: _Positions
    format: str
    numbers: dict[str, NDArray[Any]]
    spans: dict[str, _Span]
    routing: _Entries
    callbacks: _Entries


class _Part(NamedTuple):
    """Some messages: their rows in the batch, rising, and their columns."""

    rows: _Positions
    columns: pa.RecordBatch


class _Source:
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
        edges: _Positions = np.asarray(lists.offsets).astype(np.int64)
        # Only the frames of these lists: `values` has those of the whole array that the block was sliced from.
        self._frames = lists.values.slice(edges[0], edges[-1] - edges[0])
        edges -= edges[0]
        self.first, self.last = edges[:-1], edges[1:]
        _, bounds, data = self._frames.buffers()
        width = np.int64 if pa.types.is_large_binary(self._frames.type) else np.int32
        within = slice(self._frames.offset, self._frames.offset + len(self._frames) + 1)
        self.bounds: _Positions = np.frombuffer(bounds or bytes(8), width)[within].astype(np.int64)
        self.buffer = data or pa.py_buffer(b"")
        self.whole: _Mask = np.asarray(lists.is_valid())
        if self._frames.null_count:
            nulls = np.concatenate(([0], np.cumsum(np.asarray(self._frames.is_null()))))
            self.whole = self.whole & (nulls[self.first] == nulls[self.last])
        # So that there is one number to read, even if all frames together are shorter.
        readable = np.frombuffer(self.buffer if self.buffer.size >= 8 else bytes(8), np.uint8)
        self._views = {kind: _at_every_byte(readable, kind) for kind in (_U16, _U32, _I64)}

    def numbers(self, kind: str, at: _Positions) -> _Positions:
        """Read a number at each position; one that would reach beyond the buffer is nonsense."""
        view = self._views[kind]
        return view[np.minimum(at, view.size - 1)].astype(np.int64, copy=False)

    def span(self, frame: _Positions, count: _Positions | int = 1) -> _Span:
        """Where a frame lies, or several that follow each other: nothing lies between them."""
        return _Span(self.bounds[frame], self.bounds[frame + count])

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


def _decode_block(
    source: _Source, v3_ttl: TtlUnit, wanted: pa.Schema, parts: list[_Part], rejects: list[dict[str, Any]]
) -> None:
    """Add the parts and the rejects of a block."""
    odd = np.ones(source.first.size, np.bool_)
    for candidates, find in ((_v6_candidates(source), _find_v6), (_v5_candidates(source), _find_v5)):
        if candidates.size:
            found, texts = _find(find, source, candidates)
            odd[found.rows] = False
            parts.append(_copy(source, found, texts, wanted))
    rows: list[int] = []
    decoded: list[dict[str, Any]] = []
    for row in np.flatnonzero(odd).tolist():
        place = source.base + row
        try:
            decoded.append({"row": place} | _plain(decode(source.frames(row), v3_ttl=v3_ttl)))
        except DecodeError as error:
            tried = [attempt._asdict() for attempt in error.tried]
            rejects.append({"row": place, "code": error.code, "reason": str(error), "tried": tried})
        else:
            rows.append(place)
    parts.append(_Part(np.array(rows, np.int64), _one_batch(pa.Table.from_pylist(decoded, wanted))))


def _plain(decoded: Decoded) -> dict[str, Any]:
    """A message of the row codec as the values of a row."""
    message = decoded.message
    return (
        {name: getattr(decoded, name) for name in ("format", "variant", "wire_version")}
        | msgspec.structs.asdict(message)
        | _plain_version(message)
        | {
            "distribution": message.distribution.name.lower(),
            "callback_points": [msgspec.structs.asdict(point) | _plain_version(point) for point in message.callback_points],
            "routing": [msgspec.structs.asdict(entry) for entry in message.routing],
            "body_size": len(message.body),
            "has_extra": decoded.extra is not None,
        }
    )


def _plain_version(of: Message | MessageType) -> dict[str, int | bytes | None]:
    number, raw = (of.version, None) if isinstance(of.version, int) else (None, of.version)
    return {"version": number, "version_bytes": raw}


def _merge(parts: list[_Part], wanted: pa.Schema) -> pa.RecordBatch:
    """Put the messages of all parts in the order of the input."""
    parts = [part for part in parts if part.rows.size]
    if not parts:
        return pa.RecordBatch.from_pylist([], wanted)
    if len(parts) == 1:
        return parts[0].columns
    order = np.argsort(np.concatenate([part.rows for part in parts]), kind="stable")
    starts = np.cumsum([0, *(part.rows.size for part in parts)])
    owner = np.searchsorted(starts, order, "right") - 1
    cuts = np.flatnonzero((np.diff(order) != 1) | (np.diff(owner) != 0)) + 1
    if cuts.size * _LONG_RUN > order.size:
        return _one_batch(pa.Table.from_batches([part.columns for part in parts])).take(_array(order))
    place = order - starts[owner]
    runs = pairwise([0, *cuts.tolist(), order.size])
    slices = [parts[owner[start]].columns.slice(place[start], end - start) for start, end in runs]
    return _one_batch(pa.Table.from_batches(slices))


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if len(batches) > 1:  # pragma: no cover - takes 2 GiB to reach
        raise ValueError(_TOO_LARGE)
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)


# Finding.


class _DropOut(Exception):  # noqa: N818 - no error: these messages are for the row codec
    def __init__(self, good: _Mask) -> None:
        super().__init__()
        self.good = good


def _demand(good: _Mask) -> None:
    """Go on only if all are good; else those that are not drop out of the fast path."""
    if not good.all():
        raise _DropOut(good)


def _find(
    find: Callable[[_Source, _Positions], _Found], source: _Source, rows: _Positions
) -> tuple[_Found, tuple[pa.Array, pa.Array]]:
    """Find the fields of those rows that the fast path takes; each time some drop out, begin again without them.

    The texts, domain and URIs, are copied at once: that shows whether they are UTF-8.
    """
    while True:
        try:
            found = find(source, rows)
            return found, _copy_texts(source, found)
        except _DropOut as drop:
            rows = rows[drop.good]


def _copy_texts(source: _Source, found: _Found) -> tuple[pa.Array, pa.Array]:
    domain, uri = (_copy_span(source, span) for span in (found.spans["domain"], found.routing.spans["uri"]))
    try:
        return domain.cast(pa.string()), uri.cast(pa.string())
    except pa.ArrowInvalid:
        good = _are_utf8(domain)
        good[np.repeat(np.arange(good.size), found.routing.counts)[~_are_utf8(uri)]] = False
        _demand(good)
        raise  # pragma: no cover - Arrow and Python agree on what UTF-8 is


def _are_utf8(texts: pa.Array) -> _Mask:
    """Which of the texts are UTF-8. Only those that are not ASCII are looked at one by one."""
    good = np.array(pc.string_is_ascii(texts.cast(pa.string(), safe=False)))
    foreign = np.flatnonzero(~good)
    good[foreign] = [_is_utf8(text) for text in texts.take(_array(foreign)).to_pylist()]
    return good


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _lanes(word: NDArray[Any]) -> tuple[_Positions, _Positions, _Positions, _Positions]:
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

    def __init__(self, source: _Source, pos: _Positions) -> None:
        self._source = source
        self.pos = pos
        self.numbers: dict[str, NDArray[Any]] = {}
        self.spans: dict[str, _Span] = {}
        self.has_rest: _Mask = np.zeros(pos.size, np.bool_)

    def number(self, kind: str) -> _Positions:
        """Read a number."""
        value = self._source.numbers(kind, self.pos)
        self.pos = self.pos + np.dtype(kind).itemsize
        return value

    def walk(self, layout: _Layout) -> None:
        """Walk over the fields of a layout."""
        for name, kind in layout:
            if kind == _BYTES:
                size = self.number(_U32)
                self.spans[name] = _Span(self.pos, self.pos + size)
                self.pos = self.spans[name].end
            else:
                self.numbers[name] = self.number(kind)

    def walk_entries(self, layout: _Layout, counts: _Positions) -> _Entries:
        """Walk over the first entry of all messages, then over the second of those that have one, and so on."""
        total = int(counts.sum())
        first = np.cumsum(counts) - counts
        versions = np.empty(total, np.int64)
        spans = {name: _Span(versions.copy(), versions.copy()) for name, kind in layout if kind == _BYTES}
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
        return _Entries(counts, spans, versions)


def _v6_candidates(source: _Source) -> _Positions:
    """The rows that end in a metaframe and are too short for v3. Number 5 is left out: it may repeat the body."""
    n = source.last - source.first
    rows = np.flatnonzero(source.whole & (n > ENVELOPE) & (n < v3.FEWEST))
    start, end = source.span(source.last[rows] - 1)
    number = source.numbers(_U16, start)
    is_meta: _Mask = (end - start >= v6.SHORTEST) & ((number == 6) | (number == 4))
    return rows[is_meta]


def _find_v6(source: _Source, rows: _Positions) -> _Found:
    first, last = source.first[rows], source.last[rows]
    start, end = source.span(last - 1)
    cursor = _Cursor(source, start)
    numbers, spans = cursor.numbers, cursor.spans
    cursor.walk(_V6_HEAD)
    routing_count, numbers["hops"], *_ = _lanes(numbers["routing_word"])
    _demand(routing_count <= _MOST_ENTRIES)
    routing = cursor.walk_entries(_V6_ROUTING, routing_count)
    callback_count = cursor.number(_U16)
    _demand(callback_count <= _MOST_ENTRIES)
    callbacks = cursor.walk_entries(_V6_CALLBACK, callback_count)
    cursor.walk(_V6_TAIL)
    numbers["trace_options"], numbers["distribution"], *_ = _lanes(numbers["trace_word"])
    body_offset, body_count, *_ = _lanes(numbers["body_word"])
    body = last - body_offset
    _demand(
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
    return _Found(rows, v6.NAME, numbers, spans, routing, callbacks)


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


def _v5_candidates(source: _Source) -> _Positions:
    """The rows that end in the stamp. None can be v3 if its BodyDescription is there: v3 has an empty frame at n-2."""
    rows = np.flatnonzero(source.whole & (source.last - source.first >= v5.FEWEST))
    start, end = source.span(source.last[rows] - 1)
    size = end - start
    four, two = (source.numbers(kind, start) == 5 for kind in (_U32, _U16))
    is_stamp: _Mask = ((size == 4) & four) | ((size == 2) & two)
    return rows[is_stamp]


def _find_v5(source: _Source, rows: _Positions) -> _Found:
    first, last = source.first[rows], source.last[rows]
    # edges[k] is where the k-th frame from the end starts, and edges[k - 1] where it ends.
    edges = [source.bounds[last - k] for k in range(v5.TRAILER + 1)]
    good = np.ones(rows.size, np.bool_)
    for k, kind in _V5_NUMBERS.values():
        good &= edges[k - 1] - edges[k] == np.dtype(kind).itemsize
    _demand(good)
    numbers: dict[str, NDArray[Any]] = {name: source.numbers(kind, edges[k]) for name, (k, kind) in _V5_NUMBERS.items()}
    spans = {name: _Span(edges[k], edges[k - 1]) for name, k in _V5_SPANS.items()}
    routing_offset, routing_count, routing_divisor, numbers["hops"] = _lanes(numbers["routing_word"])
    callback_offset, callback_count, callback_divisor, callback_reserved = _lanes(numbers["callback_word"])
    body_offset, body_count, *_ = _lanes(numbers["body_word"])
    numbers["trace_options"], numbers["distribution"], *_ = _lanes(numbers["trace_word"])
    # The ordinary layout: the parts follow each other without a gap, and entries are no larger than they must be.
    callbacks_at = v5.TRAILER + CALLBACK_FRAMES * callback_count
    routing_at = callbacks_at + ROUTING_FRAMES * routing_count
    no_callbacks, no_routing = callback_count == 0, routing_count == 0
    _demand(
        (no_callbacks | ((callback_offset == v5.TRAILER + 1) & (callback_divisor == CALLBACK_FRAMES)))
        & (no_routing | ((routing_offset == callbacks_at + 1) & (routing_divisor == ROUTING_FRAMES)))
        & (body_offset == routing_at + body_count)
        & (last - body_offset >= first + ENVELOPE)
        & (numbers["distribution"] <= Distribution.BROADCAST)
    )
    _, (start, middle, end) = _each_entry(source, last - routing_at, routing_count, ROUTING_FRAMES)
    routing = _Entries(routing_count, {"uri": _Span(start, middle), "identity": _Span(middle, end)}, start)
    owner, (start, version, identity, end) = _each_entry(source, last - callbacks_at, callback_count, CALLBACK_FRAMES)
    good[owner[identity - version != 2]] = False
    _demand(good)
    points = {"partition": _Span(start, version), "identity": _Span(identity, end)}
    callbacks = _Entries(callback_count, points, source.numbers(_U16, version))
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
    return _Found(rows, v5.NAME, numbers, spans, routing, callbacks)


def _each_entry(source: _Source, first: _Positions, counts: _Positions, size: int) -> tuple[_Positions, list[_Positions]]:
    """For every entry of every message: which message it belongs to, and where its frames start, and the last one ends."""
    owner = np.repeat(np.arange(counts.size), counts)
    ahead = np.cumsum(counts) - counts
    frame = (first - size * ahead)[owner] + size * np.arange(owner.size)
    return owner, [source.bounds[frame + k] for k in range(size + 1)]


# Copying.

_FORMATS: Final = {name: pa.scalar(name) for name in (v6.NAME, v5.NAME)}
_VARIANTS: Final = {v6.NAME: pa.array([""]), v5.NAME: pa.array(["int32-stamp", "uint16-stamp"])}
_DISTRIBUTIONS: Final = pa.array([value.name.lower() for value in Distribution])


def _copy(source: _Source, found: _Found, texts: tuple[pa.Array, pa.Array], wanted: pa.Schema) -> _Part:
    """Make the columns of what was found."""
    rows, numbers, spans = found.rows + source.base, found.numbers, found.spans
    domain, uri = texts

    def column(name: str, kind: pa.DataType) -> pa.Array:
        match name:
            case "row":
                return _array(rows)
            case "format":
                return pa.repeat(_FORMATS[found.format], rows.size)
            case "variant":
                return _VARIANTS[found.format].take(_array(numbers[name]))
            case "distribution":
                return _DISTRIBUTIONS.take(_array(numbers[name]))
            case "version_bytes":
                return pa.nulls(rows.size, kind)
            case "domain":
                return domain
            case "body_size":
                return _array(spans["body"].end - spans["body"].start)
            case "routing":
                identity = _copy_span(source, found.routing.spans["identity"])
                return _lists(kind, found.routing, [uri, identity])
            case "callback_points":
                points = found.callbacks
                identity, partition = (_copy_span(source, points.spans[of]) for of in ("identity", "partition"))
                raw = pa.nulls(len(identity), pa.binary())
                return _lists(kind, points, [identity, _array(points.versions, pa.int32()), raw, partition])
            case _ if name in spans:
                return _copy_span(source, spans[name])
            case _:
                return _array(numbers[name], kind)

    return _Part(rows, pa.RecordBatch.from_arrays([column(field.name, field.type) for field in wanted], schema=wanted))


def _copy_span(source: _Source, span: _Span) -> pa.Array:
    """Copy a field of all messages out of the buffer.

    Spans rise from message to message. So their starts and ends in turn are the bounds of an array over the same buffer, in
    which every other element is a field, and the ones between are what lies between.
    """
    n = span.start.size
    is_small = source.buffer.size < _LARGE
    if not is_small and (span.end - span.start).sum() >= _LARGE:
        raise ValueError(_TOO_LARGE)
    bounds = np.empty((n, 2), np.int32 if is_small else np.int64)
    bounds[:, 0], bounds[:, 1] = span
    buffers = [None, pa.py_buffer(bounds), source.buffer]
    around = pa.Array.from_buffers(pa.binary() if is_small else pa.large_binary(), max(2 * n - 1, 0), buffers)
    fields = pc.take(around, _array(np.arange(0, 2 * n, 2)), boundscheck=False)
    return fields if is_small else fields.cast(pa.binary())


def _lists(kind: pa.DataType, entries: _Entries, fields: list[pa.Array]) -> pa.Array:
    bounds = _array(np.concatenate(([0], np.cumsum(entries.counts))), pa.int32())
    return pa.ListArray.from_arrays(bounds, pa.StructArray.from_arrays(fields, fields=list(kind.value_type)), type=kind)


def _array(values: NDArray[Any], kind: pa.DataType | None = None) -> pa.Array:
    """Make an Arrow array of the memory of a NumPy one. `pa.array` would look for pandas each time, which takes longer."""
    if kind == pa.bool_():
        memory = np.packbits(values, bitorder="little")
    else:
        kind = kind or pa.int64()
        memory = values.astype(f"i{kind.byte_width}", copy=False)
    return pa.Array.from_buffers(kind, values.size, [None, pa.py_buffer(memory)])
