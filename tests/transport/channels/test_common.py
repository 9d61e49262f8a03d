"""What holds for all channels: addresses, limits, mistakes and the end. Over TCP, IPC, uvloop and in memory."""

import asyncio
import contextlib
import socket

import pytest

from hopline.errors import TransportError
from hopline.transport import Limits
from hopline.transport.base import FRAME_TOO_BIG, TOO_MANY_FRAMES
from hopline.transport.bundle import MARK
from tests.transport.channels.heard import Heard, every_bind, listening, numbered, until
from tests.transport.harness import SECONDS, World, message

# --- addresses --------------------------------------------------------------------------------------------------------


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
