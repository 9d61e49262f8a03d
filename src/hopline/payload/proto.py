"""Protocol buffers, as far as service messages need them, to the bytes that protobuf-net writes.

    message     fields, one after the other; written in ascending order, read in any
    field       tag, value
    tag         varint: number * 8 + wire type
    wire type   0 varint; 1 eight bytes; 2 varint length and that many bytes; 5 four bytes
    varint      7 bits a byte, the lowest first, the high bit set on all but the last; at most 10 bytes, 64 bits

A class is its own layout: attribute k, counted from 1, is field k, and its annotation says how it is written.

    annotation                   wire type  is written
    str | None, bytes | None     2          unless None; an empty one too
    bool, Uint16, Int32, ...     0          unless 0; a negative one as the varint of its 64 bits, 10 bytes
    an IntEnum                   0          unless 0
    Version                      0 or 2     a number unless 0; bytes always
    TimeSpan                     2          unless 0: {1: zig-zag varint, 2: unit}, in the largest unit that is exact
    another message | None       2          unless None
    tuple[..., ...]              2          every entry; an empty tuple leaves no trace

What comes from outside is hostile. Every length is checked against what is left before it is used, a list has at most
`MAX_ENTRIES` entries, and the reader goes down only where a class leads it, so no body can nest deeper than the classes do
(a class must not hold itself). Unknown fields are skipped, and lost when the message is written again. Refused is what no
sender of ours writes: groups, a known field in another wire type, a field twice that has room for one value.

This file knows no message of the network.
"""

from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, NamedTuple, NoReturn, Self, get_args, get_origin, get_type_hints

import msgspec

from hopline.errors import PayloadError
from hopline.wire.primitives import MAX_ENTRIES, refuse_value, write_text

I64_MAX: Final = 2**63 - 1
I64_MIN: Final = -(2**63)

_U64: Final = 2**64
_MAX_NUMBER: Final = 2**29 - 1
_VARINT, _SIZED = 0, 2
_FIXED: Final = {1: 8, 5: 4}

Raw = int | bytes | None
"""A value as it travels: a varint, or sized bytes. None is a value of fixed size, which no message of ours has."""


def _refuse(reason: str) -> NoReturn:
    raise PayloadError("PAYLOAD_BROKEN", reason) from None  # a chained error would show the body


# --- the smallest pieces ----------------------------------------------------------------------------------------------


def read_varint(data: bytes, pos: int) -> tuple[int, int]:
    r"""Read an unsigned number of 64 bits, and where the next byte is.

    >>> read_varint(b"\xb8\x17", 0)
    (3000, 2)
    """
    value = 0
    for shift in range(0, 70, 7):
        if pos >= len(data):
            _refuse("a number reaches beyond the end of its message")
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= _U64:
                break
            return value, pos
    _refuse("a number has more than 64 bits")


def write_varint(value: int) -> bytes:
    """Write a number of 64 bits; a negative one as its two's complement.

    >>> write_varint(3000).hex(), write_varint(-5).hex()
    ('b817', 'fbffffffffffffffff01')
    """
    value %= _U64
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def read_fields(data: bytes) -> Iterator[tuple[int, Raw]]:
    r"""Read number and value of each field, in the order they come.

    >>> list(read_fields(b"\x08\x01\x12\x05HELLO\x1a\x00"))
    [(1, 1), (2, b'HELLO'), (3, b'')]
    """
    pos = 0
    while pos < len(data):
        tag, pos = read_varint(data, pos)
        number, wire_type = tag >> 3, tag & 7
        if not 1 <= number <= _MAX_NUMBER:
            _refuse(f"a field has the number {number}")
        if wire_type == _VARINT:
            value, pos = read_varint(data, pos)
            yield number, value
            continue
        if wire_type == _SIZED:
            size, pos = read_varint(data, pos)
        elif wire_type in _FIXED:
            size = _FIXED[wire_type]
        else:
            _refuse(f"field {number} has the wire type {wire_type}, known are 0, 1, 2 and 5")
        if size > len(data) - pos:
            _refuse(f"field {number} needs {size} bytes, {len(data) - pos} are left")
        yield number, data[pos : pos + size] if wire_type == _SIZED else None
        pos += size


def write_field(number: int, raw: int | bytes) -> bytes:
    """Write one field: a number as a varint, bytes with their size.

    >>> write_field(2, b"HELLO").hex()
    '120548454c4c4f'
    """
    if isinstance(raw, int):
        return write_varint(number << 3 | _VARINT) + write_varint(raw)
    return write_varint(number << 3 | _SIZED) + write_varint(len(raw)) + raw


# --- how values travel ------------------------------------------------------------------------------------------------


class Codec(NamedTuple):
    """How values of one kind travel. Both ways are told the name of the field, to blame it."""

    read: Callable[[Raw, str], Any]
    write: Callable[[Any, str], int | bytes]


def _read_bytes(raw: Raw, field: str) -> bytes:
    if not isinstance(raw, bytes):
        _refuse(f"{field} must be bytes, wire type 2")
    return raw


def _read_text(raw: Raw, field: str) -> str:
    try:
        return _read_bytes(raw, field).decode()
    except UnicodeDecodeError as error:
        _refuse(f"{field} is not valid UTF-8: {error.reason} at byte {error.start}")


def _number(low: int, high: int) -> Codec:
    """Make the codec of a number within bounds; one outside is an error both ways, never cut or wrapped."""

    def read(raw: Raw, field: str) -> int:
        if not isinstance(raw, int):
            _refuse(f"{field} must be a number, wire type 0")
        value = raw - _U64 if low < 0 and raw > I64_MAX else raw
        if not low <= value <= high:
            _refuse(f"{field} is {value}, allowed are {low} to {high}")
        return value

    def write(value: int, field: str) -> int:
        if not low <= value <= high:
            refuse_value(field, value, f"{low} to {high}")
        return int(value)

    return Codec(read, write)


_TEXT: Final = Codec(_read_text, write_text)
_BYTES: Final = Codec(_read_bytes, lambda value, _: value)
_BIT: Final = _number(0, 1)
_BOOL: Final = Codec(lambda raw, field: bool(_BIT.read(raw, field)), _BIT.write)
_UINT16: Final = _number(0, 0xFFFF)
_INT32: Final = _number(-(2**31), 2**31 - 1)
_INT64: Final = _number(I64_MIN, I64_MAX)
_UINT64: Final = _number(0, _U64 - 1)


def _enumeration(members: type[IntEnum]) -> Codec:
    known = {int(member): member for member in members}

    def read(raw: Raw, field: str) -> IntEnum:
        value = _UINT64.read(raw, field)
        if value not in known:
            _refuse(f"{field} is {value}, known are {', '.join(map(str, known))}")
        return known[value]

    return Codec(read, _UINT64.write)


def _message(of: "type[ProtoMessage]") -> Codec:
    return Codec(lambda raw, field: of.read(_read_bytes(raw, field)), lambda value, _: value.write())


def _read_zig_zag(raw: Raw, field: str) -> int:
    value: int = _UINT64.read(raw, field)
    return value >> 1 ^ -(value & 1)


def _write_zig_zag(value: int, field: str) -> int:
    _INT64.write(value, field)
    return value << 1 ^ value >> 63


def _read_version(raw: Raw, field: str) -> int | bytes:
    version: int | bytes = raw if isinstance(raw, bytes) else _UINT16.read(raw, field)
    return version


def _write_version(version: int | bytes, field: str) -> int | bytes:
    return version if isinstance(version, bytes) else _UINT16.write(version, field)


_TICKS: Final = (864_000_000_000, 36_000_000_000, 600_000_000, 10_000_000, 10_000, 1)
"""Ticks of 100 ns in a day, hour, minute, second, millisecond and tick; the index is the unit's number."""

_EXTREME: Final = 15
"""The unit of the longest (1) and the shortest (-1) time span there is."""


def _read_time_span(raw: Raw, field: str) -> int:
    span = _Span.read(_read_bytes(raw, field))
    if span.unit == _EXTREME and span.value in (1, -1):
        return I64_MAX if span.value == 1 else I64_MIN
    if span.unit >= len(_TICKS):
        _refuse(f"{field} is {span.value} of the unknown unit {span.unit}")
    ticks = span.value * _TICKS[span.unit]
    if not I64_MIN <= ticks <= I64_MAX:
        _refuse(f"{field} does not fit 64 bits of ticks")
    return ticks


def _write_time_span(ticks: int, field: str) -> bytes:
    if ticks in (I64_MAX, I64_MIN):
        return _Span(1 if ticks > 0 else -1, _EXTREME).write()
    _INT64.write(ticks, field)
    unit = next(unit for unit, size in enumerate(_TICKS) if ticks % size == 0)
    return _Span(ticks // _TICKS[unit], unit).write()


Uint16 = Annotated[int, _UINT16]
Int32 = Annotated[int, _INT32]
Int64 = Annotated[int, _INT64]
Uint64 = Annotated[int, _UINT64]
ZigZag = Annotated[int, Codec(_read_zig_zag, _write_zig_zag)]
Version = Annotated[int | bytes, Codec(_read_version, _write_version)]
"""A number since late v4, text bytes such as `1.0` before."""
TimeSpan = Annotated[int, Codec(_read_time_span, _write_time_span)]
"""A length of time, in ticks of 100 ns."""


# --- messages ---------------------------------------------------------------------------------------------------------


class Field(NamedTuple):
    """One field of a layout; `label` is its full name, for errors."""

    name: str
    label: str
    codec: Codec
    is_repeated: bool


@cache
def layout_of(message: "type[ProtoMessage]") -> tuple[Field, ...]:
    """The fields of a class, the one with number 1 first."""
    hints = get_type_hints(message, include_extras=True)
    fields = []
    for name in message.__struct_fields__:
        hint = hints[name]
        is_repeated = get_origin(hint) is tuple
        if is_repeated or isinstance(hint, UnionType):
            hint = get_args(hint)[0]  # of `X | None` and `tuple[X, ...]`: X
        fields.append(Field(name, f"{message.__name__}.{name}", _codec_of(hint), is_repeated))
    return tuple(fields)


def _codec_of(hint: Any) -> Codec:  # noqa: ANN401 - whatever may stand in an annotation
    if get_origin(hint) is Annotated:
        codec: Codec = hint.__metadata__[0]
        return codec
    if hint in _CODECS:
        return _CODECS[hint]
    return _enumeration(hint) if issubclass(hint, IntEnum) else _message(hint)


_CODECS: Final[dict[type, Codec]] = {str: _TEXT, bytes: _BYTES, bool: _BOOL}


class ProtoMessage(msgspec.Struct, frozen=True, gc=False):
    r"""A message whose attributes are its fields, in the order of their numbers.

    >>> class Hello(ProtoMessage, frozen=True):
    ...     greeting: str | None = None
    ...     times: Int32 = 0
    >>> Hello("hi", 3).write()
    b'\n\x02hi\x10\x03'
    >>> Hello.read(b"\n\x02hi")
    Hello(greeting='hi', times=0)
    """

    @classmethod
    def read(cls, body: bytes) -> Self:
        """Read a message; raises PayloadError."""
        layout = layout_of(cls)
        found: dict[str, Any] = {}
        lists: dict[str, list[Any]] = {}
        for number, raw in read_fields(body):
            if number > len(layout):
                continue
            field = layout[number - 1]
            value = field.codec.read(raw, field.label)
            if field.is_repeated:
                entries = lists.setdefault(field.name, [])
                if len(entries) == MAX_ENTRIES:
                    _refuse(f"{field.label} has more than {MAX_ENTRIES} entries")
                entries.append(value)
            elif field.name in found:
                _refuse(f"{field.label} comes twice")
            else:
                found[field.name] = value
        return cls(**found, **{name: tuple(entries) for name, entries in lists.items()})

    def write(self) -> bytes:
        """Write the message; raises EncodeError if a value does not fit its field."""
        parts = []
        for number, field in enumerate(layout_of(type(self)), 1):
            value = getattr(self, field.name)
            if field.is_repeated:
                parts += [write_field(number, field.codec.write(entry, field.label)) for entry in value]
            elif value is not None and value != 0:
                parts.append(write_field(number, field.codec.write(value, field.label)))
        return b"".join(parts)


class _Span(ProtoMessage, frozen=True):
    """A time span as protobuf-net writes it; a missing unit is 0, days."""

    value: ZigZag = 0
    unit: Uint64 = 0
