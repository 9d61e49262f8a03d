"""The Message: empty values, its type, and what is odd about one."""

import pytest

from hopline.wire import (
    TICKS_PER_MS,
    TRACE_ROUTING,
    Distribution,
    Message,
    MessageType,
    RoutingEntry,
    warnings_of,
)

EMPTY = {
    "socket_identity": b"",
    "identity": b"",
    "version": 0,
    "partition": b"",
    "body": b"",
    "correlation_id": b"",
    "receiver_identity": b"",
    "receiver_node_identity": b"",
    "distribution": 0,
    "trace_options": 0,
    "callback_points": (),
    "callback_key": 0,
    "callback_receiver_identity": b"",
    "callback_receiver_node_identity": b"",
    "domain": "",
    "signature": b"",
    "ttl_ticks": 0,
    "hops": 0,
    "routing": (),
}


def test_a_new_message_is_empty_in_every_field() -> None:
    # vectors/README: these are the fields, and a field that a format does not have holds its empty value.
    assert {field: getattr(Message(), field) for field in Message.__struct_fields__} == EMPTY


def test_type_is_identity_version_and_partition() -> None:
    message = Message(identity=b"HELLO", version=3, partition=b"P", body=b"x", receiver_identity=b"R")
    assert message.type == MessageType(b"HELLO", 3, b"P")


def test_messages_are_compared_by_all_fields() -> None:
    assert Message(hops=1) == Message(hops=1)
    assert Message(hops=1) != Message(hops=2)
    assert Message(routing=(RoutingEntry("a", b"b"),)) != Message(routing=(RoutingEntry("a", b"c"),))


@pytest.mark.parametrize(("value", "field"), [(Message(), "hops"), (RoutingEntry(), "uri")])
def test_values_cannot_be_changed(value: object, field: str) -> None:
    with pytest.raises(AttributeError):
        setattr(value, field, 1)


def test_distribution_knows_two_values() -> None:
    # decisions: enumerations; protocol A13: "Direct" is not a value.
    assert {one.name: one.value for one in Distribution} == {"UNICAST": 0, "BROADCAST": 1}


def test_numbers_of_the_protocol() -> None:
    # protocol 1.1: 1 ms = 10 000 ticks; TraceOptions Routing = 1.
    assert (TICKS_PER_MS, TRACE_ROUTING) == (10_000, 1)


@pytest.mark.parametrize(
    ("trace_options", "warnings"),
    [
        (0, ()),
        (1, ()),
        (2, ("unknown trace options 0x2",)),
        (3, ("unknown trace options 0x2",)),
        (0xFFFF, ("unknown trace options 0xfffe",)),
        (-1, ("unknown trace options 0xfffffffffffffffe",)),  # v3 carries 64 bits
    ],
)
def test_unknown_trace_options_are_kept_with_a_warning(trace_options: int, warnings: tuple[str, ...]) -> None:
    # decisions, enumerations: unknown bits are kept, with a warning.
    assert warnings_of(Message(trace_options=trace_options)) == warnings
