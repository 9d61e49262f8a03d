"""The rules of the codec for all messages, not for some: both directions, any damage, bounded memory."""

import tracemalloc

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from hopline.errors import DecodeError, EncodeError, WireError
from hopline.wire import Decoded, FormatName, Message, MessageType, RoutingEntry, Selected, TtlUnit, decode, encode, select
from tests.strategies import LAYOUTS, any_frames, i64s, messages, messages_with_extras, mutations
from tests.vectors.golden import (
    V3_MS_FRAMES,
    V4_FRAMES,
    V5_FRAMES,
    V6_FRAMES,
    blob,
    changed,
    encode_again,
    i32,
    lanes,
    metaframe,
    u16,
)

each_layout = pytest.mark.parametrize(
    ("name", "variant"), [pytest.param(*layout, id="-".join(layout)) for layout in LAYOUTS]
)
generous = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def selectors(value: Message | Selected) -> tuple[object, ...]:
    return (
        value.partition,
        value.version,
        value.identity,
        value.receiver_identity,
        value.receiver_node_identity,
        value.distribution,
    )


def check(frames: list[bytes]) -> Decoded | None:
    """All that must hold for any frame list whatever."""
    decoded = error = None
    try:
        decoded = decode(frames)
    except DecodeError as caught:
        error = caught
    selected = None
    try:
        selected = select(frames)
    except DecodeError:
        event("select fails")
    if error is not None:
        event(error.code)
        assert error.tried, "says what was tried"
        assert error.frame is None or 0 <= error.frame < len(frames)
        assert error.offset is None or (error.frame is not None and 0 <= error.offset <= len(frames[error.frame]))
        return None
    assert decoded is not None
    event(f"{decoded.format} {decoded.variant}")
    assert selected is not None, "select refuses what decode reads"
    assert encode_again(decoded) == frames
    assert (selected.format, selected.frames) == (decoded.format, frames)
    assert selectors(selected) == selectors(decoded.message)
    return decoded


@each_layout
@generous
@given(data=st.data())
def test_a_message_comes_back_as_it_was(name: FormatName, variant: str, data: st.DataObject) -> None:
    message = data.draw(messages(name, variant))
    decoded = decode(encode(message, name, variant))
    assert decoded.message == message
    assert (decoded.format, decoded.variant, decoded.extra) == (name, variant, None)


@generous
@given(message=messages("v3", "", whole_ms=False))
def test_a_v3_message_in_ticks_comes_back_as_it_was(message: Message) -> None:
    assert decode(encode(message, "v3", v3_ttl="ticks"), v3_ttl="ticks").message == message


@given(ttl=i64s)
def test_milliseconds_never_shorten_a_life_nor_make_it_endless(ttl: int) -> None:
    # decisions: TTL.
    if ttl > (2**63 - 1) // 10_000 * 10_000:
        with pytest.raises(EncodeError):  # rounded up, no reader could turn it into ticks again
            encode(Message(ttl_ticks=ttl), "v3")
        return
    back = decode(encode(Message(ttl_ticks=ttl), "v3")).message.ttl_ticks
    assert (back > 0, back < 0) == (ttl > 0, ttl < 0)
    if ttl > 0:
        assert ttl <= back < ttl + 10_000


@each_layout
@generous
@given(data=st.data())
def test_a_future_message_comes_back_with_all_that_was_kept(name: FormatName, variant: str, data: st.DataObject) -> None:
    # decisions: lossless, versioning rules, body frames.
    message, extra = data.draw(messages_with_extras(name, variant))
    decoded = check(encode(message, name, variant, extra))
    assert decoded is not None
    assert decoded.message == message
    assert (decoded.format, decoded.variant, decoded.extra) == (name, variant, extra)


@each_layout
@generous
@given(data=st.data())
def test_a_damaged_message_is_refused_or_read_losslessly(name: FormatName, variant: str, data: st.DataObject) -> None:
    message, extra = data.draw(messages_with_extras(name, variant))
    check(data.draw(mutations(encode(message, name, variant, extra))))


@settings(generous, max_examples=500)
@given(frames=any_frames)
def test_frames_that_nobody_meant_are_refused_or_read_losslessly(frames: list[bytes]) -> None:
    check(frames)


@generous
@given(data=st.data(), forced=st.sampled_from(["v3", "v4", "v5", "v6"]), unit=st.sampled_from(["ms", "ticks"]))
def test_a_forced_format_keeps_the_same_rules(data: st.DataObject, forced: FormatName, unit: TtlUnit) -> None:
    name, variant = data.draw(st.sampled_from(LAYOUTS))
    frames = data.draw(mutations(encode(data.draw(messages(name, variant)), name, variant)))
    try:
        decoded = decode(frames, format=forced, v3_ttl=unit)
    except DecodeError:
        return
    assert decoded.format == forced
    assert encode_again(decoded, unit) == frames


@generous
@given(data=st.data())
def test_a_message_is_the_same_in_every_format_that_can_hold_it(data: st.DataObject) -> None:
    name, variant = data.draw(st.sampled_from(LAYOUTS))
    message = data.draw(messages(name, variant, whole_ms=False))
    for other, layout in LAYOUTS:
        try:
            frames = encode(message, other, layout, v3_ttl="ticks")
        except EncodeError:
            continue
        decoded = decode(frames, v3_ttl="ticks")
        assert (decoded.format, decoded.variant, decoded.message) == (other, layout, message)


# --- memory -----------------------------------------------------------------------------------------------------------

MIB = 1 << 20
HUGE = u16(0xFFFF) * 4
ENTRIES = 65535


def traced_peak(frames: list[bytes]) -> int:
    """The most memory that decoding and selecting took at once, on top of the frames themselves."""
    tracemalloc.start()
    try:
        for read in (decode, select):
            try:
                read(frames)
            except WireError:
                continue
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def meta_with(**changes: bytes) -> list[bytes]:
    return [*V6_FRAMES[:3], metaframe(**changes)]


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(meta_with(RoutingEntryCount__Hops=HUGE), id="v6 routing count"),
        pytest.param(meta_with(CallbackEntryCount=u16(0xFFFF)), id="v6 callback count"),
        pytest.param(meta_with(BodyFirstFrameOffset__BodyFrameCount=HUGE), id="v6 body count"),
        pytest.param(meta_with(Identity=i32(2**31 - 1)), id="v6 length"),
        pytest.param(meta_with(Domain=i32(2**31 - 1)), id="v6 text length"),
        pytest.param(meta_with(Routing_0__size=i32(2**31 - 1)), id="v6 entry size"),
        pytest.param(meta_with(WireFormatVersion=u16(5), end=i32(2**31 - 1)), id="early body copy"),
        *[
            pytest.param(changed(frames, {place: word}), id=f"{name} n-{place}")
            for name, frames in (("v4", V4_FRAMES), ("v5", V5_FRAMES))
            for place in (2, 12, 13)
            for word in (HUGE, lanes(18, 0xFFFF, 3))
        ],
        *[
            pytest.param(changed(V3_MS_FRAMES, {place: i32(2**31 - 1)}), id=f"v3 n-{place}")
            for place in (6, 7, 14, 15, 19, 20)
        ],
        pytest.param(changed(V3_MS_FRAMES, {15: i32(65535)}), id="v3 count at the limit"),
    ],
)
def test_counts_and_lengths_that_lie_allocate_nothing(frames: list[bytes]) -> None:
    # decisions: limits - "no allocation from an unchecked length". A few hundred bytes came in.
    decode(V6_FRAMES)  # what is made once, such as compiled patterns, is not counted
    assert traced_peak(frames) < 64 * 1024


MANY_ROUTES = encode(Message(version=1, routing=(RoutingEntry("u", b"i"),) * ENTRIES))
MANY_POINTS = encode(Message(version=1, callback_points=(MessageType(b"i", 1, b"p"),) * ENTRIES))


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(MANY_ROUTES, id="many routes"),
        pytest.param(MANY_POINTS, id="many callbacks"),
        pytest.param([*MANY_ROUTES[:3], MANY_ROUTES[3][:-1]], id="many routes, cut at the end"),
        pytest.param([*MANY_POINTS[:3], MANY_POINTS[3][:-1]], id="many callbacks, cut at the end"),
        pytest.param([*V6_FRAMES[:3], metaframe(Signature=blob(bytes(MIB)))], id="a large field"),
        pytest.param([*V6_FRAMES[:3], metaframe(Signature=blob(bytes(MIB)))[:-1]], id="a large field, cut at the end"),
        pytest.param([*V6_FRAMES[:3], metaframe(Domain=blob(b"x" * MIB))[:-1]], id="a large text, cut at the end"),
        pytest.param([*V6_FRAMES[:3], metaframe(Domain=blob(b"\xff" * MIB))], id="a large text that is none"),
        pytest.param(encode(Message(version=1, routing=(RoutingEntry("u", b"i"),) * 30000), "v5"), id="v5, many routes"),
        pytest.param(encode(Message(version=1, routing=(RoutingEntry("u", b"i"),) * 30000), "v3"), id="v3, many routes"),
    ],
)
def test_memory_is_a_small_multiple_of_the_input(frames: list[bytes]) -> None:
    # A RoutingEntry takes some hundred bytes where an entry on the wire takes 14; broken input must not cost more than good.
    size = sum(len(frame) + 33 for frame in frames)
    assert traced_peak(frames) < 16 * size + MIB
