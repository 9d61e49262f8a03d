"""Format v4: seed document 002, "Message wire format V4".

The layout of v5 (see `v5.py` and `trailer.py`) with a shorter trailer and the stamp int32 4. The document's trailer has 15
frames; real senders wrote 13 to 17 over the months, all stamped 4, and in the very first days stamped 3:

    variant        trailer   versions   stamp
    ""             15        uint16     4
    text-version   15        text       4       the document's own time: the bytes "1.0"
    trailer-13     13        text       4       no Signature, no Domain
    trailer-14     14        text       4       no Domain
    trailer-16     16        uint16     4       CallbackKey
    trailer-17     17        uint16     4       CallbackReceiverNodeIdentity
    stamp-3        13        text       3

The trailer's size is where the parts above it say it ends; the width of versions is the width of frame n-7. Where a sender
mixed them otherwise, the variant names the trailer and Extra remembers the width.
"""

from typing import Final

from hopline.errors import DecodeError, EncodeError
from hopline.wire import trailer
from hopline.wire.decoded import Decoded, Extra, Selected
from hopline.wire.message import Message

NAME: Final = "v4"
VARIANTS: Final = {
    "": (15, False),
    "text-version": (15, True),
    "trailer-13": (13, True),
    "trailer-14": (14, True),
    "trailer-16": (16, False),
    "trailer-17": (17, False),
    "stamp-3": (13, True),
}
"""Variant: frames of the trailer, and whether versions are text."""
DEFAULT_VARIANT: Final = ""
EXTRAS: Final = trailer.EXTRAS | {"text_version"}
FEWEST: Final = 16
"""Frames of the smallest message: two for the socket, one body, the shortest trailer."""

_STAMP: Final = b"\4\0\0\0"
_EARLIEST_STAMP: Final = b"\3\0\0\0"
_KEY_SIZE: Final = 8
_DOCUMENTED: Final = 15
"""Frames of the document's trailer."""


def signature_fault(frames: list[bytes]) -> str | None:
    """Why these frames do not look like v4 at all, or None if they do."""
    n = len(frames)
    if n < FEWEST:
        return f"{n} frames, at least {FEWEST} are needed"
    last = frames[-1]
    if last == _STAMP:
        return None
    if last != _EARLIEST_STAMP:
        return "the last frame is neither the number 4 nor the number 3 in 4 bytes"
    # The number 3 alone is weak evidence; the packed descriptions must be there too.
    if any(len(frames[n - k]) != 8 for k in (2, 5, 12, 13)):
        return "stamped 3, but there are no packed descriptions at n-2, n-5, n-12 and n-13"
    return None


def decode(frames: list[bytes]) -> Decoded:
    """Decode a v4 frame list; raises DecodeError."""
    if fault := signature_fault(frames):
        raise DecodeError("WIRE_OTHER_FORMAT", f"not v4: {fault}")
    words = trailer.read_words(frames, trailer.SHORTEST)
    if not (any(words.body[:2]) or words.routing[1] or words.callbacks[1]) and len(frames) >= _DOCUMENTED + 2:
        # Nothing lies above the trailer that could say how long it is: then it is the document's.
        words = trailer.read_words(frames, _DOCUMENTED)
    text_version = _has_text_version(frames)
    if frames[-1] == _EARLIEST_STAMP:
        variant, number = "stamp-3", 3
    else:
        variant, number = _variant(frames, len(frames) - words.at.trailer, text_version=text_version), 4
    fixed, usual = VARIANTS[variant]
    message, keep = trailer.read(frames, words, fixed, text_version=text_version)
    if text_version != usual:
        keep["text_version"] = text_version
    return Decoded(NAME, variant, number, message, Extra(**keep) if keep else None)


def _has_text_version(frames: list[bytes]) -> bool:
    return len(frames[len(frames) - 7]) != 2


def _variant(frames: list[bytes], size: int, *, text_version: bool) -> str:
    # On top of 15 frames a later sender puts its CallbackKey, 8 bytes; any other frame there is from an unknown future.
    if size > 15 and len(frames[len(frames) - 16]) == _KEY_SIZE:
        return "trailer-16" if size == 16 else "trailer-17"
    if size < 15:
        return f"trailer-{size}"
    return "text-version" if text_version else ""


def select(frames: list[bytes]) -> Selected:
    """Read the route selectors of frames that `signature_fault` has nothing against."""
    return trailer.select(frames, NAME, text_version=_has_text_version(frames))


def writes_text_version(variant: str, extra: Extra | None) -> bool:
    """Whether a message of this variant writes its versions as text."""
    if extra is not None and extra.text_version is not None:
        return extra.text_version
    return VARIANTS[variant][1]


def encode(message: Message, variant: str = DEFAULT_VARIANT, extra: Extra | None = None) -> list[bytes]:
    """Encode a message as v4; raises EncodeError."""
    if variant not in VARIANTS:
        known = ", ".join(map(repr, VARIANTS))
        raise EncodeError("WIRE_UNKNOWN_VARIANT", f"v4 has no variant {variant!r}; known are {known}")
    fixed, _ = VARIANTS[variant]
    text_version = writes_text_version(variant, extra)
    if text_version and isinstance(message.version, bytes) and len(message.version) == 2:
        reason = f"Version 0x{message.version.hex()} is text of two bytes, and would be read back as a number"
        raise EncodeError("WIRE_BAD_VERSION", reason)
    stamp = _EARLIEST_STAMP if variant == "stamp-3" else _STAMP
    return trailer.write(message, extra, fixed, stamp, text_version=text_version, format_name=NAME)
