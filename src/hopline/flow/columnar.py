"""The rules of a flow over Arrow columns: the answers of `fingerprint`, `callbacks` and `trail` for many messages at once.

What comes in is a batch of `hopline.wire.columnar.decode_batch`, with the columns that a rule looks at (`*_COLUMNS`). The
rules themselves stand in the row modules; here is only the same arithmetic on whole columns, and the tests hold the two
against each other. This file does no I/O, reads no clock, and knows neither captures nor Spark. It needs numpy and pyarrow.
"""

from hashlib import blake2b
from struct import pack
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hopline.flow.fingerprint import SIZE
from hopline.identity import RECEIPT
from hopline.wire import Distribution

ANSWER_COLUMNS: Final = ("identity", "version", "version_bytes", "partition", "callback_points")
"""What `are_answers` looks at."""

TRAIL_COLUMNS: Final = ("hops", "routing")
"""What `inherited_sizes` looks at."""

UID_COLUMNS: Final = (
    *ANSWER_COLUMNS,
    "correlation_id",
    "receiver_identity",
    "callback_receiver_identity",
    "callback_receiver_node_identity",
    "distribution",
    "trace_options",
    "callback_key",
    "body",
)
"""What `message_uids` looks at."""


def message_uids(messages: pa.RecordBatch) -> pa.Array:
    """The fingerprint of each message, as `message_uid` gives it.

    >>> from hopline.flow import message_uid
    >>> from hopline.wire import Message, encode
    >>> from hopline.wire.columnar import decode_batch
    >>> hello = Message(identity=b"HELLO", version=1, body=b"hi")
    >>> message_uids(decode_batch(pa.array([encode(hello)])).messages).to_pylist() == [message_uid(hello)]
    True
    """
    points, counts = _stable_points(messages["callback_points"])
    numbers = np.empty(len(messages), [("d", "u1"), ("trace", "<i8"), ("key", "<i8"), ("points", "<i4")])
    is_broadcast = pc.equal(messages["distribution"], Distribution.BROADCAST.name.lower())
    numbers["d"] = np.asarray(is_broadcast)
    numbers["trace"] = np.asarray(messages["trace_options"])
    numbers["key"] = np.asarray(messages["callback_key"])
    numbers["points"] = counts
    parts = [
        _types(messages),
        *_prefixed(messages["correlation_id"]),
        *_prefixed(messages["receiver_identity"]),
        *_prefixed(messages["callback_receiver_identity"]),
        *_prefixed(messages["callback_receiver_node_identity"]),
        _fixed(numbers),
        points,
        messages["body"],
    ]
    # Nothing in Arrow makes a digest, so this one step is taken message by message.
    return pa.array([blake2b(form, digest_size=SIZE).digest() for form in _join(parts).to_pylist()], pa.binary())


def are_answers(messages: pa.RecordBatch) -> pa.Array:
    """Whether each message answers a callback point that it carries: where `matching_point` finds one.

    >>> from hopline.identity import MessageType
    >>> from hopline.wire import Message, encode
    >>> from hopline.wire.columnar import decode_batch
    >>> points = (MessageType(b"EHHLO", 1),)
    >>> pair = [Message(identity=identity, version=1, callback_points=points) for identity in (b"HELLO", b"EHHLO")]
    >>> are_answers(decode_batch(pa.array([encode(message) for message in pair])).messages).to_pylist()
    [False, True]
    """
    lists = messages["callback_points"]
    owners = pc.list_parent_indices(lists)
    are_equal = pc.equal(_types(lists.flatten()), _types(messages).take(owners))
    found = np.zeros(len(messages), np.bool_)
    found[np.asarray(owners.filter(are_equal))] = True
    return pa.array(found)


def are_flows(correlation_ids: pa.Array) -> pa.Array:
    """Whether each correlation id is that of a flow: service messages and strays have none, or a GUID of zeros.

    >>> are_flows(pa.array([b"c1", b"", b"00000000-0000-0000-0000-000000000000"])).to_pylist()
    [True, False, False]
    """
    return pc.invert(pc.is_in(correlation_ids, _NO_FLOWS))


def inherited_sizes(messages: pa.RecordBatch) -> NDArray[np.int64]:
    """How many entries of each trail were there before the message was made: the length of its `inherited_trail`.

    >>> from hopline.wire import Message, RoutingEntry, encode
    >>> from hopline.wire.columnar import decode_batch
    >>> reply = Message(hops=1, routing=(RoutingEntry("tcp://a:1", b"a"), RoutingEntry("tcp://b:1", b"b")))
    >>> inherited_sizes(decode_batch(pa.array([encode(reply)])).messages).tolist()
    [1]
    """
    sizes = np.asarray(pc.list_value_length(messages["routing"])).astype(np.int64)
    hops = np.asarray(messages["hops"]).astype(np.int64)
    return np.where(hops <= 0, sizes, np.maximum(sizes - hops, 0))


def _stable_points(lists: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """The callback points of each message as its fingerprint holds them: sorted, without the receipt; and their number."""
    types = _types(lists.flatten())
    keep = np.asarray(pc.not_equal(types, _RECEIPT_TYPE))
    owners = np.asarray(pc.list_parent_indices(lists))[keep]
    # Few types are called back, so it is their few names that are sorted, and not the points.
    coded = types.filter(pa.array(keep)).dictionary_encode()
    ranks = np.empty(len(coded.dictionary), np.int64)
    ranks[np.asarray(pc.sort_indices(coded.dictionary))] = np.arange(len(coded.dictionary))
    order = np.lexsort((ranks[np.asarray(coded.indices)], owners))
    points = coded.dictionary.take(coded.indices.take(pa.array(order)))
    counts = np.bincount(owners, minlength=len(lists)).astype(np.int64)
    bounds = pa.array(np.concatenate(([0], np.cumsum(counts))), pa.int32())
    return pc.binary_join(pa.ListArray.from_arrays(bounds, points), b""), counts


def _types(of: pa.RecordBatch | pa.StructArray) -> pa.Array:
    """Message types as the fingerprint writes them: equal only if identity, version and partition are."""
    columns = of if isinstance(of, pa.RecordBatch) else pa.RecordBatch.from_struct_array(of)
    numbers = np.empty(len(columns), [("size", "<i4"), ("version", "<u2")])
    numbers["size"] = 2
    numbers["version"] = np.asarray(columns["version"].fill_null(0))
    versions = _fixed(numbers)
    if columns["version"].null_count:
        texts = _join(_prefixed(columns["version_bytes"].fill_null(b""), _TEXT_VERSION))
        versions = pc.if_else(columns["version"].is_valid(), versions, texts)
    return _join([*_prefixed(columns["identity"]), versions, *_prefixed(columns["partition"])])


_NO_FLOWS: Final = pa.array([b"", b"00000000-0000-0000-0000-000000000000"])

_TEXT_VERSION: Final = 0x1_0000
"""What is added to the length of a version that is text, so that it is never taken for a number."""

_RECEIPT_TYPE: Final = pa.scalar(
    pack("<i", len(RECEIPT.identity)) + RECEIPT.identity + pack("<iHi", 2, RECEIPT.version, 0), pa.binary()
)


def _prefixed(raw: pa.Array, more: int = 0) -> list[pa.Array]:
    """Bytes behind their int32 length, as two columns to join."""
    return [_fixed(np.asarray(pc.binary_length(raw)).astype("<i4") + np.int32(more)), raw]


def _fixed(values: NDArray[Any]) -> pa.Array:
    """The memory of each value as bytes."""
    kind = pa.binary(values.dtype.itemsize)
    return pa.Array.from_buffers(kind, values.size, [None, pa.py_buffer(values)]).cast(pa.binary())


def _join(parts: list[pa.Array]) -> pa.Array:
    return pc.binary_join_element_wise(*parts, b"")
