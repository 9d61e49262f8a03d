"""The table `flows`: what belongs together, added up."""

import re
from collections import Counter

import pytest
from pyspark.sql import functions as sf

from hopline.spark import callbacks, flows
from hopline.spark.tables import FLOWS
from tests.spark import reference as real
from tests.spark.made import assert_same, made, reference_tables


@pytest.mark.parametrize("seed", [1, 2])
def test_every_flow_of_a_world_is_a_row(spark, seed):
    world = made(spark, seed)
    found = flows.flows(world.messages, world.answers, world.moves, world.fates, world.verdicts)
    assert found.columns == list(FLOWS.names)
    assert_same(found, world.truth.flows())


def test_the_tables_do_as_well_as_what_they_were_made_of(spark):
    world = made(spark)
    table = callbacks.callbacks(world.answers)
    found = flows.flows(world.messages, table, world.moves, world.fates, world.verdicts)
    assert_same(found, world.truth.flows())


def test_what_was_not_asked_for_is_not_known(spark):
    world = made(spark)
    found = flows.flows(world.messages, world.answers, world.moves)
    assert {(row.expired, row.invalid_signatures) for row in found.collect()} == {(0, None)}


def test_one_correlation_id_for_everything_is_one_flow(spark):
    world = made(spark)
    tables = world.of(world.messages.withColumn("correlation_key", sf.lit("one for all")))
    (row,) = flows.flows(tables.messages, tables.answers, tables.moves, tables.fates).collect()
    assert row.sightings == world.messages.count()
    assert row.messages == world.messages.select("message_uid", "occurrence").distinct().count()
    assert row.nodes == world.messages.select("node_key").distinct().count()
    assert row.callbacks_ok == tables.answers.where("outcome = 'ok'").count()
    assert 0 < row.completeness < 1


def test_nodes_are_counted_however_many_there_are(spark):
    world = made(spark)
    many = world.messages.withColumn("node_key", sf.concat(sf.lit("node "), sf.pmod(sf.crc32("event_id"), sf.lit(200))))
    halves = many.withColumn("correlation_key", sf.concat(sf.lit("half "), sf.pmod(sf.crc32("message_uid"), sf.lit(2))))
    found = flows.flows(halves, world.answers, world.moves)
    true = halves.groupBy("correlation_key").agg(sf.count_distinct("node_key").alias("nodes")).collect()
    assert min(row.nodes for row in true) > 100
    assert {(row.correlation_key, row.nodes) for row in found.collect()} == {tuple(row) for row in true}


def test_who_is_not_named_is_no_node(spark):
    world = made(spark)
    unnamed = world.messages.withColumn("node_key", sf.lit(None).cast("string"))
    found = flows.flows(unnamed, world.answers, world.moves).select("nodes").distinct().collect()
    assert [row.nodes for row in found] == [0]


def test_a_trail_is_as_deep_as_it_has_entries_but_for_repeated_ones(spark):
    world = made(spark)
    one = world.messages.where("size(trail) > 0").limit(1)
    trails = {"": 0, "A": 1, "AB": 2, "AA": 1, "ABA": 3, "AAB": 2, "ABBA": 3, "AAAA": 1, "ABCDE": 5, "AABBCCA": 4}
    nodes = spark.createDataFrame([(way, list(way)) for way in trails], "correlation_key string, nodes array<string>")
    trail = sf.transform("nodes", lambda node: sf.struct(sf.lit("tcp://x:1").alias("uri"), node.alias("node_key")))
    rows = one.drop("correlation_key", "trail").crossJoin(nodes).withColumn("trail", trail)
    rows = rows.withColumn("correlation_key", sf.concat(sf.lit("of "), "correlation_key"))
    found = flows.flows(rows, world.answers, world.moves).collect()
    assert {row.correlation_key: row.depth for row in found} == {f"of {way}": depth for way, depth in trails.items()}


def test_spark_is_asked_the_same_each_time(spark, capsys):
    # What is named anew each time is compiled anew each time, with all that is around it.
    world = made(spark)
    for _ in range(2):
        flows.flows(world.messages, world.answers, world.moves).explain(mode="extended")
        assert set(re.findall(r"lambda (\w+)#", capsys.readouterr().out)) == {"here", "place"}


def test_messages_are_read_once_for_nodes_and_roots_together(spark, tmp_path, capsys):
    world = made(spark)
    world.messages.limit(10).write.parquet(str(tmp_path / "few"))
    few = spark.read.parquet(str(tmp_path / "few"))
    # Else Spark sees only when it runs what it need not do twice, and cuts paths that are long.
    settings = {"spark.sql.adaptive.enabled": "false", "spark.sql.maxMetadataStringLength": "10000"}
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        flows.flows(few, world.answers, world.moves).explain()
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    # For sorts of sightings, senders of imported ones, all that counts, and nodes without a bit.
    assert len(re.findall(r"FileScan parquet .*/few\b", capsys.readouterr().out)) == 4


def test_what_starts_no_flow_is_none(spark):
    world = made(spark)
    none = world.of(world.messages.where("correlation_key = '' or correlation_key like '00000000-%'"))
    assert none.messages.count() > 0
    assert flows.flows(none.messages, none.answers, none.moves).count() == 0


def test_flows_of_the_reference_network_are_as_its_files_say(spark, reference):
    tables = reference_tables(spark, reference)
    found = flows.flows(tables.messages, tables.answers, tables.moves, tables.fates, tables.verdicts)
    have = {row.correlation_key: row for row in found.collect()}
    true = real.flows()
    assert set(have) == set(true)
    for key, lines in true.items():
        row = have[key]
        assert row.sightings == len(lines)
        assert row.messages == len({line.uid for line in lines})
        assert row.nodes == len({line.node for line in lines})
        assert row.duration_ms == pytest.approx((max(x.seen_ns for x in lines) - min(x.seen_ns for x in lines)) / 1e6)
        assert row.depth == max(len(line.message.routing) for line in lines)
        assert row.errors == len({line.uid for line in lines if line.message.identity == b"KINO.EXCEPTION"})
        assert (row.completeness, row.invalid_signatures, row.expired) == (1.0, 0, 0)


def test_a_flow_that_throws_has_one_failed_callback(spark, reference):
    tables = reference_tables(spark, reference)
    found = flows.flows(tables.messages, tables.answers, tables.moves).where("root_identity_key = 'THROW'")
    counts = Counter((row.callbacks_ok, row.callbacks_exception, row.errors, row.root_node_key) for row in found.collect())
    assert counts == {(0, 1, 1, "client"): found.count()}
