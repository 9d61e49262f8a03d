"""The table `hops`: messages moving, each move made of the sighting where it begins and the one where it ends.

Theory. A move between nodes leaves two sightings with the same fingerprint, occurrence and hop number, at two nodes. So all
sightings that agree in these three are put together - a handful, for a broadcast two for each peer - and each arrival looks
for the sending that it belongs to:

    it is of another node
    it has the same last entry      of the trail: the node that sent it
    it was sent to this node        as frame 0 says; if that names nobody we know, it may have been
    several are left                one that names this node, else the last before the arrival

What is left without a partner is half a move: an arrival whose sending was not captured, or a sending that arrived
nowhere. That is a loss if the node it was sent to was captured at that time, else nobody knows.

Control traffic of reference nodes has no trail and no hops, names no peer and is passed on by a rendezvous; so of equal
messages there are not equally many at two nodes. There an arrival belongs to the last sending before it, whoever sent it.

Inside a node it is simpler: what hub or actor made, or what came from the network, is given to an actor or a hub.

Clocks. Nodes stamp sightings by their own clocks. The shortest latencies of both directions between two nodes tell how far
apart these are, if one of them is negative: half of their difference. That is estimated for each day, by messages that occur
once. This file reads no bodies. What it moves is narrow, and by fingerprint: no flow is ever put together.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.window import Window

from hopline.spark.nodes import AWAY, CAME, GIVEN, MADE, captured, covers, names
from hopline.spark.tables import HOPS, conform
from hopline.spark.trails import is_flow

NS_PER_MS: Final = 1e6

_MESSAGE: Final = ("message_uid", "occurrence", "hops")
"""What the sightings of one move have in common."""

_FACTS: Final = ("correlation_key", "identity_key", "ttl_ms", "body_size")
"""What else is said of a move."""

_ZEROMQ_ID: Final = "0x00%"
"""A socket that ZeroMQ gave an id to: a zero byte, and a random number. It is no node, whose identity begins otherwise."""


def hops(moves: DataFrame) -> DataFrame:
    """The table `hops`, of moves."""
    return conform(moves, HOPS)


def find_moves(messages: DataFrame) -> DataFrame:
    """All moves of messages: the columns of `hops`, and what other tables need to know of a move.

    Beside the columns of the table these are

        sent_ns, received_ns   the raw times
        ttl_ms, body_size      what the message said at this move
        ends_seen              ends of the move, 1 or 2, at which it was seen,
        ends_expected          and at which it should have been, as its node was captured
    """
    moves = _with_skew(_paired(messages, names(messages)))
    nodes = captured(messages)
    ends = {
        "to": nodes.select(*(sf.col(name).alias(f"_to_{name}") for name in nodes.columns)),
        "from": nodes.select(*(sf.col(name).alias(f"_from_{name}") for name in nodes.columns)),
    }
    for end, of_end in ends.items():
        moves = moves.join(sf.broadcast(of_end), sf.col(f"{end}_node_key") == sf.col(f"_{end}_node_key"), "left")
    skew_ns = ns_of("skew_ms")
    is_half_sent, is_half_received = sf.col("received_ns").isNull(), sf.col("sent_ns").isNull()
    lost = is_half_sent & sf.col("_to_hears") & covers(sf.try_add("sent_ns", skew_ns), "_to_first_ns", "_to_last_ns")
    unseen = is_half_received & sf.col("_from_speaks")
    unseen &= covers(sf.try_subtract("received_ns", skew_ns), "_from_first_ns", "_from_last_ns")
    seen = sf.when(is_half_sent | is_half_received, 1).otherwise(2)
    return moves.withColumns(
        {
            "lost": sf.coalesce(lost, sf.lit(col=False)),
            "ends_seen": seen,
            "ends_expected": seen + sf.coalesce(lost | unseen, sf.lit(col=False)).cast("int"),
            "sent_at": timestamp_of(sf.col("sent_ns")),
            "received_at": timestamp_of(sf.col("received_ns")),
        }
    ).drop(*(f"_{end}_{name}" for end in ends for name in nodes.columns))


def skews(moves: DataFrame) -> DataFrame:
    """How far the clocks of two nodes are apart, where that is known: date, from_node_key, to_node_key, skew_ms."""
    return moves.where(sf.col("skew_ms") != 0).select("date", "from_node_key", "to_node_key", "skew_ms").distinct()


# --- finding partners -------------------------------------------------------------------------------------------------


def _paired(messages: DataFrame, known: DataFrame) -> DataFrame:
    """Each move with its ends, each end as far as it is known."""
    role = sf.when(sf.col("tap").isin(*AWAY), "away").when(sf.col("tap").isin(*CAME), "came")
    role = role.when(sf.col("tap").isin(*MADE), "made").when(sf.col("tap").isin(*GIVEN), "given")
    peer = sf.when(sf.col("peer_key").like(_ZEROMQ_ID), None).otherwise(_said("peer_key"))
    is_traced = (sf.col("hops") > 0) | (sf.size("trail") > 0) | ~sf.col("tap").startswith("wire")
    rows = messages.select(
        *_MESSAGE,
        *_FACTS,
        "seen_ns",
        "seq",
        "date",
        is_traced.alias("is_traced"),
        role.alias("role"),
        sf.col("node_key").alias("node"),
        sf.when(role == "away", peer).alias("peer"),
        sf.when(role == "away", sf.coalesce(peer, _said("receiver_node_key"))).alias("address"),
        sf.when(role.isin("away", "came"), sf.try_element_at(sf.col("trail.node_key"), sf.lit(-1))).alias("sender"),
    ).where(sf.col("role").isNotNull())
    to = known.select(sf.col("identity_key").alias("peer"), sf.col("node_key").alias("to"))
    rows = rows.join(sf.broadcast(to), "peer", "left")
    moves = _by_occurrence(rows.where("is_traced")).unionByName(_by_time(rows.where("not is_traced")))
    return _resolved(moves, known)


def _by_occurrence(rows: DataFrame) -> DataFrame:
    sighting = sf.struct("role", "node", "seen_ns", "peer", "to", "address", "sender")
    groups = rows.groupBy(*_MESSAGE).agg(
        *(sf.first(name).alias(name) for name in ("correlation_key", "identity_key")),
        *(sf.max(name).alias(name) for name in ("ttl_ms", "body_size")),
        sf.collect_list(sighting).alias("sightings"),
    )
    groups = groups.withColumns({role: _with_role(role) for role in ("away", "came", "made", "given")})
    # One step at a time: what a lambda has found the next one is given, else Spark would look for it at each mention.
    found = sf.transform(sf.transform("came", _ranked), _best)
    groups = groups.withColumn("arrived", sf.transform(found, _arrival))
    moves = sf.explode(sf.concat("arrived", _nowhere(), _inside()))
    return groups.select(*_MESSAGE, *_FACTS, moves.alias("move")).select(*_MESSAGE, *_FACTS, "move.*")


def _by_time(rows: DataFrame) -> DataFrame:
    """Moves of messages without a trail: an arrival belongs to the last sending before it, of the same day."""
    order = Window.partitionBy("message_uid", "date").orderBy("seen_ns", "role", "seq", "node")  # away comes before came
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    is_away = sf.col("role") == "away"
    found = rows.withColumns(
        {
            "source": sf.last(sf.when(is_away, sf.struct("node", "seen_ns")), ignorenulls=True).over(before),
            "next": sf.lead("role").over(order),
        }
    )
    # A sending that is followed by another one has no arrival.
    found = found.where(~is_away | ~sf.col("next").eqNullSafe("came"))
    came = ~is_away & sf.col("source").isNotNull()
    move = _move(
        sf.when(came & (sf.col("source.node") == sf.col("node")), "local").otherwise("network"),
        sf.when(came, "time").when(is_away & sf.col("address").isNotNull(), "address"),
        sf.when(is_away, sf.col("node")).otherwise(sf.col("source.node")),
        sf.when(is_away, sf.coalesce("to", "address")).otherwise(sf.col("node")),
        sf.when(is_away, sf.col("seen_ns")).otherwise(sf.col("source.seen_ns")),
        sf.when(~is_away, sf.col("seen_ns")),
        _nobody(),
        _nobody(),
    )
    return found.select(*_MESSAGE, *_FACTS, move.alias("move")).select(*_MESSAGE, *_FACTS, "move.*")


def _said(name: str) -> Column:
    return sf.when(sf.col(name) != "", sf.col(name))


def _with_role(role: str) -> Column:
    return sf.filter("sightings", lambda sighting: sighting["role"] == role)


def _ranked(came: Column) -> Column:
    """An arrival with the sendings that it may belong to; the best one is the greatest."""

    def fits(away: Column) -> Column:
        may_be_for = away["to"].isNull() | (away["to"] == came["node"])
        return (away["node"] != came["node"]) & may_be_for & away["sender"].eqNullSafe(came["sender"])

    def rank(away: Column) -> Column:
        is_before = away["seen_ns"] <= came["seen_ns"]
        return sf.struct(
            away["to"].isNotNull().alias("is_named"),
            is_before.alias("is_before"),
            sf.when(is_before, away["seen_ns"]).otherwise(-away["seen_ns"]).alias("nearness"),
            away.alias("away"),
        )

    # A node gets what was sent to it once. What comes again, by another socket, was sent by somebody else.
    is_again = sf.exists("came", lambda other: (other["node"] == came["node"]) & (other["seen_ns"] < came["seen_ns"]))
    ranked = sf.transform(sf.filter("away", lambda away: ~is_again & fits(away)), rank)
    return sf.struct(came.alias("came"), ranked.alias("ranked"))


def _best(found: Column) -> Column:
    return sf.struct(
        found["came"].alias("came"), found["ranked"].alias("ranked"), sf.array_max(found["ranked"]).alias("best")
    )


def _arrival(found: Column) -> Column:
    """The move that ends with an arrival: from the sending that fits best, or from one that was not seen."""
    came, best, away = found["came"], found["best"], found["best"]["away"]
    rivals = sf.filter(found["ranked"], lambda other: other["is_named"] == best["is_named"])
    how = sf.when(best.isNull(), sf.when(came["sender"].isNotNull(), "trail"))
    how = how.when(sf.size(rivals) > 1, "time").when(sf.col("occurrence") > 0, "uid+occurrence").otherwise("uid")
    ends = (away["node"], came["node"], away["seen_ns"], came["seen_ns"])
    return _move(sf.lit("network"), how, *ends, came["sender"], away["peer"])


def _nowhere() -> Column:
    """The sendings that no arrival belongs to."""

    def is_taken(away: Column) -> Column:
        return sf.exists(
            "arrived",
            lambda move: (
                (move["from_node_key"] == away["node"])
                & (move["sent_ns"] == away["seen_ns"])
                & move["peer"].eqNullSafe(away["peer"])
            ),
        )

    def half(away: Column) -> Column:
        to = sf.coalesce(away["to"], away["address"])
        how = sf.when(to.isNotNull(), "address")
        return _move(sf.lit("network"), how, away["node"], to, away["seen_ns"], _never(), away["sender"], away["peer"])

    return sf.transform(sf.filter("away", lambda away: ~is_taken(away)), half)


def _inside() -> Column:
    """The moves inside nodes: from the last that was made or came, to each that it was given to."""

    def with_source(given: Column) -> Column:
        def rank(source: Column) -> Column:
            is_before = source["seen_ns"] <= given["seen_ns"]
            nearness = sf.when(is_before, source["seen_ns"]).otherwise(-source["seen_ns"])
            return sf.struct(is_before.alias("is_before"), nearness.alias("nearness"), source.alias("source"))

        here = sf.filter(sf.concat("made", "came"), lambda source: source["node"] == given["node"])
        best = sf.array_max(sf.transform(here, rank))
        return sf.struct(given.alias("given"), best["source"].alias("source"))

    def move(pair: Column) -> Column:
        source, given = pair["source"], pair["given"]
        kind = sf.when(source["role"] == "made", "local").otherwise("deliver")
        how = sf.when(sf.col("occurrence") > 0, "uid+occurrence").otherwise("uid")
        return _move(kind, how, source["node"], given["node"], source["seen_ns"], given["seen_ns"], _nobody(), _nobody())

    pairs = sf.filter(sf.transform("given", with_source), lambda pair: pair["source"].isNotNull())
    return sf.transform(pairs, move)


def _move(
    kind: Column,
    how: Column,
    source: Column,
    target: Column,
    sent_ns: Column,
    received_ns: Column,
    sender: Column,
    peer: Column,
) -> Column:
    return sf.struct(
        kind.alias("kind"),
        how.alias("matched_by"),
        source.alias("from_node_key"),
        target.alias("to_node_key"),
        sent_ns.alias("sent_ns"),
        received_ns.alias("received_ns"),
        sender.alias("sender"),
        peer.alias("peer"),
    )


def _nobody() -> Column:
    return sf.lit(None).cast("string")


def _never() -> Column:
    return sf.lit(None).cast("bigint")


def _resolved(moves: DataFrame, known: DataFrame) -> DataFrame:
    """Name the sender of what was seen to arrive only, by the last entry of its trail."""
    by_trail = known.select(sf.col("identity_key").alias("sender"), sf.col("node_key").alias("_name"))
    sender = sf.when(sf.col("kind") == "network", sf.coalesce("from_node_key", "_name", "sender"))
    first_ns = sf.coalesce("sent_ns", "received_ns")
    return (
        moves.join(sf.broadcast(by_trail), "sender", "left")
        .withColumn("from_node_key", sender.otherwise(sf.col("from_node_key")))
        .withColumn("latency_ms", sf.try_subtract("received_ns", "sent_ns") / NS_PER_MS)
        .withColumn("date", timestamp_of(first_ns).cast("date"))
        .drop("sender", "peer", "_name")
    )


def timestamp_of(ns: Column) -> Column:
    """A point in time of nanoseconds since 1970; what is below a microsecond is dropped."""
    return sf.timestamp_micros(sf.call_function("div", ns, sf.lit(1000)))


def ns_of(ms: str) -> Column:
    """Milliseconds as nanoseconds; 0 if they are not known, or too many."""
    return sf.coalesce((sf.col(ms) * NS_PER_MS).try_cast("bigint"), sf.lit(0))


# --- clocks -----------------------------------------------------------------------------------------------------------


def _with_skew(moves: DataFrame) -> DataFrame:
    day = ("date", "from_node_key", "to_node_key")
    # What has a flow of its own occurs once; what does not, such as a heart beat, may have been paired with another one.
    is_sure = (sf.col("kind") == "network") & (sf.col("matched_by") == "uid") & is_flow()
    least = moves.where(is_sure & sf.col("latency_ms").isNotNull()).groupBy(*day).agg(sf.min("latency_ms").alias("there"))
    back = least.select(
        "date",
        sf.col("to_node_key").alias("from_node_key"),
        sf.col("from_node_key").alias("to_node_key"),
        sf.col("there").alias("back"),
    )
    is_apart = (sf.col("there") < 0) | (sf.col("back") < 0)
    skew = sf.when(is_apart, (sf.col("there") - sf.col("back")) / 2).otherwise(0.0)
    known = least.join(sf.broadcast(back), list(day)).select(*day, skew.alias("skew_ms"))
    return moves.join(sf.broadcast(known), list(day), "left")
