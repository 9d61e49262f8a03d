"""Format v3: seed document 003, "Message wire format".

    from start  from end  field                      encoding
    0                     SocketIdentity             bytes
    1                     empty
    2 ...                 per routing entry: URI, Identity                     (new frames come on top)
    ...                   per callback point: Partition, Version, Identity     (new frames come on top)
                n-20      CallbackFrameDivisor       int32, 3
                n-19      RoutingFrameDivisor        int32, 2
                n-18      Partition                  bytes
                n-17      ReceiverNodeIdentity       bytes
                n-16      Hops                       int32
                n-15      RoutingEntryCount          int32, or empty: none
                n-14      RoutingStartFrame          int32, or empty: none
                n-13      TraceOptions               int64
                n-12      Version                    text, "1.0"
                n-11      Identity                   bytes
                n-10      ReceiverIdentity           bytes
                n-9       Distribution               int32
                n-8       CorrelationId              bytes
                n-7       CallbackEntryCount         int32, or empty: none
                n-6       CallbackStartFrame         int32, or empty: none
                n-5       CallbackReceiverIdentity   bytes
                n-4       TTL                        int64, milliseconds (document) or ticks (reference)
                n-3       WireFormatVersion          int32, 3
                n-2       empty
                n-1       Body                       bytes, exactly one frame

For a count or an offset, an empty frame, 0 and -1 all mean "none"; we write the empty frame.
"""

from typing import Any, Final, Literal

from hopline.errors import DecodeError, EncodeError
from hopline.wire.decoded import NO_EXTRA, Decoded, Extra, Selected
from hopline.wire.message import TICKS_PER_MS, Message
from hopline.wire.primitives import (
    I32,
    I64,
    MAX_ENTRIES,
    read_distribution,
    read_fixed,
    read_version,
    refuse_value,
    write_distribution,
    write_number,
    write_text,
    write_ttl,
    write_version,
)
from hopline.wire.regions import (
    CALLBACK_FRAMES,
    ROUTING_FRAMES,
    Description,
    Regions,
    callback_versions,
    check_rest,
    locate,
    read_callbacks,
    read_routing,
    refuse_fields,
    split_body,
)

NAME: Final = "v3"
VARIANTS: Final = {"": None}
DEFAULT_VARIANT: Final = ""
EXTRAS: Final = frozenset(
    ["lead", "after_routing", "after_callbacks", "routing_rest", "callback_rest", "idle_routing", "idle_callbacks"]
)
"""What of Extra this format has."""
TRAILER: Final = 20
FEWEST: Final = 22
"""Frames of the smallest message: two for the socket, the trailer with the body."""

FIELDS: Final = {
    20: "CallbackFrameDivisor",
    19: "RoutingFrameDivisor",
    18: "Partition",
    17: "ReceiverNodeIdentity",
    16: "Hops",
    15: "RoutingEntryCount",
    14: "RoutingStartFrame",
    13: "TraceOptions",
    12: "Version",
    11: "Identity",
    10: "ReceiverIdentity",
    9: "Distribution",
    8: "CorrelationId",
    7: "CallbackEntryCount",
    6: "CallbackStartFrame",
    5: "CallbackReceiverIdentity",
    4: "TTL",
    3: "WireFormatVersion",
    2: "empty",
    1: "Body",
}

TtlUnit = Literal["ms", "ticks"]

_NUMBER: Final = b"\3\0\0\0"
_LACKING: Final = ("callback_key", "callback_receiver_node_identity", "domain", "signature")
_LONGEST_TTL_MS: Final = (2**63 - 1) // TICKS_PER_MS

Idle = tuple[bytes, bytes, bytes]


def signature_fault(frames: list[bytes]) -> str | None:
    """Why these frames do not look like v3 at all, or None if they do."""
    n = len(frames)
    if n < FEWEST:
        return f"{n} frames, at least {FEWEST} are needed"
    if frames[-3] != _NUMBER:
        return "frame n-3 is not the number 3 in 4 bytes"
    if frames[-2]:
        return "frame n-2 is not empty"
    if len(frames[n - 20]) != 4 or len(frames[n - 19]) != 4:
        return "frames n-20 and n-19 are not divisors of 4 bytes"
    return None


def structure(frames: list[bytes]) -> tuple[Description, Description, Regions]:
    """Check counts and offsets and find the entries; raises DecodeError if this is not v3, or broken."""
    if fault := signature_fault(frames):
        raise DecodeError("WIRE_OTHER_FORMAT", f"not v3: {fault}")
    n = len(frames)
    routing = _describe(frames, 14, 15, 19)
    callbacks = _describe(frames, 6, 7, 20)
    return routing, callbacks, locate(n, TRAILER, routing, callbacks)


def structure_fault(frames: list[bytes]) -> str | None:
    """Why these frames do not hold together as v3, or None if they do: then they are v3, whatever their body imitates."""
    if fault := signature_fault(frames):
        return fault
    try:
        structure(frames)
    except DecodeError as error:
        return str(error)
    return None


def _describe(frames: list[bytes], offset_at: int, count_at: int, divisor_at: int) -> Description:
    n = len(frames)
    offset, count = (_number_or_none(frames, n - at, FIELDS[at]) for at in (offset_at, count_at))
    divisor = read_fixed(frames, n - divisor_at, I32, FIELDS[divisor_at])
    if not (offset and count):
        return Description(0, 0, divisor)
    return Description(offset, count, divisor, (n - offset_at, n - count_at, n - divisor_at))


def _number_or_none(frames: list[bytes], index: int, field: str) -> int:
    if not frames[index]:
        return 0
    value = read_fixed(frames, index, I32, field)
    return 0 if value == -1 else value


def decode(frames: list[bytes], v3_ttl: TtlUnit = "ms") -> Decoded:
    """Decode a v3 frame list; raises DecodeError."""
    n = len(frames)
    routing_word, callback_word, at = structure(frames)
    keep: dict[str, Any] = {}
    routing, rest = read_routing(frames, at, routing_word.divisor) if routing_word.entries else ((), ())
    if rest:
        keep["routing_rest"] = rest
    divisor = callback_word.divisor
    where = callback_versions(at, divisor) if callback_word.entries else range(0)
    versions = [read_version(frames[i]) for i in where]
    points, rest = read_callbacks(frames, at, divisor, versions) if versions else ((), ())
    if rest:
        keep["callback_rest"] = rest
    if at.routing != 2 or frames[1]:
        keep["lead"] = tuple(frames[1 : at.routing])
    if at.routing_end != at.callbacks:
        keep["after_routing"] = tuple(frames[at.routing_end : at.callbacks])
    if at.trailer != n - TRAILER:
        keep["after_callbacks"] = tuple(frames[at.trailer : n - TRAILER])
    for name, word, places, usual in (
        ("idle_routing", routing_word, (14, 15, 19), _idle(ROUTING_FRAMES)),
        ("idle_callbacks", callback_word, (6, 7, 20), _idle(CALLBACK_FRAMES)),
    ):
        written = tuple(frames[n - at] for at in places)
        if not word.entries and written != usual:
            keep[name] = written

    ttl = read_fixed(frames, n - 4, I64, "TTL")
    if v3_ttl == "ms":
        if abs(ttl) > _LONGEST_TTL_MS:
            reason = f"TTL of {ttl} ms does not fit 64 bits of ticks; real old senders write ticks"
            raise DecodeError("WIRE_BAD_TTL", reason, frame=n - 4)
        ttl *= TICKS_PER_MS
    message = Message(
        socket_identity=frames[0],
        identity=frames[n - 11],
        version=read_version(frames[n - 12]),
        partition=frames[n - 18],
        body=frames[n - 1],
        correlation_id=frames[n - 8],
        receiver_identity=frames[n - 10],
        receiver_node_identity=frames[n - 17],
        distribution=read_distribution(read_fixed(frames, n - 9, I32, "Distribution"), n - 9),
        trace_options=read_fixed(frames, n - 13, I64, "TraceOptions"),
        callback_points=points,
        callback_receiver_identity=frames[n - 5],
        ttl_ticks=ttl,
        hops=read_fixed(frames, n - 16, I32, "Hops"),
        routing=routing,
    )
    return Decoded(NAME, "", 3, message, Extra(**keep) if keep else None)


def _idle(divisor: int) -> Idle:
    return b"", b"", I32.pack(divisor)


def select(frames: list[bytes]) -> Selected:
    """Read the route selectors of frames whose `structure` is v3."""
    n = len(frames)
    return Selected(
        NAME,
        frames[n - 18],
        read_version(frames[n - 12]),
        frames[n - 11],
        frames[n - 10],
        frames[n - 17],
        read_distribution(read_fixed(frames, n - 9, I32, "Distribution"), n - 9),
        frames,
    )


def encode(
    message: Message, variant: str = DEFAULT_VARIANT, extra: Extra | None = None, v3_ttl: TtlUnit = "ms"
) -> list[bytes]:
    """Encode a message as v3; raises EncodeError."""
    if variant not in VARIANTS:
        raise EncodeError("WIRE_UNKNOWN_VARIANT", f"v3 has no variant {variant!r}")
    refuse_fields(message, _LACKING, NAME)
    keep = extra or NO_EXTRA
    points, trail = message.callback_points, message.routing
    routing_extra = check_rest(keep.routing_rest, len(trail), "routing")
    callback_extra = check_rest(keep.callback_rest, len(points), "callback")
    if len(split_body(message.body, keep.body_sizes)) != 1:
        raise EncodeError("WIRE_BAD_EXTRA", "v3 has exactly one body frame")

    frames = [message.socket_identity, *((b"",) if keep.lead is None else keep.lead)]
    for i, entry in enumerate(trail):
        frames += keep.routing_rest[i] if routing_extra else ()
        frames += write_text(entry.uri, "Routing URI"), entry.identity
    frames += keep.after_routing
    for i, point in enumerate(points):
        frames += keep.callback_rest[i] if callback_extra else ()
        frames += point.partition, write_version(point.version), point.identity
    frames += keep.after_callbacks

    callback_divisor = CALLBACK_FRAMES + callback_extra
    routing_divisor = ROUTING_FRAMES + routing_extra
    below = TRAILER + len(keep.after_callbacks)
    callback_word = _word(below, len(points), callback_divisor, keep.idle_callbacks)
    below += len(points) * callback_divisor + len(keep.after_routing)
    routing_word = _word(below, len(trail), routing_divisor, keep.idle_routing)
    ttl = message.ttl_ticks if v3_ttl == "ticks" else _milliseconds(message.ttl_ticks)
    frames += (
        callback_word[2],
        routing_word[2],
        message.partition,
        message.receiver_node_identity,
        write_number(I32, "Hops", message.hops),
        routing_word[1],
        routing_word[0],
        write_number(I64, "TraceOptions", message.trace_options),
        write_version(message.version),
        message.identity,
        message.receiver_identity,
        I32.pack(write_distribution(message.distribution)),
        message.correlation_id,
        callback_word[1],
        callback_word[0],
        message.callback_receiver_identity,
        write_ttl(ttl),
        _NUMBER,
        b"",
        message.body,
    )
    return frames


def _milliseconds(ticks: int) -> int:
    # Up to the next whole millisecond, but never to 0: that would make a short life, or one that has ended, an endless one.
    ttl = -(-ticks // TICKS_PER_MS) or (-1 if ticks < 0 else 0)
    if abs(ttl) > _LONGEST_TTL_MS:
        raise EncodeError("WIRE_BAD_TTL", f"TTL of {ticks} ticks rounds to {ttl} ms, which no reader can hold as ticks")
    return ttl


def _word(below: int, count: int, divisor: int, idle: Idle | None) -> Idle:
    if not count:
        return idle or _idle(divisor)
    if count > MAX_ENTRIES:
        refuse_value("entry count", count, f"the limit of {MAX_ENTRIES}")
    return I32.pack(below + 1), I32.pack(count), I32.pack(divisor)
