"""Messages played into a network in memory: what comes of them, when they leave, and who never sees them."""

import asyncio
import contextlib

import pytest

from hopline.identity import MessageType
from hopline.node.actor import Actor, Context
from hopline.node.node import Node
from hopline.payload.registry import Payload, kind_of, message
from hopline.replay.outcome import Outcome
from hopline.replay.player import Player, raw_class
from hopline.replay.script import Play
from hopline.testing import ManualClock, MemoryNetwork, MemoryTransport
from hopline.transport.base import DEFAULT_LIMITS, Limits

MS = 1_000_000


@message("REPLAY.HELLO")
class Hello(Payload):
    name: str = "bob"


@message("REPLAY.EHHLO")
class Ehhlo(Payload):
    text: str


@message("REPLAY.GONE")
class Gone(Payload):
    pass


@message("REPLAY.NOTE")
class Note(Payload):
    text: str = ""


class Greeter(Actor):
    concurrency = 100

    def __init__(self):
        self.seen = []
        self.gate = asyncio.Event()

    async def greet(self, hello: Hello, context: Context) -> Ehhlo | Gone | None:
        self.seen.append((hello.name, context.message))
        match hello.name:
            case "bad":
                raise ValueError("a bad name")
            case "gone":
                return Gone()
            case "silent":
                return None
            case "gate":
                await self.gate.wait()
        return Ehhlo(f"hi {hello.name}")

    async def note(self, note: Note, context: Context) -> None:
        self.seen.append((note.text, context.message))


def body_of(payload):
    return kind_of(type(payload)).encode(payload)


def play(payload, way="ask", at_ms=0, **changes):
    kind = kind_of(type(payload)).message_type
    replies = (kind_of(Ehhlo).message_type, kind_of(Gone).message_type) if way == "ask" else ()
    known = {"way": way, "replies": replies, "body": body_of(payload), "kind": kind}
    return Play(**{"event_id": "s:0", "flow": "then", "seen_ns": 10**18 + int(at_ms * MS)} | known | changes)


class World:
    """A target that is played into, and what came of each message."""

    def __init__(self, network, greeter, server, transport, node, clock):
        self.network = network
        self.greeter = greeter
        self.server = server
        self.transport = transport
        self.node = node
        self.clock = clock
        self.results = []

    def player(self, **settings):
        return Player(self.node, lambda play, outcome: self.results.append((play, outcome)), **{"speed": None} | settings)

    @property
    def outcomes(self):
        return [outcome for _, outcome in self.results]

    @property
    def names(self):
        return [name for name, _ in self.greeter.seen]


@contextlib.asynccontextmanager
async def world(*, capacity=1000, limits=DEFAULT_LIMITS):
    network = MemoryNetwork(capacity=capacity)
    greeter, clock = Greeter(), ManualClock()
    transport = MemoryTransport(network, "memory://server")
    server = Node(actors=[greeter], transport=transport, identity=b"server")
    node = Node(
        transport=MemoryTransport(network, "memory://player", limits=limits),
        identity=b"player",
        peers=["memory://server"],
        clock=clock,
        may_connect=lambda address: address == "memory://server",
    )
    try:
        await server.start()
        await node.start()
        await until(lambda: b"server" in node.routes() and node.routes()[b"server"].actors)
        yield World(network, greeter, server, transport, node, clock)
    finally:
        await node.stop(0)
        await server.stop(0)


async def until(condition):
    """Windows are read in another thread, and messages take some turns of the loop: looked for, with a bound."""
    for _ in range(5000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not happen")


def run(test, **settings):
    async def main():
        async with world(**settings) as found:
            await test(found)

    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_raw_class_is_one_for_each_type_and_keeps_the_bytes():
    kind = MessageType(b"REPLAY.RAW", 3, b"EU")
    assert raw_class(kind) is raw_class(MessageType(b"REPLAY.RAW", 3, b"EU"))
    assert raw_class(kind) is not raw_class(MessageType(b"REPLAY.RAW", 3))
    known = kind_of(raw_class(kind))
    assert known.message_type == kind
    assert known.encode(known.decode(b"\0\xff")) == b"\0\xff"


def test_each_way_of_sending_and_what_comes_of_it():
    async def test(world):
        plays = [
            play(Hello("bob")),
            play(Hello("gone")),
            play(Hello("bad")),
            play(Note("delivered"), "deliver"),
            play(Note("handled"), "handled"),
            play(Note("told"), "tell"),
            play(Note("published"), "publish"),
        ]
        player = world.player(in_flight=1)
        await player.play(iter([plays[:3], plays[3:]]))
        await until(lambda: len(world.greeter.seen) == 7)
        assert [(outcome.end, outcome.type) for outcome in world.outcomes] == [
            ("answer", "REPLAY.EHHLO v1"),
            ("answer", "REPLAY.GONE v1"),
            ("exception", "ValueError"),
            ("receipt", ""),
            ("receipt", ""),
            ("sent", ""),
            ("sent", ""),
        ]
        assert world.outcomes[0].body == body_of(Ehhlo("hi bob"))
        assert [played for played, _ in world.results] == plays
        assert world.names == ["bob", "gone", "bad", "delivered", "handled", "told", "published"]
        assert (player.sent, player.under_way, player.is_stopped) == (7, 0, False)

    run(test)


def test_everything_but_type_and_body_is_new():
    async def test(world):
        await world.player().play(
            iter([[play(Hello("a")), play(Hello("b"), is_to_node=True), play(Note("c"), "tell", ttl_s=9)]])
        )
        await until(lambda: len(world.greeter.seen) == 3)
        seen = dict(world.greeter.seen)
        assert len({received.correlation_id for received in seen.values()} - {b"then"}) == 3
        assert {entry.identity for received in seen.values() for entry in received.routing} == {b"player"}
        assert seen["a"].callback_receiver_node_identity == b"player"
        assert (seen["a"].receiver_node_identity, seen["b"].receiver_node_identity) == (b"", b"server")
        assert seen["c"].ttl_ticks == 90_000_000

    run(test)


def test_messages_arrive_in_the_order_of_the_script():
    async def test(world):
        plays = [play(Hello(str(number))) for number in range(300)]
        await world.player(in_flight=1000).play(iter([plays[:7], plays[7:]]))
        assert world.names == [str(number) for number in range(300)]
        assert {outcome.end for outcome in world.outcomes} == {"answer"}

    run(test)


def test_a_type_that_the_target_does_not_take_is_not_sent():
    async def test(world):
        before = world.node.statistics().sent_locally
        unknown = play(Hello(), kind=MessageType(b"REPLAY.UNKNOWN", 1))
        await world.player().play(iter([[unknown, play(Note(), "tell", kind=MessageType(b"REPLAY.HELLO", 2))]]))
        assert world.outcomes == [Outcome("NO_ROUTE"), Outcome("NO_ROUTE")]
        assert world.node.statistics().sent_locally == before
        assert not world.node.dead_letters.counts

    run(test)


def test_nobody_but_the_target_is_touched():
    async def test(world):
        other = Greeter()
        transport = MemoryTransport(world.network, "memory://other")
        # It knows where we are, and tells that it takes the same types; and the target is its peer.
        peers = ["memory://player", "memory://server"]
        async with Node(actors=[other], transport=transport, identity=b"other", peers=peers) as node:
            await until(lambda: b"other" in world.server.routes())
            received = 2  # what the target tells of itself when they meet
            await until(lambda: node.statistics().forwarded >= 4 and node.statistics().received == received)
            await world.player().play(iter([[play(Hello(str(number))) for number in range(50)]]))
            assert (len(world.names), other.seen) == (50, [])
            assert b"other" not in world.node.routes()
            assert node.statistics().received == received

    run(test)


def test_the_original_pace_is_kept_at_any_speed_and_nothing_drifts():
    async def test(world):
        plays = [play(Hello(str(ms)), at_ms=ms) for ms in (0, 100, 250, 250)]
        player = world.player(speed=10.0)
        playing = asyncio.create_task(player.play(iter([plays[:2], plays[2:]])))
        await until(lambda: len(world.results) == 1)
        world.clock.advance(0.0099)
        await asyncio.sleep(0)
        assert player.sent == 1
        world.clock.advance(0.0051)  # 5 ms too late
        await until(lambda: len(world.results) == 2)
        assert round(player.behind_ms, 6) == 5
        world.clock.advance(0.0099)
        await asyncio.sleep(0)
        assert player.sent == 2
        world.clock.advance(0.0001)  # and the next ones are in time
        await playing
        assert world.names == ["0", "100", "250", "250"]
        assert round(player.behind_ms, 6) == 5

    run(test)


def test_time_that_goes_back_in_a_script_is_no_reason_to_wait():
    async def test(world):
        await world.player(speed=1.0).play(iter([[play(Hello("a"), at_ms=5), play(Hello("b"), at_ms=0)]]))
        assert world.names == ["a", "b"]

    run(test)


@pytest.mark.parametrize("speed", [None, 1.0])
def test_no_more_than_may_be_are_under_way(speed):
    async def test(world):
        player = world.player(speed=speed, in_flight=3)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(player.play(iter([[play(Hello("gate")) for _ in range(8)]])))
            await until(lambda: len(world.greeter.seen) == 3)
            for _ in range(20):
                await asyncio.sleep(0)
            assert (player.sent, player.under_way, len(world.greeter.seen)) == (3, 3, 3)
            world.greeter.gate.set()
        assert (len(world.results), player.under_way) == (8, 0)

    run(test)


def test_who_waits_too_long_has_expired():
    async def test(world):
        playing = asyncio.create_task(world.player(timeout=2.0).play(iter([[play(Hello("silent"))]])))
        await until(lambda: world.names == ["silent"])
        world.clock.advance(1.9)
        await asyncio.sleep(0)
        assert not playing.done()
        world.clock.advance(0.1)
        await playing
        assert world.outcomes == [Outcome("EXPIRED", "", 2000.0)]

    run(test)


def test_a_message_that_is_not_taken_has_expired_too():
    async def test(world):
        # The nodes have introduced themselves: what the server asked for comes before its first answer, and what we told it
        # is read before our second question. Else an introduction may take one of the 30 places.
        for _ in range(2):
            await world.node.ask(Hello(), Ehhlo)
        world.transport.pause()
        player = world.player(timeout=2.0)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(player.play(iter([[play(Note("x"), "tell") for _ in range(50)]])))
            await until(lambda: player.sent == 50 and player.under_way == 20)
            await asyncio.sleep(0)  # the last one is counted before it begins to wait
            world.clock.advance(2.0)
        ends = [outcome.end for outcome in world.outcomes]
        assert (ends.count("sent"), ends.count("EXPIRED")) == (30, 20)
        world.transport.resume()

    run(test, capacity=10, limits=Limits(queue_messages=20))


def test_who_is_stopped_sends_no_more_and_waits_for_what_is_under_way():
    async def test(world):
        plays = [play(Hello("gate")), play(Hello("gate")), play(Hello("late"), at_ms=60_000)]
        player = world.player(speed=1.0)
        playing = asyncio.create_task(player.play(iter([plays, [play(Hello("never"))]])))
        await until(lambda: len(world.greeter.seen) == 2)
        player.stop()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not playing.done()
        world.greeter.gate.set()
        await playing
        assert [outcome.end for outcome in world.outcomes] == ["answer", "answer"]
        assert (player.sent, player.is_stopped) == (2, True)
        assert world.names == ["gate", "gate"]

    run(test)


def test_who_is_stopped_before_the_first_message_sends_none():
    async def test(world):
        player = world.player()
        player.stop()
        await player.play(iter([[play(Hello())]]))
        assert (player.sent, world.results) == (0, [])

    run(test)


def test_a_target_that_is_lost_is_told_and_its_successor_is_used():
    async def test(world):
        player = world.player(in_flight=10)
        playing = asyncio.create_task(player.play(iter([[play(Hello("gate"))]])))
        await until(lambda: world.names == ["gate"])
        world.network.kill("memory://server")
        await playing
        assert [outcome.end for outcome in world.outcomes] == ["PEER_LOST"]
        world.greeter.gate.set()
        await world.player().play(iter([[play(Hello())]]))
        assert world.outcomes[-1].end == "NO_ROUTE"
        world.network.restart("memory://server")
        await until(lambda: b"server" in world.node.routes() and world.node.routes()[b"server"].actors)
        await world.player().play(iter([[play(Hello())]]))
        assert world.outcomes[-1].end == "answer"

    run(test)


def test_who_cannot_take_results_ends_the_play():
    def full(_play, _outcome):
        raise OSError("no space left")

    async def test(world):
        with pytest.raises(OSError, match="no space left"):
            await Player(world.node, full, speed=None).play(iter([[play(Hello(str(number))) for number in range(9)]]))

    run(test)


def test_a_script_that_fails_ends_the_play():
    def broken():
        yield [play(Hello())]
        raise OSError("the disk is gone")

    async def test(world):
        with pytest.raises(OSError, match="the disk is gone"):
            await world.player().play(broken())

    run(test)
