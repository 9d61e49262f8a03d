"""What holds for channels in memory alone: faults."""

import asyncio

import pytest

from hopline.testing import ManualClock, MemoryNetwork
from tests.transport.channels.heard import Heard, numbered
from tests.transport.harness import SECONDS, World, message

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
