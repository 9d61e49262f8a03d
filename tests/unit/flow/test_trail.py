"""Trail rules: protocol.md 2.4 and 2.5, decisions "hops and trail", "trail length", "TraceOptions"."""

import pytest

from hopline.flow import MAX_TRAIL, inherit_flow, inherited_trail, is_recorded, output_of, record_hop, sender
from hopline.wire import TRACE_ROUTING, Distribution, Message, MessageType, RoutingEntry

A, B, C = (RoutingEntry(f"tcp://10.0.0.{i}:5101", b"n%d" % i) for i in (1, 2, 3))


@pytest.mark.parametrize(
    ("hops", "routing", "parent", "who"),
    [
        (0, (), (), None),
        (0, (A, B), (A, B), None),
        (1, (A,), (), A),
        (1, (A, B), (A,), B),
        (2, (A, B, C), (A,), B),
        (3, (A,), (), A),
        (2, (), (), None),
        (-1, (A,), (A,), None),
    ],
    ids=[
        "new",
        "output not sent yet",
        "first send",
        "reply",
        "forwarded",
        "hops untraced",
        "no trace",
        "nonsense hops",
    ],
)
def test_hops_tell_the_parents_trail_from_the_messages_own(hops, routing, parent, who):
    message = Message(hops=hops, routing=routing)
    assert inherited_trail(message) == parent
    assert sender(message) == who


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (Message(), False),
        (Message(trace_options=TRACE_ROUTING), True),
        (Message(trace_options=2), False),
        (Message(routing=(A,)), True),
    ],
)
def test_an_entry_is_added_if_asked_for_or_begun(message, expected):
    assert is_recorded(message) is expected
    sent, dropped = record_hop(message, C)
    assert sent.hops == 1
    assert sent.routing == ((*message.routing, C) if expected else ())
    assert dropped == 0


def test_each_copy_gets_its_own_hop():
    message = Message(trace_options=TRACE_ROUTING, routing=(A,), hops=1)
    copies = [record_hop(message, B).message for _ in range(3)]
    assert {copy.hops for copy in copies} == {2}
    assert message.routing == (A,)


def test_a_long_trail_drops_its_oldest_entries_and_counts_them():
    message = Message(routing=(A,) * (MAX_TRAIL + 4))
    sent, dropped = record_hop(message, B)
    assert (len(sent.routing), sent.routing[-1], dropped) == (MAX_TRAIL, B, 5)


def test_hops_stop_at_what_the_wire_can_say():
    assert record_hop(Message(hops=65535), A).message.hops == 65535


PARENT = Message(
    identity=b"HELLO",
    version=1,
    correlation_id=b"c1",
    routing=(A,),
    hops=1,
    trace_options=TRACE_ROUTING,
    ttl_ticks=50,
    domain="dom",
    signature=b"sig",
    receiver_identity=b"\1actor",
    receiver_node_identity=b"n1",
    callback_points=(MessageType(b"EHHLO", 1),),
    callback_key=7,
    callback_receiver_identity=b"\0hub",
    callback_receiver_node_identity=b"n9",
)


def test_what_an_output_inherits_and_what_not():
    output = inherit_flow(Message(identity=b"OTHER", version=1, trace_options=2, body=b"x"), PARENT)
    assert output == Message(
        identity=b"OTHER",
        version=1,
        body=b"x",
        correlation_id=b"c1",
        routing=(A,),
        trace_options=3,
        callback_points=PARENT.callback_points,
        callback_key=7,
        callback_receiver_identity=b"\0hub",
        callback_receiver_node_identity=b"n9",
    )


@pytest.mark.parametrize("distribution", list(Distribution))
def test_an_output_that_answers_goes_to_the_hub_broadcast_too(distribution):
    output = inherit_flow(Message(identity=b"EHHLO", version=1, distribution=distribution), PARENT)
    assert (output.receiver_identity, output.receiver_node_identity) == (b"\0hub", b"n9")


@pytest.mark.parametrize("kind", [MessageType(b"EHHLO", 1), MessageType(b"OTHER", 2, b"p")])
@pytest.mark.parametrize("parent", [PARENT, Message(correlation_id=b"c2", hops=3, routing=(A, B))])
def test_a_plain_output_inherits_what_every_output_does(kind, parent):
    plain = Message(identity=kind.identity, version=kind.version, partition=kind.partition)
    assert output_of(kind, parent) == inherit_flow(plain, parent)
