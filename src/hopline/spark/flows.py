"""The table `flows`: a row for each correlation id that started a flow.

Theory of operation. Nothing is ever collected: a flow may have a million messages, and everything may share one correlation
id. What each sighting, callback, missing end, expired message and invalid signature adds to its flow is written as one
narrow row of numbers, which says what it counts; all of them are moved once, by flow; and there added up in steps that need
no further move:

    thing     uid and occurrence     so that a message counts once, however often it was seen
    step      inherited trail        so that the widest one is found
    flow

Numbers only, because then Spark adds up in hash tables that spill; texts would make it sort. So the root of a flow - its
type and its node - travels as a hash, and is given its texts back at the end from the few that there are. A message is a
hash too: it is told from others of its flow only, and of a million two agree in one of 37 million such flows.

The nodes of a flow are bits of one number: the first nodes of a capture have one each. Only if there are more than bits, a
sighting at one of the others adds a row, in which the node is the thing that counts once.

The root is the message that has inherited nothing, as it was sent, or else as it came; of those the first. This file reads
no bodies and judges nothing itself: callbacks, moves, fates and verdicts come from their own files.
"""

from functools import reduce
from itertools import pairwise
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.window import Window

from hopline.spark.callbacks import EXCEPTION_KEY
from hopline.spark.hops import NS_PER_MS, timestamp_of
from hopline.spark.nodes import AWAY, CAME, names
from hopline.spark.tables import FLOWS, conform
from hopline.spark.trails import is_flow

_FLOW: Final = "correlation_key"

_MESSAGE, _FAILURE, _FAR_NODE, *_REST = range(9)
"""What a row counts: a message, one that reports a failure, a node without a bit,"""

_COUNTS: Final = dict(
    zip(
        ("callbacks_ok", "callbacks_exception", "callbacks_pending", "missing", "expired", "invalid_signatures"),
        _REST,
        strict=True,
    )
)
"""or one of these."""

_OUTCOMES: Final = {
    "ok": "callbacks_ok",
    "exception": "callbacks_exception",
    "pending": "callbacks_pending",
    "expired": "callbacks_pending",
}

_NUMBERS: Final = {
    "thing": "bigint",
    "amount": "bigint",
    "step": "bigint",
    "seen_ns": "bigint",
    "nearness": "bigint",
    "root": "bigint",
    "hops": "int",
    "depth": "int",
    "nodes": "bigint",
}
"""What else a row may say. The amount of a sighting is whether it was on the network."""

_LATEST_NS: Final = 2**61 - 1
"""In 2043. The two bits above say how near a sighting is to the root of its flow."""

_BITS: Final = 63
"""Nodes that have a bit of their own: a number of 64 bits has a sign."""

_SHORT: Final = 4
"""Entries of a trail that are compared one by one. Hardly one is longer, and what goes through any number is slow."""


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
    numbered = _numbered(messages)
    parts = [_of_messages(messages, numbered), _of_far_nodes(messages, numbered), _of_callbacks(callbacks), _of_moves(moves)]
    if fates is not None:
        parts.append(_of_fates(fates))
    if verdicts is not None:
        parts.append(_of_verdicts(verdicts))
    rows = reduce(DataFrame.unionByName, parts)
    found = _added_up(rows.where(is_flow()).repartition(_FLOW))
    found = found.join(_roots(messages), "root", "left")
    network = sf.col("network")
    found = found.withColumns(
        {
            "started_at": timestamp_of(sf.col("first_ns")),
            "ended_at": timestamp_of(sf.col("last_ns")),
            "duration_ms": sf.try_subtract("last_ns", "first_ns") / NS_PER_MS,
            "nodes": sf.bit_count("nodes") + sf.col("far_nodes"),
            "completeness": sf.when(network > 0, network / (network + sf.col("missing"))).otherwise(1.0),
            "date": timestamp_of(sf.col("first_ns")).cast("date"),
        }
    )
    if verdicts is None:
        found = found.withColumn("invalid_signatures", sf.lit(None))
    return conform(found, FLOWS)


# --- what each thing adds to its flow ---------------------------------------------------------------------------------


def _row(rows: DataFrame, counts: int | Column, **known: Column) -> DataFrame:
    """Rows of numbers: what is not known adds nothing."""
    numbers = (known.get(name, sf.lit(None)).cast(kind).alias(name) for name, kind in _NUMBERS.items())
    return rows.select(_FLOW, (sf.lit(counts) if isinstance(counts, int) else counts).alias("counts"), *numbers)


def _of_messages(messages: DataFrame, numbered: DataFrame) -> DataFrame:
    parent = sf.col("parent_trail")
    # As a set: where readers reverse trails, two messages of one step may have it in two orders.
    step = sf.when(sf.size(parent) < 2, sf.xxhash64(parent)).otherwise(sf.xxhash64(sf.sort_array(parent)))
    rank = sf.when(sf.size(parent) > 0, 2).when(sf.col("direction") == "in", 1).otherwise(0)
    seen = sf.greatest(sf.least("seen_ns", sf.lit(_LATEST_NS)), sf.lit(0))
    return _row(
        messages.join(sf.broadcast(numbered), "node_key", "left"),
        sf.when(sf.col("identity_key") == EXCEPTION_KEY, _FAILURE).otherwise(_MESSAGE),
        thing=sf.xxhash64("message_uid", "occurrence"),
        amount=sf.col("tap").isin(*AWAY, *CAME).cast("int"),
        step=step,
        seen_ns=sf.col("seen_ns"),
        nearness=sf.shiftleft(rank.cast("bigint"), 61).bitwiseOR(seen),
        root=sf.xxhash64("identity_key", _root_node()),
        hops=sf.col("hops"),
        depth=_depth(),
        nodes=sf.when(sf.col("number") < _BITS, sf.expr("shiftleft(1L, number)")).otherwise(0),
    )


def _depth() -> Column:
    """The entries of a trail, equal neighbours counted once: a reference broadcast repeats the sender's for each peer."""
    trail = sf.col("trail")
    size, nodes = sf.size(trail), sf.col("trail.node_key")
    first = [sf.get(trail, sf.lit(place))["node_key"] for place in range(_SHORT)]
    repeated = sum((sf.coalesce((node == next_one).cast("int"), sf.lit(0)) for node, next_one in pairwise(first)), sf.lit(0))
    differs = sf.filter(nodes, lambda node, place: (place == 0) | (node != nodes[sf.greatest(place - 1, sf.lit(0))]))
    return sf.when(size < 2, size).when(size <= _SHORT, size - repeated).otherwise(sf.size(differs))


def _of_far_nodes(messages: DataFrame, numbered: DataFrame) -> DataFrame:
    far = numbered.where(sf.col("number") >= _BITS)  # nobody, almost always: then Spark leaves all of this out
    return _row(messages.join(sf.broadcast(far), "node_key"), _FAR_NODE, thing=sf.col("number"))


def _of_callbacks(callbacks: DataFrame) -> DataFrame:
    outcome, counts = sf.col("outcome"), sf.lit(None)
    for name, column in _OUTCOMES.items():
        counts = sf.when(outcome == name, _COUNTS[column]).otherwise(counts)
    return _row(callbacks.where(outcome.isin(*_OUTCOMES)), counts, amount=sf.lit(1))


def _of_moves(moves: DataFrame) -> DataFrame:
    is_missing = (sf.col("ends_seen") == 1) & (sf.col("ends_expected") == 2)  # so that files without such are not read
    return _row(moves.where(is_missing), _COUNTS["missing"], amount=sf.lit(1))


def _of_fates(fates: DataFrame) -> DataFrame:
    return _row(fates.where(sf.col("fate").isin("late", "expired_in_flight")), _COUNTS["expired"], amount=sf.lit(1))


def _of_verdicts(verdicts: DataFrame) -> DataFrame:
    return _row(verdicts.where(sf.col("status") == "invalid"), _COUNTS["invalid_signatures"], amount=sf.lit(1))


def _numbered(messages: DataFrame) -> DataFrame:
    """All nodes of a capture, numbered from 0."""
    number = sf.row_number().over(Window.orderBy("node_key")) - 1
    return messages.select("node_key").distinct().select("node_key", number.alias("number"))


# --- adding up --------------------------------------------------------------------------------------------------------


def _added_up(rows: DataFrame) -> DataFrame:
    things = rows.withColumns({"first_ns": sf.col("seen_ns"), "last_ns": sf.col("seen_ns")})
    things = things.groupBy(_FLOW, "counts", "thing").agg(
        sf.count("*").alias("sightings"), sf.sum("amount").alias("amount"), sf.min("step").alias("step"), *_extremes()
    )
    is_failure = sf.col("counts") == _FAILURE
    things = things.withColumns(
        {"counts": sf.when(is_failure, _MESSAGE).otherwise(sf.col("counts")), "errors": is_failure.cast("int")}
    )
    steps = things.groupBy(_FLOW, "counts", "step").agg(
        sf.count("*").alias("things"),
        *(sf.sum(name).alias(name) for name in ("errors", "sightings", "amount")),
        *_extremes(),
    )

    def of(counts: int, name: str) -> Column:
        return sf.when(sf.col("counts") == counts, sf.col(name)).otherwise(0)

    found = steps.groupBy(_FLOW).agg(
        sf.sum(of(_MESSAGE, "things")).alias("messages"),
        sf.max(of(_MESSAGE, "things")).alias("fan_out"),
        sf.sum("errors").alias("errors"),
        sf.sum(of(_MESSAGE, "sightings")).alias("sightings"),
        sf.sum(of(_MESSAGE, "amount")).alias("network"),
        sf.sum(of(_FAR_NODE, "things")).alias("far_nodes"),
        *(sf.sum(of(counts, "amount")).alias(name) for name, counts in _COUNTS.items()),
        *_extremes(),
    )
    return found.where(sf.col("messages") > 0).withColumnRenamed("hops", "max_hops")


def _extremes() -> list[Column]:
    """What is as simple for a flow as for a part of it."""
    return [
        *(sf.min(name).alias(name) for name in ("first_ns", "nearness")),
        *(sf.max(name).alias(name) for name in ("last_ns", "hops", "depth")),
        sf.min_by("root", "nearness").alias("root"),
        sf.bit_or("nodes").alias("nodes"),
    ]


# --- the root ---------------------------------------------------------------------------------------------------------


def _root_node() -> Column:
    """The node that a root was sent by: who saw it leave, or as the trail says."""
    return sf.when(sf.col("direction") == "out", sf.col("node_key")).otherwise(sf.col("origin_key"))


def _roots(messages: DataFrame) -> DataFrame:
    """All that may be a root, with the names of its type and node."""
    pairs = messages.select("identity_key", _root_node().alias("name")).distinct()
    known = names(messages).withColumnRenamed("identity_key", "name")
    return pairs.join(sf.broadcast(known), "name", "left").select(
        sf.xxhash64("identity_key", "name").alias("root"),
        sf.col("identity_key").alias("root_identity_key"),
        sf.coalesce("node_key", "name").alias("root_node_key"),
    )
