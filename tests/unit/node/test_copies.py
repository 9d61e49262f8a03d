"""Copies of messages: an actor that asks for it handles each message once, whoever sends it again."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from hopline.errors import DeliveryError, RemoteError
from hopline.node.actor import Actor, Context
from hopline.node.copies import Copies
from hopline.node.envelope import Envelope
from hopline.node.node import Node
from hopline.payload.registry import Payload, kind_of, message
from hopline.testing import ManualClock, MemoryNetwork, MemoryTransport
from hopline.wire import Message


@message("COPIES.PAY")
class Pay(Payload):
    amount: int


class Cashier(Actor):
    drop_copies_seconds = 60.0

    def __init__(self) -> None:
        self.taken: list[int] = []

    async def take(self, pay: Pay) -> None:
        self.taken.append(pay.amount)


class Slow(Cashier):
    """Waits until it may go on, and fails as often as it is told."""

    concurrency = 3

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self.failures = 0

    async def take(self, pay: Pay) -> None:
        self.taken.append(pay.amount)
        self.begun.set()
        await self.may_go_on.wait()
        if self.failures:
            self.failures -= 1
            raise ValueError("as told")


def payment(amount, flow=b"flow"):
    return Message(identity=b"COPIES.PAY", version=1, body=kind_of(Pay).encode(Pay(amount)), correlation_id=flow)


@asynccontextmanager
async def two_nodes(actor, clock=None):
    network = MemoryNetwork()
    server = Node(actors=[actor], transport=MemoryTransport(network, "memory://server"), clock=clock)
    async with server, Node(transport=MemoryTransport(network, "memory://client"), peers=["memory://server"]) as client:
        yield server, client
    books = server.statistics()
    assert books.taken == books.ended


def run(test):
    asyncio.run(asyncio.wait_for(test(), 30))


@pytest.mark.parametrize("until", ["node", "handled"])
def test_a_copy_is_confirmed_and_not_handled(until):
    async def test():
        cashier = Cashier()
        async with two_nodes(cashier) as (server, client):
            for _ in range(3):
                await client.deliver_message(payment(5), until=until)
            await client.deliver_message(payment(6, b"other"), until="handled")  # whatever was sent before is done
            assert cashier.taken == [5, 6]
            assert server.statistics().repeated == 2

    run(test)


def test_what_differs_in_flow_or_body_is_no_copy():
    async def test():
        cashier = Cashier()
        async with two_nodes(cashier) as (_, client):
            for sent in (payment(5), payment(6), payment(5, b"other"), payment(5, b""), payment(5, b"")):
                await client.deliver_message(sent, until="handled")
            assert cashier.taken == [5, 6, 5, 5, 5]

    run(test)


def test_without_the_wish_every_copy_is_handled():
    class Plain(Cashier):
        drop_copies_seconds = 0.0

    async def test():
        cashier = Plain()
        async with two_nodes(cashier) as (_, client):
            for _ in range(2):
                await client.deliver_message(payment(5), until="handled")
            assert cashier.taken == [5, 5]

    run(test)


def test_after_some_time_it_is_forgotten():
    async def test():
        cashier, clock = Cashier(), ManualClock()
        async with two_nodes(cashier, clock) as (_, client):
            for seconds in (0, 59, 2):
                clock.advance(seconds)
                await client.deliver_message(payment(5), until="handled")
            assert cashier.taken == [5, 5]

    run(test)


def test_copies_wait_for_the_first_one_and_end_with_it():
    async def test():
        slow = Slow()
        async with two_nodes(slow) as (server, client):
            sent = [asyncio.create_task(client.deliver_message(payment(5), until="handled")) for _ in range(3)]
            await slow.begun.wait()
            await client.deliver_message(payment(5))  # so it and those before it have arrived
            slow.may_go_on.set()
            await asyncio.gather(*sent)
            assert slow.taken == [5]
            assert server.statistics().repeated == 3

    run(test)


def test_the_copy_of_a_failure_is_the_second_try():
    async def test():
        slow = Slow()
        slow.failures = 1
        async with two_nodes(slow) as (_, client):
            first = asyncio.create_task(client.deliver_message(payment(5), until="handled"))
            await slow.begun.wait()
            second = asyncio.create_task(client.deliver_message(payment(5), until="handled"))
            await client.deliver_message(payment(5))
            slow.may_go_on.set()
            with pytest.raises(RemoteError, match="as told"):
                await first
            await second
            assert slow.taken == [5, 5]

    run(test)


def test_copies_that_wait_when_the_node_stops_are_refused():
    async def test():
        slow = Slow()
        async with two_nodes(slow) as (server, client):
            sent = [asyncio.create_task(client.deliver_message(payment(5), until="handled")) for _ in range(2)]
            await slow.begun.wait()
            await client.deliver_message(payment(5))
            await server.stop(0)
            for ended in await asyncio.gather(*sent, return_exceptions=True):
                assert isinstance(ended, DeliveryError)
            assert slow.taken == [5]

    run(test)


def test_local_messages_are_never_copies():
    async def test():
        cashier = Cashier()
        async with Node(actors=[cashier]) as node:
            for _ in range(2):
                await node.deliver(Pay(5), until="handled")
            assert cashier.taken == [5, 5]

    run(test)


def test_only_so_many_are_known():
    copies = Copies(60.0, most=2)
    for number in range(3):
        assert copies.begin(payment(number), 0) == "new"
        copies.end(payment(number), 0, is_well=True)
    assert [copies.begin(payment(number), 0) for number in (2, 1, 0)] == ["known", "known", "new"]


def test_who_waits_is_counted():
    copies = Copies(60.0)
    copies.begin(payment(1), 0)
    assert copies.begin(payment(1), 0) == "running"
    copies.wait(Envelope(payment(1)))
    assert copies.waiting == 1
    assert len(copies.end(payment(1), 0, is_well=False)) == 1
    assert copies.waiting == 0
    assert copies.begin(payment(1), 0) == "new"


def test_a_message_that_is_made_already_arrives_as_it_is():
    seen = []

    class Looking(Actor):
        async def take(self, pay: Pay, context: Context) -> None:
            seen.append((pay.amount, context.message))

    async def test():
        async with two_nodes(Looking()) as (server, client):
            receipt = await client.deliver_message(payment(7, b"mine"), until="handled")
            assert receipt.node == server.identity
            amount, message = seen[0]
            assert (amount, message.correlation_id, message.ttl_ticks) == (7, b"mine", 0)

    run(test)
