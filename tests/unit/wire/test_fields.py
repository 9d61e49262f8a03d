"""The JSON form: shared/vectors README; `hopline decode` and `hopline encode` speak it."""

import msgspec
import pytest

from hopline.errors import InputError
from hopline.wire import Distribution, Extra, Message, MessageType, RoutingEntry
from hopline.wire.fields import extra_from_json, extra_to_json, message_from_json, message_to_json, read_hex

FULL = Message(
    socket_identity=b"\0\xff",
    identity=b"HELLO",
    version=b"1.1",
    partition=b"P",
    body=b"\x0a",
    correlation_id=b"C1",
    receiver_identity=b"\1a",
    receiver_node_identity=b"n1",
    distribution=Distribution.BROADCAST,
    trace_options=3,
    callback_points=(MessageType(b"A", 1, b"p"), MessageType(b"B", b"x")),
    callback_key=-1,
    callback_receiver_identity=b"\0h",
    callback_receiver_node_identity=b"n2",
    domain="домен",
    signature=b"s",
    ttl_ticks=-(2**63),
    hops=2,
    routing=(RoutingEntry("tcp://ü:1", b"r"),),
)


def test_the_empty_message_shows_every_field_with_its_empty_value():
    assert message_to_json(Message()) == {
        "socket_identity": "",
        "identity": "",
        "version": 0,
        "partition": "",
        "body": "",
        "correlation_id": "",
        "receiver_identity": "",
        "receiver_node_identity": "",
        "distribution": "unicast",
        "trace_options": 0,
        "callback_points": [],
        "callback_key": 0,
        "callback_receiver_identity": "",
        "callback_receiver_node_identity": "",
        "domain": "",
        "signature": "",
        "ttl_ticks": 0,
        "hops": 0,
        "routing": [],
    }


def test_a_full_message_goes_there_and_back_through_json():
    fields = message_to_json(FULL)
    assert fields["version"] == "312e31"
    assert fields["callback_points"] == [
        {"identity": "41", "version": 1, "partition": "70"},
        {"identity": "42", "version": "78", "partition": ""},
    ]
    assert fields["routing"] == [{"uri": "tcp://ü:1", "identity": "72"}]
    assert fields["distribution"] == "broadcast"
    assert message_from_json(msgspec.json.decode(msgspec.json.encode(fields))) == FULL


def test_missing_fields_are_empty():
    assert message_from_json({}) == Message()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ([], "INPUT_BAD_JSON"),
        ({"idenity": "00"}, "INPUT_BAD_JSON"),
        ({"identity": 5}, "INPUT_BAD_JSON"),
        ({"version": 1.5}, "INPUT_BAD_JSON"),
        ({"distribution": "direct"}, "INPUT_BAD_JSON"),
        ({"callback_points": [{"id": "00"}]}, "INPUT_BAD_JSON"),
        ({"routing": [["uri", "00"]]}, "INPUT_BAD_JSON"),
        ({"identity": "0"}, "INPUT_BAD_HEX"),
        ({"identity": "zz"}, "INPUT_BAD_HEX"),
        ({"identity": "0a 0b"}, "INPUT_BAD_HEX"),
        ({"identity": "ё"}, "INPUT_BAD_HEX"),
        ({"version": "1.0"}, "INPUT_BAD_HEX"),
    ],
)
def test_other_shapes_are_refused(fields, code):
    with pytest.raises(InputError) as caught:
        message_from_json(fields)
    assert caught.value.code == code


EXTRA = Extra(
    wire_version=4,
    lead=(),
    body_sizes=(1, 0),
    body_offset=0,
    body_copy=b"",
    after_body=(b"", b"a"),
    routing_rest=((b"r",), ()),
    idle_routing=(b"\0\0", b"\0\0", b"\7\0"),
    trace_reserved=b"\1\0\0\0",
    text_version=False,
    trailing=b"t",
)


def test_extra_goes_there_and_back_and_shows_only_what_is_kept():
    shown = extra_to_json(EXTRA)
    assert shown == {
        "wire_version": 4,
        "lead": [],
        "body_sizes": [1, 0],
        "body_offset": 0,
        "body_copy": "",
        "after_body": ["", "61"],
        "routing_rest": [["72"], []],
        "idle_routing": ["0000", "0000", "0700"],
        "trace_reserved": "01000000",
        "text_version": False,
        "trailing": "74",
    }
    assert extra_from_json(shown) == EXTRA


@pytest.mark.parametrize("nothing", [None, {}])
def test_no_extra_is_none(nothing):
    assert extra_from_json(nothing) is None


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        ([1], "INPUT_BAD_JSON"),
        ({"unknown": 1}, "INPUT_BAD_JSON"),
        ({"body_sizes": ["1"]}, "INPUT_BAD_JSON"),
        ({"idle_routing": ["00"]}, "INPUT_BAD_JSON"),
        ({"lead": ["xyz"]}, "INPUT_BAD_HEX"),
    ],
)
def test_other_extras_are_refused(extra, code):
    with pytest.raises(InputError) as caught:
        extra_from_json(extra)
    assert caught.value.code == code


def test_hex_is_read_in_both_cases_and_the_error_is_short():
    assert read_hex("aBcD", "x") == b"\xab\xcd"
    with pytest.raises(InputError) as caught:
        read_hex("z" * 10_000, "body")
    assert len(str(caught.value)) < 100
