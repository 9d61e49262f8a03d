"""The scripted reference network by itself: what it is made of works together, and it notices what it should notice."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import msgspec
import pytest
import zmq

from hopline.payload.service import HeartBeat, Ping, RequestClusterRoutes, UnregisterNode
from hopline.wire import Message, encode
from tests.reference.actors import APPLICATION, ActorError, captured_actors, text_body
from tests.reference.domains import KeyedDomains, NullDomains
from tests.reference.member import Times
from tests.reference.node import ReferenceNode
from tests.reference.rendezvous import ReferenceRendezvous
from tests.reference.station import NO_CORRELATION, Format, Stamp, Station, new_identity

QUICK = Times(heart_beat_s=0.1, missing_heart_beats=5, stale_check_s=0.1, stale_after_s=0.05, missing_routes_s=0.1)


class Network(NamedTuple):
    rendezvous: ReferenceRendezvous
    server: ReferenceNode
    client: ReferenceNode

    def assert_no_complaints(self) -> None:
        for station in self:
            assert station.complaints == []


def start(stack: ExitStack, format: Format, stamp: Stamp, domains: NullDomains, times: Times | None = None) -> Network:
    rendezvous = stack.enter_context(ReferenceRendezvous(format=format, stamp=stamp))
    rendezvous.wait_for(lambda: rendezvous.leads)
    common = {"format": format, "stamp": stamp, "domains": domains, "times": times}
    server = stack.enter_context(ReferenceNode([rendezvous.endpoint], actors=captured_actors(), **common))
    client = stack.enter_context(ReferenceNode([rendezvous.endpoint], hub=True, **common))
    client.wait_for_route(b"HELLO", b"EHHLO", b"THROW", b"NOTIFY")
    server.wait_for_node(client.identity)
    return Network(rendezvous, server, client)


@pytest.fixture(
    params=[("v6", "int32", False), ("v6", "int32", True), ("v5", "int32", False), ("v5", "uint16", True)],
    ids=["v6", "v6 signed", "v5 int32", "v5 uint16 signed"],
)
def network(request: pytest.FixtureRequest) -> Iterator[Network]:
    format, stamp, is_signed = request.param
    with ExitStack() as stack:
        yield start(stack, format, stamp, KeyedDomains.random(APPLICATION) if is_signed else NullDomains())


@pytest.fixture
def v6() -> Iterator[Network]:
    with ExitStack() as stack:
        yield start(stack, "v6", "int32", NullDomains())


@pytest.fixture
def signed() -> Iterator[Network]:
    with ExitStack() as stack:
        yield start(stack, "v6", "int32", KeyedDomains.random(APPLICATION))


# --- it works ---------------------------------------------------------------------------------------------------------


def test_a_network_exchanges_everything_without_a_complaint(network: Network) -> None:
    client, server = network.client, network.server
    reply = client.ask(b"HELLO", text_body("you"), b"EHHLO", trace=True)
    assert (reply.body, reply.hops, reply.trace_options) == (text_body("you"), 1, 1)
    assert {entry.identity for entry in reply.routing} == {client.identity, server.identity}
    assert client.ask(b"EHHLO", text_body("aab"), b"GRPCHARSRESP").body.endswith(b"\x12\x03aab")
    with pytest.raises(ActorError, match="boom: t0") as failed:
        client.ask(b"THROW", text_body("t0"), b"EHHLO")
    assert failed.value.type_name == "System.InvalidOperationException"
    (exception,) = client.seen(b"KINO.EXCEPTION", direction="in")
    assert len(exception.body) in {256, 512, 1024, 2048}
    assert client.deliver(b"HELLO", text_body("receipt")).identity == b"KINO.RCPTCONFIRM"
    receipted = server.wait_for(lambda: [message for message in server.handled if message.body == text_body("receipt")])
    assert [point.identity for point in receipted[0].callback_points] == [b"KINO.EXCEPTION"]
    client.publish(b"NOTIFY", text_body("n0"))
    server.wait_for(lambda: server.handled[-1].identity == b"NOTIFY")
    server.wait_for(lambda: server.seen(b"KINO.DISCOVMSGROUTE", direction="out"))  # nobody takes the receipt's GRPCHARSRESP
    client.close()
    server.wait_for(lambda: not server.routes.peers)
    server.close()
    network.assert_no_complaints()


def test_a_message_can_be_sent_to_one_node_and_to_one_actor(v6: Network) -> None:
    hello = v6.server.actors[0]
    reply = v6.client.ask(b"HELLO", text_body("you"), b"EHHLO", node=v6.server.identity, actor=hello.identity)
    assert reply.body == text_body("you")
    v6.assert_no_complaints()


def test_two_servers_take_turns_and_a_broadcast_counts_its_peers_as_hops(v6: Network) -> None:
    with ReferenceNode([v6.rendezvous.endpoint], actors=captured_actors()) as second:
        v6.client.wait_for_route(b"HELLO", b"NOTIFY", node=second.identity)
        second.wait_for_node(v6.client.identity)
        for number in range(4):
            v6.client.ask(b"HELLO", text_body(str(number)), b"EHHLO")
        assert [len(server.handled) for server in (v6.server, second)] == [2, 2]
        v6.client.publish(b"NOTIFY", text_body("n"))
        for server in (v6.server, second):
            server.wait_for(lambda server=server: server.handled[-1].identity == b"NOTIFY")
        assert {server.handled[-1].hops for server in (v6.server, second)} == {1, 2}
        assert {len(server.handled[-1].routing) for server in (v6.server, second)} == {1, 2}
        assert second.complaints == []
    v6.assert_no_complaints()


@pytest.mark.slow
def test_a_peer_that_vanishes_is_found_dead() -> None:
    with ExitStack() as stack:
        network = start(stack, "v6", "int32", NullDomains(), QUICK)
        network.client.ask(b"HELLO", text_body("you"), b"EHHLO")
        network.client.wait_for(lambda: network.client.seen(b"KINO.HEARTBEAT", socket="health"))
        network.server.kill()
        network.client.wait_for(lambda: (network.server.identity, "dead") in network.client.lost)
        assert not network.client.routes.peers


def test_a_peer_that_is_never_spoken_to_is_pinged_until_it_is_gone() -> None:
    with ExitStack() as stack:
        network = start(stack, "v6", "int32", KeyedDomains.random(APPLICATION), QUICK)
        network.server.wait_for(lambda: len(network.server.seen(Ping.identity, socket="frontend")) > 1)
        network.assert_no_complaints()
        network.server.kill()
        network.client.wait_for(lambda: (network.server.identity, "stale") in network.client.lost)


@pytest.mark.slow
def test_of_several_rendezvous_one_leads_and_nodes_are_sent_to_it() -> None:
    with ExitStack() as stack:
        members = [stack.enter_context(ReferenceRendezvous(alone=False, heart_beat_s=0.2, lease_s=1)) for _ in range(3)]
        for member in members:
            member.meet([other for other in members if other is not member])
        for member in members:
            member.wait_for(lambda member=member: member.lease.known)
        (leader,) = [member for member in members if member.leads]
        others = [member.endpoint for member in members if not member.leads]
        times = Times(silence_s=1.0)
        node = stack.enter_context(ReferenceNode([*others, leader.endpoint], actors=captured_actors(), times=times))
        node.wait_for(lambda: node.endpoints[0] == leader.endpoint)
        leader.wait_for(lambda: leader.seen(RequestClusterRoutes.identity, socket="broadcast"))
        leader.kill()
        node.wait_for(lambda: node.endpoints[0] != leader.endpoint)
        assert node.complaints == []


# --- it notices -------------------------------------------------------------------------------------------------------


class Stranger:
    """A peer that does it wrong, with sockets of its own."""

    def __init__(self, kind: int, address: str) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(kind)
        self.socket.linger = 1000
        self.socket.connect(address)

    def __enter__(self) -> "zmq.Socket[bytes]":
        return self.socket

    def __exit__(self, *_: object) -> None:
        self.context.destroy(linger=0)


HELLO = Message(identity=b"HELLO", version=1, body=text_body("x"), correlation_id=NO_CORRELATION, hops=1)


def kinds(station: Station) -> list[str]:
    station.wait_for(lambda: station.complaints)
    station.rest()
    return [complaint.kind for complaint in station.complaints]


@pytest.mark.parametrize(
    ("frames", "kind"),
    [
        ([b"", b"hi"], "unparsable"),
        (encode(HELLO, "v5")[1:], "unparsable"),
        ([b"", *encode(HELLO)[1:]], "layout"),
        (encode(msgspec.structs.replace(HELLO, hops=0))[1:], "hops"),
        (encode(msgspec.structs.replace(HELLO, domain="Ж"))[1:], "text"),
        (encode(msgspec.structs.replace(HELLO, identity=b"NOBODY"))[1:], "unroutable"),
        (encode(msgspec.structs.replace(HELLO, receiver_node_identity=b"elsewhere"))[1:], "unroutable"),
    ],
)
def test_a_node_complains_about_what_it_cannot_use(v6: Network, frames: list[bytes], kind: str) -> None:
    with Stranger(zmq.DEALER, v6.server.uri) as stranger:
        stranger.send_multipart(frames)
        assert kinds(v6.server) == [kind]
    assert not v6.server.complaints[0].fatal
    assert v6.server.complaints[0].frames


@pytest.mark.parametrize(("change", "kind"), [({"signature": bytes(16)}, "signature"), ({"domain": "other"}, "domain")])
def test_a_node_complains_about_a_bad_signature(signed: Network, change: dict[str, object], kind: str) -> None:
    domains = signed.server.domains
    good = domains.sign(msgspec.structs.replace(HELLO, domain=domains.domain_of(b"HELLO")))
    with Stranger(zmq.DEALER, signed.server.uri) as stranger:
        stranger.send_multipart(encode(msgspec.structs.replace(good, **change))[1:])
        assert kinds(signed.server) == [kind]
        assert [message.identity for message in signed.server.handled] == []
        stranger.send_multipart(encode(good)[1:])
        signed.server.wait_for(lambda: signed.server.handled)


def test_a_node_without_a_domain_for_exceptions_dies_of_one_bad_message() -> None:
    domains = KeyedDomains({"app": b"key"}, {"app": APPLICATION})
    with ReferenceRendezvous() as rendezvous, ReferenceNode([rendezvous.endpoint], domains=domains) as node:
        with Stranger(zmq.DEALER, node.uri) as stranger:
            stranger.send_multipart([b"", b"hi"])
            assert kinds(node) == ["unparsable"]
        assert node.complaints[0].fatal


def test_a_node_complains_about_answers_on_its_own_connections(v6: Network) -> None:
    v6.client.ask(b"HELLO", text_body("you"), b"EHHLO")
    backend = next(item.frames[0] for item in v6.server.traffic if item.socket == "frontend")
    v6.server._call(lambda: v6.server._frontend.send_multipart([backend, b"", b"answer"])).result()  # noqa: SLF001
    assert kinds(v6.client) == ["deaf"]


@pytest.mark.slow
def test_a_peer_whose_socket_does_not_bear_its_name_is_unreachable(v6: Network) -> None:
    uri, node = v6.server.uri, new_identity()
    liar = ReferenceNode([v6.rendezvous.endpoint], actors=captured_actors())
    with liar:
        liar.identity, liar.uri = node, uri  # it registers somebody else's address under a new name
        liar._call(lambda: liar._announce_all("")).result()  # noqa: SLF001
        v6.client.wait_for_route(b"HELLO", node=node)
        promise = v6.client.send_with_callback(b"HELLO", text_body("x"), b"EHHLO", node=node)
        assert kinds(v6.client) == ["unreachable"]
        assert not promise.done()


def test_a_rendezvous_answers_a_ping_and_complains_about_what_is_not_for_it(v6: Network) -> None:
    with Stranger(zmq.DEALER, v6.rendezvous.endpoint.unicast) as stranger:
        ping = Message(identity=Ping.identity, version=1, correlation_id=NO_CORRELATION)
        stranger.send_multipart(encode(ping))
        v6.client.wait_for(lambda: v6.client.seen(b"KINO.PONG", socket="listener"))
        v6.assert_no_complaints()
        stranger.send_multipart(encode(HELLO))
        assert kinds(v6.rendezvous) == ["unexpected"]
        assert kinds(v6.client) == ["unexpected"]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (UnregisterNode("tcp://x:1", b"someone").write(), "signature"),
        (HeartBeat(5).write() + b"\xff", "body"),
    ],
)
def test_a_node_complains_about_routing_control_that_it_ignores(signed: Network, body: bytes, kind: str) -> None:
    domain = signed.client.domains.names[0]
    message = Message(identity=UnregisterNode.identity, version=1, body=body, correlation_id=NO_CORRELATION, domain=domain)
    with Stranger(zmq.DEALER, signed.rendezvous.endpoint.unicast) as stranger:
        stranger.send_multipart(encode(message))
        assert kinds(signed.client) == [kind]
