"""The registry of formats: detect, decode, select, encode.

Detection looks at structure, never at the number alone. A v3 message ends in a body that can hold anything, even a whole
metaframe or the stamp of another format; so v3 comes first, and wins if its trailer holds together. The others are told
apart by their last frame: a metaframe has at least 82 bytes, a stamp 2 or 4.
"""

from typing import Final, Literal, get_args

import msgspec

from hopline.errors import Attempt, DecodeError, EncodeError
from hopline.wire import v3, v4, v5, v6
from hopline.wire.decoded import NO_EXTRA, Decoded, Extra, Selected
from hopline.wire.message import Message
from hopline.wire.v3 import TtlUnit

FormatName = Literal["v3", "v4", "v5", "v6"]

FORMATS: Final = {module.NAME: module for module in (v6, v5, v4, v3)}
"""Name: module, newest first. The first is what new traffic is written in."""

DEFAULT_FORMAT: Final[FormatName] = "v6"


def detect(frames: list[bytes]) -> FormatName:
    """Say which format a frame list is in; raises DecodeError, with a reason for each, if it is none.

    The parts of the format may still be broken: detection looks no further than it must to choose.

    >>> detect([b"", b"", b"hi", bytes([6]) + bytes(81)])
    'v6'
    """
    # Nearly all messages are v6 with too few frames to be v3; they should not wait for the rest.
    if len(frames) >= v3.FEWEST and v3.structure_fault(frames) is None:
        return "v3"
    if v6.signature_fault(frames) is None:
        return "v6"
    if v5.signature_fault(frames) is None:
        return "v5"
    if v4.signature_fault(frames) is None:
        return "v4"
    if v3.signature_fault(frames) is None:
        return "v3"
    tried = tuple(Attempt(name, module.signature_fault(frames) or "") for name, module in FORMATS.items())
    raise DecodeError("WIRE_UNKNOWN_FORMAT", f"{len(frames)} frames that are no format we know", tried=tried)


def decode(frames: list[bytes], *, format: FormatName | None = None, v3_ttl: TtlUnit = "ms") -> Decoded:
    """Decode a frame list of any format; raises DecodeError and nothing else, whatever the bytes are.

    `frames[0]` is the socket identity. `format` skips detection. `v3_ttl` is the unit of TTL in v3: the document says
    milliseconds, real old senders wrote ticks of 100 ns.

    >>> from hopline.wire import Message, decode, encode
    >>> decoded = decode(encode(Message(identity=b"HELLO", version=1, body=b"hi")))
    >>> decoded.format, decoded.message.identity, decoded.extra
    ('v6', b'HELLO', None)
    """
    name = format or detect(frames)
    try:
        if name == "v6":
            return v6.decode(frames)
        if name == "v5":
            return v5.decode(frames)
        if name == "v4":
            return v4.decode(frames)
        if name == "v3":
            return v3.decode(frames, v3_ttl)
    except DecodeError as error:
        error.tried = _tried(frames, name, error)
        raise
    raise DecodeError("WIRE_UNKNOWN_FORMAT", f"no format {name!r}; known are {', '.join(get_args(FormatName))}")


def _tried(frames: list[bytes], chosen: str, error: DecodeError) -> tuple[Attempt, ...]:
    """What was tried: the chosen format and why it broke, and why it was none of the others."""
    reasons = {name: fault for name, module in FORMATS.items() if (fault := module.signature_fault(frames))}
    if fault := v3.structure_fault(frames):
        reasons[v3.NAME] = fault
    reasons[chosen] = str(error)
    return tuple(Attempt(name, reasons[name]) for name in FORMATS if name in reasons)


def select(frames: list[bytes]) -> Selected:
    """Read the route selectors of a frame list of any format, and leave the rest undecoded.

    What `select` gives is what `decode` would give; but the rest may still be broken, and `decode` will then say so.

    >>> from hopline.wire import Message, encode, select
    >>> select(encode(Message(identity=b"HELLO", version=1))).identity
    b'HELLO'
    """
    name = detect(frames)
    if name == "v6":
        return v6.select(frames)
    if name == "v5":
        return v5.select(frames)
    if name == "v4":
        return v4.select(frames)
    v3.structure(frames)
    return v3.select(frames)


def encode(
    message: Message,
    format: FormatName = "v6",
    variant: str | None = None,
    extra: Extra | None = None,
    *,
    v3_ttl: TtlUnit = "ms",
) -> list[bytes]:
    """Encode a message; raises EncodeError if it does not fit the format, and never drops or wraps a value.

    With the `format`, `variant` and `extra` that `decode` gave, the frames are the ones that were decoded.

    >>> from hopline.wire import Message, encode
    >>> len(encode(Message(identity=b"HELLO", version=1))), len(encode(Message(identity=b"HELLO", version=1), "v5"))
    (4, 20)
    """
    if format == "v6":
        frames = v6.encode(message, variant or "", extra)
    elif format == "v5":
        frames = v5.encode(message, variant or v5.DEFAULT_VARIANT, extra)
    elif format == "v4":
        frames = v4.encode(message, variant or "", extra)
    elif format == "v3":
        frames = v3.encode(message, variant or "", extra, v3_ttl)
    else:
        raise EncodeError("WIRE_UNKNOWN_VARIANT", f"no format {format!r}; known are {', '.join(get_args(FormatName))}")
    if extra is not None:
        _check_extra(frames, message, format, extra, v3_ttl)
    return frames


def _check_extra(frames: list[bytes], message: Message, format: FormatName, extra: Extra, v3_ttl: TtlUnit) -> None:
    """An Extra that was not made by decoding may say anything; what we write must read as what we were given."""
    for name in Extra.__struct_fields__:
        if name not in FORMATS[format].EXTRAS and getattr(extra, name) != getattr(NO_EXTRA, name):
            raise EncodeError("WIRE_BAD_EXTRA", f"format {format} has nothing like {name}")
    try:
        decoded = decode(frames, format=format, v3_ttl=v3_ttl)
    except DecodeError as error:
        raise EncodeError("WIRE_BAD_EXTRA", f"with this extra nobody could read the message: {error}") from None
    if msgspec.structs.replace(decoded.message, ttl_ticks=message.ttl_ticks) != message:  # v3 rounds milliseconds
        raise EncodeError("WIRE_BAD_EXTRA", "with this extra the message would read as another one")


def writes_text_version(decoded: Decoded) -> bool:
    """Whether the layout a message came in writes versions as text: the `kino` MAC covers them as they are on the wire."""
    if decoded.format == v4.NAME:
        return v4.writes_text_version(decoded.variant, decoded.extra)
    return decoded.format == v3.NAME
