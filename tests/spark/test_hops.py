"""The table `hops`: moves between nodes and inside them, halves of moves, losses and clocks."""

import asyncio
from collections import Counter
from functools import partial

import pytest
from pyspark.sql import functions as sf

from hopline import Actor, Node, Payload, message
from hopline.spark import hops
from hopline.spark.tables import HOPS
from tests.spark import reference as real
from tests.spark.generator import MS
from tests.spark.made import Tables, assert_same, made, reference_tables


@pytest.mark.parametrize("seed", [1, 2])
def test_every_move_of_a_world_is_found(spark, seed):
    world = made(spark, seed)
    found = hops.hops(world.moves)
    assert found.columns == list(HOPS.names)
    assert_same(found, world.truth.hops())


def test_the_world_has_all_that_can_happen_to_a_message(spark):
    found = hops.hops(made(spark).moves)
    kinds = {tuple(row) for row in found.select("kind", "matched_by", "lost").distinct().collect()}
    assert kinds == {
        ("network", "uid", False),
        ("network", "uid+occurrence", False),
        ("network", "time", False),
        ("network", "trail", False),
        ("network", "address", False),
        ("network", "address", True),
        ("local", "uid", False),
        ("deliver", "uid", False),
        ("deliver", "uid+occurrence", False),
    }


def test_clocks_that_are_an_hour_apart_are_found_out(spark):
    found = made(spark).moves.where("from_node_key = 'ada-id' and kind = 'network'")
    skews = {row.to_node_key: row.skew_ms for row in found.select("to_node_key", "skew_ms").distinct().collect()}
    assert skews["bob-id"] == pytest.approx(3_600_000, abs=5)
    assert skews["eve-id"] == pytest.approx(-1_800_000, abs=5)
    assert skews["gamma"] == 0
    true = found.where("latency_ms is not null").select((sf.col("latency_ms") - sf.col("skew_ms")).alias("ms"))
    assert all(row.ms > 0 for row in true.collect())
    listed = {(row.from_node_key, row.to_node_key) for row in hops.skews(made(spark).moves).collect()}
    assert ("ada-id", "bob-id") in listed
    assert ("ada-id", "gamma") not in listed


@pytest.mark.parametrize("peer", [None, "0x008001020304", "0x686f706c696e652f31200a0b0c0d", "hopline/1 a-b-c"])
def test_what_a_message_does_without_peers_is_found_by_its_trail(spark, peer):
    """Frame 0 is not known, or names a socket, as at a rendezvous: only broadcasts and losses are less sure then."""
    world = made(spark)
    found = hops.hops(world.of(world.messages.withColumn("peer_key", sf.lit(peer).cast("string"))).moves)
    true = [row for row in world.truth.hops() if row["identity_key"] == "ORDER" and row["matched_by"] == "uid"]
    found = found.where("identity_key = 'ORDER' and matched_by = 'uid'")
    assert_same(found.drop("skew_ms"), [{k: v for k, v in row.items() if k != "skew_ms"} for row in true])


def test_what_reference_nodes_sent_each_other_is_found(spark, reference):
    found = hops.hops(reference_tables(spark, reference).moves).where("correlation_key not like '00000000-%'")
    met = found.where("latency_ms is not null")
    sent = {(line.uid, line.node): line.seen_ns for line in real.lines() if line.direction == "out"}
    true = Counter()
    for line in real.lines():
        if line.direction == "in" and not real.is_control(line):
            for (uid, node), seen_ns in sent.items():
                if uid == line.uid and node != line.node and line.flow[:8] != "00000000":
                    true[uid, node, line.node, round((line.seen_ns - seen_ns) / MS, 6)] += 1
    have = Counter(
        (bytes(row.message_uid), row.from_node_key, row.to_node_key, round(row.latency_ms, 6)) for row in met.collect()
    )
    assert have == true
    assert found.where("lost").count() == 0
    assert {row.matched_by for row in met.select("matched_by").distinct().collect()} == {"uid"}


def test_whoever_was_not_captured_is_known_by_its_trail_or_by_the_address(spark, reference):
    found = hops.hops(reference_tables(spark, reference).moves).where("correlation_key not like '00000000-%'")
    captured = {line.node for line in real.lines()}
    half = found.where("latency_ms is null").collect()
    assert half
    for row in half:
        stranger = row.from_node_key if row.sent_at is None else row.to_node_key
        assert stranger not in captured
        assert len(stranger) == 36  # a GUID: its identity
        assert row.matched_by == ("trail" if row.sent_at is None else "address")


def test_control_traffic_of_a_node_with_itself_is_local(spark, reference):
    found = hops.hops(reference_tables(spark, reference).moves).where("identity_key like 'KINO.CHCK%'")
    kinds = {(row.kind, row.from_node_key == row.to_node_key) for row in found.collect()}
    assert kinds == {("local", True)}


def test_of_what_reference_nodes_sent_nothing_is_lost_and_nothing_comes_twice(spark, reference):
    """Also of equal broadcasts in three networks whose nodes have the same names, and of what is announced by domain."""
    found = hops.hops(reference_tables(spark, reference).moves)
    assert found.where("lost").count() == 0
    ends = found.where("sent_at is not null and received_at is not null")
    assert ends.count() == ends.dropDuplicates(["message_uid", "from_node_key", "to_node_key", "sent_at"]).count()
    notified = found.where("identity_key = 'NOTIFY'").collect()
    assert {(row.from_node_key, row.to_node_key, row.latency_ms is not None) for row in notified} == {
        ("client", "server", True)
    }
    left = found.where("identity_key = 'KINO.UNREGNODE' and latency_ms is not null").collect()
    assert {(row.from_node_key, row.to_node_key) for row in left} == {
        ("client", "rendezvous"),
        ("server", "rendezvous"),
        ("rendezvous", "client"),
        ("rendezvous", "server"),
    }


@message("HELLO")
class Hello(Payload):
    """What the nodes of the next test are asked."""


class Greeter(Actor):
    """Says hello to whoever does."""

    async def greet(self, hello: Hello) -> Hello:
        return hello


def test_what_nodes_tell_several_peers_of_themselves_meets_who_was_told(spark, tmp_path):
    """Equal announcements to peers whose names are not known yet: each comes by the socket that it left by."""

    async def talk() -> None:
        node = partial(Node, capture=tmp_path, bind="tcp://127.0.0.1:0")
        async with (
            node([Greeter()]) as first,
            node(peers=[first.address]) as second,
            node(peers=[first.address, second.address]) as third,
        ):
            await third.ask(Hello(), Hello, timeout=10)

    asyncio.run(talk())
    tables = Tables(spark, str(tmp_path))
    told = tables.messages.where("is_system")
    ends = {row.tap: row["count"] for row in told.groupBy("tap").count().collect()}
    found = hops.hops(tables.moves).where("identity_key like 'KINO.%'")
    met = found.where("sent_at is not null and received_at is not null")
    assert ends["scaleout_in"] == met.count()
    assert met.dropDuplicates(["message_uid", "from_node_key", "sent_at", "to_node_key"]).count() == met.count()
    assert found.count() == ends["scaleout_out"]
    sockets = {row.peer_key: row.node_key for row in told.where("tap = 'scaleout_in'").collect()}
    sent = {
        (bytes(row.message_uid), row.seen_at, sockets.get(row.peer_key))
        for row in told.where("tap = 'scaleout_out'").collect()
    }
    assert {(bytes(row.message_uid), row.sent_at, row.to_node_key) for row in met.collect()} <= sent
