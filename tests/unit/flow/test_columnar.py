"""The rules over columns give the answers of the rules for one message."""

import msgspec
import pyarrow as pa
import pytest

from hopline.flow import inherited_trail, matching_point, message_uid
from hopline.flow.columnar import (
    ANSWER_COLUMNS,
    TRAIL_COLUMNS,
    UID_COLUMNS,
    are_answers,
    are_flows,
    inherited_sizes,
    message_uids,
    stable_forms,
)
from hopline.flow.fingerprint import stable_form
from hopline.identity import EXCEPTION, RECEIPT
from hopline.wire import Distribution, Message, MessageType, RoutingEntry, decode, encode
from hopline.wire.columnar import MESSAGE_SCHEMA, decode_batch

POINT = MessageType(b"EHHLO", 1, b"p")
TRAIL = tuple(RoutingEntry(f"tcp://{name}:1", name.encode()) for name in "abc")
HELLO = Message(
    identity=b"HELLO",
    version=1,
    correlation_id=b"c1",
    body=b"hi",
    callback_points=(POINT, EXCEPTION),
    callback_key=7,
    callback_receiver_identity=b"\0hub",
    callback_receiver_node_identity=b"n1",
    trace_options=1,
)


def change(**values: object) -> Message:
    return msgspec.structs.replace(HELLO, **values)


MESSAGES = [
    HELLO,
    Message(),
    change(body=b""),
    change(callback_points=()),
    change(callback_points=(EXCEPTION, POINT)),
    change(callback_points=(RECEIPT, POINT, EXCEPTION)),
    change(callback_points=(RECEIPT,)),
    change(distribution=Distribution.BROADCAST),
    change(identity=b"EHHLO", partition=b"p"),
    change(identity=b"EHHLO", partition=b"p", version=2),
    change(identity=b"EHHLO"),
    change(identity=b"EHHL", partition=b"Op"),
    change(callback_key=-1, trace_options=0xFFFF, version=0xFFFF),
    change(hops=0, routing=TRAIL),
    change(hops=1, routing=TRAIL),
    change(hops=3, routing=TRAIL),
    change(hops=9, routing=TRAIL),
    change(receiver_identity=b"\1actor", receiver_node_identity=b"n2", ttl_ticks=5, domain="d", signature=b"s"),
]
OLD = [
    Message(identity=b"HELLO", version=b"latest", callback_points=(MessageType(b"HELLO", b"latest"), POINT)),
    Message(identity=b"HELLO", version=b"\1\0", callback_points=(MessageType(b"HELLO", 1),)),
    Message(identity=b"HELLO", version=1, callback_points=(MessageType(b"HELLO", b"1.1"), MessageType(b"HELLO", 1))),
    Message(identity=b"HELLO", version=1, hops=-1, routing=TRAIL),
]
FRAMES = [encode(message) for message in MESSAGES] + [encode(message, "v3") for message in OLD]
ROWS = [decode(frames).message for frames in FRAMES]


def columns(names: tuple[str, ...], frames: list[list[bytes]] = FRAMES) -> pa.RecordBatch:
    return decode_batch(pa.array(frames, pa.list_(pa.binary())), columns=names).messages


@pytest.mark.parametrize("start", [0, 3])
def test_fingerprints(start: int) -> None:
    batch = columns(UID_COLUMNS).slice(start)
    assert message_uids(batch).to_pylist() == [message_uid(message) for message in ROWS[start:]]


def test_messages_that_are_seen_again_have_the_same_fingerprint() -> None:
    expected = [message_uid(message) for message in ROWS]
    assert message_uids(columns(UID_COLUMNS, FRAMES + FRAMES[::-1])).to_pylist() == expected + expected[::-1]


@pytest.mark.parametrize("again", [0, 1500])
def test_fingerprints_of_messages_that_are_all_new_first(again: int) -> None:
    new = [change(body=b"%d" % number) for number in range(1500)]
    messages = new + new[:again]
    found = message_uids(columns(UID_COLUMNS, list(map(encode, messages)))).to_pylist()
    assert found == [message_uid(message) for message in messages]


@pytest.mark.parametrize("start", [0, 3])
def test_stable_forms(start: int) -> None:
    batch = columns(UID_COLUMNS).slice(start)
    assert stable_forms(batch).to_pylist() == [stable_form(message) for message in ROWS[start:]]


def test_however_many_types_are_invented_no_two_are_taken_for_one() -> None:
    """65 536 names, partitions and versions that are texts have 2^64 types: numbers of 64 bits must not begin again."""
    names = [b"%d" % number for number in range(0x1_0000)]
    (message,) = decode_batch(pa.array([encode(HELLO, "v6")]), columns=UID_COLUMNS).messages.to_pylist()
    texts = [message | {"identity": name, "partition": name, "version": None, "version_bytes": name} for name in names]
    texts[0]["version_bytes"] = b""
    number = message | {"identity": names[0], "partition": names[0], "version": 0}
    schema = pa.schema([MESSAGE_SCHEMA.field(name) for name in UID_COLUMNS])
    forms = stable_forms(pa.RecordBatch.from_pylist([*texts, number], schema))
    ours = change(identity=names[0], partition=names[0])
    assert forms[0].as_py() == stable_form(msgspec.structs.replace(ours, version=b""))
    assert forms[-1].as_py() == stable_form(msgspec.structs.replace(ours, version=0))


def test_what_changes_on_the_way_changes_no_fingerprint() -> None:
    moved = change(hops=4, routing=TRAIL, ttl_ticks=9, socket_identity=b"s", callback_points=(EXCEPTION, RECEIPT, POINT))
    first, second = message_uids(columns(UID_COLUMNS, [encode(HELLO), encode(moved, "v5")])).to_pylist()
    assert first == second


@pytest.mark.parametrize("start", [0, 5])
def test_answers(start: int) -> None:
    batch = columns(ANSWER_COLUMNS).slice(start)
    assert are_answers(batch).to_pylist() == [matching_point(message) is not None for message in ROWS[start:]]
    assert any(are_answers(batch).to_pylist())


@pytest.mark.parametrize("start", [0, 14])
def test_inherited_trails(start: int) -> None:
    batch = columns(TRAIL_COLUMNS).slice(start)
    assert inherited_sizes(batch).tolist() == [len(inherited_trail(message)) for message in ROWS[start:]]


def test_nothing_in_nothing_out() -> None:
    empty = columns(tuple(dict.fromkeys(UID_COLUMNS + TRAIL_COLUMNS))).slice(0, 0)
    assert message_uids(empty).to_pylist() == are_answers(empty).to_pylist() == inherited_sizes(empty).tolist() == []


def test_flows() -> None:
    zeros = b"00000000-0000-0000-0000-000000000000"
    assert are_flows(pa.array([b"c", b"", zeros, zeros[:-1], None])).to_pylist() == [True, False, False, True, True]
