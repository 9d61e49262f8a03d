"""Format v6: seed document 000, the metaframe.

    0     SocketIdentity
    1     empty
    2 ... body frames                   (new frames come after them)
    n-1   metaframe: all other fields, one after the other, no padding

    metaframe field                     encoding
    WireFormatVersion                   uint16: 6; early code wrote 5, the document's title says 4
    Partition                *          BYTES = int32 length and the bytes
    Version                  *          uint16
    Identity                 *          BYTES
    ReceiverIdentity         *          BYTES
    ReceiverNodeIdentity     *          BYTES
    TraceOptions, Distribution *        lanes: trace, distribution, reserved, reserved
    CallbackReceiverNodeIdentity        BYTES
    CallbackKey                         int64
    Domain                              TEXT = int32 length and UTF-8
    Signature                           BYTES
    RoutingEntryCount, Hops             lanes: count, hops, reserved, reserved
    per entry: size, URI, Identity      int32 size of what follows, TEXT, BYTES     (new bytes come at the end)
    CallbackEntryCount                  uint16
    per entry: size, Partition, Version, Identity    int32 size, BYTES, uint16, BYTES     (new bytes come at the end)
    CallbackReceiverIdentity            BYTES
    CorrelationId                       BYTES
    TTL                                 int64, ticks of 100 ns
    BodyFirstFrameOffset, BodyFrameCount    lanes: offset, count, reserved, reserved
    copy of the body                    BYTES, variant `early` only

The route selectors (*) come first, so that a router can stop reading there: `select`.

Reading is optimistic. Lengths are read as unsigned, so a position only ever grows; a slice beyond the end comes out short,
but the next number read after it then fails. So one handler at the end of `decode` catches every way in which lengths can
lie, and `walk`, which checks each step and draws the map for `explain`, is asked to name the fault.
"""

import struct
from collections.abc import Iterable
from itertools import repeat
from struct import Struct
from typing import Any, Final

from hopline.errors import DecodeError, EncodeError, WireError
from hopline.identity import MessageType
from hopline.wire.decoded import NO_EXTRA, Decoded, Extra, Selected
from hopline.wire.message import Message, RoutingEntry
from hopline.wire.primitives import (
    DISTRIBUTIONS,
    I64,
    LANES,
    U16,
    Reader,
    read_distribution,
    write_distribution,
    write_lanes,
    write_number,
    write_number_version,
    write_reserved,
    write_text,
    write_ttl,
)
from hopline.wire.regions import ENVELOPE, split_body

NAME: Final = "v6"
VARIANTS: Final = {"": 6, "early": 5}
"""Variant: the number it writes."""
DEFAULT_VARIANT: Final = ""
NUMBERS: Final = (4, 5, 6)
EXTRAS: Final = frozenset(
    [
        "wire_version",
        "lead",
        "body_sizes",
        "body_offset",
        "body_copy",
        "after_body",
        "routing_rest",
        "callback_rest",
        "trace_reserved",
        "routing_reserved",
        "body_reserved",
        "trailing",
    ]
)
"""What of Extra this format has."""
SHORTEST: Final = 82
"""Bytes of a metaframe in which everything is empty."""
FEWEST: Final = 4
"""Frames of the smallest ordinary message; one without a body has 3."""

_U32 = Struct("<I")
_U16_U32 = Struct("<HI")
_U32_U32 = Struct("<II")
_LANES_U32 = Struct("<4HI")
_I64_U32 = Struct("<qI")
_TAIL = Struct("<q4H")
_LONGEST: Final = 2**31 - 1

_NO_LANES: Final = (0, 0)

Rests = tuple[tuple[bytes, ...], ...]

_u16, _u32, _u16_u32, _u32_u32 = U16.unpack_from, _U32.unpack_from, _U16_U32.unpack_from, _U32_U32.unpack_from
_lanes, _lanes_u32, _i64_u32, _tail = LANES.unpack_from, _LANES_U32.unpack_from, _I64_U32.unpack_from, _TAIL.unpack_from


def signature_fault(frames: list[bytes]) -> str | None:
    """Why these frames do not look like v6 at all, or None if they do."""
    if len(frames) <= ENVELOPE:
        return f"{len(frames)} frames, at least {ENVELOPE + 1} are needed"
    meta = frames[-1]
    if len(meta) < SHORTEST:
        return f"the last frame has {len(meta)} bytes, a metaframe has at least {SHORTEST}"
    if _u16(meta)[0] not in NUMBERS:
        return f"the last frame starts with the number {_u16(meta)[0]}, a metaframe with 6, 5 or 4"
    return None


def decode(frames: list[bytes]) -> Decoded:
    """Decode a v6 frame list; raises DecodeError."""
    if fault := signature_fault(frames):
        raise DecodeError("WIRE_OTHER_FORMAT", f"not v6: {fault}")
    meta = frames[-1]
    try:
        number, size = _u16_u32(meta, 0)
        pos = 6 + size
        partition = meta[6:pos]
        version, size = _u16_u32(meta, pos)
        start = pos + 6
        pos = start + size
        identity = meta[start:pos]
        start = pos + 4
        pos = start + _u32(meta, pos)[0]
        receiver = meta[start:pos]
        start = pos + 4
        pos = start + _u32(meta, pos)[0]
        receiver_node = meta[start:pos]
        trace, distribution, trace_3, trace_4, size = _lanes_u32(meta, pos)
        start = pos + 12
        pos = start + size
        callback_node = meta[start:pos]
        callback_key, size = _i64_u32(meta, pos)
        start = pos + 12
        pos = start + size
        domain = meta[start:pos].decode() if size else ""
        start = pos + 4
        pos = start + _u32(meta, pos)[0]
        signature = meta[start:pos]
        count, hops, routing_3, routing_4 = _lanes(meta, pos)
        pos += 8
        routing: tuple[RoutingEntry, ...] = ()
        points: tuple[MessageType, ...] = ()
        rests = None
        if count:
            routing, routing_rest, pos = _read_routing(meta, pos, count)
            rests = routing_rest
        count = _u16(meta, pos)[0]
        pos += 2
        if count:
            points, callback_rest, pos = _read_callbacks(meta, pos, count)
            rests = rests or callback_rest
        start = pos + 4
        pos = start + _u32(meta, pos)[0]
        callback_receiver = meta[start:pos]
        start = pos + 4
        pos = start + _u32(meta, pos)[0]
        correlation_id = meta[start:pos]
        ttl, body_offset, body_count, body_3, body_4 = _tail(meta, pos)
        pos += 16
        usual = (
            number == 6
            and body_offset == 2
            and body_count == 1
            and len(frames) == FEWEST
            and len(meta) == pos
            and not (frames[1] or rests or trace_3 or trace_4 or routing_3 or routing_4 or body_3 or body_4)
        )
        message = Message(
            frames[0],
            identity,
            version,
            partition,
            frames[2] if usual else b"",
            correlation_id,
            receiver,
            receiver_node,
            DISTRIBUTIONS[distribution],
            trace,
            points,
            callback_key,
            callback_receiver,
            callback_node,
            domain,
            signature,
            ttl,
            hops,
            routing,
        )
    except (struct.error, UnicodeDecodeError, IndexError):
        raise _fault(frames) from None
    if usual:
        return Decoded("v6", "", 6, message)
    keep: dict[str, Any] = {}
    if rests:
        keep["routing_rest"] = routing_rest if routing else ()
        keep["callback_rest"] = callback_rest if points else ()
    for name, lanes in (
        ("trace_reserved", (trace_3, trace_4)),
        ("routing_reserved", (routing_3, routing_4)),
        ("body_reserved", (body_3, body_4)),
    ):
        if any(lanes):
            keep[name] = LANES.pack(*lanes, 0, 0)[:4]
    return _decode_unusual(frames, message, keep, (number, body_offset, body_count, pos))


def _read_routing(meta: bytes, pos: int, count: int) -> tuple[tuple[RoutingEntry, ...], Rests, int]:
    entries: list[RoutingEntry] = []
    rests: list[tuple[bytes, ...]] = []
    unknown = False
    for _ in range(count):
        size, length = _u32_u32(meta, pos)
        end = pos + 4 + size
        start = pos + 8
        pos = start + length
        uri = meta[start:pos].decode()
        start = pos + 4
        pos = start + _u32(meta, pos)[0]
        entries.append(RoutingEntry(uri, meta[start:pos]))
        if pos == end:
            rests.append(())
            continue
        if pos > end or end > len(meta):
            raise struct.error
        rests.append((meta[pos:end],))
        unknown = True
        pos = end
    return tuple(entries), tuple(rests) if unknown else (), pos


def _read_callbacks(meta: bytes, pos: int, count: int) -> tuple[tuple[MessageType, ...], Rests, int]:
    points: list[MessageType] = []
    rests: list[tuple[bytes, ...]] = []
    unknown = False
    for _ in range(count):
        size, length = _u32_u32(meta, pos)
        end = pos + 4 + size
        start = pos + 8
        pos = start + length
        partition = meta[start:pos]
        version, length = _u16_u32(meta, pos)
        start = pos + 6
        pos = start + length
        points.append(MessageType(meta[start:pos], version, partition))
        if pos == end:
            rests.append(())
            continue
        if pos > end or end > len(meta):
            raise struct.error
        rests.append((meta[pos:end],))
        unknown = True
        pos = end
    return tuple(points), tuple(rests) if unknown else (), pos


def _decode_unusual(frames: list[bytes], message: Message, keep: dict[str, Any], tail: tuple[int, int, int, int]) -> Decoded:
    """Find the body and keep what is not as we would write it."""
    number, offset, count, pos = tail
    n = len(frames)
    meta = frames[-1]
    copy_end = _copy_end(meta, pos) if number == 5 else 0
    variant = "early" if copy_end else ""
    start = _body_start(n, offset, count, early=bool(copy_end))
    end = start + count
    body = b"".join(frames[start:end])
    if copy_end:
        copy = meta[pos + 4 : copy_end]
        if copy != body:
            keep["body_copy"] = copy
        pos = copy_end
    if number != VARIANTS[variant]:
        keep["wire_version"] = number
    if start != 2 or frames[1]:
        keep["lead"] = tuple(frames[1:start])
    if count != 1:
        keep["body_sizes"] = tuple(map(len, frames[start:end]))
    if end != n - 1:
        keep["after_body"] = tuple(frames[end : n - 1])
    if offset != _usual_offset(variant, start, count, n):
        keep["body_offset"] = offset
    if pos != len(meta):
        keep["trailing"] = meta[pos:]
    fields = (message.socket_identity, message.identity, message.version, message.partition, body)
    message = Message(*fields, *(getattr(message, name) for name in Message.__struct_fields__[5:]))
    return Decoded(NAME, variant, number, message, Extra(**keep) if keep else None)


def _copy_end(meta: bytes, pos: int) -> int:
    """Where the repeated body of an early metaframe ends, or 0 if nothing of that shape follows the last field."""
    if len(meta) < pos + 4:
        return 0
    end = pos + 4 + _u32(meta, pos)[0]
    return end if end <= len(meta) else 0


def _body_start(n: int, offset: int, count: int, *, early: bool) -> int:
    """The index of the first body frame: one-based from the end, in early metaframes not so."""
    if count == 0 and offset == 0:
        start = n - 1
    elif early:
        # Early senders wrote 2, 1 or an absolute 2 for the one frame they ever sent; only several frames need the offset.
        start = n - 2 if count == 1 else offset
    else:
        start = n - offset
    if start < ENVELOPE or start + count > n - 1:
        reason = f"{count} body frames at offset {offset} do not fit between the socket's two frames and the metaframe"
        raise DecodeError("WIRE_BAD_OFFSET", reason, frame=n - 1)
    return start


def _usual_offset(variant: str, start: int, count: int, n: int) -> int:
    """The body offset that we write for a body of `count` frames that starts at frame `start` of `n`."""
    if not variant:
        return n - start
    return 2 if count == 1 else start


def _fault(frames: list[bytes]) -> WireError:
    try:
        walk(Reader(frames[-1], len(frames) - 1))
    except DecodeError as error:
        return error
    raise AssertionError("the optimistic and the careful reading of a metaframe differ")  # pragma: no cover


def select(frames: list[bytes]) -> Selected:
    """Read the route selectors of frames that `signature_fault` has nothing against."""
    meta = frames[-1]
    try:
        pos = 6 + _u32(meta, 2)[0]
        partition = meta[6:pos]
        version, size = _u16_u32(meta, pos)
        start = pos + 6
        pos = start + size
        identity = meta[start:pos]
        start = pos + 4
        pos = start + _u32(meta, pos)[0]
        receiver = meta[start:pos]
        start = pos + 4
        pos = start + _u32(meta, pos)[0]
        distribution = _u32_u32(meta, pos)[0] >> 16
        return Selected("v6", partition, version, identity, receiver, meta[start:pos], DISTRIBUTIONS[distribution], frames)
    except (struct.error, IndexError):
        raise _fault(frames) from None


def walk(reader: Reader, *, is_early: bool = False) -> None:
    """Read a metaframe step by step; raises DecodeError with the byte where it breaks."""
    reader.number(U16, "WireFormatVersion")
    reader.blob("Partition")
    reader.number(U16, "Version")
    reader.blob("Identity")
    reader.blob("ReceiverIdentity")
    reader.blob("ReceiverNodeIdentity")
    start = reader.pos
    distribution = reader.lanes("TraceOptions, Distribution")[1]
    read_distribution(distribution, reader.frame, start)
    reader.blob("CallbackReceiverNodeIdentity")
    reader.number(I64, "CallbackKey")
    reader.text("Domain")
    reader.blob("Signature")
    for _ in range(reader.lanes("RoutingEntryCount, Hops")[0]):
        outer = reader.enter("Routing entry")
        reader.text("Routing URI")
        reader.blob("Routing Identity")
        reader.leave(outer)
    for _ in range(reader.number(U16, "CallbackEntryCount")):
        outer = reader.enter("Callback entry")
        reader.blob("Callback Partition")
        reader.number(U16, "Callback Version")
        reader.blob("Callback Identity")
        reader.leave(outer)
    reader.blob("CallbackReceiverIdentity")
    reader.blob("CorrelationId")
    reader.number(I64, "TTL")
    reader.lanes("BodyFirstFrameOffset, BodyFrameCount")
    if is_early:
        reader.blob("copy of the body")
    reader.skip("bytes after the last field", "kept")


def encode(message: Message, variant: str = DEFAULT_VARIANT, extra: Extra | None = None) -> list[bytes]:
    """Encode a message as v6; raises EncodeError."""
    if variant not in VARIANTS:
        raise EncodeError("WIRE_UNKNOWN_VARIANT", f"v6 has no variant {variant!r}; known are '' and 'early'")
    if extra is None and not variant:
        return [message.socket_identity, b"", message.body, _write_meta(message, NO_EXTRA, 6, 2, 1)]
    keep = extra or NO_EXTRA
    body = split_body(message.body, keep.body_sizes)
    frames = [message.socket_identity, *((b"",) if keep.lead is None else keep.lead)]
    start = len(frames)
    frames += body
    frames += keep.after_body
    offset = keep.body_offset
    if offset is None:
        offset = _usual_offset(variant, start, len(body), len(frames) + 1)
    number = VARIANTS[variant] if keep.wire_version is None else keep.wire_version
    if number not in NUMBERS:
        raise EncodeError("WIRE_BAD_EXTRA", f"a metaframe has the number 6, 5 or 4, not {number}")
    meta = _write_meta(message, keep, number, offset, len(body))
    if variant:
        copy = message.body if keep.body_copy is None else keep.body_copy
        meta += _U32.pack(len(copy)) + copy
    frames.append(meta + keep.trailing)
    return frames


def _write_meta(message: Message, keep: Extra, number: int, body_offset: int, body_count: int) -> bytes:
    trace_reserved: tuple[int, ...] = _NO_LANES
    routing_reserved = body_reserved = trace_reserved
    if keep is not NO_EXTRA:
        trace_reserved = write_reserved(keep.trace_reserved, 2)
        routing_reserved = write_reserved(keep.routing_reserved, 2)
        body_reserved = write_reserved(keep.body_reserved, 2)
    try:
        meta = b"".join(
            (
                write_head(message, number, trace_reserved),
                I64.pack(message.callback_key),
                write_keys(message.domain, len(message.signature)),
                message.signature,
                write_trail(message, keep.routing_rest, routing_reserved),
                write_tail(message, keep.callback_rest),
                message.correlation_id,
                _TAIL.pack(message.ttl_ticks, body_offset, body_count, *body_reserved),
            )
        )
    except (struct.error, UnicodeEncodeError):
        raise _misfit(message, body_offset, body_count) from None
    if len(meta) > _LONGEST:  # pragma: no cover - takes 2 GiB to reach
        raise EncodeError("WIRE_OVERFLOW", f"a metaframe of {len(meta)} bytes; lengths are 32-bit and signed")
    return meta


def write_head(message: Message, number: int = 6, reserved: tuple[int, ...] = _NO_LANES) -> bytes:
    """Write the metaframe from its start up to the callback key."""
    partition, identity = message.partition, message.identity
    receiver, node = message.receiver_identity, message.receiver_node_identity
    callback_node = message.callback_receiver_node_identity
    return b"".join(
        (
            _U16_U32.pack(number, len(partition)),
            partition,
            _U16_U32.pack(message.version, len(identity)),
            identity,
            _U32.pack(len(receiver)),
            receiver,
            _U32.pack(len(node)),
            node,
            _LANES_U32.pack(message.trace_options, write_distribution(message.distribution), *reserved, len(callback_node)),
            callback_node,
        )
    )


def write_keys(domain: str, signature_size: int) -> bytes:
    """Write the domain and the length of the signature."""
    raw = domain.encode()
    return b"".join((_U32.pack(len(raw)), raw, _U32.pack(signature_size)))


def write_trail(message: Message, rests: Rests = (), reserved: tuple[int, ...] = _NO_LANES) -> bytes:
    """Write hops and routing entries."""
    trail = message.routing
    parts = [LANES.pack(len(trail), message.hops, *reserved)]
    for entry, rest in zip(trail, _rest_of_each(rests, len(trail), "routing"), strict=False):
        uri, identity = entry.uri.encode(), entry.identity
        size = 8 + len(uri) + len(identity) + len(rest)
        parts += (_U32_U32.pack(size, len(uri)), uri, _U32.pack(len(identity)), identity, rest)
    return b"".join(parts)


def write_tail(message: Message, rests: Rests = ()) -> bytes:
    """Write the callback points, their receiver, and the length of the correlation id."""
    points, receiver = message.callback_points, message.callback_receiver_identity
    parts = [U16.pack(len(points))]
    for point, rest in zip(points, _rest_of_each(rests, len(points), "callback"), strict=False):
        partition, identity = point.partition, point.identity
        size = 10 + len(partition) + len(identity) + len(rest)
        head = _U32_U32.pack(size, len(partition))
        parts += (head, partition, _U16_U32.pack(point.version, len(identity)), identity, rest)
    parts += (_U32.pack(len(receiver)), receiver, _U32.pack(len(message.correlation_id)))
    return b"".join(parts)


def _rest_of_each(rests: Rests, count: int, what: str) -> Iterable[bytes]:
    if not rests:
        return repeat(b"", count)
    if len(rests) != count:
        reason = f"the unknown bytes kept for {len(rests)} {what} entries do not fit {count} entries"
        raise EncodeError("WIRE_BAD_EXTRA", reason)
    return map(b"".join, rests)


def _misfit(message: Message, body_offset: int, body_count: int) -> EncodeError:
    """Name the value that did not fit, by writing each with its name."""
    try:
        for text, field in ((message.domain, "Domain"), *((entry.uri, "Routing URI") for entry in message.routing)):
            write_text(text, field)
        for version in (message.version, *(point.version for point in message.callback_points)):
            write_number_version(version)
        write_lanes("TraceOptions", message.trace_options, message.distribution, 0, 0)
        write_number(I64, "CallbackKey", message.callback_key)
        write_number(U16, "Hops", message.hops)
        write_number(U16, "RoutingEntryCount", len(message.routing))
        write_number(U16, "CallbackEntryCount", len(message.callback_points))
        write_ttl(message.ttl_ticks)
        write_lanes("BodyFirstFrameOffset, BodyFrameCount", body_offset, body_count, 0, 0)
    except EncodeError as error:
        return error
    raise AssertionError("a value did not fit, but each fits alone")  # pragma: no cover
