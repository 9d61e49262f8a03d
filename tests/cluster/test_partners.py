"""Partner clusters: what the nodes of one say about their routes reaches the nodes of the other, if that is allowed."""

import pytest

from tests.cluster.world import know_each_other, play
from tests.e2e.world import Ehhlo, Greeter, Hello, domains


def at(name):
    return (f"tcp://{name}:8011",)


def beside(name, *partners, **more):
    """The settings of a rendezvous that others hear, and that hears others."""
    heard = tuple(f"tcp://{partner}:8111" for partner in partners)
    return {"partner_bind": f"tcp://{name}:8111", "partners": heard, **more}


@pytest.mark.parametrize("scheme", [None, "kino", "full"])
def test_nodes_of_partners_find_and_call_each_other_and_leave(scheme):
    async def test(cluster):
        secrets = {"domains": domains(scheme)} if scheme else {}
        await cluster.lead("here", **beside("here", "there"))
        there = await cluster.lead("there", **beside("there", "here"))
        a = await cluster.node("a", Greeter(), at=at("here"), **secrets)
        b = await cluster.node("b", at=at("there"), **secrets)
        assert await cluster.until(lambda: know_each_other(a, b)) < 3
        assert (await cluster.wait(b.ask(Hello("x"), Ehhlo))).node == "a"
        assert there.books.by_identity["KINO.REGEXTROUTE"]
        await cluster.stop("a")
        await cluster.settle()
        assert not b.routes()
        assert b.statistics().rejected == 0

    play(test)


def test_what_came_from_a_partner_is_told_to_no_third():
    async def test(cluster):
        await cluster.lead("one", **beside("one", "two"))
        await cluster.lead("two", **beside("two", "one", "three"))
        await cluster.lead("three", **beside("three", "two"))
        first = await cluster.node("a", Greeter(), at=at("one"))
        middle = await cluster.node("b", at=at("two"))
        last = await cluster.node("c", at=at("three"))
        await cluster.until(lambda: know_each_other(first, middle) and know_each_other(middle, last))
        await cluster.run(5)
        assert set(last.routes()) == {b"b"}
        assert set(first.routes()) == {b"b"}

    play(test)


@pytest.mark.parametrize(("allowed", "is_heard"), [(("*",), True), (("world",), True), (("orders",), False), ((), False)])
def test_a_partner_is_heard_in_the_domains_that_are_allowed(allowed, is_heard):
    async def test(cluster):
        await cluster.lead("here", **beside("here", "there", partner_domains=allowed))
        await cluster.lead("there", **beside("there"))
        a = await cluster.node("a", at=at("here"), domains=domains("kino"))
        await cluster.node("b", Greeter(), at=at("there"), domains=domains("kino"))
        await cluster.run(5)
        assert (b"b" in a.routes()) == is_heard
        assert bool(cluster.rendezvous["here"].books.refused) != is_heard

    play(test)


def test_only_who_leads_repeats_what_a_partner_says_and_only_routes_are_repeated():
    async def test(cluster):
        names = {"left", "middle", "right"}
        for name in names:
            await cluster.lead(name, others=names - {name}, **beside(name, "there"))
        await cluster.until(lambda: cluster.leaders, 20)
        await cluster.lead("there", **beside("there"))
        a = await cluster.node("a", at=[f"tcp://{name}:8011" for name in sorted(names)])
        await cluster.run(5)  # until it has found who leads
        await cluster.node("b", Greeter(), at=at("there"))
        await cluster.until(lambda: b"b" in a.routes())
        (leader,) = names & set(cluster.leaders)
        relayed = {name: set(cluster.rendezvous[name].books.by_identity) for name in names}
        assert {name for name in names if relayed[name]} == {leader}
        assert relayed[leader] <= {"KINO.REGEXTROUTE", "KINO.REQCLUSTROUTES", "KINO.DISCOVMSGROUTE"}
        cluster.kill(leader)
        await cluster.run(15)
        await cluster.node("c", at=at("there"))
        await cluster.until(lambda: b"c" in a.routes(), 30)

    play(test)


def test_garbage_of_a_partner_is_counted_and_nothing_else():
    async def test(cluster):
        here = await cluster.lead("here", **beside("here", "there"))
        publisher = cluster.network.channels("tcp://there:1").publish("tcp://there:8111")
        a = await cluster.node("a", Greeter(), at=at("here"))
        await cluster.run(1)
        relayed = here.books.relayed
        for frames in ([b""], [b"x"] * 4, [b"\xff" * 50, b""]):
            publisher.publish(frames)
        await cluster.until(lambda: here.books.refused == 3)
        assert here.books.relayed == relayed
        assert (await cluster.wait(a.ask(Hello("x"), Ehhlo))).node == "a"

    play(test)
