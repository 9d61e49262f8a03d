"""What every transport promises of its end: `close`, with time and without."""

import asyncio

import pytest

from hopline.transport import Limits
from tests.transport.harness import (
    MORE_THAN_A_NETWORK_HOLDS,
    World,
    bodies,
    fill_for_good,
    message,
    messages,
)

KB = 1024


def test_close_with_time_delivers_all_that_was_accepted(world: World):
    @world.run
    async def scenario():
        node, peer = await world.node(limits=Limits(drain=10)), await world.node()
        link = node.connect(peer)
        for frames in messages(900):
            assert link.send(frames)
        await node.until(lambda: node.connected)
        await node.transport.close(linger=10)
        await peer.got(900)
        assert peer.bodies == bodies(900)
        assert node.lost == []
        assert not link.send(message(0))


def test_close_without_time_hands_back_what_waited(world: World):
    @world.run
    async def scenario():
        node = await world.node()
        link = node.connect(world.address())
        for frames in messages(3):
            link.send(frames)
        await node.transport.close()
        assert node.lost == [(link, messages(3))]


def test_close_does_not_wait_longer_than_it_may_for_who_does_not_read(world: World):
    @world.run
    async def scenario():
        node, peer = await world.node(limits=MORE_THAN_A_NETWORK_HOLDS), await world.node()
        link = await node.link(peer)
        peer.transport.pause()
        fill_for_good(link)
        async with asyncio.timeout(5):
            await node.transport.close(linger=0.05)
        [(_, unsent)] = node.lost
        assert unsent


def test_a_close_that_is_cancelled_leaves_nothing_behind(world: World):
    @world.run
    async def scenario():
        node, peer = await world.node(limits=MORE_THAN_A_NETWORK_HOLDS), await world.node()
        link = await node.link(peer)
        peer.transport.pause()
        fill_for_good(link)
        closing = asyncio.create_task(node.transport.close(linger=60))
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert not link.is_connected
