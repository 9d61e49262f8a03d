"""The front door: which format it is, what was tried, and what a forced format does."""

import msgspec
import pytest

from hopline.errors import DecodeError, EncodeError
from hopline.wire import (
    DEFAULT_FORMAT,
    FORMATS,
    Decoded,
    Distribution,
    Extra,
    FormatName,
    Message,
    MessageType,
    RoutingEntry,
    Selected,
    decode,
    detect,
    encode,
    select,
)
from hopline.wire.formats import writes_text_version
from tests.vectors.golden import (
    DEFAULT_MESSAGE,
    GOLDEN,
    V3_EMPTY_FRAMES,
    V3_FRAMES,
    V3_MS_FRAMES,
    V4_FRAMES,
    V5_DEFAULT_FRAMES,
    V5_FRAMES,
    V6_DEFAULT_FRAMES,
    V6_FRAMES,
    V6_MESSAGE,
    Golden,
    changed,
    encode_again,
    i32,
    inserted,
    lanes,
    metaframe,
)

NEWEST_FIRST = ["v6", "v5", "v4", "v3"]


def test_the_default_for_new_traffic_is_v6() -> None:
    # decisions: names.
    assert list(FORMATS) == NEWEST_FIRST
    assert NEWEST_FIRST[0] == DEFAULT_FORMAT
    assert encode(V6_MESSAGE) == V6_FRAMES


@pytest.mark.parametrize(("name", "variant"), [("v6", ""), ("v5", "int32-stamp"), ("v4", ""), ("v3", "")])
def test_the_default_variant_is_the_one_of_the_decisions(name: FormatName, variant: str) -> None:
    assert variant == FORMATS[name].DEFAULT_VARIANT
    assert encode(DEFAULT_MESSAGE, name) == encode(DEFAULT_MESSAGE, name, variant)


@pytest.mark.parametrize("golden", [pytest.param(golden, id=golden.name) for golden in GOLDEN])
def test_a_forced_format_gives_what_detection_gives(golden: Golden) -> None:
    forced = decode(golden.frames, format=golden.format, v3_ttl=golden.v3_ttl)
    assert forced == decode(golden.frames, v3_ttl=golden.v3_ttl)


@pytest.mark.parametrize("golden", [pytest.param(golden, id=golden.name) for golden in GOLDEN])
@pytest.mark.parametrize("name", NEWEST_FIRST)
def test_a_forced_format_that_it_is_not_is_refused(golden: Golden, name: FormatName) -> None:
    if name == golden.format:
        return
    with pytest.raises(DecodeError) as caught:
        decode(golden.frames, format=name)
    assert caught.value.code == "WIRE_OTHER_FORMAT"
    assert str(caught.value).startswith(f"not {name}: ")
    assert dict(caught.value.tried)[name] == str(caught.value)


def test_a_forced_format_wins_over_detection() -> None:
    # A v3 message whose body is a metaframe is both; detection says v3, who knows better may say so.
    both = changed(V3_MS_FRAMES, {1: V6_FRAMES[-1]})
    assert decode(both).format == "v3"
    with pytest.raises(DecodeError):  # the body offset 2 is an empty frame of v3, so far it is a v6 message
        decode(both, format="v5")
    forced = decode(both, format="v6")
    assert (forced.format, forced.message.body) == ("v6", b"")
    assert encode(forced.message, "v6", forced.variant, forced.extra) == both


STAMPLESS = [*V5_FRAMES[:-1], b"\x09\x00"]


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([], id="no frames"),
        pytest.param([b""], id="one frame"),
        pytest.param([b"", b""], id="two frames"),
        pytest.param([b"", b"", b"hi"], id="no meta"),
        pytest.param([b"", b"", b"hi", bytes(81)], id="meta too short"),
        pytest.param([b"", b"", b"hi", bytes(200)], id="number 0"),
        pytest.param([*V6_FRAMES[:3], metaframe(WireFormatVersion=b"\x07\x00")], id="number 7"),
        pytest.param([b""] * 30, id="thirty empty frames"),
        pytest.param(STAMPLESS, id="no such stamp"),
        pytest.param(V5_DEFAULT_FRAMES[1:], id="v5 without a frame"),
        pytest.param([*V5_FRAMES, metaframe(WireFormatVersion=b"\x07\x00")], id="many frames, number 7"),
    ],
)
def test_what_is_no_format_says_why_it_is_none_of_them(frames: list[bytes]) -> None:
    # decisions: detection - "an error that lists what was tried and why each failed".
    reasons = []
    for read in (decode, detect, select):
        with pytest.raises(DecodeError) as caught:
            read(frames)
        error = caught.value
        assert error.code == "WIRE_UNKNOWN_FORMAT", read
        assert (error.frame, error.offset) == (None, None)
        assert [attempt.format for attempt in error.tried] == NEWEST_FIRST
        assert all(attempt.reason for attempt in error.tried)
        reasons.append(error.tried)
    assert reasons[0] == reasons[1] == reasons[2]


@pytest.mark.parametrize(
    ("frames", "name"),
    [
        pytest.param([*V6_FRAMES[:3], V6_FRAMES[-1][:-1]], "v6", id="v6"),
        pytest.param(changed(V5_FRAMES, {5: lanes(0, 7)}), "v5", id="v5"),
        pytest.param(changed(V4_FRAMES, {5: lanes(0, 7)}), "v4", id="v4"),
        pytest.param(changed(V3_MS_FRAMES, {9: i32(7)}), "v3", id="v3"),
        pytest.param(changed(V3_MS_FRAMES, {15: i32(-7)}), "v3", id="v3, structure"),
    ],
)
def test_a_broken_message_says_what_was_tried(frames: list[bytes], name: str) -> None:
    assert detect(frames) == name
    with pytest.raises(DecodeError) as caught:
        decode(frames)
    tried = dict(caught.value.tried)
    assert list(tried) == NEWEST_FIRST
    assert tried[name] == str(caught.value)
    assert all(tried.values())


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (V6_FRAMES[-1][:-1], "v6"),
        (b"\x05\x00", "v5"),
        (b"\x05\x00\x00\x00", "v5"),
        (b"\x04\x00\x00\x00", "v4"),
        (b"hi", "v3"),
    ],
)
def test_a_broken_v3_gives_way_to_what_its_body_imitates_but_is_named(body: bytes, name: str) -> None:
    # decisions: detection. The v3 trailer checks do not hold, so it does not win; but it was tried, and the reason says why.
    frames = changed(V3_MS_FRAMES, {15: i32(-7), 1: body})
    assert detect(frames) == name
    with pytest.raises(DecodeError) as of_v3:
        decode(frames, format="v3")
    with pytest.raises(DecodeError) as caught:
        decode(frames)
    assert dict(caught.value.tried)["v3"] == str(of_v3.value)
    assert dict(caught.value.tried)[name] == str(caught.value)


def test_a_broken_v3_around_a_whole_metaframe_is_v6() -> None:
    decoded = decode(changed(V3_MS_FRAMES, {15: i32(-7), 1: V6_FRAMES[-1]}))
    assert (decoded.format, decoded.message.identity, decoded.message.body) == ("v6", b"HELLO", b"")


def test_metaframes_of_many_frames_are_not_taken_for_v3() -> None:
    body = [b"%d" % index for index in range(30)]
    frames = [b"", b"", *body, metaframe(BodyFirstFrameOffset__BodyFrameCount=lanes(31, 30))]
    assert decode(frames).format == detect(frames) == select(frames).format == "v6"


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(changed(V3_MS_FRAMES, {15: i32(-7)}), id="v3"),
        pytest.param(changed(V3_MS_FRAMES, {9: i32(7)}), id="v3, distribution"),
        pytest.param(changed(V4_FRAMES, {5: b""}), id="v4"),
        pytest.param(changed(V5_FRAMES, {7: b""}), id="v5"),
        pytest.param([*V6_FRAMES[:3], metaframe(Identity=i32(-1))], id="v6"),
        pytest.param(inserted([*V6_FRAMES[:3], metaframe(Identity=i32(-1))], 2, *[b""] * 30), id="v6 of many frames"),
    ],
)
def test_where_select_fails_decode_fails_too(frames: list[bytes]) -> None:
    with pytest.raises(DecodeError) as from_select:
        select(frames)
    with pytest.raises(DecodeError) as from_decode:
        decode(frames)
    assert (from_select.value.code, from_select.value.frame) == (from_decode.value.code, from_decode.value.frame)


@pytest.mark.parametrize(
    ("frames", "name"),
    [(V3_EMPTY_FRAMES, "v3"), (V4_FRAMES, "v4"), (V5_DEFAULT_FRAMES, "v5"), (V6_DEFAULT_FRAMES, "v6")],
)
def test_selectors_carry_their_frames_on(frames: list[bytes], name: str) -> None:
    selected = select(frames)
    assert selected.format == name
    assert selected.frames is frames


@pytest.mark.parametrize(
    ("name", "variant"), [(name, variant) for name, module in FORMATS.items() for variant in module.VARIANTS]
)
def test_every_selector_is_read_in_every_layout(name: FormatName, variant: str) -> None:
    # seeds 000 and 001: the fields with a star in the column "route selector". Each value has a length of its own.
    message = Message(
        identity=b"HELLO",
        version=258,
        partition=b"P",
        receiver_identity=b"R1",
        receiver_node_identity=b"N12",
        distribution=Distribution.BROADCAST,
        trace_options=0xFFFF,
    )
    frames = encode(message, name, variant)
    assert select(frames) == Selected(name, b"P", 258, b"HELLO", b"R1", b"N12", Distribution.BROADCAST, frames)
    assert decode(frames).message == message


def test_ttl_unit_is_asked_of_v3_alone() -> None:
    # decisions: TTL.
    assert decode(V3_FRAMES, v3_ttl="ticks").message.ttl_ticks == 50_000_000
    assert decode(V3_FRAMES).message.ttl_ticks == 50_000_000 * 10_000
    for frames in (V4_FRAMES, V5_FRAMES, V6_FRAMES):
        assert decode(frames, v3_ttl="ticks") == decode(frames, v3_ttl="ms")


@pytest.mark.parametrize("name", ["v7", "V6", "000", 6])
def test_an_unknown_format_is_refused_both_ways(name: FormatName) -> None:
    with pytest.raises(EncodeError, match=r"known are v3, v4, v5, v6") as caught:
        encode(Message(), name)
    assert caught.value.code == "WIRE_UNKNOWN_VARIANT"
    with pytest.raises(DecodeError, match=r"known are v3, v4, v5, v6") as refused:
        decode(V6_FRAMES, format=name)
    assert refused.value.code == "WIRE_UNKNOWN_FORMAT"


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("v6", Extra(lead=())),
        ("v6", Extra(body_offset=99)),
        ("v6", Extra(after_routing=(b"x",))),
        ("v5", Extra(trailing=b"x")),
        ("v5", Extra(wire_version=4)),
        ("v5", Extra(text_version=True)),
        ("v5", Extra(idle_routing=(b"\5\0", b"\1\0", b"\2\0"))),
        ("v4", Extra(body_offset=5)),
        ("v3", Extra(body_copy=b"x")),
        ("v3", Extra(idle_callbacks=(b"\x15\0\0\0", b"\1\0\0\0", b"\3\0\0\0"), lead=(b"", b"a", b"b", b"c"))),
    ],
)
def test_an_extra_with_which_nobody_could_read_the_message_is_refused(name: FormatName, extra: Extra) -> None:
    with pytest.raises(EncodeError) as caught:
        encode(Message(identity=b"HELLO", version=1, body=b"hi"), name, None, extra)
    assert caught.value.code == "WIRE_BAD_EXTRA"


@pytest.mark.parametrize("name", NEWEST_FIRST)
def test_a_distribution_that_nobody_could_read_is_refused_on_encode(name: FormatName) -> None:
    # decisions: enumerations - "Distribution other than 0 and 1: error".
    message = Message(version=1, distribution=2)  # type: ignore[arg-type]
    with pytest.raises(EncodeError) as caught:
        encode(message, name)
    assert caught.value.code == "WIRE_BAD_DISTRIBUTION"


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("v6", Extra(after_routing=(b"gap",))),
        ("v6", Extra(idle_routing=(b"", b"", b""))),
        ("v6", Extra(text_version=True)),
        ("v5", Extra(trailing=b"end")),
        ("v5", Extra(routing_reserved=b"\1\0\0\0")),
        ("v4", Extra(wire_version=5)),
        ("v3", Extra(trace_reserved=b"\1\0\0\0")),
        ("v3", Extra(after_body=(b"x",))),
    ],
)
def test_an_extra_that_the_format_has_no_place_for_is_refused(name: FormatName, extra: Extra) -> None:
    with pytest.raises(EncodeError) as caught:
        encode(Message(version=1), name, extra=extra)
    assert caught.value.code == "WIRE_BAD_EXTRA"


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        pytest.param("v6", Extra(lead=()), id="v6, the body is frame 1"),
        pytest.param("v5", Extra(lead=()), id="v5, the body is frame 1"),
        pytest.param("v3", Extra(lead=()), id="v3, too few frames"),
        pytest.param("v5", Extra(body_sizes=()), id="v5, too few frames"),
        pytest.param("v6", Extra(body_offset=9), id="the body before frame 0"),
        pytest.param("v6", Extra(body_offset=2, after_body=(b"x",)), id="another body"),
        pytest.param("v5", Extra(idle_callbacks=(b"\x12\0", b"\1\0", b"\3\0"), lead=(b"",) * 9), id="an entry from nowhere"),
    ],
)
def test_an_extra_with_which_the_message_would_not_come_back_is_refused(name: FormatName, extra: Extra) -> None:
    # decisions: lossless. An Extra that no decode gave must not write what nobody can read, or reads as another message.
    with pytest.raises(EncodeError) as caught:
        encode(Message(version=1), name, extra=extra)
    assert caught.value.code == "WIRE_BAD_EXTRA"


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(changed(V3_EMPTY_FRAMES, {15: i32(-1), 14: i32(-1), 7: i32(0), 6: i32(0)}), id="v3, -1 and 0 for none"),
        pytest.param(changed(V5_DEFAULT_FRAMES, {13: lanes(0, 0, 0), 12: lanes(18, 0, 9)}), id="v5, odd divisors"),
        pytest.param(inserted(V5_DEFAULT_FRAMES, 1, b"id"), id="v5, leading frame"),
        pytest.param([*V6_FRAMES[:3], metaframe(end=b"future")], id="v6, bytes at the end"),
    ],
)
def test_a_router_can_add_its_entry_to_a_message_with_kept_parts(frames: list[bytes]) -> None:
    # decisions: lossless, and hops and trail: what is forwarded grows by an entry, and keeps what nobody understands.
    decoded = decode(frames)
    forwarded = msgspec.structs.replace(
        decoded.message,
        hops=decoded.message.hops + 1,
        routing=(*decoded.message.routing, RoutingEntry("tcp://10.0.0.9:1", b"N9")),
        callback_points=(*decoded.message.callback_points, MessageType(b"A", 1)),
    )
    again = decode(encode_again(msgspec.structs.replace(decoded, message=forwarded)))
    assert again.message == forwarded
    assert (again.format, again.variant) == (decoded.format, decoded.variant)


@pytest.mark.parametrize("name", NEWEST_FIRST)
@pytest.mark.parametrize("variant", ["no such variant", "trailer-18"])
def test_an_unknown_variant_is_refused(name: FormatName, variant: str) -> None:
    with pytest.raises(EncodeError) as caught:
        encode(Message(), name, variant)
    assert caught.value.code == "WIRE_UNKNOWN_VARIANT"


@pytest.mark.parametrize(
    ("name", "variant", "text_version", "text"),
    [
        ("v3", "", None, True),
        ("v4", "", None, False),
        ("v4", "text-version", None, True),
        ("v4", "trailer-13", None, True),
        ("v4", "trailer-13", False, False),
        ("v4", "trailer-14", None, True),
        ("v4", "trailer-16", None, False),
        ("v4", "trailer-17", True, True),
        ("v4", "stamp-3", None, True),
        ("v5", "int32-stamp", None, False),
        ("v6", "early", None, False),
    ],
)
def test_versions_are_text_where_the_layout_writes_them_so(
    name: str, variant: str, text_version: bool | None, text: bool
) -> None:
    # decisions: MAC schemes - "version bytes as on the wire".
    extra = None if text_version is None else Extra(text_version=text_version)
    assert writes_text_version(Decoded(name, variant, 4, Message(), extra)) is text
