"""The fingerprint of a message: how two sightings of one message are known to be the same.

Theory. The wire carries no instance id. So a message is known by what stays equal from its sender to its receiver. Left out
is what changes on the way: socket identity, hops, trail, TTL, signature, domain, the receiver node (v3 and v4 drop it when
they send) and the receipt callback point (the receiving node takes it out). Callback points are a set: reference nodes of
v3 to v5 reverse their order at each hop, so they are sorted here. Two equal messages have equal fingerprints; equal sends
from one place must be told apart by other means.

The same bytes are what the `full` signature scheme covers (`security/mac.py`). Each part has its length in front, so that no
two different messages give the same bytes:

    part     identity, version, partition, correlation id, receiver identity, callback receiver identity, callback receiver
             node identity: int32 length and the bytes (a number as version: 2 bytes; as bytes: those, and the length + 2^16)
    numbers  distribution uint8, trace options int64, callback key int64, count of callback points int32
    points   each: identity, version, partition as above
    body     the rest
"""

from hashlib import blake2b
from struct import Struct
from typing import Final

from hopline.identity import RECEIPT, MessageType
from hopline.wire import Message

SIZE: Final = 16
"""Bytes of a fingerprint: two among a trillion messages are equal by chance with a probability of 10^-15."""

_LENGTH = Struct("<i")
_VERSION = Struct("<iH")
_NUMBERS = Struct("<Bqqi")


def message_uid(message: Message) -> bytes:
    """The fingerprint of a message, 16 bytes.

    >>> sent = Message(identity=b"HELLO", version=1, body=b"hi")
    >>> seen = Message(identity=b"HELLO", version=1, body=b"hi", hops=1, ttl_ticks=5)
    >>> message_uid(sent) == message_uid(seen)
    True
    """
    return blake2b(stable_form(message), digest_size=SIZE).digest()


def stable_form(message: Message) -> bytes:
    """What stays equal from sender to receiver, as bytes that no other message gives."""
    points = sorted(map(_type, (point for point in message.callback_points if point != RECEIPT)))
    parts = (
        _type(message.type),
        length_prefixed(message.correlation_id),
        length_prefixed(message.receiver_identity),
        length_prefixed(message.callback_receiver_identity),
        length_prefixed(message.callback_receiver_node_identity),
        _NUMBERS.pack(message.distribution, message.trace_options, message.callback_key, len(points)),
        *points,
        message.body,
    )
    return b"".join(parts)


def _type(kind: MessageType) -> bytes:
    version = kind.version
    number = _VERSION.pack(2, version) if isinstance(version, int) else _LENGTH.pack(len(version) + 0x1_0000) + version
    return length_prefixed(kind.identity) + number + length_prefixed(kind.partition)


def length_prefixed(raw: bytes) -> bytes:
    """Bytes behind their int32 length: neighbours cannot run into each other."""
    return _LENGTH.pack(len(raw)) + raw
