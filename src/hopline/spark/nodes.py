"""The nodes of a capture: from when to when each was captured, and which identity belongs to which name.

    captured   what can be expected: a message that nobody saw is lost only if somebody looked
    names      a live node is captured under its identity, as trails have it. An imported file gives it a free name
               ("server"); then its identity is learned from what it sends, whose last trail entry is the sender itself
    senders    what is learned so, message by message

The first two are small, a row a node, and are joined to large tables by being sent to all executors. Both are told by all
that was seen, also where a table is made of a part of it (`find_nodes`). This file knows no other table.
"""

from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from hopline.spark.keeping import Keep, as_it_is

AWAY: Final = ("scaleout_out", "wire_out")
"""Taps where a message leaves for another node."""

CAME: Final = ("scaleout_in", "wire_in")
"""Taps where a message comes from another node."""

MADE: Final = ("hub_out", "actor_out")
"""Taps where a message begins."""

GIVEN: Final = ("actor_in", "hub_in")
"""Taps where a message ends."""


class Nodes(NamedTuple):
    """The nodes of a capture: rows of `captured`, and of `names`."""

    captured: DataFrame
    names: DataFrame


def find_nodes(messages: DataFrame, keep: Keep = as_it_is) -> Nodes:
    """The nodes of a capture.

    Args:
        messages: the table.
        keep: keeps what is looked at more than once: by each table that is made of messages.
    """
    return Nodes(keep("captured", captured(messages)), keep("names", names(messages)))


def captured(messages: DataFrame) -> DataFrame:
    """A row for each node that was captured: node_key, first_ns and last_ns, speaks, hears, gives and gets.

    These say what its capture has: what it sent to other nodes, what it got from them, what was given to its actors, and
    anything at all that came to it or to its hubs.
    """
    return messages.groupBy("node_key").agg(
        sf.min("seen_ns").alias("first_ns"),
        sf.max("seen_ns").alias("last_ns"),
        sf.max(sf.col("tap").isin(*AWAY)).alias("speaks"),
        sf.max(sf.col("tap").isin(*CAME)).alias("hears"),
        sf.max(sf.col("tap") == "actor_in").alias("gives"),
        sf.max(sf.col("tap").isin(*CAME, "router_in", "hub_in")).alias("gets"),
    )


def names(messages: DataFrame) -> DataFrame:
    """A row for each identity that is known: identity_key, and the node_key under which it was captured."""
    is_live = ~sf.col("tap").startswith("wire")
    live = messages.where(is_live).select(sf.col("node_key").alias("identity_key"), "node_key")
    # Distinct first: the least of texts is found by sorting.
    pairs = live.distinct().unionByName(senders(messages).distinct())
    return pairs.groupBy("identity_key").agg(sf.min("node_key").alias("node_key"))


def senders(messages: DataFrame) -> DataFrame:
    """A row for each imported message that tells who sent it: identity_key, and the node_key that the file gives.

    Where nothing was imported, no trail is read.
    """
    trail = sf.col("trail")
    has_sent = (sf.col("tap") == "wire_out") & (sf.col("hops") > 0) & (sf.size(trail) > 0)
    sender = sf.try_element_at(trail, sf.lit(-1))["node_key"]
    return messages.where(has_sent).select(sender.alias("identity_key"), "node_key")


def covers(moment_ns: Column, first_ns: str = "first_ns", last_ns: str = "last_ns") -> Column:
    """Whether a moment lies within the time that a node was captured; null if it was not."""
    return moment_ns.between(sf.col(first_ns), sf.col(last_ns))
