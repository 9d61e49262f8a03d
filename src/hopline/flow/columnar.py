"""The rules of a flow over Arrow columns: the answers of `fingerprint`, `callbacks` and `trail` for many messages at once.

What comes in is a batch of `hopline.wire.columnar.decode_batch`, with the columns that a rule looks at (`*_COLUMNS`). The
rules themselves stand in the row modules; here is only the same arithmetic on whole columns, and the tests hold the two
against each other. This file does no I/O, reads no clock, and knows neither captures nor Spark. It needs numpy and pyarrow.
"""

from hashlib import blake2b
from itertools import pairwise
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
    forms = stable_forms(messages)
    # A node that passes messages on sees each twice, soon after each other: then each is worked out once.
    sample = forms.slice(0, _SAMPLE)
    if pc.count_distinct(sample).as_py() > len(sample) * _MOST_ARE_NEW:
        return _digests(forms)
    coded = forms.dictionary_encode()
    return _digests(coded.dictionary).take(coded.indices)


def stable_forms(messages: pa.RecordBatch) -> pa.Array:
    """What stays equal of each message from sender to receiver, as `stable_form` gives it; looks at UID_COLUMNS.

    >>> from hopline.flow.fingerprint import stable_form
    >>> from hopline.wire import Message, encode
    >>> from hopline.wire.columnar import decode_batch
    >>> hello = Message(identity=b"HELLO", version=1, body=b"hi")
    >>> stable_forms(decode_batch(pa.array([encode(hello)])).messages).to_pylist() == [stable_form(hello)]
    True
    """
    points, counts = _stable_points(messages["callback_points"])
    numbers = np.empty(len(messages), [("d", "u1"), ("trace", "<i8"), ("key", "<i8"), ("points", "<i4")])
    numbers["d"] = np.asarray(pc.equal(messages["distribution"], Distribution.BROADCAST.name.lower()))
    numbers["trace"] = np.asarray(messages["trace_options"])
    numbers["key"] = np.asarray(messages["callback_key"])
    numbers["points"] = counts
    ids = ("correlation_id", "receiver_identity", "callback_receiver_identity", "callback_receiver_node_identity")
    prefixed = [part for name in ids for part in _prefixed(messages[name])]
    types = _types(messages.select(_TYPE)).dictionary_decode()
    return _join([types, *prefixed, _fixed(numbers), points, messages["body"]])


def _digests(forms: pa.Array) -> pa.Array:
    """The digests of forms that were just made, so that they start where their memory does.

    Nothing in Arrow makes a digest, so this one step is taken one by one, over slices of that memory.
    """
    _, bounds, data = forms.buffers()
    view = memoryview(data or b"")
    new = blake2b(digest_size=SIZE)
    digests = []
    for start, end in pairwise(np.frombuffer(bounds or bytes(4), np.int32, len(forms) + 1).tolist()):
        digest = new.copy()  # cheaper than another new one
        digest.update(view[start:end])
        digests.append(digest.digest())
    places = np.arange(len(digests) + 1, dtype=np.int32) * np.int32(SIZE)
    return pa.Array.from_buffers(pa.binary(), len(digests), [None, pa.py_buffer(places), pa.py_buffer(b"".join(digests))])


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
    points = pa.RecordBatch.from_struct_array(lists.flatten())
    owners = pc.list_parent_indices(lists)
    # One after the other: few points are left after the first.
    for name, no in {"identity": b"", "version": -1, "version_bytes": b"", "partition": b""}.items():
        are_equal = pc.equal(points[name].fill_null(no), messages[name].take(owners).fill_null(no))
        points, owners = points.filter(are_equal), owners.filter(are_equal)
    found = np.zeros(len(messages), np.bool_)
    found[np.asarray(owners)] = True
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
    types = _types(pa.RecordBatch.from_struct_array(lists.flatten()))
    # Few types are called back, so it is their few names that are sorted; of a point only the rank among them.
    order = pc.sort_indices(types.dictionary)
    names = types.dictionary.take(order)
    ranks = np.argsort(np.asarray(order))[np.asarray(types.indices)]
    keep = np.asarray(pc.not_equal(names, _RECEIPT_TYPE))[ranks]
    owners = np.asarray(pc.list_parent_indices(lists))[keep]
    ranks = np.sort(owners * len(names) + ranks[keep]) % len(names)
    counts = np.bincount(owners, minlength=len(lists)).astype(np.int64)
    bounds = pa.array(np.concatenate(([0], np.cumsum(counts))), pa.int32())
    return pc.binary_join(pa.ListArray.from_arrays(bounds, names.take(pa.array(ranks))), b""), counts


def _types(of: pa.RecordBatch) -> pa.DictionaryArray:
    """Message types as the fingerprint writes them: equal only if identity, version and partition are.

    Few types travel, so each is numbered, and written once.
    """
    numbers, count = np.asarray(of["version"].fill_null(_TEXT_VERSION)).astype(np.int64), _TEXT_VERSION + 1
    for name in ("identity", "partition", *(["version_bytes"] if of["version"].null_count else [])):
        coded = of[name].fill_null(b"").dictionary_encode()
        if count * len(coded.dictionary) > _MOST_NUMBERS:  # somebody invents types: they are numbered from 0 again
            again = pa.array(numbers).dictionary_encode()
            numbers, count = np.asarray(again.indices).astype(np.int64), len(again.dictionary)
        numbers, count = numbers * len(coded.dictionary) + np.asarray(coded.indices), count * len(coded.dictionary)
    types = pa.array(numbers).dictionary_encode()
    indices = np.asarray(types.indices)
    rows = np.empty(len(types.dictionary), np.int64)
    rows[indices] = np.arange(len(indices))  # any row of a type will do
    return pa.DictionaryArray.from_arrays(types.indices, _written(of.take(pa.array(rows))))


def _written(types: pa.RecordBatch) -> pa.Array:
    numbers = np.empty(len(types), [("size", "<i4"), ("version", "<u2")])
    numbers["size"] = 2
    numbers["version"] = np.asarray(types["version"].fill_null(0))
    versions = _fixed(numbers)
    if types["version"].null_count:
        texts = _join(_prefixed(types["version_bytes"].fill_null(b""), _TEXT_VERSION))
        versions = pc.if_else(types["version"].is_valid(), versions, texts)
    return _join([*_prefixed(types["identity"]), versions, *_prefixed(types["partition"])])


_SAMPLE: Final = 1024
_MOST_ARE_NEW: Final = 0.8
"""Messages of which so many have to be new for finding equal ones to take longer than working out all. Measured."""

_NO_FLOWS: Final = pa.array([b"", b"00000000-0000-0000-0000-000000000000"])

_TYPE: Final = ["identity", "version", "version_bytes", "partition"]

_MOST_NUMBERS: Final = 2**63 - 1
"""What NumPy counts to; beyond, it begins again and says nothing."""

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
