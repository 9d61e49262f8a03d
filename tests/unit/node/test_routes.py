"""Route selection: the route selectors of the documents; protocol.md 3.3; decisions "handler selection"."""

from collections import Counter

import pytest

from hopline.identity import MessageType
from hopline.node.routes import Choice, RoutingTable
from hopline.wire import Distribution, Message

HELLO = MessageType(b"HELLO", 1)
A1, A2, A3 = b"\1a1", b"\1a2", b"\1a3"
HUB = b"\0h1"


def hello(**fields):
    return Message(**{"identity": b"HELLO", "version": 1, **fields})


@pytest.fixture
def table():
    """Two local actors, two nodes with an actor each, a hub here and one there."""
    table = RoutingTable(b"me")
    table.add_actor(A1, [HELLO], "one")
    table.add_actor(A2, [HELLO], "two")
    table.add_hub(HUB, "hub")
    table.add_remote(b"n1", "tcp://n1", A3, [HELLO])
    table.add_remote(b"n2", "tcp://n2", b"\1a4", [HELLO])
    table.add_remote(b"n2", "tcp://n2", b"\0h2", [])
    return table


def test_unicast_is_fair_over_actors_and_nodes(table):
    chosen = Counter(table.choose(hello()) for _ in range(400))
    assert set(chosen.values()) == {100}
    assert set(chosen) == {Choice(("one",)), Choice(("two",)), Choice((), (b"n1",)), Choice((), (b"n2",))}


@pytest.mark.parametrize("change", [{"identity": b"HELL"}, {"version": 2}, {"partition": b"P"}])
def test_a_type_is_identity_version_and_partition(table, change):
    assert table.choose(hello(**change)) == Choice()


def test_what_came_from_outside_stays_if_it_can(table):
    assert {table.choose(hello(hops=1)) for _ in range(10)} == {Choice(("one",)), Choice(("two",))}
    table.remove_actor(A1)
    table.remove_actor(A2)
    assert {table.choose(hello(hops=1)) for _ in range(10)} == {Choice((), (b"n1",)), Choice((), (b"n2",))}


def test_broadcast_is_for_all_but_is_not_sent_on(table):
    everybody = hello(distribution=Distribution.BROADCAST)
    assert table.choose(everybody) == Choice(("one", "two"), (b"n1", b"n2"))
    from_outside = hello(distribution=Distribution.BROADCAST, hops=1)
    assert table.choose(from_outside) == Choice(("one", "two"))


def test_a_receiver_node_is_that_node_and_no_other(table):
    assert table.choose(hello(receiver_node_identity=b"n2")) == Choice((), (b"n2",))
    assert table.choose(hello(receiver_node_identity=b"n9")) == Choice()
    assert table.choose(hello(receiver_node_identity=b"me")).remote == ()
    assert table.choose(hello(receiver_node_identity=b"n2"), without=frozenset({b"n2"})) == Choice()


@pytest.mark.parametrize(
    ("receiver", "node", "choice"),
    [
        (HUB, b"", Choice(("hub",))),
        (HUB, b"me", Choice(("hub",))),
        (b"\0h2", b"", Choice((), (b"n2",))),
        (b"\0h2", b"me", Choice()),
        (b"\0h9", b"", Choice()),
        (A2, b"", Choice(("two",))),
        (A3, b"", Choice((), (b"n1",))),
        (A3, b"me", Choice()),
        (b"\1a9", b"", Choice()),
    ],
)
def test_a_receiver_is_that_receiver(table, receiver, node, choice):
    assert table.choose(hello(receiver_identity=receiver, receiver_node_identity=node)) == choice


def test_a_receiver_must_handle_the_version_but_a_hub_takes_all(table):
    assert table.choose(hello(receiver_identity=A1, version=2)) == Choice()
    assert table.choose(hello(receiver_identity=A3, version=2)) == Choice()
    assert table.choose(hello(receiver_identity=HUB, version=2)) == Choice(("hub",))


def test_nodes_that_failed_are_passed_over(table):
    table.remove_actor(A1)
    table.remove_actor(A2)
    for _ in range(5):
        assert table.choose(hello(), without=frozenset({b"n1"})) == Choice((), (b"n2",))
    assert table.choose(hello(), without=frozenset({b"n1", b"n2"})) == Choice()


def test_local_only_actors_are_found_here_and_not_announced(table):
    table.add_actor(b"\1secret", [MessageType(b"SECRET", 1)], "secret", local_only=True)
    assert table.choose(Message(identity=b"SECRET", version=1)) == Choice(("secret",))
    assert dict(table.announced()) == {HUB: frozenset(), A1: frozenset({HELLO}), A2: frozenset({HELLO})}


def test_a_node_keeps_a_type_while_one_of_its_actors_has_it(table):
    table.add_remote(b"n1", "tcp://n1", b"\1a5", [HELLO])
    table.remove_remote(b"n1", A3, [HELLO])
    assert (b"n1",) in {table.choose(hello()).remote for _ in range(4)}
    table.remove_remote(b"n1", b"\1a5", [HELLO])
    assert (b"n1",) not in {table.choose(hello()).remote for _ in range(6)}


def test_removing_types_without_a_receiver_means_all_actors_of_the_node(table):
    table.add_remote(b"n1", "tcp://n1", b"\1a5", [HELLO])
    table.remove_remote(b"n1", b"", [HELLO])
    assert (b"n1",) not in {table.choose(hello()).remote for _ in range(6)}


def test_removing_what_is_not_there_is_no_error(table):
    table.remove_actor(b"\1a9")
    table.remove_hub(b"\0h9")
    table.remove_node(b"n9")
    table.remove_remote(b"n9", A3, [HELLO])
    table.remove_remote(b"n1", b"\1a9", [HELLO])
    assert table.choose(hello(receiver_node_identity=b"n1")).remote == (b"n1",)


def test_a_node_that_left_is_gone_with_its_hubs(table):
    table.remove_node(b"n2")
    assert table.uri_of(b"n2") is None
    assert table.choose(hello(receiver_identity=b"\0h2")) == Choice()
    assert set(table.nodes()) == {b"n1"}


def test_a_hub_can_be_withdrawn(table):
    table.remove_remote(b"n2", b"\0h2")
    assert table.choose(hello(receiver_identity=b"\0h2")) == Choice()
    table.remove_hub(HUB)
    assert table.choose(hello(receiver_identity=HUB)) == Choice()


def test_we_are_not_our_own_peer(table):
    table.add_remote(b"me", "tcp://me", A3, [HELLO])
    assert b"me" not in table.nodes()


def test_a_node_may_move(table):
    table.add_remote(b"n1", "tcp://elsewhere", A3, [HELLO])
    assert table.uri_of(b"n1") == "tcp://elsewhere"
