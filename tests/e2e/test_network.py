"""Several nodes in one process, over memory and over real sockets: the same behaviour."""

import asyncio
import time

import msgspec
import pytest
import zmq

from hopline.errors import DeliveryError, RemoteError
from hopline.flow import MAX_TRAIL
from hopline.identity import MessageType
from hopline.node.node import Node
from hopline.node.taps import Tap
from hopline.payload.registry import Payload, message
from hopline.payload.service import (
    MessageContract,
    RegisterExternalRoute,
    RegisterExternalRouteV4,
    RouteRegistration,
    read_service,
)
from hopline.security import Keyring
from hopline.transport.memory import MemoryNetwork, MemoryTransport
from hopline.transport.zmq import ZmqTransport
from hopline.wire import Message, RoutingEntry, decode, encode
from tests.e2e.world import Ehhlo, Greeter, Hello, Listener, Notice, Work, Worker, balanced, domains


class World:
    """Makes nodes that can reach each other."""

    def __init__(self, kind):
        self.kind = kind
        self.network = MemoryNetwork()
        self.names = iter("abcdefghij")

    def node(self, *actors, peers=(), **settings):
        name = next(self.names)
        if self.kind == "memory":
            transport = MemoryTransport(self.network, f"memory://{name}")
        else:
            transport = ZmqTransport("tcp://127.0.0.1:0", identity=name.encode())
        addresses = [peer.address for peer in peers]
        return Node(actors=actors, transport=transport, identity=name.encode(), peers=addresses, **settings)


@pytest.fixture(params=["memory", "zmq"])
def world(request):
    return World(request.param)


def run(test):
    asyncio.run(asyncio.wait_for(test, 40))


async def knows(node, count=1):
    """Until a node has learned the routes of so many others: asked, not waited for by the clock."""
    for _ in range(2000):
        if len(node.routes()) >= count:
            return
        await asyncio.sleep(0.001)
    raise AssertionError(f"{node.identity} knows {list(node.routes())}")


@pytest.mark.parametrize("scheme", [None, "kino", "full"])
def test_ask_tell_deliver_and_fail_between_two_nodes(world, scheme):
    async def test():
        secrets = domains(scheme) if scheme else None
        listener = Listener()
        async with world.node(Greeter(), listener, domains=secrets) as server:
            async with world.node(peers=[server], domains=secrets) as client:
                assert await client.ask(Hello("bob"), Ehhlo) == Ehhlo("hi bob", "a")
                with pytest.raises(RemoteError) as caught:
                    await client.ask(Hello("bad"), Ehhlo)
                assert (caught.value.type_name, caught.value.text) == ("ValueError", "a bad name")
                assert "ValueError" in caught.value.stack
                await client.tell(Notice("one way"))
                await listener.arrived.wait()
                assert (await client.deliver(Notice("sure"))).node == b"a"
                assert (await client.deliver(Notice("done"), until="handled")).reached == "handled"
                assert listener.heard == ["one way", "sure", "done"]
                assert await client.ask(Hello("bob"), Ehhlo, node=b"a") == Ehhlo("hi bob", "a")
            assert balanced(client)
        assert balanced(server)
        assert server.statistics().rejected == 0

    run(test())


def test_round_robin_over_local_and_remote_and_publish_to_all(world):
    async def test():
        listeners = [Listener() for _ in range(3)]
        async with (
            world.node(Greeter(), listeners[0]) as a,
            world.node(Greeter(), listeners[1], peers=[a]) as b,
            world.node(Greeter(), listeners[2], peers=[a, b]) as c,
        ):
            await knows(c, 2)
            answers = [(await c.ask(Hello("x"), Ehhlo)).node for _ in range(30)]
            assert sorted(answers) == ["a"] * 10 + ["b"] * 10 + ["c"] * 10
            await c.publish(Notice("all"))
            await asyncio.gather(*(listener.arrived.wait() for listener in listeners))
            assert [listener.heard for listener in listeners] == [["all"]] * 3
            assert len(await c.ask_all(Hello("all"), Ehhlo, seconds=0.3)) == 3

    run(test())


def test_a_route_that_comes_late_is_waited_for(world):
    async def test():
        async with world.node() as server, world.node(peers=[server]) as client:
            asking = asyncio.create_task(client.ask(Hello("early"), Ehhlo))
            await asyncio.sleep(0)
            assert client.statistics().in_flight == 1
            server.add_actor(Greeter())
            assert (await asking).text == "hi early"

    run(test())


def test_an_ask_that_ends_while_it_is_held_says_that_nobody_was_there(world):
    async def test():
        async with world.node(hold_seconds=0.5) as node:
            with pytest.raises(DeliveryError) as caught:
                await node.ask(Hello("x"), Ehhlo, timeout=0.05)
            assert caught.value.code == "NO_ROUTE"

    run(test())


def test_a_late_answer_is_one_dead_letter_and_nobody_is_told(world):
    async def test():
        async with world.node(Greeter()) as server, world.node(peers=[server]) as client:
            await client.ask(Hello("first"), Ehhlo)
            asking = asyncio.create_task(client.ask(Hello("x"), Ehhlo))
            await asyncio.sleep(0)
            asking.cancel()
            while client.statistics().expired < 1:
                await asyncio.sleep(0.001)
        assert client.dead_letters.counts == {"EXPIRED": 1}
        assert balanced(client)

    run(test())


def test_a_node_may_not_be_sent_to_where_it_must_not_go(world):
    async def test():
        async with world.node(may_connect=lambda address: False) as guarded, world.node(Greeter(), peers=[guarded]) as other:
            while not guarded.statistics().served:
                await asyncio.sleep(0.001)
            assert guarded.statistics().links == 0
            assert guarded.routes() == {}
            assert other.statistics().links == 1

    run(test())


def test_nodes_that_come_and_go_leave_nothing_behind(world):
    async def test():
        async with world.node(Greeter()) as server:
            for _ in range(5):
                async with world.node(peers=[server]) as client:
                    await client.ask(Hello("x"), Ehhlo)
            for _ in range(3000):
                if not server.statistics().links:
                    break
                await asyncio.sleep(0.001)
            assert server.statistics().links == 0
            assert server.routes() == {}

    run(test())


def test_a_body_that_cannot_be_read_is_told_to_who_sent_it(world):
    @message("HELLO")
    class Wrong(Payload):
        name: int

    async def test():
        async with world.node(Greeter()) as server, world.node(peers=[server]) as client:
            with pytest.raises(DeliveryError) as caught:
                await client.ask(Wrong(5), Ehhlo)
            assert caught.value.code == "REJECTED"

    run(test())


def test_no_route_after_the_hold(world):
    async def test():
        async with world.node(hold_seconds=0.05) as node:
            with pytest.raises(DeliveryError) as caught:
                await node.ask(Hello("x"), Ehhlo)
            assert caught.value.code == "NO_ROUTE"
        assert balanced(node)

    run(test())


def test_a_node_that_leaves_fails_its_promises_and_another_takes_over(world):
    async def test():
        async with world.node(Greeter()) as b:
            a = world.node(Greeter(), peers=[b])
            await a.start()
            async with world.node(peers=[a, b]) as client:
                await knows(client, 2)
                stuck = asyncio.create_task(client.ask(Hello("forever"), Ehhlo, node=a.identity))
                while client.statistics().forwarded < 4:
                    await asyncio.sleep(0.001)
                await a.stop(0)
                with pytest.raises(DeliveryError) as caught:
                    await stuck
                assert caught.value.code in ("PEER_LOST", "REMOTE_ERROR", "CLOSED")
                answers = {(await client.ask(Hello("x"), Ehhlo)).node for _ in range(5)}
                assert answers == {b.identity.decode()}

    run(test())


def test_a_slow_actor_on_another_node_slows_the_sender_and_nothing_is_lost(world):
    async def test():
        worker = Worker()
        async with world.node(worker) as server, world.node(peers=[server]) as client:
            for i in range(3000):
                await client.tell(Work(i))
            while worker.done < 3000:
                await asyncio.sleep(0.001)
            assert server.statistics().in_flight <= 300
        assert balanced(client)
        assert balanced(server)

    run(test())


def test_what_is_forged_repeated_or_of_another_domain_is_refused_and_the_node_serves_on():
    async def test():
        world = World("zmq")  # a stranger needs a socket of its own
        secrets = domains("full")
        serving = world.node(Greeter(), domains=secrets, hold_seconds=0.5)  # a stranger gets no answer, and holds up no end
        async with serving as server, world.node(peers=[server], domains=secrets) as client:
            await client.ask(Hello("first"), Ehhlo)
            before = server.statistics()
            good = Message(identity=b"HELLO", version=1, body=b"\x81\xa4name\xa1x", domain="world", correlation_id=b"c")
            signed = Keyring(secrets).sign(good, now_ns=time.time_ns(), nonce=bytes(range(16)))
            forged = msgspec.structs.replace(signed, body=b"\x81\xa4name\xa1y")
            foreign = msgspec.structs.replace(signed, domain="elsewhere")
            garbage = [[b"", b"", b"", b"junk"], [b"", b"x"], [b"", b"", b"", b"\6\0" + b"\xff" * 90]]
            stranger = zmq.Context.instance().socket(zmq.DEALER)
            stranger.linger = 1000
            stranger.connect(server.address)
            unsigned = good
            for frames in [*(encode(m)[1:] for m in (signed, signed, forged, foreign, unsigned)), *(g[1:] for g in garbage)]:
                stranger.send_multipart(frames)
            while server.statistics().received < before.received + 8:
                await asyncio.sleep(0.001)
            stranger.close()
            after = server.statistics()
            assert after.rejected - before.rejected == 7
            reasons = [letter.reason for letter in server.dead_letters if letter.code == "REJECTED"]
            assert any("seen before" in reason for reason in reasons)
            assert any("invalid" in reason for reason in reasons)
            assert any("not one of ours" in reason for reason in reasons)
            assert any("unsigned" in reason for reason in reasons)
            assert (await client.ask(Hello("still"), Ehhlo)).text == "hi still"
        assert balanced(client)

    run(test())


@pytest.mark.parametrize(
    ("format", "variant"), [("v5", "uint16-stamp"), ("v5", "int32-stamp"), ("v4", ""), ("v3", ""), ("v6", "early")]
)
def test_a_peer_is_answered_in_its_own_format(format, variant):
    """A scripted peer over raw sockets that speaks an older format, as a reference node would."""

    async def test():
        world = World("zmq")
        context = zmq.Context()
        frontend, backend = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
        frontend.setsockopt(zmq.ROUTING_ID, b"old")
        port = frontend.bind_to_random_port("tcp://127.0.0.1")
        uri = f"tcp://127.0.0.1:{port}"
        try:
            async with world.node(Greeter()) as node:
                backend.connect(node.address)
                contract = MessageContract(1, b"EHHLO", b"")
                if format in ("v3", "v4"):
                    hub = MessageContract(0, b"\0hub", b"", is_any_identifier=True)
                    body = RegisterExternalRouteV4(uri, b"old", (contract, hub)).write()
                else:
                    body = RegisterExternalRoute(uri, b"old", (RouteRegistration(b"\1actor", (contract,)),)).write()
                register = Message(identity=b"KINO.REGEXTROUTE", version=1, body=body)
                backend.send_multipart(encode(register, format, variant)[1:])
                request = Message(
                    identity=b"HELLO",
                    version=1,
                    body=b"\x81\xa4name\xa3bob",
                    correlation_id=b"flow",
                    callback_points=(MessageType(b"EHHLO", 1),),
                    callback_receiver_identity=b"\0hub",
                    callback_receiver_node_identity=b"" if format in ("v3", "v4") else b"old",
                    callback_key=0 if format in ("v3", "v4") else 7,
                )
                loop = asyncio.get_running_loop()
                seen = []

                def received():
                    while True:
                        try:
                            seen.append(frontend.recv_multipart(zmq.NOBLOCK))
                        except zmq.Again:
                            return

                for _ in range(5000):
                    received()
                    if seen:
                        break
                    await asyncio.sleep(0.001)
                backend.send_multipart(encode(request, format, variant)[1:])
                for _ in range(5000):
                    received()
                    if any(decode(frames).message.identity == b"EHHLO" for frames in seen):
                        break
                    await asyncio.sleep(0.001)
                assert {decode(frames).format for frames in seen} >= {format} or format in ("v3", "v4")
                answer = next(d for d in map(decode, seen) if d.message.identity == b"EHHLO")
                assert (answer.format, answer.variant) == (format, variant)
                assert answer.message.correlation_id == b"flow"
                assert answer.message.receiver_identity == b"\0hub"
                assert [entry.identity for entry in answer.message.routing] == [b"a"] or not answer.message.routing
                assert loop.is_running()
        finally:
            frontend.close(0)
            backend.close(0)
            context.term()

    run(test())


def test_service_bodies_between_nodes_are_the_references(world):
    seen = []

    class Watcher(Tap):
        points = ("scaleout_in",)

        def on_message(self, point, message, frames, payload):
            seen.append(message)

    async def test():
        async with world.node(Greeter(), taps=[Watcher()]) as server, world.node(peers=[server]) as client:
            await client.ask(Hello("x"), Ehhlo)
            identities = {message.identity for message in seen}
            assert identities >= {b"KINO.REGEXTROUTE", b"KINO.REQCLUSTROUTES", b"HELLO"}
            for message in seen:
                if message.identity.startswith(b"KINO."):
                    assert read_service(message.identity, message.body).write() == message.body

    run(test())


def test_a_tap_sees_what_is_no_message():
    broken = []

    class Watcher(Tap):
        points = ("scaleout_in",)

        def on_broken(self, frames):
            broken.append(frames[1:])
            seen.set()

    seen = asyncio.Event()

    async def test():
        async with World("zmq").node(Greeter(), taps=[Watcher()]) as server:
            with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
                stranger.connect(server.address)
                stranger.send_multipart([b"", b"no", b"message"])
                await asyncio.wait_for(seen.wait(), 10)
        assert broken == [[b"", b"no", b"message"]]
        assert server.statistics().rejected == 1

    run(test())


class Bytes(Tap):
    """Looks at the network, and nowhere else."""

    points = ("scaleout_in", "scaleout_out", "hub_in")
    error = None

    def __init__(self):
        self.seen = {point: [] for point in self.points}

    def on_message(self, point, message, frames, payload):
        self.seen[point].append(message.identity)

    def at_network(self, point):
        def see(messages):
            self.seen[point] += [decode(frames).message.identity for frames in messages]
            if self.error is not None:
                raise self.error

        return see

    def on_broken(self, frames):
        raise AssertionError("it has seen that already")


def test_a_tap_may_look_at_bytes_as_they_pass_beside_one_that_looks_at_messages(world):
    class Watcher(Bytes):
        def at_network(self, point):
            return None

    async def test():
        bytes_, watcher = Bytes(), Watcher()
        async with world.node(Greeter(), taps=[bytes_, watcher]) as server, world.node(peers=[server]) as client:
            await asyncio.gather(*(client.ask(Hello(str(number)), Ehhlo) for number in range(100)))
        assert bytes_.seen == watcher.seen
        assert bytes_.seen["scaleout_in"].count(b"HELLO") == bytes_.seen["scaleout_out"].count(b"EHHLO") == 100
        assert balanced(server)

    run(test())


class Moments(Bytes):
    """Looks at the network, at bytes or at messages, and hears of moments."""

    def __init__(self, of_bytes):
        super().__init__()
        self.of_bytes = of_bytes
        self.heard = []

    def on_message(self, point, message, frames, payload):
        if frames is not None:
            self.heard.append((point, [message.identity]))

    def at_network(self, point):
        if self.of_bytes:
            return lambda messages: self.heard.append((point, [decode(frames).message.identity for frames in messages]))
        return None

    def at_moment(self, point):
        def mark():
            self.heard.append((point, None))
            raise RuntimeError("a mistake in a tap")

        return mark


@pytest.mark.parametrize("of_bytes", [True, False])
def test_a_tap_hears_of_the_moment_before_it_sees_what_left_and_what_came(world, of_bytes, caplog):
    async def test():
        tap = Moments(of_bytes)
        async with world.node(Greeter(), taps=[tap]) as server, world.node(peers=[server]) as client:
            await asyncio.gather(*(client.ask(Hello(str(number)), Ehhlo) for number in range(100)))
        left = [seen for point, seen in tap.heard if point == "scaleout_out"]
        assert left[::2] == [None] * (len(left) // 2), "each time one moment, and what left then"
        assert sum(seen.count(b"EHHLO") for seen in left[1::2]) == 100
        came = [seen for point, seen in tap.heard if point == "scaleout_in"]
        assert sum(seen.count(b"HELLO") for seen in came if seen is not None) == 100
        # Who looks at bytes sees them at the moment itself; who looks at messages sees those of one moment one by one.
        assert (None in came) != of_bytes
        assert of_bytes or came[0] is None
        assert "a mistake in a tap" in caplog.text
        assert balanced(server)

    run(test())


def test_a_tap_that_raises_at_the_network_costs_no_message(world, caplog):
    async def test():
        tap = Bytes()
        tap.error = RuntimeError("a mistake in a tap")
        async with world.node(Greeter(), taps=[tap]) as server, world.node(peers=[server]) as client:
            await asyncio.gather(*(client.ask(Hello(str(number)), Ehhlo) for number in range(100)))
        assert tap.seen["scaleout_in"].count(b"HELLO") == 100
        assert "a mistake in a tap" in caplog.text
        assert balanced(server)

    run(test())


def test_a_tap_that_raises_does_not_stop_the_node(world):
    class Watcher(Tap):
        points = ("scaleout_in",)
        is_angry = True

        def on_message(self, point, message, frames, payload):
            if message.identity == b"HELLO" and self.is_angry:
                self.is_angry = False
                raise RuntimeError("a mistake in a tap")

    async def test():
        async with world.node(Greeter(), taps=[Watcher()]) as server, world.node(peers=[server]) as client:
            with pytest.raises(DeliveryError):
                await client.ask(Hello("lost"), Ehhlo, timeout=0.3)
            assert (await client.ask(Hello("next"), Ehhlo)).text == "hi next"
        assert server.dead_letters.counts["REJECTED"] == 1
        assert balanced(server)

    run(test())


def test_a_message_that_went_over_too_many_nodes_is_a_dead_letter():
    """decisions "hop limit": node a has no handler, b has one; what came 32 hops to a is not sent on, 31 hops is."""

    async def test():
        world = World("zmq")
        stranger = zmq.Context()
        socket = stranger.socket(zmq.DEALER)
        try:
            async with world.node() as a, world.node(Greeter(), peers=[a], hold_seconds=0.5) as b:
                await knows(a)
                socket.connect(a.address)
                for hops in (32, 31):
                    message = Message(identity=b"HELLO", version=1, body=b"\x81\xa4name\xa1x", hops=hops)
                    socket.send_multipart(encode(message)[1:])
                for _ in range(5000):
                    if a.dead_letters.counts.get("HOP_LIMIT") and b.statistics().handled:
                        break
                    await asyncio.sleep(0.001)
                assert a.dead_letters.counts["HOP_LIMIT"] == 1
                assert b.statistics().handled == 1
        finally:
            socket.close(0)
            stranger.term()

    run(test())


def test_a_trail_that_is_too_long_loses_its_oldest_entries_and_that_is_counted():
    async def test():
        world = World("zmq")
        stranger = zmq.Context()
        socket = stranger.socket(zmq.DEALER)
        try:
            async with world.node(Greeter(), hold_seconds=0.5) as b, world.node(peers=[b]) as a:
                await knows(a)
                socket.connect(a.address)
                trail = tuple(RoutingEntry(f"tcp://10.0.0.1:{i}", b"n%d" % i) for i in range(MAX_TRAIL))
                message = Message(identity=b"HELLO", version=1, body=b"\x81\xa4name\xa1x", hops=1, routing=trail)
                socket.send_multipart(encode(message)[1:])
                for _ in range(5000):
                    if b.statistics().handled:
                        break
                    await asyncio.sleep(0.001)
                assert b.statistics().handled == 1
                assert a.statistics().trail_entries_dropped == 1
        finally:
            socket.close(0)
            stranger.term()

    run(test())


def test_more_messages_than_may_be_held_end_at_once():
    async def test():
        world = World("memory")
        async with world.node() as node:
            for _ in range(10_000):
                await node.tell(Notice())
            assert "NO_ROUTE" not in node.dead_letters.counts
            await node.tell(Notice())
            assert node.dead_letters.counts["NO_ROUTE"] == 1
            await node.stop(0)
        assert balanced(node)

    run(test())


def test_faults_of_the_network_do_not_break_the_books():
    async def test():
        world = World("memory")
        secrets = domains()
        async with world.node(Greeter(), domains=secrets) as a, world.node(Greeter(), peers=[a], domains=secrets) as b:
            async with world.node(peers=[a, b], domains=secrets) as client:
                await knows(client, 2)
                world.network.drop(0.2)
                asks = [client.ask(Hello(str(i)), Ehhlo, timeout=2) for i in range(300)]  # enough for a busy machine
                answers = await asyncio.gather(*asks, return_exceptions=True)
                good = sum(isinstance(answer, Ehhlo) for answer in answers)
                assert good + sum(isinstance(answer, DeliveryError) for answer in answers) == 300
                assert 100 < good < 300
                world.network.drop(0)
            assert balanced(client)
        assert balanced(a)
        assert balanced(b)

    run(test())
