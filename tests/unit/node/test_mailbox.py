"""Mailboxes of actors: how many run at once, and what happens when one is full."""

import asyncio

import pytest

from hopline.errors import DeliveryError
from hopline.node.actor import Actor
from hopline.node.node import Node
from tests.unit.node.world import Ehhlo, Hello, Other, Step, balanced, run


@pytest.mark.parametrize("concurrency", [1, 3])
def test_so_many_handlers_run_at_once_and_no_more(concurrency):
    running = peak = 0

    class Counting(Actor):
        async def greet(self, hello: Hello) -> Ehhlo:
            nonlocal running, peak
            running += 1
            peak = max(peak, running)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            running -= 1
            return Ehhlo("")

    Counting.concurrency = concurrency

    async def test():
        async with Node(actors=[Counting()]) as node:
            await asyncio.gather(*[node.ask(Hello("x"), Ehhlo) for _ in range(20)])

    run(test)
    assert peak == concurrency


@pytest.mark.parametrize("policy", ["fail", "dead-letter"])
def test_a_full_mailbox_that_does_not_wait(policy):
    release = None

    class Full(Actor):
        mailbox = 1
        when_full = policy

        async def greet(self, hello: Hello) -> Ehhlo:
            await release.wait()
            return Ehhlo(hello.name)

    async def test():
        nonlocal release
        release = asyncio.Event()
        async with Node(actors=[Full()]) as node:
            asks = [asyncio.create_task(node.ask(Hello(str(i)), Ehhlo, timeout=0.2)) for i in range(3)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if policy == "fail":
                with pytest.raises(DeliveryError) as caught:
                    await asks[2]
                assert caught.value.code == "OVERFLOW"
            release.set()
            assert [answer.text for answer in await asyncio.gather(*asks[:2])] == ["0", "1"]
            assert node.dead_letters.counts["OVERFLOW"] == 1
            await asyncio.gather(asks[2], return_exceptions=True)
        assert balanced(node)

    run(test)


def test_a_slow_actor_slows_its_sender_and_nothing_is_lost():
    handled = 0

    class Slow(Actor):
        mailbox = 10

        async def greet(self, hello: Hello) -> None:
            nonlocal handled
            await asyncio.sleep(0)
            handled += 1

    async def test():
        async with Node(actors=[Slow()]) as node:
            for i in range(500):
                await node.tell(Hello(str(i)))
                assert node.statistics().in_flight <= 12
        assert handled == 500
        assert balanced(node)

    run(test)


def test_back_pressure_travels_through_actors():
    handled = 0

    class Source(Actor):
        mailbox = 10

        async def greet(self, hello: Hello) -> list[Step]:
            return [Step(i) for i in range(10)]

    class Sink(Actor):
        mailbox = 5

        async def step(self, step: Step) -> None:
            nonlocal handled
            await asyncio.sleep(0)
            handled += 1

    async def test():
        async with Node(actors=[Source(), Sink()]) as node:
            for i in range(50):
                await node.tell(Hello(str(i)))
                assert node.statistics().in_flight <= 40
        assert handled == 500
        assert balanced(node)

    run(test)


def test_a_broadcast_waits_for_nobody_and_who_is_full_misses_it():
    release = None
    heard = []

    class Full(Actor):
        mailbox = 1

        async def listen(self, other: Other) -> None:
            await release.wait()
            heard.append(other.text)

    async def test():
        nonlocal release
        release = asyncio.Event()
        async with Node(actors=[Full()]) as node:
            for i in range(4):
                await node.publish(Other(str(i)))
            assert node.dead_letters.counts == {"OVERFLOW": 2}
            release.set()
        assert heard == ["0", "1"]
        assert balanced(node)

    run(test)
