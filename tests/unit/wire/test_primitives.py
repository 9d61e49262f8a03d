"""Numbers, lanes, text and the walking reader, each in both directions."""

import struct
from collections.abc import Callable
from struct import Struct

import pytest

from hopline.errors import DecodeError, EncodeError
from hopline.wire.primitives import (
    I32,
    I64,
    U16,
    Reader,
    Span,
    read_distribution,
    read_fixed,
    read_lanes,
    read_text,
    read_version,
    show,
    write_distribution,
    write_lanes,
    write_number,
    write_number_version,
    write_reserved,
    write_text,
    write_ttl,
    write_version,
)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"", "empty"),
        (b"HELLO", '"HELLO"'),
        (b"a b", '"a b"'),
        (b"\x00H1", "0x004831"),
        (b"line\n", "0x6c696e650a"),
        ("Grüße".encode(), '"Grüße"'),
        ("\N{RIGHT-TO-LEFT OVERRIDE}".encode(), "0xe280ae"),
        (b"ab\xff", "0x6162ff"),
    ],
)
def test_bytes_are_shown_as_text_only_if_all_is_printable(raw: bytes, shown: str) -> None:
    assert show(raw) == shown


# protocol 1.1: little-endian; value, bytes.
NUMBERS = [
    (U16, 0, "00 00"),
    (U16, 1, "01 00"),
    (U16, 0x1234, "34 12"),
    (U16, 0xFFFF, "ff ff"),
    (I32, 0x12345678, "78 56 34 12"),
    (I32, -1, "ff ff ff ff"),
    (I32, 2**31 - 1, "ff ff ff 7f"),
    (I32, -(2**31), "00 00 00 80"),
    (I64, 50_000_000, "80 f0 fa 02 00 00 00 00"),
    (I64, 2**63 - 1, "ff ff ff ff ff ff ff 7f"),
    (I64, -(2**63), "00 00 00 00 00 00 00 80"),
]


@pytest.mark.parametrize(("shape", "value", "raw"), NUMBERS)
def test_numbers_are_little_endian(shape: Struct, value: int, raw: str) -> None:
    assert write_number(shape, "Hops", value) == bytes.fromhex(raw)
    assert read_fixed([b"", bytes.fromhex(raw)], 1, shape, "Hops") == value


@pytest.mark.parametrize(
    ("shape", "value", "bits"),
    [
        (U16, 2**16, 16),
        (U16, -1, 16),
        (I32, 2**31, 32),
        (I32, -(2**31) - 1, 32),
        (I64, 2**63, 64),
        (I64, -(2**63) - 1, 64),
    ],
)
def test_a_number_that_does_not_fit_is_never_wrapped(shape: Struct, value: int, bits: int) -> None:
    # decisions: limits.
    with pytest.raises(EncodeError) as caught:
        write_number(shape, "Hops", value)
    assert caught.value.code == "WIRE_OVERFLOW"
    assert str(caught.value) == f"Hops is {value} and does not fit {bits} bits"


@pytest.mark.parametrize("size", [0, 1, 3, 5, 8])
def test_a_number_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(DecodeError) as caught:
        read_fixed([b"", b"", bytes(size)], 2, I32, "Hops")
    assert (caught.value.code, caught.value.frame, caught.value.offset) == ("WIRE_BAD_LENGTH", 2, None)
    assert str(caught.value) == f"Hops has {size} bytes, not 4 (frame 2)"


def test_lanes_are_four_numbers_in_document_order() -> None:
    # protocol 1.1, packed ULONG: "bits 1-16" are bytes 0 and 1.
    raw = bytes.fromhex("16 00 01 00 02 00 ff ff")
    assert read_lanes([raw], 0, "RoutingDescription") == (22, 1, 2, 0xFFFF)
    assert write_lanes("RoutingDescription", 22, 1, 2, 0xFFFF) == raw


@pytest.mark.parametrize("lane", range(4))
@pytest.mark.parametrize("value", [-1, 0x10000])
def test_a_lane_that_does_not_fit_is_never_wrapped(lane: int, value: int) -> None:
    lanes = [0, 1, 0x8000, 0xFFFF]
    lanes[lane] = value
    with pytest.raises(EncodeError) as caught:
        write_lanes("RoutingDescription", *lanes)
    assert caught.value.code == "WIRE_OVERFLOW"
    assert str(caught.value) == f"RoutingDescription is {value} and does not fit a 16-bit lane"


def test_a_lane_that_is_no_whole_number_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(struct.error):
        write_lanes("RoutingDescription", 1, 2, 3, 0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0, 7, 9])
def test_lanes_of_another_size_are_refused(size: int) -> None:
    with pytest.raises(DecodeError) as caught:
        read_lanes([bytes(size)], 0, "BodyDescription")
    assert (caught.value.code, caught.value.frame) == ("WIRE_BAD_LENGTH", 0)


@pytest.mark.parametrize(
    ("raw", "lanes", "numbers"),
    [
        ("", 1, (0,)),
        ("", 2, (0, 0)),
        ("01 00", 1, (1,)),
        ("01 00 ff ff", 2, (1, 0xFFFF)),
    ],
)
def test_kept_reserved_lanes_become_numbers_again(raw: str, lanes: int, numbers: tuple[int, ...]) -> None:
    assert write_reserved(bytes.fromhex(raw), lanes) == numbers


@pytest.mark.parametrize(("size", "lanes"), [(1, 1), (4, 1), (2, 2), (8, 2)])
def test_kept_reserved_lanes_of_another_size_are_refused(size: int, lanes: int) -> None:
    with pytest.raises(EncodeError) as caught:
        write_reserved(b"x" * size, lanes)
    assert caught.value.code == "WIRE_BAD_EXTRA"
    assert str(caught.value) == f"reserved lanes of {size} bytes where {2 * lanes} are needed"


@pytest.mark.parametrize("text", ["", "dom", "tcp://10.0.0.1:5101", "Grüße", "\N{EARTH GLOBE EUROPE-AFRICA}", "a\0b"])
def test_text_is_utf8_both_ways(text: str) -> None:
    assert write_text(text, "Domain") == text.encode("utf-8")
    assert read_text(text.encode("utf-8"), "Domain", 3) == text


@pytest.mark.parametrize(
    "raw",
    [
        b"\xff",
        b"ab\xc3",  # cut
        b"\xc0\x80",  # overlong
        b"\xed\xa0\x80",  # a surrogate
        b"\xf4\x90\x80\x80",  # beyond Unicode
    ],
)
@pytest.mark.parametrize("offset", [None, 17])
def test_text_that_is_not_utf8_is_an_error_never_a_replacement(raw: bytes, offset: int | None) -> None:
    # decisions: strings.
    with pytest.raises(DecodeError) as caught:
        read_text(raw, "Domain", 3, offset)
    error = caught.value
    assert (error.code, error.frame, error.offset) == ("WIRE_BAD_TEXT", 3, offset)
    assert error.reason.startswith("Domain is not valid UTF-8")


def test_text_that_has_no_utf8_is_an_error() -> None:
    with pytest.raises(EncodeError) as caught:
        write_text("\ud800", "Domain")
    assert caught.value.code == "WIRE_BAD_TEXT"
    assert "Domain" in str(caught.value)


@pytest.mark.parametrize(("value", "name"), [(0, "UNICAST"), (1, "BROADCAST")])
def test_distribution_has_two_values(value: int, name: str) -> None:
    assert read_distribution(value, 9).name == name
    assert write_distribution(value) == value


@pytest.mark.parametrize("value", [2, 256, -1, 0xFFFF])
def test_any_other_distribution_is_an_error(value: int) -> None:
    # decisions: enumerations.
    with pytest.raises(DecodeError) as caught:
        read_distribution(value, 9, 4)
    assert (caught.value.code, caught.value.frame, caught.value.offset) == ("WIRE_BAD_DISTRIBUTION", 9, 4)
    assert str(value) in str(caught.value)
    with pytest.raises(EncodeError, match=f"Distribution is {value}") as refused:
        write_distribution(value)
    assert refused.value.code == "WIRE_BAD_DISTRIBUTION"


@pytest.mark.parametrize("ttl", [0, -1, 2**63 - 1, -(2**63)])
def test_ttl_is_a_long(ttl: int) -> None:
    assert write_ttl(ttl) == ttl.to_bytes(8, "little", signed=True)


@pytest.mark.parametrize("ttl", [2**63, -(2**63) - 1])
def test_ttl_that_does_not_fit_has_an_error_of_its_own(ttl: int) -> None:
    # decisions: TTL - "A value that does not fit is `WIRE_BAD_TTL`".
    with pytest.raises(EncodeError, match=str(ttl)) as caught:
        write_ttl(ttl)
    assert caught.value.code == "WIRE_BAD_TTL"


# decisions: version in v3 - `<n>.0` with n decimal, no leading zeros, 0 to 65535.
@pytest.mark.parametrize(("raw", "version"), [(b"0.0", 0), (b"1.0", 1), (b"10.0", 10), (b"65535.0", 65535), (b"9.0", 9)])
def test_text_version_is_a_number_both_ways(raw: bytes, version: int) -> None:
    assert read_version(raw) == version
    assert write_version(version) == raw


ODD_VERSIONS = [
    b"",
    b"0",
    b"1",
    b".0",
    b"1.",
    b"1.1",
    b"1.00",
    b"00.0",
    b"01.0",
    b"65536.0",
    b"99999.0",
    b"123456.0",
    b"-1.0",
    b"+1.0",
    b" 1.0",
    b"1.0 ",
    b"1.0\0",
    b"1_0.0",
    "\N{SUPERSCRIPT ONE}.0".encode(),
    "\N{ARABIC-INDIC DIGIT ONE}.0".encode(),
    b"\x01\x00",
    b"\xff" * 300,
]


@pytest.mark.parametrize("raw", ODD_VERSIONS)
def test_any_other_text_version_stays_bytes_both_ways(raw: bytes) -> None:
    assert read_version(raw) == raw
    assert write_version(raw) == raw


@pytest.mark.parametrize("version", [-1, 65536])
def test_version_that_is_too_large_is_an_error(version: int) -> None:
    for write in (write_version, write_number_version):
        with pytest.raises(EncodeError) as caught:
            write(version)
        assert caught.value.code == "WIRE_OVERFLOW"


def test_version_that_is_bytes_has_no_number() -> None:
    with pytest.raises(EncodeError) as caught:
        write_number_version(b"1.1")
    assert caught.value.code == "WIRE_BAD_VERSION"
    assert '"1.1"' in str(caught.value)
    assert write_number_version(65535) == b"\xff\xff"


def test_reader_reads_field_after_field_and_draws_the_map() -> None:
    data = bytes.fromhex("06 00  02 00 00 00 4e 31  01 00 02 00 03 00 04 00  03 00 00 00 64 6f 6d  aa bb")
    spans: list[Span] = []
    reader = Reader(data, 3, spans)
    assert reader.number(U16, "WireFormatVersion") == 6
    assert reader.blob("Identity") == b"N1"
    assert reader.lanes("Lanes") == (1, 2, 3, 4)
    assert reader.text("Domain") == "dom"
    reader.skip("rest", "kept")
    assert spans == [
        Span(3, 0, 2, "WireFormatVersion", "6"),
        Span(3, 2, 4, "length of Identity", "2"),
        Span(3, 6, 2, "Identity", '"N1"'),
        Span(3, 8, 8, "Lanes", "1 2 3 4"),
        Span(3, 16, 4, "length of Domain", "3"),
        Span(3, 20, 3, "Domain", '"dom"'),
        Span(3, 23, 2, "rest", "kept"),
    ]
    reader.skip("nothing is left, nothing is noted", "")
    assert len(spans) == 7


def test_reader_is_bound_to_an_entry_until_it_leaves_it() -> None:
    # seed 000: unknown bytes come at the end of an entry.
    spans: list[Span] = []
    reader = Reader(bytes.fromhex("04 00 00 00 01 00 ee ee 02 00"), 3, spans)
    outer = reader.enter("entry")
    assert reader.number(U16, "inside") == 1
    reader.leave(outer)
    assert reader.number(U16, "after") == 2
    assert Span(3, 6, 2, "unknown entry bytes", "kept") in spans


@pytest.mark.parametrize(
    ("read", "data", "code", "offset"),
    [
        pytest.param(lambda r: r.number(I64, "f"), "01 02 03", "WIRE_TRUNCATED", 0, id="number cut"),
        pytest.param(lambda r: r.lanes("f"), "01 02 03 04 05 06 07", "WIRE_TRUNCATED", 0, id="lanes cut"),
        pytest.param(lambda r: r.blob("f"), "01 00 00", "WIRE_TRUNCATED", 0, id="length cut"),
        pytest.param(lambda r: r.blob("f"), "02 00 00 00 aa", "WIRE_TRUNCATED", 0, id="bytes cut"),
        pytest.param(lambda r: r.blob("f"), "ff ff ff 7f aa", "WIRE_TRUNCATED", 0, id="huge length"),
        pytest.param(lambda r: r.blob("f"), "ff ff ff ff", "WIRE_BAD_LENGTH", 0, id="length -1"),
        pytest.param(lambda r: r.blob("f"), "00 00 00 80", "WIRE_BAD_LENGTH", 0, id="most negative length"),
        pytest.param(lambda r: r.text("f"), "01 00 00 00 ff", "WIRE_BAD_TEXT", 4, id="text not UTF-8"),
        pytest.param(lambda r: r.text("f"), "05 00 00 00 61", "WIRE_TRUNCATED", 0, id="text cut"),
        pytest.param(lambda r: r.enter("f"), "05 00 00 00 61", "WIRE_TRUNCATED", 0, id="entry cut"),
        pytest.param(lambda r: r.enter("f"), "fe ff ff ff", "WIRE_BAD_LENGTH", 0, id="entry size negative"),
        pytest.param(
            lambda r: (r.enter("f"), r.number(I32, "g")),
            "02 00 00 00 61 62 63 64",
            "WIRE_TRUNCATED",
            4,
            id="field beyond entry",
        ),
    ],
)
def test_reader_never_reads_beyond_its_bound(read: Callable[[Reader], object], data: str, code: str, offset: int) -> None:
    # decisions: limits - "no read outside the frame".
    reader = Reader(bytes.fromhex(data), 3)
    with pytest.raises(DecodeError) as caught:
        read(reader)
    assert (caught.value.code, caught.value.frame, caught.value.offset) == (code, 3, offset)
