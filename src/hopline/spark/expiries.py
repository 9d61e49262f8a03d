"""The table `expiries`: what became of messages that had to come in time.

Theory. The wire carries how long a message may live, and no clock. So its life is measured by the capture: it begins at
the first sighting, which says the TTL, and ends with the sighting that is farthest on its way - most hops, and at the same
hop made before sent, sent before come, come before given. If that one is an arrival, the time between the two decides: in
time, or late. If it is not, the message is somewhere between: it has expired in flight if its TTL is over, and the place
where it should have been seen next was captured until then; else nobody knows. What a hub or an actor has made goes to
another node or to an actor of its own, so both have to be captured there. Of what was first seen where it came nobody knows
how long it had been under way: it can be late, and not in time.

Clocks of several nodes are corrected by the skew of the moves on the way. A broadcast is one message: its last arrival
counts.

Of equal messages of which some were lost the n-th that came is not the n-th that was sent: there the moves say which is
which, for the node where it came and what that sends on.

An old format drops the callback key, so a request that a hub made and a v3 or v4 node was sent have different fingerprints.
Then what was made is not counted a second time. This file reads no bodies; it moves only messages that have a TTL.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.window import Window

from hopline.spark.hops import NS_PER_MS, timestamp_of
from hopline.spark.midnight import OF_DAY, of_day
from hopline.spark.nodes import AWAY, CAME, GIVEN, Nodes, covers, find_nodes, keeps_alike
from hopline.spark.tables import EXPIRIES, conform

_MESSAGE: Final = ("message_uid", "occurrence")

_COME: Final = ("message_uid", "come_hops", "to_node_key", "occurrence")
"""What says which sighting of a message it is, where it came."""

_ACCURACY: Final = 10_000
"""Of percentiles: exact up to so many values, and beyond the rank is off by at most one in so many."""

_MADE, _AWAY, _CAME, _GIVEN = range(4)
"""How far a message is on its way, at the same hop."""


def expiries(fates: DataFrame) -> DataFrame:
    """The table `expiries`, of `find_fates`."""
    rows = fates.groupBy("hour", "identity_key", "ttl_ms").agg(
        sf.count("*").alias("sent"),
        *(sf.count_if(sf.col("fate") == fate).alias(fate) for fate in ("in_time", "late", "expired_in_flight")),
        sf.percentile_approx("budget_used", 0.95, _ACCURACY).alias("budget_used_p95"),
    )
    return conform(rows.withColumn("date", sf.col("hour").cast("date")), EXPIRIES)


def find_fates(messages: DataFrame, moves: DataFrame, nodes: Nodes | None = None) -> DataFrame:
    """What became of each message that has a TTL.

    The columns are message_uid, occurrence, correlation_key, identity_key, first_ns, hour, ttl_ms, fate (in_time, late,
    expired_in_flight, or null if nobody knows), and budget_used: the share of the TTL, of those that came.

    Args:
        messages: the table.
        moves: of `hops.find_moves`, for the clocks.
        nodes: who was captured, if messages are not all that was seen.
    """
    captured, names = nodes or find_nodes(messages)
    rows, moves = _as_made(*_renumbered(_sightings(messages, names), moves))
    # The last of all who got a broadcast; of anything else the first: what comes again later was sent by somebody else.
    turn = sf.when(sf.col("is_broadcast"), sf.col("seen_ns")).otherwise(sf.bitwise_not("seen_ns")).alias("turn")
    # A reference node counts a hop for each peer that it sends a broadcast to: they do not tell how far that is.
    far = (
        sf.when(~sf.col("is_broadcast"), sf.col("hops")),
        sf.when(~sf.col("is_broadcast"), sf.col("stage")).otherwise(sf.least("stage", sf.lit(_CAME))),
    )
    lives = rows.groupBy(*_MESSAGE).agg(
        sf.min(sf.struct("hops", "stage", "seen_ns", "node_key", "ttl_ms")).alias("first"),
        sf.max(sf.struct(*far, turn, "seen_ns", "node_key", "target", "stage", "body_size")).alias("last"),
        *(sf.first(name).alias(name) for name in ("correlation_key", "identity_key", "is_broadcast", OF_DAY)),
    )
    lives = _without_twins(lives, rows).join(_clocks(moves), list(_MESSAGE), "left")
    stage, ttl_ms, skew_ms = sf.col("last.stage"), sf.col("first.ttl_ms"), _skew()
    place = sf.when(stage == _AWAY, sf.col("last.target")).otherwise(sf.col("last.node_key"))
    places = captured.withColumnRenamed("node_key", "place")
    lives = lives.withColumn("place", place).join(sf.broadcast(places), "place", "left")
    sender = (sf.col(name).alias(f"_{name}") for name in ("share", "cut", "least_cut"))
    shares = captured.select(sf.col("node_key").alias("_node"), *sender)
    lives = lives.join(sf.broadcast(shares), sf.col("last.node_key") == sf.col("_node"), "left")
    elapsed_ms = sf.try_subtract(sf.col("last.seen_ns"), sf.col("first.seen_ns")) / NS_PER_MS - skew_ms
    begin_ns = sf.try_add(sf.col("first.seen_ns"), (skew_ms * NS_PER_MS).try_cast("bigint"))
    end_ns = sf.try_add(begin_ns, (ttl_ms * NS_PER_MS).try_cast("bigint"))
    # One that records a smaller share of the flows may have left it out; and a fingerprint is over what was kept of a body.
    span = sf.greatest(begin_ns, "first_ns"), end_ns
    sees_it = sf.when(stage == _AWAY, covers(*span, "hears")).otherwise(covers(*span, "speaks", "gives"))
    is_watched = (sf.col("share") >= sf.col("_share")) & keeps_alike(sf.col("last.body_size"), "_", "") & sees_it
    # What was first seen when it came has been under way for nobody knows how long: long enough, or at least so long.
    has_begun = sf.col("first.stage") <= _AWAY
    came = sf.when((ttl_ms > 0) & (elapsed_ms <= ttl_ms), sf.when(has_begun, "in_time")).otherwise("late")
    fate = sf.when(stage > _AWAY, came).when(ttl_ms < 0, "expired_in_flight").when(is_watched, "expired_in_flight")
    return lives.select(
        *_MESSAGE,
        "correlation_key",
        "identity_key",
        sf.col("first.seen_ns").alias("first_ns"),
        sf.date_trunc("hour", timestamp_of(sf.least("first.seen_ns", OF_DAY))).alias("hour"),
        sf.when(ttl_ms < 0, -1.0).otherwise(sf.ceil(ttl_ms).cast("double")).alias("ttl_ms"),
        fate.alias("fate"),
        sf.when((stage > _AWAY) & (ttl_ms > 0) & has_begun, elapsed_ms / ttl_ms).alias("budget_used"),
    )


def _sightings(messages: DataFrame, names: DataFrame) -> DataFrame:
    """Sightings of messages that have a TTL, each with how far it is."""
    tap = sf.col("tap")
    is_inner = (tap == "router_in") & (sf.col("hops") > 0)
    stage = sf.when(tap.isin(*AWAY), _AWAY).when(tap.isin(*CAME) | is_inner, _CAME).when(tap.isin(*GIVEN), _GIVEN)
    peer = sf.when(sf.col("peer_key") != "", sf.col("peer_key"))
    known = names.select(sf.col("identity_key").alias("peer"), sf.col("node_key").alias("target"))
    rows = messages.where(sf.col("ttl_ms") != 0).select(
        *_MESSAGE,
        "correlation_key",
        "identity_key",
        (sf.col("distribution") == "broadcast").alias("is_broadcast"),
        sf.col("format").isin("v3", "v4").alias("is_keyless"),
        "hops",
        stage.otherwise(_MADE).alias("stage"),
        "seen_ns",
        of_day(messages),
        "node_key",
        "ttl_ms",
        "body_size",
        sf.when(tap.isin(*AWAY), sf.coalesce(peer, sf.col("receiver_node_key"))).alias("peer"),
    )
    return rows.join(sf.broadcast(known), "peer", "left")


def _renumbered(rows: DataFrame, moves: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Sightings and moves, with the number of the sending that they belong to, where moves were found by time."""
    is_whole = "kind = 'network' and matched_by = 'time' and ttl_ms != 0 and sent_ns is not null and received_ns is not null"
    found = moves.where(is_whole)
    if found.isEmpty():  # almost always
        return rows, moves
    place = ["message_uid", "hops", "node_key"]
    sent = rows.where(sf.col("stage") == _AWAY).select(*place, "seen_ns", sf.col("occurrence").alias("sent_as"))
    paired = found.select(
        "message_uid",
        "hops",
        sf.col("from_node_key").alias("node_key"),
        sf.col("sent_ns").alias("seen_ns"),
        "to_node_key",
        "occurrence",
    )
    numbers = paired.join(sent, [*place, "seen_ns"]).withColumnRenamed("hops", "come_hops")
    numbers = numbers.groupBy(*_COME).agg(sf.min("sent_as").alias("sent_as")).where("occurrence != sent_as")
    return _as_sent(rows, moves, numbers)


def _as_made(rows: DataFrame, moves: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The same, where a node has sent equal messages to several others: numbered as they were made there.

    They are numbered for each of these by itself, as nobody needs to know who else got some; what was made knows no peer.
    So do those that actors of that node got, in turn with other nodes. Where more were sent than made, one was sent twice,
    and they stay as they are.
    """
    is_one = ~sf.col("is_broadcast")
    place = ["message_uid", "made_hops", "node_key"]
    made = rows.where((sf.col("stage") == _MADE) & is_one).withColumn("made_hops", sf.col("hops"))
    made = made.groupBy(*place).agg((sf.max("occurrence") + 1).alias("made")).where("made > 1")
    if made.isEmpty():  # almost always
        return rows, moves
    here = Window.partitionBy(*place)
    before = sf.try_subtract("hops", sf.lit(1))
    taken = rows.where(sf.col("stage").isin(_AWAY, _GIVEN) & is_one)
    taken = taken.withColumn("made_hops", sf.when(sf.col("stage") == _AWAY, before).otherwise(sf.col("hops")))
    sent = taken.join(made, place)
    sent = sent.withColumns(
        {
            "sent_as": sf.row_number().over(here.orderBy("seen_ns", "stage", "peer", "occurrence")) - 1,
            "sent": sf.count("*").over(here),
        }
    ).where("sent <= made and occurrence != sent_as")
    own = ["message_uid", "hops", "node_key", "stage", "occurrence"]
    # A node may have been recorded at two taps of a kind: then each of its rows still has one number.
    numbers = sent.groupBy(*own, sf.coalesce("peer", sf.lit("")).alias("_peer")).agg(sf.min("sent_as").alias("sent_as"))
    as_sent = rows.withColumn("_peer", sf.coalesce("peer", sf.lit(""))).join(numbers, [*own, "_peer"], "left")
    as_sent = as_sent.withColumn("occurrence", sf.coalesce("sent_as", "occurrence")).select(*rows.columns)
    numbers = sent.where((sf.col("stage") == _AWAY) & sf.col("target").isNotNull())
    numbers = numbers.withColumns({"come_hops": sf.col("hops"), "to_node_key": sf.col("target")})
    numbers = numbers.groupBy(*_COME).agg(sf.min("sent_as").alias("sent_as"), sf.count("*").alias("senders"))
    return _as_sent(as_sent, moves, numbers.where("senders = 1").drop("senders"))


def _as_sent(rows: DataFrame, moves: DataFrame, numbers: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Sightings where something came, and where it was sent on from there, and moves to there, with other numbers.

    Args:
        rows: sightings.
        moves: moves.
        numbers: by what came, and where, `sent_as`: the number that it is to have.
    """

    def of(each: DataFrame, node: str, come_hops: Column) -> DataFrame:
        known = each.withColumns({"come_hops": come_hops, "to_node_key": sf.col(node)}).join(numbers, list(_COME), "left")
        return known.withColumn("occurrence", sf.coalesce("sent_as", "occurrence")).select(*each.columns)

    hops, before = sf.col("hops"), sf.try_subtract("hops", sf.lit(1))  # a stranger may have written the least number
    return of(rows, "node_key", sf.when(sf.col("stage") == _AWAY, before).otherwise(hops)), of(moves, "to_node_key", hops)


def _without_twins(lives: DataFrame, rows: DataFrame) -> DataFrame:
    """Leave out what was made and then sent in an old format, with another fingerprint: as many as were sent; they count."""
    twins = rows.where((sf.col("stage") == _AWAY) & sf.col("is_keyless"))
    if twins.isEmpty():
        return lives
    # What has no key to lose was made with the same fingerprint, and is nobody's twin.
    twins = twins.join(rows.where(sf.col("stage") == _MADE), ["message_uid", "node_key"], "left_anti")
    kind = ["correlation_key", "identity_key", "made_at"]
    twins = twins.withColumn("made_at", sf.col("node_key"))
    twins = twins.groupBy(*kind).agg(sf.count_distinct(*_MESSAGE).alias("twins"))
    lives = lives.withColumn("made_at", sf.when(sf.col("last.stage") == _MADE, sf.col("last.node_key")))
    turn = Window.partitionBy(*kind).orderBy("first.seen_ns", *_MESSAGE)
    unsent = lives.where("made_at is not null").join(twins, kind).withColumn("turn", sf.row_number().over(turn))
    return lives.drop("made_at").join(unsent.where("turn <= twins").select(*_MESSAGE), list(_MESSAGE), "left_anti")


def _clocks(moves: DataFrame) -> DataFrame:
    """For each message with a TTL how far the clock at its end is ahead: all along the way, and for each who got it."""
    away = moves.where((sf.col("kind") == "network") & (sf.col("ttl_ms") != 0))
    return away.groupBy(*_MESSAGE).agg(
        sf.sum("skew_ms").alias("along"), sf.collect_list(sf.struct("to_node_key", "skew_ms")).alias("each")
    )


def _skew() -> Column:
    mine = sf.filter("each", lambda clock: clock["to_node_key"] == sf.col("last.node_key"))
    skew_ms = sf.when(sf.col("is_broadcast"), sf.get(mine, sf.lit(0))["skew_ms"]).otherwise(sf.col("along"))
    return sf.coalesce(skew_ms, sf.lit(0.0))
