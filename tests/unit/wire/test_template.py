"""The fast path must give the answers of the plain codec: hits, misses, errors and other formats alike."""

import gc
import weakref

import msgspec
import pytest

from hopline.errors import WireError
from hopline.wire import Distribution, Extra, Message, MessageType, RoutingEntry, decode, encode
from hopline.wire.template import Templates

REQUEST = Message(
    socket_identity=b"N2",
    identity=b"ORDER.PLACE",
    version=1,
    body=b"x" * 200,
    correlation_id=b"c" * 36,
    trace_options=1,
    callback_points=(MessageType(b"ORDER.PLACED", 1), MessageType(b"KINO.EXCEPTION", 1)),
    callback_key=7,
    callback_receiver_identity=b"\0" + b"h" * 36,
    callback_receiver_node_identity=b"n" * 36,
    domain="заказы",
    signature=b"s" * 16,
    ttl_ticks=50_000_000,
    hops=2,
    routing=(RoutingEntry("tcp://10.0.0.1:5101", b"n1"), RoutingEntry("tcp://10.0.0.2:5101", b"n2")),
)
CHANGES = [
    {"callback_key": -1},
    {"ttl_ticks": -5},
    {"correlation_id": b"d" * 36},
    {"correlation_id": b"d"},
    {"signature": b"t" * 16},
    {"signature": b""},
    {"body": b""},
    {"socket_identity": b""},
    {"identity": b"ORDER.CLOSE"},
    {"version": 2},
    {"partition": b"P"},
    {"receiver_identity": b"\1" + b"a" * 36},
    {"receiver_node_identity": b"m" * 36},
    {"distribution": Distribution.BROADCAST},
    {"trace_options": 0x8001},
    {"callback_points": ()},
    {"callback_points": (MessageType(b"ORDER.CLOSED", 1), MessageType(b"KINO.EXCEPTION", 1))},
    {"callback_receiver_identity": b"\0" + b"i" * 36},
    {"callback_receiver_node_identity": b""},
    {"domain": ""},
    {"hops": 3},
    {"routing": (RoutingEntry("tcp://10.0.0.1:5101", b"n2"), RoutingEntry("tcp://10.0.0.2:5101", b"n1"))},
    {"routing": ()},
]


@pytest.mark.parametrize("change", [{}, *CHANGES], ids=lambda change: next(iter(change), "same"))
def test_a_known_shape_gives_the_answer_of_the_plain_codec(change):
    templates = Templates()
    changed = msgspec.structs.replace(REQUEST, **change)
    for message in (REQUEST, changed, REQUEST, changed):
        frames = encode(message)
        assert templates.encode(message) == frames
        assert templates.decode(frames) == decode(frames)


def test_entries_are_written_anew_for_each_list():
    templates = Templates()
    for i in range(50):
        message = msgspec.structs.replace(REQUEST, routing=(RoutingEntry("tcp://a:1", b"%d" % i),), hops=1)
        assert templates.encode(message) == encode(message)


@pytest.mark.parametrize(
    ("format", "variant", "extra"),
    [
        ("v6", "", Extra(trailing=b"new")),
        ("v6", "", Extra(lead=(b"not empty",))),
        ("v6", "", Extra(body_reserved=b"\0\0\1\0")),
        ("v6", "", Extra(wire_version=4)),
        ("v6", "early", None),
        ("v5", "int32-stamp", None),
        ("v4", "trailer-17", None),
    ],
)
def test_other_layouts_are_read_like_the_plain_codec_reads_them(format, variant, extra):
    templates = Templates()
    ordinary = encode(REQUEST)
    frames = encode(REQUEST, format, variant, extra)
    for _ in range(2):
        assert templates.decode(ordinary) == decode(ordinary)
        assert templates.decode(frames) == decode(frames)


def test_every_cut_and_every_changed_byte_is_answered_like_the_plain_codec():
    templates = Templates()
    *front, meta = encode(REQUEST)
    templates.decode([*front, meta])
    for i in range(len(meta)):
        for broken in (meta[:i], meta[:i] + bytes([meta[i] ^ 0x41]) + meta[i + 1 :]):
            frames = [*front, broken]
            assert _answer(templates.decode, frames) == _answer(decode, frames)
            assert _answer(templates.decode, [*front, meta]) == decode([*front, meta])


@pytest.mark.parametrize("field", ["correlation_id", "signature"])
def test_a_run_that_states_another_length_than_was_cut_is_not_taken(field):
    templates = Templates()
    short, long = (msgspec.structs.replace(REQUEST, **{field: b"C" * size}) for size in (2, 3))
    *front, meta = encode(short)
    for message in (short, long):
        templates.decode(encode(message))
    lying = [*front, meta.replace(b"\2\0\0\0CC", b"\3\0\0\0CC")]
    assert lying[-1] != meta
    assert _answer(templates.decode, lying) == _answer(decode, lying)


def _answer(function, frames):
    try:
        return function(frames)
    except WireError as error:
        return error.code, str(error)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"hops": 65536}, "WIRE_OVERFLOW"),
        ({"version": 65536}, "WIRE_OVERFLOW"),
        ({"version": b"1.1"}, "WIRE_BAD_VERSION"),
        ({"callback_key": 2**63}, "WIRE_OVERFLOW"),
        ({"ttl_ticks": -(2**63) - 1}, "WIRE_BAD_TTL"),
        ({"domain": "\ud800"}, "WIRE_BAD_TEXT"),
    ],
)
def test_what_does_not_fit_is_refused_as_by_the_plain_codec(change, code):
    templates = Templates()
    message = msgspec.structs.replace(REQUEST, **change)
    for _ in range(2):
        with pytest.raises(WireError) as caught:
            templates.encode(message)
        assert caught.value.code == code


def test_ever_new_shapes_do_not_fill_the_memory():
    # A memory of 4 that forgot nothing would hold all of these alive.
    class Uri(str):
        __slots__ = ("__weakref__",)

    templates = Templates(limit=4)
    alive = []
    for i in range(100):
        uri = Uri(f"tcp://host-{i}:1")
        alive.append(weakref.ref(uri))
        message = Message(
            identity=b"I" * i,
            domain="d" * i,
            callback_points=(MessageType(b"P%d" % i, 1),),
            routing=(RoutingEntry(uri, b""),),
        )
        del uri
        frames = templates.encode(message)
        assert frames == encode(message)
        assert templates.decode(frames) == decode(frames)
    del message
    gc.collect()
    assert sum(ref() is not None for ref in alive) <= 5


def test_a_huge_metaframe_is_read_but_not_remembered():
    templates = Templates()
    frames = encode(msgspec.structs.replace(REQUEST, partition=b"p" * 100_000))
    assert templates.decode(frames) == templates.decode(frames) == decode(frames)
