"""Messages that are nearly right, on every socket of a cluster: nothing raises, nothing stops, all are counted."""

import random

import msgspec
import pytest

from hopline.cluster.messages import HowAreYou, RendezvousReport, WhereAreYou
from hopline.payload import service
from hopline.payload.service import (
    AckReadLease,
    AckWriteLease,
    Ballot,
    DiscoverMessageRoute,
    Health,
    HeartBeat,
    Lease,
    MessageContract,
    NackReadLease,
    Ping,
    Pong,
    QuorumHeartBeat,
    ReadLease,
    RegisterExternalRoute,
    RendezvousConfigurationChanged,
    RendezvousNode,
    RendezvousNotLeader,
    RequestClusterRoutes,
    RequestNodeRoutes,
    RouteRegistration,
    UnregisterMessageRoute,
    UnregisterNode,
    WriteLease,
)
from hopline.wire import Message, encode
from tests.cluster.scripted import Scripted, welcomed
from tests.cluster.world import play
from tests.e2e.world import Ehhlo, Greeter, Hello

CONTRACTS = (MessageContract(1, b"HELLO", b""), MessageContract(2, b"X", b"part"))
ROUTES = (RouteRegistration(b"\x01actor", CONTRACTS), RouteRegistration(b"\x00hub", ()), RouteRegistration(None, CONTRACTS))
WHERE = RendezvousNode("tcp://r:8001", "tcp://r:8011", "tcp://r:8111")
BALLOT = Ballot(638_000_000_000_000_000, b"one", 3)

SAID = [
    RegisterExternalRoute("tcp://n:1", b"n", ROUTES, Health("tcp://n:2", 10_000_000)),
    UnregisterMessageRoute("tcp://n:1", b"n", ROUTES),
    UnregisterNode("tcp://n:1", b"n"),
    RequestClusterRoutes("tcp://n:1", b"n"),
    RequestNodeRoutes("tcp://a:5000", b"a"),
    DiscoverMessageRoute(b"n", "tcp://n:1", None, CONTRACTS[0]),
    DiscoverMessageRoute(b"n", "tcp://n:1", b"\x00hub", None),
    HeartBeat(10_000_000),
    HeartBeat(10_000_000, b"n", "tcp://n:2"),
    Ping(),
    Pong(),
    RendezvousNotLeader(WHERE),
    RendezvousConfigurationChanged((WHERE,)),
    WhereAreYou(),
    HowAreYou(),
    RendezvousReport(WHERE, WHERE, (WHERE,), (b"v6",)),
    QuorumHeartBeat("tcp://r2:7001"),
    ReadLease(BALLOT),
    WriteLease(BALLOT, Lease(b"one", 638_000_000_100_000_000, WHERE.write())),
    AckReadLease(BALLOT, BALLOT, Lease(b"one", 5, b"x"), "tcp://r2:7001"),
    NackReadLease(BALLOT, "tcp://r2:7001"),
    AckWriteLease(BALLOT, "tcp://r2:7001"),
]
IDENTITIES = sorted(
    {
        found.identity
        for found in vars(service).values()
        if isinstance(found, type) and isinstance(getattr(found, "identity", None), bytes)
    }
)


def mutated(rng, count):
    """Messages with a body that was damaged, or belongs to another, in any format."""
    for _ in range(count):
        payload = rng.choice(SAID)
        body = bytearray(payload.write())
        for _ in range(rng.randrange(4)):
            place = rng.randrange(len(body) + 1)
            kind = rng.random()
            if kind < 0.4 and body:
                body[place % len(body)] = rng.randrange(256)
            elif kind < 0.7:
                body[place:place] = rng.randbytes(rng.randrange(1, 6))
            else:
                del body[place : place + rng.randrange(1, 6)]
        identity = rng.choice(IDENTITIES) if rng.random() < 0.15 else payload.identity
        message = Message(identity=identity, version=1, body=bytes(body), domain=rng.choice(["", "", "d", "\u00fc"]))
        if rng.random() < 0.1:
            changes = [
                {"version": 2},
                {"partition": b"p"},
                {"hops": 40},
                {"receiver_identity": b"\x01x"},
                {"signature": b"s"},
            ]
            message = msgspec.structs.replace(message, **rng.choice(changes))
        yield encode(message, rng.choice(["v5", "v6", "v6"]))


@pytest.mark.parametrize("seed", range(3))
def test_from_a_rendezvous(seed):
    async def test(cluster):
        rng = random.Random(seed)
        scripted = Scripted(cluster)
        a = await cluster.node("a", Greeter(), may_listen=lambda address: "r:80" in address or "//a:" in address)
        await welcomed(cluster, scripted, a)
        before = a.statistics()
        for number, frames in enumerate(mutated(rng, 1500)):
            scripted.publish(frames)
            if number % 20 == 0:
                await cluster.run(0.05)
                if scripted.sources:
                    scripted._pull.reply(scripted.sources[-1], frames)  # noqa: SLF001
        await cluster.run(10)
        books = a.statistics()
        assert books.received > before.received
        assert books.in_flight == 0
        assert a.membership.refused
        assert await cluster.wait(a.ask(Hello("x"), Ehhlo, node=b"a")) == Ehhlo("hi x", "a")
        await scripted.close()

    play(test)


@pytest.mark.parametrize("seed", range(3))
def test_to_a_rendezvous_and_among_rendezvous(seed):
    async def test(cluster):
        rng = random.Random(seed)
        rendezvous = await cluster.lead("r1", others=("r2", "r3"))
        await cluster.lead("r3", others=("r1", "r2"))
        channels = cluster.network.channels("tcp://r2:8011")
        member, push = channels.publish("tcp://r2:7001"), channels.push("tcp://r1:8011")
        await cluster.run(0.1)
        sent = 0
        for number, frames in enumerate(mutated(rng, 1500)):
            sent += push.send(frames)
            member.publish(frames)
            if number % 20 == 0:
                await cluster.run(0.05)
        await cluster.settle()
        books = rendezvous.books
        # What is taken is repeated, answered or refused, or somebody else leads.
        assert sent <= books.received <= books.relayed + books.answered + books.not_leading + books.refused
        # The two that are sound still agree on a leader, and on one only.
        await cluster.until(lambda: len(cluster.leaders) == 1, 30)
        await channels.close()

    play(test, seed=seed)


@pytest.mark.parametrize("seed", range(3))
def test_instead_of_heart_beats(seed):
    async def test(cluster):
        rng = random.Random(seed)
        scripted = Scripted(cluster)
        a = await cluster.node("a")
        await welcomed(cluster, scripted, a)
        channels = cluster.network.channels("tcp://n:1")
        beats = channels.publish("tcp://n:2")
        a.membership.met(b"n", "tcp://n:1", Health("tcp://n:2", 10_000_000), "v6")
        a.membership.uses(b"n")
        await cluster.settle()
        refused = a.membership.refused
        for number, frames in enumerate(mutated(rng, 1000)):
            beats.publish(frames)
            if number % 50 == 0:
                await cluster.settle()
        await cluster.settle()
        assert a.membership.refused - refused > 500
        await channels.close()
        await scripted.close()

    play(test)
