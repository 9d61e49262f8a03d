"""What becomes of an actor after a failure, and of actors that wait for each other."""

import asyncio

import pytest

from hopline.errors import DeliveryError, RemoteError
from hopline.node.actor import Actor
from hopline.node.node import Node
from hopline.payload.registry import Payload, message
from hopline.testing import ManualClock, MemoryNetwork, MemoryTransport


@message("RECOVERY.COUNT")
class Count(Payload):
    fails: bool = False


@message("RECOVERY.COUNTED")
class Counted(Payload):
    number: int


@message("RECOVERY.LEFT")
class Left(Payload):
    copies: int


@message("RECOVERY.RIGHT")
class Right(Payload):
    copies: int


class Counter(Actor):
    def __init__(self) -> None:
        self.count = 0

    async def handle(self, count: Count) -> Counted:
        self.count += 1
        if count.fails:
            raise ValueError("as asked")
        return Counted(self.count)


class Restarting(Counter):
    when_failed = "restart"
    most_restarts = 2
    restart_seconds = 60.0


class Stopping(Counter):
    when_failed = "stop"


def balanced(node):
    books = node.statistics()
    return books.taken == books.ended and not books.in_flight


async def fail(node):
    with pytest.raises(RemoteError, match="as asked"):
        await node.ask(Count(fails=True), Counted)


def test_by_default_an_actor_goes_on_as_it_is():
    async def test():
        async with Node(actors=[Counter()]) as node:
            await fail(node)
            assert (await node.ask(Count(), Counted)).number == 2

    asyncio.run(test())


def test_a_restarted_actor_has_forgotten_everything():
    async def test():
        async with Node(actors=[Restarting()]) as node:
            assert (await node.ask(Count(), Counted)).number == 1
            await fail(node)
            assert (await node.ask(Count(), Counted)).number == 1
        assert balanced(node)

    asyncio.run(test())


def test_too_many_restarts_within_the_time_stop_an_actor():
    async def test():
        clock = ManualClock()
        async with Node(actors=[Restarting()], clock=clock) as node:
            for _ in range(2):
                await fail(node)
            clock.advance(61)
            await fail(node)
            await fail(node)
            assert (await node.ask(Count(), Counted)).number == 1
            await fail(node)
            with pytest.raises(DeliveryError, match="nobody handles"):
                await node.ask(Count(), Counted)
        assert balanced(node)

    asyncio.run(test())


def test_an_actor_that_cannot_be_made_again_is_stopped(caplog):
    class Demanding(Restarting):
        def __init__(self, number: int) -> None:
            super().__init__()

    async def test():
        async with Node(actors=[Demanding(1)]) as node:
            await fail(node)
            with pytest.raises(DeliveryError) as caught:
                await node.ask(Count(), Counted)
            assert caught.value.code == "NO_ROUTE"

    asyncio.run(test())
    assert "could not recover" in caplog.text


def test_what_waits_for_a_stopped_actor_goes_to_another():
    release = None

    class Slow(Stopping):
        mailbox = 1

        async def handle(self, count: Count) -> Counted:
            await release.wait()
            raise ValueError("as asked")

    async def test():
        nonlocal release
        release = asyncio.Event()
        async with Node(actors=[Slow()]) as node:
            first = asyncio.create_task(node.ask(Count(), Counted))
            waiting = [asyncio.create_task(node.ask(Count(), Counted)) for _ in range(3)]
            await asyncio.sleep(0)
            node.add_actor(Counter())
            release.set()
            with pytest.raises(RemoteError):
                await first
            assert [(await task).number for task in waiting] == [1, 2, 3]
        assert balanced(node)

    asyncio.run(test())


def test_a_removed_actor_is_withdrawn_from_other_nodes():
    async def test():
        network = MemoryNetwork()
        server = Node(transport=MemoryTransport(network, "memory://server"), identity=b"server", hold_seconds=0.05)
        client = Node(transport=MemoryTransport(network, "memory://client"), peers=["memory://server"], hold_seconds=0.05)
        async with server, client:
            first, second = server.add_actor(Counter()), server.add_actor(Counter())
            assert (await client.ask(Count(), Counted)).number == 1
            server.remove_actor(first)
            server.remove_actor(first)
            assert (await client.ask(Count(), Counted)).number in (1, 2)
            server.remove_actor(second)
            with pytest.raises(DeliveryError) as caught:
                await client.ask(Count(), Counted)
            assert caught.value.code == "NO_ROUTE"
            assert client.routes()[b"server"].actors == {}
        assert balanced(server)
        assert balanced(client)

    asyncio.run(test())


class Lefty(Actor):
    mailbox = 2

    async def left(self, left: Left) -> list[Right]:
        await asyncio.sleep(0)
        return [Right(left.copies)] * left.copies


class Righty(Actor):
    mailbox = 2

    async def right(self, right: Right) -> list[Left]:
        await asyncio.sleep(0)
        return [Left(0)] * right.copies


def test_a_circle_of_full_mailboxes_moves_on():
    async def test():
        async with Node(actors=[Lefty(), Righty()]) as node:
            async with asyncio.timeout(20):
                for _ in range(10):
                    await node.tell(Left(7))
                await node.stop()
        assert node.dead_letters.counts["OVERFLOW"] > 0
        assert "CLOSED" not in node.dead_letters.counts
        assert balanced(node)

    asyncio.run(test())


def test_an_actor_that_floods_itself_moves_on():
    class Flooder(Actor):
        mailbox = 2

        async def left(self, left: Left) -> list[Left]:
            return [Left(left.copies - 1)] * 3 if left.copies else []

    async def test():
        async with Node(actors=[Flooder()]) as node:
            async with asyncio.timeout(20):
                await node.tell(Left(5))
                await node.stop()
        assert node.dead_letters.counts["OVERFLOW"] > 0
        assert balanced(node)

    asyncio.run(test())
