"""Arrow batches of frame lists to Arrow batches of messages: the row codec's answers, without a Python loop per message.

Theory of operation. First the spans of all fields of all messages are found (`metaframes.py`, `trailers.py`), then each
field of all messages is copied at once, in C++, and what could not be found is asked of the row codec.

    Found      where the fields of some messages lie
    _Part      the columns of some messages: copied from where they were found, or made of what the row codec gave

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
from hopline.wire.decoded import Decoded
from hopline.wire.formats import decode
from hopline.wire.message import Distribution, Message
from hopline.wire.metaframes import find_v6, v6_candidates
from hopline.wire.spans import (
    FORMATS,
    VARIANTS,
    DropOut,
    Entries,
    Found,
    Mask,
    Positions,
    Slot,
    Source,
    Span,
    demand,
    joined,
)
from hopline.wire.trailers import find_v5, v5_candidates
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

_BLOCK: Final = 32 * 1024
"""Rows that are worked on at once: as many as Spark's readers bring, for the columns of several blocks are copied once more.
Measured."""

_LONG_RUN: Final = 64
"""Rows that come from one part without a break, on average, from which copying slices beats copying row by row. Measured."""

_LARGE: Final = 1 << 31
"""Bytes that are too many for 32-bit offsets."""

_TOO_LARGE: Final = "a column would hold 2 GiB or more; decode the batch in slices, or without that column"


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
            _decode_block(Source(lists.slice(start, _BLOCK), base + start), v3_ttl, wanted, parts, rejects)
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


class _Part(NamedTuple):
    """Some messages: their rows in the batch, rising, and their columns."""

    rows: Positions
    columns: pa.RecordBatch


def _decode_block(
    source: Source, v3_ttl: TtlUnit, wanted: pa.Schema, parts: list[_Part], rejects: list[dict[str, Any]]
) -> None:
    """Add the parts and the rejects of a block."""
    odd = np.ones(source.first.size, np.bool_)
    if (taken := _find(source)) is not None:
        found, texts = taken
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
    if rows:
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


def _find(source: Source) -> tuple[Found, tuple[pa.Array, pa.Array]] | None:
    """Find the fields of all messages that the fast path takes; None if it takes none.

    The texts, domain and URIs, are copied at once: that shows whether they are UTF-8.
    """
    candidates = {find_v6: v6_candidates(source), find_v5: v5_candidates(source)}
    while parts := [_find_all(find, source, rows) for find, rows in candidates.items() if rows.size]:
        found = joined(parts)
        try:
            return found, _copy_texts(source, found)
        except DropOut as drop:
            good = found.rows[drop.good]
            candidates = {find: np.intersect1d(rows, good) for find, rows in candidates.items()}
    return None


def _find_all(find: Callable[[Source, Positions], Found], source: Source, rows: Positions) -> Found:
    """Find the fields of those rows that are ordinary; each time some drop out, begin again without them."""
    while True:
        try:
            return find(source, rows)
        except DropOut as drop:
            rows = rows[drop.good]


def _copy_texts(source: Source, found: Found) -> tuple[pa.Array, pa.Array]:
    domain, uri = (_copy_span(source, span) for span in (found.spans["domain"], found.routing.spans["uri"]))
    try:
        return domain.cast(pa.string()), uri.cast(pa.string())
    except pa.ArrowInvalid:
        good = _are_utf8(domain)
        good[np.repeat(np.arange(good.size), found.routing.counts)[~_are_utf8(uri)]] = False
        demand(good)
        raise  # pragma: no cover - Arrow and Python agree on what UTF-8 is


def _are_utf8(texts: pa.Array) -> Mask:
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


# Copying.

_NAMES: Final = {
    "format": pa.array(FORMATS),
    "variant": pa.array(VARIANTS),
    "distribution": pa.array([value.name.lower() for value in Distribution]),
}
"""What the numbers of these columns mean."""


def _copy(source: Source, found: Found, texts: tuple[pa.Array, pa.Array], wanted: pa.Schema) -> _Part:
    """Make the columns of what was found."""
    rows, numbers, spans = found.rows + source.base, found.numbers, found.spans
    domain, uri = texts

    def column(name: str, kind: pa.DataType) -> pa.Array:
        match name:
            case "row":
                return _array(rows)
            case "format" | "variant" | "distribution":
                return _NAMES[name].take(_array(numbers[name]))
            case "version_bytes":
                return pa.nulls(rows.size, kind)
            case "domain":
                return domain
            case "routing":
                identity = _copy_span(source, found.routing.spans["identity"])
                return _lists(kind, found.routing, [uri, identity])
            case "callback_points":
                points = found.callbacks
                identity, partition = (_copy_span(source, points.spans[of]) for of in ("identity", "partition"))
                raw = pa.nulls(len(identity), pa.binary())
                return _lists(kind, points, [identity, _array(points.versions, pa.int32()), raw, partition])
            case _ if pa.types.is_binary(kind):
                return _copy_span(source, spans[name])
            case _:
                return _array(numbers[name], kind)

    return _Part(rows, pa.RecordBatch.from_arrays([column(field.name, field.type) for field in wanted], schema=wanted))


def _copy_span(source: Source, span: Span | Slot) -> pa.Array:
    """Copy a field of all messages out of the buffer.

    Spans rise from message to message. So their starts and ends in turn are the bounds of an array over the same buffer, in
    which every other element is a field, and the ones between are what lies between.
    """
    if isinstance(span, Slot):
        copied, together = span.copy()
        return pa.Array.from_buffers(pa.binary(), copied.size - 1, [None, pa.py_buffer(copied), pa.py_buffer(together)])
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


def _lists(kind: pa.DataType, entries: Entries, fields: list[pa.Array]) -> pa.Array:
    bounds = _array(np.concatenate(([0], np.cumsum(entries.counts))), pa.int32())
    return pa.ListArray.from_arrays(bounds, pa.StructArray.from_arrays(fields, fields=list(kind.value_type)), type=kind)


def _array(values: NDArray[Any], kind: pa.DataType | None = None) -> pa.Array:
    """Make an Arrow array of the memory of a NumPy one. `pa.array` would look for pandas each time, which takes longer."""
    if kind == pa.bool_():
        memory = np.packbits(values, bitorder="little")
    else:
        kind = kind or pa.int64()
        memory = np.ascontiguousarray(values, f"i{kind.byte_width}")
    return pa.Array.from_buffers(kind, values.size, [None, pa.py_buffer(memory)])
