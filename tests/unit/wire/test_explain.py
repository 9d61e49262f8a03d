"""The byte map: every byte of every frame belongs to exactly one row, broken or not."""

import pytest

from hopline.wire import Extra, Message, MessageType, RoutingEntry, encode
from hopline.wire.explain import explain

SAMPLE = Message(
    socket_identity=b"N2",
    identity=b"HELLO",
    version=1,
    body=b"\x0a\2hi",
    correlation_id=b"C1",
    ttl_ticks=50_000_000,
    trace_options=1,
    hops=1,
    routing=(RoutingEntry("tcp://10.0.0.1:5101", b"N1"),),
    callback_points=(MessageType(b"EHHLO", 1, b"P"), MessageType(b"KINO.EXCEPTION", 1)),
    callback_receiver_identity=b"\0H1",
)
FUTURE = Extra(
    lead=(b"", b"lead"),
    after_body=(b"new",),
    after_routing=(b"new",),
    after_callbacks=(b"new",),
    routing_rest=((b"r",),),
    callback_rest=((b"c",), (b"d",)),
)
LAYOUTS = [
    ("v3", "", None),
    ("v3", "", Extra(after_callbacks=(b"new",), callback_rest=((b"c",), (b"d",)))),
    ("v4", "", None),
    ("v4", "text-version", None),
    ("v4", "trailer-13", None),
    ("v4", "trailer-14", None),
    ("v4", "trailer-16", None),
    ("v4", "trailer-17", None),
    ("v4", "stamp-3", None),
    ("v5", "int32-stamp", None),
    ("v5", "uint16-stamp", FUTURE),
    ("v6", "", None),
    ("v6", "early", None),
    ("v6", "", Extra(body_sizes=(1, 3), after_body=(b"new",), trailing=b"t", routing_rest=((b"r",),))),
]


def rows(explanation):
    return {(span.frame, span.offset): span for span in explanation.spans}


def covered(frames, explanation):
    """Every byte in exactly one row, in order."""
    at = dict.fromkeys(range(len(frames)), 0)
    for span in explanation.spans:
        assert span.offset == at[span.frame]
        at[span.frame] += span.size
    return [at[i] for i in range(len(frames))] == [len(frame) for frame in frames]


@pytest.mark.parametrize(("format", "variant", "extra"), LAYOUTS)
def test_every_byte_has_its_row(format, variant, extra):
    frames = encode(SAMPLE, format, variant, extra)
    explanation = explain(frames)
    assert (explanation.format, explanation.variant, explanation.error) == (format, variant, None)
    assert covered(frames, explanation)
    fields = [span.field for span in explanation.spans]
    assert fields[0] == "SocketIdentity"
    assert "Body" in fields
    identity = [span.meaning for span in explanation.spans if span.field == "Identity"]
    assert identity == ['"HELLO"']
    version = [span.meaning for span in explanation.spans if span.field == "Version"]
    assert version == (
        ['"1.0"'] if format == "v3" or variant in ("text-version", "trailer-13", "trailer-14", "stamp-3") else ["1"]
    )


def test_meanings_of_a_trailer():
    explanation = explain(encode(SAMPLE, "v5"))
    meanings = {span.field: span.meaning for span in explanation.spans}
    assert meanings["RoutingDescription"] == "offset 24, count 1, divisor 2, hops 1"
    assert meanings["CallbackDescription"] == "offset 18, count 2, divisor 3"
    assert meanings["BodyDescription"] == "offset 26, count 1"
    assert meanings["TraceOptions, Distribution"] == "trace 1, distribution 0"
    assert meanings["TTL"] == "50000000"
    assert meanings["WireFormatVersion"] == "5"
    assert meanings["Callback[1] Identity"] == '"KINO.EXCEPTION"'
    assert meanings["Routing[0] URI"] == '"tcp://10.0.0.1:5101"'
    assert meanings["CallbackReceiverIdentity"] == "0x004831"


def test_unknown_frames_are_named_so():
    explanation = explain(encode(SAMPLE, "v5", None, FUTURE))
    fields = [span.field for span in explanation.spans]
    assert fields.count("unknown frame") == 4
    assert fields.count("Routing[0] unknown") == 1
    assert fields.count("Callback[1] unknown") == 1


def test_a_broken_metaframe_is_mapped_up_to_the_break():
    *front, meta = encode(SAMPLE)
    frames = [*front, meta[:100]]
    explanation = explain(frames)
    assert explanation.format == "v6"
    assert explanation.error.code == "WIRE_TRUNCATED"
    assert explanation.error.frame == 3
    assert explanation.spans[-1].field == "not readable"
    assert explanation.spans[-1].offset == explanation.error.offset
    assert covered(frames, explanation)


@pytest.mark.parametrize("format", ["v3", "v4", "v5"])
def test_a_broken_trailer_is_still_named(format):
    frames = encode(SAMPLE, format)
    size = {"v3": 4, "v4": 3, "v5": 3}[format]
    frames[-size] = b"short"  # TTL
    explanation = explain(frames)
    assert explanation.format == format
    assert explanation.error.code == "WIRE_BAD_LENGTH"
    assert explanation.error.frame == len(frames) - size
    assert rows(explanation)[len(frames) - size, 0].field == "TTL"
    assert rows(explanation)[len(frames) - size, 0].meaning == '"short"'
    assert rows(explanation)[2, 0].field == "not located"
    assert covered(frames, explanation)


def test_broken_descriptions_are_shown_as_they_are():
    frames = encode(SAMPLE, "v5")
    frames[-2] = b"xyz"
    assert rows(explain(frames))[len(frames) - 2, 0].meaning == '"xyz"'


def test_text_that_is_none_is_on_the_map_and_is_where_it_breaks():
    *front, meta = encode(Message(identity=b"HELLO", domain="dom"))
    frames = [*front, meta.replace(b"dom", b"d\xff\xff")]
    explanation = explain(frames)
    assert explanation.error.code == "WIRE_BAD_TEXT"
    assert explanation.spans[-1][:2] == (3, explanation.error.offset)
    assert covered(frames, explanation)


def test_the_repeated_body_of_an_early_metaframe_has_its_name():
    fields = [span.field for span in explain(encode(SAMPLE, "v6", "early")).spans]
    assert fields[-2:] == ["length of copy of the body", "copy of the body"]


def test_a_wrong_offset_is_shown_where_it_stands():
    frames = encode(SAMPLE, "v4", "trailer-13")
    frames[-12] = frames[-12].replace(b"\x0e", b"\x0d", 1)
    explanation = explain(frames)
    assert (explanation.error.code, explanation.error.frame) == ("WIRE_BAD_OFFSET", len(frames) - 12)
    assert [span.field for span in explanation.spans][-14] == "not located"


@pytest.mark.parametrize("frames", [[], [b""], [b"a", b"b", b"c"]])
def test_no_format_at_all(frames):
    explanation = explain(frames)
    assert (explanation.format, explanation.error.code) == ("", "WIRE_UNKNOWN_FORMAT")
    assert covered(frames, explanation)


def test_a_format_that_was_asked_for():
    explanation = explain(encode(SAMPLE, "v5"), format="v6")
    assert explanation.error.code == "WIRE_OTHER_FORMAT"
    assert explanation.spans[-1].field == "not readable" or explanation.spans[-1].frame == 27
