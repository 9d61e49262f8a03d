"""Bodies cut or left out, for privacy: what is left is still a message that decodes, only its signature fits no longer.

It knows frames, and nothing of records or files.
"""

import struct
from typing import Final, Literal, NamedTuple

import msgspec

from hopline.capture.record import BodyKept
from hopline.errors import EncodeError
from hopline.wire import Extra, Message, decode, encode

BodyPolicy = Literal["whole", "none"] | int
"""Keep bodies whole, not at all, or so many bytes of each."""

_V6_META: Final = b"\x06\x00"
_ONE_BODY_FRAME: Final = struct.pack("<4H", 2, 1, 0, 0)
"""How an ordinary v6 metaframe ends: the body is frame 2, and one frame. See the layout table in `wire/v6.py`."""


class Kept(NamedTuple):
    """What is kept of a message: frames or body, how much of the body that is, and its size before if not all."""

    what: list[bytes]
    body_kept: BodyKept
    body_size: int | None


def body_bytes(policy: BodyPolicy) -> int | None:
    """How many bytes of a body a policy keeps; None for all.

    >>> body_bytes("whole"), body_bytes("none"), body_bytes(16)
    (None, 0, 16)
    """
    match policy:
        case "whole":
            return None
        case "none":
            return 0
        case int() if policy >= 0:
            return policy
        case _:
            raise ValueError(f"body must be 'whole', 'none' or a number of bytes, and not {policy!r}")


def cut_frames(frames: list[bytes], most: int) -> Kept:
    """Keep at most so many bytes of the body of a frame list of any format; raises WireError if it is no message.

    >>> hello = encode(Message(identity=b"HELLO", version=1, body=b"secret"))
    >>> kept = cut_frames(hello, 0)
    >>> decode(kept.what).message.body, kept.body_kept, kept.body_size
    (b'', 'none', 6)
    """
    if len(frames) == 4:
        socket, empty, body, meta = frames
        is_plain = not empty and meta.startswith(_V6_META) and meta.endswith(_ONE_BODY_FRAME)
        if is_plain and body not in meta:  # a copy of it there would have to go as well
            if len(body) <= most:
                return Kept(frames, "whole", None)
            return Kept([socket, empty, body[:most], meta], _word(most), len(body))
    decoded = decode(frames)
    message, extra = decoded.message, decoded.extra
    if len(message.body) <= most:
        return Kept(frames, "whole", None)
    short = msgspec.structs.replace(message, body=message.body[:most])
    if extra is not None:  # all that speaks of the body goes: how it was spread over frames, its copy, and what may be one
        extra = msgspec.structs.replace(extra, body_sizes=None, body_copy=None, after_body=(), trailing=b"")
    return Kept(_encode(short, decoded.format, decoded.variant, extra), _word(most), len(message.body))


def cut_body(body: bytes, most: int | None) -> tuple[bytes, BodyKept, int | None]:
    """Keep at most so many bytes of a body: those bytes, how much that is, and the size before if it is not all."""
    if most is None or len(body) <= most:
        return body, "whole", None
    return body[:most], _word(most), len(body)


def _encode(message: Message, format: str, variant: str, extra: Extra | None) -> list[bytes]:
    try:
        return encode(message, format, variant, extra)  # type: ignore[arg-type]
    except EncodeError:
        return encode(message, format, variant)  # type: ignore[arg-type]


def _word(most: int) -> BodyKept:
    return "cut" if most else "none"
