"""The life of a node in a cluster: it comes, is found, changes, is asked for, and goes. In memory, by a manual clock."""

import asyncio

import pytest

from hopline.cluster.membership import GAP_S
from hopline.cluster.settings import ClusterSettings
from hopline.errors import DeliveryError, TransportError
from hopline.identity import MessageType
from hopline.node.actor import Actor, Context
from hopline.node.taps import Tap
from hopline.payload.registry import type_of
from hopline.wire import Message
from tests.cluster.world import know_each_other, play
from tests.e2e.world import Ehhlo, Greeter, Hello, Listener, Notice, Work, Worker, balanced, domains

HELLO, NOTICE = type_of(Hello("")), type_of(Notice(""))


class Said(Tap):
    """Counts what a node says to others, by identity."""

    points = frozenset({"scaleout_out"})

    def __init__(self):
        self.identities = []

    def on_message(self, point, message, frames, payload):
        self.identities.append(message.identity)


def types_of(node, other):
    routes = node.routes().get(other)
    return {kind for kinds in routes.actors.values() for kind in kinds} if routes is not None else set()


@pytest.mark.parametrize("scheme", [None, "kino", "full"])
def test_one_address_is_enough_to_find_everybody_and_a_clean_stop_is_known_at_once(scheme):
    async def test(cluster):
        secrets = {"domains": domains(scheme)} if scheme else {}
        await cluster.lead()
        a = await cluster.node("a", Greeter(), **secrets)
        b = await cluster.node("b", **secrets)
        assert await cluster.until(lambda: know_each_other(a, b)) < 2
        assert await cluster.wait(b.ask(Hello("x"), Ehhlo)) == Ehhlo("hi x", "a")
        late = await cluster.node("late", **secrets)
        assert await cluster.until(lambda: know_each_other(a, b, late)) < 2
        assert (await cluster.wait(late.ask(Hello("x"), Ehhlo))).node == "a"
        await cluster.stop("a")
        await cluster.settle()
        assert set(b.routes()) == {b"late"}
        assert set(late.routes()) == {b"b"}
        for node in (a, b, late):
            assert node.statistics().rejected == 0
        assert balanced(a)

    play(test)


def test_a_member_that_missed_our_announcement_can_answer_us():
    async def test(cluster):
        await cluster.lead()
        a = await cluster.node("a", Greeter())
        await cluster.settle()
        # That b is there does not reach a through the rendezvous, now or later; that b asks for routes does.
        cluster.network.drop(
            when=lambda source, target, frames: (
                source.startswith("tcp://r:") and target.startswith("tcp://a:") and b"KINO.REGEXTROUTE" in frames[-1]
            )
        )
        b = await cluster.node("b")
        assert await cluster.until(lambda: b"a" in b.routes()) < 2
        assert b"b" not in a.routes()
        assert await cluster.wait(b.ask(Hello("x"), Ehhlo, timeout=1)) == Ehhlo("hi x", "a")

    play(test)


def test_the_first_node_may_come_before_the_rendezvous():
    async def test(cluster):
        a = await cluster.node("a", Greeter())
        b = await cluster.node("b")
        await cluster.run(30)
        assert not a.membership.is_joined
        assert not b.membership.is_joined
        await cluster.lead()
        assert await cluster.until(lambda: know_each_other(a, b)) < 5

    play(test)


def test_actors_that_come_and_go_are_announced_and_withdrawn():
    async def test(cluster):
        await cluster.lead()
        a, b = await cluster.node("a", Greeter()), await cluster.node("b")
        await cluster.until(lambda: know_each_other(a, b))
        listener = a.add_actor(Listener())
        assert await cluster.until(lambda: types_of(b, b"a") == {HELLO, NOTICE}) <= 2 * GAP_S
        await cluster.wait(b.deliver(Notice("there")))
        a.remove_actor(listener)
        assert await cluster.until(lambda: types_of(b, b"a") == {HELLO}) <= 2 * GAP_S
        # Of two actors of a type one stays.
        second = a.add_actor(Greeter())
        await cluster.run(1)
        a.remove_actor(second)
        await cluster.run(1)
        assert types_of(b, b"a") == {HELLO}
        assert (await cluster.wait(b.ask(Hello("x"), Ehhlo))).node == "a"

    play(test)


def test_a_broadcast_reaches_all_nodes_of_the_cluster():
    async def test(cluster):
        await cluster.lead()
        listeners = [Listener() for _ in range(4)]
        nodes = [await cluster.node(f"n{i}", listener) for i, listener in enumerate(listeners)]
        await cluster.until(lambda: know_each_other(*nodes))
        await nodes[0].publish(Notice("all"))
        await cluster.until(lambda: all(listener.heard == ["all"] for listener in listeners))

    play(test)


def test_a_route_that_is_not_known_is_asked_for_once_and_messages_wait_for_it():
    async def test(cluster):
        await cluster.lead()
        said = Said()
        a = await cluster.node("a", Greeter())
        b = await cluster.node("b", taps=[said])
        await cluster.until(lambda: know_each_other(a, b))
        # b forgets: as if it had missed what a said.
        b.membership.left(b"a")
        b._peers.forget(b"a")  # noqa: SLF001 - there is no public way to lose a message on a working network
        asked = asyncio.gather(*(b.ask(Hello(str(i)), Ehhlo, timeout=4) for i in range(200)))
        answers = await cluster.wait(asked)
        assert {answer.node for answer in answers} == {"a"}
        assert said.identities.count(b"KINO.DISCOVMSGROUTE") == 1

    play(test)


def test_questions_for_invented_types_are_bounded():
    async def test(cluster):
        rendezvous = await cluster.lead()
        node = await cluster.node("a", hold_seconds=1.0)
        await cluster.until(lambda: node.membership.is_joined)
        await cluster.run(1)
        before = rendezvous.books.relayed
        for i in range(5000):
            node.membership.look_for(Message(identity=b"T%d" % i, version=1))
        await cluster.run(GAP_S * 4)
        assert rendezvous.books.relayed - before <= 5 * 100
        await cluster.run(10)
        assert rendezvous.books.relayed - before <= 1000 + 20

    play(test)


def test_a_message_that_nobody_takes_ends_in_time_however_much_is_announced_meanwhile():
    async def test(cluster):
        await cluster.lead()
        a = await cluster.node("a", Greeter())
        b = await cluster.node("b", hold_seconds=5.0)
        await cluster.until(lambda: know_each_other(a, b))
        telling = asyncio.ensure_future(b.tell(Work(1)))
        asking = asyncio.ensure_future(b.ask(Work(1), Ehhlo, timeout=30))
        for _ in range(6):
            a.add_actor(Listener())
            await cluster.run(1)
        assert telling.done()
        assert asking.done()
        with pytest.raises(DeliveryError) as caught:
            await asking
        assert caught.value.code == "NO_ROUTE"
        assert b.statistics().in_flight == 0
        assert b.dead_letters.counts == {"NO_ROUTE": 2}

    play(test)


def test_who_is_sent_to_by_mistake_says_so_and_is_not_sent_to_again():
    async def test(cluster):
        await cluster.lead()
        a, b = await cluster.node("a", Greeter()), await cluster.node("b", hold_seconds=1.0)
        c = await cluster.node("c", Greeter())
        await cluster.until(lambda: know_each_other(a, b, c))
        # a loses an actor and b does not hear of it.
        cluster.network.partition("tcp://r:8001", "tcp://b:5000", is_noticed=False)
        worker = a.add_actor(Worker())
        cluster.network.heal()
        await cluster.until(lambda: types_of(b, b"a") >= {type_of(Work(1))})
        cluster.network.partition("tcp://r:8001", "tcp://b:5000", is_noticed=False)
        a.remove_actor(worker)
        await cluster.settle()
        cluster.network.heal()
        assert type_of(Work(1)) in types_of(b, b"a")
        await b.tell(Work(1))
        await cluster.until(lambda: type_of(Work(1)) not in types_of(b, b"a"))
        assert HELLO in types_of(b, b"a")

    play(test)


def test_a_node_that_cannot_be_reached_is_given_up_and_its_messages_take_another_way():
    async def test(cluster):
        await cluster.lead()
        a, b = await cluster.node("a", Greeter()), await cluster.node("b", Greeter())
        client = await cluster.node("client")
        await cluster.until(lambda: know_each_other(a, b, client))
        cluster.network.partition("tcp://client:5000", "tcp://a:5000")
        answers = await cluster.wait(asyncio.gather(*(client.ask(Hello(str(i)), Ehhlo) for i in range(20))))
        assert {answer.node for answer in answers} == {"b"}
        await cluster.run(5)
        assert balanced(client)
        # It is asked to tell again, as it only seems to be gone; when it can be reached it is used again.
        cluster.network.heal()
        await cluster.until(lambda: b"a" in client.routes())
        seen = {(await cluster.wait(client.ask(Hello("x"), Ehhlo))).node for _ in range(4)}
        assert seen == {"a", "b"}

    play(test)


def test_an_ask_that_never_left_is_not_lost_with_the_node_it_was_meant_for():
    async def test(cluster):
        await cluster.lead()
        a, client = await cluster.node("a", Greeter()), await cluster.node("client")
        await cluster.until(lambda: know_each_other(a, client))
        cluster.network.partition("tcp://client:5000", "tcp://a:5000")
        asking = asyncio.ensure_future(client.ask(Hello("x"), Ehhlo))
        await cluster.run(4)
        assert not asking.done()  # nobody else is there, so it waits
        cluster.network.heal()
        assert (await cluster.wait(asking)).node == "a"

    play(test)


def test_news_that_come_while_news_are_used_make_nothing_wait_longer():
    class Helper(Actor):
        async def listen(self, notice: Notice, context: Context) -> None:
            context.node.add_actor(Listener())

    async def test(cluster):
        await cluster.lead()
        a = await cluster.node("a", hold_seconds=5.0)
        await cluster.until(lambda: a.membership.is_joined)
        await a.tell(Notice("helped"))
        await a.tell(Work(1))
        await cluster.run(4)
        a.add_actor(Helper())
        await cluster.run(1.5)
        assert a.dead_letters.counts == {"NO_ROUTE": 1}

    play(test)


def test_a_killed_node_fails_who_waits_for_it_and_is_forgotten():
    async def test(cluster):
        await cluster.lead()
        await cluster.node("a", Greeter())
        b = await cluster.node("b")
        await cluster.until(lambda: b"a" in b.routes())
        asking = asyncio.ensure_future(b.ask(Hello("forever"), Ehhlo))
        await cluster.run(1)
        cluster.kill("a")
        await cluster.until(asking.done, 1.0)
        with pytest.raises(DeliveryError) as caught:
            await asking
        assert caught.value.code == "PEER_LOST"
        assert b.routes() == {}

    play(test)


def test_a_node_that_hangs_is_dead_after_some_missed_heart_beats_and_found_again_when_it_lives():
    async def test(cluster):
        await cluster.lead()
        a, b = await cluster.node("a", Greeter()), await cluster.node("b")
        await cluster.until(lambda: know_each_other(a, b))
        await cluster.wait(b.ask(Hello("x"), Ehhlo))
        await cluster.run(10)
        assert b"a" in b.routes()
        asking = asyncio.ensure_future(b.ask(Hello("forever"), Ehhlo))
        for end in ("tcp://a:5000", "tcp://a:5001"):
            cluster.network.partition("tcp://b:5000", end, is_noticed=False)
        took = await cluster.until(asking.done, 10)
        assert 4 <= took <= 8
        assert asking.exception().code == "PEER_LOST"
        cluster.network.heal()
        await cluster.until(lambda: b"a" in b.routes())
        assert (await cluster.wait(b.ask(Hello("x"), Ehhlo))).node == "a"
        assert balanced(b)

    play(test)


def test_a_node_that_was_stopped_for_a_while_does_not_take_all_others_for_dead():
    async def test(cluster):
        rendezvous = await cluster.lead()
        a, b = await cluster.node("a", Greeter()), await cluster.node("b")
        await cluster.until(lambda: know_each_other(a, b))
        asking = asyncio.ensure_future(b.ask(Hello("forever"), Ehhlo, timeout=1000))
        await cluster.run(5)
        for _ in range(3):
            cluster.clock.jump(20)
            await cluster.run(3)
        assert not asking.done()
        assert know_each_other(a, b)
        assert rendezvous.books.by_identity["KINO.REQNODEROUTES"] == 0
        assert a.membership.is_joined
        asking.cancel()

    play(test)


def test_a_node_that_nobody_heard_of_for_long_is_looked_at_and_forgotten_if_it_is_not_there():
    async def test(cluster):
        settings = ClusterSettings(discovery_s=3600.0, stale_after_s=60.0)
        await cluster.lead()
        a, b = await cluster.node("a", settings=settings), await cluster.node("b", settings=settings)
        c = await cluster.node("c", settings=settings)
        await cluster.until(lambda: know_each_other(a, b, c))
        cluster.kill("a")
        await cluster.run(50)
        assert b"a" in b.routes()
        await cluster.run(25)
        assert set(b.routes()) == {b"c"}
        assert set(c.routes()) == {b"b"}
        await cluster.run(10)
        assert balanced(b)
        assert balanced(c)
        # The ping that showed it is for nobody else.
        for node in (b, c):
            assert set(node.dead_letters.counts) <= {"PEER_LOST"}
        assert cluster.rendezvous["r"].books.by_identity["KINO.DISCOVMSGROUTE"] == 0

    play(test)


def test_a_node_that_starts_anew_under_its_name_elsewhere_is_another_one():
    async def test(cluster):
        await cluster.lead()
        a, b = await cluster.node("a", Greeter(), Worker(), identity=b"same"), await cluster.node("b")
        await cluster.until(lambda: know_each_other(a, b))
        await cluster.wait(b.ask(Hello("x"), Ehhlo))
        # The old one hangs: no link is lost.
        for end in ("tcp://a:5000", "tcp://a:5001"):
            cluster.network.partition("tcp://b:5000", end, is_noticed=False)
        cluster.network.partition("tcp://r:8011", "tcp://a:5000", is_noticed=False)
        cluster.nodes.pop("a")
        await cluster.node("new", Greeter(), identity=b"same")
        await cluster.until(lambda: b.routes()[b"same"].uri == "tcp://new:5000", 5)
        assert (await cluster.wait(b.ask(Hello("x"), Ehhlo, timeout=2))).node == "same"
        assert types_of(b, b"same") == {HELLO}
        await cluster.run(15)
        assert b.routes()[b"same"].uri == "tcp://new:5000"

    play(test)


@pytest.mark.parametrize("scheme", [None, "kino", "full"])
def test_a_node_that_is_killed_and_comes_back_where_it_was_is_used_again(scheme):
    async def test(cluster):
        secrets = {"domains": domains(scheme)} if scheme else {}
        await cluster.lead()
        await cluster.node("a", Greeter(), **secrets)
        b = await cluster.node("b", **secrets)
        await cluster.until(lambda: b"a" in b.routes())
        for _ in range(5):
            await cluster.wait(b.ask(Hello("x"), Ehhlo))
            asking = asyncio.ensure_future(b.ask(Hello("forever"), Ehhlo))
            await cluster.run(0.5)
            cluster.kill("a")
            await cluster.node("a", Greeter(), **secrets)
            await cluster.until(asking.done, 1.0)
            assert asking.exception().code == "PEER_LOST"
            await cluster.until(lambda: b"a" in b.routes(), 2.0)
            assert (await cluster.wait(b.ask(Hello("x"), Ehhlo, timeout=1))).node == "a"
            assert len(b.routes()[b"a"].actors) == 1
        assert b.statistics().rejected == 0

    play(test)


def test_who_leaves_while_there_is_no_rendezvous_is_found_out():
    async def test(cluster):
        await cluster.lead()
        a, b = await cluster.node("a", Greeter()), await cluster.node("b", Greeter())
        used, unused = await cluster.node("used"), await cluster.node("unused")
        await cluster.until(lambda: know_each_other(a, b, used, unused))
        await cluster.wait(used.ask(Hello("x"), Ehhlo, node=b"a"))
        cluster.kill("r")
        await cluster.stop("a")
        await cluster.settle()
        assert b"a" not in used.routes()
        # Who has nothing to say to it need not know; who has takes another.
        answers = await cluster.wait(asyncio.gather(*(unused.ask(Hello("x"), Ehhlo) for _ in range(4))))
        assert {answer.node for answer in answers} == {"b"}
        assert b"a" not in unused.routes()

    play(test)


def test_a_taken_address_is_a_sentence_and_nothing_else():
    async def test(cluster):
        await cluster.lead()
        await cluster.node("a")
        again = cluster.make("a")
        with pytest.raises(TransportError) as caught:
            await again.start()
        assert caught.value.code == "TRANSPORT_ADDRESS_IN_USE"

    play(test)


def test_what_a_subscription_missed_while_it_was_gone_is_asked_for_again():
    async def test(cluster):
        settings = ClusterSettings(discovery_s=3600.0, silence_s=30.0)
        await cluster.lead()
        a = await cluster.node("a", settings=settings)
        await cluster.until(lambda: a.membership.is_joined)
        await cluster.run(1)
        cluster.network.partition("tcp://a:5000", "tcp://r:8001")
        await cluster.run(1)
        b = await cluster.node("b", Greeter(), settings=settings)
        await cluster.until(lambda: b.membership.is_joined)
        await cluster.run(1)
        assert b"b" not in a.routes()
        cluster.network.heal()
        assert await cluster.until(lambda: know_each_other(a, b)) < 3

    play(test)


def test_a_cluster_that_nothing_happens_in_says_little():
    async def test(cluster):
        rendezvous = await cluster.lead()
        nodes = [await cluster.node(f"n{i}", Greeter()) for i in range(10)]
        await cluster.until(lambda: know_each_other(*nodes))
        await cluster.run(5)
        before = rendezvous.books.relayed
        await cluster.run(600)
        # One asks for all and all answer, every half a minute to a minute and a half; not each for itself.
        assert rendezvous.books.relayed - before <= 600 / 30 * (len(nodes) + 3)
        assert rendezvous.books.relayed - before >= 600 / 90 * len(nodes)
        assert know_each_other(*nodes)

    play(test)


def test_types_are_told_apart_by_version_and_partition():
    async def test(cluster):
        await cluster.lead()
        a, b = await cluster.node("a", Greeter()), await cluster.node("b")
        await cluster.until(lambda: know_each_other(a, b))
        assert types_of(b, b"a") == {MessageType(b"HELLO", 1, b"")}

    play(test)
