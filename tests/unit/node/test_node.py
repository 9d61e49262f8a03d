"""A node alone: actors, asks, ends. What crosses nodes is in tests/e2e."""

import asyncio
import threading
import time

import pytest

from hopline.errors import DeliveryError, PayloadError, RemoteError
from hopline.node.actor import Actor, Context, broadcast, to
from hopline.node.envelope import Envelope
from hopline.node.node import Node
from hopline.node.taps import POINTS, Tap
from tests.unit.node.world import Arrived, Ehhlo, Greeter, Hello, Other, Step, balanced, run


@pytest.mark.parametrize("kind", ["async", "thread", "generator", "waits"])
def test_every_kind_of_handler_answers(kind):
    class Async(Greeter): ...

    class Thread(Actor):
        def greet(self, hello: Hello) -> Ehhlo:
            return Ehhlo(f"hi {hello.name} from {threading.current_thread().name.partition('_')[0]}")

    class Generator(Actor):
        async def greet(self, hello: Hello):
            yield Other()
            yield Ehhlo(f"hi {hello.name}")

    class Waits(Actor):
        async def greet(self, hello: Hello) -> Ehhlo:
            await asyncio.sleep(0)
            return Ehhlo(f"hi {hello.name}")

    actor = {"async": Async, "thread": Thread, "generator": Generator, "waits": Waits}[kind]()
    expected = {"thread": "hi bob from hopline"}.get(kind, "hi bob")

    async def test():
        async with Node(actors=[actor]) as node:
            assert await node.ask(Hello("bob"), Ehhlo) == Ehhlo(expected)
        assert balanced(node)

    run(test)


def test_the_first_of_several_reply_types():
    class Moody(Actor):
        async def greet(self, hello: Hello) -> Ehhlo | Other:
            return Other("no") if hello.name == "eve" else Ehhlo("yes")

    async def test():
        async with Node(actors=[Moody()]) as node:
            assert await node.ask(Hello("bob"), Ehhlo, Other) == Ehhlo("yes")
            assert await node.ask(Hello("eve"), Ehhlo, Other) == Other("no")

    run(test)


def test_an_answer_may_come_from_another_actor_of_the_flow():
    class First(Actor):
        async def begin(self, hello: Hello) -> Step:
            return Step(3)

    class Walker(Actor):
        async def step(self, step: Step, context: Context) -> Step | Ehhlo:
            return Step(step.left - 1) if step.left else Ehhlo(context.message.correlation_id.decode())

    async def test():
        async with Node(actors=[First(), Walker()]) as node:
            assert len((await node.ask(Hello("bob"), Ehhlo)).text) == 36

    run(test)


def test_long_chains_of_actors_that_answer_at_once_do_not_overflow_the_stack():
    class Walker(Actor):
        concurrency = 100_000

        async def step(self, step: Step) -> Step | Arrived:
            return Step(step.left - 1) if step.left else Arrived()

    async def test():
        async with Node(actors=[Walker()]) as node:
            assert await node.ask(Step(5000), Arrived) == Arrived()

    run(test)


def test_a_failing_handler_is_a_typed_error_with_its_stack_and_the_actor_lives_on():
    failures = []

    class Fragile(Actor):
        async def greet(self, hello: Hello) -> Ehhlo:
            if hello.name == "bad":
                raise ValueError("no such name")
            return Ehhlo("fine")

        def failed(self, error):
            failures.append(error)

    async def test():
        async with Node(actors=[Fragile()]) as node:
            with pytest.raises(RemoteError) as caught:
                await node.ask(Hello("bad"), Ehhlo)
            assert (caught.value.type_name, caught.value.text, caught.value.code) == (
                "ValueError",
                "no such name",
                "REMOTE_ERROR",
            )
            assert "no such name" in caught.value.stack
            assert await node.ask(Hello("good"), Ehhlo) == Ehhlo("fine")
            assert node.statistics().failures == 1
        assert balanced(node)

    run(test)
    assert [type(error) for error in failures] == [ValueError]


def test_a_message_that_keeps_failing_is_quarantined():
    calls = []

    class Fragile(Actor):
        quarantine_after = 2

        async def greet(self, hello: Hello) -> None:
            calls.append(hello)
            raise ValueError("poison")

    async def test():
        async with Node(actors=[Fragile()]) as node:
            message = node._message(Hello("x"), 0)  # noqa: SLF001 - the same message again, as a sender that repeats would
            for _ in range(4):
                await node._taken(Envelope(message, Hello("x")))  # noqa: SLF001
            assert node.dead_letters.counts["QUARANTINED"] == 2
        assert balanced(node)

    run(test)
    assert len(calls) == 2


def test_what_a_handler_returns_must_be_a_payload():
    class Wrong(Actor):
        async def greet(self, hello: Hello) -> int:
            return 42

    async def test():
        async with Node(actors=[Wrong()]) as node:
            with pytest.raises(RemoteError, match="no payload"):
                await node.ask(Hello("bob"), Ehhlo)
        assert balanced(node)

    run(test)


def test_nobody_there():
    async def test():
        async with Node(actors=[Greeter()]) as node:
            with pytest.raises(DeliveryError) as caught:
                await node.ask(Other(), Ehhlo)
            assert caught.value.code == "NO_ROUTE"
            await node.tell(Other())
            await node.publish(Other())
            assert node.dead_letters.counts == {"NO_ROUTE": 3}
            assert [letter.message.identity for letter in node.dead_letters] == [b"OTHER"] * 3
        assert balanced(node)

    run(test)


def test_a_promise_has_a_deadline_and_a_late_answer_is_a_dead_letter():
    release = None

    class Slow(Actor):
        async def greet(self, hello: Hello) -> Ehhlo:
            await release.wait()
            return Ehhlo("late")

    async def test():
        nonlocal release
        release = asyncio.Event()
        async with Node(actors=[Slow()]) as node:
            with pytest.raises(DeliveryError) as caught:
                await node.ask(Hello("bob"), Ehhlo, timeout=0.01)
            assert caught.value.code == "EXPIRED"
            release.set()
        assert node.dead_letters.counts == {"EXPIRED": 1}
        assert balanced(node)

    run(test)


def test_what_waited_too_long_is_not_handled():
    release = None
    seen = []

    class Slow(Actor):
        async def greet(self, hello: Hello) -> None:
            seen.append(hello.name)
            await release.wait()

    async def test():
        nonlocal release
        release = asyncio.Event()
        async with Node(actors=[Slow()]) as node:
            await node.tell(Hello("first"))
            with pytest.raises(DeliveryError) as caught:
                await node.ask(Hello("second"), Ehhlo, timeout=0.01)
            assert caught.value.code == "EXPIRED"
            await node.tell(Hello("third"))
            release.set()
        assert seen == ["first", "third"]
        assert balanced(node)

    run(test)


def test_publish_reaches_everybody_and_tell_one():
    class Listener(Actor):
        def __init__(self):
            self.heard = []

        async def listen(self, other: Other) -> None:
            self.heard.append(other.text)

    listeners = [Listener() for _ in range(3)]

    async def test():
        async with Node(actors=listeners) as node:
            await node.publish(Other("all"))
            for _ in range(3):
                await node.tell(Other("one"))
        assert [listener.heard for listener in listeners] == [["all", "one"]] * 3
        assert balanced(node)

    run(test)


def test_answers_of_a_broadcast_are_collected():
    async def test():
        async with Node(actors=[Greeter(), Greeter(), Greeter()]) as node:
            assert await node.ask_all(Hello("all"), Ehhlo, seconds=0.05) == [Ehhlo("hi all")] * 3
        assert balanced(node)

    run(test)


def test_an_actor_may_broadcast_and_address():
    class Sender(Actor):
        async def greet(self, hello: Hello):
            yield broadcast(Other("all"))
            yield to(Step(1), receiver=addressee)

    class Receiver(Actor):
        def __init__(self):
            self.heard = []

        async def other(self, other: Other) -> None:
            self.heard.append(other.text)

        async def step(self, step: Step) -> None:
            self.heard.append(step.left)

    one, two = Receiver(), Receiver()
    addressee = b""

    async def test():
        nonlocal addressee
        async with Node(actors=[Sender(), one]) as node:
            addressee = node.add_actor(two)
            await node.deliver(Hello("x"), until="handled")
        assert (one.heard, two.heard) == (["all"], ["all", 1])

    run(test)


def test_receipts_say_how_far_it_got():
    release = None
    handled = []

    class Slow(Actor):
        async def greet(self, hello: Hello) -> None:
            await release.wait()
            handled.append(hello.name)

    async def test():
        nonlocal release
        release = asyncio.Event()
        async with Node(actors=[Slow()]) as node:
            receipt = await node.deliver(Hello("a"))
            assert (receipt.reached, receipt.node, handled) == ("node", node.identity, [])
            waiting = asyncio.create_task(node.deliver(Hello("b"), until="handled"))
            release.set()
            assert (await waiting).reached == "handled"
            assert handled == ["a", "b"]
        assert balanced(node)

    run(test)


def test_stopping_lets_work_end_and_fails_the_rest():
    class Never(Actor):
        async def greet(self, hello: Hello) -> Ehhlo:
            await asyncio.get_running_loop().create_future()
            raise AssertionError

    async def test():
        node = Node(actors=[Never(), Walker()])
        await node.start()
        ask = asyncio.create_task(node.ask(Hello("x"), Ehhlo))
        waits = asyncio.create_task(node.tell(Hello("y")))
        await asyncio.sleep(0)
        await node.stop(0.02)
        with pytest.raises(DeliveryError) as caught:
            await ask
        assert caught.value.code == "CLOSED"
        await waits
        with pytest.raises(DeliveryError):
            await node.tell(Hello("z"))
        await node.stop()
        with pytest.raises(RuntimeError):
            await node.start()

    class Walker(Actor):
        async def step(self, step: Step) -> Arrived:
            return Arrived()

    before = threading.active_count()
    run(test)
    assert threading.active_count() == before


def test_an_actor_that_handles_nothing_stops_the_start():
    class Nothing(Actor): ...

    async def test():
        with pytest.raises(PayloadError):
            await Node(actors=[Nothing()]).start()

    before = threading.active_count()
    run(test)
    assert threading.active_count() == before


def test_a_cancelled_ask_leaves_nothing_behind():
    class Never(Actor):
        async def greet(self, hello: Hello) -> Ehhlo:
            await asyncio.get_running_loop().create_future()
            raise AssertionError

    async def test():
        async with Node(actors=[Never()]) as node:
            ask = asyncio.create_task(node.ask(Hello("x"), Ehhlo))
            await asyncio.sleep(0)
            assert node.statistics().promises_pending == 1
            ask.cancel()
            with pytest.raises(asyncio.CancelledError):
                await ask
            assert node.statistics().promises_pending == 0
            await node.stop(0)

    run(test)


@pytest.mark.slow
def test_an_ask_that_a_tap_breaks_leaves_nothing_behind():
    class Broken(Tap):
        points = frozenset({"hub_out"})

        def on_message(self, *_):
            raise RuntimeError("a tap that raises")

    async def test():
        async with Node(actors=[Greeter()]) as node:
            node.add_tap(broken := Broken())
            with pytest.raises(RuntimeError, match="a tap that raises"):
                await node.ask(Hello("bob"), Ehhlo)
            books = node.statistics()
            assert (books.promises_pending, books.taken, books.in_flight) == (0, 0, 0)
            node.remove_tap(broken)
            assert await node.ask(Hello("bob"), Ehhlo) == Ehhlo("hi bob")

    run(test)


def test_several_taps_see_the_same_in_their_order():
    seen = []

    class Watcher(Tap):
        def __init__(self, name, points):
            self.name, self.points = name, points

        def on_message(self, point, message, frames, payload):
            seen.append((self.name, point, message.identity, frames, payload))

    async def test():
        taps = [Watcher("a", {"hub_out"}), Watcher("b", {"hub_in", "hub_out"})]
        async with Node(actors=[Greeter()], taps=taps) as node:
            await node.ask(Hello("x"), Ehhlo)
            node.remove_tap(taps[0])
            await node.tell(Hello("y"))

    run(test)
    first = ("hub_out", b"HELLO", None, Hello("x"))
    last = ("b", "hub_out", b"HELLO", None, Hello("y"))
    assert seen == [("a", *first), ("b", *first), ("b", "hub_in", b"EHHLO", None, seen[2][-1]), last]


def test_taps_see_every_step_and_every_end():
    seen, ends = [], []

    class Failing(Actor):
        async def step(self, step: Step) -> Arrived:
            raise ValueError("no")

    class Watcher(Tap):
        points = POINTS - {"router_in"}

        def on_message(self, point, message, frames, payload):
            seen.append((point, message.identity.decode()))

        def on_end(self, end, message, reason):
            ends.append((end, message.identity.decode()))

    async def test():
        async with Node(actors=[Greeter(), Failing()], taps=[Watcher()]) as node:
            await node.ask(Hello("x"), Ehhlo)
            await node.tell(Other())
            with pytest.raises(RemoteError):
                await node.ask(Step(0), Arrived)

    run(test)
    assert seen == [
        ("hub_out", "HELLO"),
        ("actor_in", "HELLO"),
        ("actor_out", "EHHLO"),
        ("hub_in", "EHHLO"),
        ("hub_out", "OTHER"),
        ("hub_out", "STEP"),
        ("actor_in", "STEP"),
        ("hub_in", "KINO.EXCEPTION"),
    ]
    assert ends == [
        ("answered", "EHHLO"),
        ("handled", "HELLO"),
        ("NO_ROUTE", "OTHER"),
        ("failed", "STEP"),
        ("answered", "KINO.EXCEPTION"),
    ]


def test_a_thread_handler_that_blocks_does_not_block_the_node():
    gate = threading.Event()

    class Blocking(Actor):
        def other(self, other: Other) -> Arrived:
            gate.wait(10)
            return Arrived()

    async def test():
        async with Node(actors=[Blocking(), Greeter()]) as node:
            slow = asyncio.create_task(node.ask(Other(), Arrived))
            await asyncio.sleep(0)
            assert await node.ask(Hello("bob"), Ehhlo) == Ehhlo("hi bob")
            gate.set()
            assert await slow == Arrived()

    started = time.monotonic()
    run(test)
    assert time.monotonic() - started < 9


def test_who_asks_in_a_loop_does_not_have_the_event_loop_alone():
    async def test():
        turns = 0

        def turn():
            nonlocal turns
            turns += 1
            asyncio.get_running_loop().call_soon(turn)

        async with Node(actors=[Greeter(), Sink()]) as node:
            turn()
            for _ in range(1000):
                await node.ask(Hello("x"), Ehhlo)
            assert turns > 10
            turns = 0
            for _ in range(1000):
                await node.tell(Other())
            assert turns > 10

    run(test)


class Sink(Actor):
    async def sink(self, _: Other) -> None: ...
