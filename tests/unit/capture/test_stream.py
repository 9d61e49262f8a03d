"""The checked messages of a segment, byte by byte."""

import io
import json
import struct

import pyarrow as pa
import pytest

from hopline.capture.stream import END, METADATA_KEY, End, Fault, Message, read_messages, write_batch, write_schema

BATCH = pa.record_batch({"n": pa.array([1, 2, 3]), "text": pa.array(["a", None, "c" * 40])})
OTHER = pa.record_batch({"n": pa.array([4]), "text": pa.array(["d"])})


def stream(*, is_ended: bool = True, compression: str = "zstd") -> bytes:
    pieces = [
        *write_schema(BATCH.schema, {"owner": 'N"1{"crc32":"'}),
        *write_batch(BATCH, {"rows": 3}, compression),
        *write_batch(OTHER, {"rows": 1}, compression),
    ]
    return b"".join([*pieces, END] if is_ended else pieces)


def read(data: bytes, **options: bool) -> list[Message | Fault | End]:
    return list(read_messages(io.BytesIO(data), len(data), **options))


def kinds(data: bytes) -> list[str]:
    return [type(item).__name__ for item in read(data)]


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_what_was_written_is_read(compression: str) -> None:
    large = pa.record_batch({"n": pa.array(range(5000))})
    data = b"".join([*write_schema(large.schema, {}), *write_batch(large, {}, compression), END])
    assert kinds(data) == ["Message", "Message", "End"]
    table = pa.ipc.open_stream(data).read_all()
    assert table["n"].to_pylist() == list(range(5000))


def test_facts_come_back() -> None:
    head, first, second, end = read(stream())
    assert (head.facts["owner"], first.facts["rows"], second.facts["rows"]) == ('N"1{"crc32":"', 3, 1)
    assert head.data + first.data + second.data == stream()[: end.start]


def test_to_others_it_is_an_ordinary_arrow_stream() -> None:
    reader = pa.ipc.open_stream(stream())
    assert json.loads(reader.schema.metadata[METADATA_KEY.encode()])["owner"] == 'N"1{"crc32":"'
    batch, metadata = reader.read_next_batch_with_custom_metadata()
    assert batch.to_pydict() == BATCH.to_pydict()
    assert json.loads(metadata[METADATA_KEY])["rows"] == 3
    assert reader.read_next_batch().to_pydict() == OTHER.to_pydict()


def test_facts_can_be_read_without_the_rest() -> None:
    *messages, end = read(stream(), facts_only=True)
    assert [message.data for message in messages] == [b"", b"", b""]
    assert [message.facts.get("rows") for message in messages] == [None, 3, 1]
    assert isinstance(end, End)


@pytest.mark.parametrize("bit", [0x01, 0x80])
def test_no_byte_can_change_without_being_noticed(bit: int) -> None:
    data = stream()
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= bit
        found = read(bytes(changed))
        assert any(isinstance(item, Fault) for item in found) or not isinstance(found[-1], End), place


def test_a_changed_byte_costs_its_message_only() -> None:
    data = bytearray(stream())
    _, first, second, _ = read(bytes(data))
    data[second.start - 1] ^= 1  # the last byte of the first batch
    found = read(bytes(data))
    assert [type(item).__name__ for item in found] == ["Message", "Fault", "Message", "End"]
    assert (found[1].start, found[1].reason) == (first.start, "the checksum of a message is wrong")


class Changing(io.BytesIO):
    """A file that somebody writes to while it is read: it has other bytes from the second look at its start on."""

    def __init__(self, data: bytes, then: bytes) -> None:
        super().__init__(data)
        self._then = then
        self._looks = 0

    def seek(self, position: int, whence: int = 0, /) -> int:
        self._looks += position == 0
        if self._looks == 2:
            super().seek(0)
            self.truncate()
            self.write(self._then)
        return super().seek(position, whence)


def test_a_file_that_is_written_to_while_it_is_read_is_a_fault() -> None:
    first, other = (b"".join(write_schema(BATCH.schema, {"owner": owner})) for owner in ("N1", "N2"))
    assert len(first) == len(other)
    for then in (other, b""):  # whole, but not what the facts were read from; and nothing
        assert list(read_messages(Changing(first, then), len(first))) == [Fault(0, "the checksum of a message is wrong")]


def test_a_stream_that_stops_is_read_up_to_its_last_whole_message() -> None:
    data = stream()
    whole = [item.start + len(item.data) for item in read(data)[:-1]]
    for size in range(len(data)):
        found = read(data[:size])
        messages = [item for item in found if isinstance(item, Message)]
        faults = [item for item in found if isinstance(item, Fault)]
        expected = sum(end <= size for end in whole)
        assert len(messages) == expected
        if size in (0, *whole):
            assert not faults
        else:
            assert [(fault.start, fault.is_cut) for fault in faults] == [(whole[expected - 1] if expected else 0, True)]


def test_bytes_after_the_end_mark_are_a_fault() -> None:
    found = read(stream() + b"x")
    assert found[-1] == Fault(len(stream()), "1 bytes after the end mark")


@pytest.mark.parametrize(
    "junk",
    [
        b"junk, and more of it than a prefix takes",
        bytes(64),
        b"\xff" * 64,
        b"\xff\xff\xff\xff" + struct.pack("<i", 2**31 - 1) + bytes(64),
        b"\xff\xff\xff\xff" + struct.pack("<i", -8) + bytes(64),
        b"\xff\xff\xff\xff" + struct.pack("<i", 16) + bytes(16),
        b"\xff\xff\xff\xff" + struct.pack("<i", 16) + struct.pack("<Iiii", 4, -(2**31), 0, 0),
        b"\xff\xff\xff\xff" + struct.pack("<i", 16) + struct.pack("<Iiii", 2**32 - 1, 0, 0, 0),
    ],
)
def test_junk_is_a_fault_and_nothing_worse(junk: bytes) -> None:
    assert all(isinstance(item, Fault) for item in read(junk))
    assert read(junk)


def test_an_arrow_stream_of_somebody_else_has_no_facts() -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, BATCH.schema) as writer:
        writer.write_batch(BATCH)
    assert read(sink.getvalue().to_pybytes())[0] == Fault(0, "no facts of a capture in a message")


@pytest.mark.parametrize("facts", ['{"crc32":"00000000', '{"crc32":"00000000","x":' + "[" * 100_000])
def test_facts_that_are_no_json_are_a_fault(facts: str) -> None:
    data = BATCH.schema.with_metadata({METADATA_KEY: facts}).serialize().to_pybytes()
    assert read(data) == [Fault(0, "no facts of a capture in a message")]


def test_a_body_that_claims_to_be_larger_than_the_file_is_cut() -> None:
    data = stream(is_ended=False)
    message = read(data)[1]
    header = struct.unpack_from("<i", data, message.start + 4)[0]
    place = data.index(struct.pack("<q", len(message.data) - 8 - header), message.start)
    for size in (2**40, 2**62):
        changed = data[:place] + struct.pack("<q", size) + data[place + 8 :]
        assert read(changed)[-1].is_cut
    changed = data[:place] + struct.pack("<q", -1) + data[place + 8 :]
    assert read(changed)[-1] == Fault(message.start, "the header of a message is broken")
