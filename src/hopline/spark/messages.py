"""The table `messages`: sightings as the source gives them, and the two things that take several sightings to know.

    occurrence    which of several equal messages this is: the wire has no instance id, and equal sends equal fingerprints
    trail_order   whether the trail is in the order in which it was travelled (`trails.py`)

Theory of the occurrence. Equal messages that pass the same place - node, tap, hop and peer - are numbered in the order of
time. The n-th that a node sends meets the n-th that its peer gets, and no clocks are compared. A broadcast is one message
for many: its copies for several peers pass several places, and so have the same number; where it comes, the peer is who sent
it, as its trail says. Inside a node its copies for several actors have the number of the message that was spread, which is
the last one before them; and so has what the router looks at, once or more often.

`finish` makes the table in one step, and moves all rows by their fingerprint. Where there are many, few of them need another
number than the first: `repeated.py` and `renumbered` tell which (`window.py`). This file knows no other table.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.window import Window

from hopline.spark.nodes import AWAY, CAME, MADE
from hopline.spark.repeated import UID_BYTES
from hopline.spark.tables import MESSAGES, conform
from hopline.spark.trails import restore

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
    rows = _numbered(rows.repartition("message_uid"))
    return conform(restore(rows, sightings), MESSAGES, without=() if "body" in sightings.columns else ("body",))


def renumbered(messages: DataFrame, repeated: DataFrame) -> DataFrame:
    """Those messages whose number is not the one that they should have, with that one.

    Args:
        messages: all there are, with some number each.
        repeated: `uid`, how fingerprints begin that passed a place more than once, or were thought to have. Only there
            numbers may be wrong: all others have the number 0. A few too many do no harm.
    """
    is_repeated = sf.substring("message_uid", 1, UID_BYTES) == sf.col("uid")
    rows = messages.join(repeated, is_repeated, "left_semi").withColumn("_stood", sf.col("occurrence"))
    return _numbered(rows).where(sf.col("occurrence") != sf.col("_stood"))


def _numbered(rows: DataFrame) -> DataFrame:
    """Number rows within their places, and copies like what they are copies of."""
    by_tap = sf.xxhash64("node_key", "hops", "tap", sf.coalesce(_sender(), "peer_key", sf.lit("")))
    inside = sf.xxhash64("node_key", "hops")
    # A router looks at a message as often as it takes to find a way for it.
    starts = (sf.col("tap") != "router_in") & ~(_is_spread() & sf.col("tap").isin(*_COPIES))
    rows = rows.withColumns(
        {
            "_place": sf.when(_is_spread() & _sender().isNull(), inside).otherwise(by_tap),
            "_inside": inside,
            "_starts": starts,
        }
    )
    before = {
        place: Window.partitionBy("message_uid", place)
        .orderBy("seen_ns", sf.col("_starts").desc(), "seq", "event_id")  # taps count by themselves: copies come behind
        .rowsBetween(Window.unboundedPreceding, 0)
        for place in ("_place", "_inside")
    }
    own = sf.sum(sf.col("_starts").cast("int")).over(before["_place"]) - 1
    rows = rows.withColumn("_own", sf.when(sf.col("_starts"), own))
    last = sf.last(sf.when(sf.col("tap").isin(*MADE, *CAME), sf.col("_own")), ignorenulls=True).over(before["_inside"])
    return rows.withColumn("occurrence", sf.coalesce("_own", last, sf.lit(0)).cast("int"))


def _is_spread() -> Column:
    return (sf.col("distribution") == "broadcast") & ~sf.col("tap").isin(*AWAY)


def _sender() -> Column:
    """Who has sent a broadcast that came, if its trail says so, under whatever socket it is connected; else null."""
    came = (sf.col("distribution") == "broadcast") & sf.col("tap").isin(*CAME)
    return sf.when(came & (sf.col("hops") == 1), sf.col("origin_key"))
