"""Format v3, document 003: its own rules, future messages, and what breaks it."""

from itertools import product
from typing import Any

import pytest

from hopline.errors import DecodeError, EncodeError
from hopline.wire import Message, MessageType, RoutingEntry, TtlUnit, decode, detect, encode, select
from hopline.wire.v3 import FIELDS
from hopline.wire.v3 import encode as encode_v3
from tests.vectors.golden import (
    DEFAULT_MESSAGE,
    V3_EMPTY_FRAMES,
    V3_FRAMES,
    V3_MESSAGE,
    V3_MS_FRAMES,
    V4_FRAMES,
    V5_FRAMES,
    V6_FRAMES,
    changed,
    decode_losslessly,
    i32,
    i64,
    inserted,
)

# Places from the end (protocol 1.3).
CALLBACK_DIVISOR, ROUTING_DIVISOR, HOPS, ROUTES, ROUTING_OFFSET, TRACE = 20, 19, 16, 15, 14, 13
VERSION, DISTRIBUTION, CALLBACKS, CALLBACK_OFFSET, TTL, NUMBER, EMPTY, BODY = 12, 9, 7, 6, 4, 3, 2, 1
FIRST_CALLBACK, FIRST_TRAILER = 4, 10
"""Places from the start, in the example."""


def test_new_frames_on_top_of_the_trailer_are_skipped_and_kept() -> None:
    # document 003: "new frames come on top"; decisions: versioning rules.
    future = inserted(V3_MS_FRAMES, FIRST_TRAILER, b"new", b"", b"newer")
    future = changed(future, {CALLBACK_OFFSET: i32(21 + 3), ROUTING_OFFSET: i32(27 + 3)})
    decoded = decode_losslessly(future)
    assert decoded.message == V3_MESSAGE
    assert decoded.extra is not None
    assert decoded.extra.after_callbacks == (b"new", b"", b"newer")


def test_new_frames_on_top_of_a_trailer_without_entries_are_skipped_and_kept() -> None:
    decoded = decode_losslessly(inserted(V3_EMPTY_FRAMES, 2, b"new", b"newer"))
    assert decoded.message == DEFAULT_MESSAGE


def test_new_frames_on_top_of_routing_entries_are_skipped_and_kept() -> None:
    future = inserted(V3_MS_FRAMES, 2, b"new", b"newer", b"tcp://10.0.0.9:1", b"N9", b"x", b"y")
    future = changed(future, {ROUTING_DIVISOR: i32(4), ROUTES: i32(2)})
    decoded = decode_losslessly(future)
    assert decoded.message.routing == (RoutingEntry("tcp://10.0.0.9:1", b"N9"), *V3_MESSAGE.routing)
    assert decoded.message.callback_points == V3_MESSAGE.callback_points
    assert decoded.extra is not None
    assert decoded.extra.routing_rest == ((b"new", b"newer"), (b"x", b"y"))


def test_new_frames_on_top_of_callback_entries_are_skipped_and_kept() -> None:
    future = inserted(inserted(V3_MS_FRAMES, FIRST_CALLBACK + 3, b"second"), FIRST_CALLBACK, b"first")
    future = changed(future, {CALLBACK_DIVISOR: i32(4), ROUTING_OFFSET: i32(21 + 4 * 2)})
    decoded = decode_losslessly(future)
    assert decoded.message == V3_MESSAGE
    assert decoded.extra is not None
    assert decoded.extra.callback_rest == ((b"first",), (b"second",))


def test_frames_between_routing_and_callbacks_are_skipped_and_kept() -> None:
    decoded = decode_losslessly(changed(inserted(V3_MS_FRAMES, FIRST_CALLBACK, b"gap"), {ROUTING_OFFSET: i32(28)}))
    assert decoded.message == V3_MESSAGE
    assert decoded.extra is not None
    assert decoded.extra.after_routing == (b"gap",)


@pytest.mark.parametrize(
    "lead", [(b"delimiter",), (b"", b""), (b"", b"", b"x"), (b"id", b"")], ids=["frame 1", "one", "two", "router id"]
)
@pytest.mark.parametrize("frames", [V3_MS_FRAMES, V3_EMPTY_FRAMES], ids=["example", "defaults"])
def test_leading_frames_do_no_harm_and_are_kept(frames: list[bytes], lead: tuple[bytes, ...]) -> None:
    # protocol 1.2: everything is found from the end; decisions: lossless.
    led = [frames[0], *lead, *frames[2:]]
    decoded = decode_losslessly(led)
    assert decoded.message == decode(frames).message
    assert decoded.extra is not None
    assert decoded.extra.lead == lead


NONE = [b"", i32(0), i32(-1)]


@pytest.mark.parametrize(("count", "offset"), list(product(NONE, NONE)))
def test_empty_0_and_minus_1_mean_no_entries(count: bytes, offset: bytes) -> None:
    # decisions: v3 counts and offsets.
    frames = changed(V3_EMPTY_FRAMES, {ROUTES: count, ROUTING_OFFSET: offset, CALLBACKS: offset, CALLBACK_OFFSET: count})
    decoded = decode_losslessly(frames)
    assert decoded.message == DEFAULT_MESSAGE
    assert encode(decoded.message, "v3") == V3_EMPTY_FRAMES, "written empty"


@pytest.mark.parametrize("none", NONE)
@pytest.mark.parametrize(
    ("places", "field"),
    [((ROUTES, ROUTING_OFFSET), "routing"), ((CALLBACKS, CALLBACK_OFFSET), "callback_points")],
)
def test_one_of_count_and_offset_saying_none_is_enough(none: bytes, places: tuple[int, int], field: str) -> None:
    for place in places:
        decoded = decode_losslessly(changed(V3_MS_FRAMES, {place: none}))
        assert getattr(decoded.message, field) == ()


@pytest.mark.parametrize("divisor", [-1, 0, 1, 7, 2**31 - 1])
def test_divisors_mean_nothing_where_there_are_no_entries(divisor: int) -> None:
    frames = changed(V3_EMPTY_FRAMES, {ROUTING_DIVISOR: i32(divisor), CALLBACK_DIVISOR: i32(divisor)})
    assert decode_losslessly(frames).message == DEFAULT_MESSAGE


# decisions: version in v3. The same rule for the message and for its callback points.
@pytest.mark.parametrize(
    ("raw", "version"),
    [
        (b"1.0", 1),
        (b"0.0", 0),
        (b"65535.0", 65535),
        (b"65536.0", b"65536.0"),
        (b"1.1", b"1.1"),
        (b"", b""),
        (b"\x01\x00", b"\x01\x00"),
    ],
)
def test_version_is_text_both_ways(raw: bytes, version: int | bytes) -> None:
    frames = changed(V3_MS_FRAMES, {VERSION: raw, 30 - 5: raw})
    message = decode_losslessly(frames).message
    assert message.version == version
    assert message.callback_points[0] == MessageType(b"EHHLO", version, b"P")
    assert select(frames).version == version


# decisions: TTL. Milliseconds on the wire, ticks in the message.
@pytest.mark.parametrize(
    ("ms", "ticks"),
    [
        (0, 0),
        (1, 10_000),
        (5_000, 50_000_000),
        (-1, -10_000),
        (922_337_203_685_477, 9_223_372_036_854_770_000),
        (-922_337_203_685_477, -9_223_372_036_854_770_000),
    ],
)
def test_ttl_is_milliseconds_both_ways(ms: int, ticks: int) -> None:
    frames = changed(V3_MS_FRAMES, {TTL: i64(ms)})
    assert decode_losslessly(frames).message.ttl_ticks == ticks
    assert encode(Message(ttl_ticks=ticks), "v3")[-TTL] == i64(ms)


@pytest.mark.parametrize("ticks", [0, 1, 50_000_000, -1, 2**63 - 1, -(2**63)])
def test_ttl_is_ticks_both_ways_for_real_old_traffic(ticks: int) -> None:
    frames = changed(V3_FRAMES, {TTL: i64(ticks)})
    assert decode_losslessly(frames, v3_ttl="ticks").message.ttl_ticks == ticks
    assert encode(Message(ttl_ticks=ticks), "v3", v3_ttl="ticks")[-TTL] == i64(ticks)


@pytest.mark.parametrize(
    ("ticks", "ms"),
    [
        (1, 1),
        (9_999, 1),
        (10_000, 1),
        (10_001, 2),
        (19_999, 2),
        (-1, -1),  # has expired; 0 would never expire
        (-9_999, -1),
        (-10_000, -1),
        (-10_001, -1),
        (-20_000, -2),
        (-20_001, -2),
    ],
)
def test_writing_milliseconds_rounds_up_and_never_to_0(ticks: int, ms: int) -> None:
    # decisions: "rounds up, never down to 0. 0 = never expires; negative = already expired".
    assert encode(Message(ttl_ticks=ticks), "v3")[-TTL] == i64(ms)


@pytest.mark.parametrize("ms", [922_337_203_685_478, -922_337_203_685_478, 2**63 - 1, -(2**63)])
def test_milliseconds_that_do_not_fit_ticks_are_refused(ms: int) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(changed(V3_MS_FRAMES, {TTL: i64(ms)}))
    assert (caught.value.code, caught.value.frame) == ("WIRE_BAD_TTL", 30 - TTL)
    assert str(ms) in str(caught.value)


@pytest.mark.parametrize(
    ("unit", "ticks"),
    [("ms", 2**63), ("ms", 2**80), ("ms", -(2**80)), ("ticks", 2**63), ("ticks", -(2**63) - 1), ("ticks", 2**80)],
)
def test_ticks_that_do_not_fit_are_refused(unit: TtlUnit, ticks: int) -> None:
    # decisions: "A value that does not fit is `WIRE_BAD_TTL`". The field is "int64, kept as ticks of 100 ns".
    with pytest.raises(EncodeError) as caught:
        encode(Message(ttl_ticks=ticks), "v3", v3_ttl=unit)
    assert caught.value.code == "WIRE_BAD_TTL"


@pytest.mark.parametrize("ticks", [9_223_372_036_854_770_001, 2**63 - 1])
def test_ticks_that_round_up_to_unreadable_milliseconds_are_refused(ticks: int) -> None:
    # Rounded up they are 922 337 203 685 478 ms, which no reader can turn into ticks again.
    with pytest.raises(EncodeError) as caught:
        encode(Message(ttl_ticks=ticks), "v3")
    assert caught.value.code == "WIRE_BAD_TTL"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(V6_FRAMES[-1], id="a metaframe"),
        pytest.param(V5_FRAMES[-1], id="the v5 stamp of 4 bytes"),
        pytest.param(V5_FRAMES[-1][:2], id="the v5 stamp of 2 bytes"),
        pytest.param(V4_FRAMES[-1], id="the v4 stamp"),
        pytest.param(b"\x03\x00\x00\x00", id="the stamp 3"),
        pytest.param(b"", id="nothing"),
    ],
)
@pytest.mark.parametrize("frames", [V3_MS_FRAMES, V3_EMPTY_FRAMES], ids=["example", "defaults"])
def test_v3_wins_over_what_its_body_imitates(frames: list[bytes], body: bytes) -> None:
    # decisions: detection.
    imitating = changed(frames, {BODY: body})
    decoded = decode_losslessly(imitating)
    assert (decoded.format, decoded.message.body) == ("v3", body)
    assert detect(imitating) == select(imitating).format == "v3"


def test_unknown_trace_options_are_kept() -> None:
    # decisions: enumerations. 64 bits in v3.
    for bits in (2, 0xFFFF_FFFF, -1):
        assert decode_losslessly(changed(V3_MS_FRAMES, {TRACE: i64(bits)})).message.trace_options == bits


@pytest.mark.parametrize(
    ("changes", "code", "place"),
    [
        pytest.param({DISTRIBUTION: i32(2)}, "WIRE_BAD_DISTRIBUTION", DISTRIBUTION, id="distribution 2"),
        pytest.param({DISTRIBUTION: i32(-1)}, "WIRE_BAD_DISTRIBUTION", DISTRIBUTION, id="distribution -1"),
        pytest.param({DISTRIBUTION: b""}, "WIRE_BAD_LENGTH", DISTRIBUTION, id="distribution empty"),
        pytest.param({HOPS: b"\x01"}, "WIRE_BAD_LENGTH", HOPS, id="hops of 1 byte"),
        pytest.param({TRACE: i32(1)}, "WIRE_BAD_LENGTH", TRACE, id="trace options of 4 bytes"),
        pytest.param({TTL: i32(1)}, "WIRE_BAD_LENGTH", TTL, id="TTL of 4 bytes"),
        pytest.param({ROUTES: b"\x01"}, "WIRE_BAD_LENGTH", ROUTES, id="count of 1 byte"),
        pytest.param({ROUTING_OFFSET: i64(27)}, "WIRE_BAD_LENGTH", ROUTING_OFFSET, id="offset of 8 bytes"),
        pytest.param({CALLBACKS: b"\x02\x00"}, "WIRE_BAD_LENGTH", CALLBACKS, id="callback count of 2 bytes"),
        pytest.param({CALLBACK_OFFSET: b"\x15"}, "WIRE_BAD_LENGTH", CALLBACK_OFFSET, id="callback offset of 1 byte"),
        pytest.param({28: b"\xff"}, "WIRE_BAD_TEXT", 28, id="URI not UTF-8"),
        pytest.param({ROUTES: i32(-2)}, "WIRE_BAD_COUNT", ROUTES, id="negative count"),
        pytest.param({ROUTES: i32(2**31 - 1)}, "WIRE_BAD_COUNT", ROUTES, id="huge count"),
        pytest.param({CALLBACKS: i32(65536)}, "WIRE_BAD_COUNT", CALLBACKS, id="callback count above the limit"),
        pytest.param({ROUTES: i32(65535)}, "WIRE_BAD_OFFSET", ROUTING_OFFSET, id="more entries than frames"),
        pytest.param({ROUTING_OFFSET: i32(-2)}, "WIRE_BAD_OFFSET", ROUTING_OFFSET, id="negative offset"),
        pytest.param({ROUTING_OFFSET: i32(2**31 - 1)}, "WIRE_BAD_OFFSET", ROUTING_OFFSET, id="huge offset"),
        pytest.param({ROUTING_OFFSET: i32(26)}, "WIRE_BAD_OFFSET", ROUTING_OFFSET, id="routing in the callbacks"),
        pytest.param({ROUTING_OFFSET: i32(28)}, "WIRE_BAD_OFFSET", ROUTING_OFFSET, id="routing in the socket's frames"),
        pytest.param({CALLBACK_OFFSET: i32(20)}, "WIRE_BAD_OFFSET", CALLBACK_OFFSET, id="callbacks in the trailer"),
        pytest.param({ROUTING_DIVISOR: i32(1)}, "WIRE_BAD_ENTRY", ROUTING_DIVISOR, id="routing divisor 1"),
        pytest.param({ROUTING_DIVISOR: i32(-2)}, "WIRE_BAD_ENTRY", ROUTING_DIVISOR, id="routing divisor negative"),
        pytest.param({CALLBACK_DIVISOR: i32(2)}, "WIRE_BAD_ENTRY", CALLBACK_DIVISOR, id="callback divisor 2"),
        pytest.param({CALLBACK_DIVISOR: i32(2**31 - 1)}, "WIRE_BAD_OFFSET", CALLBACK_OFFSET, id="huge callback divisor"),
    ],
)
def test_a_broken_message_is_refused_with_its_place(changes: dict[int, bytes], code: str, place: int | None) -> None:
    # decisions: limits.
    frames = changed(V3_MS_FRAMES, changes)
    assert detect(frames) == "v3"
    with pytest.raises(DecodeError) as caught:
        decode(frames)
    error = caught.value
    assert (error.code, error.frame) == (code, None if place is None else len(frames) - place)
    assert error.offset is None


@pytest.mark.parametrize("index", range(len(V3_MS_FRAMES)))
def test_a_message_that_lost_a_frame_is_refused(index: int) -> None:
    with pytest.raises(DecodeError):
        decode(V3_MS_FRAMES[:index] + V3_MS_FRAMES[index + 1 :])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({NUMBER: i32(2)}, "frame n-3 is not the number 3 in 4 bytes"),
        ({NUMBER: b"\x03\x00"}, "frame n-3 is not the number 3 in 4 bytes"),
        ({EMPTY: b"x"}, "frame n-2 is not empty"),
        ({CALLBACK_DIVISOR: b"\x03\x00"}, "frames n-20 and n-19 are not divisors of 4 bytes"),
        ({ROUTING_DIVISOR: b""}, "frames n-20 and n-19 are not divisors of 4 bytes"),
    ],
)
def test_what_does_not_look_like_v3_says_why(changes: dict[int, bytes], reason: str) -> None:
    frames = changed(V3_MS_FRAMES, changes)
    with pytest.raises(DecodeError) as caught:
        decode(frames)
    assert caught.value.code == "WIRE_UNKNOWN_FORMAT"
    assert dict(caught.value.tried)["v3"] == reason
    with pytest.raises(DecodeError) as caught:
        decode(frames, format="v3")
    assert (caught.value.code, str(caught.value)) == ("WIRE_OTHER_FORMAT", f"not v3: {reason}")


def test_too_few_frames_are_not_v3() -> None:
    with pytest.raises(DecodeError) as caught:
        decode(V3_EMPTY_FRAMES[1:], format="v3")
    assert (caught.value.code, str(caught.value)) == ("WIRE_OTHER_FORMAT", "not v3: 21 frames, at least 22 are needed")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"hops": 2**31}, "WIRE_OVERFLOW"),
        ({"hops": -(2**31) - 1}, "WIRE_OVERFLOW"),
        ({"trace_options": 2**63}, "WIRE_OVERFLOW"),
        ({"version": 65536}, "WIRE_OVERFLOW"),
        ({"version": -1}, "WIRE_OVERFLOW"),
        ({"callback_points": (MessageType(b"A", 65536),)}, "WIRE_OVERFLOW"),
        ({"routing": (RoutingEntry("\ud800", b""),)}, "WIRE_BAD_TEXT"),
        ({"callback_key": 1}, "WIRE_UNSUPPORTED_FIELD"),
        ({"callback_receiver_node_identity": b"N"}, "WIRE_UNSUPPORTED_FIELD"),
        ({"domain": "d"}, "WIRE_UNSUPPORTED_FIELD"),
        ({"signature": b"s"}, "WIRE_UNSUPPORTED_FIELD"),
    ],
)
def test_what_does_not_fit_is_refused_on_encode(fields: dict[str, Any], code: str) -> None:
    # decisions: limits - "v3: int32".
    with pytest.raises(EncodeError) as caught:
        encode(Message(**fields), "v3")
    assert caught.value.code == code


def test_numbers_use_their_whole_width() -> None:
    message = Message(hops=2**31 - 1, trace_options=2**63 - 1, version=65535)
    assert decode(encode(message, "v3")).message == message


@pytest.mark.parametrize(
    "message",
    [Message(routing=(RoutingEntry(),) * 65536), Message(callback_points=(MessageType(),) * 65536)],
    ids=["routing", "callbacks"],
)
def test_more_entries_than_the_limit_are_refused_on_encode_too(message: Message) -> None:
    # decisions: limits - a count above the limit is an error. What we write we must be able to read.
    with pytest.raises(EncodeError, match=r"65535|65536"):
        encode(message, "v3")


def test_as_many_entries_as_the_limit_are_written_and_read() -> None:
    message = Message(routing=(RoutingEntry("u", b"i"),) * 65535, callback_points=(MessageType(b"i", 1, b"p"),) * 65535)
    assert decode(encode(message, "v3")).message == message


def test_fields_stand_where_the_document_puts_them() -> None:
    assert list(FIELDS) == list(range(20, 0, -1))


def test_v3_has_no_variants() -> None:
    with pytest.raises(EncodeError) as caught:
        encode_v3(Message(), "early")
    assert caught.value.code == "WIRE_UNKNOWN_VARIANT"
    assert "'early'" in str(caught.value)


def test_v3_has_exactly_one_body_frame() -> None:
    extra = decode([*V5_FRAMES[:2], b"a", *V5_FRAMES[2:-2], bytes.fromhex("1b 00 02 00 00 00 00 00"), V5_FRAMES[-1]]).extra
    with pytest.raises(EncodeError) as caught:
        encode(Message(body=b"a\x0a\x02hi"), "v3", extra=extra)
    assert caught.value.code == "WIRE_BAD_EXTRA"
