"""The Message: every field of every format, in one frozen value.

A field that a format does not have holds its empty value. What must be kept to write the same bytes again, but means
nothing to anybody, is not here: see `decoded.py`. This file knows no bytes.
"""

from enum import IntEnum
from typing import Final

import msgspec

from hopline.identity import MessageType


class Distribution(IntEnum):
    """How receivers are chosen. Direct addressing is no third value: it is unicast with a receiver node."""

    UNICAST = 0
    BROADCAST = 1


TRACE_ROUTING: Final = 1
"""The only trace option the documents know: record the route."""

TICKS_PER_MS: Final = 10_000
"""A tick is 100 ns."""


class RoutingEntry(msgspec.Struct, frozen=True, gc=False):
    """One step of the trail: the router that sent the message on, by its address and its identity."""

    uri: str = ""
    identity: bytes = b""


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message as its receiver understands it, whatever format brought it.

    `ttl_ticks` counts 100 ns; 0 never expires, a negative one has expired. `hops` counts this message, `routing` the whole
    flow. `body` is the payload: if it came in several frames, their concatenation.

    >>> hello = Message(identity=b"HELLO", version=1, body=b"hi")
    >>> hello.type
    MessageType(identity=b'HELLO', version=1, partition=b'')
    """

    socket_identity: bytes = b""
    identity: bytes = b""
    version: int | bytes = 0
    partition: bytes = b""
    body: bytes = b""
    correlation_id: bytes = b""
    receiver_identity: bytes = b""
    receiver_node_identity: bytes = b""
    distribution: Distribution = Distribution.UNICAST
    trace_options: int = 0
    callback_points: tuple[MessageType, ...] = ()
    callback_key: int = 0
    callback_receiver_identity: bytes = b""
    callback_receiver_node_identity: bytes = b""
    domain: str = ""
    signature: bytes = b""
    ttl_ticks: int = 0
    hops: int = 0
    routing: tuple[RoutingEntry, ...] = ()

    @property
    def type(self) -> MessageType:
        """Identity, version and partition: what routes, handlers and callbacks are matched by."""
        return MessageType(self.identity, self.version, self.partition)


def warnings_of(message: Message) -> tuple[str, ...]:
    """Say what is odd about a message that is good enough to be kept.

    >>> warnings_of(Message(trace_options=5))
    ('unknown trace options 0x4',)
    """
    unknown = message.trace_options & ~TRACE_ROUTING
    if not unknown:
        return ()
    return (f"unknown trace options {unknown & 0xFFFF_FFFF_FFFF_FFFF:#x}",)
