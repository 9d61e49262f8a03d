"""Bundles: many small messages in one frame, between peers that both know how.

A message of four frames costs libzmq and the kernel several times what its bytes cost; sixty of them in one frame cost
hardly more than one. Nobody has to take bundles: a peer shows that it does by the name of its sending socket (`GREETING`),
which every peer of ZeroMQ is told and others do not care about. Who shows nothing is sent plain messages.

    offset  size      field
    0       8         mark: 0x89, "HOPBDL", 1
    8                 messages, one after the other, up to the end:
    +0      2         count of frames, uint16
    +2      4 * n     size of each frame, uint32
            sizes     the frames, without frame 0: that is the socket's

All numbers are little-endian. A bundle is the one frame of its ZeroMQ message, and no wire format has fewer than four, so
neither can be taken for the other. This file knows bytes only.
"""

import struct
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from hopline.transport.base import BAD_BUNDLE, FRAME_TOO_BIG, TOO_MANY_FRAMES, Limits

MARK: Final = b"\x89HOPBDL\x01"

GREETING: Final = b"hopline/1 "
"""How the name of a socket begins whose owner takes bundles."""

MOST_MESSAGES: Final = 64
"""Messages of a bundle: from there on a larger one saves less than one part in fifty."""

MOST_BYTES: Final = 32 * 1024
"""Bytes from which on a message goes by itself, and no more are added to a bundle: copying them costs more than it saves.
With 4 for each frame, so that their number is bounded too."""

BIGGEST: Final = MOST_BYTES + len(MARK) + 2 * MOST_MESSAGES
"""Bytes of the largest bundle that `link.py` makes; it counts 4 for each size itself."""

_COUNT: Final = Struct("<H")
_SIZES: Final = [Struct(f"<{count}I") for count in range(33)]
_HEADS: Final = [Struct(f"<H{count}I") for count in range(33)]


def pack(messages: Iterable[list[bytes]]) -> bytes:
    """Join messages into a bundle; frame 0 of each is left out.

    >>> list(unpack(pack([[b"", b"", b"body", b"meta"], [b"", b"more"]]), Limits()))
    [[b'', b'body', b'meta'], [b'more']]
    """
    parts = [MARK]
    for frames in messages:
        count = len(frames) - 1
        head = _HEADS[count] if count < len(_HEADS) else Struct(f"<H{count}I")
        parts.append(head.pack(count, *map(len, frames[1:])))
        parts += frames[1:]
    return b"".join(parts)


class Refused(NamedTuple):
    """A message of a bundle that breaks a limit, or the rest of a bundle that is broken."""

    reason: str
    size: int


def unpack(bundle: bytes, limits: Limits) -> Iterator[list[bytes] | Refused]:
    """Take a bundle apart, as far as it is whole. One bad message does not cost the others."""
    at, end = len(MARK), len(bundle)
    while at < end:
        start = at
        try:
            (count,) = _COUNT.unpack_from(bundle, at)
            sizes = (_SIZES[count] if count < len(_SIZES) else Struct(f"<{count}I")).unpack_from(bundle, at + 2)
        except struct.error:
            yield Refused(BAD_BUNDLE, end - at)
            return
        at += 2 + 4 * count
        size = sum(sizes)
        if not count or at + size > end:
            yield Refused(BAD_BUNDLE, end - start)
            return
        if count >= limits.message_frames:
            yield Refused(TOO_MANY_FRAMES, size)
            at += size
        elif max(sizes) > limits.message_bytes:
            yield Refused(FRAME_TOO_BIG, size)
            at += size
        else:
            frames = []
            for size in sizes:
                frames.append(bundle[at : at + size])
                at += size
            yield frames
