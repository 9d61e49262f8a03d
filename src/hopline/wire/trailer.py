"""The trailer that v4 and v5 share: the same fixed frames at the same places from the end, more of them over the years.

    from end   field                          encoding                                  since
    n-17       CallbackReceiverNodeIdentity   bytes                                     v5, v4 trailer-17
    n-16       CallbackKey                    int64                                     v5, v4 trailer-16
    n-15       Domain                         UTF-8                                     v4
    n-14       Signature                      bytes                                     v4, trailer-14
    n-13       RoutingDescription             lanes: offset, count, divisor 2, hops     trailer-13
    n-12       CallbackDescription            lanes: offset, count, divisor 3, 0
    n-11       ReceiverIdentity               bytes
    n-10       CallbackReceiverIdentity       bytes
    n-9        ReceiverNodeIdentity           bytes
    n-8        Partition                      bytes
    n-7        Version                        uint16, or text such as 1.0
    n-6        Identity                       bytes
    n-5        TraceOptions, Distribution     lanes: trace, distribution, 0, 0
    n-4        CorrelationId                  bytes
    n-3        TTL                            int64, ticks of 100 ns
    n-2        BodyDescription                lanes: offset, count, 0, 0
    n-1        WireFormatVersion              int32, or uint16

Above the trailer lie, upwards: callbacks (Partition, Version, Identity), routing (URI, Identity), body, frame 1 (empty) and
frame 0 (socket identity). `regions.py` says how they are found. This file does not know which number stands in n-1.
"""

from typing import Any, Final, NamedTuple

from hopline.wire.decoded import NO_EXTRA, Extra, Selected
from hopline.wire.message import Message
from hopline.wire.primitives import (
    I64,
    LANES,
    U16,
    Lanes,
    read_distribution,
    read_fixed,
    read_lanes,
    read_text,
    read_version,
    write_distribution,
    write_lane,
    write_lanes,
    write_number,
    write_number_version,
    write_reserved,
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

FIELDS: Final = {
    17: "CallbackReceiverNodeIdentity",
    16: "CallbackKey",
    15: "Domain",
    14: "Signature",
    13: "RoutingDescription",
    12: "CallbackDescription",
    11: "ReceiverIdentity",
    10: "CallbackReceiverIdentity",
    9: "ReceiverNodeIdentity",
    8: "Partition",
    7: "Version",
    6: "Identity",
    5: "TraceOptions, Distribution",
    4: "CorrelationId",
    3: "TTL",
    2: "BodyDescription",
    1: "WireFormatVersion",
}

EXTRAS: Final = frozenset(
    [
        "lead",
        "body_sizes",
        "body_offset",
        "after_body",
        "after_routing",
        "after_callbacks",
        "routing_rest",
        "callback_rest",
        "idle_routing",
        "idle_callbacks",
        "trace_reserved",
        "callback_reserved",
        "body_reserved",
    ]
)
"""What of Extra these formats have."""

SHORTEST: Final = 13
"""Frames of the first such trailer; positions n-1 to n-13 never moved."""

_LACKING: Final = {
    13: ("domain", "signature", "callback_key", "callback_receiver_node_identity"),
    14: ("domain", "callback_key", "callback_receiver_node_identity"),
    15: ("callback_key", "callback_receiver_node_identity"),
    16: ("callback_receiver_node_identity",),
    17: (),
}
"""Fields that a trailer of so many frames has no place for."""

_IDLE_ROUTING: Final = (b"\0\0", b"\0\0", b"\2\0")
_IDLE_CALLBACKS: Final = (b"\0\0", b"\0\0", b"\3\0")


class Words(NamedTuple):
    """The three descriptions of a trailer and the parts they point at."""

    routing: Lanes
    callbacks: Lanes
    body: Lanes
    at: Regions


def read_words(frames: list[bytes], trailer_frames: int) -> Words:
    """Read the descriptions and find the parts of the message."""
    n = len(frames)
    routing = read_lanes(frames, n - 13, "RoutingDescription")
    callbacks = read_lanes(frames, n - 12, "CallbackDescription")
    body = read_lanes(frames, n - 2, "BodyDescription")
    at = locate(
        n,
        trailer_frames,
        Description(*routing[:3], (n - 13,) * 3),
        Description(*callbacks[:3], (n - 12,) * 3),
        Description(*body[:2], places=(n - 2,) * 3),
    )
    return Words(routing, callbacks, body, at)


def read(frames: list[bytes], words: Words, fixed: int, *, text_version: bool) -> tuple[Message, dict[str, Any]]:
    """Read a message with a trailer of `fixed` known frames, and what must be kept beside it (fields of Extra)."""
    n = len(frames)
    at = words.at
    keep: dict[str, Any] = {}
    trace, distribution, *_ = trace_word = read_lanes(frames, n - 5, "TraceOptions, Distribution")

    # Without entries a divisor may be anything, even 0.
    routing, rest = read_routing(frames, at, words.routing[2]) if words.routing[1] else ((), ())
    if rest:
        keep["routing_rest"] = rest
    divisor = words.callbacks[2]
    where = callback_versions(at, divisor) if words.callbacks[1] else range(0)
    versions = [_read_version(frames, i, "Callback Version", text=text_version) for i in where]
    points, rest = read_callbacks(frames, at, divisor, versions) if versions else ((), ())
    if rest:
        keep["callback_rest"] = rest
    _keep_frames(frames, at, n - fixed, keep)
    _keep_words(words, trace_word, keep)

    message = Message(
        frames[0],
        frames[n - 6],
        _read_version(frames, n - 7, "Version", text=text_version),
        frames[n - 8],
        frames[at.body] if at.body_end - at.body == 1 else b"".join(frames[at.body : at.body_end]),
        frames[n - 4],
        frames[n - 11],
        frames[n - 9],
        read_distribution(distribution, n - 5),
        trace,
        points,
        read_fixed(frames, n - 16, I64, "CallbackKey") if fixed >= 16 else 0,
        frames[n - 10],
        frames[n - 17] if fixed >= 17 else b"",
        read_text(frames[n - 15], "Domain", n - 15) if fixed >= 15 else "",
        frames[n - 14] if fixed >= 14 else b"",
        read_fixed(frames, n - 3, I64, "TTL"),
        words.routing[3],
        routing,
    )
    return message, keep


def _read_version(frames: list[bytes], index: int, field: str, *, text: bool) -> int | bytes:
    return read_version(frames[index]) if text else read_fixed(frames, index, U16, field)


def _keep_frames(frames: list[bytes], at: Regions, known: int, keep: dict[str, Any]) -> None:
    if at.body != 2 or frames[1]:
        keep["lead"] = tuple(frames[1 : at.body])
    if at.body_end - at.body != 1:
        keep["body_sizes"] = tuple(map(len, frames[at.body : at.body_end]))
    if at.body_end != at.routing:
        keep["after_body"] = tuple(frames[at.body_end : at.routing])
    if at.routing_end != at.callbacks:
        keep["after_routing"] = tuple(frames[at.routing_end : at.callbacks])
    if at.trailer != known:
        keep["after_callbacks"] = tuple(frames[at.trailer : known])


def _keep_words(words: Words, trace_word: Lanes, keep: dict[str, Any]) -> None:
    routing, callbacks, body, _ = words
    if not routing[1] and (idle := _idle(routing)) != _IDLE_ROUTING:
        keep["idle_routing"] = idle
    if not callbacks[1] and (idle := _idle(callbacks)) != _IDLE_CALLBACKS:
        keep["idle_callbacks"] = idle
    if callbacks[3]:
        keep["callback_reserved"] = U16.pack(callbacks[3])
    if trace_word[2] or trace_word[3]:
        keep["trace_reserved"] = LANES.pack(*trace_word)[4:]
    if body[2] or body[3]:
        keep["body_reserved"] = LANES.pack(*body)[4:]
    if not (body[0] or body[1]):
        keep["body_offset"] = 0


def _idle(word: Lanes) -> tuple[bytes, bytes, bytes]:
    return U16.pack(word[0]), U16.pack(word[1]), U16.pack(word[2])


def select(frames: list[bytes], format_name: str, *, text_version: bool) -> Selected:
    """Read the route selectors alone."""
    n = len(frames)
    word = read_lanes(frames, n - 5, "TraceOptions, Distribution")
    return Selected(
        format_name,
        frames[n - 8],
        _read_version(frames, n - 7, "Version", text=text_version),
        frames[n - 6],
        frames[n - 11],
        frames[n - 9],
        read_distribution(word[1], n - 5),
        frames,
    )


def write(
    message: Message, extra: Extra | None, fixed: int, stamp: bytes, *, text_version: bool, format_name: str
) -> list[bytes]:
    """Write a message with a trailer of `fixed` known frames that ends in `stamp`."""
    keep = extra or NO_EXTRA
    refuse_fields(message, _LACKING[fixed], format_name)
    to_version = write_version if text_version else write_number_version
    points, trail = message.callback_points, message.routing
    routing_extra = check_rest(keep.routing_rest, len(trail), "routing")
    callback_extra = check_rest(keep.callback_rest, len(points), "callback")

    frames = [message.socket_identity, *((b"",) if keep.lead is None else keep.lead)]
    body = split_body(message.body, keep.body_sizes)
    frames += body
    frames += keep.after_body
    for i, entry in enumerate(trail):
        frames += keep.routing_rest[i] if routing_extra else ()
        frames += write_text(entry.uri, "Routing URI"), entry.identity
    frames += keep.after_routing
    for i, point in enumerate(points):
        frames += keep.callback_rest[i] if callback_extra else ()
        frames += point.partition, to_version(point.version), point.identity
    frames += keep.after_callbacks

    # Offsets count from the end, so they grow from the trailer upwards.
    offset = fixed + len(keep.after_callbacks)
    callback_word = _word(offset, len(points), CALLBACK_FRAMES + callback_extra, keep.idle_callbacks, _IDLE_CALLBACKS)
    offset += len(points) * (CALLBACK_FRAMES + callback_extra) + len(keep.after_routing)
    routing_word = _word(offset, len(trail), ROUTING_FRAMES + routing_extra, keep.idle_routing, _IDLE_ROUTING)
    offset += len(trail) * (ROUTING_FRAMES + routing_extra) + len(keep.after_body) + len(body)
    body_offset = offset if keep.body_offset is None else keep.body_offset

    if fixed >= 17:
        frames.append(message.callback_receiver_node_identity)
    if fixed >= 16:
        frames.append(write_number(I64, "CallbackKey", message.callback_key))
    if fixed >= 15:
        frames.append(write_text(message.domain, "Domain"))
    if fixed >= 14:
        frames.append(message.signature)
    frames += (
        write_lanes("RoutingDescription", *routing_word, write_lane("Hops", message.hops)),
        write_lanes("CallbackDescription", *callback_word, *write_reserved(keep.callback_reserved, 1)),
        message.receiver_identity,
        message.callback_receiver_identity,
        message.receiver_node_identity,
        message.partition,
        to_version(message.version),
        message.identity,
        write_lanes(
            "TraceOptions",
            message.trace_options,
            write_distribution(message.distribution),
            *write_reserved(keep.trace_reserved, 2),
        ),
        message.correlation_id,
        write_ttl(message.ttl_ticks),
        write_lanes("BodyDescription", body_offset, len(body), *write_reserved(keep.body_reserved, 2)),
        stamp,
    )
    return frames


def _word(
    below: int, count: int, divisor: int, idle: tuple[bytes, bytes, bytes] | None, usual: tuple[bytes, bytes, bytes]
) -> tuple[int, int, int]:
    if count:
        return below + 1, count, divisor
    offset, count_lane, divisor_lane = idle or usual
    return (
        int.from_bytes(offset, "little"),
        int.from_bytes(count_lane, "little"),
        int.from_bytes(divisor_lane, "little"),
    )
