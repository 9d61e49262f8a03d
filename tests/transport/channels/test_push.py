"""Push and pull, as `hopline.transport.channels` promises them: over TCP, IPC, uvloop and in memory."""

import asyncio
import contextlib

from hopline.errors import TransportError
from hopline.transport.base import NOT_ASKED_FOR
from hopline.transport.bundle import GREETING
from tests.transport.channels.heard import Heard, numbered, until
from tests.transport.harness import World


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
        await until(lambda: push.is_connected)  # libzmq may tell of it after the first message
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
