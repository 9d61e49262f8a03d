"""Little-endian numbers, packed lanes and bounded text: the smallest pieces all four formats are made of.

Everything here checks before it reads. A `Reader` walks a metaframe field by field and remembers where it was, so that an
error can name the byte it stopped at and `explain` can draw the map. This file knows no format.
"""

import struct
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple, NoReturn

from hopline.errors import DecodeError, EncodeError
from hopline.wire.message import Distribution

U16: Final = Struct("<H")
I32: Final = Struct("<i")
I64: Final = Struct("<q")
LANES: Final = Struct("<4H")

MAX_ENTRIES: Final = 0xFFFF
"""Most routing or callback entries of a message: what a 16-bit lane can say. The int32 of v3 is held to the same."""

DISTRIBUTIONS: Final = (Distribution.UNICAST, Distribution.BROADCAST)

_NO_LANES: Final = ((), (0,), (0, 0))

Lanes = tuple[int, int, int, int]


class Span(NamedTuple):
    """One field in the byte map of a message: where it lies and what it means."""

    frame: int
    offset: int
    size: int
    field: str
    meaning: str


def show(raw: bytes) -> str:
    r"""Show bytes to a person: as text if all of it is printable, else as hex.

    >>> show(b"HELLO"), show(b"\x00H1"), show(b"")
    ('"HELLO"', '0x004831', 'empty')
    """
    if not raw:
        return "empty"
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return "0x" + raw.hex()
    return f'"{text}"' if text.isprintable() else "0x" + raw.hex()


def read_text(raw: bytes, field: str, frame: int, offset: int | None = None) -> str:
    """Read UTF-8; anything else is an error, never a replacement character."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        reason = f"{field} is not valid UTF-8: {error.reason} at byte {error.start}"
        raise DecodeError("WIRE_BAD_TEXT", reason, frame=frame, offset=offset) from None


def read_distribution(value: int, frame: int, offset: int | None = None) -> Distribution:
    """Read the distribution; the documents know two."""
    if value not in (0, 1):
        reason = f"Distribution is {value}, known are 0 (unicast) and 1 (broadcast)"
        raise DecodeError("WIRE_BAD_DISTRIBUTION", reason, frame=frame, offset=offset)
    return DISTRIBUTIONS[value]


def read_fixed(frames: list[bytes], index: int, shape: Struct, field: str) -> int:
    """Read a frame that holds one number of a fixed size."""
    raw = frames[index]
    if len(raw) != shape.size:
        _refuse_size(raw, shape.size, field, index)
    value: int = shape.unpack(raw)[0]
    return value


def read_lanes(frames: list[bytes], index: int, field: str) -> Lanes:
    """Read a frame that holds four packed 16-bit lanes, in the order the documents list them."""
    raw = frames[index]
    if len(raw) != LANES.size:
        _refuse_size(raw, LANES.size, field, index)
    return LANES.unpack(raw)


def _refuse_size(raw: bytes, size: int, field: str, index: int) -> NoReturn:
    raise DecodeError("WIRE_BAD_LENGTH", f"{field} has {len(raw)} bytes, not {size}", frame=index)


def read_version(raw: bytes) -> int | bytes:
    """Read a version written as text: `<n>.0` is the number n, anything else stays bytes.

    >>> read_version(b"1.0"), read_version(b"01.0"), read_version(b"65536.0")
    (1, b'01.0', b'65536.0')
    """
    digits = raw[:-2]
    # The length bounds the conversion; 65535 has five digits.
    if raw[-2:] == b".0" and 1 <= len(digits) <= 5 and digits.isdigit():
        number = int(digits)
        if number <= 0xFFFF and (digits[0] != 0x30 or len(digits) == 1):
            return number
    return raw


def write_version(version: int | bytes) -> bytes:
    """Write a version as text, the counterpart of `read_version`.

    >>> write_version(1), write_version(b"1.1")
    (b'1.0', b'1.1')
    """
    if isinstance(version, bytes):
        return version
    if not 0 <= version <= 0xFFFF:
        refuse_value("Version", version, "16 bits")
    return b"%d.0" % version


@lru_cache(256)
def write_number_version(version: int | bytes) -> bytes:
    """Write a version as uint16; a version that is no number has no such form."""
    if not isinstance(version, int):
        reason = f"Version {show(version)} is no number, and this format holds a number from 0 to 65535"
        raise EncodeError("WIRE_BAD_VERSION", reason)
    return write_number(U16, "Version", version)


def write_number(shape: Struct, field: str, value: int) -> bytes:
    """Write one number, or say that it does not fit; nothing is ever wrapped."""
    try:
        return shape.pack(value)
    except struct.error:
        refuse_value(field, value, f"{shape.size * 8} bits")


def write_ttl(ttl: int) -> bytes:
    """Write a time to live, in whichever unit the format has."""
    try:
        return I64.pack(ttl)
    except struct.error:
        raise EncodeError("WIRE_BAD_TTL", f"TTL is {ttl} and does not fit 64 bits") from None


def write_lane(field: str, value: int) -> int:
    """Check a value that goes into a lane beside others, so that the error can name it."""
    if not 0 <= value <= 0xFFFF:
        refuse_value(field, value, "a 16-bit lane")
    return value


def write_lanes(field: str, *lanes: int) -> bytes:
    """Write four packed lanes, or say which value does not fit."""
    for value in lanes:
        write_lane(field, value)
    return LANES.pack(*lanes)


def write_distribution(value: int) -> int:
    """Check a distribution before it is written; nobody could read another one."""
    if value not in (0, 1):
        reason = f"Distribution is {value}, known are 0 (unicast) and 1 (broadcast)"
        raise EncodeError("WIRE_BAD_DISTRIBUTION", reason)
    return value


def write_reserved(raw: bytes, lanes: int) -> tuple[int, ...]:
    """Turn kept reserved lanes into numbers again; nothing kept means zeros."""
    if not raw:
        return _NO_LANES[lanes]
    if len(raw) != 2 * lanes:
        raise EncodeError("WIRE_BAD_EXTRA", f"reserved lanes of {len(raw)} bytes where {2 * lanes} are needed")
    return tuple(U16.unpack_from(raw, 2 * lane)[0] for lane in range(lanes))


def write_text(text: str, field: str) -> bytes:
    """Write UTF-8; a lone surrogate has no such form."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise EncodeError("WIRE_BAD_TEXT", f"{field} cannot be written as UTF-8") from None


def refuse_value(field: str, value: int, room: str) -> NoReturn:
    """Raise the error of a value that does not fit its field."""
    raise EncodeError("WIRE_OVERFLOW", f"{field} is {value} and does not fit {room}")


class Reader:
    """Walks one frame field by field, never beyond `end`, and draws the map of what it saw if it is given a list for it."""

    def __init__(self, data: bytes, frame: int, spans: list[Span] | None = None) -> None:
        self.data = data
        self.frame = frame
        self.pos = 0
        self.end = len(data)
        self.spans = spans

    def number(self, shape: Struct, field: str) -> int:
        """Read one number."""
        value: int = shape.unpack(self._take(shape.size, field))[0]
        self.note(shape.size, field, value)
        return value

    def lanes(self, field: str) -> Lanes:
        """Read four packed lanes."""
        value = LANES.unpack(self._take(LANES.size, field))
        self.note(LANES.size, field, value)
        return value

    def blob(self, field: str) -> bytes:
        """Read an int32 length and that many bytes."""
        size = self._length(field)
        raw = self._take(size, field)
        self.note(size, field, raw)
        return raw

    def text(self, field: str) -> str:
        """Read an int32 length and that many bytes of UTF-8."""
        size = self._length(field)
        start = self.pos
        raw = self._take(size, field)
        try:
            text = read_text(raw, field, self.frame, start)
        except DecodeError:
            self.pos = start
            raise
        self.note(size, field, raw)
        return text

    def enter(self, field: str) -> int:
        """Read the size of an entry, bound all reads to it, and return where the surrounding bound was."""
        outer = self.end
        self.end = self._length(field) + self.pos
        return outer

    def leave(self, outer: int) -> None:
        """Skip what an entry holds beyond the known fields, and lift its bound."""
        self.skip("unknown entry bytes", "kept")
        self.end = outer

    def skip(self, field: str, meaning: str) -> None:
        """Skip everything up to the bound."""
        size = self.end - self.pos
        if size:
            self.pos = self.end
            self.note(size, field, meaning)

    def note(self, size: int, field: str, value: bytes | int | Lanes | str) -> None:
        """Put the `size` bytes just read on the map, if there is one."""
        if self.spans is None:
            return
        if isinstance(value, bytes):
            meaning = show(value)
        else:
            meaning = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        self.spans.append(Span(self.frame, self.pos - size, size, field, meaning))

    def fail(self, code: str, reason: str) -> NoReturn:
        """Raise the error of the byte the reader stands at."""
        raise DecodeError(code, reason, frame=self.frame, offset=self.pos)

    def _length(self, field: str) -> int:
        size: int = I32.unpack(self._take(I32.size, f"length of {field}"))[0]
        left = self.end - self.pos
        if not 0 <= size <= left:
            # What is wrong is the length, so the error points at it and not behind it.
            self.pos -= I32.size
            if size < 0:
                self.fail("WIRE_BAD_LENGTH", f"{field} has the negative length {size}")
            self.fail("WIRE_TRUNCATED", f"{field} needs {size} bytes, {left} are left")
        self.note(I32.size, f"length of {field}", size)
        return size

    def _take(self, size: int, field: str) -> bytes:
        left = self.end - self.pos
        if size > left:
            self.fail("WIRE_TRUNCATED", f"{field} needs {size} bytes, {left} are left")
        start = self.pos
        self.pos = start + size
        return self.data[start : self.pos]
