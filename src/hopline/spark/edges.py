"""The table `edges`: a minute of traffic between two ends, on two levels.

    node      from node to node: the network moves of `hops`
    message   from message type to message type: from a request to its answer (`callbacks`); and for messages that are no
              answers, from the message that caused them

The cause of a message needs no instrumentation. What a node sends has inherited the trail of what it had received; so its
cause came to the same node, in the same flow, with just that trail; of several, the last one before counts. That is looked
for in order of time, flow by flow and node by node, and never by pairing everything with everything.

Moves of which one end is not known, requests without an answer and effects without a cause are counted too, with a null end.
This file reads no bodies; what it moves are narrow rows.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.window import Window

from hopline.spark.callbacks import EXCEPTION_KEY
from hopline.spark.hops import NS_PER_MS, timestamp_of
from hopline.spark.nodes import AWAY, CAME, MADE
from hopline.spark.tables import EDGES, conform
from hopline.spark.trails import NO_FLOWS, is_flow

_ENDS: Final = ("date", "minute", "level", "source_key", "target_key", "identity_key")

_SHARES: Final = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}

_ACCURACY: Final = 10_000
"""Of percentiles: exact up to so many values, and beyond the rank is off by at most one in so many."""


def edges(messages: DataFrame, moves: DataFrame, answers: DataFrame) -> DataFrame:
    """The table `edges`.

    Args:
        messages: the table.
        moves: of `hops.find_moves`.
        answers: of `callbacks.find_answers`.
    """
    rows = _between_nodes(moves).unionByName(_to_answers(answers)).unionByName(_to_effects(messages))
    rows = rows.withColumn("minute", sf.date_trunc("minute", timestamp_of(sf.col("begun_ns"))))
    flow = sf.when(~sf.col("correlation_key").isin(*NO_FLOWS), sf.col("correlation_key"))
    has_failed = (sf.col("errors") + sf.col("lost") + sf.col("expired")) > 0
    slowest = sf.max(sf.when(flow.isNotNull() & sf.col("took_ms").isNotNull(), sf.struct("took_ms", flow.alias("flow"))))
    failed = sf.min(sf.when(flow.isNotNull() & has_failed, sf.struct("begun_ns", flow.alias("flow"))))
    first = sf.min(sf.when(flow.isNotNull(), sf.struct("begun_ns", flow.alias("flow"))))
    found = rows.groupBy(*_ENDS).agg(
        *(sf.sum(name).alias(name) for name in ("messages", "errors", "lost", "expired")),
        sf.try_sum("bytes").alias("bytes"),  # a file may say of a body that was cut whatever it likes
        sf.percentile_approx("took_ms", list(_SHARES.values()), _ACCURACY).alias("shares"),
        sf.array_distinct(sf.array_compact(sf.array(slowest["flow"], failed["flow"], first["flow"]))).alias("exemplars"),
    )
    shares = {name: sf.get("shares", sf.lit(place)) for place, name in enumerate(_SHARES)}
    return conform(found.withColumns(shares), EDGES)


def _row(rows: DataFrame, level: str, **known: Column) -> DataFrame:
    counts = ("errors", "lost", "expired")
    return rows.select(
        sf.lit(level).alias("level"),
        *(known[name].alias(name) for name in ("source_key", "target_key", "identity_key", "begun_ns", "took_ms")),
        sf.lit(1).cast("bigint").alias("messages"),
        sf.coalesce(known["bytes"], sf.lit(0)).alias("bytes"),
        *(sf.coalesce(known[name], sf.lit(col=False)).cast("bigint").alias(name) for name in counts),
        "correlation_key",
        "date",  # of what it tells of: a move over midnight is of the day before, also if it began after midnight
    )


def _between_nodes(moves: DataFrame) -> DataFrame:
    took_ms = sf.col("latency_ms") - sf.coalesce("skew_ms", sf.lit(0.0))
    return _row(
        moves.where(sf.col("kind") == "network"),
        "node",
        source_key=sf.col("from_node_key"),
        target_key=sf.col("to_node_key"),
        identity_key=sf.col("identity_key"),
        begun_ns=sf.coalesce("sent_ns", "received_ns"),
        took_ms=took_ms,
        bytes=sf.col("body_size"),
        errors=sf.col("identity_key") == EXCEPTION_KEY,
        lost=sf.col("lost"),
        expired=(sf.col("ttl_ms") < 0) | ((sf.col("ttl_ms") > 0) & (took_ms > sf.col("ttl_ms"))),
    )


def _to_answers(answers: DataFrame) -> DataFrame:
    outcome = sf.col("outcome")
    return _row(
        answers,
        "message",
        source_key=sf.col("request_identity_key"),
        target_key=sf.col("response_identity_key"),
        identity_key=sf.coalesce("response_identity_key", "request_identity_key"),
        begun_ns=sf.coalesce("requested_ns", "resolved_ns"),
        took_ms=sf.when(sf.col("asker_captured"), sf.col("wait_ms")),  # what others saw of it is no wait
        bytes=sf.col("response_size"),
        errors=sf.col("response_identity_key") == EXCEPTION_KEY,
        lost=outcome == "pending",
        expired=outcome.isin("late", "expired"),
    )


def _step(nodes: Column) -> Column:
    """A trail as a number, and as a set: where readers reverse trails, an effect has that of its cause in another order."""
    return sf.xxhash64(sf.sort_array(nodes))


def _to_effects(messages: DataFrame) -> DataFrame:
    """Messages that are no answers, with what caused them."""
    step = ["correlation_key", "node_key", "step"]
    is_effect = sf.col("tap").isin(*AWAY) & (sf.col("hops") == 1) & ~sf.col("is_callback") & (sf.size("parent_trail") > 0)
    effects = messages.where(is_flow() & is_effect)
    # A broadcast is sent once for each peer, and is one effect; so is what could not be sent to one and went to another. But
    # of equal messages that were made there each is one, and they are numbered for each peer.
    peer = sf.lit(None)
    several = messages.where(
        sf.col("tap").isin(*MADE) & (sf.col("occurrence") > 0) & (sf.col("distribution") != "broadcast")
    )
    if not several.isEmpty():  # almost always it is
        several = several.select("node_key", "message_uid", sf.lit(1).alias("several")).distinct()
        effects = effects.join(several, ["node_key", "message_uid"], "left")
        peer = sf.when(sf.col("several").isNotNull(), sf.col("peer_key"))
    effects = effects.groupBy("correlation_key", "node_key", "message_uid", "occurrence", peer.alias("peer")).agg(
        sf.min(sf.struct("seen_ns", "identity_key", "body_size", _step(sf.col("parent_trail")).alias("step"))).alias("sent")
    )
    effects = effects.select("correlation_key", "node_key", "sent.*", sf.lit("effect").alias("role"))
    causes = messages.where(is_flow() & sf.col("tap").isin(*CAME)).select(
        "correlation_key",
        "node_key",
        "seen_ns",
        "identity_key",
        "body_size",
        _step(sf.col("trail.node_key")).alias("step"),
        sf.lit("cause").alias("role"),
    )
    causes = causes.join(effects.select(*step).distinct(), step, "left_semi")
    order = Window.partitionBy(*step).orderBy("seen_ns", "role").rowsBetween(Window.unboundedPreceding, -1)
    cause = sf.last(sf.when(sf.col("role") == "cause", sf.struct("identity_key", "seen_ns")), ignorenulls=True).over(order)
    found = causes.unionByName(effects).withColumn("cause", cause).where(sf.col("role") == "effect")
    return _row(
        found.withColumn("date", timestamp_of(sf.col("seen_ns")).cast("date")),
        "message",
        source_key=sf.col("cause.identity_key"),
        target_key=sf.col("identity_key"),
        identity_key=sf.col("identity_key"),
        begun_ns=sf.col("seen_ns"),
        took_ms=sf.try_subtract(sf.col("seen_ns"), sf.col("cause.seen_ns")) / NS_PER_MS,
        bytes=sf.col("body_size"),
        errors=sf.col("identity_key") == EXCEPTION_KEY,
        lost=sf.lit(col=False),
        expired=sf.lit(col=False),
    )
