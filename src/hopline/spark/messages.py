"""The table `messages`: sightings as the source gives them, and the two things that take several sightings to know.

    occurrence    which of several equal messages this is: the wire has no instance id, and equal sends equal fingerprints
    trail_order   whether the trail is in the order in which it was travelled (`trails.py`)

Theory of the occurrence. Equal messages that pass the same place - node, tap, hop and peer - are numbered in the order of
time. The n-th that a node sends meets the n-th that its peer gets, and no clocks are compared. A broadcast is one message
for many: its copies for several peers pass several places, and so have the same number. Inside a node its copies for several
actors pass one place; there the number is that of the message that was spread, which is the last one before them.

Rows are moved once, by their fingerprint; nothing wide is joined. This file knows no other table.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.window import Window

from hopline.spark.tables import MESSAGES, conform
from hopline.spark.trails import restore

_PLACE: Final = ("message_uid", "_place")
"""Where equal messages are numbered: the place is node, tap, hop and peer as one number, as rows are sorted by it."""

_AWAY: Final = ("scaleout_out", "wire_out")
_COPIES: Final = ("router_in", "actor_in", "hub_in")
"""Taps that a broadcast inside a node passes once for each who gets it."""


def finish(sightings: DataFrame, *, earlier: DataFrame | None = None, seen: DataFrame | None = None) -> DataFrame:
    """Make the table `messages` of sightings.

    Args:
        sightings: what `format("hopline")` gives: all columns, with or without `body`. A `peer_key` that is missing is taken
            to be unknown; then copies of a broadcast to several peers cannot be told from equal messages.
        earlier: what the table holds already, if these sightings come on top of it: numbers go on where they ended. It needs
            the columns message_uid, node_key, tap, peer_key, hops and distribution; of the days that matter.
        seen: sightings that show the way of trails (`trails.restore`); by default these. With few columns it costs little.
    """
    rows = _with_peer(sightings)
    order = Window.partitionBy(*_PLACE).orderBy("seen_ns", "seq", "event_id").rowsBetween(Window.unboundedPreceding, 0)
    number = sf.sum(_starts().cast("int")).over(order)
    rows = _placed(rows).repartition("message_uid")
    if earlier is not None:
        before = _placed(_with_peer(earlier)).groupBy(*_PLACE).agg(sf.sum(_starts().cast("int")).alias("_before"))
        rows = rows.join(before, list(_PLACE), "left")
        number = number + sf.coalesce("_before", sf.lit(0))
    rows = rows.withColumn("occurrence", sf.greatest(number - 1, sf.lit(0)))
    rows = restore(rows, sightings if seen is None else seen)
    return conform(rows, MESSAGES, without=() if "body" in sightings.columns else ("body",))


def _with_peer(rows: DataFrame) -> DataFrame:
    return rows if "peer_key" in rows.columns else rows.withColumn("peer_key", sf.lit(None).cast("string"))


def _placed(rows: DataFrame) -> DataFrame:
    """Name the place of each row. All that a broadcast passes inside a node is one place: copies follow what was spread."""
    by_tap = sf.xxhash64("node_key", "hops", "tap", sf.coalesce("peer_key", sf.lit("")))
    return rows.withColumn("_place", sf.when(_is_spread(), sf.xxhash64("node_key", "hops")).otherwise(by_tap))


def _is_spread() -> Column:
    return (sf.col("distribution") == "broadcast") & ~sf.col("tap").isin(*_AWAY)


def _starts() -> Column:
    """Whether a row is a message of its own, and not a copy of the one before."""
    return ~(_is_spread() & sf.col("tap").isin(*_COPIES))
