"""What decoding gives beside the message: which layout it was, and what must be kept to write the same bytes again.

The rule is lossless: `encode(d.message, d.format, d.variant, d.extra)` gives the frames that `d` was decoded from.
An ordinary message needs no Extra at all. This file knows no bytes; the format files fill and read it.
"""

import msgspec

from hopline.wire.message import Message


class Extra(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The parts of a frame list that mean nothing to us, each at its empty value if it is as we would write it.

    Attributes:
        wire_version: the number in a v6 metaframe, if it is not the one of the variant.
        lead: frames between frame 0 and the first part of the message, if not one empty frame.
        body_sizes: sizes of the body frames, if there is not exactly one.
        body_offset: the body offset, if it does not follow from the layout.
        body_copy: the repeated body of an early metaframe, if it is not the body.
        after_body: unknown frames after the body.
        after_routing: unknown frames after the routing entries.
        after_callbacks: unknown frames on top of the trailer.
        routing_rest: for each routing entry what it holds beyond the known fields.
        callback_rest: for each callback entry what it holds beyond the known fields.
        idle_routing: offset, count and divisor as written although there is no routing entry, if unusual.
        idle_callbacks: the same for callbacks.
        trace_reserved: reserved lanes beside trace options and distribution, if not zero.
        routing_reserved: reserved lanes of the routing description, if not zero.
        callback_reserved: reserved lane of the callback description, if not zero.
        body_reserved: reserved lanes of the body description, if not zero.
        text_version: whether a v4 message writes versions as text, where its variant would not tell.
        trailing: bytes after the last field of a metaframe.
    """

    wire_version: int | None = None
    lead: tuple[bytes, ...] | None = None
    body_sizes: tuple[int, ...] | None = None
    body_offset: int | None = None
    body_copy: bytes | None = None
    after_body: tuple[bytes, ...] = ()
    after_routing: tuple[bytes, ...] = ()
    after_callbacks: tuple[bytes, ...] = ()
    routing_rest: tuple[tuple[bytes, ...], ...] = ()
    callback_rest: tuple[tuple[bytes, ...], ...] = ()
    idle_routing: tuple[bytes, bytes, bytes] | None = None
    idle_callbacks: tuple[bytes, bytes, bytes] | None = None
    trace_reserved: bytes = b""
    routing_reserved: bytes = b""
    callback_reserved: bytes = b""
    body_reserved: bytes = b""
    text_version: bool | None = None
    trailing: bytes = b""


NO_EXTRA = Extra()


class Decoded(msgspec.Struct, frozen=True, gc=False):
    """A message with the layout it came in. `wire_version` is the number that was read, which need not name the layout."""

    format: str
    variant: str
    wire_version: int
    message: Message
    extra: Extra | None = None


class Selected(msgspec.Struct, frozen=True, gc=False):
    """The route selectors of a message; the rest of its frames is not decoded yet and may still turn out to be broken."""

    format: str
    partition: bytes
    version: int | bytes
    identity: bytes
    receiver_identity: bytes
    receiver_node_identity: bytes
    distribution: int
    frames: list[bytes]
