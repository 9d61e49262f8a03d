"""BSON, as far as the body of KINO.EXCEPTION needs it.

    document    int32 size of all of it, elements, 00
    element     type byte, key as UTF-8, 00, value

    type        value
    02          text: int32 size with the closing 00, UTF-8, 00
    03          document
    05          binary: int32 size, subtype byte, the bytes
    0a          null: nothing
    10          int32

What follows a document is padding and ignored: the reference sends its whole buffer. Only what is asked for by its key is
read; all else is stepped over by its size and never entered, so no body can nest deep or fill memory. A type byte that BSON
does not have says nothing about its size: then the body is broken.

This file knows no message and no exception.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NoReturn

from hopline.errors import PayloadError
from hopline.wire.primitives import I32, write_number, write_text

Value = None | str | int | bytes | Mapping[str, "Value"]
"""What we write: null, text, an int32, binary, a document."""

_TEXT, _DOCUMENT, _BINARY, _NULL, _REGEX, _INT32 = 0x02, 0x03, 0x05, 0x0A, 0x0B, 0x10

_FIXED: Final = {
    0x01: 8,  # double
    0x06: 0,  # undefined
    0x07: 12,  # object id
    0x08: 1,  # boolean
    0x09: 8,  # UTC time
    _NULL: 0,
    _INT32: 4,
    0x11: 8,  # timestamp
    0x12: 8,  # int64
    0x13: 16,  # decimal
    0x7F: 0,  # largest key
    0xFF: 0,  # smallest key
}
"""Type: bytes of its value."""

_SIZED: Final = {
    _TEXT: 4,
    _DOCUMENT: 0,
    0x04: 0,  # array
    _BINARY: 5,
    0x0C: 16,  # pointer: text and an object id
    0x0D: 4,  # code
    0x0E: 4,  # symbol
    0x0F: 0,  # code with scope
}
"""Type whose value begins with an int32 size: bytes of the value that this size does not count."""

_SMALLEST: Final = 5
"""Bytes of an empty document."""


def read_texts(data: bytes, keys: Iterable[str]) -> dict[str, str | None]:
    r"""Read the texts and nulls that a document holds under these ASCII keys, whatever their case.

    A key that is not there, or holds something else, is not in the answer; of two that are equal the last one counts.

    >>> read_texts(write_document({"message": "boom", "n": 1}) + bytes(100), ["Message", "Type", "N"])
    {'Message': 'boom'}
    """
    found: dict[str, str | None] = {}
    for key, kind, raw in _read_elements(data, keys):
        if kind == _TEXT:
            found[key] = _read_text(raw, key)
        elif kind == _NULL:
            found[key] = None
    return found


def find_document(data: bytes, key: str) -> bytes | None:
    """Find the document that a document holds under a key, whatever its case; None if there is none."""
    found = None
    for _, kind, raw in _read_elements(data, [key]):
        if kind == _DOCUMENT:
            found = raw
    return found


def _read_elements(data: bytes, keys: Iterable[str]) -> Iterator[tuple[str, int, bytes]]:
    """Read key, type and value of the elements that are asked for, and step over all others."""
    wanted = {key.lower().encode(): key for key in keys}
    size = _read_int32(data, 0, len(data))
    if not _SMALLEST <= size <= len(data):
        _refuse(f"a BSON document says it has {size} bytes, there are {len(data)}")
    end = size - 1
    if data[end]:
        _refuse("a BSON document does not end with a zero byte")
    pos = 4
    while pos < end:
        kind = data[pos]
        start = _after_zero(data, pos + 1, end)
        key = wanted.get(data[pos + 1 : start - 1].lower())
        pos = _after_value(data, kind, start, end)
        if key is not None:
            yield key, kind, data[start:pos]


def _refuse(reason: str) -> NoReturn:
    raise PayloadError("PAYLOAD_BROKEN", reason) from None  # a chained error would show the body


def _read_int32(data: bytes, pos: int, end: int) -> int:
    if pos + I32.size > end:
        _refuse("a BSON size reaches beyond the end of its document")
    value: int = I32.unpack_from(data, pos)[0]
    return value


def _after_zero(data: bytes, pos: int, end: int) -> int:
    zero = data.find(0, pos, end)
    if zero < 0:
        _refuse("a BSON key or pattern reaches beyond the end of its document")
    return zero + 1


def _after_value(data: bytes, kind: int, pos: int, end: int) -> int:
    if kind in _SIZED:
        size = _read_int32(data, pos, end) + _SIZED[kind]
        if size < I32.size:
            _refuse(f"a BSON value of the type {kind:#04x} has the impossible size {size}")
    elif kind in _FIXED:
        size = _FIXED[kind]
    elif kind == _REGEX:
        return _after_zero(data, _after_zero(data, pos, end), end)
    else:
        _refuse(f"BSON has no type {kind:#04x}")
    if size > end - pos:
        _refuse(f"a BSON value needs {size} bytes, {end - pos} are left")
    return pos + size


def _read_text(raw: bytes, key: str) -> str:
    if len(raw) == I32.size or raw[-1]:
        _refuse(f"{key} does not end with a zero byte")
    try:
        return raw[I32.size : -1].decode()
    except UnicodeDecodeError as error:
        _refuse(f"{key} is not valid UTF-8: {error.reason} at byte {error.start}")


def write_document(elements: Mapping[str, Value]) -> bytes:
    """Write a document; raises EncodeError if a value does not fit.

    >>> write_document({"Message": "m", "Data": None}).hex()
    '1a000000024d65737361676500020000006d000a446174610000'
    """
    body = b"".join(_write_element(key, value) for key, value in elements.items())
    return write_number(I32, "BSON document", len(body) + _SMALLEST) + body + b"\0"


def _write_element(key: str, value: Value) -> bytes:
    name = write_text(key, "BSON key") + b"\0"
    if value is None:
        return bytes([_NULL]) + name
    if isinstance(value, int):
        return bytes([_INT32]) + name + write_number(I32, key, value)
    if isinstance(value, Mapping):
        return bytes([_DOCUMENT]) + name + write_document(value)
    if isinstance(value, bytes):
        return bytes([_BINARY]) + name + write_number(I32, key, len(value)) + b"\0" + value
    text = write_text(value, key) + b"\0"
    return bytes([_TEXT]) + name + write_number(I32, key, len(text)) + text
