"""Sending rows: how many at once, how fast, how often, and what is said when something is not confirmed. In memory."""

import asyncio
import socket
import time
from itertools import pairwise

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructType

from hopline.errors import InputError, SparkError
from hopline.identity import MessageType
from hopline.node.actor import Actor
from hopline.node.node import Node
from hopline.node.taps import Tap
from hopline.payload.registry import Payload, kind_of, message
from hopline.security import Domain, Domains
from hopline.spark.options import SinkOptions, read_sink_options
from hopline.spark.sink import NetworkStreamWriter, NetworkWriter, Post
from hopline.testing import MemoryNetwork, MemoryTransport
from hopline.wire import Message
from tests.spark.receiver import Receiver


@message("POST.ITEM")
class Item(Payload):
    number: int


class Taker(Actor):
    concurrency = 1000

    def __init__(self, *, is_open=True):
        self.taken = []
        self.open = asyncio.Event()
        self.begun = asyncio.Event()
        if is_open:
            self.open.set()

    async def take(self, item: Item) -> None:
        self.begun.set()
        await self.open.wait()
        self.taken.append(item.number)


class Times(Tap):
    """When each message left the hub, and when so many have."""

    def __init__(self, count=0):
        self.sent = []
        self.are_enough = asyncio.Event()
        self._count = count

    def on_message(self, point, message, frames, payload):
        if point == "hub_out":
            self.sent.append(time.monotonic())
            if len(self.sent) == self._count:
                self.are_enough.set()


def item(number, **fields):
    flow = f"flow {number}".encode()
    body = kind_of(Item).encode(Item(number))
    return Message(identity=b"POST.ITEM", version=1, body=body, correlation_id=flow, **fields)


class World:
    """Nodes in memory, and one that sends."""

    def __init__(self):
        self.network = MemoryNetwork()

    def node(self, name, *actors, **settings):
        transport = MemoryTransport(self.network, f"memory://{name}")
        return Node(actors=actors, transport=transport, hold_seconds=0.05, **settings)

    def sender(self, *names, **settings):
        return self.node("sender", peers=[f"memory://{name}" for name in names], **settings)


def run(test):
    asyncio.run(asyncio.wait_for(test(World()), 30))


async def post_all(node, count, **options):
    async with asyncio.TaskGroup() as under_way:
        post = Post(node, SinkOptions(until="handled", **options), under_way)
        for number in range(count):
            await post.send(item(number))
    return post


def test_all_are_confirmed_in_their_order():
    async def test(world):
        taker = Taker()
        async with world.node("a", taker), world.sender("a") as sender:
            post = await post_all(sender, 300, in_flight=7)
            post.check()
            assert post.sent == 300
            assert taker.taken == list(range(300))

    run(test)


def test_no_more_are_under_way_than_may_be():
    async def test(world):
        taker = Taker(is_open=False)
        async with world.node("a", taker) as server, world.sender("a") as sender:
            sending = asyncio.create_task(post_all(sender, 20, in_flight=5))
            await taker.begun.wait()
            await sender.deliver_message(item(99), until="node")  # what was sent before it has arrived
            assert server.statistics().in_flight == 6
            taker.open.set()
            (await sending).check()
            assert len(taker.taken) == 21

    run(test)


def test_a_rate_is_kept_from_row_to_row():
    async def test(world):
        times = Times()
        async with world.node("a", Taker()), world.sender("a", taps=[times]) as sender:
            (await post_all(sender, 20, rate=200.0)).check()
            assert len(times.sent) == 20
            for number, sent in enumerate(times.sent):
                assert sent - times.sent[0] >= number / 200 - 0.002  # the clock of the loop ticks in milliseconds

    run(test)


@pytest.mark.slow
def test_what_a_lost_node_had_is_sent_to_another():
    async def test(world):
        stuck, taker = Taker(is_open=False), Taker()
        async with world.node("a", stuck), world.sender("a", "b") as sender:
            sending = asyncio.create_task(post_all(sender, 10, timeout=20.0))
            await stuck.begun.wait()
            async with world.node("b", taker):
                world.network.kill("memory://a")
                (await sending).check()
                assert sorted(taker.taken) == list(range(10))
                stuck.open.set()

    run(test)


def test_what_is_not_confirmed_is_counted_by_its_end():
    class Picky(Taker):
        async def take(self, item: Item) -> None:
            if item.number % 2:
                raise ValueError("odd")

    async def test(world):
        async with world.node("a", Picky()), world.sender("a") as sender:
            post = await post_all(sender, 10)
            assert post.unconfirmed == {"REMOTE_ERROR": 5}
            with pytest.raises(SparkError, match=r"^5 of 10 messages were not confirmed \(REMOTE_ERROR 5\)") as caught:
                post.check()
            assert caught.value.code == "SPARK_NOT_CONFIRMED"
            assert "ValueError: odd (POST.ITEM, flow flow 1)" in str(caught.value)

    run(test)


def test_what_others_say_is_one_short_line(caplog):
    class Rude(Taker):
        async def take(self, item: Item) -> None:
            raise ValueError("\x1b[2J\n" + "x" * 5000)

    async def test(world):
        async with world.node("a", Rude()), world.sender("a") as sender:
            post = await post_all(sender, 1)
            with pytest.raises(SparkError, match=r"ValueError: \\x1b\[2J\\nxxx") as caught:
                post.check()
            assert str(caught.value).isprintable()
            assert len(str(caught.value)) < 500

    with caplog.at_level("DEBUG", "hopline.node"):
        run(test)
    assert any("ValueError" in line for line in caplog.messages)
    assert all(line.isprintable() and len(line) < 500 for line in caplog.messages)


def test_who_does_not_answer_in_time_has_not_confirmed():
    async def test(world):
        taker = Taker(is_open=False)
        async with world.node("a", taker), world.sender("a") as sender:
            assert (await post_all(sender, 3, timeout=0.1)).unconfirmed == {"EXPIRED": 3}
            taker.open.set()

    run(test)


def test_a_route_may_come_later_but_not_too_late():
    async def test(world):
        async with world.sender("a") as sender:
            assert (await post_all(sender, 2, timeout=0.1)).unconfirmed == {"NO_ROUTE": 2}
            sending = asyncio.create_task(post_all(sender, 2, timeout=20.0))
            async with world.node("a", Taker()):
                (await sending).check()

    run(test)


def test_who_tries_again_waits_longer_each_time():
    async def test(world):
        times = Times(4)
        async with world.sender("a", taps=[times]) as sender:
            sending = asyncio.create_task(post_all(sender, 1, timeout=20.0))
            await times.are_enough.wait()
            async with world.node("a", Taker()):
                (await sending).check()
        for number, (before, after) in enumerate(pairwise(times.sent[:4])):
            assert after - before >= 0.05 * 2**number - 0.002

    run(test)


def test_answers_come_back_and_end_here():
    @message("POST.TAKEN")
    class Taken(Payload):
        number: int

    class Answering(Actor):
        async def take(self, item: Item) -> Taken:
            return Taken(item.number)

    async def test(world):
        async with world.node("a", Answering()) as server, world.sender("a") as sender:
            async with asyncio.TaskGroup() as under_way:
                post = Post(sender, SinkOptions(until="handled"), under_way)
                points = (MessageType(b"POST.TAKEN", 1),)
                for number in range(3):
                    await post.send(item(number, callback_points=points))
            post.check()
            assert sender.statistics().expired == 3  # nobody waited for them
            books = server.statistics()
            assert (books.handled, books.dead_lettered, books.expired) == (3, 0, 0)

    run(test)


def test_a_row_cannot_choose_its_domain():
    domains = Domains([Domain("items", keys=(b"key",), identities=frozenset({b"POST.ITEM"}))])

    async def test(world):
        async with world.node("a", Taker(), domains=domains), world.sender("a", domains=domains) as sender:
            async with asyncio.TaskGroup() as under_way:
                post = Post(sender, SinkOptions(until="handled"), under_way, domains)
                await post.send(item(1, domain="items"))
                with pytest.raises(InputError, match="belongs to 'items'"):
                    await post.send(item(2, domain="others"))
            post.check()

    run(test)


# --- where nodes are ---------------------------------------------------------------------------------------------------

SCHEMA = StructType().add("identity", StringType()).add("body", BinaryType())
ROWS = pa.RecordBatch.from_pydict({"identity": ["POST.ITEM"], "body": [b""]})


@pytest.mark.parametrize("writer", [NetworkWriter, NetworkStreamWriter])
@pytest.mark.parametrize(
    ("option", "address"),
    [
        ("peers", "127.0.0.1:5101"),
        ("peers", "tcp://127.0.0.1:99999"),
        ("peers", "tcp://127.0.0.1:0"),
        ("peers", "tcp://*:5101"),
        ("peers", "tcp://127.0.0.1:5101, udp://127.0.0.1:5102"),
        ("cluster", "127.0.0.1:8011"),
        ("cluster", "tcp://127.0.0.1:8011+99999"),
    ],
)
def test_an_address_that_cannot_be_is_said_at_once(writer, option, address):
    with pytest.raises(InputError, match=rf"^the option {option} cannot be .* write tcp://HOST:PORT") as caught:
        writer(read_sink_options({option: address}), SCHEMA, overwrite=False)
    assert caught.value.code == "INPUT_BAD_OPTION"


@pytest.mark.parametrize(
    ("option", "address"),
    [
        ("peers", "tcp://127.0.0.1:5101, tcp://[::1]:5102, ipc:///run/hopline"),
        ("cluster", "tcp://127.0.0.1:8011"),
        ("cluster", "tcp://127.0.0.1:8011+8001"),
    ],
)
def test_addresses_of_all_forms(option, address):
    NetworkWriter(read_sink_options({option: address}), SCHEMA, overwrite=False)


def test_a_rate_is_kept_by_many_tasks_of_one_row():
    with Receiver(Taker()) as receiver:
        writer = NetworkWriter(read_sink_options({"peers": receiver.address, "rate": "5"}), SCHEMA, overwrite=False)
        began = time.monotonic()
        for _ in range(2):
            writer.write(iter([ROWS]))
        assert time.monotonic() - began >= 2 / 5 - 0.004


@pytest.mark.parametrize(("option", "words"), [("peers", "nobody answers at"), ("cluster", "no node is known through")])
def test_that_nobody_is_there_is_said(option, words):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        writer = NetworkWriter(read_sink_options({option: address, "timeout": "0.3"}), SCHEMA, overwrite=False)
        with pytest.raises(SparkError, match=rf"; {words} {address}$") as caught:
            writer.write(iter([ROWS]))
    assert caught.value.code == "SPARK_NOT_CONFIRMED"


def test_a_node_that_does_not_handle_it_is_no_silence():
    async def test(world):
        async with world.node("a") as server, world.sender("a") as sender:
            while server.identity not in sender.routes():
                await asyncio.sleep(0)
            post = await post_all(sender, 1, timeout=0.1)
            with pytest.raises(SparkError, match=r"flow 0\)$"):
                post.check()

    run(test)
