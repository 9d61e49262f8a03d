"""Protobuf of service messages: protocol.md 3.9 for the rules and the golden bytes, the docstring of proto.py for limits."""

from enum import IntEnum

import pytest

from hopline.errors import EncodeError, PayloadError
from hopline.payload.proto import (
    Int32,
    Int64,
    ProtoMessage,
    TimeSpan,
    Uint16,
    Uint64,
    Version,
    ZigZag,
    read_fields,
    read_varint,
    write_field,
    write_varint,
)

SECOND = 10_000_000
LONGEST = 2**63 - 1
SHORTEST = -(2**63)


class Colour(IntEnum):
    RED = 0
    BLUE = 7


class Inner(ProtoMessage, frozen=True):
    number: Int32 = 0


class Outer(ProtoMessage, frozen=True):
    text: str | None = None
    blob: bytes | None = None
    flag: bool = False
    small: Uint16 = 0
    signed: Int32 = 0
    long: Int64 = 0
    unsigned: Uint64 = 0
    zig_zag: ZigZag = 0
    version: Version = 0
    span_ticks: TimeSpan = 0
    colour: Colour = Colour.RED
    inner: Inner | None = None
    blobs: tuple[bytes, ...] = ()
    inners: tuple[Inner, ...] = ()


def refused(body):
    with pytest.raises(PayloadError) as caught:
        Outer.read(bytes.fromhex(body))
    assert caught.value.code == "PAYLOAD_BROKEN"
    return str(caught.value)


VARINTS = [
    (0, "00"),
    (1, "01"),
    (127, "7f"),
    (128, "8001"),
    (3000, "b817"),
    (2**63, "80808080808080808001"),
    (2**64 - 1, "ffffffffffffffffff01"),
]


@pytest.mark.parametrize(("value", "written"), VARINTS)
def test_varints_both_ways(value, written):
    raw = bytes.fromhex(written)
    assert write_varint(value) == raw
    assert read_varint(b"x" + raw + b"x", 1) == (value, 1 + len(raw))


def test_a_negative_varint_is_its_64_bits():
    assert write_varint(-5).hex() == "fbffffffffffffffff01"


def test_a_varint_may_be_longer_than_it_needs():
    assert read_varint(b"\x81\x80\x00", 0) == (1, 3)


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("", "beyond the end"),
        ("80", "beyond the end"),
        ("ffffffffffffffffff02", "more than 64 bits"),
        ("ffffffffffffffffff8001", "more than 64 bits"),
        ("80" * 1000, "more than 64 bits"),
    ],
)
def test_broken_varints_are_refused(written, reason):
    with pytest.raises(PayloadError, match=reason):
        read_varint(bytes.fromhex(written), 0)


def test_fields_come_in_the_order_written():
    body = write_field(3, b"x") + write_field(1, 300) + write_field(3, b"") + write_field(2**29 - 1, 0)
    assert list(read_fields(body)) == [(3, b"x"), (1, 300), (3, b""), (2**29 - 1, 0)]


# Every kind of field: the value that is left out, and some that are not, with their bytes.
EMPTY = Outer()
WRITTEN = [
    ({"text": ""}, "0a00"),
    ({"text": "hi"}, "0a026869"),
    ({"text": "\u0442"}, "0a02d182"),
    ({"blob": b""}, "1200"),
    ({"blob": b"\0\xff"}, "120200ff"),
    ({"flag": True}, "1801"),
    ({"small": 65535}, "20ffff03"),
    ({"signed": -5}, "28fbffffffffffffffff01"),
    ({"signed": 2**31 - 1}, "28ffffffff07"),
    ({"long": -1}, "30ffffffffffffffffff01"),
    ({"long": SHORTEST}, "3080808080808080808001"),
    ({"unsigned": 2**64 - 1}, "38ffffffffffffffffff01"),
    ({"zig_zag": -1}, "4001"),
    ({"zig_zag": 1}, "4002"),
    ({"zig_zag": SHORTEST}, "40ffffffffffffffffff01"),
    ({"zig_zag": LONGEST}, "40feffffffffffffffff01"),
    ({"version": 1}, "4801"),
    ({"version": b"1.0"}, "4a03312e30"),
    ({"version": b""}, "4a00"),
    ({"colour": Colour.BLUE}, "5807"),
    ({"inner": Inner()}, "6200"),
    ({"inner": Inner(3)}, "62020803"),
    ({"blobs": (b"", b"a")}, "6a006a0161"),
    ({"inners": (Inner(), Inner(1))}, "720072020801"),
    ({"text": "a", "signed": 1, "inners": (Inner(),)}, "0a016128017200"),
]


def test_empty_values_leave_no_trace():
    assert EMPTY.write() == b""
    assert Outer.read(b"") == EMPTY
    assert Outer(flag=False, version=0, colour=Colour.RED, blobs=(), text=None).write() == b""


@pytest.mark.parametrize(("values", "written"), WRITTEN, ids=[written for _, written in WRITTEN])
def test_values_both_ways(values, written):
    message = Outer(**values)
    assert message.write().hex() == written
    back = Outer.read(bytes.fromhex(written))
    assert back == message
    assert [type(getattr(back, name)) for name in values] == [type(value) for value in values.values()]


# protocol.md 3.9, and the vectors for the extremes.
SPANS = [
    (864_000 * 1_000_000, "0802"),
    (-864_000 * 1_000_000, "0801"),
    (3600 * SECOND, "08021001"),
    (25 * 3600 * SECOND, "08321001"),
    (120 * SECOND, "08041002"),
    (90 * SECOND, "08b4011003"),
    (SECOND * 3 // 2, "08b8171004"),
    (-50_000, "08091004"),
    (1, "08021005"),
    (LONGEST, "0802100f"),
    (SHORTEST, "0801100f"),
]


@pytest.mark.parametrize(("ticks", "written"), SPANS)
def test_time_spans_are_written_in_the_largest_exact_unit(ticks, written):
    body = write_field(10, bytes.fromhex(written))
    assert Outer(span_ticks=ticks).write() == body
    assert Outer.read(body).span_ticks == ticks


@pytest.mark.parametrize(
    ("written", "ticks"), [("", 0), ("1003", 0), ("08781003", 60 * SECOND), ("08021a0178", 864 * 10**9)]
)
def test_time_spans_in_another_unit_are_read(written, ticks):
    assert Outer.read(write_field(10, bytes.fromhex(written))).span_ticks == ticks


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("08021006", "unknown unit 6"),
        ("100f", "unknown unit 15"),
        ("0804100f", "unknown unit 15"),
        ("0802" + "10ffffffffffffffffff01", "unknown unit"),
        ("08feffffffffffffffff01", "does not fit"),
        ("08ffffffffffffffffff011004", "does not fit"),
    ],
)
def test_impossible_time_spans_are_refused(written, reason):
    assert reason in refused(write_field(10, bytes.fromhex(written)).hex())


def test_fields_are_read_in_any_order():
    assert Outer.read(bytes.fromhex("72007202080128010a0161")) == Outer(text="a", signed=1, inners=(Inner(), Inner(1)))


@pytest.mark.parametrize(
    "unknown",
    ["7805", "7a03616263", "79" + "00" * 8, "7d" + "00" * 4, "f8ffffff0f00"],
    ids=["0", "2", "1", "5", "high number"],
)
def test_unknown_fields_are_skipped_and_lost(unknown):
    message = Outer.read(bytes.fromhex("0a0161" + unknown + "2801"))
    assert message == Outer(text="a", signed=1)
    assert message.write().hex() == "0a01612801"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("0a", "beyond the end"),
        ("0a0261", "field 1 needs 2 bytes, 1 are left"),
        ("0affffffffffffffffff01", "field 1 needs 18446744073709551615 bytes, 0 are left"),
        ("79" + "00" * 7, "field 15 needs 8 bytes, 7 are left"),
        ("7d" + "00" * 3, "field 15 needs 4 bytes, 3 are left"),
        ("0000", "a field has the number 0"),
        ("808080801000", "a field has the number 536870912"),
        ("7b7c", "wire type 3"),
        ("7c", "wire type 4"),
        ("7e", "wire type 6"),
        ("0f", "wire type 7"),
        ("0801", "Outer.text must be bytes, wire type 2"),
        ("0d00000000", "Outer.text must be bytes, wire type 2"),
        ("0a01ff", "Outer.text is not valid UTF-8: invalid start byte at byte 0"),
        ("1001", "Outer.blob must be bytes"),
        ("1a0101", "Outer.flag must be a number, wire type 0"),
        ("1802", "Outer.flag is 2, allowed are 0 to 1"),
        ("20808004", "Outer.small is 65536"),
        ("288080808008", "Outer.signed is 2147483648"),
        ("28fffffffff7ffffffff01", "Outer.signed is -2147483649"),
        ("420101", "Outer.zig_zag must be a number"),
        ("48808004", "Outer.version is 65536"),
        ("4d00000000", "Outer.version must be a number, wire type 0"),
        ("5001", "Outer.span_ticks must be bytes"),
        ("5801", "Outer.colour is 1, known are 0, 7"),
        ("6001", "Outer.inner must be bytes"),
        ("62020a00", "Inner.number must be a number"),
        ("720108", "beyond the end"),
        ("0a000a00", "Outer.text comes twice"),
        ("62006200", "Outer.inner comes twice"),
    ],
)
def test_broken_messages_are_refused(body, reason):
    assert reason in refused(body)


def test_a_list_has_an_end():
    entry = bytes.fromhex("6a00")
    assert len(Outer.read(entry * 0xFFFF).blobs) == 0xFFFF
    assert "more than 65535 entries" in refused((entry * 0x1_0000).hex())


def test_depth_is_that_of_the_classes():
    body = b""
    for _ in range(2_000):
        body = write_field(12, body)
    assert Outer.read(body) == Outer(inner=Inner()), "what no class holds is stepped over, not entered"


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"text": "\ud800"}, "WIRE_BAD_TEXT"),
        ({"small": -1}, "WIRE_OVERFLOW"),
        ({"small": 65536}, "WIRE_OVERFLOW"),
        ({"signed": 2**31}, "WIRE_OVERFLOW"),
        ({"long": 2**63}, "WIRE_OVERFLOW"),
        ({"unsigned": -1}, "WIRE_OVERFLOW"),
        ({"zig_zag": 2**63}, "WIRE_OVERFLOW"),
        ({"version": 65536}, "WIRE_OVERFLOW"),
        ({"span_ticks": 2**63}, "WIRE_OVERFLOW"),
    ],
)
def test_what_does_not_fit_is_our_own_fault(values, code):
    with pytest.raises(EncodeError, match="Outer") as caught:
        Outer(**values).write()
    assert caught.value.code == code
