"""What is fuzzed: bytes become a frame list, and all that must hold for any frame list is checked.

Theory of operation. The first byte says in which unit v3 is read and in which other layout the message is written too; the
second chooses between two ways to read the rest:

    raw        lengths and frames, one after the other; the seeds are whole messages in that form, so that a fuzzer that
               mutates bytes mutates messages
    mutation   the number of a message of the corpus and a list of small changes to it: frames dropped, doubled, swapped,
               cut, and numbers that mean something written over others

The corpus is made with our own encoder, in every format and variant, with and without what a future sender adds. For every
frame list: `decode` raises WireError or nothing; what it reads it writes to the same bytes; `select` agrees with it; and a
message means the same in every other format that can hold it. This file knows no fuzzer; `run.py` brings one.
"""

import os
from struct import Struct
from typing import Any, Final

from hopline.errors import EncodeError, WireError
from hopline.wire import (
    FORMATS,
    Decoded,
    Distribution,
    Extra,
    FormatName,
    Message,
    MessageType,
    RoutingEntry,
    TtlUnit,
    decode,
    encode,
    select,
)

PLANT: Final = "HOPLINE_FUZZ_PLANT"
"""Environment variable: plant a wrong decode, to see that it is found."""

RAW: Final = 0x60
"""Second bytes below this one are followed by a raw frame list, the others by a mutation."""

MOST_FRAMES: Final = 200
MOST_MUTATIONS: Final = 12

_U16 = Struct("<H")

LAYOUTS: Final[list[tuple[FormatName, str]]] = [
    (name, variant) for name, module in FORMATS.items() for variant in module.VARIANTS
]

MESSAGES: Final = (
    Message(),
    Message(identity=b"HELLO", version=1, body=b"hi", correlation_id=b"C1", ttl_ticks=50_000_000),
    Message(
        socket_identity=b"N2",
        identity=b"HELLO",
        version=1,
        partition=b"P",
        body=b"\x0a\x02hi",
        correlation_id=b"C1",
        receiver_identity=b"\x01R1",
        receiver_node_identity=b"N3",
        trace_options=1,
        callback_points=(MessageType(b"EHHLO", 1, b"P"), MessageType(b"KINO.EXCEPTION", 1)),
        callback_receiver_identity=b"\x00H1",
        ttl_ticks=-10_000,
        hops=2,
        routing=(RoutingEntry("tcp://10.0.0.1:5101", b"N1"), RoutingEntry("tcp://10.0.0.2:5101", b"N2")),
    ),
    Message(
        identity=b"NOTIFY",
        version=65535,
        body=b"\x05\x00",
        distribution=Distribution.BROADCAST,
        callback_points=(MessageType(b"A", 0, b""),),
        callback_key=-7,
        callback_receiver_node_identity=b"N1",
        domain="Grüße",
        signature=b"0123456789abcdef",
        hops=65535,
    ),
    Message(identity=b"OLD", version=b"1.1", body=b"\x04\x00\x00\x00", routing=(RoutingEntry("u", b""),)),
)

EXTRAS: Final = (
    None,
    Extra(lead=(b"", b"id")),
    Extra(body_sizes=(1, 1)),
    Extra(after_body=(b"new",), after_routing=(b"gap",), after_callbacks=(b"newer", b"newest")),
    Extra(routing_rest=((b"x",), (b"y",)), callback_rest=((b"p",), (b"q",))),
    Extra(trace_reserved=b"\1\0\2\0", body_reserved=b"\3\0\4\0", trailing=b"end"),
)


def _corpus() -> list[list[bytes]]:
    """Whole messages; a combination that no layout can hold is left out."""
    corpus = []
    for name, variant in LAYOUTS:
        for message in MESSAGES:
            for extra in EXTRAS:
                try:
                    frames = encode(message, name, variant, extra)
                    decode(frames)
                except WireError:
                    continue
                if frames not in corpus:
                    corpus.append(frames)
    return corpus


CORPUS: Final = _corpus()

NUMBERS: Final = tuple(
    value.to_bytes(size, "little", signed=True)
    for size in (2, 4, 8)
    for value in (0, 1, 2, 3, 4, 5, 6, 13, 16, 17, 18, 21, -1, -2, 2 ** (8 * size - 1) - 1, -(2 ** (8 * size - 1)))
)


class _Source:
    """Takes numbers and bytes from the front of the data; zeros when it is used up."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.pos = 0

    def byte(self) -> int:
        self.pos += 1
        return self.data[self.pos - 1] if self.pos <= len(self.data) else 0

    def below(self, limit: int) -> int:
        """A number below a limit, from two bytes: one if the limit is small enough."""
        return (self.byte() if limit <= 0x100 else self.byte() | self.byte() << 8) % limit if limit else 0

    def take(self, size: int) -> bytes:
        self.pos += size
        return self.data[self.pos - size : self.pos]

    def left(self) -> bool:
        return self.pos < len(self.data)


def seeds(*, raw: bool) -> list[bytes]:
    """Inputs to start from: the corpus as raw frames, or by number."""
    if raw:
        return [bytes((index & 0xFF, 0)) + b"".join(map(_with_size, frames)) for index, frames in enumerate(CORPUS)]
    return [bytes((index & 0xFF, RAW)) + _U16.pack(index) for index in range(len(CORPUS))]


def _with_size(frame: bytes) -> bytes:
    return _U16.pack(len(frame)) + frame


def frames_of(data: bytes) -> list[bytes]:
    """The frame list that the data stands for."""
    source = _Source(data[1:])
    return _raw(source) if source.byte() < RAW else _mutated(source)


def _raw(source: _Source) -> list[bytes]:
    frames: list[bytes] = []
    while source.left() and len(frames) < MOST_FRAMES:
        size = source.byte() | source.byte() << 8
        frames.append(source.take(size))
    return frames


def _mutated(source: _Source) -> list[bytes]:
    number = source.byte() | source.byte() << 8
    frames = list(CORPUS[number % len(CORPUS)])
    for _ in range(MOST_MUTATIONS):
        if not (source.left() and frames):
            break
        _mutate(frames, source)
    return frames


def _mutate(frames: list[bytes], source: _Source) -> None:
    kind = source.byte() % 11
    # Counted from the end, where the trailer and the metaframe are: small numbers are the interesting ones.
    index = len(frames) - 1 - source.below(len(frames))
    frame = frames[index]
    if kind == 0:
        del frames[index]
    elif kind == 1:
        frames.insert(index, source.take(source.below(16)))
    elif kind == 2:
        frames.insert(index, frame)
    elif kind == 3:
        other = source.below(len(frames))
        frames[index], frames[other] = frames[other], frame
    elif kind == 4:
        frames[index] = source.take(source.below(24))
    elif kind == 5:
        frames[index] = NUMBERS[source.below(len(NUMBERS))]
    else:
        frames[index] = _mutate_bytes(frame, kind, source)


def _mutate_bytes(frame: bytes, kind: int, source: _Source) -> bytes:
    where = source.below(len(frame) + 1)
    if kind == 6:
        return frame[:where]
    if kind == 7:
        return frame[:where] + source.take(source.below(8)) + frame[where:]
    if kind == 8:
        return frame[:where] + frame[where + source.below(8) :]
    if kind == 9:
        number = NUMBERS[source.below(len(NUMBERS))]
        return frame[:where] + number + frame[where + len(number) :]
    return frame[:where] + bytes((source.byte(),)) + frame[where + 1 :]


def _planted(frames: list[bytes], *, v3_ttl: TtlUnit = "ms") -> Decoded:
    """A decode that forgets a reserved lane: the kind of mistake that loses bytes in silence. No seed shows it."""
    decoded = decode(frames, v3_ttl=v3_ttl)
    extra = decoded.extra
    if extra is None or not extra.callback_reserved:
        return decoded
    kept = {field: getattr(extra, field) for field in Extra.__struct_fields__} | {"callback_reserved": b""}
    return Decoded(decoded.format, decoded.variant, decoded.wire_version, decoded.message, Extra(**kept))


_decode = _planted if os.environ.get(PLANT) else decode


def check(data: bytes) -> None:
    """Check one input; raises AssertionError, or whatever else went wrong, if a rule does not hold."""
    options = data[0] if data else 0
    check_frames(frames_of(data), ticks=options & 1 == 1, layout=LAYOUTS[(options >> 1) % len(LAYOUTS)])


def check_frames(frames: list[bytes], *, ticks: bool, layout: tuple[FormatName, str]) -> None:
    """Check one frame list; the message is also written in one other layout."""
    unit: TtlUnit = "ticks" if ticks else "ms"
    try:
        decoded = _decode(frames, v3_ttl=unit)
    except WireError:
        decoded = None
    try:
        selected = select(frames)
    except WireError:
        selected = None
    if decoded is None:
        return
    message = decoded.message
    own_format: Any = decoded.format
    again = encode(message, own_format, decoded.variant, decoded.extra, v3_ttl=unit)
    assert again == frames, "what was read is not written to the same bytes"
    assert selected is not None, "select refuses what decode reads"
    assert selected.format == decoded.format, "select sees another format"
    assert selected.identity == message.identity, "select sees another identity"
    assert selected.version == message.version, "select sees another version"
    assert selected.partition == message.partition, "select sees another partition"
    assert selected.receiver_identity == message.receiver_identity, "select sees another receiver"
    assert selected.receiver_node_identity == message.receiver_node_identity, "select sees another receiver node"
    assert selected.distribution == message.distribution, "select sees another distribution"
    assert selected.frames == frames, "select carries other frames on"
    name, variant = layout
    try:
        other = encode(message, name, variant, v3_ttl="ticks")
    except EncodeError:
        return
    back = decode(other, v3_ttl="ticks")
    assert (back.format, back.variant) == layout, "a written message is read as another layout"
    assert back.message == message, "a message changed its meaning from one format to another"
    assert back.extra is None, "an ordinary message needs nothing kept beside it"
