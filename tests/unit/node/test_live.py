"""Watching a running node."""

import asyncio

import pytest

from hopline.errors import RemoteError
from hopline.node.actor import Actor
from hopline.node.live import LEASE_SECONDS, MOST_HELD, MOST_WATCHERS, Live, Seen, Watch
from hopline.node.node import Node
from hopline.node.taps import Tap
from hopline.payload.registry import Payload, message
from hopline.testing import ManualClock, MemoryNetwork, MemoryTransport
from hopline.wire import decode

EVERYWHERE = ["hub_out", "router_in", "actor_in", "actor_out", "hub_in", "scaleout_in", "scaleout_out"]


@message("LIVE.PING")
class Ping(Payload):
    secret: str = "hush"


@message("LIVE.PONG")
class Pong(Payload):
    pass


class Player(Actor):
    async def play(self, ping: Ping) -> Pong:
        return Pong()


def run(test):
    async def main():
        clock = ManualClock()
        node = Node(actors=[Player()], clock=clock)
        async with node:
            node.add_actor(Live(node))
            await test(node, clock)

    asyncio.run(asyncio.wait_for(main(), 20))


async def look(node, watcher="me", points=EVERYWHERE, wait=0.0, **more):
    return await node.ask(Watch(watcher, points, wait=wait, **more), Seen)


def identities(seen):
    return [(one.point, decode(one.frames).message.identity.decode()) for one in seen.messages]


def test_who_watches_sees_what_passes_after_the_first_question():
    async def test(node, clock):
        await node.ask(Ping(), Pong)
        assert (await look(node)).messages == []
        await node.ask(Ping(), Pong)
        seen = await look(node)
        assert identities(seen) == [
            ("hub_out", "LIVE.PING"),
            ("router_in", "LIVE.PING"),
            ("actor_in", "LIVE.PING"),
            ("actor_out", "LIVE.PONG"),
            ("router_in", "LIVE.PONG"),
            ("hub_in", "LIVE.PONG"),
        ]
        assert seen.node == node.identity
        assert (await look(node)).messages == []

    run(test)


def test_bodies_are_left_out_unless_asked_for():
    async def test(node, clock):
        await look(node, "plain", ["hub_out"])
        await look(node, "whole", ["hub_out"], bodies=True)
        await node.ask(Ping("hush"), Pong)
        (plain,) = (await look(node, "plain")).messages
        (whole,) = (await look(node, "whole")).messages
        assert decode(plain.frames).message.body == b""
        assert b"hush" in decode(whole.frames).message.body
        assert plain.body_size == len(decode(whole.frames).message.body)
        assert whole.body_size is None
        assert not plain.encoded

    run(test)


def test_a_choice_by_identity_and_by_flow():
    async def test(node, clock):
        await look(node, "pongs", identities=("*.PONG",))
        await look(node, "all", ["hub_out"])
        await node.ask(Ping(), Pong)
        assert {identity for _, identity in identities(await look(node, "pongs"))} == {"LIVE.PONG"}
        (first,) = (await look(node, "all")).messages
        flow = decode(first.frames).message.correlation_id
        await look(node, "flow", flow=flow)
        await node.ask(Ping(), Pong)
        assert (await look(node, "flow", flow=flow)).messages == []

    run(test)


def test_a_question_waits_for_news():
    async def test(node, clock):
        await look(node, points=["hub_out"])
        waiting = asyncio.create_task(look(node, wait=1.0))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not waiting.done()
        await node.ask(Ping(), Pong)
        assert len((await waiting).messages) == 1
        waiting = asyncio.create_task(look(node, wait=1.0))
        for _ in range(3):
            await asyncio.sleep(0)
        clock.advance(1)
        assert (await waiting).messages == []

    run(test)


def test_what_does_not_fit_is_counted():
    async def test(node, clock):
        await look(node, points=["hub_out"])
        for _ in range(MOST_HELD + 5):
            await node.tell(Ping())
        seen = await look(node, most=10)
        assert (len(seen.messages), seen.lost) == (10, 5)
        assert (await look(node, most=10)).lost == 0

    run(test)


def test_who_does_not_ask_is_forgotten_and_there_may_not_be_too_many():
    async def test(node, clock):
        for number in range(MOST_WATCHERS):
            await look(node, str(number))
        with pytest.raises(RemoteError, match="watch already"):
            await look(node, "one more")
        clock.advance(LEASE_SECONDS + 1)
        await look(node, "one more")

    run(test)


def test_bytes_between_nodes_are_shown_as_they_were_and_without_their_body():
    async def main():
        network = MemoryNetwork()
        server = Node(actors=[Player()], transport=MemoryTransport(network, "memory://server"), identity=b"server")
        client = Node(transport=MemoryTransport(network, "memory://client"), peers=["memory://server"])
        async with server, client:
            server.add_actor(Live(server))
            await look(server, "whole", ["scaleout_in"], identities=("LIVE.*",), bodies=True)
            await look(server, "bare", ["scaleout_in"], identities=("LIVE.*",))
            await client.ask(Ping("hush"), Pong)
            bare = (await look(server, "bare")).messages[-1]
            whole = (await look(server, "whole")).messages[-1]
            assert (bare.encoded, whole.encoded) == (True, True)
            assert decode(whole.frames).message.body.endswith(b"hush")
            assert decode(bare.frames).message.body == b""
            assert decode(bare.frames).message.routing == decode(whole.frames).message.routing

    asyncio.run(asyncio.wait_for(main(), 20))


def test_between_nodes_the_time_is_when_a_message_left_or_came():
    class Slow(Tap):
        """Whatever happens between the moment and the sight of a message, it takes a millisecond."""

        def on_message(self, point, message, frames, payload):
            clock.advance(0.001)

    clock = ManualClock()

    async def main():
        network = MemoryNetwork()
        server = Node(actors=[Player()], transport=MemoryTransport(network, "memory://server"), clock=clock, taps=[Slow()])
        client = Node(transport=MemoryTransport(network, "memory://client"), peers=["memory://server"])
        async with server, client:
            server.add_actor(Live(server))
            await look(server, points=["scaleout_in", "actor_in", "actor_out", "scaleout_out"], identities=("LIVE.*",))
            await client.ask(Ping(), Pong)
            seen = (await look(server)).messages
        times = {one.point: one.seen_ns // 10**6 for one in seen}
        came, given, made, left = times["scaleout_in"], times["actor_in"], times["actor_out"], times["scaleout_out"]
        # It came; it was seen to come, in the router and at the actor; and so on. A millisecond each.
        assert (given - came, made - given, left - made) == (3, 1, 1)

    asyncio.run(asyncio.wait_for(main(), 20))
