"""The table `edges`: traffic by the minute, between nodes and between message types."""

from collections import Counter

import pytest

from hopline.spark import edges
from hopline.spark.tables import EDGES
from tests.spark import reference as real
from tests.spark.generator import MS
from tests.spark.made import assert_same, made, reference_tables


@pytest.mark.parametrize("seed", [1, 2])
def test_every_edge_of_a_world_is_a_row(spark, seed):
    world = made(spark, seed)
    found = edges.edges(world.messages, world.moves, world.answers)
    assert found.columns == list(EDGES.names)
    assert_same(found, world.truth.edges())


def test_edges_hold_every_move_once(spark):
    world = made(spark)
    found = edges.edges(world.messages, world.moves, world.answers).where("level = 'node'")
    total = found.groupBy().sum("messages", "lost").collect()[0]
    assert total["sum(messages)"] == world.moves.where("kind = 'network'").count()
    assert total["sum(lost)"] == world.moves.where("lost").count()


def test_an_edge_shows_flows_to_look_at(spark):
    world = made(spark)
    found = edges.edges(world.messages, world.moves, world.answers)
    flows = {row.correlation_key for row in world.messages.select("correlation_key").distinct().collect()}
    for row in found.collect():
        assert len(row.exemplars) == len(set(row.exemplars)) <= 3
        assert set(row.exemplars) <= flows - {"00000000-0000-0000-0000-000000000000"}


def test_the_service_graph_of_the_reference_network(spark, reference):
    tables = reference_tables(spark, reference)
    found = edges.edges(tables.messages, tables.moves, tables.answers).where("level = 'message'").collect()
    have = Counter()
    for row in found:
        have[row.source_key, row.target_key] += row.messages
    true = Counter()
    for request in real.requests().values():
        first = min(real.answers(request), key=lambda line: line.seen_ns)
        true[request.message.identity.decode(), first.message.identity.decode()] += 1
    assert have == true
    errors = {row.target_key: row.errors == row.messages for row in found if row.errors}
    assert errors == {"KINO.EXCEPTION": True}


def test_waits_are_those_that_the_asker_saw(spark, reference):
    """What others saw of request and answer is counted, and is no wait."""
    tables = reference_tables(spark, reference)
    found = edges.edges(tables.messages, tables.moves, tables.answers).where("level = 'message' and target_key = 'EHHLO'")
    counted, least, most = found.selectExpr("sum(messages)", "min(p50_ms)", "max(p99_ms)").collect()[0]
    requests = [line for line in real.requests().values() if line.message.identity == b"HELLO"]
    answers = {line: min(real.answers(line), key=lambda each: each.seen_ns) for line in requests}
    answers = {line: answer for line, answer in answers.items() if answer.message.identity == b"EHHLO"}
    waits = [(answer.seen_ns - line.seen_ns) / MS for line, answer in answers.items() if line.direction == "out"]
    assert counted == len(answers) > len(waits) > 0
    assert min(waits) <= least <= most <= max(waits)
