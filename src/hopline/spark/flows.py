"""The table `flows`: a row for each correlation id that started a flow.

Theory of operation. Nothing is ever collected: a flow may have a million messages, and everything may share one correlation
id. What each sighting, callback, missing end, expired message and invalid signature adds to its flow is written as one
narrow row of numbers; all of them are moved once, by flow; and there added up in steps that need no further move:

    message   uid and occurrence     so that each counts once
    step      inherited trail        so that the widest one is found
    flow

Numbers only, because then Spark adds up in hash tables that spill; texts would make it sort. So the root of a flow - its
type and its node - travels as two hashes, and is given its text back at the end from the few that there are.

The root is the message that has inherited nothing, as it was sent, or else as it came; of those the first. This file reads
no bodies and judges nothing itself: callbacks, moves, fates and verdicts come from their own files.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from hopline.spark.callbacks import EXCEPTION_KEY
from hopline.spark.hops import NS_PER_MS, timestamp_of
from hopline.spark.nodes import AWAY, CAME, names
from hopline.spark.tables import FLOWS, conform
from hopline.spark.trails import is_flow

_LATEST_NS: Final = 2**61 - 1
"""In 2043. The two bits above say how near a sighting is to the root of its flow."""

_COUNTS: Final = {
    "sightings": "bigint",
    "network": "bigint",
    "missing": "bigint",
    "callbacks_ok": "bigint",
    "callbacks_exception": "bigint",
    "callbacks_pending": "bigint",
    "expired": "bigint",
    "invalid_signatures": "bigint",
}
"""What is added up, row by row."""

_LEAST: Final = {"first_ns": "bigint", "step": "bigint", "nearness": "bigint"}
_MOST: Final = {"last_ns": "bigint", "hops": "int", "depth": "int", "is_error": "int"}
_ROOT: Final = {"root_type": "bigint", "root_node": "bigint"}


def flows(
    messages: DataFrame,
    callbacks: DataFrame,
    moves: DataFrame,
    fates: DataFrame | None = None,
    verdicts: DataFrame | None = None,
) -> DataFrame:
    """The table `flows`.

    Args:
        messages: the table.
        callbacks: the table, or `callbacks.find_answers`.
        moves: of `hops.find_moves`.
        fates: of `expiries.find_fates`; without it `expired` is 0.
        verdicts: of `signatures.judge`; without it `invalid_signatures` is null.
    """
    parts = [_of_messages(messages), _of_callbacks(callbacks), _of_moves(moves)]
    if fates is not None:
        parts.append(_of_fates(fates))
    if verdicts is not None:
        parts.append(_of_verdicts(verdicts))
    rows = parts[0]
    for part in parts[1:]:
        rows = rows.unionByName(part)
    found = _added_up(rows.where(is_flow()).repartition("correlation_key"))
    found = found.join(_node_counts(messages), "correlation_key")
    found = _with_root(found, messages)
    network = sf.col("network")
    found = found.withColumns(
        {
            "started_at": timestamp_of(sf.col("first_ns")),
            "ended_at": timestamp_of(sf.col("last_ns")),
            "duration_ms": sf.try_subtract("last_ns", "first_ns") / NS_PER_MS,
            "max_hops": sf.col("hops"),
            "completeness": sf.when(network > 0, network / (network + sf.col("missing"))).otherwise(1.0),
            "date": timestamp_of(sf.col("first_ns")).cast("date"),
        }
    )
    if verdicts is None:
        found = found.withColumn("invalid_signatures", sf.lit(None))
    return conform(found, FLOWS)


# --- what each thing adds to its flow ---------------------------------------------------------------------------------


def _row(rows: DataFrame, **known: Column) -> DataFrame:
    """Rows of numbers: what is not known adds nothing."""
    columns = [sf.coalesce(known.get(name, sf.lit(0)), sf.lit(0)).cast(kind).alias(name) for name, kind in _COUNTS.items()]
    others = {"message_uid": "binary", "occurrence": "int", **_LEAST, **_MOST, **_ROOT}
    columns += [known.get(name, sf.lit(None)).cast(kind).alias(name) for name, kind in others.items()]
    return rows.select("correlation_key", *columns)


def _of_messages(messages: DataFrame) -> DataFrame:
    trail, parent = sf.col("trail.node_key"), sf.col("parent_trail")
    # A reference broadcast repeats the sender's entry for each peer.
    differs = sf.filter(trail, lambda node, place: (place == 0) | (node != trail[sf.greatest(place - 1, sf.lit(0))]))
    depth = sf.when(sf.size(trail) < 2, sf.size(trail)).otherwise(sf.size(differs))
    # As a set: where readers reverse trails, two messages of one step may have it in two orders.
    step = sf.when(sf.size(parent) < 2, sf.xxhash64(parent)).otherwise(sf.xxhash64(sf.sort_array(parent)))
    rank = sf.when(sf.size(parent) > 0, 2).when(sf.col("direction") == "in", 1).otherwise(0)
    seen = sf.greatest(sf.least("seen_ns", sf.lit(_LATEST_NS)), sf.lit(0))
    return _row(
        messages,
        message_uid=sf.col("message_uid"),
        occurrence=sf.col("occurrence"),
        sightings=sf.lit(1),
        network=sf.col("tap").isin(*AWAY, *CAME).cast("int"),
        first_ns=sf.col("seen_ns"),
        last_ns=sf.col("seen_ns"),
        hops=sf.col("hops"),
        depth=depth,
        step=step,
        is_error=(sf.col("identity_key") == EXCEPTION_KEY).cast("int"),
        nearness=sf.shiftleft(rank.cast("bigint"), 61).bitwiseOR(seen),
        root_type=sf.xxhash64("identity_key"),
        root_node=sf.xxhash64(_root_node()),
    )


def _of_callbacks(callbacks: DataFrame) -> DataFrame:
    outcome = sf.col("outcome")
    return _row(
        callbacks,
        callbacks_ok=(outcome == "ok").cast("int"),
        callbacks_exception=(outcome == "exception").cast("int"),
        callbacks_pending=outcome.isin("pending", "expired").cast("int"),
    )


def _of_moves(moves: DataFrame) -> DataFrame:
    missing = sf.col("ends_expected") - sf.col("ends_seen")
    return _row(moves.where(missing > 0), missing=missing)


def _of_fates(fates: DataFrame) -> DataFrame:
    return _row(fates.where(sf.col("fate").isin("late", "expired_in_flight")), expired=sf.lit(1))


def _of_verdicts(verdicts: DataFrame) -> DataFrame:
    return _row(verdicts.where(sf.col("status") == "invalid"), invalid_signatures=sf.lit(1))


# --- adding up --------------------------------------------------------------------------------------------------------


def _added_up(rows: DataFrame) -> DataFrame:
    one_message = rows.groupBy("correlation_key", "message_uid", "occurrence").agg(*_sums(["is_error"]))
    counted = (sf.col("sightings") > 0).cast("bigint")
    one_step = one_message.groupBy("correlation_key", "step").agg(
        sf.sum(counted).alias("messages"), sf.sum("is_error").alias("errors"), *_sums([])
    )
    return one_step.groupBy("correlation_key").agg(
        sf.max("messages").alias("fan_out"),
        sf.sum("messages").alias("messages"),
        sf.sum("errors").alias("errors"),
        *_sums([]),
    )


def _sums(more: list[str]) -> list[Column]:
    most = [name for name in _MOST if name != "is_error"] + more
    least = [name for name in _LEAST if name != "step"] + (["step"] if more else [])
    return [
        *(sf.sum(name).alias(name) for name in _COUNTS),
        *(sf.min(name).alias(name) for name in least),
        *(sf.max(name).alias(name) for name in most),
        *(sf.min_by(name, "nearness").alias(name) for name in _ROOT),
    ]


def _node_counts(messages: DataFrame) -> DataFrame:
    pairs = messages.where(is_flow()).select("correlation_key", sf.xxhash64("node_key").alias("node"))
    return pairs.repartition("correlation_key").distinct().groupBy("correlation_key").agg(sf.count("*").alias("nodes"))


# --- the root ---------------------------------------------------------------------------------------------------------


def _root_node() -> Column:
    """The node that a root was sent by: who saw it leave, or as the trail says."""
    return sf.when(sf.col("direction") == "out", sf.col("node_key")).otherwise(sf.col("origin_key"))


def _with_root(found: DataFrame, messages: DataFrame) -> DataFrame:
    types = messages.select("identity_key").distinct()
    types = types.select(sf.xxhash64("identity_key").alias("root_type"), sf.col("identity_key").alias("root_identity_key"))
    nodes = messages.select(_root_node().alias("name")).distinct().where(sf.col("name").isNotNull())
    known = names(messages).withColumnRenamed("identity_key", "name")
    nodes = nodes.join(sf.broadcast(known), "name", "left").select(
        sf.xxhash64("name").alias("root_node"), sf.coalesce("node_key", "name").alias("root_node_key")
    )
    return found.join(types, "root_type", "left").join(nodes, "root_node", "left")
