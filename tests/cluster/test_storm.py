"""Many nodes at once: all find all, and what is said grows with what there is to say. Figures: `python -m bench.cluster`."""

import asyncio

import pytest

from bench.cluster import Crowd, crowd
from tests.cluster.world import know_each_other, play
from tests.e2e.world import Greeter, balanced, domains


@pytest.mark.slow
def test_two_hundred_nodes_that_come_at_once_know_each_other_after_two_messages_of_each():
    async def test():
        cluster = Crowd()
        await cluster.rendezvous.start()
        nodes = [cluster.make() for _ in range(200)]
        await asyncio.gather(*(node.start() for node in nodes))
        start = await cluster.phase("start", lambda: cluster.knows_itself, 10)
        assert start.took_s <= 5
        assert start.relayed <= 4 * 200
        assert start.heard_bytes <= 200 * 200 * 2000
        assert all(len(node.routes()) == 199 and not node.statistics().rejected for node in nodes)
        assert sum(node.statistics().links for node in nodes) == 0  # nobody has anything to send

    asyncio.run(asyncio.wait_for(test(), 55))


def test_what_is_said_grows_with_the_nodes_and_what_is_heard_with_their_square():
    small, large = (asyncio.run(crowd(count, idle_s=100)) for count in (10, 30))
    for few, many in zip(small, large, strict=True):
        assert few.name == many.name
        # Three times the nodes: three times as much, with room for chance; with each asking each it would be nine times.
        assert many.relayed <= 5 * few.relayed, few.name
        assert many.relayed <= 8 * many.nodes, few.name


def test_nodes_that_change_all_the_time_are_heard_of_four_times_a_second_at_most():
    async def test(cluster):
        rendezvous = await cluster.lead()
        a, b = await cluster.node("a", Greeter()), await cluster.node("b")
        await cluster.until(lambda: know_each_other(a, b))
        await cluster.run(1)
        before = rendezvous.books.relayed
        for _ in range(200):
            a.add_actor(Greeter())
            await cluster.run(0.05)
        assert rendezvous.books.relayed - before <= 10 * 4 + 2
        await cluster.run(1)
        assert len(b.routes()[b"a"].actors) == 201

    play(test)


def test_a_cluster_with_losses_comes_to_know_itself_all_the_same():
    async def test(cluster):
        await cluster.lead()
        cluster.network.drop(0.3, when=lambda source, target, frames: "8011" in target or "8001" in source)
        nodes = [await cluster.node(f"n{i}", Greeter(), domains=domains("full")) for i in range(12)]
        await cluster.until(lambda: know_each_other(*nodes), 600)
        assert all(balanced(node) for node in nodes)

    play(test)


def test_messages_out_of_order_and_late_do_no_harm():
    async def test(cluster):
        cluster.network.delay(0.05, jitter=0.3)
        cluster.network.reorder(5)
        await cluster.lead()
        nodes = [await cluster.node(f"n{i}", Greeter(), domains=domains("full")) for i in range(8)]
        await cluster.until(lambda: know_each_other(*nodes), 30)
        await cluster.stop("n0")
        await cluster.run(5)
        assert not any(b"n0" in node.routes() for node in nodes[1:])

    play(test)
