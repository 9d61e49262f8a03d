"""The table `messages`: sightings as the source gives them, and the two things that take several sightings to know.

    occurrence    which of several equal messages this is: the wire has no instance id, and equal sends equal fingerprints
    trail_order   whether the trail is in the order in which it was travelled (`trails.py`)

Theory of the occurrence. Equal messages that pass the same place - node, tap, hop and peer - are numbered in the order of
time. The n-th that a node sends meets the n-th that its peer gets, and no clocks are compared. A broadcast is one message
for many: its copies for several peers pass several places, and so have the same number. Inside a node its copies for several
actors pass one place; there the number is that of the message that was spread, which is the last one before them.

`finish` makes the table in one step, and moves all rows by their fingerprint. Where there are many, few of them need another
number than the first: `repeated.py` and `renumbered` tell which (`window.py`). This file knows no other table.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.window import Window

from hopline.spark.repeated import UID_BYTES
from hopline.spark.tables import MESSAGES, conform
from hopline.spark.trails import restore

_PLACE: Final = ("message_uid", "_place")
"""Where equal messages are numbered: the place is node, tap, hop and peer as one number, as rows are sorted by it."""

_AWAY: Final = ("scaleout_out", "wire_out")
_COPIES: Final = ("router_in", "actor_in", "hub_in")
"""Taps that a broadcast inside a node passes once for each who gets it."""


ALONE: Final = {"occurrence": 0, "trail_order": "exact", "wire_trail": None}
"""What stands in those columns of a sighting of which no other is known."""


def finish(sightings: DataFrame) -> DataFrame:
    """Make the table `messages` of sightings.

    Args:
        sightings: what `format("hopline")` gives: all columns, with or without `body`. A `peer_key` that is missing is taken
            to be unknown; then copies of a broadcast to several peers cannot be told from equal messages.
    """
    rows = sightings if "peer_key" in sightings.columns else sightings.withColumn("peer_key", sf.lit(None).cast("string"))
    rows = _placed(rows).repartition("message_uid").withColumn("occurrence", _number())
    return conform(restore(rows, sightings), MESSAGES, without=() if "body" in sightings.columns else ("body",))


def renumbered(messages: DataFrame, repeated: DataFrame) -> DataFrame:
    """Those messages whose number is not the one that they should have, with that one.

    Args:
        messages: all there are, with some number each.
        repeated: `uid`, how fingerprints begin that passed a place more than once, or were thought to have. Only there
            numbers may be wrong: all others have the number 0. A few too many do no harm.
    """
    is_repeated = sf.substring("message_uid", 1, UID_BYTES) == sf.col("uid")
    rows = _placed(messages.join(repeated, is_repeated, "left_semi")).withColumn("_stood", sf.col("occurrence"))
    return rows.withColumn("occurrence", _number()).where(sf.col("occurrence") != sf.col("_stood"))


def _number() -> Column:
    order = Window.partitionBy(*_PLACE).orderBy("seen_ns", "seq", "event_id").rowsBetween(Window.unboundedPreceding, 0)
    return sf.greatest(sf.sum(_starts().cast("int")).over(order) - 1, sf.lit(0)).cast("int")


def _placed(rows: DataFrame) -> DataFrame:
    """Name the place of each row. All that a broadcast passes inside a node is one place: copies follow what was spread."""
    by_tap = sf.xxhash64("node_key", "hops", "tap", sf.coalesce("peer_key", sf.lit("")))
    return rows.withColumn("_place", sf.when(_is_spread(), sf.xxhash64("node_key", "hops")).otherwise(by_tap))


def _is_spread() -> Column:
    return (sf.col("distribution") == "broadcast") & ~sf.col("tap").isin(*_AWAY)


def _starts() -> Column:
    """Whether a row is a message of its own, and not a copy of the one before."""
    return ~(_is_spread() & sf.col("tap").isin(*_COPIES))
