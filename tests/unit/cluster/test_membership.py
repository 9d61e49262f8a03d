"""The membership of a node by itself: before it starts, after it ends, and in words that only a rendezvous says.

What it does in a cluster is in `tests/cluster`.
"""

import asyncio

from hopline.cluster.membership import Membership
from hopline.cluster.messages import control_frames
from hopline.identity import MessageType
from hopline.node.taps import Tap
from hopline.payload.service import Health, HeartBeat, Pong, RegisterExternalRoute, UnregisterNode
from hopline.wire import Message, decode
from tests.cluster.scripted import Scripted, welcomed
from tests.cluster.world import Cluster, play
from tests.e2e.world import Greeter


def test_one_that_never_started_ends_without_a_word():
    async def test():
        cluster = Cluster()
        node = cluster.make("a")
        assert isinstance(node.membership, Membership)
        assert not node.membership.is_joined
        node.membership.say_goodbye()
        await node.membership.close()

    asyncio.run(test())


def test_nothing_is_said_after_goodbye():
    async def test(cluster):
        scripted = Scripted(cluster)
        node = await cluster.node("a", Greeter())
        await welcomed(cluster, scripted, node)
        node.membership.announce()
        node.membership.look_for(Message(identity=b"X", version=1))
        node.membership.say_goodbye()
        await cluster.settle()
        scripted.heard.clear()
        await cluster.run(100)
        assert not {b"KINO.REGEXTROUTE", b"KINO.REQCLUSTROUTES", b"KINO.PING"} & set(scripted.identities())
        await scripted.close()

    play(test)


def test_a_heart_beat_of_a_node_is_none_of_the_rendezvous():
    async def test(cluster):
        scripted = Scripted(cluster)
        node = await cluster.node("a")
        await cluster.run(0.5)
        scripted.say(HeartBeat(1, b"somebody", "tcp://n:1"))
        await cluster.settle()
        assert not node.membership.is_joined
        scripted.say(HeartBeat(10_000_000))
        await cluster.settle()
        assert node.membership.is_joined
        await scripted.close()

    play(test)


def test_what_comes_is_seen_before_it_has_an_effect():
    """The first that is heard of a rendezvous lets a node join, whatever it is: all that it then says came after that."""

    class Order(Tap):
        points = ("scaleout_in", "scaleout_out")

        def __init__(self):
            self.seen = []

        def at_network(self, point):
            return lambda messages: self.seen.extend((point, decode(frames).message.identity) for frames in messages)

    async def test(cluster):
        scripted, tap = Scripted(cluster), Order()
        node = await cluster.node("a", Greeter(), taps=[tap])
        await cluster.run(0.5)
        tap.seen.clear()
        scripted.relay(Message(identity=b"KINO.UNREGNODE", version=1, body=UnregisterNode("u", b"n").write()))
        await cluster.settle()
        assert node.membership.is_joined
        assert tap.seen[0] == ("scaleout_in", b"KINO.UNREGNODE")
        assert ("scaleout_out", b"KINO.REQCLUSTROUTES") in tap.seen[1:]
        await scripted.close()

    play(test)


def test_what_a_node_speaks_is_known_until_it_is_gone():
    async def test(cluster):
        scripted = Scripted(cluster)
        node = await cluster.node("a")
        await welcomed(cluster, scripted, node)
        membership = node.membership
        membership.met(b"n", "tcp://n:1", Health("tcp://n:2", 10_000_000), "v5")
        assert membership.format_of(b"n") == "v5"
        assert membership.watched == 1
        # It may have been started anew, with a heart beat elsewhere.
        membership.uses(b"n")
        membership.met(b"n", "tcp://n:1", Health("tcp://n:3", 10_000_000), "v6")
        assert membership.format_of(b"n") == "v6"
        assert membership.watched == 1
        membership.left(b"n")
        assert membership.format_of(b"n") is None
        assert membership.watched == 0
        await scripted.close()

    play(test)


def test_a_heart_beat_that_may_not_be_listened_to_is_not_missed():
    async def test(cluster):
        scripted = Scripted(cluster)
        node = await cluster.node("a", may_listen=lambda address: "//n" not in address)
        await welcomed(cluster, scripted, node)
        for name, uri in ((b"n", "tcp://n:2"), (b"m", "no address")):
            payload = RegisterExternalRoute("tcp://b:1", name, (), Health(uri, 10_000_000))
            node.membership.met(name, "tcp://b:1", payload.health, "v6")
            node.membership.uses(name)
        await cluster.run(30)
        assert node.membership.watched == 2
        await scripted.close()

    play(test)


def test_questions_go_out_soon_and_once():
    async def test(cluster):
        scripted = Scripted(cluster)
        node = await cluster.node("a")
        await welcomed(cluster, scripted, node)
        scripted.heard.clear()
        for _ in range(100):
            node.membership.look_for(Message(identity=b"HELLO", version=1))
            node.membership.look_for(Message(identity=b"X", version=1, receiver_identity=b"\0hub"))
        await cluster.run(0.1)
        assert scripted.identities() == [b"KINO.DISCOVMSGROUTE"] * 2
        await scripted.close()

    play(test)


def test_what_was_sent_here_by_mistake_is_disowned():
    async def test(cluster):
        scripted = Scripted(cluster)
        node = await cluster.node("a")
        await welcomed(cluster, scripted, node)
        scripted.heard.clear()
        node.membership.look_for(Message(identity=b"HELLO", version=1, hops=1))
        await cluster.run(0.1)
        assert sorted(scripted.identities()) == [b"KINO.DISCOVMSGROUTE", b"KINO.UNREGMSGROUTE"]
        await scripted.close()

    play(test)


def test_a_type_is_announced_alone_if_only_that_is_asked_for():
    async def test(cluster):
        scripted = Scripted(cluster)
        node = await cluster.node("a", Greeter())
        await welcomed(cluster, scripted, node)
        scripted.heard.clear()
        node.membership.announce(MessageType(b"HELLO", 1))
        await cluster.run(0.5)
        (said,) = scripted.heard
        payload = RegisterExternalRoute.read(said.message.body)
        assert [len(route.message_contracts) for route in payload.routes] == [1]
        await scripted.close()

    play(test)


def test_a_broken_reply_changes_nothing():
    async def test(cluster):
        scripted = Scripted(cluster)
        node = await cluster.node("a")
        await welcomed(cluster, scripted, node)
        before = node.membership.endpoints.all
        scripted._pull.reply(scripted.sources[-1], [b"junk"])  # noqa: SLF001
        scripted._pull.reply(scripted.sources[-1], control_frames(Pong()))  # noqa: SLF001
        await cluster.settle()
        assert node.membership.refused == 2
        assert node.membership.endpoints.all == before
        await scripted.close()

    play(test)


def test_domains_that_others_invent_are_not_kept():
    async def test(cluster):
        scripted = Scripted(cluster)
        node = await cluster.node("a")
        await welcomed(cluster, scripted, node)
        for i in range(100):
            node.membership.asked(f"domain {i}")
        node.membership.asked("")
        assert list(node.membership._asked_s) == [""]  # noqa: SLF001 - what is kept cannot be seen otherwise
        await scripted.close()

    play(test)


def test_who_leaves_asks_for_nobody():
    async def test(cluster):
        scripted = Scripted(cluster)
        node = await cluster.node("a")
        await welcomed(cluster, scripted, node)
        node.membership.lost(b"n", "tcp://n:1")
        await cluster.settle()
        assert scripted.identities().count(b"KINO.REQNODEROUTES") == 1
        node.membership.say_goodbye()
        node.membership.lost(b"m", "tcp://m:1")
        await cluster.settle()
        assert scripted.identities()[-1] == b"KINO.UNREGNODE"
        await scripted.close()

    play(test)


def test_a_node_that_was_started_anew_is_listened_to_where_its_heart_beats_now():
    async def test(cluster):
        scripted = Scripted(cluster)
        node = await cluster.node("a")
        await welcomed(cluster, scripted, node)
        channels = cluster.network.channels("tcp://n:1")
        beats = channels.publish("tcp://n:3")
        node.membership.met(b"n", "tcp://n:1", Health("tcp://n:2", 10_000_000), "v6")
        node.membership.uses(b"n")
        node.membership.met(b"n", "tcp://n:1", Health("tcp://n:3", 10_000_000), "v6")
        for _ in range(20):
            await cluster.run(0.5)
            beats.publish(control_frames(HeartBeat(10_000_000, b"n", "tcp://n:3")))
        assert node.membership.watched == 1
        await cluster.run(5)
        assert node.membership.watched == 0
        await channels.close()
        await scripted.close()

    play(test)
