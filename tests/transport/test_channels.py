"""What the one-way sockets of a cluster promise, `hopline.transport.channels`: over TCP, IPC, uvloop and in memory."""

import asyncio
import contextlib
import random
import resource
import socket
from collections.abc import Callable

import pytest
import zmq

from hopline.errors import TransportError
from hopline.testing import ManualClock, MemoryNetwork
from hopline.transport import Channels, Curve, Limits
from hopline.transport.base import BAD_HANDSHAKE, FRAME_TOO_BIG, NOT_ASKED_FOR, TOO_MANY_FRAMES, UNKNOWN_KEY
from hopline.transport.bundle import GREETING, MARK
from tests.transport.harness import SECONDS, World, message

ZMTP_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16) + bytes(32)
GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "ones": b"\xff" * 200,
    "half a greeting": ZMTP_GREETING[:20],
    "broken command": ZMTP_GREETING + b"\x04\xff" + b"no command",
    "a frame of many exabytes": ZMTP_GREETING + b"\x06" + (2**63 - 1).to_bytes(8, "big") + b"x",
    "the oldest ZeroMQ": b"\x05" + random.Random(1).randbytes(5000),
}


@pytest.fixture(params=["memory", "tcp", "ipc", "tcp-uvloop"])
def world(request: pytest.FixtureRequest, tmp_path) -> World:
    return World(request.param, tmp_path)


class Heard(list[list[bytes]]):
    """What was heard, and a way to wait for it: an OnFrames, an OnConnected and an OnRefused."""

    def __init__(self) -> None:
        super().__init__()
        self._news = asyncio.Event()

    def __call__(self, *what) -> None:
        self.append(what[0] if len(what) == 1 else what)
        self._news.set()

    async def until(self, is_so: Callable[[], object]) -> None:
        async with asyncio.timeout(SECONDS):
            while not is_so():
                self._news.clear()
                await self._news.wait()

    async def got(self, count: int) -> None:
        await self.until(lambda: len(self) >= count)

    async def hears_after(self, do: Callable[[], object]) -> None:
        """Do something again and again until it is heard: for those of whom nobody tells that they listen."""
        before = len(self)
        async with asyncio.timeout(SECONDS):
            while len(self) == before:
                do()
                self._news.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), 0.01)


async def until(is_so: Callable[[], object]) -> None:
    """Wait for what no callback tells."""
    async with asyncio.timeout(SECONDS):
        while not is_so():
            await asyncio.sleep(0)


async def listening(publisher, heard: Heard) -> None:
    """Wait until what is published is heard, and forget the tries."""
    await heard.hears_after(lambda: publisher.publish([b"does anybody listen?"]))
    publisher.publish([b"good"])
    await heard.until(lambda: [b"good"] in heard)
    heard.clear()


def numbered(count: int) -> list[list[bytes]]:
    return [[b"", b"", b"%d" % number] for number in range(count)]


# --- push and pull ----------------------------------------------------------------------------------------------------


def test_what_is_pushed_arrives_with_its_source_before_it(world: World):
    # protocol.md 1.8: one frame more than was sent. The source of a Hopline node can be told from others.
    @world.run
    async def scenario():
        heard, shapes = Heard(), [[b"", b"", b"body", b"meta"], [b"one"], [b""], [b"\0", b"", bytes(range(256)), b""]]
        pull = world.channels().pull(world.address(), heard)
        push, other = world.channels().push(pull.address), world.channels().push(pull.address)
        for frames in shapes:
            assert push.send(frames)
        await heard.got(len(shapes))
        assert [frames[1:] for frames in heard] == shapes
        (source,) = {frames[0] for frames in heard}
        assert source.startswith(GREETING)
        assert len(source) > len(GREETING)
        assert push.is_connected
        assert push.address == pull.address
        assert other.send([b"from another"])
        await heard.got(len(shapes) + 1)
        assert heard[-1][0] != source


def test_a_reply_goes_to_whom_the_message_came_from_and_to_nobody_else(world: World):
    @world.run
    async def scenario():
        replies, others, heard = Heard(), Heard(), Heard()
        pull = world.channels().pull(world.address(), heard)
        push, other = world.channels().push(pull.address, replies), world.channels().push(pull.address, others)
        push.send([b"ask"])
        await heard.got(1)
        other.send([b"ask too"])
        await heard.got(2)
        for number in range(3):
            assert pull.reply(heard[0][0], [b"", b"%d" % number])
        assert pull.reply(heard[1][0], [b"for another"])
        await replies.got(3)
        await others.got(1)
        assert replies == [[b"", b"%d" % number] for number in range(3)]
        assert others == [[b"for another"]]


def test_who_is_gone_or_never_was_cannot_be_replied_to(world: World):
    @world.run
    async def scenario():
        heard = Heard()
        pull, channels = world.channels().pull(world.address(), heard), world.channels()
        push = channels.push(pull.address, Heard())
        push.send([b"ask"])
        await heard.got(1)
        assert not pull.reply(b"nobody", [b"answer"])
        assert not pull.reply(b"", [b"answer"])
        assert pull.reply(heard[0][0], [b"answer"])
        push.close()
        await until(lambda: not pull.reply(heard[0][0], [b"answer"]))
        pull.close()
        assert not pull.reply(heard[0][0], [b"answer"])


def test_a_reply_that_nobody_asked_for_is_refused(world: World):
    @world.run
    async def scenario():
        refused, heard = Heard(), Heard()
        pull = world.channels().pull(world.address(), heard)
        push = world.channels(on_refused=refused).push(pull.address)
        for number in range(50):
            push.send([b"%d" % number])
            await heard.got(number + 1)
            pull.reply(heard[-1][0], [b"", b"answer"])
        await refused.got(50)
        assert set(refused) == {(NOT_ASKED_FOR, 6)}


def test_what_is_pushed_before_there_is_a_pull_waits_and_is_bounded(world: World):
    @world.run
    async def scenario():
        heard, address = Heard(), world.address()
        push = world.channels().push(address)
        sent = next(number for number, frames in enumerate(numbered(5000)) if not push.send(frames))
        assert 100 <= sent <= 1000
        assert not push.is_connected
        world.channels().pull(address, heard)
        await heard.got(sent)
        await until(lambda: push.is_connected)
        assert push.send([b"the next"])
        await heard.got(sent + 1)
        assert [frames[1:] for frames in heard] == [*numbered(sent), [b"the next"]]


def test_none_of_10_000_in_bursts_is_lost(world: World):
    @world.run
    async def scenario():
        heard = Heard()
        pull = world.channels().pull(world.address(), heard)
        push = world.channels().push(pull.address)
        await until(lambda: push.is_connected)
        for frames in numbered(10_000):
            while not push.send(frames):
                await heard.got(len(heard) + 1)  # who reads makes room
        await heard.got(10_000)
        assert [frames[1:] for frames in heard] == numbered(10_000)


def test_replies_from_inside_of_the_callback_never_stand_still(world: World):
    # The descriptor tells of news only once, and sending takes them away: both of these sockets send and are read.
    @world.run
    async def scenario():
        def answer(frames):
            assert pull.reply(frames[0], frames[1:])

        replies = Heard()
        pull = world.channels().pull(world.address(), answer)
        push = world.channels().push(pull.address, replies)
        await until(lambda: push.is_connected)
        for burst in range(100):
            for frames in numbered(100):
                assert push.send(frames)
            await replies.got(100 * (burst + 1))
        assert replies == numbered(100) * 100


def test_a_push_finds_a_pull_that_was_restarted(world: World):
    @world.run
    async def scenario():
        heard, server, address = Heard(), world.channels(), world.address()
        server.pull(address, heard)
        replies = Heard()
        push = world.channels().push(address, replies)
        push.send([b"before"])
        await heard.got(1)
        await server.close()
        await until(lambda: not push.is_connected)
        assert push.send([b"in between"])
        pull = world.channels().pull(address, heard)
        await heard.got(2)
        await until(lambda: push.is_connected)
        assert push.send([b"after"])
        await heard.got(3)
        assert [frames[1] for frames in heard] == [b"before", b"in between", b"after"]
        assert pull.reply(heard[-1][0], [b"answer"])
        await replies.got(1)


def test_a_pull_that_breaks_off_leaves_its_place_to_others(world: World):
    @world.run
    async def scenario():
        channels, first, second = world.channels(), Heard(), Heard()
        pull = channels.pull(world.address(), first)
        push = world.channels().push(pull.address)
        push.send([b"1"])
        await first.got(1)
        pull.close()
        pull.close()
        await until(lambda: not push.is_connected)
        again = None
        while again is None:  # libzmq frees the place in its own time
            with contextlib.suppress(TransportError):
                again = channels.pull(pull.address, second)
            await asyncio.sleep(0)
        push.send([b"2"])
        await second.got(1)
        assert [frames[1] for frames in first + second] == [b"1", b"2"]


# --- publisher and subscription ---------------------------------------------------------------------------------------


def test_all_subscribers_hear_all_frames_as_they_are(world: World):
    @world.run
    async def scenario():
        one, two = Heard(), Heard()
        publisher = world.channels().publish(world.address())
        for heard in (one, two):
            world.channels().subscribe(heard).connect(publisher.address)
            await listening(publisher, heard)
        await one.until(lambda: one and one[-1] == [b"good"])
        one.clear()
        shapes = [[b"", b"", b"body"], [b""], [b"topic", b"\0"], [b"dealer-id", b"", b"", bytes(range(256))]]
        for frames in shapes:
            publisher.publish(frames)
        await one.got(len(shapes))
        await two.got(len(shapes))
        assert one == two == shapes


def test_a_subscription_hears_many_publishers(world: World):
    @world.run
    async def scenario():
        heard, connected = Heard(), Heard()
        publishers = [world.channels().publish(world.address()) for _ in range(5)]
        subscription = world.channels().subscribe(heard, connected)
        assert subscription.addresses == frozenset()
        for publisher in publishers:
            subscription.connect(publisher.address)
            subscription.connect(publisher.address)
        assert subscription.addresses == {publisher.address for publisher in publishers}
        await connected.got(5)
        assert set(connected) == subscription.addresses
        for publisher in publishers:
            await listening(publisher, heard)
        for number, publisher in enumerate(publishers):
            publisher.publish([b"%d" % number])
        await heard.got(5)
        assert sorted(heard) == [[b"%d" % number] for number in range(5)], "once each, though connected twice"


def test_a_publisher_is_told_of_each_who_begins_to_listen_and_can_greet_them(world: World):
    @world.run
    async def scenario():
        came = Heard()
        publisher = world.channels().publish(world.address(), lambda: came(b""))
        for count in (1, 2, 3):
            heard = Heard()
            world.channels().subscribe(heard).connect(publisher.address)
            await came.got(count)
            publisher.publish([b"welcome", b"%d" % count])  # once is enough: it listens by now
            await heard.got(1)
            assert heard == [[b"welcome", b"%d" % count]]


def test_who_comes_late_has_missed_it(world: World):
    @world.run
    async def scenario():
        early, late = Heard(), Heard()
        publisher = world.channels().publish(world.address())
        publisher.publish([b"to nobody"])
        world.channels().subscribe(early).connect(publisher.address)
        await listening(publisher, early)
        publisher.publish([b"1"])
        await early.got(1)
        world.channels().subscribe(late).connect(publisher.address)
        await listening(publisher, late)
        publisher.publish([b"2"])
        await late.got(1)
        assert late == [[b"2"]]


def test_nothing_arrives_after_disconnect(world: World):
    @world.run
    async def scenario():
        heard, witness = Heard(), Heard()
        publisher, other = (world.channels().publish(world.address()) for _ in range(2))
        subscription = world.channels().subscribe(heard)
        subscription.connect(publisher.address)
        subscription.connect(other.address)
        world.channels().subscribe(witness).connect(publisher.address)
        await listening(publisher, heard)
        await listening(other, heard)
        await listening(publisher, witness)
        await heard.until(lambda: heard and heard[-1] == [b"good"])
        heard.clear()
        publisher.publish([b"on its way"])
        subscription.disconnect(publisher.address)
        subscription.disconnect(publisher.address)
        subscription.disconnect("tcp://127.0.0.1:1")
        assert subscription.addresses == {other.address}
        publisher.publish([b"too late"])
        await witness.got(2)
        other.publish([b"from another"])
        await heard.got(1)
        assert heard == [[b"from another"]]
        subscription.connect(publisher.address)
        await listening(publisher, heard)


def test_a_subscription_finds_a_publisher_that_was_restarted(world: World):
    @world.run
    async def scenario():
        heard, connected, server, address = Heard(), Heard(), world.channels(), world.address()
        subscription = world.channels().subscribe(heard, connected)
        subscription.connect(address)
        await listening(server.publish(address), heard)
        await server.close()
        publisher = world.channels().publish(address)
        await connected.got(2)
        await listening(publisher, heard)
        assert connected == [address, address]


def test_a_burst_is_heard_whole(world: World):
    @world.run
    async def scenario():
        heard = Heard()
        publisher = world.channels().publish(world.address())
        world.channels().subscribe(heard).connect(publisher.address)
        await listening(publisher, heard)
        for burst in range(20):
            for frames in numbered(500):
                publisher.publish(frames)
            await heard.got(500 * (burst + 1))
        assert heard == numbered(500) * 20


def test_a_subscriber_that_does_not_read_holds_up_nobody(world: World):
    @world.run
    async def scenario():
        heard, body = Heard(), b"." * 20_000
        publisher = world.channels().publish(world.address())
        if world.is_real:
            context = zmq.Context()
            slow = context.socket(zmq.SUB)
            slow.rcvhwm, slow.rcvbuf, slow.linger = 1, 4096, 0
            slow.subscribe(b"")
            slow.connect(publisher.address)
            await until(lambda: publisher.publish([b"?"]) or slow.poll(0))
        world.channels().subscribe(heard).connect(publisher.address)
        await listening(publisher, heard)
        if not world.is_real:
            # It reads in the next turn: so it is slow in this one.
            world.network.capacity = 100
            for frames in numbered(150):
                publisher.publish(frames)
            await heard.got(100)
            assert heard == numbered(150)[:100]
            assert world.network.dropped == 50
            return
        for number in range(4000):
            publisher.publish([b"%d" % number, body])
            if number % 100 == 99:
                await heard.got(number + 1)
        assert [frames[0] for frames in heard] == [b"%d" % number for number in range(4000)]
        missed = 4000
        while slow.poll(200):
            slow.recv_multipart()
            missed -= 1
        assert missed > 0, "it has not been full, and shows nothing"
        slow.close()
        context.term()


# --- addresses --------------------------------------------------------------------------------------------------------


def every_bind(channels: Channels) -> list[Callable[[str], object]]:
    return [lambda bind: channels.pull(bind, Heard()), channels.publish]


@pytest.mark.parametrize("address", ["nonsense", "tcp://a b:5", "tcp:/127.0.0.1:5", "tcp://127.0.0.1:5*", ""])
def test_a_bad_address_is_refused(world: World, address: str):
    @world.run
    async def scenario():
        channels = world.channels()
        subscription = channels.subscribe(Heard())
        for use in [channels.push, subscription.connect, *every_bind(channels)]:
            with pytest.raises(TransportError) as caught:
                use(address)
            assert caught.value.code == "TRANSPORT_BAD_ADDRESS"
            assert address in str(caught.value)
            assert "\n" not in str(caught.value)
        assert subscription.addresses == frozenset()


def test_an_address_that_is_taken_is_refused_and_its_owner_serves_on(world: World):
    @world.run
    async def scenario():
        heard = Heard()
        pull = world.channels().pull(world.address(), heard)
        for bind in every_bind(world.channels()):
            with pytest.raises(TransportError, match="is in use") as caught:
                bind(pull.address)
            assert caught.value.code == "TRANSPORT_ADDRESS_IN_USE"
        with pytest.raises(TransportError, match="is in use"):
            await world.node(pull.address)
        world.channels().push(pull.address).send([b"1"])
        await heard.got(1)


def test_a_port_0_becomes_a_real_one(world: World):
    @world.run
    async def scenario():
        if world.kind == "ipc":
            return
        heard = Heard()
        ends = [bind("tcp://127.0.0.1:0") for bind in every_bind(world.channels()) * 2]
        assert len({end.address for end in ends}) == 4
        assert not any(end.address.endswith(":0") for end in ends)
        pull = world.channels().pull("tcp://127.0.0.1:0", heard)
        world.channels().push(pull.address).send([b"1"])
        await heard.got(1)


def range_of_three(world: World) -> tuple[str, list[str]]:
    """A range of ports that are free, and its addresses."""
    while True:
        first = int(World("tcp", world.network).address().rsplit(":", 1)[1])
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError, OverflowError):
            for port in range(first, first + 3):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return f"tcp://127.0.0.1:{first}-{first + 2}", [f"tcp://127.0.0.1:{port}" for port in range(first, first + 3)]


def test_of_a_range_the_first_free_port_is_taken(world: World):
    @world.run
    async def scenario():
        if world.kind == "ipc":
            return
        (address, places), heard, channels = range_of_three(world), Heard(), world.channels()
        blocker = channels.publish(places[1])
        first = channels.pull(address, Heard())
        last = channels.pull(address, heard)
        assert [first.address, blocker.address, last.address] == places
        with pytest.raises(TransportError, match="is in use") as caught:
            channels.publish(address)
        assert caught.value.code == "TRANSPORT_ADDRESS_IN_USE"
        assert address in str(caught.value)
        world.channels().push(last.address).send([b"1"])
        await heard.got(1)


def test_a_transport_takes_a_range_too(world: World):
    @world.run
    async def scenario():
        if world.kind == "ipc":
            return
        address, places = range_of_three(world)
        world.channels().publish(places[0])
        node, peer = await world.node(address), await world.node()
        assert node.address == places[1]
        (await peer.link(node)).send(message(1))
        await node.got(1)


@pytest.mark.parametrize("ports", ["5-4", "0-5", "5-65536", "5-", "-5", "a-b", "5-6-7"])
def test_what_is_no_range(tcp: World, ports: str):
    @tcp.run
    async def scenario():
        for bind in every_bind(tcp.channels()):
            with pytest.raises(TransportError) as caught:
                bind(f"tcp://127.0.0.1:{ports}")
            assert caught.value.code == "TRANSPORT_BAD_ADDRESS"


def test_a_range_is_nothing_to_connect_to(tcp: World):
    @tcp.run
    async def scenario():
        for connect in (tcp.channels().push, tcp.channels().subscribe(Heard()).connect):
            with pytest.raises(TransportError) as caught:
                connect("tcp://127.0.0.1:5101-5130")
            assert caught.value.code == "TRANSPORT_BAD_ADDRESS"


# --- limits, mistakes, the end ----------------------------------------------------------------------------------------

TIGHT = Limits(message_frames=10, message_bytes=1000)


def test_what_breaks_a_limit_is_refused_and_the_next_one_is_taken(world: World):
    @world.run
    async def scenario():
        bad = [[b"x"] * 11, [b"x"] * 500, [b"", b"x" * 1001]]
        expected = [(TOO_MANY_FRAMES, 11), (TOO_MANY_FRAMES, 500), (FRAME_TOO_BIG, 1001)]

        heard, refused = Heard(), Heard()
        pull = world.channels(limits=TIGHT, on_refused=refused).pull(world.address(), heard)
        replies, refused_replies = Heard(), Heard()
        push = world.channels(limits=TIGHT, on_refused=refused_replies).push(pull.address, replies)
        for frames in [*bad, [b"good"]]:
            push.send(frames)
        await heard.got(1)
        source = heard[0][0]
        assert heard == [[source, b"good"]]
        assert refused == [(reason, size + len(source)) for reason, size in expected]

        for frames in [*bad, [b"good"]]:
            assert pull.reply(source, frames)
        await replies.got(1)
        assert replies == [[b"good"]]
        assert refused_replies == expected

        news, refused_news = Heard(), Heard()
        publisher = world.channels().publish(world.address())
        world.channels(limits=TIGHT, on_refused=refused_news).subscribe(news).connect(publisher.address)
        await listening(publisher, news)
        for frames in [*bad, [b"x"] * 10, [b"x" * 1000]]:
            publisher.publish(frames)
        await news.got(2)
        assert news == [[b"x"] * 10, [b"x" * 1000]]
        assert refused_news == expected


def test_refusals_need_not_be_heard(world: World):
    @world.run
    async def scenario():
        heard = Heard()
        pull = world.channels(limits=TIGHT).pull(world.address(), heard)
        push = world.channels().push(pull.address)
        push.send([b"x"] * 500)
        push.send([b"good"])
        await heard.got(1)
        assert heard[0][1:] == [b"good"]


def test_what_looks_like_a_bundle_is_a_message(world: World):
    @world.run
    async def scenario():
        heard = Heard()
        pull = world.channels().pull(world.address(), heard)
        world.channels().push(pull.address).send([MARK + b"but none"])
        await heard.got(1)
        assert heard[0][1:] == [MARK + b"but none"]


def test_a_callback_that_raises_stops_nothing(world: World):
    @world.run
    async def scenario():
        def failing(heard):
            def hear(frames):
                heard(frames)
                raise ValueError("a mistake")

            return hear

        heard, replies, news = Heard(), Heard(), Heard()
        pull = world.channels().pull(world.address(), failing(heard))
        push = world.channels().push(pull.address, failing(replies))
        publisher = world.channels().publish(world.address())
        world.channels().subscribe(failing(news)).connect(publisher.address)
        await listening(publisher, news)
        world.errors.clear()
        for number in range(3):
            push.send([b"%d" % number])
            publisher.publish([b"%d" % number])
        await heard.got(3)
        await news.got(3)
        for _ in range(3):
            pull.reply(heard[0][0], [b"answer"])
        await replies.got(3)
        await until(lambda: len(world.errors) == 9)
        assert {str(context["exception"]) for context in world.errors} == {"a mistake"}
        world.errors.clear()


def test_a_callback_may_close_what_calls_it(world: World):
    @world.run
    async def scenario():
        heard, news, replies, witness = Heard(), Heard(), Heard(), Heard()

        def close_push(frames):
            replies(frames)
            push.close()

        def close_subscription(frames):
            news(frames)
            subscription.close()

        def close_pull(frames):
            heard(frames)
            pull.close()

        publisher = world.channels().publish(world.address())
        subscription = world.channels().subscribe(close_subscription)
        subscription.connect(publisher.address)
        await news.hears_after(lambda: [publisher.publish([b"?"]) for _ in range(10)])
        assert subscription.addresses == frozenset()
        with pytest.raises(TransportError) as caught:
            subscription.connect(publisher.address)
        assert caught.value.code == "TRANSPORT_CLOSED"

        other = world.channels().pull(world.address(), witness)
        push = world.channels().push(other.address, close_push)
        push.send([b"ask"])
        await witness.got(1)
        for _ in range(10):
            other.reply(witness[0][0], [b"answer"])
        await replies.got(1)
        assert not push.send([b"after"])
        assert not push.is_connected

        pull = world.channels().pull(world.address(), close_pull)
        late = world.channels().push(pull.address)
        for frames in numbered(10):
            late.send(frames)
        await heard.got(1)
        await until(lambda: not late.is_connected)
        assert (len(heard), len(news), len(replies)) == (1, 1, 1)


def test_what_is_closed_cannot_be_used(world: World):
    @world.run
    async def scenario():
        channels = world.channels()
        push, pull = channels.push(world.address()), channels.pull(world.address(), Heard())
        publisher, subscription = channels.publish(world.address()), channels.subscribe(Heard())
        subscription.connect(publisher.address)
        await channels.close()
        await channels.close()
        assert not push.send([b"1"])
        assert not pull.reply(b"whoever", [b"1"])
        publisher.publish([b"1"])
        for channel in (push, pull, publisher, subscription):
            channel.close()
        uses = [channels.push, subscription.connect, *every_bind(channels), lambda _: channels.subscribe(Heard())]
        for use in uses:
            with pytest.raises(TransportError) as caught:
                use(world.address())
            assert caught.value.code == "TRANSPORT_CLOSED"
        never_used = world.channels()
        await never_used.close()


@pytest.mark.parametrize("use", ["send", "reply", "publish"])
def test_a_message_without_frames_is_a_mistake(world: World, use: str):
    @world.run
    async def scenario():
        heard, news = Heard(), Heard()
        pull = world.channels().pull(world.address(), heard)
        push = world.channels().push(pull.address, heard)
        publisher = world.channels().publish(world.address())
        world.channels().subscribe(news).connect(publisher.address)
        await listening(publisher, news)
        push.send([b"1"])
        await heard.got(1)
        with pytest.raises(ValueError, match="unpack"):
            {"send": push.send, "reply": lambda none: pull.reply(heard[0][0], none), "publish": publisher.publish}[use]([])
        push.send([b"2"])
        await heard.got(2)


def test_close_with_linger_delivers_what_was_sent(world: World):
    @world.run
    async def scenario():
        heard, news, replies = Heard(), Heard(), Heard()
        pull, publisher = (server := world.channels()).pull(world.address(), heard), server.publish(world.address())
        channels = world.channels()
        subscription = world.channels().subscribe(news)
        subscription.connect(publisher.address)
        await listening(publisher, news)
        push, asking = channels.push(pull.address), world.channels().push(pull.address, replies)
        asking.send([b"ask"])
        await heard.got(1)
        await until(lambda: push.is_connected)
        for frames in numbered(200):
            assert push.send(frames)
        await channels.close(linger=SECONDS)
        await heard.got(201)
        for frames in numbered(200):
            publisher.publish(frames)
            assert pull.reply(heard[0][0], frames)
        await server.close(linger=SECONDS)
        await news.got(200)
        await replies.got(200)
        assert news == replies == numbered(200)


def test_close_does_not_wait_for_who_is_not_there(world: World):
    @world.run
    async def scenario():
        loop, channels = asyncio.get_running_loop(), world.channels()
        channels.push(world.address()).send([b"to nobody"])
        channels.subscribe(Heard()).connect(world.address())
        started = loop.time()
        await channels.close(linger=SECONDS)
        assert loop.time() - started < SECONDS / 2


# --- ZeroMQ -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def bare_socket(kind: int):
    with zmq.Context() as context, context.socket(kind) as bare:
        bare.linger = 0
        bare.rcvtimeo = bare.sndtimeo = SECONDS * 1000
        yield bare


def test_sockets_of_the_reference_understand_ours(tcp: World):
    # protocol.md 1.8 and 3.2: its DEALER sends to our pull, its SUB hears our publisher.
    @tcp.run
    async def scenario():
        heard = Heard()
        pull, publisher = tcp.channels().pull(tcp.address(), heard), tcp.channels().publish(tcp.address())
        with bare_socket(zmq.DEALER) as dealer, bare_socket(zmq.SUB) as sub:
            dealer.connect(pull.address)
            dealer.send_multipart([b"", b"", b"body", b"meta"])
            await heard.got(1)
            assert heard[0][1:] == [b"", b"", b"body", b"meta"]
            assert not heard[0][0].startswith(GREETING)
            assert pull.reply(heard[0][0], [b"", b"", b"answer"])
            assert dealer.recv_multipart() == [b"", b"", b"answer"]
            sub.subscribe(b"")
            sub.connect(publisher.address)
            await until(lambda: publisher.publish([b"?"]) or sub.poll(0))
            publisher.publish([b"id", b"", b"body"])
            while (frames := sub.recv_multipart()) == [b"?"]:
                pass
            assert frames == [b"id", b"", b"body"]


def test_ours_understand_sockets_of_the_reference(tcp: World):
    @tcp.run
    async def scenario():
        heard = Heard()
        with bare_socket(zmq.ROUTER) as router, bare_socket(zmq.PUB) as pub:
            ports = [bare.bind_to_random_port("tcp://127.0.0.1") for bare in (router, pub)]
            push = tcp.channels().push(f"tcp://127.0.0.1:{ports[0]}", heard)
            push.send([b"", b"", b"body", b"meta"])
            source, *frames = router.recv_multipart()
            assert frames == [b"", b"", b"body", b"meta"]
            router.send_multipart([source, b"", b"answer"])
            await heard.got(1)
            assert heard == [[b"", b"answer"]]
            heard.clear()
            tcp.channels().subscribe(heard).connect(f"tcp://127.0.0.1:{ports[1]}")
            await heard.hears_after(lambda: pub.send_multipart([b"", b"", b"news"]))
            assert heard[0] == [b"", b"", b"news"]


def test_a_send_does_not_take_away_the_news_of_a_message(tcp: World):
    # The descriptor tells of a message only once, and a send takes that away: nobody would ever read the message.
    @tcp.run
    async def scenario():
        heard, replies = Heard(), Heard()
        pull = tcp.channels().pull(tcp.address(), heard)
        with bare_socket(zmq.ROUTER) as router, bare_socket(zmq.DEALER) as dealer:
            push = tcp.channels().push(f"tcp://127.0.0.1:{router.bind_to_random_port('tcp://127.0.0.1')}", replies)
            dealer.connect(pull.address)
            dealer.send(b"hello")
            await heard.got(1)
            push.send([b"hello"])
            source, _ = router.recv_multipart()
            for number in range(20):
                router.send_multipart([source, b"%d" % number])
                dealer.send(b"%d" % number)
                router.poll(5)  # the event loop must not look before both are there, and nobody else can
                push.send([b"more"])
                pull.reply(heard[0][0], [b"more"])
                await replies.got(number + 1)
                await heard.got(number + 2)
                assert router.recv_multipart() == [source, b"more"]
                assert dealer.recv() == b"more"


def test_a_peer_that_does_not_read_replies_is_full(tcp: World):
    @tcp.run
    async def scenario():
        heard = Heard()
        pull = tcp.channels().pull(tcp.address(), heard)
        with bare_socket(zmq.DEALER) as dealer:
            dealer.rcvhwm, dealer.rcvbuf = 1, 4096
            dealer.connect(pull.address)
            dealer.send(b"ask")
            await heard.got(1)
            count = next(number for number in range(100_000) if not pull.reply(heard[0][0], [b"." * 20_000]))
            assert count >= 100
            tcp.channels().push(pull.address).send([b"others are heard"])
            await heard.got(2)


async def hear_a_stranger(address: str, greeting: bytes) -> None:
    """Say something to a socket, and wait until it hangs up."""
    host, port = address.removeprefix("tcp://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    with contextlib.suppress(OSError):
        writer.write(greeting)
        writer.write_eof()
        async with asyncio.timeout(SECONDS):
            await reader.read()
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_garbage_stops_nobody(tcp: World, garbage: bytes):
    @tcp.run
    async def scenario():
        heard, news, refused = Heard(), Heard(), Heard()
        server = tcp.channels(on_refused=refused)
        pull, publisher = server.pull(tcp.address(), heard), server.publish(tcp.address())
        push = tcp.channels().push(pull.address)
        tcp.channels().subscribe(news).connect(publisher.address)
        await listening(publisher, news)
        for _ in range(5):
            await hear_a_stranger(pull.address, garbage)
            await hear_a_stranger(publisher.address, garbage)
        publisher.publish([b"still here"])
        await news.got(1)
        push.send([b"still here"])
        await heard.until(lambda: heard and heard[-1][1:] == [b"still here"])
        assert set(refused) <= {(BAD_HANDSHAKE, 0)}
        assert news == [[b"still here"]]


@pytest.mark.slow
def test_who_meets_nonsense_tries_again_and_others_are_served(tcp: World):
    # libzmq gives up for good on a server that breaks the protocol, without a word.
    @tcp.run
    async def scenario():
        async def talk(reader, writer):
            connections.append(writer)
            writer.write(ZMTP_GREETING + b"\x04\x05hello")
            with contextlib.suppress(OSError):
                await reader.read()
            writer.close()

        connections, heard, news = [], Heard(), Heard()
        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        address = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        publisher, pull = tcp.channels().publish(tcp.address()), tcp.channels().pull(tcp.address(), heard)
        channels = tcp.channels()
        subscription = channels.subscribe(news)
        subscription.connect(address)
        subscription.connect(publisher.address)
        patient, push = channels.push(address), channels.push(pull.address)
        await listening(publisher, news)
        push.send([b"1"])
        await heard.got(1)
        await until(lambda: len(connections) > 1)
        assert not patient.is_connected
        server.close()
        await server.wait_closed()
        await until(lambda: len(asyncio.all_tasks()) == 1)
        tcp.channels().pull(address, heard)
        await until(lambda: patient.is_connected)
        assert patient.send([b"2"])
        await heard.got(2)


@pytest.mark.slow
def test_a_socket_of_another_kind_is_no_connection(tcp: World):
    # A push at a publisher, a subscription at a pull: libzmq refuses them in the handshake, and would not try again.
    @tcp.run
    async def scenario():
        heard, news, connected, channels = Heard(), Heard(), Heard(), tcp.channels()
        servers = tcp.channels(), tcp.channels()
        pull, publisher = servers[0].pull(tcp.address(), heard), servers[1].publish(tcp.address())
        push, subscription = channels.push(publisher.address), channels.subscribe(news, connected)
        subscription.connect(pull.address)
        channels.push(pull.address).send([b"1"])
        await heard.got(1)
        assert not push.is_connected
        assert connected == []
        for server in servers:
            await server.close()
        tcp.channels().pull(publisher.address, heard)
        await until(lambda: push.is_connected)
        await listening(tcp.channels().publish(pull.address), news)
        assert connected == [pull.address]


@pytest.mark.slow
def test_a_frame_beyond_all_measure_costs_a_subscription_the_connection_but_not_for_good(tcp: World):
    @tcp.run
    async def scenario():
        news, connected = Heard(), Heard()
        publisher = tcp.channels().publish(tcp.address())
        subscription = tcp.channels(limits=Limits(message_bytes=1000)).subscribe(news, connected)
        subscription.connect(publisher.address)
        await listening(publisher, news)
        publisher.publish([b"x" * 100_000])
        await connected.got(2)
        await listening(publisher, news)


def test_a_frame_that_is_no_bytes_is_a_mistake_and_spoils_no_other_message(tcp: World):
    @tcp.run
    async def scenario():
        heard = Heard()
        pull = tcp.channels().pull(tcp.address(), heard)
        push = tcp.channels().push(pull.address)
        with pytest.raises(TypeError):
            push.send([b"head", "text", b"last"])
        push.send([b"whole"])
        await heard.until(lambda: heard and heard[-1][1:] == [b"whole"])
        assert len(heard) == 2


def test_sockets_run_out_with_a_sentence(tcp: World):
    @tcp.run
    async def scenario():
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
            heard, channels = Heard(), tcp.channels()
            pull = channels.pull(tcp.address(), heard)
            crowd = tcp.channels()
            subscription = crowd.subscribe(Heard(), Heard())
            for connect in (subscription.connect, crowd.push):
                with pytest.raises(TransportError, match="no more sockets") as caught:
                    list(map(connect, (f"tcp://127.0.0.1:{port}" for port in range(1000, 2000))))
                assert caught.value.code == "TRANSPORT_EXHAUSTED"
            await crowd.close()
            tcp.channels().push(pull.address).send([b"1"])
            await heard.got(1)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_libzmq_cannot_use_leaves_nothing_behind(tcp: World):
    @tcp.run
    async def scenario():
        channels = tcp.channels()
        subscription = channels.subscribe(Heard(), Heard())
        for use in (channels.push, subscription.connect):
            with pytest.raises(TransportError, match="Cannot connect to"):
                use("tcp://-:5")
        for bind in every_bind(channels):
            with pytest.raises(TransportError, match="Cannot bind"):
                bind("tcp://nowhere.invalid:0")
        assert subscription.addresses == frozenset()


# --- keys -------------------------------------------------------------------------------------------------------------

OURS, THEIRS, OTHERS = (zmq.curve_keypair() for _ in range(3))


def test_a_known_key_comes_in_and_no_other(tcp: World):
    @tcp.run
    async def scenario():
        heard, news, refused, connected = Heard(), Heard(), Heard(), Heard()
        server = tcp.channels(curve=Curve(*OURS, allowed_keys=frozenset({THEIRS[0]})), on_refused=refused)
        pull, publisher = server.pull(tcp.address(), heard), server.publish(tcp.address())
        keys = {end.address: OURS[0] for end in (pull, publisher)}
        strangers = [
            tcp.channels(curve=Curve(*OTHERS), server_keys=keys),
            tcp.channels(curve=Curve(*THEIRS), server_keys=dict.fromkeys(keys, OTHERS[0])),
            tcp.channels(),
        ]
        pushes = [stranger.push(pull.address) for stranger in strangers]
        for stranger, push in zip(strangers, pushes, strict=True):
            push.send([b"let me in"])
            stranger.subscribe(connected, connected).connect(publisher.address)
        await refused.until(lambda: set(refused) == {(UNKNOWN_KEY, 0), (BAD_HANDSHAKE, 0)})
        friend, replies = tcp.channels(curve=Curve(*THEIRS), server_keys=keys), Heard()
        friend.subscribe(news).connect(publisher.address)
        await listening(publisher, news)
        friend.push(pull.address, replies).send([b"it is me"])
        await heard.got(1)
        assert pull.reply(heard[0][0], [b"come in"])
        await replies.got(1)
        publisher.publish([b"for friends"])
        await news.got(1)
        assert [frames[1:] for frames in heard] == [[b"it is me"]]
        assert connected == []
        assert not any(push.is_connected for push in pushes)


def test_a_server_without_a_known_key_is_not_connected_to(tcp: World):
    @tcp.run
    async def scenario():
        keys: dict[str, bytes] = {}
        channels, heard = tcp.channels(curve=Curve(*THEIRS), server_keys=keys), Heard()
        pull = tcp.channels(curve=Curve(*OURS, allowed_keys=frozenset({THEIRS[0]}))).pull(tcp.address(), heard)
        subscription = channels.subscribe(Heard())
        for connect in (channels.push, subscription.connect):
            with pytest.raises(TransportError, match="No server key") as caught:
                connect(pull.address)
            assert caught.value.code == "TRANSPORT_BAD_KEY"
        keys[pull.address] = OURS[0]
        channels.push(pull.address).send([b"1"])
        await heard.got(1)


# --- memory -----------------------------------------------------------------------------------------------------------


async def turns(count: int = 20) -> None:
    """Let the event loop do all that it has to do."""
    for _ in range(count):
        await asyncio.sleep(0)


async def pair_of_channels(memory: World, names: tuple[str, str] = ("memory://server", "memory://client")):
    """A server and a client that are connected both ways, and what each hears."""
    heard, news, replies = Heard(), Heard(), Heard()
    server, client = (memory.channels(name) for name in names)
    pull, publisher = server.pull("memory://pull", heard), server.publish("memory://publisher")
    push = client.push(pull.address, replies)
    client.subscribe(news).connect(publisher.address)
    await turns()
    assert push.is_connected
    push.send([b"hello"])
    await heard.got(1)
    return pull, publisher, push, heard, news, replies


def test_messages_are_dropped_between_addresses(memory: World):
    @memory.run
    async def scenario():
        pull, publisher, push, heard, news, replies = await pair_of_channels(memory)
        seen = []
        memory.network.drop(when=lambda source, target, frames: seen.append((source, target)) or b"bad" in frames)
        for frames in ([b"bad"], [b"good"]):
            assert push.send(frames)
            assert pull.reply(heard[0][0], frames)
            publisher.publish(frames)
        await turns()
        assert [frames[1:] for frames in heard[1:]] == news == replies == [[b"good"]]
        assert memory.network.dropped == 3
        assert set(seen) == {
            ("memory://client", "memory://pull"),
            ("memory://pull", "memory://client"),
            ("memory://publisher", "memory://client"),
        }


def test_messages_take_their_time_and_keep_their_order(memory: World):
    clock = ManualClock()
    memory.network = MemoryNetwork(clock=clock)

    @memory.run
    async def scenario():
        pull, publisher, push, heard, news, replies = await pair_of_channels(memory)
        memory.network.delay(1.0, jitter=1.0)
        for frames in numbered(50):
            push.send(frames)
            pull.reply(heard[0][0], frames)
            publisher.publish(frames)
        clock.advance(0.9)
        await turns()
        assert (len(heard), news, replies) == (1, [], [])
        clock.advance(1.1)
        await turns()
        assert [frames[1:] for frames in heard[1:]] == news == replies == numbered(50)


def test_a_cut_that_is_noticed_ends_connections_until_it_heals(memory: World):
    @memory.run
    async def scenario():
        pull, publisher, push, heard, news, replies = await pair_of_channels(memory)
        source = heard[0][0]
        memory.network.partition("memory://client", pull.address)
        memory.network.partition("memory://client", publisher.address)
        assert not pull.reply(source, [b"lost"])
        await turns()
        assert not push.is_connected
        assert push.send([b"waits"])
        assert not pull.reply(source, [b"lost"])
        publisher.publish([b"lost"])
        await turns()
        assert len(heard) == 1
        memory.network.heal()
        await turns()
        assert heard[1:] == [[source, b"waits"]]
        assert pull.reply(source, [b"answer"])
        publisher.publish([b"news"])
        await turns()
        assert (news, replies) == ([[b"news"]], [[b"answer"]])


def test_a_cut_that_nobody_notices_swallows_everything(memory: World):
    @memory.run
    async def scenario():
        pull, publisher, push, heard, news, replies = await pair_of_channels(memory)
        memory.network.partition("memory://client", pull.address, is_noticed=False)
        memory.network.partition("memory://client", publisher.address, is_noticed=False)
        assert push.send([b"1"])
        assert pull.reply(heard[0][0], [b"1"])
        publisher.publish([b"1"])
        await turns()
        assert push.is_connected
        assert (len(heard), news, replies) == (1, [], [])
        assert memory.network.dropped == 3


@pytest.mark.parametrize("victim", ["memory://server", "memory://pull", "memory://publisher"])
def test_who_is_killed_is_gone_with_all_its_channels(memory: World, victim: str):
    @memory.run
    async def scenario():
        pull, publisher, push, heard, news, replies = await pair_of_channels(memory)
        memory.network.kill(victim)
        assert not pull.reply(heard[0][0], [b"from the dead"])
        publisher.publish([b"from the dead"])
        await turns()
        assert not push.is_connected
        assert push.send([b"waits"])
        assert (len(heard), news, replies) == (1, [], [])
        memory.network.restart(victim)
        await turns()
        assert [frames[1] for frames in heard] == [b"hello", b"waits"]
        publisher.publish([b"back"])
        pull.reply(heard[0][0], [b"back"])
        await turns()
        assert news == replies == [[b"back"]]


def test_a_node_that_is_killed_takes_its_channels_along(memory: World):
    @memory.run
    async def scenario():
        node = await memory.node("memory://client")
        pull, publisher, push, heard, news, replies = await pair_of_channels(memory)
        push.send([b"was sent"])
        memory.network.kill(node.address)
        assert not push.send([b"from the dead"])
        publisher.publish([b"missed"])
        await turns()
        assert not pull.reply(heard[0][0], [b"missed"])
        assert [frames[1] for frames in heard] == [b"hello", b"was sent"]
        memory.network.restart(node.address)
        await turns()
        assert push.send([b"back"])
        publisher.publish([b"back"])
        await turns()
        assert heard[-1][1:] == [b"back"]
        assert (news, replies) == ([[b"back"]], [])
        peer = await memory.node()
        (await peer.link(node)).send(message(1))
        await node.got(1)


def test_a_link_and_a_push_meet_each_others_ends(memory: World):
    # As with ZeroMQ: both ends are a ROUTER, and a publisher is none.
    @memory.run
    async def scenario():
        heard, node, channels = Heard(), await memory.node(), memory.channels()
        pull, publisher = channels.pull(memory.address(), heard), channels.publish(memory.address())
        (await node.link(pull.address)).send([b"whoever", b"", b"by link"])
        await heard.got(1)
        assert heard[0][1:] == [b"", b"by link"]
        assert not pull.reply(heard[0][0], [b"a link takes no replies"])
        channels.push(node.address).send([b"", b"by push"])
        await node.got(1)
        assert node.messages[0][1:] == [b"", b"by push"]
        link, push = node.connect(publisher.address), channels.push(publisher.address)
        await turns()
        assert not link.is_connected
        assert not push.is_connected


def test_a_push_has_so_many_replies_under_way_and_no_more(memory: World):
    @memory.run
    async def scenario():
        pull, _, _, heard, _, replies = await pair_of_channels(memory)
        memory.network.capacity = 10
        assert [pull.reply(heard[0][0], frames) for frames in numbered(12)] == [True] * 10 + [False] * 2
        await replies.got(10)
        assert pull.reply(heard[0][0], [b"room again"])
        await replies.got(11)


def test_close_waits_for_what_is_on_the_road(memory: World):
    clock = ManualClock()
    memory.network = MemoryNetwork(clock=clock, capacity=10)

    @memory.run
    async def scenario():
        heard, news = Heard(), Heard()
        server, client = memory.channels(), memory.channels()
        pull, publisher = server.pull("memory://pull", heard), client.publish("memory://publisher")
        push = client.push(pull.address)
        server.subscribe(news).connect(publisher.address)
        await turns()
        memory.network.delay(1.0)
        for frames in numbered(20):
            push.send(frames)
        publisher.publish([b"goodbye"])
        closing = asyncio.create_task(client.close(linger=SECONDS))
        await turns()
        assert not closing.done()
        clock.advance(1.0)
        await closing
        clock.advance(1.0)
        await heard.got(20)
        await news.got(1)


def test_the_same_seed_makes_the_same_faults(tmp_path):
    def play(seed: int) -> list[list[bytes]]:
        clock, memory, news = ManualClock(), World("memory", tmp_path), Heard()
        memory.network = MemoryNetwork(seed=seed, clock=clock)

        @memory.run
        async def scenario():
            publishers = [memory.channels().publish(memory.address()) for _ in range(3)]
            subscription = memory.channels().subscribe(news)
            for publisher in publishers:
                subscription.connect(publisher.address)
            await turns()
            memory.network.drop(0.3)
            memory.network.delay(0.001, jitter=0.01)
            for number in range(100):
                for index, publisher in enumerate(publishers):
                    publisher.publish([b"%d" % index, b"%d" % number])
                clock.advance(0.001)
                await turns(2)
            clock.advance(1)
            await turns()
            assert len(news) + memory.network.dropped == 300

        return list(news)

    first, again, other = play(7), play(7), play(8)
    assert first == again
    assert first != other
