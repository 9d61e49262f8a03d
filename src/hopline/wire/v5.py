"""Format v5: seed document 001, "MESSAGE WIRE FORMAT V5".

    0           SocketIdentity
    1           empty
    2 ...       body frames
    ...         per routing entry: URI, Identity                          (new frames come on top)
    ...         per callback point: Partition, Version uint16, Identity   (new frames come on top)
    n-17 ... n-2   the trailer of `trailer.py`                            (new frames come on top)
    n-1         WireFormatVersion 5: int32 (`int32-stamp`) or uint16 (`uint16-stamp`)

Every v5 reader takes the four-byte stamp and not every one the two-byte stamp, so four bytes are what we write unless
asked otherwise.
"""

from typing import Final

from hopline.errors import DecodeError, EncodeError
from hopline.wire import trailer
from hopline.wire.decoded import Decoded, Extra, Selected
from hopline.wire.message import Message

NAME: Final = "v5"
VARIANTS: Final = {"int32-stamp": b"\5\0\0\0", "uint16-stamp": b"\5\0"}
DEFAULT_VARIANT: Final = "int32-stamp"
EXTRAS: Final = trailer.EXTRAS
TRAILER: Final = 17
FEWEST: Final = 20
"""Frames of the smallest message: two for the socket, one body, the trailer."""

_STAMPS: Final = {stamp: variant for variant, stamp in VARIANTS.items()}


def signature_fault(frames: list[bytes]) -> str | None:
    """Why these frames do not look like v5 at all, or None if they do."""
    if len(frames) < FEWEST:
        return f"{len(frames)} frames, at least {FEWEST} are needed"
    if frames[-1] not in _STAMPS:
        return "the last frame is not the number 5 in 2 or 4 bytes"
    return None


def decode(frames: list[bytes]) -> Decoded:
    """Decode a v5 frame list; raises DecodeError."""
    if fault := signature_fault(frames):
        raise DecodeError("WIRE_OTHER_FORMAT", f"not v5: {fault}")
    words = trailer.read_words(frames, TRAILER)
    message, keep = trailer.read(frames, words, TRAILER, text_version=False)
    return Decoded(NAME, _STAMPS[frames[-1]], 5, message, Extra(**keep) if keep else None)


def select(frames: list[bytes]) -> Selected:
    """Read the route selectors of frames that `signature_fault` has nothing against."""
    return trailer.select(frames, NAME, text_version=False)


def encode(message: Message, variant: str = DEFAULT_VARIANT, extra: Extra | None = None) -> list[bytes]:
    """Encode a message as v5; raises EncodeError."""
    stamp = VARIANTS.get(variant)
    if stamp is None:
        raise EncodeError("WIRE_UNKNOWN_VARIANT", f"v5 has no variant {variant!r}; known are {', '.join(VARIANTS)}")
    return trailer.write(message, extra, TRAILER, stamp, text_version=False, format_name=NAME)
