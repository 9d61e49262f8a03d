"""The trailer that v4 and v5 share. Every rule is tried on both, for the file does not know which of them it serves."""

from typing import Any, NamedTuple

import pytest

from hopline.errors import DecodeError, EncodeError
from hopline.wire import FormatName, Message, MessageType, RoutingEntry, decode, encode, select
from hopline.wire.trailer import FIELDS
from tests.vectors.golden import (
    V4_FRAMES,
    V4_MESSAGE,
    V5_FRAMES,
    V5_MESSAGE,
    changed,
    decode_losslessly,
    i64,
    inserted,
    lanes,
)

# Places from the end (protocol 1.4, 1.5).
DOMAIN, ROUTING, CALLBACKS, VERSION, TRACE, TTL, BODY = 15, 13, 12, 7, 5, 3, 2


class Example(NamedTuple):
    """The worked example of a format, and the number of fixed frames in its trailer."""

    format: FormatName
    frames: list[bytes]
    message: Message
    fixed: int

    def frames_with(self, *, routing: int = 0, callbacks: int = 0, body: int = 0) -> dict[int, bytes]:
        """Descriptions of the example whose offsets are so much larger."""
        return {
            ROUTING: lanes(self.fixed + 7 + routing, 1, 2, 1),
            CALLBACKS: lanes(self.fixed + 1 + callbacks, 2, 3),
            BODY: lanes(self.fixed + 9 + body, 1),
        }

    def bare(self) -> list[bytes]:
        """The example without routing and callback entries."""
        return changed(
            self.frames[:3] + self.frames[11:],
            {ROUTING: lanes(0, 0, 2, 1), CALLBACKS: lanes(0, 0, 3), BODY: lanes(self.fixed + 1, 1)},
        )

    def bare_message(self) -> Message:
        fields = {field: getattr(self.message, field) for field in Message.__struct_fields__}
        return Message(**fields | {"routing": (), "callback_points": ()})


EXAMPLES = [Example("v4", V4_FRAMES, V4_MESSAGE, 15), Example("v5", V5_FRAMES, V5_MESSAGE, 17)]
both = pytest.mark.parametrize("example", EXAMPLES, ids=["v4", "v5"])


def test_the_tool_above_rebuilds_the_examples() -> None:
    for example in EXAMPLES:
        assert changed(example.frames, example.frames_with()) == example.frames
        assert decode_losslessly(example.bare()).message == example.bare_message()


def test_fields_stand_where_the_documents_put_them() -> None:
    assert list(FIELDS) == list(range(17, 0, -1))


# --- versioning rows of documents 001 and 002 -------------------------------------------------------------------------


@both
def test_new_frames_on_top_of_the_trailer_are_skipped_and_kept(example: Example) -> None:
    # "new frames come on top": each offset compensates for the larger trailer.
    future = inserted(example.frames, 11, b"newer", b"new")
    future = changed(future, example.frames_with(routing=2, callbacks=2, body=2))
    decoded = decode_losslessly(future)
    assert decoded.message == example.message
    assert decoded.extra is not None
    assert decoded.extra.after_callbacks == (b"newer", b"new")


@both
def test_new_frames_on_top_of_a_trailer_without_entries_are_skipped_and_kept(example: Example) -> None:
    future = changed(inserted(example.bare(), 3, b"newer", b"new"), {BODY: lanes(example.fixed + 3, 1)})
    decoded = decode_losslessly(future)
    assert decoded.message == example.bare_message()
    assert decoded.extra is not None
    assert decoded.extra.after_callbacks == (b"newer", b"new")


@both
def test_new_frames_on_top_of_routing_entries_are_skipped_and_kept(example: Example) -> None:
    future = inserted(example.frames, 3, b"new", b"newer", b"tcp://10.0.0.9:1", b"N9", b"x", b"y")
    future = changed(future, {ROUTING: lanes(example.fixed + 7, 2, 4, 1), BODY: lanes(example.fixed + 1 + 6 + 8, 1)})
    decoded = decode_losslessly(future)
    assert decoded.message.routing == (RoutingEntry("tcp://10.0.0.9:1", b"N9"), *example.message.routing)
    assert decoded.message.body == example.message.body
    assert decoded.extra is not None
    assert decoded.extra.routing_rest == ((b"new", b"newer"), (b"x", b"y"))


@both
def test_new_frames_on_top_of_callback_entries_are_skipped_and_kept(example: Example) -> None:
    future = inserted(inserted(example.frames, 8, b"second"), 5, b"first")
    changes = example.frames_with(routing=2, body=2) | {CALLBACKS: lanes(example.fixed + 1, 2, 4)}
    decoded = decode_losslessly(changed(future, changes))
    assert decoded.message == example.message
    assert decoded.extra is not None
    assert decoded.extra.callback_rest == ((b"first",), (b"second",))


@both
@pytest.mark.parametrize(
    ("index", "grown", "field"),
    [
        (3, {"body": 1}, "after_body"),
        (5, {"routing": 1, "body": 1}, "after_routing"),
    ],
)
def test_frames_between_the_parts_are_skipped_and_kept(
    example: Example, index: int, grown: dict[str, int], field: str
) -> None:
    future = changed(inserted(example.frames, index, b"gap"), example.frames_with(**grown))
    decoded = decode_losslessly(future)
    assert decoded.message == example.message
    assert getattr(decoded.extra, field) == (b"gap",)


# --- body frames, leading frames, reserved lanes ----------------------------------------------------------------------


@both
@pytest.mark.parametrize("body", [(b"a", b"bc"), (b"", b""), (b"", b"abc", b""), (b"x",) * 300])
def test_several_body_frames_are_joined_and_kept_apart(example: Example, body: tuple[bytes, ...]) -> None:
    # decisions: body frames - "We read `count` frames from the offset and keep them apart".
    frames = [*example.frames[:2], *body, *example.frames[3:]]
    frames = changed(frames, {BODY: lanes(example.fixed + 8 + len(body), len(body))})
    decoded = decode_losslessly(frames)
    assert decoded.message.body == b"".join(body)
    assert decoded.message.routing == example.message.routing
    assert decoded.extra is not None
    assert decoded.extra.body_sizes == tuple(map(len, body))


@both
@pytest.mark.parametrize("offset", ["where it would be", "zero"])
def test_no_body_frame_at_all_is_an_empty_body(example: Example, offset: str) -> None:
    place = 0 if offset == "zero" else example.fixed + 8
    frames = changed(example.frames[:2] + example.frames[3:], {BODY: lanes(place, 0)})
    decoded = decode_losslessly(frames)
    assert decoded.message.body == b""
    assert decoded.message.callback_points == example.message.callback_points


@both
@pytest.mark.parametrize(
    "lead", [(b"delimiter",), (b"", b""), (b"", b"", b"x"), (b"id", b"")], ids=["frame 1", "one", "two", "router id"]
)
def test_leading_frames_do_no_harm_and_are_kept(example: Example, lead: tuple[bytes, ...]) -> None:
    # protocol 1.2: everything is found from the end; 1.8: DEALER to ROUTER puts one more in front.
    for frames, message in ((example.frames, example.message), (example.bare(), example.bare_message())):
        decoded = decode_losslessly([frames[0], *lead, *frames[2:]])
        assert decoded.message == message
        assert decoded.extra is not None
        assert decoded.extra.lead == lead


@both
@pytest.mark.parametrize(
    ("place", "lane", "field"),
    [
        (CALLBACKS, 3, "callback_reserved"),
        (TRACE, 2, "trace_reserved"),
        (TRACE, 3, "trace_reserved"),
        (BODY, 2, "body_reserved"),
        (BODY, 3, "body_reserved"),
    ],
)
def test_reserved_lanes_are_ignored_and_kept(example: Example, place: int, lane: int, field: str) -> None:
    # protocol 1.1: "Unused lanes are written 0 and ignored on read"; decisions: lossless.
    word = bytearray(example.frames[-place])
    word[2 * lane : 2 * lane + 2] = b"\x34\x12"
    decoded = decode_losslessly(changed(example.frames, {place: bytes(word)}))
    assert decoded.message == example.message
    assert b"\x34\x12" in getattr(decoded.extra, field)


@both
@pytest.mark.parametrize("divisor", [0, 1, 2, 3, 4, 0xFFFF])
@pytest.mark.parametrize("offset", [0, 1, 18, 0xFFFF])
@pytest.mark.parametrize("kind", ["routing", "callbacks"])
def test_offset_and_divisor_mean_nothing_where_there_are_no_entries(
    example: Example, divisor: int, offset: int, kind: str
) -> None:
    # protocol 1.2.2: the writer's 0 and divisor are a habit of the reference; a count of 0 is a count of 0.
    word = {"routing": {ROUTING: lanes(offset, 0, divisor, 1)}, "callbacks": {CALLBACKS: lanes(offset, 0, divisor)}}[kind]
    decoded = decode_losslessly(changed(example.bare(), word))
    assert decoded.message == example.bare_message()


@both
def test_unknown_trace_options_are_kept(example: Example) -> None:
    decoded = decode_losslessly(changed(example.frames, {TRACE: lanes(0xFFFE, 1)}))
    assert (decoded.message.trace_options, decoded.message.distribution) == (0xFFFE, 1)


@both
@pytest.mark.parametrize("ttl", [0, -1, 2**63 - 1, -(2**63)])
def test_ttl_is_ticks(example: Example, ttl: int) -> None:
    # decisions: TTL.
    frames = changed(example.frames, {TTL: i64(ttl)})
    assert decode_losslessly(frames).message.ttl_ticks == ttl


# --- broken messages --------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("place", "raw", "code"),
    [
        (TRACE, lanes(0, 2), "WIRE_BAD_DISTRIBUTION"),
        (TRACE, lanes(0, 0xFFFF), "WIRE_BAD_DISTRIBUTION"),
        (TRACE, bytes(4), "WIRE_BAD_LENGTH"),
        (TTL, bytes(4), "WIRE_BAD_LENGTH"),
        (TTL, b"", "WIRE_BAD_LENGTH"),
        (BODY, bytes(7), "WIRE_BAD_LENGTH"),
        (ROUTING, bytes(9), "WIRE_BAD_LENGTH"),
        (CALLBACKS, b"", "WIRE_BAD_LENGTH"),
        (DOMAIN, b"\xff", "WIRE_BAD_TEXT"),
    ],
)
def test_a_broken_frame_is_refused_with_its_place(example: Example, place: int, raw: bytes, code: str) -> None:
    frames = changed(example.frames, {place: raw})
    with pytest.raises(DecodeError) as caught:
        decode(frames)
    assert (caught.value.code, caught.value.frame) == (code, len(frames) - place)


@both
def test_a_broken_entry_is_refused_with_its_place(example: Example) -> None:
    for index, raw, code in ((3, b"\xff", "WIRE_BAD_TEXT"), (6, b"1.0", "WIRE_BAD_LENGTH"), (9, b"", "WIRE_BAD_LENGTH")):
        frames = [*example.frames[:index], raw, *example.frames[index + 1 :]]
        with pytest.raises(DecodeError) as caught:
            decode(frames)
        assert (caught.value.code, caught.value.frame) == (code, index)


@both
@pytest.mark.parametrize(
    ("place", "word", "code"),
    [
        pytest.param(ROUTING, lanes(0, 1, 2), "WIRE_BAD_OFFSET", id="routing offset 0"),
        pytest.param(ROUTING, lanes(0xFFFF, 1, 2), "WIRE_BAD_OFFSET", id="routing offset huge"),
        pytest.param(ROUTING, lanes(24, 0xFFFF, 2), "WIRE_BAD_OFFSET", id="routing count huge"),
        pytest.param(ROUTING, lanes(24, 1, 0xFFFF), "WIRE_BAD_OFFSET", id="routing divisor huge"),
        pytest.param(ROUTING, lanes(0xFFFF, 0xFFFF, 0xFFFF), "WIRE_BAD_OFFSET", id="routing all huge"),
        pytest.param(ROUTING, lanes(24, 1, 1), "WIRE_BAD_ENTRY", id="routing divisor 1"),
        pytest.param(ROUTING, lanes(19, 1, 2), "WIRE_BAD_OFFSET", id="routing inside the callbacks"),
        pytest.param(ROUTING, lanes(3, 1, 2), "WIRE_BAD_OFFSET", id="routing inside the trailer"),
        pytest.param(CALLBACKS, lanes(12, 2, 3), "WIRE_BAD_OFFSET", id="callbacks inside the trailer"),
        pytest.param(CALLBACKS, lanes(18, 0xFFFF, 3), "WIRE_BAD_OFFSET", id="callback count huge"),
        pytest.param(CALLBACKS, lanes(18, 2, 2), "WIRE_BAD_ENTRY", id="callback divisor 2"),
        pytest.param(CALLBACKS, lanes(18, 2, 0), "WIRE_BAD_ENTRY", id="callback divisor 0"),
        pytest.param(BODY, lanes(0, 1), "WIRE_BAD_OFFSET", id="body offset 0"),
        pytest.param(BODY, lanes(0xFFFF, 1), "WIRE_BAD_OFFSET", id="body offset huge"),
        pytest.param(BODY, lanes(24, 0xFFFF), "WIRE_BAD_OFFSET", id="body count huge"),
        pytest.param(BODY, lanes(1, 1), "WIRE_BAD_OFFSET", id="body is the stamp"),
    ],
)
def test_descriptions_that_cannot_be_right_are_refused(example: Example, place: int, word: bytes, code: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(changed(example.frames, {place: word}))
    assert caught.value.code == code


@both
def test_body_may_not_be_a_frame_of_the_socket(example: Example) -> None:
    n = len(example.frames)
    for offset in (n, n - 1):
        with pytest.raises(DecodeError, match=r"frames 0 and 1 belong to the socket"):
            decode(changed(example.frames, {BODY: lanes(offset, 1)}))


@both
def test_a_message_that_lost_a_frame_is_refused(example: Example) -> None:
    for index in range(len(example.frames)):
        with pytest.raises(DecodeError):
            decode(example.frames[:index] + example.frames[index + 1 :])


@both
def test_selectors_do_not_need_the_rest_to_be_whole(example: Example) -> None:
    selected = select(changed(example.frames, {ROUTING: b"", BODY: b"", TTL: b""}))
    assert (selected.identity, selected.version, selected.format) == (b"HELLO", 1, example.format)


@both
@pytest.mark.parametrize(
    ("place", "raw", "code"), [(TRACE, b"", "WIRE_BAD_LENGTH"), (TRACE, lanes(0, 2), "WIRE_BAD_DISTRIBUTION")]
)
def test_selectors_themselves_are_checked(example: Example, place: int, raw: bytes, code: str) -> None:
    with pytest.raises(DecodeError) as caught:
        select(changed(example.frames, {place: raw}))
    assert (caught.value.code, caught.value.frame) == (code, len(example.frames) - place)


# --- encoding ---------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"hops": 65536}, "WIRE_OVERFLOW"),
        ({"hops": -1}, "WIRE_OVERFLOW"),
        ({"trace_options": 65536}, "WIRE_OVERFLOW"),
        ({"trace_options": -1}, "WIRE_OVERFLOW"),
        ({"version": 65536}, "WIRE_OVERFLOW"),
        ({"version": -1}, "WIRE_OVERFLOW"),
        ({"version": b"1.1"}, "WIRE_BAD_VERSION"),
        ({"callback_points": (MessageType(b"A", 65536),)}, "WIRE_OVERFLOW"),
        ({"callback_points": (MessageType(b"A", b"1.1"),)}, "WIRE_BAD_VERSION"),
        ({"callback_points": (MessageType(),) * 65536}, "WIRE_OVERFLOW"),
        ({"routing": (RoutingEntry(),) * 65536}, "WIRE_OVERFLOW"),
        ({"routing": (RoutingEntry(),), "callback_points": (MessageType(),) * 21845}, "WIRE_OVERFLOW"),  # offset
        ({"routing": (RoutingEntry(),) * 32768}, "WIRE_OVERFLOW"),  # the body's offset
        ({"routing": (RoutingEntry("\ud800"),)}, "WIRE_BAD_TEXT"),
        ({"domain": "\ud800"}, "WIRE_BAD_TEXT"),
        ({"ttl_ticks": 2**63}, "WIRE_BAD_TTL"),  # decisions: TTL - "A value that does not fit is WIRE_BAD_TTL"
        ({"ttl_ticks": -(2**63) - 1}, "WIRE_BAD_TTL"),
    ],
)
def test_what_does_not_fit_is_refused_on_encode(example: Example, fields: dict[str, Any], code: str) -> None:
    # decisions: limits - "16-bit lanes ... an error on encode, never wrapped".
    with pytest.raises(EncodeError) as caught:
        encode(Message(**fields), example.format)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("variant", "frames"),
    [("trailer-13", 16), ("trailer-14", 17), ("text-version", 18), ("", 18), ("trailer-16", 19), ("trailer-17", 20)],
)
def test_a_shorter_trailer_lacks_its_top_and_nothing_moves(variant: str, frames: int) -> None:
    # protocol 1.4: "Positions n-1…n-13 never moved".
    written = encode(Message(identity=b"HELLO", version=1, correlation_id=b"C1", hops=7), "v4", variant)
    assert len(written) == frames
    assert (written[-4], written[-6], written[-12], written[-13]) == (b"C1", b"HELLO", lanes(0, 0, 3), lanes(0, 0, 2, 7))


@both
def test_lanes_and_numbers_use_their_whole_width(example: Example) -> None:
    message = Message(version=65535, hops=65535, trace_options=65535, ttl_ticks=-(2**63))
    assert decode(encode(message, example.format)).message == message


@both
def test_entries_are_written_and_read_in_list_order(example: Example) -> None:
    # decisions: entry order.
    message = Message(
        version=1,
        routing=tuple(RoutingEntry(f"tcp://{i}", b"%d" % i) for i in range(9)),
        callback_points=tuple(MessageType(b"%d" % i, i, b"p") for i in range(9)),
    )
    frames = encode(message, example.format)
    assert frames[3:7] == [b"tcp://0", b"0", b"tcp://1", b"1"]
    assert decode(frames).message == message
