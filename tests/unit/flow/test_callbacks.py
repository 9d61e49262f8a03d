"""Callback rules: protocol.md 2.3, decisions "callback match" and "callback without a key"."""

import pytest

from hopline.flow import is_answer, matching_point, register_callbacks
from hopline.wire import Message, MessageType

POINT = MessageType(b"EHHLO", 1, b"P")


@pytest.mark.parametrize(
    ("identity", "version", "partition", "matches"),
    [
        (b"EHHLO", 1, b"P", True),
        (b"EHHLO", 1, b"", False),
        (b"EHHLO", 2, b"P", False),
        (b"EHHL", 1, b"P", False),
    ],
)
def test_a_point_matches_only_the_whole_type(identity, version, partition, matches):
    message = Message(identity=identity, version=version, partition=partition, callback_points=(MessageType(b"X", 1), POINT))
    assert matching_point(message) == (POINT if matches else None)


def test_registering_overwrites_all_four_values():
    old = Message(
        identity=b"HELLO",
        callback_points=(MessageType(b"OLD", 1),),
        callback_key=1,
        callback_receiver_identity=b"\0old",
        callback_receiver_node_identity=b"old",
    )
    new = register_callbacks(old, [POINT], receiver=b"\0hub", node=b"n1", key=7)
    assert new == Message(
        identity=b"HELLO",
        callback_points=(POINT,),
        callback_key=7,
        callback_receiver_identity=b"\0hub",
        callback_receiver_node_identity=b"n1",
    )


def test_a_match_addresses_the_hub_even_over_a_receiver_set_before():
    message = Message(identity=b"EHHLO", version=1, partition=b"P", receiver_identity=b"\1actor")
    sent = register_callbacks(message, [POINT], receiver=b"\0hub", node=b"n1", key=7)
    assert (sent.receiver_identity, sent.receiver_node_identity) == (b"\0hub", b"n1")
    assert sent.callback_points == (POINT,), "points stay, so that a later message can match again"


REQUEST = Message(
    identity=b"HELLO",
    correlation_id=b"c1",
    callback_points=(POINT,),
    callback_key=7,
    callback_receiver_identity=b"\0hub",
    callback_receiver_node_identity=b"n1",
)
ANSWER = {
    "identity": b"EHHLO",
    "version": 1,
    "partition": b"P",
    "correlation_id": b"c1",
    "callback_key": 7,
    "callback_receiver_identity": b"\0hub",
    "callback_receiver_node_identity": b"n1",
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"correlation_id": b"other"}, True),
        ({"callback_key": 8}, False),
        ({"callback_receiver_identity": b"\0other"}, False),
        ({"callback_receiver_node_identity": b"n2"}, False),
        ({"callback_receiver_node_identity": b""}, True),
        ({"version": 2}, False),
        ({"callback_key": 0, "callback_receiver_node_identity": b""}, True),
        ({"callback_key": 0, "correlation_id": b"other"}, False),
    ],
    ids=[
        "same",
        "key decides",
        "other key",
        "other hub",
        "other node",
        "v4: no node",
        "other type",
        "v4: by flow",
        "v4: other flow",
    ],
)
def test_an_answer_is_known_by_key_or_without_one_by_flow(change, expected):
    assert is_answer(Message(**{**ANSWER, **change}), REQUEST) is expected
