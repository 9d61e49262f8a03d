"""The table `flows`: a row for each correlation id that started a flow.

Theory of operation. Nothing is ever collected: a flow may have a million messages, and everything may share one correlation
id. What each sighting, callback, missing end, expired message and invalid signature adds to its flow is written as one
narrow row of numbers, which says what it counts; all of them are moved once, by flow; and there added up in steps that need
no further move:

    thing     uid and occurrence     so that a message counts once, however often it was seen
    step      inherited trail        so that the widest one is found
    flow

Numbers only, because then Spark adds up in hash tables that spill; texts would make it sort. So the root of a flow - its
type, who sent it and who saw it - travels as a hash, and is given its texts back at the end from the few that there are. A
message is a hash too: it is told from others of its flow only, and of a million two agree in one of 37 million such flows.

Messages are read twice: once narrowly, for the sorts of sightings that there are, of which nodes get their numbers and roots
their texts; and once for all else. Of a trail only the nodes are read, and what was inherited is its beginning: to read
`parent_trail` as well would cost more than to look there.

The nodes of a flow are bits of one number: the first nodes of a capture have one each. Only if there are more than bits, a
sighting at one of the others adds a row, in which the node is the thing that counts once.

The root is the message that has inherited nothing, as it was sent, or else as it came, or else as it was sent on; of those
the first. What records no trail inherits nothing that shows, so there only the time tells the root; but a clock may be
behind, so it is named as it was sent. This file reads no bodies and judges nothing itself: callbacks, moves, fates and
verdicts come from their own files.
"""

from functools import reduce
from itertools import pairwise
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.window import Window

from hopline.spark.callbacks import EXCEPTION_KEY
from hopline.spark.hops import NS_PER_MS, timestamp_of
from hopline.spark.nodes import AWAY, CAME, senders
from hopline.spark.tables import FLOWS, conform
from hopline.spark.trails import inherited_size, is_flow, is_traced

_FLOW: Final = "correlation_key"

_WAY: Final = "trail.node_key"
"""A trail without its URIs: wherever the trail itself is named, they are read too."""

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
"""In 2043. How near a sighting is to the root of its flow is two bits, then its time, and then whether it came untraced."""

_BITS: Final = 63
"""Nodes that have a bit of their own: a number of 64 bits has a sign."""

_NOTHING, _LIVE, _TOLD = range(3)
"""What a sort of sightings tells of names: nothing; that a node is captured under its identity; or who sent."""

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
        verdicts: of `signatures.judge`. Where none was made, on the day on which a flow began, `invalid_signatures` is null.
    """
    seen = _seen(messages)
    numbered = _numbered(seen)
    parts = [_of_messages(messages, numbered), _of_far_nodes(messages, numbered), _of_callbacks(callbacks), _of_moves(moves)]
    if fates is not None:
        parts.append(_of_fates(fates))
    if verdicts is not None:
        parts.append(_of_verdicts(verdicts))
    rows = reduce(DataFrame.unionByName, parts)
    found = _added_up(rows.where(is_flow()).repartition(_FLOW))
    found = found.join(_roots(seen), "root", "left")
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
    else:
        found = found.join(sf.broadcast(_judged_days(verdicts)), "date", "left")
        was_judged = sf.col("was_judged") | (sf.col("invalid_signatures") > 0)
        found = found.withColumn("invalid_signatures", sf.when(was_judged, sf.col("invalid_signatures")))
    return conform(found, FLOWS)


def _judged_days(verdicts: DataFrame) -> DataFrame:
    """Days on which a signature was judged. By whole days, because verdicts of an hour may have been added up."""
    judged = verdicts.where(~sf.col("status").isin("unsigned", "unchecked"))
    return judged.select(
        timestamp_of(sf.col("hour_ns")).cast("date").alias("date"), sf.lit(col=True).alias("was_judged")
    ).distinct()


# --- what each thing adds to its flow ---------------------------------------------------------------------------------


def _row(rows: DataFrame, counts: int | Column, **known: Column) -> DataFrame:
    """Rows of numbers: what is not known adds nothing."""
    numbers = (known.get(name, sf.lit(None)).cast(kind).alias(name) for name, kind in _NUMBERS.items())
    return rows.select(_FLOW, (sf.lit(counts) if isinstance(counts, int) else counts).alias("counts"), *numbers)


def _of_messages(messages: DataFrame, numbered: DataFrame) -> DataFrame:
    rank = (
        sf.when(inherited_size(_WAY) > 0, 3)
        .when(~is_traced(_WAY), 0)
        .when(sf.col("hops") > 1, 2)
        .when(sf.col("direction") == "in", 1)
        .otherwise(0)
    )
    seen = sf.greatest(sf.least("seen_ns", sf.lit(_LATEST_NS)), sf.lit(0))
    came_untraced = sf.when((sf.col("direction") == "in") & ~is_traced(_WAY), 1).otherwise(0)
    time = sf.shiftleft(seen, 1).bitwiseOR(came_untraced.cast("bigint"))
    return _row(
        messages.join(sf.broadcast(numbered), _node() == sf.col("node"), "left"),
        sf.when(sf.col("identity_key") == EXCEPTION_KEY, _FAILURE).otherwise(_MESSAGE),
        thing=sf.xxhash64("message_uid", "occurrence"),
        amount=sf.col("tap").isin(*AWAY, *CAME).cast("int"),
        step=_step(),
        seen_ns=sf.col("seen_ns"),
        nearness=sf.shiftleft(rank.cast("bigint") - 2, 62).bitwiseOR(time),
        root=sf.xxhash64("identity_key", _sender(), "node_key"),
        hops=sf.col("hops"),
        depth=_depth(),
        nodes=sf.when(sf.col("number") < _BITS, sf.expr("shiftleft(1L, number)")).otherwise(0),
    )


def _step() -> Column:
    """The trail that a message has inherited, as a set: where readers reverse trails, it may stand there in two orders."""
    way, size = sf.col(_WAY), inherited_size(_WAY)
    first, second = (sf.get(way, sf.lit(place)) for place in range(2))
    # Hardly one is longer than two, and what goes through any number is slow.
    longer = sf.xxhash64(sf.sort_array(sf.slice(way, sf.lit(1), size)))
    pair = sf.xxhash64(sf.least(first, second), sf.greatest(first, second))
    return sf.when(size == 0, 0).when(size == 1, sf.xxhash64(first)).when(size == 2, pair).otherwise(longer)


def _depth() -> Column:
    """The entries of a trail, equal neighbours counted once: a reference broadcast repeats the sender's for each peer."""
    way = sf.col(_WAY)
    size = sf.size(way)
    first = [sf.get(way, sf.lit(place)) for place in range(_SHORT)]
    repeated = sum((sf.coalesce((node == next_one).cast("int"), sf.lit(0)) for node, next_one in pairwise(first)), sf.lit(0))
    # As text: a lambda of Python gets a new name each time, and Spark compiles all that is around it anew for each query.
    differs = sf.expr(f"filter({_WAY}, (here, place) -> place = 0 OR here != {_WAY}[greatest(place - 1, 0)])")
    return sf.when(size < 2, size).when(size <= _SHORT, size - repeated).otherwise(sf.size(differs))


def _of_far_nodes(messages: DataFrame, numbered: DataFrame) -> DataFrame:
    far = numbered.where(sf.col("number") >= _BITS)  # nobody, almost always: then Spark leaves all of this out
    return _row(messages.join(sf.broadcast(far), _node() == sf.col("node")), _FAR_NODE, thing=sf.col("number"))


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


# --- adding up --------------------------------------------------------------------------------------------------------


def _added_up(rows: DataFrame) -> DataFrame:
    things = rows.groupBy(_FLOW, "counts", "thing").agg(
        sf.count("*").alias("sightings"),
        sf.sum("amount").alias("amount"),
        sf.min("step").alias("step"),
        # Of one message, what came untraced stands behind all that was sent.
        *_extremes("seen_ns", "seen_ns", sf.expr("nearness + shiftleft(nearness & 1, 62)")),
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


def _extremes(first_ns: str = "first_ns", last_ns: str = "last_ns", place: str | Column = "nearness") -> list[Column]:
    """What is as simple for a flow as for a part of it."""
    return [
        sf.min(first_ns).alias("first_ns"),
        sf.max(last_ns).alias("last_ns"),
        sf.min("nearness").alias("nearness"),
        *(sf.max(name).alias(name) for name in ("hops", "depth")),
        sf.min_by("root", place).alias("root"),
        sf.bit_or("nodes").alias("nodes"),
    ]


# --- nodes and roots --------------------------------------------------------------------------------------------------


def _seen(messages: DataFrame) -> DataFrame:
    """Sorts of sightings: which type was seen by which node, sent by whom; and what they tell of names.

    Nodes and roots are made of it. What it tells is a maximum, and all of them ask for it: so Spark reads messages once for
    all, and not for each only what that needs. It is one partition: to move so little costs more than to work on it.
    """
    tells = sf.when(sf.col("tap").startswith("wire"), _NOTHING).otherwise(_LIVE)
    rows = messages.select("node_key", "identity_key", _sender().alias("sender"), tells.alias("tells"))
    told = senders(messages).select("node_key", sf.lit(None), "identity_key", sf.lit(_TOLD))
    return rows.union(told).groupBy("node_key", "identity_key", "sender").agg(sf.max("tells").alias("tells")).coalesce(1)


def _sender() -> Column:
    """The node that a message was sent by, if it is a root: who saw it before it left, or as the trail says."""
    is_within = (sf.col("tap") == "router_in") & (sf.col("hops") == 0)
    return sf.when((sf.col("direction") == "out") | is_within, sf.col("node_key")).otherwise(sf.col("origin_key"))


def _node() -> Column:
    return sf.xxhash64("node_key")


def _numbered(seen: DataFrame) -> DataFrame:
    """All nodes of a capture, numbered from 0."""
    nodes = seen.where(sf.col("tells") < _TOLD).select("node_key").distinct()
    number = sf.row_number().over(Window.orderBy(sf.asc_nulls_last("node_key"))) - 1
    numbered = nodes.select("node_key", _node().alias("node"), number.alias("number"))
    # Who is not named has a hash too, and must not be found by it. Left out here, and not before: Spark would take that down
    # to the messages, and read them once for nodes and once for roots.
    return numbered.where(sf.col("node_key").isNotNull()).drop("node_key")


def _roots(seen: DataFrame) -> DataFrame:
    """All that may be a root, with the names of its type and node."""
    tells = sf.col("tells")
    identity = sf.when(tells == _TOLD, sf.col("sender")).otherwise(sf.col("node_key"))  # as in `nodes.names`
    known = seen.where(tells > _NOTHING).groupBy(identity.alias("sender")).agg(sf.min("node_key").alias("name"))
    return (
        seen.where(tells < _TOLD)
        .join(known.hint("merge"), "sender", "left")
        .select(
            sf.xxhash64("identity_key", "sender", "node_key").alias("root"),
            sf.col("identity_key").alias("root_identity_key"),
            sf.coalesce("name", "sender").alias("root_node_key"),
        )
    )
