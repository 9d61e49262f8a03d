"""The bytes of a segment: an Arrow IPC stream in which every message carries its own checksum.

Theory of operation. An Arrow IPC stream is a row of messages: the schema, then record batches, then an end mark.

    message     ff ff ff ff, int32 size of the header, header (a flatbuffer), body
    end mark    ff ff ff ff 00 00 00 00

A header may hold key-value metadata. We write one pair into each, `hopline.capture`: facts about the message as JSON whose
first is the CRC32 of all bytes of the message, taken with zeros in place of its eight digits. So a reader checks each
message by itself, in a file that is finished as well as in one that is still growing, before Arrow looks at a single byte
of it; and every byte of a finished file is covered, for the end mark has only one form. A checksum of the whole file, or in
its name, would say nothing about open files and lose a whole segment for one byte. To others the file is an ordinary Arrow
stream.

The digits are found by the text before them: all our metadata is JSON in ASCII, and within a JSON text no string can hold
a bare quote. This file makes and takes bytes; it knows neither files nor what the columns mean.
"""

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, Protocol

import pyarrow as pa

Compression = Literal["zstd", "lz4", "none"]

METADATA_KEY: Final = "hopline.capture"

END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"

_PREFIX: Final = struct.Struct("<Ii")
_CONTINUATION: Final = 0xFFFFFFFF
_LONGEST_HEADER: Final = 1024 * 1024
"""Bytes of a header; ours have some thousand. A longer one is not ours, and not worth reading."""

_MARK: Final = b'{"crc32":"'
_DIGITS: Final = 8
_ZEROS: Final = b"0" * _DIGITS

_LEVELS: Final = {"zstd": 1, "lz4": -16}
"""LZ4 below 0 looks at fewer places: less than half the time for a seventh more bytes. Who wants few bytes has zstd."""

Facts = dict[str, Any]
Pieces = list[bytes | memoryview]


def write_schema(schema: pa.Schema, facts: Mapping[str, object]) -> Pieces:
    """The first message: the schema, with facts about the whole stream."""
    return _with_checksum(schema.with_metadata({METADATA_KEY: _facts_text(facts)}).serialize())


def write_batch(batch: pa.RecordBatch, facts: Mapping[str, object], compression: Compression = "zstd") -> Pieces:
    """A message of one batch, with facts about it.

    >>> batch = pa.record_batch({"n": [1, 2]})
    >>> data = b"".join([*write_schema(batch.schema, {}), *write_batch(batch, {"rows": 2}), END])
    >>> pa.ipc.open_stream(data).read_all()["n"].to_pylist()
    [1, 2]
    """
    codec = None if compression == "none" else pa.Codec(compression, _LEVELS[compression])
    sink = pa.BufferOutputStream()
    # Not closed: that would write an end mark.
    stream = pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec, use_threads=False))
    stream.write_batch(batch, custom_metadata={METADATA_KEY: _facts_text(facts)})
    return _with_checksum(sink.getvalue().slice(batch.schema.serialize().size))


def _facts_text(facts: Mapping[str, object]) -> str:
    return json.dumps({"crc32": _ZEROS.decode(), **facts}, separators=(",", ":"))


def _with_checksum(message: pa.Buffer) -> Pieces:
    data = memoryview(message)
    header_end = _PREFIX.size + _PREFIX.unpack_from(data)[1]
    place = bytes(data[:header_end]).index(_MARK) + len(_MARK)
    return [data[:place], b"%08x" % zlib.crc32(data), data[place + _DIGITS :]]


class Message(NamedTuple):
    """A message that was read: where it starts, all of its bytes (none if only facts were asked for), and its facts."""

    start: int
    data: bytes
    facts: Facts


class Fault(NamedTuple):
    """A place where the bytes are not those of a message, and why; `is_cut` if they just stop."""

    start: int
    reason: str
    is_cut: bool = False


class End(NamedTuple):
    """The end mark, and nothing after it."""

    start: int


class Source(Protocol):
    """Where bytes come from: any file that is opened for reading."""

    def read(self, size: int, /) -> bytes:
        """Up to so many bytes."""

    def seek(self, position: int, /) -> object:
        """Go on reading there."""


def read_messages(source: Source, size: int, *, facts_only: bool = False) -> Iterator[Message | Fault | End]:
    """Read the messages of a stream of `size` bytes and check each of them.

    Bytes that do not add up to their checksum are a fault, and reading goes on behind them; any other fault is the last
    thing that comes. With `facts_only` bodies are neither read nor checked: that is for a quick look at many files.

    >>> import io
    >>> data = b"".join([*write_schema(pa.schema([]), {"owner": "N1"}), END])
    >>> [type(item).__name__ for item in read_messages(io.BytesIO(data), len(data))]
    ['Message', 'End']
    >>> *_, last = read_messages(io.BytesIO(data[:-1]), len(data) - 1)
    >>> last.reason, last.is_cut, last.start == len(data) - 8
    ('a message is cut to 7 bytes', True, True)
    """
    start = 0
    while start < size:
        source.seek(start)
        prefix = source.read(_PREFIX.size)
        if prefix == END:
            after = start + len(END)
            yield End(start) if after == size else Fault(after, f"{size - after} bytes after the end mark")
            return
        fault, header, body_size = _read_header(source, prefix, size - start)
        if fault:
            yield fault._replace(start=start)
            return
        length = len(prefix) + len(header) + body_size
        if start + length > size:
            yield Fault(start, f"a message of {length} bytes is cut to {size - start}", is_cut=True)
            return
        data = b""
        if not facts_only:
            source.seek(start)  # all of it at once: to put it together would copy it
            data = source.read(length)
        facts = _facts_of(header)
        if facts is None:
            yield Fault(start, "no facts of a capture in a message")
        elif not (facts_only or (data.startswith(prefix + header) and _is_whole(data, length))):
            yield Fault(start, "the checksum of a message is wrong")
        else:
            yield Message(start, data, facts)
        start += length


class Chain:
    """Messages one after the other, as the file that Arrow reads a stream from. Nothing is copied for it.

    Arrow reads a message in parts, and never over the end of one.

    >>> batch = pa.record_batch({"n": [1, 2]})
    >>> messages = [b"".join(write_schema(batch.schema, {})), b"".join(write_batch(batch, {}))]
    >>> pa.ipc.open_stream(Chain(messages)).read_all()["n"].to_pylist()
    [1, 2]
    """

    closed = False

    def __init__(self, messages: Iterable[bytes]) -> None:
        self._left = (memoryview(message) for message in messages)
        self._message = memoryview(b"")

    def read(self, size: int, /) -> memoryview:
        """Up to so many bytes of one message; none after the last."""
        if not self._message:
            self._message = next(self._left, self._message)
        found, self._message = self._message[:size], self._message[size:]
        return found

    def close(self) -> None:
        """Nothing is open."""


def _read_header(source: Source, prefix: bytes, left: int) -> tuple[Fault | None, bytes, int]:
    """The header after a prefix, and the size of the body that follows."""
    if len(prefix) < _PREFIX.size:
        return Fault(0, f"a message is cut to {len(prefix)} bytes", is_cut=True), b"", 0
    mark, header_size = _PREFIX.unpack(prefix)
    if mark != _CONTINUATION or not 0 < header_size <= _LONGEST_HEADER:
        return Fault(0, "no Arrow message"), b"", 0
    header = source.read(header_size)
    if len(header) < header_size:
        return Fault(0, f"a message is cut to {left} bytes", is_cut=True), b"", 0
    try:
        return None, header, _body_size(header)
    except struct.error:
        return Fault(0, "the header of a message is broken"), b"", 0


def _body_size(header: bytes) -> int:
    """Read `bodyLength` of an Arrow message header; raises struct.error.

    Of the flatbuffer it takes: offset of the table, in the table the distance back to its vtable, in the vtable at 4 + 2 *
    3 the place of the fourth field, which is an int64; 0 for a field that is not there.
    """
    (table,) = struct.unpack_from("<I", header)
    (distance,) = struct.unpack_from("<i", header, table)
    vtable_size, _, _, _, _, place = struct.unpack_from("<6H", header, _at_least_0(table - distance))
    if vtable_size < 12 or not place:
        return 0
    return _at_least_0(*struct.unpack_from("<q", header, table + place))


def _at_least_0(value: int) -> int:
    if value < 0:
        raise struct.error
    return int(value)


def _facts_of(header: bytes) -> Facts | None:
    place = header.find(_MARK)
    if place < 0:
        return None
    try:
        return dict(json.JSONDecoder().raw_decode(header[place:].decode("ascii", "replace"))[0])
    except (ValueError, RecursionError):
        return None


def _is_whole(data: bytes, length: int) -> bool:
    """Whether the bytes of a message are those that were written."""
    if len(data) != length:
        return False
    place = data.index(_MARK) + len(_MARK)
    view = memoryview(data)
    expected = zlib.crc32(view[place + _DIGITS :], zlib.crc32(_ZEROS, zlib.crc32(view[:place])))
    return data[place : place + _DIGITS] == b"%08x" % expected
