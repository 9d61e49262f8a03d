"""Trails put back in order, as far as other sightings of the same flow show what happened to them.

Reference nodes that read v3, v4 or v5 hand a trail on in reverse. How its order is found again is a rule of flows
(`hopline.flow.order`): by who was seen to send to whom. Here these pairs are collected, by flow: a message that came to a
node names in its last entry who sent it there, and a broadcast whose last entries are the same says that its sender repeats
itself.

Only trails of three and more entries can be out of order, and only where a flow was sent by v3, v4 or v5 with so many. For
all others nothing is joined. This file knows no occurrence and no other table.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from hopline.flow.order import find_order

OLD_FORMATS: Final = ("v3", "v4", "v5")
"""The formats that reference nodes read in reverse."""

NO_FLOWS: Final = ("", "00000000-0000-0000-0000-000000000000")
"""Correlation keys that start no flow: service messages and strays have them."""

SHORTEST: Final = 3
"""Entries from which on a trail can be out of order."""

MOST_PAIRS: Final = 1024
"""Pairs of nodes of one flow that are looked at: a flow over more nodes than that stays ambiguous, and does no harm."""

_READ: Final = "message_uid binary, event_id string, hops int, order string, places array<int>"


def is_flow(correlation_key: str = "correlation_key") -> Column:
    """Whether a correlation key is that of a flow."""
    return ~sf.col(correlation_key).isin(*NO_FLOWS)


def restore(messages: DataFrame, seen: DataFrame) -> DataFrame:
    """Put the trails of messages in order, and say in `trail_order` how sure that is.

    `origin_key` and `parent_trail` follow the trail; as it was before, a trail that was changed is in `wire_trail`.

    Args:
        messages: sightings with the columns of `messages`.
        seen: what is known of their flows: at least these sightings, perhaps read with fewer columns: event_id,
            message_uid, correlation_key, node_key, tap, format, distribution, hops and trail.
    """
    is_doubtful = (sf.size("trail") >= SHORTEST) & sf.col("format").isin(*OLD_FORMATS)
    unread = sf.when(is_doubtful, "ambiguous").otherwise("exact")
    changed = ("trail", "origin_key", "parent_trail")
    is_it = (sf.col("message_uid") == sf.col("_uid")) & (sf.col("event_id") == sf.col("_event_id"))
    rows = messages.join(_read(seen), is_it, "left")
    return rows.withColumns(
        {
            "trail_order": sf.coalesce("_order", unread),
            "wire_trail": sf.when(sf.col("_order") == "restored", sf.col("trail")),
            # An origin that is not known is null, so it is the order that tells whether something was changed.
            **{
                name: sf.when(sf.col("_order") == "restored", sf.col(f"_{name}")).otherwise(sf.col(name)) for name in changed
            },
        }
    ).drop("_uid", "_event_id", "_order", *(f"_{name}" for name in changed))


def unrestored(messages: DataFrame) -> DataFrame:
    """Messages as they were before `restore`, without what it has added: other sightings may tell something else now."""
    is_restored, nodes = sf.col("wire_trail").isNotNull(), sf.col("wire_trail.node_key")
    wire = {
        "trail": sf.col("wire_trail"),
        "origin_key": sf.get(nodes, inherited_size()),
        "parent_trail": sf.slice(nodes, sf.lit(1), inherited_size()),
    }
    columns = {name: sf.when(is_restored, before).otherwise(sf.col(name)) for name, before in wire.items()}
    return messages.withColumns(columns).drop("trail_order", "wire_trail")


def reread(messages: DataFrame) -> DataFrame:
    """Those messages whose trail, or what is said of its order, is not as it should be, put right.

    Args:
        messages: all there are, with some order each, put right before or not.
    """
    stood = messages.where(sf.size("trail") >= SHORTEST)
    stood = stood.withColumns({"stood_order": sf.col("trail_order"), "stood_trail": sf.col("trail")})
    rows = restore(unrestored(stood), unrestored(messages))
    has_same_order = sf.col("trail_order").eqNullSafe(sf.col("stood_order"))
    return rows.where(~(has_same_order & sf.col("trail").eqNullSafe(sf.col("stood_trail"))))


def _read(seen: DataFrame) -> DataFrame:
    """Of those sightings whose trail can be out of order, what order it has, and what follows from it.

    They are few, and only they are looked at one by one.
    """
    rows = seen.where((sf.size("trail") >= SHORTEST) & is_flow()).join(_pairs(seen), "correlation_key")
    rows = rows.select("message_uid", "event_id", "hops", "trail", sf.col("trail.node_key").alias("nodes"), "pairs")
    entries = sf.transform("places", lambda place: sf.col("trail")[place])
    rows = rows.mapInArrow(_find_orders, f"{_READ}, trail {rows.schema['trail'].dataType.simpleString()}")
    rows = rows.select("message_uid", "event_id", "hops", "order", entries.alias("trail"))
    return rows.select(
        sf.col("message_uid").alias("_uid"),
        sf.col("event_id").alias("_event_id"),
        sf.col("order").alias("_order"),
        sf.col("trail").alias("_trail"),
        sf.get(sf.col("trail.node_key"), inherited_size()).alias("_origin_key"),
        sf.slice(sf.col("trail.node_key"), sf.lit(1), inherited_size()).alias("_parent_trail"),
    )


def _find_orders(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        found = []
        for nodes, pairs in zip(batch["nodes"].to_pylist(), batch["pairs"].to_pylist(), strict=True):
            senders: dict[str, set[str]] = {}
            for pair in pairs:
                senders.setdefault(pair["receiver"], set()).add(pair["sender"])
            found.append(find_order(nodes, senders))
        orders = pa.array([order.verdict for order in found], pa.string())
        places = pa.array([order.places for order in found], pa.list_(pa.int32()))
        kept = [batch["message_uid"], batch["event_id"], batch["hops"]]
        yield pa.RecordBatch.from_arrays(
            [*kept, orders, places, batch["trail"]], ["message_uid", "event_id", "hops", "order", "places", "trail"]
        )


def inherited_size(trail: str = "trail") -> Column:
    """How many entries of a trail were there before its message was made, as `hopline.flow.trail` counts them."""
    size, hops = sf.size(trail), sf.col("hops")
    return sf.when(hops <= 0, size).otherwise(sf.greatest(size - hops, sf.lit(0)))


def is_traced(trail: str = "trail") -> Column:
    """Whether a message says where it has been: it has not been anywhere yet, or it has a trail."""
    return (sf.col("hops") <= 0) | (sf.size(trail) > 0)


def _pairs(seen: DataFrame) -> DataFrame:
    """For each flow that was sent by an old format with a long trail: who was seen to send to whom."""
    nodes = sf.col("trail.node_key")
    last = sf.try_element_at(nodes, sf.lit(-1))
    came = sf.col("tap").isin("scaleout_in", "wire_in")
    # As a reference broadcast does it: one hop and one entry of its sender for each peer before.
    is_repeated = (
        (sf.col("distribution") == "broadcast") & (sf.col("hops") > 1) & (sf.try_element_at(nodes, sf.lit(-2)) == last)
    )
    rows = seen.where(
        sf.col("format").isin(*OLD_FORMATS)
        & sf.col("tap").isin("scaleout_in", "wire_in", "scaleout_out", "wire_out")
        & (sf.size("trail") >= 1)
        & is_flow()
    )
    facts = rows.groupBy("correlation_key").agg(
        sf.max(sf.size("trail")).alias("longest"),
        sf.collect_set(sf.when(came, sf.struct(last.alias("sender"), "node_key"))).alias("came"),
        sf.collect_set(sf.when(~came, sf.struct(last.alias("identity"), "node_key"))).alias("sent"),
        sf.collect_set(
            sf.when(
                sf.size("trail") == 2,
                sf.struct(sf.get(nodes, sf.lit(0)).alias("sender"), sf.get(nodes, sf.lit(1)).alias("receiver")),
            )
        ).alias("short"),
        sf.collect_set(sf.when(is_repeated, sf.struct(last.alias("sender"), last.alias("receiver")))).alias("repeated"),
    )
    # A node of an imported capture has a name and an identity; what it sent itself tells which belong together.
    names = sf.flatten(
        sf.transform(
            "came",
            lambda move: sf.transform(
                sf.array_distinct(
                    sf.concat(
                        sf.array(move["node_key"]),
                        sf.transform(
                            sf.filter("sent", lambda own: own["node_key"] == move["node_key"]), lambda own: own["identity"]
                        ),
                    )
                ),
                lambda name: sf.struct(move["sender"].alias("sender"), name.alias("receiver")),
            ),
        )
    )
    # That a node was sent to by somebody does not mean by nobody else, unless it was seen what comes to it.
    listens = sf.transform("named", lambda pair: pair["receiver"])
    short = sf.filter("short", lambda pair: sf.array_contains(listens, pair["receiver"]))
    pairs = sf.slice(sf.array_distinct(sf.concat(sf.col("named"), short, sf.col("repeated"))), 1, MOST_PAIRS)
    facts = facts.where(sf.col("longest") >= SHORTEST).withColumn("named", names)
    return facts.select("correlation_key", pairs.alias("pairs"))
