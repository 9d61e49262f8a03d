"""Records to rows of the tables `messages` and `rejects`: what each sighting says, as far as it says it alone.

A record is frames and who saw them (`record.py`). Here the frames are decoded and each becomes one row: of `messages`, or of
`rejects` if it is no message. What takes several sightings to know - the occurrence, the order of a scrambled trail - is
not here. All of it is done on whole columns; only a fingerprint is made message by message, and a receiver, or a name that
is not plain ASCII, is looked at by itself, each distinct one once.

The command line and Spark both read captures through this file. It knows neither, and no files.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hopline.capture.record import key_of
from hopline.capture.tables import DEFAULT_COLUMNS, MESSAGES, REJECTS, SEEN_AT
from hopline.flow.columnar import ANSWER_COLUMNS, TRAIL_COLUMNS, UID_COLUMNS, are_answers, inherited_sizes, message_uids
from hopline.identity import ACTOR_PREFIX, HUB_PREFIX
from hopline.payload.service import OUR_PREFIX, SERVICE_PREFIX
from hopline.wire import Message, TtlUnit, warnings_of
from hopline.wire.columnar import MESSAGE_SCHEMA, decode_batch
from hopline.wire.message import TICKS_PER_MS, TRACE_ROUTING

_EXCERPT_FRAMES: Final = 8
_EXCERPT_BYTES: Final = 16
"""How much of a reject is shown: enough to recognise a protocol, too little to hold a secret of any length."""

_FIRST_PLAIN, _LAST_PLAIN = b" ~"
"""Of ASCII what can be printed lies between these two."""

_NS_PER_US: Final = 1000
_NS_PER_DAY: Final = 86_400_000_000_000


class Sightings(NamedTuple):
    """Every record is one row of `messages` or one row of `rejects`; both are in the order of the records.

    Attributes:
        messages: those that are messages.
        rejects: those that are none.
        records: which of the records each row of `messages` is; the first is 0.
    """

    messages: pa.RecordBatch
    rejects: pa.RecordBatch
    records: pa.Array


def sightings(
    batch: pa.RecordBatch,
    *,
    segment: str | pa.Array,
    first_row: int | pa.Array,
    v3_ttl: TtlUnit = "ms",
    columns: Sequence[str] | None = None,
) -> Sightings:
    """Decode a batch of records; nothing that they hold makes it raise.

    Args:
        batch: records, with the columns of RECORD_SCHEMA that the asked-for columns come from.
        segment: the name of the segment they stand in, or of each, if there are several; and
        first_row: the place of the first of them in it, or of each, if they do not follow each other. Segment and place
            make the event id.
        v3_ttl: the unit of TTL in v3, as for `decode`.
        columns: the columns of MESSAGES to make, in this order; by default all but the body.

    Raises:
        ValueError: there is no such column.

    >>> from hopline.wire import encode
    >>> from hopline.capture.record import Records
    >>> frames = [encode(Message(identity=b"HELLO", version=1)), [b"junk"]]
    >>> records = Records(seen_ns=[1, 2], seq=[1, 2], tap=["hub_in"] * 2, node="n1", frames=frames)
    >>> found = sightings(records.to_batch(), segment="s", first_row=40, columns=["event_id", "identity_key"])
    >>> found.messages.to_pylist(), found.rejects["code"].to_pylist()
    ([{'event_id': 's:40', 'identity_key': 'HELLO'}], ['WIRE_UNKNOWN_FORMAT'])
    """
    names = DEFAULT_COLUMNS if columns is None else tuple(columns)
    if not names or len(set(names)) != len(names) or not set(names) <= set(MESSAGES.names):
        known = ", ".join(MESSAGES.names)
        raise ValueError(f"columns must name some of {known}, each once, and not {', '.join(names) or 'none'}")
    needed = {"row", *(need for name in names for need in _needs(name))}
    decoded = decode_batch(batch, v3_ttl=v3_ttl, columns=sorted(needed))
    part = _Part(batch, decoded.messages, segment, first_row)
    schema = pa.schema([MESSAGES.field(name) for name in names])
    messages = pa.RecordBatch.from_arrays([part.column(name) for name in names], schema=schema)
    return Sightings(messages, _rejects(batch, decoded.rejects, segment, first_row), decoded.messages["row"])


def keys_of(raw: pa.Array) -> pa.Array:
    r"""The printable twins of many ids, as `key_of` gives them.

    >>> keys_of(pa.array([b"n1", b"\x00H", b"", "ö".encode()])).to_pylist()
    ['n1', '0x0048', '', 'ö']
    """
    texts = raw.cast(pa.string(), safe=False)
    if _are_plain(raw):
        return texts
    is_odd = pc.invert(pc.ascii_is_printable(texts))
    odd = raw.filter(is_odd).dictionary_encode()
    if not len(odd):
        return texts
    keys = pa.array(map(key_of, odd.dictionary.to_pylist()), pa.string())
    return pc.replace_with_mask(texts, is_odd, keys.take(odd.indices))


def _are_plain(raw: pa.Array) -> bool:
    """Whether all of them are printable ASCII: almost always, and it is seen in one look at their memory."""
    _, used = _memory(raw)
    return not len(used) or bool(used.min() >= _FIRST_PLAIN and used.max() <= _LAST_PLAIN)


_KINDS: Final = {b"": "", HUB_PREFIX: "hub", ACTOR_PREFIX: "actor"}
"""The kinds of receivers, by their first byte."""

_NO_REJECTS: Final = pa.RecordBatch.from_pylist([], REJECTS)

_NEEDS: Final[dict[str, Sequence[str]]] = {
    "message_uid": UID_COLUMNS,
    "peer_key": ("socket_identity",),
    "identity_key": ("identity",),
    "partition_key": ("partition",),
    "is_system": ("identity",),
    "correlation_key": ("correlation_id",),
    "receiver": ("receiver_identity",),
    "receiver_key": ("receiver_identity",),
    "receiver_kind": ("receiver_identity",),
    "receiver_node_key": ("receiver_node_identity",),
    "addressing": ("receiver_identity", "receiver_node_identity", "distribution", "callback_receiver_identity"),
    "callback_receiver_key": ("callback_receiver_identity",),
    "callback_receiver_node_key": ("callback_receiver_node_identity",),
    "is_callback": ANSWER_COLUMNS,
    "trail": ("routing",),
    "origin_key": TRAIL_COLUMNS,
    "parent_trail": TRAIL_COLUMNS,
    "ttl_ms": ("ttl_ticks",),
    "warnings": ("trace_options",),
}
"""What a column is made of, where that is not the decoded column of its name."""


def _needs(name: str) -> Sequence[str]:
    return _NEEDS.get(name, (name,) if name in MESSAGE_SCHEMA.names else ())


class _Part:
    """The messages among some records, from which the columns are made."""

    def __init__(
        self, records: pa.RecordBatch, messages: pa.RecordBatch, segment: str | pa.Array, first_row: int | pa.Array
    ) -> None:
        self._records = records
        self._messages = messages
        self._segment = segment
        self._first_row = first_row

    def column(self, name: str) -> pa.Array:
        """One column of MESSAGES."""
        messages, record = self._messages, self._record
        match name:
            case "event_id":
                return _event_ids(self._segment, self._first_row, messages["row"])
            case "seen_at":
                return _seen_at(record("seen_ns"))
            case "date":
                return _dates(record("seen_ns"))
            case "node_key":
                return record("node")
            case "seen_ns" | "tap" | "direction" | "seq" | "encoded" | "body_kept":
                return record(name)
            case "body_size":
                return pc.coalesce(record(name), messages[name])
            case "message_uid":
                return message_uids(messages)
            case "identity_key" | "partition_key":
                return keys_of(messages[name.removesuffix("_key")])
            case "correlation_key":
                return keys_of(messages["correlation_id"])
            case "receiver_node_key" | "callback_receiver_node_key":
                return keys_of(messages[name.replace("_key", "_identity")])
            case "peer_key":
                return _by_value(keys_of, messages["socket_identity"])
            case "is_system":
                identities = messages["identity"]
                return pc.or_(pc.starts_with(identities, SERVICE_PREFIX), pc.starts_with(identities, OUR_PREFIX))
            case "receiver":
                return messages["receiver_identity"]
            case "receiver_key":
                return _receiver_keys(self._receivers.dictionary).take(self._receivers.indices)
            case "receiver_kind":
                return self._receiver_kinds
            case "callback_receiver_key":
                return _by_value(_receiver_keys, messages["callback_receiver_identity"])
            case "addressing":
                return _addressing(messages, self._receiver_kinds)
            case "callback_points":
                return self._callback_points()
            case "is_callback":
                return are_answers(messages)
            case "trace_options":
                return _trace_options(messages[name])
            case "trail":
                return self._trail()
            case "origin_key":
                return self._origins()
            case "parent_trail":
                return self._parent_trails()
            case "ttl_ms":
                return pc.divide(messages["ttl_ticks"].cast(pa.float64(), safe=False), float(TICKS_PER_MS))
            case "warnings":
                return _warnings(messages["trace_options"])
            case _:
                return messages[name]

    def _record(self, name: str) -> pa.Array:
        """A column of the records, for the messages among them."""
        column = self._records.column(name)
        if len(self._messages) < len(self._records):
            column = column.take(self._messages["row"])
        return column

    @cached_property
    def _receivers(self) -> pa.DictionaryArray:
        """Receivers: few occur again and again, so each is looked at once."""
        return _coded(self._messages["receiver_identity"])

    @cached_property
    def _receiver_kinds(self) -> pa.Array:
        return _receiver_kinds(self._receivers.dictionary).take(self._receivers.indices)

    def _callback_points(self) -> pa.Array:
        lists = self._messages["callback_points"]
        identity, version, _, partition = lists.values.flatten()
        kind = MESSAGES.field("callback_points").type
        points = pa.StructArray.from_arrays([keys_of(identity), version, keys_of(partition)], fields=list(kind.value_type))
        return pa.ListArray.from_arrays(lists.offsets, points, type=kind)

    @cached_property
    def _entries(self) -> tuple[pa.Array, pa.Array]:
        """URI and node key of all entries of all trails."""
        uri, identity = self._messages["routing"].values.flatten()
        return uri, keys_of(identity)

    @cached_property
    def _inherited(self) -> NDArray[np.int64]:
        """How many entries each message inherited: the first ones of its trail."""
        return inherited_sizes(self._messages)

    def _trail(self) -> pa.Array:
        kind = MESSAGES.field("trail").type
        entries = pa.StructArray.from_arrays(self._entries, fields=list(kind.value_type))
        return pa.ListArray.from_arrays(self._messages["routing"].offsets, entries, type=kind)

    def _origins(self) -> pa.Array:
        """The first entry that the message did not inherit: who sent it."""
        bounds = np.asarray(self._messages["routing"].offsets)
        place = bounds[:-1] + self._inherited
        return self._entries[1].take(pa.array(place, mask=place >= bounds[1:]))

    def _parent_trails(self) -> pa.Array:
        bounds = np.asarray(self._messages["routing"].offsets)
        inherited = self._inherited
        place = np.repeat(bounds[:-1] - np.cumsum(inherited) + inherited, inherited) + np.arange(inherited.sum())
        return pa.ListArray.from_arrays(_bounds(inherited), self._entries[1].take(pa.array(place)))


def _by_value(make: Callable[[pa.Array], pa.Array], values: pa.Array) -> pa.Array:
    """Make a column of another in which few values come again and again: each is looked at once."""
    coded = _coded(values)
    return make(coded.dictionary).take(coded.indices)


def _coded(values: pa.Array) -> pa.DictionaryArray:
    """The distinct values, and which of them each is. Often all are the same, which is seen without looking each one up."""
    if len(values) and _are_alike(values):
        return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), len(values)), values.slice(0, 1))
    return values.dictionary_encode()


def _are_alike(raw: pa.Array) -> bool:
    """Whether all of them are the same bytes: equally long, and their memory the same again after each of them."""
    edges, used = _memory(raw)
    size = int(edges[1] - edges[0])
    is_even = len(used) == size * len(raw) and bool((np.diff(edges) == size).all())
    return is_even and np.array_equal(used[size:], used[: len(used) - size])


def _memory(raw: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """The bounds of some bytes, and the memory that they lie in: from the first of these bounds to the last."""
    _, bounds, data = raw.buffers()
    edges = np.frombuffer(bounds or bytes(4), np.int32)[raw.offset : raw.offset + len(raw) + 1]
    return edges, np.frombuffer(data or b"", np.uint8)[edges[0] : edges[-1]]


def _event_ids(segment: str | pa.Array, first_row: int | pa.Array, rows: pa.Array) -> pa.Array:
    names = segment if isinstance(segment, str) else segment.take(rows)
    places = pc.add(rows, first_row) if isinstance(first_row, int) else first_row.take(rows)
    return pc.binary_join_element_wise(names, places.cast(pa.string()), ":")


def _seen_at(seen_ns: pa.Array) -> pa.Array:
    return pa.array(np.asarray(seen_ns) // _NS_PER_US, pa.int64()).cast(SEEN_AT)


def _dates(seen_ns: pa.Array) -> pa.Array:
    return pa.array((np.asarray(seen_ns) // _NS_PER_DAY).astype(np.int32)).cast(pa.date32())


def _receiver_kinds(receivers: pa.Array) -> pa.Array:
    return pa.array(map(_receiver_kind, receivers.to_pylist()), pa.string())


def _receiver_kind(receiver: bytes) -> str:
    return _KINDS.get(receiver[:1], "unknown")


def _receiver_keys(receivers: pa.Array) -> pa.Array:
    return pa.array(map(_receiver_key, receivers.to_pylist()), pa.string())


def _receiver_key(receiver: bytes) -> str:
    kind = _receiver_kind(receiver)
    return f"{kind}:{key_of(receiver[1:])}" if kind in ("hub", "actor") else key_of(receiver)


def _addressing(messages: pa.RecordBatch, kinds: pa.Array) -> pa.Array:
    receiver = messages["receiver_identity"]
    is_called_back = pc.equal(receiver, messages["callback_receiver_identity"])
    return pc.case_when(
        pc.make_struct(
            pc.equal(messages["distribution"], "broadcast"),
            pc.or_(pc.equal(kinds, "hub"), pc.and_(pc.equal(kinds, "unknown"), is_called_back)),
            pc.not_equal(kinds, ""),
            pc.not_equal(messages["receiver_node_identity"], b""),
        ),
        "all",
        "hub",
        "actor",
        "node",
        pa.scalar("any"),
    )


def _trace_options(options: pa.Array) -> pa.Array:
    """Only v3 has room for more than a lane; what does not fit is not known here."""
    fits = pc.equal(options.cast(pa.int32(), safe=False).cast(pa.int64()), options)
    return pc.if_else(fits, options, None).cast(pa.int32())


def _warnings(options: pa.Array) -> pa.Array:
    """What `warnings_of` says: each distinct oddity is asked for once."""
    is_odd = pc.not_equal(pc.bit_wise_and(options, ~TRACE_ROUTING), 0)
    odd = options.filter(is_odd).dictionary_encode()
    texts = [warnings_of(Message(trace_options=value)) for value in odd.dictionary.to_pylist()]
    lists = pa.array(texts, pa.list_(pa.string())).take(odd.indices)
    sizes = np.zeros(len(options), np.int64)
    sizes[np.asarray(is_odd)] = np.asarray(pc.list_value_length(lists))
    return pa.ListArray.from_arrays(_bounds(sizes), lists.flatten())


def _bounds(sizes: pa.Array | NDArray[np.int64]) -> pa.Array:
    return pa.array(np.concatenate(([0], np.cumsum(np.asarray(sizes)))), pa.int32())


def _rejects(
    batch: pa.RecordBatch, rejects: pa.RecordBatch, segment: str | pa.Array, first_row: int | pa.Array
) -> pa.RecordBatch:
    rows = rejects["row"]
    if not len(rows):  # almost always, and to make nothing of nothing takes its time too
        return _NO_REJECTS
    seen_ns, node, tap, frames = (batch.column(name).take(rows) for name in ("seen_ns", "node", "tap", "frames"))
    columns = {
        "event_id": _event_ids(segment, first_row, rows),
        "seen_at": _seen_at(seen_ns),
        "node_key": node,
        "tap": tap,
        "code": rejects["code"],
        "reason": rejects["reason"],
        "tried": rejects["tried"],
        # One by one, as the row codec has looked at each of them already.
        "excerpt": pa.array([_excerpt(row.values) for row in frames], pa.string()),
        "date": _dates(seen_ns),
    }
    return pa.RecordBatch.from_pydict(columns, REJECTS)


def _excerpt(frames: pa.Array | None) -> str:
    if frames is None:
        return ""
    heads = pc.binary_slice(frames.slice(0, _EXCERPT_FRAMES), 0, _EXCERPT_BYTES).to_pylist()
    shown = ["null" if head is None else head.hex() or "-" for head in heads]
    return " ".join([*shown, "..."] if len(frames) > _EXCERPT_FRAMES else shown)
