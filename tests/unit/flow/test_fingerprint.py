"""The fingerprint: decisions "fingerprint of a message"."""

import msgspec
import pytest

from hopline.flow import message_uid
from hopline.identity import RECEIPT
from hopline.wire import Distribution, Message, MessageType, RoutingEntry

POINTS = (MessageType(b"EHHLO", 1), MessageType(b"OTHER", 2, b"P"))
MESSAGE = Message(identity=b"HELLO", version=1, body=b"hi", correlation_id=b"c1", callback_points=POINTS)


@pytest.mark.parametrize(
    "change",
    [
        {"socket_identity": b"N2"},
        {"hops": 3},
        {"routing": (RoutingEntry("tcp://a:1", b"a"),)},
        {"ttl_ticks": 5},
        {"signature": b"sig"},
        {"domain": "dom"},
        {"receiver_node_identity": b"n1"},
        {"callback_points": POINTS[::-1]},
        {"callback_points": (*POINTS, RECEIPT)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_changes_on_the_way_is_left_out(change):
    assert message_uid(msgspec.structs.replace(MESSAGE, **change)) == message_uid(MESSAGE)


@pytest.mark.parametrize(
    "change",
    [
        {"identity": b"HELL"},
        {"version": 2},
        {"version": b"\1\0"},
        {"partition": b"P"},
        {"body": b"ho"},
        {"correlation_id": b"c2"},
        {"receiver_identity": b"\1a"},
        {"distribution": Distribution.BROADCAST},
        {"trace_options": 1},
        {"callback_points": POINTS[:1]},
        {"callback_key": 7},
        {"callback_receiver_identity": b"\0h"},
        {"callback_receiver_node_identity": b"n"},
    ],
    ids=lambda change: f"{next(iter(change.items()))}",
)
def test_everything_else_counts(change):
    assert message_uid(msgspec.structs.replace(MESSAGE, **change)) != message_uid(MESSAGE)


def test_neighbouring_fields_cannot_run_into_each_other():
    one = Message(identity=b"AB", partition=b"C")
    other = Message(identity=b"A", partition=b"BC")
    assert message_uid(one) != message_uid(other)


def test_it_is_the_same_everywhere_and_always():
    # Tables hold fingerprints for years: this value must never change.
    assert message_uid(MESSAGE).hex() == "fb056e2a5ea26a1295dbb876b840d739"
