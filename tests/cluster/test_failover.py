"""When a rendezvous is silent, leads no longer, is replaced or dies: nodes turn, announce there, and routes stay."""

import asyncio

import pytest

from hopline.cluster.endpoints import Endpoint
from hopline.cluster.settings import ClusterSettings
from hopline.payload.service import (
    HeartBeat,
    RendezvousConfigurationChanged,
    RendezvousNode,
    RendezvousNotLeader,
)
from tests.cluster.scripted import Scripted, welcomed
from tests.cluster.world import know_each_other, play
from tests.e2e.world import Ehhlo, Greeter, Hello, balanced, domains

TWO = ("tcp://r1:8011", "tcp://r2:8011")
THREE = {"r1": ("r2", "r3"), "r2": ("r1", "r3"), "r3": ("r1", "r2")}


def node_of(name):
    return RendezvousNode(f"tcp://{name}:8001", f"tcp://{name}:8011")


def at(node):
    return node.membership.endpoints.current.unicast.removeprefix("tcp://").removesuffix(":8011")


def test_silence_makes_nodes_turn_to_the_next_and_back_and_announce_at_each():
    async def test(cluster):
        first = await cluster.lead("r1")
        a, b = await cluster.node("a", Greeter(), at=TWO), await cluster.node("b", at=TWO)
        await cluster.until(lambda: know_each_other(a, b))
        cluster.kill("r1")
        second = await cluster.lead("r2")
        took = await cluster.until(lambda: at(a) == at(b) == "r2" and a.membership.is_joined and b.membership.is_joined, 20)
        assert took <= 8
        await cluster.run(1)
        assert second.books.by_identity["KINO.REGEXTROUTE"] >= 2
        # Nobody was forgotten meanwhile, and who comes now is found.
        assert know_each_other(a, b)
        c = await cluster.node("c", at=("tcp://r2:8011",))
        await cluster.until(lambda: know_each_other(a, b, c))
        cluster.kill("r2")
        third = await cluster.lead("r1")
        await cluster.until(lambda: at(a) == at(b) == "r1" and a.membership.is_joined and b.membership.is_joined, 20)
        await cluster.run(1)
        assert third.books.by_identity["KINO.REGEXTROUTE"] >= 2
        assert first is not third

    play(test)


def test_a_rendezvous_that_says_how_slowly_its_heart_beats_is_waited_for():
    async def test(cluster):
        slow, other = Scripted(cluster, "r1"), Scripted(cluster, "r2")
        a = await cluster.node("a", at=TWO)
        await welcomed(cluster, slow, a)
        slow.beat(10)
        await cluster.run(25)
        assert at(a) == "r1"
        slow.beat(0.5)
        await cluster.run(2)
        assert at(a) == "r1"
        await cluster.run(4)
        assert at(a) == "r2"
        await slow.close()
        await other.close()

    play(test)


def test_nodes_turn_to_the_leader_that_they_are_told_if_they_know_it():
    async def test(cluster):
        follower, leader = Scripted(cluster, "r1"), Scripted(cluster, "r2")
        a = await cluster.node("a", at=TWO)
        await cluster.run(1)
        follower.say(RendezvousNotLeader(node_of("r2")))
        await cluster.until(lambda: at(a) == "r2", 1)
        await welcomed(cluster, leader, a)
        assert b"KINO.REGEXTROUTE" in leader.identities()
        assert a.membership.refused == 0
        # Nobody, itself, and a stranger.
        leader.say(RendezvousNotLeader(None))
        leader.say(RendezvousNotLeader(RendezvousNode(None, None)))
        leader.say(RendezvousNotLeader(node_of("r2")))
        leader.say(RendezvousNotLeader(node_of("evil")))
        await cluster.settle()
        assert at(a) == "r2"
        assert a.membership.refused == 1
        await follower.close()
        await leader.close()

    play(test)


def test_two_rendezvous_that_point_at_each_other_do_not_make_nodes_spin():
    async def test(cluster):
        one, two = Scripted(cluster, "r1"), Scripted(cluster, "r2")
        a = await cluster.node("a", at=TWO)
        turns, last = 0, at(a)
        for _ in range(200):
            one.say(RendezvousNotLeader(node_of("r2")))
            two.say(RendezvousNotLeader(node_of("r1")))
            await cluster.run(0.05)
            turns, last = turns + (at(a) != last), at(a)
        assert turns <= 10 / 0.25
        await one.close()
        await two.close()

    play(test)


def test_nodes_follow_a_new_list_of_rendezvous():
    async def test(cluster):
        old = await cluster.lead("r1")
        new = await cluster.lead("r2")
        a, b = await cluster.node("a", at=("tcp://r1:8011",)), await cluster.node("b", at=("tcp://r1:8011",))
        await cluster.until(lambda: know_each_other(a, b))
        # One more: nothing changes for those who are here.
        old.reconfigure([old.node, new.node])
        await cluster.run(1)
        assert at(a) == at(b) == "r1"
        assert len(a.membership.endpoints.all) == 2
        # This one goes.
        old.reconfigure([new.node])
        await cluster.until(lambda: at(a) == at(b) == "r2" and a.membership.is_joined and b.membership.is_joined)
        cluster.kill("r1")
        await cluster.run(10)
        assert at(a) == at(b) == "r2"
        assert know_each_other(a, b)
        # Nobody left is no list.
        new.reconfigure([])
        await cluster.run(1)
        assert [endpoint.unicast for endpoint in a.membership.endpoints.all] == ["tcp://r2:8011"]

    play(test)


def test_who_knows_one_rendezvous_learns_of_all_and_by_which_names():
    async def test(cluster):
        await cluster.lead("r1", nodes=("tcp://r1:8011", "tcp://r2:8011", "tcp://r3:8011"))
        # The sample rule does not help here, so it must ask.
        await cluster.lead("r2", bind="tcp://r2:8011+9999", nodes=("tcp://r1:8011", "tcp://r2:8011+9999"))
        a = await cluster.node("a", at=("tcp://r2:8011",))
        await cluster.until(lambda: a.membership.is_joined)
        assert a.membership.endpoints.current == Endpoint("tcp://r2:8011", "tcp://r2:9999")
        assert {endpoint.unicast for endpoint in a.membership.endpoints.all} == {"tcp://r1:8011", "tcp://r2:8011"}
        cluster.kill("r2")
        await cluster.until(lambda: at(a) == "r1" and a.membership.is_joined, 20)

    play(test)


def test_a_leader_is_found_by_the_name_that_it_has_for_others():
    async def test(cluster):
        # a calls it alias, it calls itself r1, and so do others.
        r1, r2 = Scripted(cluster, "r1", bind=("8011", "7777")), Scripted(cluster, "r2")
        alias = Scripted(cluster, "alias", bind=("8011", "7778"))
        a = await cluster.node("a", at=("tcp://alias:8011",))
        await cluster.run(1)
        assert b"HOPLINE.RENDEZVOUS" in alias.identities()
        alias.reply(RendezvousConfigurationChanged((RendezvousNode("tcp://alias:7778", "tcp://r1:8011"), node_of("r2"))))
        await cluster.run(1)
        assert len(a.membership.endpoints.all) == 2
        alias.say(RendezvousNotLeader(node_of("r2")))
        await cluster.until(lambda: at(a) == "r2", 1)
        await cluster.run(1)
        r2.say(RendezvousNotLeader(RendezvousNode("tcp://alias:7778", "tcp://r1:8011")))
        await cluster.until(lambda: at(a) == "alias", 1)
        assert a.membership.refused == 0
        for one in (r1, r2, alias):
            await one.close()

    play(test)


@pytest.mark.parametrize("seed", range(3))
def test_when_the_leader_dies_another_leads_nodes_turn_and_calls_go_on(seed):
    async def test(cluster):
        for name, others in THREE.items():
            await cluster.lead(name, others=others)
        nodes = [
            await cluster.node(f"n{i}", Greeter(), at=(f"tcp://r{1 + i % 3}:8011",), domains=domains()) for i in range(6)
        ]
        await cluster.until(lambda: len(cluster.leaders) == 1 and know_each_other(*nodes), 20)
        for _ in range(3):
            (leader,) = cluster.leaders
            await cluster.until(lambda: {at(node) for node in nodes} == set(cluster.leaders), 20)
            cluster.kill(leader)
            # Nobody needs a rendezvous to talk with those it knows.
            asks = [node.ask(Hello("x"), Ehhlo, timeout=3) for node in nodes for _ in range(5)]
            assert len(await cluster.wait(asyncio.gather(*asks))) == 30
            took = await cluster.until(
                lambda: (
                    len(cluster.leaders) == 1
                    and all(at(node) in cluster.leaders and node.membership.is_joined for node in nodes)
                ),
                30,
            )
            assert took <= 15
            assert know_each_other(*nodes)
            late = await cluster.node(f"late{leader}", at=tuple(f"tcp://{name}:8011" for name in THREE), domains=domains())
            await cluster.until(lambda late=late: know_each_other(*nodes, late), 20)
            await cluster.stop(f"late{leader}")
            await cluster.lead(leader, others=THREE[leader])
            await cluster.run(5)
        await cluster.run(10)
        assert len(cluster.leaders) == 1
        assert all(balanced(node) and not node.statistics().rejected for node in nodes)

    play(test, seed=seed)


def test_a_leader_that_hangs_is_left_and_follows_when_it_wakes():
    async def test(cluster):
        for name, others in THREE.items():
            await cluster.lead(name, others=others)
        where = tuple(f"tcp://{name}:8011" for name in THREE)
        a, b = await cluster.node("a", Greeter(), at=where), await cluster.node("b", at=where)
        await cluster.until(lambda: len(cluster.leaders) == 1 and know_each_other(a, b), 20)
        for _ in range(3):
            (leader,) = cluster.leaders
            await cluster.until(lambda leader=leader: at(a) == at(b) == leader, 20)
            # Its connections stand, and nothing comes through.
            others = [
                *(f"tcp://{name}:{port}" for name in THREE[leader] for port in (8011, 7001)),
                "tcp://a:5000",
                "tcp://b:5000",
            ]
            for own in (f"tcp://{leader}:{port}" for port in (8011, 8001, 7001)):
                for other in others:
                    cluster.network.partition(own, other, is_noticed=False)
            for _ in range(240):
                await cluster.run(0.05)
                assert len(cluster.leaders) <= 1
            assert cluster.leaders not in ([], [leader])
            assert [at(a), at(b)] == cluster.leaders * 2
            cluster.network.heal()
            for _ in range(100):
                await cluster.run(0.05)
                assert len(cluster.leaders) <= 1
            assert know_each_other(a, b)
            assert (await cluster.wait(b.ask(Hello("x"), Ehhlo))).node == "a"

    play(test)


def test_never_do_two_lead_while_rendezvous_come_and_go():
    async def test(cluster):
        for name, others in THREE.items():
            await cluster.lead(name, others=others)
        for _ in range(15):
            name = cluster.random.choice(list(cluster.rendezvous))
            cluster.kill(name)
            for _ in range(cluster.random.randrange(20, 120)):
                await cluster.run(0.05)
                assert len(cluster.leaders) <= 1
            await cluster.lead(name, others=THREE[name])
        await cluster.until(lambda: len(cluster.leaders) == 1, 20)

    play(test)


def test_the_first_node_is_enough_and_when_it_ends_another_takes_its_place():
    async def test(cluster):
        where = "tcp://here:8011"
        a = await cluster.node("a", Greeter(), at=(where,), embed=where)
        b = await cluster.node("b", Greeter(), at=(where,), embed=where)
        c = await cluster.node("c", at=(where,))
        await cluster.until(lambda: know_each_other(a, b, c))
        assert a.membership.embedded.rendezvous is not None
        assert b.membership.embedded.rendezvous is None
        # It says goodbye through its own rendezvous, before that ends too.
        await cluster.stop("a")
        await cluster.settle()
        assert set(b.routes()) == {b"c"}
        assert set(c.routes()) == {b"b"}
        await cluster.until(lambda: b.membership.embedded.rendezvous is not None, 10)
        await cluster.until(lambda: b.membership.is_joined and c.membership.is_joined, 10)
        d = await cluster.node("d", at=(where,))
        await cluster.until(lambda: know_each_other(b, c, d))
        assert (await cluster.wait(d.ask(Hello("x"), Ehhlo))).node == "b"
        # And when it is killed, too.
        e = await cluster.node("e", at=(where,), embed=where)
        await cluster.until(lambda: know_each_other(b, c, d, e))
        cluster.kill("b")
        await cluster.until(lambda: e.membership.embedded.rendezvous is not None, 15)
        await cluster.until(lambda: c.membership.is_joined and d.membership.is_joined and e.membership.is_joined, 15)

    play(test)


def test_who_is_a_rendezvous_and_listens_to_another_says_goodbye_at_both():
    async def test(cluster):
        await cluster.lead("r")
        both = ("tcp://here:8011", "tcp://r:8011")
        a = await cluster.node("a", at=both, embed="tcp://here:8011")
        here, there = await cluster.node("here", at=both[:1]), await cluster.node("there", at=both[1:])
        await cluster.until(lambda: know_each_other(a, here))
        a.membership.endpoints.turn()
        a.membership._join()  # noqa: SLF001 - as after a silence
        await cluster.until(lambda: know_each_other(a, there))
        await cluster.stop("a")
        await cluster.settle()
        assert b"a" not in here.routes()
        assert b"a" not in there.routes()

    play(test)


def test_nodes_announce_in_the_formats_that_their_rendezvous_speaks():
    async def test(cluster):
        scripted = Scripted(cluster)
        a = await cluster.node("a", Greeter(), settings=ClusterSettings(silence_s=60))
        await cluster.run(1)
        scripted.formats = ("v5",)
        scripted.beat()
        await cluster.run(1)
        assert a.membership.formats == ("v5",)
        assert b"KINO.REGEXTROUTE" in scripted.identities("v5")
        assert b"KINO.REGEXTROUTE" not in scripted.identities("v6")
        scripted.formats = ("v5", "v6")
        scripted.heard.clear()
        scripted.beat()
        await cluster.run(1)
        assert set(a.membership.formats) == {"v5", "v6"}
        for format in ("v5", "v6"):
            assert b"KINO.REGEXTROUTE" in scripted.identities(format)
            assert b"KINO.REQCLUSTROUTES" in scripted.identities(format)
        # What nobody has used for long is used no more.
        scripted.formats = ("v6",)
        for _ in range(200):
            scripted.beat()
            await cluster.run(1)
        assert a.membership.formats == ("v6",)
        await scripted.close()

    play(test)


@pytest.mark.parametrize("format", ["v3", "v4"])
def test_formats_from_before_clusters_were_as_they_are_are_not_spoken(format):
    async def test(cluster):
        scripted = Scripted(cluster)
        a = await cluster.node("a", Greeter(), domains=domains())
        await welcomed(cluster, scripted, a)
        scripted.say(HeartBeat(10_000_000), format)
        await cluster.run(1)
        assert a.membership.formats == ("v6",)
        await scripted.close()

    play(test)


@pytest.mark.parametrize("scheme", ["kino", "full"])
def test_who_hears_an_announcement_in_two_formats_takes_neither_for_a_repeat(scheme):
    async def test(cluster):
        scripted = Scripted(cluster)
        scripted.formats = ("v5", "v6")
        a, b = await cluster.node("a", Greeter(), domains=domains(scheme)), await cluster.node("b", domains=domains(scheme))
        await cluster.run(1)
        for _ in range(4):
            scripted.beat()
            await cluster.run(1)
            said, scripted.heard = scripted.heard, []
            for one in said:
                if one.message.identity not in (b"KINO.PING", b"HOPLINE.RENDEZVOUS"):
                    scripted.relay(one.message, one.format)
        await cluster.until(lambda: know_each_other(a, b))
        assert (await cluster.wait(b.ask(Hello("x"), Ehhlo))).node == "a"
        assert a.statistics().rejected == b.statistics().rejected == 0
        await scripted.close()

    play(test)
