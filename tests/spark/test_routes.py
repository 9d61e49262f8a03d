"""The table `routes`: who could serve what, from when to when."""

import msgspec
import pytest

from hopline.capture.record import key_of
from hopline.identity import MessageType
from hopline.payload.service import (
    MessageContract,
    RegisterExternalRoute,
    RegisterExternalRouteV4,
    RouteRegistration,
    UnregisterMessageRoute,
    UnregisterMessageRouteV4,
    UnregisterNode,
    UnregisterNodeRoute,
    UnregisterUnreachableNode,
    UnregisterUnreachableNodeV4,
)
from hopline.security import Keyring
from hopline.spark import hops, routes
from hopline.spark.tables import ROUTES
from hopline.wire import Message, encode
from tests.spark import reference as real
from tests.spark.generator import Network, Node, Parcel
from tests.spark.made import Made, assert_same, made, reference_tables
from tests.spark.stories import World


@pytest.mark.parametrize("seed", [1, 2])
def test_every_route_of_a_world_has_its_time(spark, seed):
    world = made(spark, seed)
    found = routes.routes(world.messages, skews=hops.skews(world.moves), verdicts=world.verdicts)
    assert found.columns == list(ROUTES.names)
    assert_same(found, world.truth.routes())


def test_bodies_may_come_from_elsewhere(spark):
    world = made(spark)
    found = routes.routes(world.messages.drop("body"), world.sightings, hops.skews(world.moves), world.verdicts)
    assert_same(found, world.truth.routes())


HELLO, BYE = MessageType(b"HELLO", 1), MessageType(b"BYE", 2, b"P")


class Announcements:
    """What one node, or another, hears of others, announcement by announcement: a story of its own among others.

    Nodes of two stories have nothing to do with each other, for each has the name of its story before its own.
    """

    def __init__(self, network: Network, story: str) -> None:
        self.network = network
        self._story = story
        self.node, self.other, self.third = (
            network.add(Node(f"{story} {name}", "live")) for name in ("ear", "other ear", "third ear")
        )

    def hear(
        self,
        payload,
        *,
        format: str = "v6",
        body: bytes | None = None,
        partition: bytes = b"",
        domain: str = "",
        socket: bytes = b"",
        node: Node | None = None,
        tap: str = "scaleout_in",
        signer: Keyring | None = None,
        after_ms: float = 1,
    ) -> None:
        self.network.wait(after_ms)
        node = node or self.node
        body = self._of_story(payload).write() if body is None else body
        message = Message(
            socket_identity=socket, identity=payload.identity, version=1, partition=partition, domain=domain, body=body
        )
        message = message if signer is None else signer.sign(message)
        frames = encode(message, format) if tap == "scaleout_in" else None
        self.network.see(node, tap, Parcel(message, (), node, 0), frames=frames, format=format)

    def _of_story(self, payload):
        (field,) = (name for name in payload.__struct_fields__ if name.endswith("identity"))
        name = getattr(payload, field)
        return msgspec.structs.replace(payload, **{field: f"{self._story}/".encode() + name if name else name})


def registered(*routes_of: RouteRegistration, uri="tcp://a:1", node=b"A") -> RegisterExternalRoute:
    return RegisterExternalRoute(uri, node, routes_of)


def actor(name: bytes, *kinds: MessageType) -> RouteRegistration:
    return RouteRegistration(b"\1" + name, tuple(map(MessageContract.of, kinds)))


def a_node_that_moves_ends_its_routes_by_announcing_them_again(heard):
    heard.hear(registered(actor(b"x", HELLO)))
    heard.hear(registered(actor(b"x", HELLO), uri="tcp://a:2"))
    return [
        ("A", "tcp://a:1", "actor:x", "actor", "HELLO", "KINO.REGEXTROUTE"),
        ("A", "tcp://a:2", "actor:x", "actor", "HELLO", None),
    ]


def a_node_that_is_started_anew_elsewhere_ends_all_that_it_served_before(heard, domain=""):
    heard.hear(registered(actor(b"x", HELLO), RouteRegistration(b"\0h")))
    heard.hear(registered(actor(b"y", BYE)))  # more of it, at the same address
    heard.hear(registered(actor(b"z", HELLO), node=b"B", uri="tcp://b:1"))
    heard.hear(registered(actor(b"new", HELLO), uri="tcp://a:2"), domain=domain)
    heard.hear(registered(actor(b"newer", BYE), uri="tcp://a:2"))
    heard.hear(UnregisterNode("tcp://a:2", b"A"))
    return [
        ("A", "tcp://a:1", "actor:x", "actor", "HELLO", "KINO.REGEXTROUTE"),
        ("A", "tcp://a:1", "hub:h", "hub", None, "KINO.REGEXTROUTE"),
        ("A", "tcp://a:1", "actor:y", "actor", "BYE", "KINO.REGEXTROUTE"),
        ("B", "tcp://b:1", "actor:z", "actor", "HELLO", None),
        ("A", "tcp://a:2", "actor:new", "actor", "HELLO", "KINO.UNREGNODE"),
        ("A", "tcp://a:2", "actor:newer", "actor", "BYE", "KINO.UNREGNODE"),
    ]


def and_so_does_one_in_another_domain(heard):
    return a_node_that_is_started_anew_elsewhere_ends_all_that_it_served_before(heard, domain="another")


def a_node_that_goes_back_serves_there_what_it_announces_there_again(heard):
    heard.hear(registered(actor(b"x", HELLO), actor(b"y", HELLO)))
    heard.hear(registered(actor(b"z", HELLO), uri="tcp://a:2"))
    heard.hear(registered(actor(b"x", HELLO)))
    return [
        ("A", "tcp://a:1", "actor:x", "actor", "HELLO", "KINO.REGEXTROUTE"),
        ("A", "tcp://a:1", "actor:y", "actor", "HELLO", "KINO.REGEXTROUTE"),
        ("A", "tcp://a:2", "actor:z", "actor", "HELLO", "KINO.REGEXTROUTE"),
        ("A", "tcp://a:1", "actor:x", "actor", "HELLO", None),
    ]


def who_does_not_say_where_moves_nobody(heard):
    heard.hear(registered(actor(b"x", HELLO)))
    heard.hear(registered(actor(b"y", HELLO), uri=""))
    heard.hear(registered(actor(b"z", HELLO), uri=None))
    return [
        ("A", "tcp://a:1", "actor:x", "actor", "HELLO", None),
        ("A", "", "actor:y", "actor", "HELLO", None),
        ("A", None, "actor:z", "actor", "HELLO", None),
    ]


def who_does_not_say_which_node_moves_nobody(heard):
    heard.hear(registered(actor(b"x", HELLO), node=b""))
    heard.hear(registered(actor(b"y", HELLO), node=b"", uri="tcp://a:2"))
    return [
        ("", "tcp://a:1", "actor:x", "actor", "HELLO", None),
        ("", "tcp://a:2", "actor:y", "actor", "HELLO", None),
    ]


def a_node_that_comes_back_by_another_socket_serves_again(heard):
    heard.hear(registered(actor(b"x", HELLO)), socket=b"\0one")
    heard.hear(UnregisterNode("tcp://a:1", b"A"), socket=b"\0one")
    heard.hear(registered(actor(b"x", HELLO)), socket=b"\0two")
    route = ("A", "tcp://a:1", "actor:x", "actor", "HELLO")
    return [(*route, "KINO.UNREGNODE"), (*route, None)]


def a_node_that_comes_back_after_a_while_may_be_heard_by_others_only(heard):
    heard.hear(registered(actor(b"x", HELLO)))
    heard.hear(registered(actor(b"x", HELLO)), node=heard.other)  # the same, a little later
    heard.hear(UnregisterNode("tcp://a:1", b"A"), after_ms=60_000)
    heard.hear(registered(actor(b"x", HELLO)), node=heard.third, after_ms=3_600_000)
    route = ("A", "tcp://a:1", "actor:x", "actor", "HELLO")
    return [(*route, "KINO.UNREGNODE"), (*route, None)]


def a_type_may_be_taken_back_for_all_actors_of_a_node(heard):
    heard.hear(registered(actor(b"x", HELLO, BYE), actor(b"y", HELLO), RouteRegistration(b"\0h"), actor(b"z")))
    heard.hear(registered(actor(b"x", HELLO), node=b"B"))
    heard.hear(UnregisterMessageRoute("tcp://a:1", b"A", (RouteRegistration(None, (MessageContract.of(HELLO),)),)))
    by = "KINO.UNREGMSGROUTE"
    return [
        ("A", "tcp://a:1", "actor:x", "actor", "BYE", None),
        ("A", "tcp://a:1", "actor:x", "actor", "HELLO", by),
        ("A", "tcp://a:1", "actor:y", "actor", "HELLO", by),
        ("A", "tcp://a:1", "hub:h", "hub", None, None),
        ("B", "tcp://a:1", "actor:x", "actor", "HELLO", None),
    ]


def a_receiver_may_be_taken_back_as_a_whole(heard):
    heard.hear(registered(actor(b"x", HELLO, BYE), RouteRegistration(b"\0h")))
    heard.hear(UnregisterMessageRoute("tcp://a:1", b"A", (RouteRegistration(b"\1x"), RouteRegistration(b"\0h"))))
    by = "KINO.UNREGMSGROUTE"
    return [
        ("A", "tcp://a:1", "actor:x", "actor", "BYE", by),
        ("A", "tcp://a:1", "actor:x", "actor", "HELLO", by),
        ("A", "tcp://a:1", "hub:h", "hub", None, by),
    ]


def old_nodes_announce_types_without_receivers(heard):
    hub = MessageContract(b"", b"hub-guid", b"", is_any_identifier=True)
    text = MessageContract.of(HELLO, text_version=True)
    heard.hear(RegisterExternalRouteV4("tcp://o:1", b"O", (text, hub)), format="v4")
    heard.hear(RegisterExternalRouteV4("tcp://p:1", b"P", (text,)), format="v3")
    heard.hear(RegisterExternalRouteV4("tcp://q:1", b"Q", (text,)), format="v3")
    heard.hear(UnregisterMessageRouteV4("tcp://o:1", b"O", (text,)), format="v4")
    heard.hear(UnregisterNodeRoute("tcp://p:1", b"P"), format="v3")
    heard.hear(UnregisterUnreachableNodeV4("tcp://q:1", b"Q"), format="v4")
    return [
        ("O", "tcp://o:1", "", "", "HELLO", "KINO.UNREGMSGROUTE"),
        ("O", "tcp://o:1", "hub-guid", "unknown", None, None),
        ("P", "tcp://p:1", "", "", "HELLO", "KINO.UNREGNODEROUTE"),
        ("Q", "tcp://q:1", "", "", "HELLO", "KINO.UNREGUNREACHABLENODE"),
    ]


def what_came_in_two_formats_is_read_in_the_newer_one(heard):
    heard.hear(registered(actor(b"x", HELLO)), format="v4")
    heard.hear(registered(actor(b"x", HELLO)), format="v6")
    return [("A", "tcp://a:1", "actor:x", "actor", "HELLO", None)]


def what_cannot_be_read_or_is_no_announcement_opens_nothing(heard):
    heard.hear(registered(), body=b"\xff junk")
    heard.hear(registered(actor(b"x", HELLO)), partition=b"somebody else's")
    heard.hear(UnregisterNode("tcp://a:1", b"A"))
    return []


def what_is_forged_is_ignored(heard):
    good, forged = ({"domain": "kino", "signer": ring} for ring in (heard.network.good, heard.network.forged))
    heard.hear(registered(actor(b"x", HELLO)), **good)
    heard.hear(registered(actor(b"forged", HELLO)), **forged)
    heard.hear(registered(actor(b"x", HELLO), uri="tcp://evil:1"), **forged)
    heard.hear(UnregisterMessageRoute("tcp://a:1", b"A", (RouteRegistration(b"\1x"),)), **forged)
    heard.hear(UnregisterNode("tcp://a:1", b"A"), **forged)
    return [("A", "tcp://a:1", "actor:x", "actor", "HELLO", None)]


def what_is_forged_is_not_announced_by_what_its_forger_saw_of_it_before(heard):
    heard.hear(registered(actor(b"x", HELLO)), domain="kino", tap="router_in", node=heard.other)
    heard.hear(registered(actor(b"x", HELLO)), domain="kino", signer=heard.network.forged)
    return []


def what_one_got_forged_and_another_as_it_was_is_announced(heard):
    heard.hear(registered(actor(b"x", HELLO)), domain="kino", signer=heard.network.forged)
    heard.hear(registered(actor(b"x", HELLO)), domain="kino", signer=heard.network.good, node=heard.other)
    return [("A", "tcp://a:1", "actor:x", "actor", "HELLO", None)]


def whoever_says_that_a_node_cannot_be_reached_is_believed(heard):
    heard.hear(registered(actor(b"x", HELLO)), domain="kino", signer=heard.network.good)
    heard.hear(UnregisterUnreachableNode(b"A"), domain="kino", signer=heard.network.forged)
    return [("A", "tcp://a:1", "actor:x", "actor", "HELLO", "KINO.UNREGUNREACHABLENODE")]


STORIES = (
    a_node_that_moves_ends_its_routes_by_announcing_them_again,
    a_node_that_is_started_anew_elsewhere_ends_all_that_it_served_before,
    and_so_does_one_in_another_domain,
    a_node_that_goes_back_serves_there_what_it_announces_there_again,
    who_does_not_say_where_moves_nobody,
    who_does_not_say_which_node_moves_nobody,
    a_node_that_comes_back_by_another_socket_serves_again,
    a_node_that_comes_back_after_a_while_may_be_heard_by_others_only,
    a_type_may_be_taken_back_for_all_actors_of_a_node,
    a_receiver_may_be_taken_back_as_a_whole,
    old_nodes_announce_types_without_receivers,
    what_came_in_two_formats_is_read_in_the_newer_one,
    what_cannot_be_read_or_is_no_announcement_opens_nothing,
    what_is_forged_is_ignored,
    what_is_forged_is_not_announced_by_what_its_forger_saw_of_it_before,
    what_one_got_forged_and_another_as_it_was_is_announced,
    whoever_says_that_a_node_cannot_be_reached_is_believed,
)
"""What is heard; each tells the routes that come of it."""


@pytest.fixture(scope="module")
def told(spark):
    """The routes of all stories, found at once and told apart by the names of their nodes; and the true ones."""
    world = World(Network())
    true = {story.__name__: story(Announcements(world.network, story.__name__)) for story in STORIES}
    found = {name: [] for name in true}
    tables = Made(spark, world)
    rows = routes.routes(tables.messages, verdicts=tables.verdicts)
    for row in rows.orderBy("valid_from", "receiver_key", "identity_key").collect():
        story, _, node = row.node_key.rpartition("/")
        rows = found[story or who_does_not_say_which_node_moves_nobody.__name__]
        rows.append((node, row.node_uri, row.receiver_key, row.receiver_kind, row.identity_key, row.ended_by))
    return found, true


@pytest.mark.parametrize("story", [story.__name__ for story in STORIES])
def test_what_is_announced_opens_and_ends_routes(told, story):
    found, true = told
    assert found[story] == true[story]


def test_the_server_of_the_reference_network_serves_until_it_leaves(spark, reference):
    tables = reference_tables(spark, reference)
    found = routes.routes(tables.messages, skews=hops.skews(tables.moves)).where("identity_key = 'HELLO'").collect()
    servers = {line.message.socket_identity: line for line in real.lines("v6_*_client") if line.message.identity == b"HELLO"}
    by_node = {row.node_key: row for row in found}
    for node in servers:
        row = by_node[key_of(node)]
        assert row.receiver_kind == "actor"
        assert row.version == 1
    announced = {
        line.file: line.seen_ns
        for line in reversed(real.lines("v6_*_server"))
        if line.message.identity == b"KINO.REGEXTROUTE" and line.direction == "out" and b"HELLO" in line.message.body
    }
    have = {int(row.valid_from.timestamp() * 1e6) for row in found}
    assert {seen_ns // 1000 for seen_ns in announced.values()} <= have
