"""Many nodes at once: all find all, and what is said grows with what there is to say. Figures: `python -m bench.cluster`."""

import asyncio

import pytest

from bench.cluster import Crowd, crowd
from hopline.node.taps import Tap
from hopline.payload.service import MessageContract, RegisterExternalRoute, RouteRegistration
from hopline.wire import Message
from tests.cluster.scripted import Scripted, welcomed
from tests.cluster.world import know_each_other, play
from tests.e2e.world import Greeter, Work, Worker, balanced, domains


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


def test_what_is_held_is_not_tried_again_for_each_of_many_announcements():
    class Tries(Tap):
        points = frozenset({"router_in"})
        count = 0

        def on_message(self, point, message, frames, payload):
            self.count += 1

    async def test(cluster):
        tries, scripted = Tries(), Scripted(cluster)
        a = await cluster.node("a", taps=[tries], hold_seconds=60.0)
        await welcomed(cluster, scripted, a)
        telling = [asyncio.ensure_future(a.tell(Work(i))) for i in range(500)]
        await cluster.settle()
        assert a.statistics().in_flight == 500
        before, tried = tries.count, []
        for repeat in range(3):
            for i in range(100):
                route = RouteRegistration(b"\x01actor", (MessageContract(1, b"OTHER", b""),))
                payload = RegisterExternalRoute(f"tcp://n{i}:1", b"n%d" % i, (route,))
                scripted.relay(Message(identity=payload.identity, version=1, body=payload.write()))
            await cluster.settle()
            assert len(a.routes()) == 100, repeat
            tried.append(tries.count - before)
        assert tried[0] <= 500 * 10
        assert tried == [tried[0]] * 3  # what is known is no news
        # And all go when somebody comes.
        await cluster.node("worker", Worker(), at=("tcp://r:8011",))
        await cluster.run(1)
        for one in scripted.heard:
            if one.message.identity == b"KINO.REGEXTROUTE":
                scripted.relay(one.message, one.format)
        scripted.pong()
        await cluster.run(1)
        for one in scripted.heard:
            if one.message.identity == b"KINO.REGEXTROUTE":
                scripted.relay(one.message, one.format)
        await cluster.until(lambda: a.statistics().in_flight == 0)
        assert a.dead_letters.counts == {}
        await asyncio.gather(*telling)
        await scripted.close()

    play(test)
