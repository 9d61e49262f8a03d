"""Format v6, document 000: the metaframe, whole, future, early, and broken at every byte."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest

from hopline.errors import DecodeError, EncodeError
from hopline.wire import Extra, Message, MessageType, RoutingEntry, decode, encode, select
from hopline.wire.primitives import Reader, Span
from hopline.wire.v6 import walk
from tests.vectors.golden import (
    BODY_COPY,
    V6_DEFAULT_FRAMES,
    V6_EARLY_FRAMES,
    V6_FIELDS,
    V6_FRAMES,
    V6_MESSAGE,
    blob,
    changed,
    decode_losslessly,
    i32,
    i64,
    lanes,
    metaframe,
    u16,
)

META = len(V6_FRAMES) - 1
ENVELOPE = [b"N2", b"", b"\x0a\x02hi"]


def message_with(**changes: bytes) -> list[bytes]:
    """The example with some fields of its metaframe replaced."""
    return [*ENVELOPE, metaframe(**changes)]


def place_of(field: str) -> int:
    """The byte of the metaframe where a field of the example starts."""
    names = list(V6_FIELDS)
    return sum(len(V6_FIELDS[name]) for name in names[: names.index(field)])


def early(frames: list[bytes], offset: int, count: int, copy: bytes, end: bytes = b"") -> list[bytes]:
    """An early message: number 5, and the body repeated after the last field."""
    tail = {"BodyFirstFrameOffset__BodyFrameCount": lanes(offset, count)}
    return [*frames, metaframe(WireFormatVersion=u16(5), end=blob(copy) + end, **tail)]


# --- versioning rows of document 000 ----------------------------------------------------------------------------------


def test_new_bytes_at_the_end_of_entries_are_skipped_and_kept() -> None:
    # "new frames come here", within an entry; decisions: versioning rules - entry size.
    future = message_with(
        Routing_0__size=i32(29 + 3),
        Routing_0__Identity=blob(b"N1") + b"new",
        Callback_1__size=i32(24 + 1),
        Callback_1__Identity=blob(b"KINO.EXCEPTION") + b"\xff",
    )
    decoded = decode_losslessly(future)
    assert decoded.message == V6_MESSAGE
    assert decoded.extra is not None
    assert decoded.extra.routing_rest == ((b"new",),)
    assert decoded.extra.callback_rest == ((), (b"\xff",))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"Routing_0__size": i32(30), "Routing_0__Identity": blob(b"N1") + b"x"}, "routing_rest"),
        ({"Callback_0__size": i32(17), "Callback_0__Identity": blob(b"EHHLO") + b"x"}, "callback_rest"),
    ],
)
def test_new_bytes_of_one_kind_of_entry_are_kept_alone(changes: dict[str, bytes], field: str) -> None:
    decoded = decode_losslessly(message_with(**changes))
    assert decoded.message == V6_MESSAGE
    kept = {name: getattr(decoded.extra, name) for name in ("routing_rest", "callback_rest")}
    assert kept.pop(field)[0] == (b"x",)
    assert list(kept.values()) == [()]


def test_new_bytes_of_entries_without_the_other_kind() -> None:
    no_routing = {"RoutingEntryCount__Hops": lanes(0, 1)} | dict.fromkeys(
        ("Routing_0__size", "Routing_0__URI", "Routing_0__Identity"), b""
    )
    no_callbacks = {"CallbackEntryCount": u16(0)} | dict.fromkeys(
        (f"Callback_{i}__{part}" for i in (0, 1) for part in ("size", "Partition", "Version", "Identity")), b""
    )
    with_callback = message_with(**no_routing, Callback_0__size=i32(17), Callback_0__Identity=blob(b"EHHLO") + b"x")
    with_routing = message_with(**no_callbacks, Routing_0__size=i32(30), Routing_0__Identity=blob(b"N1") + b"x")
    assert decode_losslessly(with_callback).message.callback_points == V6_MESSAGE.callback_points
    assert decode_losslessly(with_routing).message.routing == V6_MESSAGE.routing


@pytest.mark.parametrize("end", [b"x", b"\x00\x00\x00\x00", BODY_COPY, bytes(300)])
@pytest.mark.parametrize("number", [4, 6])
def test_bytes_after_the_last_field_are_skipped_and_kept(number: int, end: bytes) -> None:
    decoded = decode_losslessly(message_with(WireFormatVersion=u16(number), end=end))
    assert (decoded.variant, decoded.message) == ("", V6_MESSAGE)
    assert decoded.extra is not None
    assert decoded.extra.trailing == end


@pytest.mark.parametrize("new", [(b"new",), (b"", b"newer"), (b"x",) * 40])
def test_new_frames_between_body_and_meta_are_skipped_and_kept(new: tuple[bytes, ...]) -> None:
    # seed 000, frame row: "VERSIONING: new frames come here"; decisions: versioning rules.
    meta = metaframe(BodyFirstFrameOffset__BodyFrameCount=lanes(2 + len(new), 1))
    decoded = decode_losslessly([*ENVELOPE, *new, meta])
    assert decoded.message == V6_MESSAGE
    assert decoded.extra is not None
    assert decoded.extra.after_body == new


# --- body, leading frames, reserved lanes -----------------------------------------------------------------------------


@pytest.mark.parametrize("body", [(b"a", b"bc"), (b"", b""), (b"x",) * 300])
def test_several_body_frames_are_joined_and_kept_apart(body: tuple[bytes, ...]) -> None:
    # decisions: body frames - one-based from the end.
    meta = metaframe(BodyFirstFrameOffset__BodyFrameCount=lanes(1 + len(body), len(body)))
    decoded = decode_losslessly([b"N2", b"", *body, meta])
    assert decoded.message.body == b"".join(body)
    assert decoded.extra is not None
    assert decoded.extra.body_sizes == tuple(map(len, body))


@pytest.mark.parametrize(
    ("frames", "offset"),
    [
        pytest.param([b"N2", b""], 0, id="no offset either"),
        pytest.param([b"N2", b""], 1, id="offset where it would be"),
        pytest.param([b"N2", b"", b"x"], 0, id="a frame that is no body"),
        pytest.param([b"N2", b"", b"x"], 2, id="before a frame that is no body"),
    ],
)
def test_no_body_frame_at_all_is_an_empty_body(frames: list[bytes], offset: int) -> None:
    decoded = decode_losslessly([*frames, metaframe(BodyFirstFrameOffset__BodyFrameCount=lanes(offset, 0))])
    assert decoded.message.body == b""
    assert decoded.message.identity == b"HELLO"


@pytest.mark.parametrize(
    "lead", [(b"delimiter",), (b"", b""), (b"", b"", b"x"), (b"id", b"")], ids=["frame 1", "one", "two", "router id"]
)
@pytest.mark.parametrize("frames", [V6_FRAMES, V6_EARLY_FRAMES], ids=["v6", "early"])
def test_leading_frames_do_no_harm_and_are_kept(frames: list[bytes], lead: tuple[bytes, ...]) -> None:
    decoded = decode_losslessly([frames[0], *lead, *frames[2:]])
    assert decoded.message == V6_MESSAGE
    assert decoded.extra == Extra(lead=lead)


@pytest.mark.parametrize(
    ("field", "kept"),
    [
        ("TraceOptions, Distribution", "trace_reserved"),
        ("RoutingEntryCount, Hops", "routing_reserved"),
        ("BodyFirstFrameOffset, BodyFrameCount", "body_reserved"),
    ],
)
@pytest.mark.parametrize("reserved", ["01 00 00 00", "00 00 00 80", "ff ff ff ff"])
def test_reserved_lanes_are_ignored_and_kept(field: str, kept: str, reserved: str) -> None:
    # seed 000: "33-48 RESERVED, 49-64 RESERVED"; decisions: lossless.
    name = "".join(c if c.isalnum() else "_" for c in field)
    raw = V6_FIELDS[field][:4] + bytes.fromhex(reserved)
    decoded = decode_losslessly(message_with(**{name: raw}))
    assert decoded.message == V6_MESSAGE
    assert decoded.extra == msgspec.structs.replace(Extra(), **{kept: bytes.fromhex(reserved)})


@pytest.mark.parametrize("number", [4, 5])
def test_the_layout_decides_not_the_number(number: int) -> None:
    # decisions: numbers accepted in a metaframe. 4 is the document's title, 5 early code; here without a repeated body.
    decoded = decode_losslessly(message_with(WireFormatVersion=u16(number)))
    assert (decoded.format, decoded.variant, decoded.wire_version) == ("v6", "", number)
    assert decoded.message == V6_MESSAGE
    assert decoded.extra == Extra(wire_version=number)


# --- early metaframes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 1, 2, 7, 65535])
@pytest.mark.parametrize("lead", [[], [b"more"], [b"", b""]], ids=["none", "one", "two"])
def test_early_with_one_body_frame_takes_the_frame_before_meta(offset: int, lead: list[bytes]) -> None:
    # decisions: body frames. 1.0.1: early code wrote an absolute 2, then 1, then 2 from the end.
    decoded = decode_losslessly(early([b"N2", b"", *lead, b"\x0a\x02hi"], offset, 1, b"\x0a\x02hi"))
    assert (decoded.variant, decoded.wire_version, decoded.message) == ("early", 5, V6_MESSAGE)


def test_early_with_more_body_frames_has_an_absolute_index() -> None:
    # decisions: body frames - "with a larger count an absolute index".
    decoded = decode_losslessly(early([b"N2", b"", b"a", b"bc", b"after"], 2, 2, b"abc"))
    assert decoded.message.body == b"abc"
    assert decoded.extra == Extra(body_sizes=(1, 2), after_body=(b"after",))
    decoded = decode_losslessly(early([b"N2", b"", b"lead", b"a", b"bc"], 3, 2, b"abc"))
    assert decoded.message.body == b"abc"
    assert decoded.extra == Extra(lead=(b"", b"lead"), body_sizes=(1, 2)), "the offset follows from the layout"


@pytest.mark.parametrize("offset", [0, 1, 4, 65535])
def test_early_with_more_body_frames_than_fit_is_refused(offset: int) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(early([b"N2", b"", b"a", b"bc"], offset, 2, b"abc"))
    assert (caught.value.code, caught.value.frame) == ("WIRE_BAD_OFFSET", 4)


def test_early_without_body_frames_keeps_its_offset() -> None:
    assert decode_losslessly(early([b"N2", b""], 2, 0, b"")).message.body == b""


@pytest.mark.parametrize("copy", [b"", b"other", b"\x0a\x02hi!"])
def test_a_repeated_body_that_is_not_the_body_is_kept(copy: bytes) -> None:
    # protocol 1.6, field 20: "ignored by every reader".
    decoded = decode_losslessly(early(ENVELOPE, 2, 1, copy))
    assert (decoded.variant, decoded.message) == ("early", V6_MESSAGE)
    assert decoded.extra == Extra(body_copy=copy)


def test_bytes_after_the_repeated_body_are_kept() -> None:
    decoded = decode_losslessly(early(ENVELOPE, 2, 1, b"\x0a\x02hi", b"future"))
    assert (decoded.variant, decoded.message) == ("early", V6_MESSAGE)
    assert decoded.extra == Extra(trailing=b"future")


@pytest.mark.parametrize("end", [b"x", b"\x01\x00\x00", b"\x02\x00\x00\x00x", b"\xff\xff\xff\xffx"])
def test_number_5_with_other_bytes_at_the_end_is_not_early(end: bytes) -> None:
    decoded = decode_losslessly(message_with(WireFormatVersion=u16(5), end=end))
    assert (decoded.variant, decoded.message) == ("", V6_MESSAGE)
    assert decoded.extra == Extra(wire_version=5, trailing=end)


def test_early_writes_number_5_offset_2_and_the_body_again() -> None:
    frames = encode(Message(identity=b"HELLO", version=1, body=b"hi"), "v6", "early")
    assert frames[-1][:2] == b"\x05\x00"
    assert frames[-1].endswith(lanes(2, 1) + blob(b"hi"))


# --- broken messages --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frames", [V6_FRAMES, V6_EARLY_FRAMES, V6_DEFAULT_FRAMES], ids=["v6", "early", "defaults"])
def test_a_metaframe_cut_at_any_byte_is_refused(frames: list[bytes]) -> None:
    meta = frames[-1]
    whole = meta.index(lanes(2, 1), 60) + 8
    for size in range(whole):
        with pytest.raises(DecodeError) as caught:
            decode([*frames[:-1], meta[:size]])
        error = caught.value
        if size < 82:
            assert error.code == "WIRE_UNKNOWN_FORMAT", size
            assert dict(error.tried)["v6"] == f"the last frame has {size} bytes, a metaframe has at least 82"
        else:
            assert (error.code, error.frame) == ("WIRE_TRUNCATED", META), size
            assert error.offset is not None
            assert error.offset <= size
    assert decode([*frames[:-1], meta[:whole]]).message.identity == b"HELLO"


def test_a_repeated_body_that_is_cut_is_no_repeated_body() -> None:
    # Nobody reads it, so a message is not lost for it.
    for size in range(194, 202):
        decoded = decode_losslessly([*ENVELOPE, V6_EARLY_FRAMES[-1][:size]])
        assert (decoded.variant, decoded.message) == ("", V6_MESSAGE)


@pytest.mark.parametrize("index", range(4))
def test_a_message_that_lost_a_frame_is_refused(index: int) -> None:
    for frames in (V6_FRAMES, V6_EARLY_FRAMES, V6_DEFAULT_FRAMES):
        with pytest.raises(DecodeError):
            decode(frames[:index] + frames[index + 1 :])


WITH_LENGTH = [
    "Partition",
    "Identity",
    "ReceiverIdentity",
    "ReceiverNodeIdentity",
    "CallbackReceiverNodeIdentity",
    "Domain",
    "Signature",
    "Routing[0] size",
    "Routing[0] URI",
    "Routing[0] Identity",
    "Callback[0] size",
    "Callback[1] Partition",
    "Callback[1] Identity",
    "CallbackReceiverIdentity",
    "CorrelationId",
]


@pytest.mark.parametrize("field", WITH_LENGTH)
@pytest.mark.parametrize(
    ("length", "code"),
    [
        (-1, "WIRE_BAD_LENGTH"),
        (-(2**31), "WIRE_BAD_LENGTH"),
        (2**31 - 1, "WIRE_TRUNCATED"),
        (200, "WIRE_TRUNCATED"),
    ],
)
def test_a_length_that_lies_is_refused_with_its_byte(field: str, length: int, code: str) -> None:
    # decisions: limits - "no read outside the frame, no allocation from an unchecked length".
    meta = V6_FRAMES[-1]
    start = place_of(field)
    broken = [*ENVELOPE, meta[:start] + i32(length) + meta[start + 4 :]]
    with pytest.raises(DecodeError) as caught:
        decode(broken)
    assert (caught.value.code, caught.value.frame, caught.value.offset) == (code, META, start)


@pytest.mark.parametrize(
    ("field", "size", "inner"),
    [
        ("Routing[0] size", 28, "Routing[0] Identity"),
        ("Routing[0] size", 22, "Routing[0] URI"),
        ("Routing[0] size", 3, "Routing[0] URI"),
        ("Routing[0] size", 0, "Routing[0] URI"),
        ("Callback[0] size", 15, "Callback[0] Identity"),
        ("Callback[0] size", 6, "Callback[0] Version"),
        ("Callback[0] size", 0, "Callback[0] Partition"),
        ("Callback[1] size", 23, "Callback[1] Identity"),
    ],
)
def test_an_entry_smaller_than_its_fields_is_refused(field: str, size: int, inner: str) -> None:
    meta = V6_FRAMES[-1]
    start = place_of(field)
    with pytest.raises(DecodeError) as caught:
        decode([*ENVELOPE, meta[:start] + i32(size) + meta[start + 4 :]])
    error = caught.value
    assert (error.code, error.frame) == ("WIRE_TRUNCATED", META)
    assert error.offset is not None
    assert place_of(inner) <= error.offset <= place_of(inner) + 4


def test_an_entry_larger_than_its_frame_is_refused() -> None:
    meta = V6_FRAMES[-1]
    start = place_of("Callback[1] size")
    left = len(meta) - start - 4
    with pytest.raises(DecodeError) as caught:
        decode([*ENVELOPE, meta[:start] + i32(left + 1) + meta[start + 4 :]])
    assert (caught.value.code, caught.value.offset) == ("WIRE_TRUNCATED", start)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        pytest.param({"RoutingEntryCount__Hops": lanes(65535, 1)}, "WIRE_TRUNCATED", id="huge routing count"),
        pytest.param({"CallbackEntryCount": u16(65535)}, "WIRE_TRUNCATED", id="huge callback count"),
    ],
)
def test_a_count_that_lies_is_refused(changes: dict[str, bytes], code: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(message_with(**changes))
    assert caught.value.code in {code, "WIRE_BAD_LENGTH"}
    assert caught.value.frame == META


@pytest.mark.parametrize("distribution", [2, 255, 256, 65535])
def test_any_other_distribution_is_refused_with_its_byte(distribution: int) -> None:
    frames = message_with(TraceOptions__Distribution=lanes(0, distribution))
    for read in (decode, select):
        with pytest.raises(DecodeError) as caught:
            read(frames)
        assert (caught.value.code, caught.value.frame) == ("WIRE_BAD_DISTRIBUTION", META)
        assert caught.value.offset == place_of("TraceOptions, Distribution")


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"Domain": blob(b"do\xff")}, "Domain"),
        ({"Routing_0__size": i32(11), "Routing_0__URI": blob(b"\xc3")}, "Routing[0] URI"),
    ],
)
def test_text_that_is_not_utf8_is_refused_with_its_byte(changes: dict[str, bytes], place: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(message_with(**changes))
    assert (caught.value.code, caught.value.frame) == ("WIRE_BAD_TEXT", META)
    assert caught.value.offset == place_of(place) + 4


@pytest.mark.parametrize(
    ("offset", "count"),
    [
        pytest.param(0, 1, id="the frame after meta"),
        pytest.param(1, 1, id="meta itself"),
        pytest.param(3, 1, id="frame 1"),
        pytest.param(4, 1, id="frame 0"),
        pytest.param(5, 1, id="before frame 0"),
        pytest.param(65535, 1, id="far before frame 0"),
        pytest.param(2, 2, id="into meta"),
        pytest.param(2, 65535, id="far beyond meta"),
        pytest.param(3, 0, id="nothing, but at frame 1"),
    ],
)
def test_a_body_that_is_not_between_socket_and_meta_is_refused(offset: int, count: int) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(message_with(BodyFirstFrameOffset__BodyFrameCount=lanes(offset, count)))
    assert (caught.value.code, caught.value.frame) == ("WIRE_BAD_OFFSET", META)
    assert f"offset {offset}" in str(caught.value)


@pytest.mark.parametrize("number", [0, 1, 2, 3, 7, 0x0506, 0x0600, 65535])
def test_other_numbers_are_no_metaframe(number: int) -> None:
    frames = message_with(WireFormatVersion=u16(number))
    with pytest.raises(DecodeError) as caught:
        decode(frames, format="v6")
    assert caught.value.code == "WIRE_OTHER_FORMAT"
    assert str(number) in str(caught.value)


@pytest.mark.parametrize("frames", [[], [b""], [b"", V6_FRAMES[-1]]])
def test_too_few_frames_are_no_message(frames: list[bytes]) -> None:
    with pytest.raises(DecodeError, match=f"^not v6: {len(frames)} frames, at least 3 are needed$"):
        decode(frames, format="v6")


def test_selectors_do_not_need_the_rest_to_be_whole() -> None:
    # seed 000: the route selectors come first.
    meta = V6_FRAMES[-1]
    selected = select([*ENVELOPE, meta[: place_of("CallbackKey")] + b"\xff" * 90])
    assert (selected.format, selected.identity, selected.version) == ("v6", b"HELLO", 1)
    with pytest.raises(DecodeError):
        decode(selected.frames)


def test_selectors_themselves_are_checked() -> None:
    for field in ("Partition", "Identity", "ReceiverIdentity", "ReceiverNodeIdentity"):
        start, meta = place_of(field), V6_FRAMES[-1]
        with pytest.raises(DecodeError) as caught:
            select([*ENVELOPE, meta[:start] + i32(1000) + meta[start + 4 :]])
        assert (caught.value.code, caught.value.offset) == ("WIRE_TRUNCATED", start)


# --- the map ----------------------------------------------------------------------------------------------------------


def map_of(frames: list[bytes]) -> list[Span]:
    spans: list[Span] = []
    walk(Reader(frames[-1], len(frames) - 1, spans))
    return spans


def test_the_map_covers_every_byte_once() -> None:
    future = message_with(Callback_1__size=i32(25), Callback_1__Identity=blob(b"KINO.EXCEPTION") + b"\xff", end=b"end")
    for frames in (V6_FRAMES, V6_DEFAULT_FRAMES, V6_EARLY_FRAMES, future):
        spans = map_of(frames)
        assert spans[0].offset == 0
        assert all(one.offset + one.size == two.offset for one, two in pairwise(spans))
        assert spans[-1].offset + spans[-1].size == len(frames[-1])
        assert {span.frame for span in spans} == {META}
    assert Span(META, 2 + 4 + 2 + 4, 5, "Identity", '"HELLO"') in map_of(V6_FRAMES)


# --- encoding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "code", "named"),
    [
        ({"hops": 65536}, "WIRE_OVERFLOW", "Hops"),
        ({"hops": -1}, "WIRE_OVERFLOW", "Hops"),
        ({"trace_options": 65536}, "WIRE_OVERFLOW", "TraceOptions"),
        ({"trace_options": -1}, "WIRE_OVERFLOW", "TraceOptions"),
        ({"version": 65536}, "WIRE_OVERFLOW", "Version"),
        ({"version": -1}, "WIRE_OVERFLOW", "Version"),
        ({"version": b"1.1"}, "WIRE_BAD_VERSION", "Version"),
        ({"callback_points": (MessageType(b"A", 65536),)}, "WIRE_OVERFLOW", "Version"),
        ({"callback_points": (MessageType(b"A", b"1.1"),)}, "WIRE_BAD_VERSION", "Version"),
        ({"callback_points": (MessageType(),) * 65536}, "WIRE_OVERFLOW", "CallbackEntryCount"),
        ({"routing": (RoutingEntry(),) * 65536}, "WIRE_OVERFLOW", "RoutingEntryCount"),
        ({"callback_key": 2**63}, "WIRE_OVERFLOW", "CallbackKey"),
        ({"callback_key": -(2**63) - 1}, "WIRE_OVERFLOW", "CallbackKey"),
        ({"domain": "\ud800"}, "WIRE_BAD_TEXT", "Domain"),
        ({"routing": (RoutingEntry("\ud800"),)}, "WIRE_BAD_TEXT", "Routing URI"),
        ({"ttl_ticks": 2**63}, "WIRE_BAD_TTL", "TTL"),  # decisions: TTL - "A value that does not fit is WIRE_BAD_TTL"
        ({"ttl_ticks": -(2**63) - 1}, "WIRE_BAD_TTL", "TTL"),
    ],
)
@pytest.mark.parametrize("variant", ["", "early"])
def test_what_does_not_fit_is_refused_on_encode(variant: str, fields: dict[str, Any], code: str, named: str) -> None:
    # decisions: limits - never wrapped.
    with pytest.raises(EncodeError, match=named) as caught:
        encode(Message(**fields), "v6", variant)
    assert caught.value.code == code


@pytest.mark.parametrize("variant", ["", "early"])
def test_fields_use_their_whole_width(variant: str) -> None:
    message = Message(
        version=65535,
        hops=65535,
        trace_options=65535,
        callback_key=-(2**63),
        ttl_ticks=2**63 - 1,
        domain="Grüße",
        routing=(RoutingEntry("\N{EARTH GLOBE EUROPE-AFRICA}", b""),) * 65535,
        callback_points=(MessageType(b"", 65535, b""),) * 65535,
    )
    assert decode(encode(message, "v6", variant)).message == message


def test_text_lengths_are_bytes_not_characters() -> None:
    # protocol A10.
    meta = encode(Message(domain="ü", routing=(RoutingEntry("ö", b""),)))[-1]
    assert blob("ü".encode()) in meta
    assert i32(4 + 2 + 4) + blob("ö".encode()) in meta


@pytest.mark.parametrize(
    "extra",
    [
        pytest.param(Extra(wire_version=7), id="number of no metaframe"),
        pytest.param(Extra(routing_rest=((b"x",),)), id="rest of a routing entry that is not there"),
        pytest.param(Extra(callback_rest=((b"x",), (b"y",))), id="rest of callback entries that are not there"),
        pytest.param(Extra(body_sizes=(1, 5)), id="body of another size"),
        pytest.param(Extra(trace_reserved=b"\1"), id="half a lane"),
        pytest.param(Extra(routing_reserved=b"\1\0"), id="one lane of two"),
        pytest.param(Extra(body_reserved=b"\1\0\0\0\0"), id="two lanes and a half"),
    ],
)
def test_what_was_kept_of_another_message_is_refused(extra: Extra) -> None:
    with pytest.raises(EncodeError) as caught:
        encode(Message(body=b"hi"), "v6", extra=extra)
    assert caught.value.code == "WIRE_BAD_EXTRA"


@pytest.mark.parametrize(
    "extra", [Extra(body_offset=65536), Extra(body_sizes=(0,) * 65536), Extra(lead=(b"",) * 2, after_body=(b"",) * 65536)]
)
def test_a_body_description_that_does_not_fit_is_refused(extra: Extra) -> None:
    with pytest.raises(EncodeError, match=r"BodyFirstFrameOffset, BodyFrameCount") as caught:
        encode(Message(), "v6", extra=extra)
    assert caught.value.code == "WIRE_OVERFLOW"


def test_unknown_variant_names_the_known_ones() -> None:
    with pytest.raises(EncodeError, match=r"'late'; known are '' and 'early'") as caught:
        encode(Message(), "v6", "late")
    assert caught.value.code == "WIRE_UNKNOWN_VARIANT"


def test_ttl_is_ticks() -> None:
    for ttl in (0, -1, 2**63 - 1, -(2**63)):
        assert decode_losslessly(message_with(TTL=i64(ttl))).message.ttl_ticks == ttl


def test_the_rest_of_the_message_may_change_and_the_kept_frames_stay() -> None:
    decoded = decode(changed(V6_FRAMES, {3: b"delimiter"}))
    frames = encode(Message(identity=b"EHHLO", version=1), "v6", decoded.variant, decoded.extra)
    assert frames[:3] == [b"", b"delimiter", b""]


def test_an_early_message_without_a_body() -> None:
    *front, _, meta = encode(Message(identity=b"HELLO", version=1), "v6", "early")
    frames = [*front, meta[:-12] + bytes(8) + meta[-4:]]
    decoded = decode(frames)
    assert (decoded.variant, decoded.message.body) == ("early", b"")
    assert encode(decoded.message, "v6", decoded.variant, decoded.extra) == frames
