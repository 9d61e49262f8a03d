"""Attacks on a cluster: what is not signed as it must be changes nothing, is counted, and stops nobody."""

import pytest

from hopline.cluster.messages import control_frames
from hopline.node.announcements import ZERO_FLOW
from hopline.node.service import MOST_NODES, MOST_OF_A_NODE, MOST_ROUTES
from hopline.node.taps import Tap
from hopline.payload.service import (
    DiscoverMessageRoute,
    Health,
    HeartBeat,
    MessageContract,
    Ping,
    Pong,
    RegisterExternalRoute,
    RendezvousConfigurationChanged,
    RendezvousNode,
    RendezvousNotLeader,
    RequestClusterRoutes,
    RequestNodeRoutes,
    RouteRegistration,
    UnregisterMessageRoute,
    UnregisterNode,
    UnregisterUnreachableNode,
)
from hopline.security import Domain, Domains, Keyring
from hopline.wire import Message, encode
from tests.cluster.scripted import Scripted, welcomed
from tests.cluster.world import know_each_other, play
from tests.e2e.world import Ehhlo, Greeter, Hello, Listener, domains

HELLO = MessageContract(1, b"HELLO", b"")
FOREIGN = MessageContract(1, b"FOREIGN", b"")


def registration(node=b"evil", uri="tcp://evil:1", contracts=(HELLO,), receiver=b"\x01actor", health=None):
    return RegisterExternalRoute(uri, node, (RouteRegistration(receiver, tuple(contracts)),), health)


ATTACKS = {
    "a node that is not there": registration(),
    "a node that is there, elsewhere": registration(b"a"),
    "goodbye": UnregisterNode("tcp://a:5000", b"a"),
    "no actor": UnregisterMessageRoute("tcp://a:5000", b"a", (RouteRegistration(None, (HELLO,)),)),
    "all, please": RequestClusterRoutes("tcp://evil:1", b"evil"),
    "you, please": RequestNodeRoutes("tcp://a:5000", b"a"),
    "who has": DiscoverMessageRoute(b"evil", "tcp://evil:1", None, HELLO),
}


class Attacker:
    """Can send to the rendezvous and hears all that it says, as anybody can."""

    def __init__(self, cluster):
        self._channels = cluster.network.channels("tcp://attacker:1")
        self._push = self._channels.push("tcp://r:8011")
        self.heard = []
        self._channels.subscribe(self.heard.append).connect("tcp://r:8001")

    def say(self, payload, domain="world", signer=None, format="v6"):
        """Say something in the name of a domain, signed with somebody's keys or not at all."""
        message = Message(
            identity=payload.identity, version=1, body=payload.write(), correlation_id=ZERO_FLOW, domain=domain
        )
        if signer is not None:
            message = Keyring(signer).sign(message, now_ns=1_700_000_000 * 10**9, nonce=b"0123456789abcdef")
        self.send(encode(message, format))

    def send(self, frames):
        assert self._push.send(frames)


def found(frames):
    return {text for text in (b"KINO.REGEXTROUTE", b"tcp://a:5000") if any(text in frame for frame in frames)}


def rejected(*nodes):
    return [node.statistics().rejected for node in nodes]


async def two(cluster, scheme):
    """A cluster of two nodes that know each other, and somebody who is not one of them."""
    await cluster.lead()
    a, b = await cluster.node("a", Greeter(), domains=domains(scheme)), await cluster.node("b", domains=domains(scheme))
    attacker = Attacker(cluster)
    await cluster.until(lambda: know_each_other(a, b))
    await cluster.run(2)
    return a, b, attacker


@pytest.mark.parametrize("scheme", ["kino", "full"])
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("how", ["unsigned", "wrong key", "another domain", "no domain"])
def test_what_is_not_signed_as_it_must_be_is_ignored_and_counted(scheme, attack, how):
    async def test(cluster):
        a, b, attacker = await two(cluster, scheme)
        routes, relayed = (a.routes(), b.routes()), cluster.rendezvous["r"].books.relayed
        signer = domains(scheme, b"another key") if how == "wrong key" else None
        if how == "another domain":
            signer = Domains([Domain("elsewhere", keys=(b"k",), scheme=scheme, identities=frozenset({b"HELLO"}))])
        domain = {"another domain": "elsewhere", "no domain": ""}.get(how, "world")
        attacker.say(ATTACKS[attack], domain, signer)
        await cluster.run(2)
        assert rejected(a, b) == [1, 1]
        assert (a.routes(), b.routes()) == routes
        assert cluster.rendezvous["r"].books.relayed == relayed + 1  # nobody answered
        assert b.dead_letters.counts == {"REJECTED": 1}
        assert (await cluster.wait(b.ask(Hello("x"), Ehhlo))).node == "a"

    play(test)


def test_a_signed_message_does_what_it_says():
    """The same attacks with the right key: so the others were refused for the signature alone."""

    async def test(cluster):
        _, b, attacker = await two(cluster, "kino")
        attacker.say(registration(), signer=domains("kino"))
        await cluster.run(0.1)
        assert b"evil" in b.routes()
        attacker.say(UnregisterNode("tcp://evil:1", b"evil"), signer=domains("kino"))
        await cluster.run(0.1)
        assert b"evil" not in b.routes()

    play(test)


def test_a_registration_repeated_after_the_goodbye_does_not_bring_a_node_back():
    async def test(cluster):
        await cluster.lead()
        attacker = Attacker(cluster)
        a, b = await cluster.node("a", Greeter(), domains=domains("kino")), await cluster.node("b", domains=domains("kino"))
        await cluster.until(lambda: know_each_other(a, b))
        await cluster.run(2)
        said = [frames for frames in attacker.heard if {b"KINO.REGEXTROUTE", b"tcp://a:5000"} <= found(frames)]
        assert said
        await cluster.stop("a")
        await cluster.settle()
        assert b"a" not in b.routes()
        for frames in said:
            attacker.send([b"", *frames[1:]])
        await cluster.run(1)
        assert b"a" not in b.routes()
        assert b.statistics().rejected == len(said)
        assert "has left" in list(b.dead_letters)[-1].reason

    play(test)


def test_with_the_full_scheme_nothing_can_be_repeated():
    async def test(cluster):
        await cluster.lead()
        attacker = Attacker(cluster)
        a, b = await cluster.node("a", Greeter(), domains=domains("full")), await cluster.node("b", domains=domains("full"))
        await cluster.until(lambda: know_each_other(a, b))
        await cluster.run(2)
        said = [[b"", *frames[1:]] for frames in attacker.heard if b"KINO.REGEXTROUTE" in b"".join(frames)]
        for frames in said:
            attacker.send(frames)
        await cluster.run(1)
        assert rejected(a, b) == [len(said), len(said)]
        # And not after the window either.
        await cluster.run(700)
        for frames in said:
            attacker.send(frames)
        await cluster.run(1)
        assert rejected(a, b) == [2 * len(said), 2 * len(said)]

    play(test)


def test_a_contract_that_does_not_belong_to_the_domain_is_not_believed():
    async def test(cluster):
        a, b, attacker = await two(cluster, "kino")
        keys = domains("kino")
        attacker.say(registration(contracts=(FOREIGN,)), signer=keys)
        await cluster.run(0.1)
        assert b"evil" not in b.routes()
        assert rejected(a, b) == [1, 1]
        attacker.say(registration(contracts=(FOREIGN, HELLO)), signer=keys)
        await cluster.run(0.1)
        assert b.routes()[b"evil"].actors == {b"\x01actor": {HELLO.type}}
        assert rejected(a, b) == [1, 1]

    play(test)


def test_nobody_can_speak_for_a_rendezvous_through_it():
    async def test(cluster):
        a, b, attacker = await two(cluster, "kino")
        rendezvous = cluster.rendezvous["r"]
        before, evil = rendezvous.books.relayed, RendezvousNode("tcp://evil:1", "tcp://evil:2")
        attacks = [
            RendezvousNotLeader(evil),
            RendezvousConfigurationChanged((evil,)),
            HeartBeat(10_000_000),
            HeartBeat(10_000_000, b"a", "tcp://a:5001"),
            Pong(),
            UnregisterUnreachableNode(b"a"),
        ]
        for attack in attacks:
            attacker.send(control_frames(attack))
        attacker.say(UnregisterUnreachableNode(b"a"), signer=domains("kino"))
        await cluster.run(1)
        assert rendezvous.books.refused == len(attacks) + 1
        assert rendezvous.books.relayed == before
        assert a.membership.endpoints.all == b.membership.endpoints.all
        assert len(b.membership.endpoints.all) == 1
        assert know_each_other(a, b)

    play(test)


def test_what_only_others_say_is_not_believed_of_a_rendezvous_either():
    async def test(cluster):
        scripted = Scripted(cluster)
        a = await cluster.node("a", Greeter(), domains=domains())
        await welcomed(cluster, scripted, a)
        for payload in (UnregisterUnreachableNode(b"x"), RequestClusterRoutesReply()):
            scripted.publish(control_frames(payload))
        await cluster.settle()
        assert a.membership.refused == 2
        assert a.statistics().rejected == 0
        await scripted.close()

    class RequestClusterRoutesReply(Ping, frozen=True):
        identity = b"KINO.SOMETHING"

    play(test)


def test_a_list_of_rendezvous_cannot_lead_nodes_where_they_may_not_go():
    async def test(cluster):
        scripted = Scripted(cluster)
        near = lambda address: "//r" in address or "//a" in address  # noqa: E731
        a = await cluster.node("a", may_listen=near)
        await welcomed(cluster, scripted, a)
        far = RendezvousNode("tcp://far:8001", "tcp://far:8011")
        scripted.say(RendezvousConfigurationChanged((far,)))
        scripted.say(RendezvousConfigurationChanged((RendezvousNode("tcp://far:8001", "tcp://r2:8011"),)))
        await cluster.run(1)
        assert [endpoint.unicast for endpoint in a.membership.endpoints.all] == ["tcp://r:8011"]
        assert a.membership.refused == 2
        scripted.say(RendezvousConfigurationChanged((far, RendezvousNode("tcp://r2:8001", "tcp://r2:8011"))))
        await cluster.run(1)
        assert [endpoint.unicast for endpoint in a.membership.endpoints.all] == ["tcp://r2:8011"]
        await scripted.close()

    play(test)


def test_neither_can_an_answer():
    async def test(cluster):
        scripted = Scripted(cluster, bind=("8011", "7777"))
        a = await cluster.node("a", may_listen=lambda address: "//r:" in address or "//a" in address)
        await cluster.run(1)
        scripted.reply(RendezvousConfigurationChanged((RendezvousNode("tcp://far:8001", "tcp://r:8011"),)))
        await cluster.run(20)
        assert a.membership.endpoints.current.broadcast == ""
        scripted.reply(
            RendezvousConfigurationChanged(
                (RendezvousNode("tcp://r:7777", "tcp://r:8011"), RendezvousNode("tcp://far:1", "tcp://far:2"))
            )
        )
        await welcomed(cluster, scripted, a)
        assert len(a.membership.endpoints.all) == 1
        await scripted.close()

    play(test)


@pytest.mark.parametrize("address", ["", "nonsense", "tcp://", "tcp://a b", "tcp://ü:1", "x" * 100_000, "tcp://r:8011\0"])
def test_addresses_that_are_none_stop_nobody(address):
    async def test(cluster):
        scripted = Scripted(cluster)
        a = await cluster.node("a", Greeter())
        await welcomed(cluster, scripted, a)
        scripted.relay(Message(identity=b"KINO.REGEXTROUTE", version=1, body=registration(uri=address).write()))
        health = Health(address, 10_000_000)
        scripted.relay(Message(identity=b"KINO.REGEXTROUTE", version=1, body=registration(b"n", health=health).write()))
        scripted.say(RendezvousConfigurationChanged((RendezvousNode(address, address), RendezvousNode(address, None))))
        scripted.say(RendezvousNotLeader(RendezvousNode(address, address)))
        await cluster.run(1)
        for name in (b"evil", b"n"):
            if name in a.routes():
                assert not a.reaches(name)
        await cluster.run(100)
        b = await cluster.node("b", at=("tcp://other:8011",))
        await cluster.run(1)
        assert b.statistics().in_flight == a.statistics().in_flight == 0
        await scripted.close()

    play(test)


def test_a_stranger_cannot_make_us_deaf_to_a_node_that_we_use():
    async def test(cluster):
        await cluster.lead()
        a, b = await cluster.node("a", Greeter()), await cluster.node("b", Greeter())
        client = await cluster.node("client")
        await cluster.until(lambda: know_each_other(a, b, client))
        for name in (b"a", b"b"):
            await cluster.wait(client.ask(Hello("x"), Ehhlo, node=name))
        # b, whose heart beat we hear, says that a stranger's is heard where a's is.
        for _ in range(40):
            b.membership._publisher.publish(control_frames(HeartBeat(1, b"stranger", "tcp://a:5001")))  # noqa: SLF001
            await cluster.run(0.5)
        assert set(client.routes()) == {b"a", b"b"}
        assert cluster.rendezvous["r"].books.by_identity["KINO.REQNODEROUTES"] == 0  # nobody was missed

    play(test)


def test_invented_nodes_fill_no_more_than_their_table():
    async def test(cluster):
        scripted = Scripted(cluster)
        a = await cluster.node("a", Greeter())
        await welcomed(cluster, scripted, a)
        for i in range(MOST_NODES + 100):
            payload = registration(b"n%d" % i, f"tcp://n{i}:1")
            scripted.relay(Message(identity=payload.identity, version=1, body=payload.write()))
            if i % 1000 == 0:
                await cluster.settle()
        await cluster.run(1)
        assert len(a.routes()) == MOST_NODES
        # They are looked at some at a time, and are gone in the end.
        most = 0
        for _ in range(140):
            await cluster.run(0.5)
            most = max(most, a.statistics().links)
        assert 0 < most < 200
        scripted.pong()
        await scripted.close()

    play(test)


@pytest.mark.slow
def test_invented_types_fill_no_more_than_their_tables():
    async def test(cluster):
        scripted = Scripted(cluster)
        a = await cluster.node("a", Greeter())
        await welcomed(cluster, scripted, a)
        for node in range(MOST_ROUTES // MOST_OF_A_NODE + 3):
            for part in range(4):
                contracts = [MessageContract(1, b"T%d" % i) for i in range(part * 3333, (part + 1) * 3333)]
                payload = registration(b"n%d" % node, f"tcp://n{node}:1", contracts)
                scripted.relay(Message(identity=payload.identity, version=1, body=payload.write()))
            await cluster.settle()
        sizes = [routes.size for routes in a.routes().values()]
        assert max(sizes) == MOST_OF_A_NODE
        assert sum(sizes) == MOST_ROUTES
        # What is known may be said again.
        served = a.statistics().served
        scripted.relay(Message(identity=payload.identity, version=1, body=registration(b"n0", "tcp://n0:1").write()))
        await cluster.settle()
        assert a.statistics().served == served + 1
        await scripted.close()

    play(test)


def test_registrations_of_nothing_leave_nothing_behind():
    async def test(cluster):
        scripted = Scripted(cluster)
        a = await cluster.node("a", Greeter())
        await welcomed(cluster, scripted, a)
        for i in range(500):
            payload = RegisterExternalRoute(f"tcp://n{i}:1", b"n%d" % i, (), Health("tcp://n:2", 1))
            scripted.relay(Message(identity=payload.identity, version=1, body=payload.write()))
        await cluster.settle()
        assert a.routes() == {}
        assert a.membership.watched == 0
        assert a.speaks(b"n1") is None
        await scripted.close()

    play(test)


def test_nodes_that_are_gone_leave_nothing_behind():
    async def test(cluster):
        scripted = Scripted(cluster)
        a = await cluster.node("a", Greeter(), may_connect=lambda address: "forbidden" not in address)
        await welcomed(cluster, scripted, a)
        for i, where in enumerate(["nowhere", "forbidden"] * 5):
            payload = registration(b"n%d" % i, f"tcp://{where}{i}:1", health=Health(f"tcp://{where}{i}:2", 10_000_000))
            scripted.relay(Message(identity=payload.identity, version=1, body=payload.write()))
        await cluster.settle()
        assert len(a.routes()) == a.membership.watched == 10
        for _ in range(40):
            scripted.pong()
            await cluster.run(2)
        assert a.routes() == {}
        assert a.membership.watched == 0
        assert a.statistics().links == 0
        await scripted.close()

    play(test)


def test_a_mistake_of_ours_or_of_a_tap_costs_one_message_and_the_books_balance():
    async def test(cluster):
        class Broken(Tap):
            points = frozenset({"scaleout_in"})

            def on_message(self, point, message, frames, payload):
                raise ValueError("a tap that raises")

        scripted = Scripted(cluster)
        a = await cluster.node("a", Listener(), taps=[Broken()])
        await welcomed(cluster, scripted, a)
        scripted.relay(Message(identity=b"KINO.REQCLUSTROUTES", version=1, body=RequestClusterRoutes("u", b"n").write()))
        await cluster.run(1)
        books = a.statistics()
        assert books.rejected == 1
        assert books.in_flight == 0
        await scripted.close()

    play(test)


def test_an_answer_that_begins_with_one_where_we_may_not_go_is_none():
    async def test(cluster):
        scripted, other = Scripted(cluster, bind=("8011", "7777")), Scripted(cluster, "r2")
        a = await cluster.node("a", may_listen=lambda address: "//r" in address or "//a" in address)
        await cluster.run(1)
        far, near = RendezvousNode("tcp://far:8001", "tcp://far:8011"), RendezvousNode("tcp://r2:8001", "tcp://r2:8011")
        scripted.reply(RendezvousConfigurationChanged((far, near)))
        await cluster.run(1)
        assert a.membership.endpoints.current.broadcast == ""
        await scripted.close()
        await other.close()

    play(test)


def test_a_registration_from_before_a_node_moved_does_not_bring_it_back_there():
    async def test(cluster):
        _, b, attacker = await two(cluster, "kino")
        keys = domains("kino")
        attacker.say(registration(b"n", "tcp://old:1"), signer=keys)
        await cluster.run(0.1)
        attacker.say(registration(b"n", "tcp://new:1"), signer=keys)
        await cluster.run(0.1)
        assert b.routes()[b"n"].uri == "tcp://new:1"
        attacker.say(registration(b"n", "tcp://old:1"), signer=keys)
        await cluster.run(0.1)
        assert b.routes()[b"n"].uri == "tcp://new:1"
        assert b.statistics().rejected == 1

    play(test)


def test_signatures_of_nodes_that_are_gone_are_not_kept_for_ever():
    async def test(cluster):
        _, b, attacker = await two(cluster, "kino")
        known = b._peers._service._signatures  # noqa: SLF001 - what is kept cannot be seen otherwise
        before = len(known)
        for i in range(20):
            attacker.say(registration(b"n%d" % i, f"tcp://n{i}:1"), signer=domains("kino"))
        await cluster.run(0.1)
        assert len(known) == before + 20
        for i in range(20):
            b._peers.forget(b"n%d" % i)  # noqa: SLF001 - as when it cannot be reached
        assert len(known) == before

    play(test)


def test_who_speaks_where_we_only_guessed_is_not_heard_once_we_know_better():
    async def test(cluster):
        scripted = Scripted(cluster, bind=("8011", "7777"))
        a = await cluster.node("a")
        await cluster.run(1)
        scripted.reply(RendezvousConfigurationChanged((RendezvousNode("tcp://r:7777", "tcp://r:8011"),)))
        await welcomed(cluster, scripted, a)
        channels = cluster.network.channels("tcp://stranger:1")
        stranger = channels.publish("tcp://r:8001")
        await cluster.run(1)
        stranger.publish([b"junk"])
        await cluster.run(1)
        assert a.statistics().rejected == 0
        await channels.close()
        await scripted.close()

    play(test)
