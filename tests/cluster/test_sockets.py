"""A cluster over real sockets on this machine: it works as in memory, and no garbage on any of its sockets stops it."""

import asyncio
import contextlib
import os
import random
import socket

import pytest
import zmq
import zmq.asyncio

from hopline.assembly import CLUSTER_BYTES, MemberSettings, Node, RendezvousSettings, Settings, make_rendezvous
from hopline.capture import open_capture
from hopline.capture.reading import Reading
from hopline.cluster.lease import utc_ticks
from hopline.cluster.messages import control_frames
from hopline.errors import TransportError
from hopline.node.clock import LoopClock
from hopline.payload.service import (
    AckReadLease,
    Ballot,
    Health,
    HeartBeat,
    MessageContract,
    NackReadLease,
    Ping,
    Pong,
    ReadLease,
    RegisterExternalRoute,
    RendezvousConfigurationChanged,
    RouteRegistration,
)
from hopline.wire import Message, decode, encode
from tests.e2e.world import Ehhlo, Greeter, Hello, domains

QUICK = MemberSettings(heartbeat_s=0.2, silence_s=1.0, discovery_s=5.0)


def run(test):
    async def checked():
        raised = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: raised.append(context.get("exception") or context)
        )
        await test
        assert not raised, raised

    asyncio.run(asyncio.wait_for(checked(), 50))


async def eventually(condition, seconds=15.0):
    """Until something holds that others bring about."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError("did not come about")
        await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def leading(bind="tcp://127.0.0.1:0", **settings):
    rendezvous = make_rendezvous(Settings(rendezvous=RendezvousSettings(bind=bind, heartbeat_s=0.2, **settings)))
    await rendezvous.start()
    try:
        yield rendezvous
    finally:
        await rendezvous.close()


def member(where, *actors, name, settings=QUICK, **more):
    return Node(
        actors,
        bind="tcp://127.0.0.1:0",
        cluster=where if isinstance(where, str) else where.endpoint.text,
        config=Settings(cluster=settings),
        identity=name.encode(),
        **more,
    )


@contextlib.contextmanager
def sockets():
    """Makes bare sockets."""
    context = zmq.asyncio.Context()
    made = []

    def make(kind, *, bind="tcp://127.0.0.1:0", connect=""):
        one = context.socket(kind)
        made.append(one)
        if kind == zmq.SUB:
            one.subscribe(b"")
        if connect:
            one.connect(connect)
        else:
            one.bind(bind)
        return one

    try:
        yield make
    finally:
        for one in made:
            one.close(0)
        context.term()


def address_of(one):
    return one.getsockopt_string(zmq.LAST_ENDPOINT)


def garbage(seed, count=60):
    """Frame lists that are no messages, and some that nearly are."""
    rng = random.Random(seed)
    good = [
        control_frames(HeartBeat(10_000_000)),
        control_frames(HeartBeat(10_000_000), "v5"),
        encode(Message(identity=b"KINO.REGEXTROUTE", version=1, body=b"\xff" * 40)),
    ]
    for i in range(count):
        if i % 3:
            yield [rng.randbytes(rng.choice([0, 1, 7, 300, 5000])) for _ in range(rng.randrange(1, 30))]
        else:
            frames = list(rng.choice(good))
            place = rng.randrange(len(frames))
            frames[place] = rng.randbytes(rng.randrange(len(frames[place]) + 1, len(frames[place]) + 50))
            yield frames


def is_message(frames):
    try:
        decode(frames)
    except Exception:  # noqa: BLE001 - whatever it is
        return False
    return True


def broken(seed, count=60):
    return [frames for frames in garbage(seed, count) if not is_message(frames)]


def rudely(address):
    """Connect to an address and say what is no ZeroMQ."""
    host, port = address.removeprefix("tcp://").rsplit(":", 1)
    for junk in (b"", b"GET / HTTP/1.0\r\n\r\n", os.urandom(5000), b"\xff" + b"\0" * 8 + b"\x7f" + b"\x09" * 100):
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 5) as bare:
            bare.sendall(junk)


def test_nodes_find_each_other_call_each_other_and_say_goodbye():
    async def test():
        async with leading() as rendezvous:
            async with member(rendezvous, Greeter(), name="a", domains=domains()) as a:
                async with member(rendezvous, name="b", domains=domains()) as b:
                    await eventually(lambda: b"a" in b.routes() and b"b" in a.routes())
                    assert await b.ask(Hello("x"), Ehhlo) == Ehhlo("hi x", "a")
                await eventually(lambda: not a.routes(), 2.0)
                assert a.statistics().rejected == 0
            assert rendezvous.books.refused == 0

    run(test())


def free_address():
    with socket.socket() as free, socket.socket() as heard:
        for one in (free, heard):
            one.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{free.getsockname()[1]}+{heard.getsockname()[1]}"


def test_a_node_that_records_and_is_the_rendezvous_records_both(tmp_path):
    async def test():
        where = free_address()
        async with member(where, Greeter(), name="a", embed=True, capture=tmp_path) as a, member(where, name="b") as b:
            await eventually(lambda: len(a.routes()) == len(b.routes()) == 1)
            assert (await b.ask(Hello("x"), Ehhlo)).node == "a"
            name = a.membership.embedded.rendezvous.identity.decode()
        segments = open_capture(str(tmp_path)).segments()
        batches = [batch for segment in segments for _, batch in Reading(segment, ["node", "tap"])]
        seen = {(row["node"], row["tap"]) for batch in batches for row in batch.to_pylist()}
        assert {tap for node, tap in seen if node == name} == {"wire_in", "wire_out"}
        assert {tap for node, tap in seen if node == "a"} >= {"scaleout_in", "scaleout_out"}
        assert {node for node, _ in seen} == {"a", name}

    run(test())


def test_the_first_node_is_enough_on_one_machine():
    async def test():
        where = free_address()
        a = await member(where, Greeter(), name="a", embed=True).start()
        async with member(where, Greeter(), name="b", embed=True) as b, member(where, name="c") as c:
            await eventually(lambda: len(a.routes()) == len(b.routes()) == len(c.routes()) == 2)
            assert b.membership.embedded.rendezvous is None
            await a.stop()
            await eventually(lambda: len(b.routes()) == len(c.routes()) == 1, 2.0)
            await eventually(lambda: b.membership.embedded.rendezvous is not None)
            async with member(where, name="d") as d:
                await eventually(lambda: len(b.routes()) == len(c.routes()) == len(d.routes()) == 2)
                assert (await d.ask(Hello("x"), Ehhlo)).node == "b"

    run(test())


def test_garbage_sent_to_a_rendezvous_is_counted_there():
    async def test():
        async with leading() as rendezvous:
            with sockets() as make:
                bare = make(zmq.DEALER, connect=rendezvous.endpoint.unicast)
                junk = broken(1)
                for frames in junk:
                    await bare.send_multipart(frames)
                rudely(rendezvous.endpoint.unicast)
                rudely(rendezvous.endpoint.broadcast)
                # What is no ZeroMQ may still be read as some.
                await eventually(lambda: rendezvous.books.refused >= len(junk))
                assert rendezvous.books.relayed == 0
                async with member(rendezvous, Greeter(), name="a") as a, member(rendezvous, name="b") as b:
                    await eventually(lambda: b"a" in b.routes() and b"b" in a.routes())
                    assert a.statistics().rejected == 0

    run(test())


@pytest.mark.parametrize("frames", [[b"", b"x" * (CLUSTER_BYTES + 1)], [b"x"] * 5000], ids=["too big", "too many"])
def test_what_is_too_much_is_refused_and_counted(frames):
    async def test():
        async with leading() as rendezvous:
            with sockets() as make:
                bare = make(zmq.DEALER, connect=rendezvous.endpoint.unicast)
                await bare.send_multipart(frames)
                await eventually(lambda: rendezvous.books.refused == 1)
        async with faking() as (fake, _), member(fake.where, name="a") as a:
            await eventually(lambda: a.is_joined)
            refused = a.membership.refused
            await fake.publisher.send_multipart(frames)
            await eventually(lambda: a.membership.refused == refused + 1)
            assert a.is_joined

    run(test())


class Fake:
    """A rendezvous of bare sockets: it answers pings, and says what a test wants."""

    def __init__(self, make):
        self.router = make(zmq.ROUTER)
        self.publisher = make(zmq.PUB)
        self.where = f"{address_of(self.router)}+{address_of(self.publisher).rsplit(':', 1)[1]}"
        self.heard = []

    async def serve(self):
        while True:
            source, *frames = await self.router.recv_multipart()
            decoded = decode(frames)
            self.heard.append((source, decoded))
            if decoded.message.identity == b"KINO.PING":
                await self.say(Pong(), decoded.format)

    async def beat(self, format="v6"):
        while True:
            await self.say(HeartBeat(2_000_000), format)
            await asyncio.sleep(0.2)

    async def say(self, payload, format="v6"):
        await self.publisher.send_multipart(control_frames(payload, format))


@contextlib.asynccontextmanager
async def faking(*formats):
    with sockets() as make:
        fake = Fake(make)
        tasks = [
            asyncio.create_task(fake.serve()),
            *(asyncio.create_task(fake.beat(format)) for format in formats or ["v6"]),
        ]
        try:
            yield fake, make
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def test_garbage_from_a_rendezvous_is_counted_by_the_node():
    async def test():
        async with faking() as (fake, _), member(fake.where, Greeter(), name="a") as a:
            await eventually(lambda: a.is_joined)
            junk = broken(2)
            for frames in junk:
                await fake.publisher.send_multipart(frames)
            await eventually(lambda: a.statistics().rejected == len(junk))
            # Replies, too: the membership counts those.
            refused = a.membership.refused
            source = next(source for source, _ in fake.heard)
            for frames in junk[:10]:
                await fake.router.send_multipart([source, *frames])
            await fake.router.send_multipart([source, *control_frames(Pong())])
            await fake.router.send_multipart([source, *control_frames(RendezvousConfigurationChanged(()))])
            await eventually(lambda: a.membership.refused == refused + 11)
            assert a.statistics().in_flight == 0
            assert a.is_joined

    run(test())


def test_garbage_instead_of_heart_beats_is_counted_and_is_no_heart_beat():
    async def test():
        async with faking() as (fake, make), member(fake.where, name="a") as a:
            await eventually(lambda: a.is_joined)
            peer, beats = make(zmq.ROUTER), make(zmq.XPUB)
            routes = (RouteRegistration(b"\x01actor", (MessageContract(1, b"HELLO", b""),)),)
            health = Health(address_of(beats), 5_000_000)
            payload = RegisterExternalRoute(address_of(peer), b"peer", routes, health)
            message = Message(identity=payload.identity, version=1, body=payload.write())
            await fake.publisher.send_multipart(encode(message))
            await eventually(lambda: b"peer" in a.routes())
            asking = asyncio.create_task(a.ask(Hello("x"), Ehhlo))
            await peer.recv_multipart()
            assert (await beats.recv())[:1] == b"\x01", "it listens"
            refused, junk = a.membership.refused, broken(3, 20)
            for frames in junk:
                await beats.send_multipart(frames)
            await eventually(lambda: a.membership.refused >= refused + len(junk))
            await eventually(lambda: b"peer" not in a.routes(), 5.0)
            (failed,) = await asyncio.gather(asking, return_exceptions=True)
            assert failed.code == "PEER_LOST"

    run(test())


def test_garbage_between_rendezvous_is_counted_and_the_lease_goes_on():
    async def test():
        with sockets() as make:
            one, two = make(zmq.PUB), make(zmq.PUB)
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                own = f"tcp://127.0.0.1:{free.getsockname()[1]}"
            members = (own, address_of(one), address_of(two))
            times = {"lease_s": 1.0, "clock_drift_s": 0.05, "response_s": 0.1}
            async with leading(synod=own, members=members, **times) as rendezvous:
                ear = make(zmq.SUB, connect=own)
                kinds = {kind.identity: kind for kind in (AckReadLease, NackReadLease)}

                async def is_answered(number):
                    ballot = Ballot(utc_ticks(LoopClock().wall_ns()), b"one", number)
                    while True:
                        await one.send_multipart(control_frames(ReadLease(ballot)))  # again, until both ends listen
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(0.1):
                                while not await is_about(ballot):
                                    pass
                                return

                async def is_about(ballot):
                    message = decode(await ear.recv_multipart()).message
                    return message.identity in kinds and kinds[message.identity].read(message.body).ballot == ballot

                await asyncio.wait_for(is_answered(1), 10)
                before, junk = rendezvous.books.refused, broken(4)
                for frames in junk:
                    await one.send_multipart(frames)
                await eventually(lambda: rendezvous.books.refused >= before + len(junk))
                rudely(own)
                await asyncio.wait_for(is_answered(2), 10)
                assert not rendezvous.is_leader  # the others have not agreed to anything

    run(test())


@pytest.mark.parametrize("formats", [("v5",), ("v5", "v6")])
def test_nodes_speak_to_a_rendezvous_of_the_reference_in_its_formats(formats):
    async def test():
        async with faking(*formats) as (fake, _), member(fake.where, Greeter(), name="a") as a:

            def said():
                return {decoded.format for _, decoded in fake.heard if decoded.message.identity == b"KINO.REGEXTROUTE"}

            await eventually(lambda: set(formats) <= said())
            assert set(a.membership.formats) >= set(formats)

    run(test())


@pytest.mark.parametrize("formats", [("v5",), ("v5", "v6")])
def test_a_rendezvous_speaks_what_nodes_of_the_reference_do_and_so_do_all_nodes(formats):
    async def test():
        async with leading() as rendezvous, member(rendezvous, Greeter(), name="a") as a:
            await eventually(lambda: a.is_joined)
            assert rendezvous.formats == ("v6",)
            with sockets() as make:
                # A node of the reference: its socket has a name of ZeroMQ's, and it reads one format.
                for format in formats:
                    bare = make(zmq.DEALER, connect=rendezvous.endpoint.unicast)
                    await bare.send_multipart(control_frames(Ping(), format))
                ear = make(zmq.SUB, connect=rendezvous.endpoint.broadcast)
                heard = set()
                while not {(b"KINO.REGEXTROUTE", f) for f in formats} | {(b"KINO.HEARTBEAT", f) for f in formats} <= heard:
                    decoded = decode(await asyncio.wait_for(ear.recv_multipart(), 10))
                    heard.add((decoded.message.identity, decoded.format))
                    if decoded.message.identity == b"KINO.HEARTBEAT":
                        question = Message(identity=b"KINO.REQCLUSTROUTES", version=1, body=b"")
                        await bare.send_multipart(encode(question, formats[-1]))
                assert set(rendezvous.formats) == set(formats)
                # Old formats are relayed, and not learned.
                await bare.send_multipart(control_frames(Ping(), "v4"))
                refused = rendezvous.books.refused
                await bare.send_multipart([b"junk"])  # behind it: when this is refused, that was taken
                await eventually(lambda: rendezvous.books.refused == refused + 1)
                assert set(rendezvous.formats) == set(formats)
            async with member(rendezvous, name="b") as b:
                await eventually(lambda: b"a" in b.routes())
                assert (await b.ask(Hello("x"), Ehhlo)).node == "a"

    run(test())


def test_what_cannot_be_bound_is_a_sentence():
    async def test():
        async with leading() as rendezvous:
            settings = Settings(rendezvous=RendezvousSettings(bind=rendezvous.endpoint.text))
            with pytest.raises(TransportError) as caught:
                await make_rendezvous(settings).start()
            assert caught.value.code == "TRANSPORT_ADDRESS_IN_USE"
            async with member(rendezvous, name="a") as a:
                other = Node(bind=a.address, cluster=rendezvous.endpoint.text)
                with pytest.raises(TransportError) as caught:
                    await other.start()
                assert caught.value.code == "TRANSPORT_ADDRESS_IN_USE"

    run(test())
