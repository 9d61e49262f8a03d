"""The tables, read by others than Spark: DuckDB and pandas say the same as Spark does."""

import duckdb
import pandas as pd
import pytest

from hopline.spark.batch import NAMES

JOIN = """
    SELECT f.correlation_key, f.root_identity_key, f.duration_ms, count(*) AS hops, max(h.latency_ms) AS slowest_ms
    FROM flows AS f JOIN hops AS h ON f.correlation_key = h.correlation_key
    WHERE NOT h.lost
    GROUP BY f.correlation_key, f.root_identity_key, f.duration_ms
"""
"""Flows and their slowest hops: text, numbers, flags and nulls of two tables."""


@pytest.fixture
def tables(world_tables):
    return world_tables[1]


@pytest.fixture(scope="module")
def said_by_spark(spark, world_tables):
    """How many rows each table has, and what the join says."""
    _, tables = world_tables
    frames = {name: spark.read.parquet(str(tables / name)) for name in (*NAMES, "runs")}
    for name in ("flows", "hops"):
        frames[name].createOrReplaceTempView(name)
    return {name: frame.count() for name, frame in frames.items()}, {tuple(row) for row in spark.sql(JOIN).collect()}


@pytest.fixture
def duck(tables):
    with duckdb.connect() as connection:
        for name in (*NAMES, "runs"):
            files = f"{tables / name}/**/*.parquet"
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet($${files}$$, hive_partitioning=true)")
        yield connection


def test_duckdb_counts_the_same_rows(duck, said_by_spark):
    counts, _ = said_by_spark
    assert {name: duck.sql(f"SELECT count(*) FROM {name}").fetchall()[0][0] for name in counts} == counts
    assert counts["messages"] > 1000


def test_duckdb_joins_to_the_same_rows(duck, said_by_spark):
    _, rows = said_by_spark
    assert len(rows) > 100
    assert set(duck.sql(JOIN).fetchall()) == rows


def test_duckdb_knows_the_types(duck):
    types = dict(zip(*(getattr(duck.sql("SELECT * FROM messages"), name) for name in ("columns", "types")), strict=True))
    names = ["seen_at", "seen_ns", "identity", "identity_key", "ttl_ms", "is_system", "date"]
    found = [str(types[name]) for name in names]
    assert found == ["TIMESTAMP WITH TIME ZONE", "BIGINT", "BLOB", "VARCHAR", "DOUBLE", "BOOLEAN", "DATE"]
    [[trail]] = duck.sql("SELECT trail[1].node_key FROM messages WHERE len(trail) > 0 ORDER BY event_id LIMIT 1").fetchall()
    assert isinstance(trail, str)


def test_pandas_counts_and_joins_to_the_same_rows(tables, said_by_spark):
    counts, rows = said_by_spark
    frames = {name: pd.read_parquet(tables / name) for name in counts}
    assert {name: len(frame) for name, frame in frames.items()} == counts
    hops = frames["hops"][~frames["hops"]["lost"].astype(bool)]
    keys = ["correlation_key", "root_identity_key", "duration_ms"]
    joined = frames["flows"][keys].merge(hops[["correlation_key", "latency_ms"]], on="correlation_key")
    grouped = joined.groupby(keys, dropna=False)["latency_ms"].agg(["size", "max"]).reset_index()
    cleaned = grouped.astype(object).where(grouped.notna(), None)
    assert set(cleaned.itertuples(index=False, name=None)) == rows
