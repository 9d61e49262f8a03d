"""The network in memory: its faults, and that they repeat with their seed."""

import asyncio

import pytest

from hopline.errors import TransportError
from hopline.testing import ManualClock, MemoryNetwork
from hopline.transport import Limits
from tests.transport.harness import LIMITS_OF_TEN, World, bodies, fill, message, messages


async def turns(count: int = 100) -> None:
    """Let the event loop do all that it has to do."""
    for _ in range(count):
        await asyncio.sleep(0)


# --- drop -------------------------------------------------------------------------------------------------------------


def received(path, seed: int, fault) -> tuple[list[bytes], int]:
    """What arrives of a thousand messages from two senders, and how many were dropped."""
    clock = ManualClock()
    world = World("memory", path)
    world.network = MemoryNetwork(seed=seed, clock=clock)
    result = []

    @world.run
    async def scenario():
        one, two, peer = await world.node(), await world.node(), await world.node()
        links = await one.link(peer), await two.link(peer)
        fault(world.network)
        for number in range(500):
            for link in links:
                link.send(message(number))
            clock.advance(0.001)
        clock.advance(1)
        await peer.until(lambda: len(peer.messages) + world.network.dropped == 1000)
        result.extend(frames[0] + b" " + frames[2] for frames in peer.messages)

    return result, world.network.dropped


@pytest.mark.parametrize(
    "fault",
    [
        lambda network: network.drop(0.3),
        lambda network: network.reorder(8),
        lambda network: (network.drop(0.1), network.reorder(4), network.delay(0.001, jitter=0.01)),
    ],
    ids=["drop", "reorder", "all"],
)
def test_the_same_seed_makes_the_same_faults(tmp_path, fault):
    first, again, other = (received(tmp_path, seed, fault) for seed in (7, 7, 8))
    assert first == again
    assert first[0] != other[0]


def test_a_part_of_the_messages_is_dropped_and_counted(tmp_path):
    arrived, dropped = received(tmp_path, 1, lambda network: network.drop(0.3))
    assert 200 < dropped < 400
    assert len(arrived) == 1000 - dropped
    assert received(tmp_path, 1, lambda _: None)[1] == 0


def test_only_victims_are_dropped(memory: World):
    @memory.run
    async def scenario():
        node, peer = await memory.node(), await memory.node()
        link = await node.link(peer)
        seen = []

        def is_victim(sender, receiver, frames):
            seen.append((sender, receiver))
            return frames[2] in {b"1", b"3"}

        memory.network.drop(when=is_victim)
        for frames in messages(5):
            assert link.send(frames)
        await peer.got(3)
        assert peer.bodies == [b"0", b"2", b"4"]
        assert memory.network.dropped == 2
        assert set(seen) == {(node.address, peer.address)}
        memory.network.drop(0)
        link.send(message(1))
        await peer.got(4)


def test_what_is_dropped_leaves_room(memory: World):
    @memory.run
    async def scenario():
        memory.network.capacity = 5
        node, peer = await memory.node(limits=LIMITS_OF_TEN), await memory.node()
        link = await node.link(peer)
        peer.transport.pause()
        memory.network.drop()
        for frames in messages(100):
            assert link.send(frames)
        assert memory.network.dropped == 100
        memory.network.drop(0)
        assert fill(link) == 15


# --- delay and order --------------------------------------------------------------------------------------------------


def test_delay_is_moved_by_hand(memory: World):
    clock = ManualClock()
    memory.network = MemoryNetwork(clock=clock)

    @memory.run
    async def scenario():
        node, peer = await memory.node(), await memory.node()
        link = await node.link(peer)
        memory.network.delay(2.0)
        link.send(message(0))
        clock.advance(1.0)
        link.send(message(1))
        await turns()
        assert peer.messages == []
        clock.advance(1.0)
        await turns()
        assert peer.bodies == bodies(1)
        clock.advance(1.0)
        await peer.got(2)


def test_delay_without_a_clock_takes_its_time(memory: World):
    @memory.run
    async def scenario():
        node, peer = await memory.node(), await memory.node()
        link = await node.link(peer)
        memory.network.delay(0.01)
        loop = asyncio.get_running_loop()
        start = loop.time()
        link.send(message(0))
        await peer.got(1)
        assert loop.time() - start >= 0.01


def test_a_link_keeps_its_order_whatever_the_delays(memory: World):
    clock = ManualClock()
    memory.network = MemoryNetwork(clock=clock, seed=3)

    @memory.run
    async def scenario():
        node, peer = await memory.node(), await memory.node()
        link = await node.link(peer)
        memory.network.delay(1.0, jitter=5.0)
        for frames in messages(50):
            link.send(frames)
        memory.network.delay(0)
        link.send(message(50))
        await turns()
        assert peer.messages == [], "what is sent later overtakes nothing"
        clock.advance(6.0)
        await peer.got(51)
        assert peer.bodies == bodies(51)


def test_messages_can_be_reordered_and_none_gets_lost(memory: World):
    @memory.run
    async def scenario():
        node, peer = await memory.node(), await memory.node()
        link = await node.link(peer)
        memory.network.reorder(8)
        for frames in messages(200):
            link.send(frames)
        await peer.got(200)
        assert peer.bodies != bodies(200)
        assert sorted(peer.bodies) == sorted(bodies(200))
        assert all(abs(peer.bodies.index(body) - place) < 100 for place, body in enumerate(bodies(200)))
        memory.network.reorder(1)
        peer.messages.clear()
        for frames in messages(200):
            link.send(frames)
        await peer.got(200)
        assert peer.bodies == bodies(200)


# --- partitions -------------------------------------------------------------------------------------------------------


def test_a_partition_loses_links_both_ways_and_healing_brings_them_back(memory: World):
    @memory.run
    async def scenario():
        a, b, c = await memory.node(), await memory.node(), await memory.node()
        a_to_b, b_to_a, a_to_c = await a.link(b), await b.link(a), await a.link(c)
        memory.network.partition(a.address, b.address)
        await a.until(lambda: a.lost)
        await b.until(lambda: b.lost)
        assert a.lost == [(a_to_b, [])]
        assert b.lost == [(b_to_a, [])]
        assert a_to_c.is_connected
        a_to_b.send(message(0))
        await turns()
        assert a_to_b.pending == 1
        memory.network.heal(b.address, a.address)
        await b.got(1)
        assert a.connected == [a_to_b, a_to_c, a_to_b]


def test_a_partition_that_nobody_notices_swallows_messages(memory: World):
    @memory.run
    async def scenario():
        node, peer = await memory.node(), await memory.node()
        link = await node.link(peer)
        memory.network.partition(node.address, peer.address, is_noticed=False)
        assert link.send(message(0))
        await turns()
        assert link.is_connected
        assert peer.messages == []
        assert memory.network.dropped == 1
        memory.network.heal()
        link.send(message(1))
        await peer.got(1)
        assert peer.bodies == [b"1"]
        assert node.lost == []


def test_heal_mends_what_it_is_told(memory: World):
    @memory.run
    async def scenario():
        a, b, c = await memory.node(), await memory.node(), await memory.node()
        links = [await a.link(b), await a.link(c), await b.link(c)]
        for one, two in ((a, b), (a, c), (b, c)):
            memory.network.partition(one.address, two.address)
        await turns()
        assert [link.is_connected for link in links] == [False, False, False]
        memory.network.heal(c.address, a.address)
        await turns()
        assert [link.is_connected for link in links] == [False, True, False]
        memory.network.heal(b.address)
        await turns()
        assert [link.is_connected for link in links] == [True, True, True]


def test_what_is_on_the_road_when_a_link_is_lost_is_dropped_and_counted(memory: World):
    clock = ManualClock()
    memory.network = MemoryNetwork(clock=clock)

    @memory.run
    async def scenario():
        node, peer = await memory.node(), await memory.node()
        link = await node.link(peer)
        memory.network.delay(1.0)
        for frames in messages(3):
            link.send(frames)
        memory.network.partition(node.address, peer.address)
        await node.until(lambda: node.lost)
        assert memory.network.dropped == 3
        memory.network.heal()
        await node.until(lambda: link.is_connected)
        link.send(message(3))
        clock.advance(5.0)
        await peer.got(1)
        assert peer.bodies == [b"3"]


# --- kill and restart -------------------------------------------------------------------------------------------------


def test_who_is_killed_hears_and_says_nothing_more(memory: World):
    @memory.run
    async def scenario():
        node, victim = await memory.node(), await memory.node()
        there, back = await node.link(victim), await victim.link(node)
        there.send(message(0))
        memory.network.kill(victim.address)
        there.send(message(1))
        await node.until(lambda: node.lost)
        await turns()
        assert victim.messages == []
        assert victim.lost == []
        assert memory.network.dropped == 2
        assert not back.send(message(2))
        assert not back.is_connected
        with pytest.raises(TransportError):
            victim.connect(node)


def test_who_is_restarted_is_found_again_and_has_forgotten_everything(memory: World):
    @memory.run
    async def scenario():
        node, victim = await memory.node(), await memory.node()
        there, back = await node.link(victim), await victim.link(node)
        victim.transport.pause()
        nobody = victim.connect("memory://nobody")
        nobody.send(message(9))
        there.send(message(0))
        memory.network.restart(victim.address)
        await node.until(lambda: len(node.connected) == 2)
        assert node.lost == [(there, [])]
        there.send(message(1))
        await victim.got(1)
        assert victim.bodies == [b"1"]
        assert nobody.pending == 0
        await victim.until(lambda: back.is_connected)
        assert back.send(message(2))
        await node.got(1)


def test_somebody_else_may_take_the_place_of_who_was_killed(memory: World):
    @memory.run
    async def scenario():
        node, victim = await memory.node(), await memory.node()
        link = await node.link(victim)
        memory.network.kill(victim.address)
        heir = await memory.node(victim.address)
        await node.until(lambda: len(node.connected) == 2)
        link.send(message(0))
        await heir.got(1)
        assert node.lost == [(link, [])]
        with pytest.raises(TransportError, match="in use"):
            memory.network.restart(victim.address)
        await heir.transport.close()
        await victim.transport.close()
        with pytest.raises(KeyError):
            memory.network.restart(victim.address)


def test_a_full_link_is_handed_back_when_its_peer_is_killed(memory: World):
    @memory.run
    async def scenario():
        memory.network.capacity = 20
        node, victim = await memory.node(limits=LIMITS_OF_TEN), await memory.node()
        link = await node.link(victim)
        victim.transport.pause()
        assert fill(link) == 30
        memory.network.kill(victim.address)
        await node.until(lambda: node.room)
        assert node.lost == [(link, messages(30)[20:])]
        assert memory.network.dropped == 20


def test_a_delayed_message_for_who_was_replaced_is_dropped(memory: World):
    clock = ManualClock()
    memory.network = MemoryNetwork(clock=clock)

    @memory.run
    async def scenario():
        node, victim = await memory.node(), await memory.node()
        link = await node.link(victim)
        memory.network.delay(1.0)
        link.send(message(0))
        memory.network.restart(victim.address)
        clock.advance(1.0)  # before the link has seen that its peer is another one
        assert memory.network.dropped == 1
        await node.until(lambda: len(node.connected) == 2)
        assert victim.messages == []


# --- the rest ---------------------------------------------------------------------------------------------------------


def test_what_was_not_read_when_a_transport_closes_counts_as_dropped(memory: World):
    @memory.run
    async def scenario():
        node, peer = await memory.node(), await memory.node()
        link = await node.link(peer)
        peer.transport.pause()
        for frames in messages(4):
            link.send(frames)
        await peer.transport.close()
        assert memory.network.dropped == 4


def test_limits_are_those_of_the_receiver(memory: World):
    @memory.run
    async def scenario():
        strict, loose = await memory.node(limits=Limits(message_frames=3)), await memory.node()
        (await loose.link(strict)).send(message(0))
        (await strict.link(loose)).send(message(0))
        await loose.got(1)
        await strict.until(lambda: strict.refused)
        assert strict.messages == []


# --- the clock --------------------------------------------------------------------------------------------------------


def test_a_manual_clock_calls_in_the_order_of_time():
    clock, called = ManualClock(), []
    for seconds in (3, 1, 2, 1):
        clock.call_later(seconds, lambda seconds=seconds: called.append((seconds, clock.now_ns())))
    cancelled = clock.call_at(2 * 10**9, lambda: called.append("cancelled"))
    cancelled.cancel()
    clock.advance(0.5)
    assert called == []
    clock.advance(10)
    assert called == [(1, 10**9), (1, 10**9), (2, 2 * 10**9), (3, 3 * 10**9)]
    assert clock.now_ns() == 10_500_000_000
    clock.advance(10)
    assert len(called) == 4


def test_a_manual_clock_makes_calls_that_were_asked_for_while_it_moved():
    clock, called = ManualClock(), []
    clock.call_later(1, lambda: clock.call_later(1, lambda: called.append(clock.now_ns())))
    clock.call_at(-5, lambda: called.append("late"))
    clock.advance(2)
    assert called == ["late", 2 * 10**9]


def test_a_manual_clock_never_goes_back():
    clock = ManualClock()
    with pytest.raises(ValueError, match="back"):
        clock.advance(-1)
    wall_ns = clock.wall_ns()
    clock.advance(1)
    assert clock.wall_ns() == wall_ns + 10**9
