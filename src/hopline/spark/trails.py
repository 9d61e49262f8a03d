"""Trails put back in order, as far as other sightings of the same flow show what happened to them.

Theory. A node that sends a message on appends itself to the trail. Reference nodes that read v3, v4 or v5 hand the trail on
in reverse; Hopline's do not, and v6 is never reversed. So the last entry always is who sent the message; of the rest, the
one before is either at the right end or at the left end, depending on what the sender did when it had read it. And so on:

    on the wire   C A B D        D sent it. Had D reversed what it read, C is the one before it, else B is.
    pairs known   C -> D         so it is C, and A B is left, with C as the last: B -> C, then A

Which of the two ends is the right one, the flow's other sightings tell: a message that came to a node names in its last
entry who sent it there. With such a pair for each step the order is certain: `exact` if it is that of the wire, else
`restored`. If a node's predecessors are known and neither end is among them, the trail fits no order: `set`. In all other
cases it is `ambiguous`, and left as it was. An entry that repeats its neighbour comes from a reference broadcast, which
appends once a peer; it is taken first.

Only trails of three and more entries can be out of order, and only where a flow was sent by v3, v4 or v5 with so many. For
all others nothing is joined. This file knows no occurrence and no other table.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

OLD_FORMATS: Final = ("v3", "v4", "v5")
"""The formats that reference nodes read in reverse."""

NO_FLOWS: Final = ("", "00000000-0000-0000-0000-000000000000")
"""Correlation keys that start no flow: service messages and strays have them."""

SHORTEST: Final = 3
"""Entries from which on a trail can be out of order."""

MOST_PAIRS: Final = 4096
"""Pairs of nodes of one flow that are looked at: a flow over more nodes than that stays ambiguous, and does no harm."""


def is_flow(correlation_key: str = "correlation_key") -> Column:
    """Whether a correlation key is that of a flow."""
    return ~sf.col(correlation_key).isin(*NO_FLOWS)


def restore(messages: DataFrame, seen: DataFrame) -> DataFrame:
    """Put the trails of messages in order, and say in `trail_order` how sure that is.

    `origin_key` and `parent_trail` follow the trail; as it was before, a trail that was changed is in `wire_trail`.

    Args:
        messages: sightings with the columns of `messages`.
        seen: what is known of their flows: at least these sightings, perhaps read with fewer columns: event_id,
            message_uid, correlation_key, node_key, tap, format, hops and trail.
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
    known = _pairs(seen)
    rows = seen.where((sf.size("trail") >= SHORTEST) & is_flow())
    rows = rows.select("message_uid", "event_id", "correlation_key", "hops", "trail")
    rows = rows.join(known, "correlation_key").withColumn("read", _ordered(sf.col("trail"), sf.col("pairs")))
    places, verdict = sf.col("read.places"), sf.col("read.verdict")
    order = sf.when(verdict != "known", verdict).when(places == _wire_order(sf.col("trail")), "exact").otherwise("restored")
    rows = rows.select("message_uid", "event_id", "hops", order.alias("_order"), _in_order(places).alias("trail"))
    return rows.select(
        sf.col("message_uid").alias("_uid"),
        sf.col("event_id").alias("_event_id"),
        "_order",
        sf.col("trail").alias("_trail"),
        sf.get(sf.col("trail.node_key"), inherited_size()).alias("_origin_key"),
        sf.slice(sf.col("trail.node_key"), sf.lit(1), inherited_size()).alias("_parent_trail"),
    )


def _in_order(places: Column) -> Column:
    return sf.transform(places, lambda place: sf.col("trail")[place])


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
    pairs = sf.slice(sf.array_distinct(sf.concat(names, sf.col("short"))), 1, MOST_PAIRS)
    return facts.where(sf.col("longest") >= SHORTEST).select("correlation_key", pairs.alias("pairs"))


def _wire_order(trail: Column) -> Column:
    return sf.sequence(sf.lit(0), sf.size(trail) - 1)


def _ordered(trail: Column, pairs: Column) -> Column:
    """Walk a trail from its end to its beginning: the places in true order, and whether each step was known."""
    last = sf.size(trail) - 1
    start = sf.struct(
        sf.lit(0).alias("low"),
        (last - 1).alias("high"),
        sf.array(last).alias("places"),
        sf.lit("known").alias("verdict"),
    )
    walked = sf.aggregate(sf.sequence(sf.lit(1), last), start, lambda state, _: _step(state, trail, pairs))
    return sf.struct(walked["places"].alias("places"), walked["verdict"].alias("verdict"))


def _step(state: Column, trail: Column, pairs: Column) -> Column:
    low, high, places = state["low"], state["high"], state["places"]
    current, left, right = trail[places[0]]["node_key"], trail[low]["node_key"], trail[high]["node_key"]

    def is_pair(sender: Column) -> Column:
        return sf.exists(pairs, lambda pair: (pair["sender"] == sender) & (pair["receiver"] == current))

    has_any = sf.exists(pairs, lambda pair: pair["receiver"] == current)
    takes_right = (low == high) | (right == current) | ((left != current) & is_pair(right) & ~is_pair(left))
    takes_left = (left == current) | (is_pair(left) & ~is_pair(right))
    verdict = (
        sf.when(state["verdict"] != "known", state["verdict"])
        .when(takes_right | takes_left, "known")
        .when(has_any & ~is_pair(left) & ~is_pair(right), "set")
        .otherwise("ambiguous")
    )
    takes_left = ~takes_right & takes_left
    return sf.struct(
        sf.when(takes_left, low + 1).otherwise(low).alias("low"),
        sf.when(takes_left, high).otherwise(high - 1).alias("high"),
        sf.concat(sf.array(sf.when(takes_left, low).otherwise(high)), places).alias("places"),
        verdict.alias("verdict"),
    )
