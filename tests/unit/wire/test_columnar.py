"""Columnar decoding: shapes of the input, the columns, the order, and who asks the row codec about what.

That every answer is the row codec's is the business of tests/property/test_columnar.py.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hopline.wire import Decoded, Extra, FormatName, Message, MessageType, RoutingEntry, TtlUnit, columnar, decode, encode
from hopline.wire.columnar import MESSAGE_SCHEMA, REJECT_SCHEMA, decode_batch

FRAME_LISTS = pa.list_(pa.binary())

MESSAGE = Message(
    socket_identity=b"socket",
    identity=b"ORDER.PLACE",
    version=1,
    partition=b"eu",
    body=b"42 apples",
    correlation_id=b"6f1c",
    receiver_identity=b"\1actor",
    receiver_node_identity=b"node",
    trace_options=1,
    callback_points=(MessageType(b"ORDER.PLACED", 1), MessageType(b"KINO.EXCEPTION", 1, b"eu")),
    callback_key=-7,
    callback_receiver_identity=b"\0hub",
    callback_receiver_node_identity=b"home",
    domain="orders",
    signature=b"signed",
    ttl_ticks=600_000_000,
    hops=2,
    routing=(RoutingEntry("tcp://10.0.0.1:5000", b"n1"), RoutingEntry("tcp://10.0.0.2:5000", b"n2")),
)
BARE = Message(identity=b"HELLO", version=1, body=b"hi")
OLD = Message(identity=b"OLD", version=b"1.1", callback_points=(MessageType(b"DONE", 2), MessageType(b"ODD", b"x")))

V6, V5, V4, V3 = encode(MESSAGE), encode(MESSAGE, "v5"), encode(BARE, "v4"), encode(OLD, "v3")
V5_SHORT_STAMP = encode(MESSAGE, "v5", "uint16-stamp")
JUNK = [b"junk"]
BROKEN = [*V6[:-1], V6[-1][:100]]
BAD_TEXT = [*V6[:-1], V6[-1].replace(b"orders", b"orde\xff\xff")]

MIXED = [V6, JUNK, V3, V5, BROKEN, V4, V5_SHORT_STAMP, BAD_TEXT, V6]


def lists(*rows: list[bytes | None] | list[bytes] | None) -> pa.Array:
    return pa.array(rows, FRAME_LISTS)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[bytes]]:
    """The frame lists that the row codec was asked about."""
    asked = []

    def ask(frames: list[bytes], *, v3_ttl: TtlUnit) -> Decoded:
        asked.append(frames)
        return decode(frames, v3_ttl=v3_ttl)

    monkeypatch.setattr(columnar, "decode", ask)
    return asked


# Columns.


def test_the_columns_are_the_layout_the_fields_and_two_facts() -> None:
    assert MESSAGE_SCHEMA.names == [
        *("row", "format", "variant", "wire_version"),
        *("socket_identity", "identity", "version", "version_bytes", "partition", "body", "correlation_id"),
        *("receiver_identity", "receiver_node_identity", "distribution", "trace_options", "callback_points", "callback_key"),
        *("callback_receiver_identity", "callback_receiver_node_identity", "domain", "signature", "ttl_ticks", "hops"),
        *("routing", "body_size", "has_extra"),
    ]
    assert REJECT_SCHEMA.names == ["row", "code", "reason", "tried"]


@pytest.mark.parametrize(
    ("frames", "layout"),
    [(V6, ("v6", "", 6)), (V5, ("v5", "int32-stamp", 5)), (V5_SHORT_STAMP, ("v5", "uint16-stamp", 5))],
)
def test_every_column_of_an_ordinary_message(frames: list[bytes], layout: tuple[str, str, int]) -> None:
    batch = decode_batch(lists(frames))
    assert batch.rejects.num_rows == 0
    assert batch.messages.schema == MESSAGE_SCHEMA
    assert batch.messages.to_pylist() == [
        {
            "row": 0,
            "format": layout[0],
            "variant": layout[1],
            "wire_version": layout[2],
            "socket_identity": b"socket",
            "identity": b"ORDER.PLACE",
            "version": 1,
            "version_bytes": None,
            "partition": b"eu",
            "body": b"42 apples",
            "correlation_id": b"6f1c",
            "receiver_identity": b"\1actor",
            "receiver_node_identity": b"node",
            "distribution": "unicast",
            "trace_options": 1,
            "callback_points": [
                {"identity": b"ORDER.PLACED", "version": 1, "version_bytes": None, "partition": b""},
                {"identity": b"KINO.EXCEPTION", "version": 1, "version_bytes": None, "partition": b"eu"},
            ],
            "callback_key": -7,
            "callback_receiver_identity": b"\0hub",
            "callback_receiver_node_identity": b"home",
            "domain": "orders",
            "signature": b"signed",
            "ttl_ticks": 600_000_000,
            "hops": 2,
            "routing": [
                {"uri": "tcp://10.0.0.1:5000", "identity": b"n1"},
                {"uri": "tcp://10.0.0.2:5000", "identity": b"n2"},
            ],
            "body_size": 9,
            "has_extra": False,
        }
    ]


def test_a_version_that_is_no_number_is_bytes() -> None:
    (row,) = decode_batch(lists(V3)).messages.to_pylist()
    assert (row["format"], row["version"], row["version_bytes"]) == ("v3", None, b"1.1")
    assert row["callback_points"] == [
        {"identity": b"DONE", "version": 2, "version_bytes": None, "partition": b""},
        {"identity": b"ODD", "version": None, "version_bytes": b"x", "partition": b""},
    ]


def test_distributions() -> None:
    broadcast = Message(identity=b"NEWS", distribution=1)  # type: ignore[arg-type]
    rows = lists(V6, encode(broadcast), V5, encode(broadcast, "v5"), encode(broadcast, "v4"))
    names = decode_batch(rows).messages["distribution"].to_pylist()
    assert names == ["unicast", "broadcast", "unicast", "broadcast", "broadcast"]


def test_v3_ttl_is_passed_on() -> None:
    rows = lists(encode(Message(ttl_ticks=50_000), "v3"))
    assert decode_batch(rows).messages["ttl_ticks"].to_pylist() == [50_000]
    assert decode_batch(rows, v3_ttl="ticks").messages["ttl_ticks"].to_pylist() == [5]


def test_has_extra_where_the_frames_hold_more_than_the_fields() -> None:
    extra = Extra(lead=(b"", b"router"))
    rows = lists(
        V6, encode(MESSAGE, extra=extra), V5, encode(MESSAGE, "v5", extra=extra), V4, encode(BARE, "v4", extra=extra)
    )
    assert decode_batch(rows).messages["has_extra"].to_pylist() == [False, True] * 3


def test_only_the_named_columns_are_made_in_the_named_order() -> None:
    whole = decode_batch(lists(*MIXED))
    some = decode_batch(lists(*MIXED), columns=["routing", "row", "callback_points", "version"])
    assert some.messages.schema.names == ["routing", "row", "callback_points", "version"]
    assert some.messages == whole.messages.select(["routing", "row", "callback_points", "version"])
    assert some.rejects == whole.rejects


@pytest.mark.parametrize("name", MESSAGE_SCHEMA.names)
def test_each_column_alone(name: str) -> None:
    whole, alone = decode_batch(lists(*MIXED)), decode_batch(lists(*MIXED), columns=[name])
    assert alone.messages == whole.messages.select([name])
    # Bad text is rejected whether the text is asked for or not.
    assert alone.rejects == whole.rejects


@pytest.mark.parametrize(
    ("columns", "named"), [(["row", "bodies"], "'row', 'bodies'"), (["row", "row"], "'row', 'row'"), ([], "none")]
)
def test_columns_that_cannot_be_made(columns: list[str], named: str) -> None:
    with pytest.raises(ValueError, match=f"^columns must name some of row, format, .*, each once, and not {named}$"):
        decode_batch(lists(V6), columns=columns)


# Shapes of the input.

SHAPES: dict[str, Callable[[pa.Array], Any]] = {
    "array": lambda rows: rows,
    "slice": lambda rows: pa.concat_arrays([lists(JUNK, V5), rows, lists(V4)]).slice(2, len(rows)),
    "frames that are a slice": lambda rows: pa.ListArray.from_arrays(
        rows.offsets, pa.concat_arrays([pa.array([b"x", b"yz"]), rows.values]).slice(2)
    ),
    "frames that are never null": lambda rows: rows.cast(pa.list_(pa.field("frame", pa.binary(), nullable=False))),
    "large list": lambda rows: rows.cast(pa.large_list(pa.binary())),
    "large binary": lambda rows: rows.cast(pa.list_(pa.large_binary())),
    "large both": lambda rows: rows.cast(pa.large_list(pa.large_binary())),
    "large both, slice": lambda rows: pa.concat_arrays([rows] * 2).cast(pa.large_list(pa.large_binary())).slice(len(rows)),
    "chunks": lambda rows: pa.chunked_array([rows.slice(0, 2), rows.slice(2, 0), rows.slice(2, 1), rows.slice(3)]),
    "batch": lambda rows: pa.record_batch({"seen_ns": pa.nulls(len(rows)), "frames": rows}),
    "batch, slice": lambda rows: pa.record_batch({"frames": pa.concat_arrays([rows, rows])}).slice(len(rows)),
    "table": lambda rows: pa.table({"frames": pa.chunked_array([rows.slice(0, 4), rows.slice(4)])}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_gives_the_same(shape: str) -> None:
    rows = lists(*MIXED)
    messages, rejects = decode_batch(SHAPES[shape](rows))
    assert (messages, rejects) == decode_batch(rows)
    messages.validate(full=True)
    rejects.validate(full=True)


@pytest.mark.parametrize(
    "rows",
    [
        lists(),
        lists(V6).slice(1),
        pa.chunked_array([], FRAME_LISTS),
        pa.record_batch({"frames": lists()}),
        pa.array([], pa.large_list(pa.large_binary())),
    ],
)
def test_no_rows(rows: pa.Array) -> None:
    messages, rejects = decode_batch(rows)
    assert (messages.num_rows, messages.schema) == (0, MESSAGE_SCHEMA)
    assert (rejects.num_rows, rejects.schema) == (0, REJECT_SCHEMA)
    assert decode_batch(rows, columns=["body"]).messages.schema.names == ["body"]


def test_lists_without_frames() -> None:
    assert decode_batch(lists([], [])).rejects["reason"].to_pylist() == ["0 frames that are no format we know"] * 2
    # Such an array need not have any memory for the frames.
    frames = pa.Array.from_buffers(pa.binary(), 0, [None, None, pa.py_buffer(b"")])
    assert decode_batch(pa.ListArray.from_arrays([0, 0], frames)).rejects.num_rows == 1


def test_nulls_are_rejects() -> None:
    rows = lists(V6, None, [b"", None, b"hi"], V5, [*V5[:-2], None, V5[-1]], [*V6[:-1], None], V4)
    messages, rejects = decode_batch(rows)
    assert messages["row"].to_pylist() == [0, 3, 6]
    assert rejects.to_pylist() == [
        {"row": row, "code": "WIRE_UNKNOWN_FORMAT", "reason": reason, "tried": []}
        for row, reason in [
            (1, "the frame list is null"),
            (2, "frame 1 is null"),
            (4, f"frame {len(V5) - 2} is null"),
            (5, "frame 3 is null"),
        ]
    ]


def test_a_null_list_may_hide_frames() -> None:
    whole = lists(V6, V5, V6)
    hidden = pa.ListArray.from_arrays(whole.offsets, whole.values, mask=pa.array([False, True, True]))
    messages, rejects = decode_batch(hidden)
    assert messages["row"].to_pylist() == [0]
    assert rejects["reason"].to_pylist() == ["the frame list is null"] * 2


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (pa.array([b"x"]), "binary"),
        (pa.array([["text"]]), "list<item: string>"),
        (pa.array([[[b"x"]]]), "list<item: list<item: binary>>"),
        (pa.chunked_array([], pa.int64()), "int64"),
        ([V6], "<class 'list'>"),
        (pa.record_batch({"frames": [1]}), "int64"),
    ],
)
def test_what_is_no_list_of_frames_is_a_type_error(wrong: object, named: str) -> None:
    with pytest.raises(TypeError) as caught:
        decode_batch(wrong)  # type: ignore[arg-type, unused-ignore]
    assert str(caught.value) == f"frames must be list<binary>, large or not, and not {named}"


def test_a_batch_without_frames_says_what_it_has() -> None:
    with pytest.raises(ValueError, match=r"^the batch has no column 'frames', only seen_ns, socket$"):
        decode_batch(pa.record_batch({"seen_ns": [1], "socket": ["x"]}))


# Order, rejects, and the formats beside each other.


def test_all_formats_in_one_batch() -> None:
    messages, rejects = decode_batch(lists(*MIXED))
    layouts = list(zip(*(messages[name].to_pylist() for name in ("row", "format", "variant")), strict=True))
    assert layouts == [
        (0, "v6", ""),
        (2, "v3", ""),
        (3, "v5", "int32-stamp"),
        (5, "v4", ""),
        (6, "v5", "uint16-stamp"),
        (8, "v6", ""),
    ]
    assert messages["identity"].to_pylist() == [b"ORDER.PLACE", b"OLD", b"ORDER.PLACE", b"HELLO", *[b"ORDER.PLACE"] * 2]
    codes = list(zip(rejects["row"].to_pylist(), rejects["code"].to_pylist(), strict=True))
    assert codes == [(1, "WIRE_UNKNOWN_FORMAT"), (4, "WIRE_TRUNCATED"), (7, "WIRE_BAD_TEXT")]


def test_a_reject_says_what_was_tried() -> None:
    (reject,) = decode_batch(lists(JUNK)).rejects.to_pylist()
    assert reject["reason"] == "1 frames that are no format we know"
    assert [attempt["format"] for attempt in reject["tried"]] == ["v6", "v5", "v4", "v3"]
    assert reject["tried"][0]["reason"] == "1 frames, at least 3 are needed"


def test_only_rejects() -> None:
    messages, rejects = decode_batch(lists(JUNK, BROKEN, BAD_TEXT))
    assert (messages.num_rows, messages.schema) == (0, MESSAGE_SCHEMA)
    assert rejects["row"].to_pylist() == [0, 1, 2]


@pytest.mark.parametrize("body", [V6[-1], b"\5\0", b"\5\0\0\0"], ids=["a metaframe", "a stamp", "a long stamp"])
def test_v3_is_v3_whatever_its_body_imitates(body: bytes) -> None:
    (row,) = decode_batch(lists(encode(Message(identity=b"OLD", version=1, body=body), "v3"))).messages.to_pylist()
    assert (row["format"], row["identity"], row["body"]) == ("v3", b"OLD", body)


@pytest.mark.parametrize("repeat", [[V6], [V5], [V6, V5], [V6] * 99 + [V4], [V6] * 499 + [JUNK], MIXED])
def test_long_batches_keep_the_order(repeat: list[list[bytes]]) -> None:
    once = decode_batch(lists(*repeat))
    n = 9_000 // len(repeat) + 1
    messages, rejects = decode_batch(pa.concat_arrays([lists(*repeat)] * n))
    for many, one in ((messages, once.messages), (rejects, once.rejects)):
        rows = one["row"].to_numpy()
        assert np.array_equal(many["row"], (np.arange(n)[:, None] * len(repeat) + rows).ravel())
        for name in one.schema.names[1:]:
            assert many[name] == pa.concat_arrays([one[name]] * n), name


# Who asks the row codec about what.


@pytest.mark.parametrize(
    "ordinary",
    [
        V6,
        V5,
        V5_SHORT_STAMP,
        encode(BARE),
        encode(BARE, "v5"),
        encode(Message(domain="Bücher", routing=(RoutingEntry("tcp://ü"),))),
        encode(Message(domain="Bücher", routing=(RoutingEntry("tcp://ü"),)), "v5"),
        encode(MESSAGE, extra=Extra(lead=(b"", b"router", b""))),
        encode(MESSAGE, "v5", extra=Extra(lead=(b"", b"router", b""))),
        encode(MESSAGE, extra=Extra(body_sizes=(3, 6))),
        encode(MESSAGE, "v5", extra=Extra(body_sizes=(3, 6))),
        encode(MESSAGE, extra=Extra(trailing=b"later", trace_reserved=b"\1\2\3\4", wire_version=4)),
        encode(MESSAGE, extra=Extra(routing_rest=((b"later",), ()), callback_rest=((), (b"later",)))),
        encode(Message(routing=(RoutingEntry("tcp://a", b"n"),) * 32)),
        encode(Message(routing=(RoutingEntry("tcp://a", b"n"),) * 99), "v5"),
    ],
)
def test_ordinary_messages_never_need_the_row_codec(ordinary: list[bytes], asked: list[list[bytes]]) -> None:
    batch = decode_batch(lists(V5, ordinary, V6, ordinary))
    assert asked == []
    message = decode(ordinary).message
    for row in (1, 3):
        assert batch.messages["body"][row].as_py() == message.body
        assert batch.messages["domain"][row].as_py() == message.domain
        assert len(batch.messages["routing"][row]) == len(message.routing)


def test_the_row_codec_is_asked_about_odd_rows_alone(asked: list[list[bytes]]) -> None:
    decode_batch(lists(*MIXED))
    assert asked == [JUNK, V3, BROKEN, V4, BAD_TEXT]


ODD: list[tuple[FormatName, Message, Extra]] = [
    ("v6", Message(routing=(RoutingEntry("tcp://a", b"n"),) * 33), Extra()),
    ("v6", Message(callback_points=(MessageType(b"DONE", 1),) * 33), Extra()),
    ("v6", MESSAGE, Extra(lead=(b"",) * 20)),
    ("v6", MESSAGE, Extra(wire_version=5)),
    ("v6", MESSAGE, Extra(body_offset=0, body_sizes=())),
    ("v5", MESSAGE, Extra(after_body=(b"later",))),
    ("v5", MESSAGE, Extra(after_routing=(b"later",))),
    ("v5", MESSAGE, Extra(after_callbacks=(b"later",))),
    ("v5", MESSAGE, Extra(routing_rest=((b"x",), (b"y",)))),
    ("v5", MESSAGE, Extra(callback_rest=((b"x",), (b"y",)))),
]


@pytest.mark.parametrize(("format", "message", "extra"), ODD)
def test_odd_layouts_are_read_by_the_row_codec(
    format: FormatName, message: Message, extra: Extra, asked: list[list[bytes]]
) -> None:
    if extra.body_sizes == ():
        message = Message()
    frames = encode(message, format, extra=extra)
    batch = decode_batch(lists(V6, frames, V5))
    assert asked == [frames]
    assert batch.messages["format"].to_pylist() == ["v6", format, "v5"]
    assert batch.messages["identity"][1].as_py() == message.identity
    assert len(batch.messages["callback_points"][1]) == len(message.callback_points)


def test_text_that_is_not_utf8_takes_nobody_along(asked: list[list[bytes]]) -> None:
    foreign = encode(Message(identity=b"B", version=1, domain="Bücher"))
    bad_uri = [*V6[:-1], V6[-1].replace(b"10.0.0.2", b"10.\xc3\x28.02")]
    bad_frame = [b"\xff" if frame == b"tcp://10.0.0.1:5000" else frame for frame in V5]
    batch = decode_batch(lists(V6, foreign, bad_uri, V6, V5, bad_frame))
    assert asked == [bad_uri, bad_frame]
    assert batch.messages["domain"].to_pylist() == ["orders", "Bücher", "orders", "orders"]
    assert batch.rejects["code"].to_pylist() == ["WIRE_BAD_TEXT"] * 2


@pytest.mark.parametrize("format", ["v6", "v5"])
def test_a_character_cannot_be_split_between_two_messages(format: FormatName) -> None:
    whole = encode(Message(domain="??"), format)
    rows = [[frame.replace(b"??", half) for frame in whole] for half in (b"a\xc3", b"\xa4b")]
    assert decode_batch(lists(*rows)).rejects["code"].to_pylist() == ["WIRE_BAD_TEXT"] * 2


# More than 2 GiB: the memory is never written to, so it is not there.

LONG = (1 << 31) + 10


def with_long_frame(at: int) -> pa.Array:
    """Three messages; the one in the middle has zeros of more than 2 GiB as frame `at`."""
    middle = [*V6[:2], b"router", *V6[2:]]
    frames = [*V6, *middle, *V6]
    sizes = [len(frame) for frame in frames]
    sizes[len(V6) + at] = LONG
    bounds = np.cumsum([0, *sizes])
    data = np.zeros(bounds[-1], np.uint8)
    for frame, start, size in zip(frames, bounds, sizes, strict=False):
        if size != LONG:
            data[start : start + size] = np.frombuffer(frame, np.uint8)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    values = pa.Array.from_buffers(pa.large_binary(), len(frames), buffers)
    return pa.LargeListArray.from_arrays(pa.array([0, 4, 9, 13]), values)


def test_frames_beyond_two_gigabytes(asked: list[list[bytes]]) -> None:
    messages, rejects = decode_batch(with_long_frame(2))
    assert (rejects.num_rows, asked) == (0, [])
    assert messages.schema == MESSAGE_SCHEMA
    assert messages["body"].to_pylist() == [MESSAGE.body] * 3
    assert messages["domain"].to_pylist() == [MESSAGE.domain] * 3
    assert messages["routing"][2] == messages["routing"][0]


def test_a_column_beyond_two_gigabytes_is_refused_unless_it_is_left_out() -> None:
    rows = with_long_frame(3)
    with pytest.raises(ValueError, match=r"^a column would hold 2 GiB or more; decode the batch in slices"):
        decode_batch(rows)
    sizes = decode_batch(rows, columns=["identity", "body_size"]).messages
    assert sizes["body_size"].to_pylist() == [9, LONG, 9]
    assert sizes["identity"].to_pylist() == [MESSAGE.identity] * 3
