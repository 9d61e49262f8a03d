"""A rendezvous: what it repeats, what it answers, what it refuses, and what it says when it does not lead."""

import asyncio

import pytest

from hopline.cluster.messages import HowAreYou, RendezvousReport, WhereAreYou, control_frames, read_control
from hopline.cluster.rendezvous import GAP_S, Rendezvous, named_nodes
from hopline.cluster.settings import RendezvousSettings
from hopline.errors import TransportError
from hopline.payload.service import (
    HeartBeat,
    Ping,
    Pong,
    QuorumHeartBeat,
    RendezvousConfigurationChanged,
    RendezvousNode,
    RendezvousNotLeader,
    UnregisterNode,
)
from hopline.wire import Message, decode, encode
from tests.cluster.world import play

GOODBYE = Message(identity=b"KINO.UNREGNODE", version=1, body=UnregisterNode("u", b"n").write(), domain="d", signature=b"s")


class Visitor:
    """A push to a rendezvous and a subscription to what it says."""

    def __init__(self, cluster, name="r", broadcast=8001):
        self.channels = cluster.network.channels(f"tcp://visitor:{cluster.network.number()}")
        self.replies, self.frames = [], []
        self.push = self.channels.push(f"tcp://{name}:8011", self.replies.append)
        self.channels.subscribe(self.frames.append).connect(f"tcp://{name}:{broadcast}")

    def say(self, payload, format="v6"):
        assert self.push.send(control_frames(payload, format))

    def heard(self, kind, format=None):
        found = [decode(frames) for frames in self.frames]
        return [read_control(one) for one in found if isinstance(read_control(one), kind) and format in (None, one.format)]


async def visited(cluster, *, others=(), **settings):
    rendezvous = await cluster.lead(others=others, **settings)
    visitor = Visitor(cluster)
    await cluster.run(0.1)
    visitor.frames.clear()
    return rendezvous, visitor


@pytest.mark.parametrize("format", ["v5", "v6"])
def test_messages_about_routes_are_repeated_as_they_are(format):
    async def test(cluster):
        rendezvous, visitor = await visited(cluster)
        frames = encode(GOODBYE, format)
        visitor.push.send(frames)
        await cluster.settle()
        assert len(visitor.frames) == 1
        assert visitor.frames[0][1:] == frames[1:]
        # As with the reference: in v6 the first frame names the socket it came from, in v5 it is empty.
        assert bool(visitor.frames[0][0]) == (format == "v6")
        assert rendezvous.books.relayed == 1
        assert rendezvous.books.by_identity == {"KINO.UNREGNODE": 1}

    play(test)


def test_a_partner_cluster_hears_the_same():
    async def test(cluster):
        rendezvous, visitor = await visited(cluster, partner_bind="tcp://r:8111")
        partner = Visitor(cluster, broadcast=8111)
        await cluster.settle()
        visitor.push.send(encode(GOODBYE))
        await cluster.settle()
        assert partner.frames == visitor.frames
        assert rendezvous.node.partner_broadcast_uri == "tcp://r:8111"

    play(test)


def test_it_beats_and_says_how_often():
    async def test(cluster):
        _, visitor = await visited(cluster, heartbeat_s=0.5)
        await cluster.run(5)
        beats = visitor.heard(HeartBeat)
        assert 9 <= len(beats) <= 11
        assert {beat.heart_beat_interval_ticks for beat in beats} == {5_000_000}

    play(test)


def test_pings_are_answered_to_all_and_not_each():
    async def test(cluster):
        rendezvous, visitor = await visited(cluster)
        visitor.say(Ping())
        await cluster.run(0.1)
        assert len(visitor.heard(Pong)) == 1
        for _ in range(20):
            for _ in range(50):
                visitor.say(Ping())
            await cluster.run(0.05)
        assert len(visitor.heard(Pong)) <= 1 + 1 / GAP_S
        await cluster.run(1)
        last = len(visitor.heard(Pong))
        visitor.say(Ping(), "v5")
        await cluster.run(GAP_S)
        assert len(visitor.heard(Pong, "v5")) == 1
        assert len(visitor.heard(Pong)) == last + 1
        assert rendezvous.books.answered == 1 + 1000 + 1

    play(test)


def test_who_asks_is_told_where_it_is_heard_and_how_it_is():
    async def test(cluster):
        rendezvous, visitor = await visited(cluster, nodes=("tcp://r:8011", "tcp://r2:8011"))
        visitor.say(WhereAreYou())
        visitor.say(HowAreYou())
        await cluster.settle()
        where, how = (read_control(decode(frames)) for frames in visitor.replies)
        assert isinstance(where, RendezvousConfigurationChanged)
        assert [node.unicast_uri for node in where.rendezvous_nodes] == ["tcp://r:8011", "tcp://r2:8011"]
        assert where.rendezvous_nodes[0] == rendezvous.node
        assert isinstance(how, RendezvousReport)
        assert how.leader == how.node == rendezvous.node
        assert (how.received, how.refused, how.formats) == (2, 0, (b"v6",))
        assert visitor.frames == []

    play(test)


@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"", b""],
        [b"junk"] * 30,
        control_frames(HeartBeat(1)),
        control_frames(Pong()),
        control_frames(RendezvousNotLeader(None)),
        encode(Message(identity=b"HELLO", version=1, body=b"x")),
        encode(Message(identity=b"KINO.UNREGUNREACHABLENODE", version=1)),
        encode(Message(identity=b"HOPLINE.RENDEZVOUS", version=2)),
    ],
)
def test_nobody_can_shout_through_it(frames):
    async def test(cluster):
        rendezvous, visitor = await visited(cluster)
        visitor.push.send(frames)
        await cluster.settle()
        assert rendezvous.books.refused == 1
        assert rendezvous.books.relayed == rendezvous.books.answered == 0
        assert visitor.frames == visitor.replies == []

    play(test)


def test_who_does_not_lead_says_who_does_and_repeats_nothing():
    async def test(cluster):
        names = {"r1": ("r2", "r3"), "r2": ("r1", "r3"), "r3": ("r1", "r2")}
        for name, others in names.items():
            await cluster.lead(name, others=others)
        early = Visitor(cluster, "r1")
        await cluster.run(0.2)
        for _ in range(50):
            early.say(Ping())
        await cluster.run(0.2)
        assert early.frames == []  # nobody knows of a leader
        await cluster.until(lambda: len(cluster.leaders) == 1)
        await cluster.run(2)
        (leader,) = cluster.leaders
        follower = next(name for name in names if name != leader)
        visitor = Visitor(cluster, follower)
        await cluster.run(1)
        visitor.frames.clear()
        for _ in range(20):
            for _ in range(10):
                visitor.push.send(encode(GOODBYE))
            await cluster.run(0.05)
        told = visitor.heard(RendezvousNotLeader)
        assert 2 <= len(told) <= 2 + 1 / GAP_S
        assert {one.new_leader.unicast_uri for one in told} == {f"tcp://{leader}:8011"}
        assert len(told) == len(visitor.frames)
        books = cluster.rendezvous[follower].books
        assert books.relayed == 0
        assert books.not_leading >= 200
        assert not cluster.rendezvous[follower].is_leader
        assert cluster.rendezvous[follower].leader == cluster.rendezvous[leader].node
        # And it knows the leader among those that it names.
        visitor.say(WhereAreYou())
        await cluster.settle()
        named = read_control(decode(visitor.replies[-1])).rendezvous_nodes
        assert f"tcp://{leader}:8011" in {node.unicast_uri for node in named}

    play(test)


def test_what_members_say_that_is_no_lease_is_counted():
    async def test(cluster):
        rendezvous = await cluster.lead("r1", others=("r2",))
        channels = cluster.network.channels("tcp://r2:8011")
        member = channels.publish("tcp://r2:7001")
        await cluster.run(0.1)
        for frames in (
            [b"junk"],
            encode(Message(identity=b"HELLO", version=1)),
            encode(Message(identity=b"KINO.READLEASE", version=1, body=b"\xff")),
        ):
            member.publish(frames)
        await cluster.settle()
        assert rendezvous.books.refused == 3
        member.publish(control_frames(QuorumHeartBeat("tcp://r2:7001")))
        await cluster.settle()
        assert rendezvous.books.refused == 3
        await channels.close()

    play(test)


def test_all_that_passes_can_be_recorded():
    async def test(cluster):
        seen = []

        class Recorder:
            def on_message(self, point, message, frames, payload):
                seen.append((point, message.identity))

        rendezvous = Rendezvous(
            RendezvousSettings(bind="tcp://r:8011"),
            cluster.network.channels("tcp://r:8011"),
            clock=cluster.clock,
            random=cluster.random.random,
            recorders=[Recorder()],
        )
        await rendezvous.start()
        cluster.rendezvous["r"] = rendezvous
        visitor = Visitor(cluster)
        await cluster.run(0.1)
        seen.clear()
        visitor.push.send(encode(GOODBYE))
        visitor.say(WhereAreYou())
        visitor.say(Ping())
        await cluster.run(0.1)
        assert {("wire_in", b"KINO.UNREGNODE"), ("wire_out", b"KINO.UNREGNODE")} <= set(seen)
        assert {("wire_in", b"HOPLINE.RENDEZVOUS"), ("wire_out", b"KINO.RNDZVRECONFIG")} <= set(seen)
        assert {("wire_in", b"KINO.PING"), ("wire_out", b"KINO.PONG")} <= set(seen)

    play(test)


def test_what_goes_out_is_recorded_before_anybody_can_have_it():
    """Or it would seem to have come before it was sent. What goes to the pull and the publisher is noted where it goes."""

    async def test(cluster):
        events = []

        class Recorder:
            def on_message(self, point, message, frames, payload):
                if point == "wire_out":
                    events.append(("recorded", frames))

        def noted(send):
            def noting(*args):
                events.append(("gone", args[-1]))
                return send(*args)

            return noting

        channels = cluster.network.channels("tcp://r:8011")
        pull, publish = channels.pull, channels.publish

        def noted_pull(*args):
            made = pull(*args)
            made.reply = noted(made.reply)
            return made

        def noted_publish(*args):
            made = publish(*args)
            made.publish = noted(made.publish)
            return made

        channels.pull, channels.publish = noted_pull, noted_publish
        rendezvous = Rendezvous(
            RendezvousSettings(bind="tcp://r:8011"),
            channels,
            clock=cluster.clock,
            random=cluster.random.random,
            recorders=[Recorder()],
        )
        await rendezvous.start()
        cluster.rendezvous["r"] = rendezvous
        visitor = Visitor(cluster)
        await cluster.run(0.1)
        visitor.push.send(encode(GOODBYE))
        visitor.say(WhereAreYou())
        await cluster.run(0.1)
        assert [what for what, _ in events] == ["recorded", "gone"] * (len(events) // 2)
        assert [frames for what, frames in events if what == "recorded"] == [
            frames for what, frames in events if what == "gone"
        ]
        identities = {decode(frames).message.identity for _, frames in events}
        assert identities == {b"KINO.HEARTBEAT", b"KINO.UNREGNODE", b"KINO.RNDZVRECONFIG"}

    play(test)


def test_a_new_list_is_told_to_all_and_kept():
    async def test(cluster):
        rendezvous, visitor = await visited(cluster)
        other = RendezvousNode("tcp://r2:8001", "tcp://r2:8011")
        rendezvous.reconfigure([rendezvous.node, other])
        await cluster.settle()
        assert visitor.heard(RendezvousConfigurationChanged)[0].rendezvous_nodes == (rendezvous.node, other)
        visitor.say(WhereAreYou())
        await cluster.settle()
        assert read_control(decode(visitor.replies[0])).rendezvous_nodes == (rendezvous.node, other)

    play(test)


def test_a_place_that_is_taken_leaves_nothing_behind():
    async def test(cluster):
        await cluster.lead(bind="tcp://r:8011+9001")
        with pytest.raises(TransportError):
            await cluster.lead("x", bind="tcp://y:8011+9001".replace("y", "r"))
        other = Rendezvous(
            RendezvousSettings(bind="tcp://z:8011", partner_bind="tcp://r:9001"),
            cluster.network.channels("tcp://z:8011"),
            clock=cluster.clock,
            random=cluster.random.random,
        )
        with pytest.raises(TransportError):
            await other.start()
        again = await cluster.lead("z")
        assert again.is_leader

    play(test)


def test_nothing_is_said_after_the_end():
    async def test(cluster):
        rendezvous, visitor = await visited(cluster)
        visitor.say(Ping())
        await asyncio.sleep(0)
        await rendezvous.close()
        before = len(visitor.frames)
        await cluster.run(5)
        assert len(visitor.frames) == before
        await rendezvous.close()

    play(test)


def test_nodes_are_named_with_the_port_that_the_rule_gives_if_none_is():
    settings = RendezvousSettings(nodes=("tcp://a:8011", "tcp://b:8011+9"))
    assert [node.broadcast_uri for node in named_nodes(settings)] == ["tcp://a:8001", "tcp://b:9"]
    assert named_nodes(RendezvousSettings()) == ()
