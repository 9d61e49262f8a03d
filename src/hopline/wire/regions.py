"""Where the parts of a multi-frame message lie: what v3, v4 and v5 share.

Theory of operation. Everything is found from the end: position k means `frames[n - k]`. From the end upwards lie the
trailer of fixed fields, the callback entries, the routing entries and (v4, v5) the body; v3 has its body at the very end.
The trailer says for callbacks and routing where the *last* frame of the last entry is, how many entries there are and how
many frames one takes (the divisor), and for the body where its *first* frame is and how many follow.

Later formats may put new frames on top of the trailer and on top of each entry. So unknown frames are allowed between the
parts, and are kept; but no two parts may share a frame, and frames 0 and 1 belong to the socket.
"""

from typing import NamedTuple

from hopline.errors import DecodeError, EncodeError
from hopline.identity import MessageType
from hopline.wire.message import Message, RoutingEntry
from hopline.wire.primitives import MAX_ENTRIES, read_text

ROUTING_FRAMES = 2
"""URI and identity."""

CALLBACK_FRAMES = 3
"""Partition, version and identity."""

ENVELOPE = 2
"""Frame 0, the socket identity, and frame 1, empty."""


class Description(NamedTuple):
    """What the trailer says of one kind of entry."""

    offset: int
    entries: int
    divisor: int = 1
    places: tuple[int, int, int] | None = None
    """The frames that offset, count and divisor stand in, for the error that says so."""

    def place(self, which: int) -> int | None:
        """The frame of the offset (0), the count (1) or the divisor (2), if it is known."""
        return None if self.places is None else self.places[which]


class Regions(NamedTuple):
    """Half-open frame ranges, in order: body, routing, callbacks, trailer. A part that is not there is an empty range."""

    body: int
    body_end: int
    routing: int
    routing_end: int
    callbacks: int
    trailer: int


def locate(
    n: int,
    trailer_frames: int,
    routing: Description,
    callbacks: Description,
    body: Description | None = None,
) -> Regions:
    """Turn offsets and counts into frame ranges, or say which of them cannot be right.

    >>> locate(28, 17, Description(24, 1, 2), Description(18, 2, 3), Description(26, 1, 1))
    Regions(body=2, body_end=3, routing=3, routing_end=5, callbacks=5, trailer=11)
    """
    highest = n - trailer_frames
    callbacks_start, callbacks_end = _entries(n, callbacks, CALLBACK_FRAMES, "callback")
    routing_start, routing_end = _entries(n, routing, ROUTING_FRAMES, "routing")
    if body is None:
        body_start = body_end = ENVELOPE - 1
    elif body.entries == 0 and body.offset == 0:
        body_start = body_end = -1
    else:
        if body.offset == 0 or body.offset > n:
            reason = f"the body offset {body.offset} is outside the {n} frames"
            raise DecodeError("WIRE_BAD_OFFSET", reason, frame=body.place(0))
        body_start = n - body.offset
        body_end = body_start + body.entries
    # Downwards from the trailer: a part that is missing takes no room where the one below it starts.
    if callbacks.entries:
        trailer, lowest = callbacks_end, callbacks
    elif routing.entries:
        trailer, lowest = routing_end, routing
    elif body is not None and body_end >= 0:
        trailer, lowest = body_end, body
    else:
        trailer, lowest = highest, callbacks
    if trailer > highest:
        reason = f"the trailer has {n - trailer} frames, at least {trailer_frames} are needed"
        raise DecodeError("WIRE_BAD_OFFSET", reason, frame=lowest.place(0))
    if not callbacks.entries:
        callbacks_start = trailer
    if not routing.entries:
        routing_start = routing_end = callbacks_start
    if body_start < 0:
        body_start = body_end = routing_start
    if routing_end > callbacks_start:
        raise DecodeError("WIRE_BAD_OFFSET", "the routing entries reach into the callback entries", frame=routing.place(0))
    if body is not None and body_end > routing_start:
        raise DecodeError("WIRE_BAD_OFFSET", "the body reaches into the entries that follow it", frame=body.place(0))
    first, top = (routing_start, routing) if body is None else (body_start, body)
    if first < ENVELOPE:
        reason = f"the message starts at frame {first}; frames 0 and 1 belong to the socket"
        raise DecodeError("WIRE_BAD_OFFSET", reason, frame=top.place(0))
    return Regions(body_start, body_end, routing_start, routing_end, callbacks_start, trailer)


def _entries(n: int, entries: Description, known: int, what: str) -> tuple[int, int]:
    offset, count, divisor, _ = entries
    if count == 0:
        return 0, 0
    if not 0 < count <= MAX_ENTRIES:
        raise DecodeError("WIRE_BAD_COUNT", f"{count} {what} entries; the limit is {MAX_ENTRIES}", frame=entries.place(1))
    if divisor < known:
        reason = f"{what} entries of {divisor} frames; {known} are needed"
        raise DecodeError("WIRE_BAD_ENTRY", reason, frame=entries.place(2))
    end = n - offset + 1
    start = end - count * divisor
    if offset < 1 or start < 0:
        reason = f"{count} {what} entries of {divisor} frames do not fit at offset {offset} of {n} frames"
        raise DecodeError("WIRE_BAD_OFFSET", reason, frame=entries.place(0))
    return start, end


Rest = tuple[tuple[bytes, ...], ...]


def read_routing(frames: list[bytes], at: Regions, divisor: int) -> tuple[tuple[RoutingEntry, ...], Rest]:
    """Read the routing entries in the order they were written, and the unknown frames on top of each."""
    entries = tuple(
        RoutingEntry(read_text(frames[i], "Routing URI", i), frames[i + 1])
        for i in range(at.routing + divisor - ROUTING_FRAMES, at.routing_end, divisor)
    )
    return entries, _rest(frames, at.routing, at.routing_end, divisor, ROUTING_FRAMES)


def read_callbacks(
    frames: list[bytes], at: Regions, divisor: int, versions: list[int | bytes]
) -> tuple[tuple[MessageType, ...], Rest]:
    """Read the callback points in the order they were written, and the unknown frames on top of each."""
    first = at.callbacks + divisor - CALLBACK_FRAMES
    points = tuple(
        MessageType(frames[i + 2], version, frames[i])
        for i, version in zip(range(first, at.trailer, divisor), versions, strict=True)
    )
    return points, _rest(frames, at.callbacks, at.trailer, divisor, CALLBACK_FRAMES)


def callback_versions(at: Regions, divisor: int) -> range:
    """The indices of the frames that hold the versions of the callback points."""
    return range(at.callbacks + divisor - CALLBACK_FRAMES + 1, at.trailer, divisor)


def _rest(frames: list[bytes], start: int, end: int, divisor: int, known: int) -> Rest:
    if divisor == known or start == end:
        return ()
    return tuple(tuple(frames[i : i + divisor - known]) for i in range(start, end, divisor))


def check_rest(rest: Rest, count: int, what: str) -> int:
    """How many unknown frames each entry has on top; they must agree, for the divisor is one number."""
    if not rest:
        return 0
    sizes = {len(frames) for frames in rest}
    if len(rest) != count or len(sizes) != 1:
        reason = f"the unknown frames kept for {len(rest)} {what} entries do not fit {count} entries"
        raise EncodeError("WIRE_BAD_EXTRA", reason)
    return sizes.pop()


def split_body(body: bytes, sizes: tuple[int, ...] | None) -> list[bytes]:
    """Cut the payload into its body frames again.

    >>> split_body(b"abc", (1, 2)), split_body(b"abc", None)
    ([b'a', b'bc'], [b'abc'])
    """
    if sizes is None:
        return [body]
    if sum(sizes) != len(body) or min(sizes, default=0) < 0:
        reason = f"body sizes {list(sizes)} do not add up to the {len(body)} bytes of the body"
        raise EncodeError("WIRE_BAD_EXTRA", reason)
    frames, start = [], 0
    for size in sizes:
        frames.append(body[start : start + size])
        start += size
    return frames


def refuse_fields(message: Message, fields: tuple[str, ...], format_name: str) -> None:
    """Refuse to lose a field that the format has no place for."""
    for field in fields:
        if getattr(message, field):
            reason = f"format {format_name} has no {field}, and it is not empty"
            raise EncodeError("WIRE_UNSUPPORTED_FIELD", reason)
