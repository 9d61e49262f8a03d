"""The table `hops`: messages moving, each move with its ends, its latency and what can be said of the clocks.

Which sightings make a move is found in `moves.py`. What is left without a partner is half a move: an arrival whose sending
was not captured, or a sending that arrived nowhere. That is a loss if the node it was sent to was captured at that time,
else nobody knows.

Clocks. Nodes stamp sightings by their own clocks. The shortest latencies of both directions between two nodes tell how far
apart these are, if one of them is clearly negative: half of their difference. That is estimated for each day, by messages
that occur once. This file reads no bodies; what it joins to moves is a row a node, or a row a pair of nodes and day.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from hopline.spark.keeping import Keep, as_it_is
from hopline.spark.moves import pair
from hopline.spark.nodes import Nodes, covers, find_nodes, keeps_alike
from hopline.spark.tables import HOPS, conform
from hopline.spark.trails import is_flow

NS_PER_MS: Final = 1e6

_JITTER: Final = 0.01
"""Of the shortest way there and back: a latency that is below zero by less says nothing of the clocks. To correct them may
be wrong by half of that way, and not to by a hundredth."""


def hops(moves: DataFrame) -> DataFrame:
    """The table `hops`, of moves."""
    return conform(moves, HOPS)


def find_moves(messages: DataFrame, keep: Keep = as_it_is, nodes: Nodes | None = None) -> DataFrame:
    """All moves of messages: the columns of `hops`, and what other tables need to know of a move.

    Beside the columns of the table these are

        sent_ns, received_ns   the raw times
        ttl_ms, body_size      what the message said at this move
        ends_seen              ends of the move, 1 or 2, at which it was seen,
        ends_expected          and at which it should have been, as its node was captured

    Args:
        messages: the table.
        keep: keeps what is looked at more than once, here all moves: for the clocks, and then with what these tell.
        nodes: who was captured, if messages are not all that was seen.
    """
    captured, names = nodes or find_nodes(messages)
    moves = _with_skew(keep("pairs", _timed(pair(messages, names, keep))))
    ends = {
        "to": captured.select(*(sf.col(name).alias(f"_to_{name}") for name in captured.columns)),
        "from": captured.select(*(sf.col(name).alias(f"_from_{name}") for name in captured.columns)),
    }
    for end, of_end in ends.items():
        moves = moves.join(sf.broadcast(of_end), sf.col(f"{end}_node_key") == sf.col(f"_{end}_node_key"), "left")
    skew_ns = ns_of("skew_ms")
    is_half_sent, is_half_received = sf.col("received_ns").isNull(), sf.col("sent_ns").isNull()
    there, back = sf.try_add("sent_ns", skew_ns), sf.try_subtract("received_ns", skew_ns)

    def is_kept(one: str, other: str) -> Column:
        """Whether what one node has seen is among what the other one records, and in the same way."""
        has_it = sf.col(f"{other}share") >= sf.coalesce(f"{one}share", sf.lit(0))  # the greater share has all of the smaller
        return has_it & keeps_alike(sf.col("body_size"), one, other)

    lost = sf.when(is_half_sent & is_kept("_from_", "_to_"), covers(there, there, "hears", end="_to_"))
    unseen = sf.when(is_half_received & is_kept("_to_", "_from_"), covers(back, back, "speaks", end="_from_"))
    seen = sf.when(is_half_sent | is_half_received, 1).otherwise(2)
    return moves.withColumns(
        {
            "lost": sf.coalesce(lost, sf.lit(col=False)),
            "ends_seen": seen,
            "ends_expected": seen + sf.coalesce(lost, unseen, sf.lit(col=False)).cast("int"),
            "sent_at": timestamp_of(sf.col("sent_ns")),
            "received_at": timestamp_of(sf.col("received_ns")),
        }
    ).drop(*(f"_{end}_{name}" for end in ends for name in captured.columns))


def skews(moves: DataFrame) -> DataFrame:
    """How far the clocks of two nodes are apart, where that is known: date, from_node_key, to_node_key, skew_ms."""
    return moves.where(sf.col("skew_ms") != 0).select("date", "from_node_key", "to_node_key", "skew_ms").distinct()


def _timed(moves: DataFrame) -> DataFrame:
    # Of all that is known of a message at this hop: what is joined over midnight is of one day, also its later moves.
    date = timestamp_of(sf.col("first_ns")).cast("date")
    latency_ms = sf.try_subtract("received_ns", "sent_ns") / NS_PER_MS
    return moves.withColumns({"latency_ms": latency_ms, "date": date}).drop("first_ns")


def timestamp_of(ns: Column) -> Column:
    """A point in time of nanoseconds since 1970; of a microsecond that has begun the beginning, before 1970 too."""
    # `div` goes towards 0: what is seen just before a day, long ago, would be of that day, and not of its own.
    return sf.timestamp_micros(sf.call_function("div", ns, sf.lit(1000)) - (ns % 1000 < 0).cast("int"))


def ns_of(ms: str) -> Column:
    """Milliseconds as nanoseconds; 0 if they are not known, or too many."""
    return sf.coalesce((sf.col(ms) * NS_PER_MS).try_cast("bigint"), sf.lit(0))


# --- clocks -----------------------------------------------------------------------------------------------------------


def _with_skew(moves: DataFrame) -> DataFrame:
    day = ("date", "from_node_key", "to_node_key")
    # What has a flow of its own occurs once, mostly; what does not, such as a heart beat, may have been paired with another
    # one. So may be the first of several equal ones, if it was lost, or one end was captured before the other.
    is_sure = (sf.col("kind") == "network") & (sf.col("matched_by") == "uid") & is_flow()
    repeated = moves.where(is_flow() & (sf.col("occurrence") > 0)).select("message_uid").distinct()
    sure = moves.where(is_sure & sf.col("latency_ms").isNotNull()).join(repeated, "message_uid", "left_anti")
    least = sure.groupBy(*day).agg(sf.min("latency_ms").alias("there"))
    back = least.select(
        "date",
        sf.col("to_node_key").alias("from_node_key"),
        sf.col("from_node_key").alias("to_node_key"),
        sf.col("there").alias("back"),
    )
    # Two clocks that agree still stamp a little too early or too late, of which half a round trip must not be made.
    is_apart = -sf.least("there", "back") > _JITTER * (sf.col("there") + sf.col("back"))
    skew = sf.when(is_apart, (sf.col("there") - sf.col("back")) / 2).otherwise(0.0)
    known = least.join(sf.broadcast(back), list(day)).select(*day, skew.alias("skew_ms"))
    return moves.join(sf.broadcast(known), list(day), "left")
