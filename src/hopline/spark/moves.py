"""Moves: which two sightings of a message are one move of it, from where it was to where it went.

Theory. A move between nodes leaves two sightings with the same fingerprint, occurrence and hop number, at two nodes. So all
sightings that agree in these three are put together - a handful, for a broadcast two for each peer - and each arrival looks
for the sending that it belongs to:

    it is of another node
    it has the same last entry      of the trail: the node that sent it
    it was sent to this node        as frame 0 says; if that names nobody we know, it may have been
    it left by the same socket      as it came by, if frame 0 of the sending names one: what a node says of itself, and
                                    what a rendezvous passes on of it
    several are left                one that names this node, else the last before the arrival

Control traffic of reference nodes has no trail and no hops, names no peer and is passed on by a rendezvous; so of equal
messages there are not equally many at two nodes. There an arrival belongs to the last sending before it, whoever sent it,
and to one in the same domain: what is announced for several is sent once for each. What goes to all goes to a rendezvous
and from there to everybody, also back: one end of such a move got the message before it sent it. Where no rendezvous was
captured, what left and what came are halves of different moves.

Of equal messages with a trail the n-th that was sent is the n-th that came, and no clocks are compared. But where fewer came
than were sent, some were lost, or the one who got them was captured later; and where some came before the first was sent,
and as many more than were sent, the one who sent them was captured later. These belong together by time too, of each two
nodes by themselves.

Inside a node it is simpler: what hub or actor made, or what came from the network, is given to an actor or a hub.

Almost always there is one sending, one arrival and nothing to choose; that is seen at a glance, and the search is for the
rest. What is moved is narrow, and by fingerprint: no flow is ever put together. This file compares no clocks of two nodes,
except where several sendings fit, and there only if these agree so far that the first sending came first.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.window import Window

from hopline.spark.keeping import Keep, as_it_is
from hopline.spark.midnight import OF_DAY, of_day
from hopline.spark.nodes import AWAY, CAME, GIVEN, MADE, OURS, SOCKET

_MESSAGE: Final = ("message_uid", "occurrence", "hops")
"""What the sightings of one move have in common."""

_FACTS: Final = ("correlation_key", "identity_key", "ttl_ms", "body_size", OF_DAY)
"""What else is said of a move."""

_RELAYED: Final = (
    "KINO.REGEXTROUTE",
    "KINO.UNREGMSGROUTE",
    "KINO.UNREGNODE",
    "KINO.UNREGNODEROUTE",
    "KINO.REQCLUSTROUTES",
    "KINO.REQNODEROUTES",
    "KINO.DISCOVMSGROUTE",
)
"""What reference nodes send to all, themselves too, by way of a rendezvous and in no other."""

MOST_SIGHTINGS: Final = 1000
"""Of one message with one hop number the first so many are looked at. Each arrival looks at all sendings: a stranger who
sends the same again and again, by ever new sockets, must not keep us busy for days. One row stands for what is beyond."""

_LINK: Final = ("message_uid", "hops", "said_sender", "target")
"""What equal messages from one node to another have in common; without a trail, from whichever node."""

_ROLES: Final = {"away": AWAY, "came": CAME, "given": GIVEN, "made": MADE}
"""What a sighting can be to a move. In the order of the alphabet, as they are sorted."""

_MET: Final = "met"
"""What a sighting that came is to a move inside the node, when its own way there is known already."""


def pair(messages: DataFrame, known: DataFrame, keep: Keep = as_it_is) -> DataFrame:
    """All moves of messages, each with its ends, each end as far as it is known.

    The columns are message_uid, occurrence, hops, correlation_key, identity_key, ttl_ms, body_size, kind, matched_by,
    from_node_key, to_node_key, sent_ns and received_ns; and first_ns, by which a move is of its day: when the message was
    first seen at that hop, or when the move began, if there are equal messages, whose numbers are those of a window.

    Args:
        messages: the table.
        known: the names of nodes, of `nodes.names`.
        keep: keeps what is looked at more than once: which messages are equal, of which not as many came as were sent, and
            those that belong together by time.
    """
    role = sf.lit(None)
    for name, taps in _ROLES.items():
        role = sf.when(sf.col("tap").isin(*taps), name).otherwise(role)
    is_socket = sf.col("peer_key").rlike(SOCKET)
    peer = sf.when(is_socket, None).otherwise(_said("peer_key"))
    # What a rendezvous passes on keeps the name of the socket that it came by. Those of reference nodes are no names.
    is_ours = ~sf.col("tap").startswith("wire") | sf.coalesce(sf.col("peer_key").rlike(f"^({OURS})"), sf.lit(col=False))
    is_traced = (sf.col("hops") > 0) | (sf.size("trail") > 0) | is_ours
    is_away, is_moving = sf.col("tap").isin(*AWAY), sf.col("tap").isin(*AWAY, *CAME)
    has_come = sf.col("tap").isin(*GIVEN) & (sf.col("hops") > 0)
    taking_part = [tap for taps in _ROLES.values() for tap in taps]
    rows = (
        messages.withColumn(OF_DAY, of_day(messages))
        .where(sf.col("tap").isin(*taking_part))
        .select(
            *_MESSAGE,
            *_FACTS,
            "domain",
            "seen_ns",
            "seq",
            is_traced.alias("is_traced"),
            (sf.col("tap").startswith("wire") & sf.col("identity_key").isin(*_RELAYED)).alias("is_relayed"),
            role.alias("role"),
            sf.col("node_key").alias("node"),
            sf.when(is_away, peer).alias("peer"),
            sf.when(is_away, sf.coalesce(peer, _said("receiver_node_key"))).alias("address"),
            sf.when(is_moving | has_come, sf.try_element_at("trail", sf.lit(-1))["node_key"]).alias("sender"),
            # Only of what nodes say of themselves: all else is sent to somebody, and has a hop when it moves.
            sf.when(is_socket & is_moving & (sf.col("hops") == 0), sf.col("peer_key")).alias("socket"),
        )
    )
    to = known.select(sf.col("identity_key").alias("peer"), sf.col("node_key").alias("to"))
    rows = rows.join(sf.broadcast(to), "peer", "left")
    traced = rows.where("is_traced").withColumn(
        "target", sf.when(sf.col("role") == "away", sf.col("to")).otherwise(sf.col("node"))
    )
    traced = traced.withColumn("said_sender", sf.coalesce("sender", sf.lit("")))
    moves = _by_time(rows.where("not is_traced"), ("message_uid", "domain"), "untraced", keep)
    again = messages.where("occurrence > 0").select("message_uid", "hops")
    has_again = not again.isEmpty()
    if has_again:
        again = keep("again", again.distinct())
        uneven = keep("uneven", _uneven(traced, again))
        traced = traced.join(uneven, list(_LINK), "left")
        is_uneven = sf.coalesce("is_uneven", sf.lit(col=False)) & sf.col("role").isin("away", "came")
        moves = moves.unionByName(_by_time(traced.where(is_uneven), _LINK, "uneven", keep))
        traced = traced.where(~(is_uneven & (sf.col("role") == "away")))
        traced = traced.withColumn("role", sf.when(is_uneven, _MET).otherwise(sf.col("role")))
    moves = _resolved(moves.unionByName(_by_occurrence(traced)), known)
    first_ns = sf.col("first_ns")
    if has_again:
        moves = moves.join(again.withColumn("is_again", sf.lit(col=True)), ["message_uid", "hops"], "left")
        first_ns = sf.when(sf.col("is_again"), sf.least("sent_ns", "received_ns")).otherwise(first_ns)
    return moves.withColumn("first_ns", sf.least(first_ns, OF_DAY)).drop("is_again", OF_DAY)


def _uneven(rows: DataFrame, again: DataFrame) -> DataFrame:
    """The ways of equal messages, from one node to another, on which not as many came as were sent; `is_uneven` is true.

    Not those on which more came all the same: the same message was sent again by somebody else.

    Args:
        rows: sightings.
        again: message_uid and hops of messages that were seen more than once at one place.
    """
    moving = rows.where(sf.col("role").isin("away", "came") & sf.col("target").isNotNull())
    is_away = sf.col("role") == "away"
    moving = moving.join(again, ["message_uid", "hops"], "left_semi")
    moving = moving.withColumn("first_sent", sf.min(sf.when(is_away, sf.col("seen_ns"))).over(Window.partitionBy(*_LINK)))
    found = moving.groupBy(*_LINK, "first_sent").agg(
        sf.count_if(is_away).alias("sent"),
        sf.count_if(~is_away).alias("came"),
        sf.count_if(~is_away & (sf.col("seen_ns") < sf.col("first_sent"))).alias("came_before"),
        sf.max(sf.when(is_away, sf.col("seen_ns"))).alias("last_sent"),
        sf.max(sf.when(~is_away, sf.col("seen_ns"))).alias("last_came"),
        sf.min(sf.when(~is_away, sf.col("seen_ns"))).alias("first_came"),
    )
    is_fewer = "came > 0 and came < sent and first_sent <= first_came"
    is_more = "came_before > 0 and came - came_before = sent and last_sent <= last_came"
    uneven = found.where(f"({is_fewer}) or ({is_more})")
    return uneven.select(*_LINK, sf.lit(col=True).alias("is_uneven"))


def _said(name: str) -> Column:
    return sf.when(sf.col(name) != "", sf.col(name))


def _resolved(moves: DataFrame, known: DataFrame) -> DataFrame:
    """Name the sender of what was seen to arrive only, by the last entry of its trail."""
    by_trail = known.select(sf.col("identity_key").alias("sender"), sf.col("node_key").alias("_name"))
    sender = sf.when(sf.col("kind") == "network", sf.coalesce("from_node_key", "_name", "sender"))
    moves = moves.join(sf.broadcast(by_trail), "sender", "left")
    return moves.withColumn("from_node_key", sender.otherwise(sf.col("from_node_key"))).drop("sender", "peer", "_name")


# --- by occurrence ----------------------------------------------------------------------------------------------------


def _by_occurrence(rows: DataFrame) -> DataFrame:
    sighting = sf.struct("role", "node", "seen_ns", "peer", "to", "address", "sender", "socket")
    first = sf.min_by(sighting, sf.struct("seen_ns", "role", "node", "peer", "socket"), MOST_SIGHTINGS)
    groups = (
        rows.repartition("message_uid")  # first, or Spark would make lists of one before and after moving them
        .groupBy(*_MESSAGE, "correlation_key", "identity_key")
        .agg(
            *(sf.max(name).alias(name) for name in ("ttl_ms", "body_size", OF_DAY)),
            sf.sort_array(first).alias("sightings"),
            sf.count("*").alias("all"),
            sf.min("seen_ns").alias("first_ns"),
            sf.max("seen_ns").alias("last_ns"),
        )
    )
    groups = groups.withColumn("plain", _plain())
    is_plain = sf.col("plain").isNotNull()
    groups = groups.withColumns({role: sf.when(~is_plain, _with_role(role)) for role in (*_ROLES, _MET)})
    # One step at a time: what a lambda has found the next one is given, else Spark would look for it at each mention.
    found = sf.transform(sf.transform("came", _ranked), _best)
    groups = groups.withColumn("arrived", sf.transform(found, _arrival))
    found = sf.concat("arrived", _nowhere(), _inside(), _beyond())
    each = sf.explode(sf.when(is_plain, sf.col("plain")).otherwise(found))
    moves = groups.select(*_MESSAGE, *_FACTS, "first_ns", each.alias("move"))
    return moves.select(*_MESSAGE, *_FACTS, "first_ns", "move.*")


def _plain() -> Column:
    """The moves of a message where there is nothing to choose: they are sorted by their roles. Else null."""
    size = sf.size("sightings")
    first, second, third = (sf.get("sightings", sf.lit(place)) for place in range(3))
    is_sent = (first["role"] == "away") & (second["role"] == "came") & _fits(first, second)
    is_given = (third["role"] == "given") & (third["node"] == second["node"])
    sent = _sent(first, second, _how())
    is_local = (first["role"] == "given") & (second["role"] == "made") & (first["node"] == second["node"])
    nothing = sf.slice(sf.array(sent), 1, 0)  # an array of such moves
    return (
        sf.when((size == 1) & (first["role"] == "away"), sf.array(_half_sent(first)))
        .when((size == 1) & (first["role"] == "came"), sf.array(_half_received(first)))
        .when(size == 1, nothing)
        .when((size == 2) & is_sent, sf.array(sent))
        .when((size == 2) & is_local, sf.array(_given(second, first)))
        .when((size == 3) & is_sent & is_given, sf.array(sent, _given(second, third)))
    )


def _with_role(role: str) -> Column:
    return sf.filter("sightings", lambda sighting: sighting["role"] == role)


def _fits(away: Column, came: Column) -> Column:
    """Whether an arrival may belong to a sending."""
    may_be_for = away["to"].isNull() | (away["to"] == came["node"])
    may_be_by = away["socket"].isNull() | _is_by(away, came)
    return (away["node"] != came["node"]) & may_be_for & may_be_by & away["sender"].eqNullSafe(came["sender"])


def _is_by(away: Column, came: Column) -> Column:
    """Whether it came by the socket that it left by, as both ends say."""
    return sf.coalesce(away["socket"] == came["socket"], sf.lit(col=False))


def _ranked(came: Column) -> Column:
    """An arrival with the sendings that it may belong to; the best one is the greatest."""

    def rank(away: Column) -> Column:
        is_before = away["seen_ns"] <= came["seen_ns"]
        return sf.struct(
            (away["to"].isNotNull() | away["socket"].isNotNull()).alias("is_named"),
            is_before.alias("is_before"),
            sf.when(is_before, away["seen_ns"]).otherwise(-away["seen_ns"]).alias("nearness"),
            away.alias("away"),
        )

    def is_same_before(other: Column) -> Column:
        is_same = (other["node"] == came["node"]) & other["sender"].eqNullSafe(came["sender"])
        return is_same & (other["seen_ns"] < came["seen_ns"])

    # A node gets what another has sent to it once. What comes again, by another socket, was sent by somebody else.
    is_again = sf.exists("came", is_same_before)
    ranked = sf.transform(sf.filter("away", lambda away: (_is_by(away, came) | ~is_again) & _fits(away, came)), rank)
    return sf.struct(came.alias("came"), ranked.alias("ranked"))


def _best(found: Column) -> Column:
    best = sf.array_max(found["ranked"])
    return sf.struct(found["came"].alias("came"), found["ranked"].alias("ranked"), best.alias("best"))


def _arrival(found: Column) -> Column:
    """The move that ends with an arrival: from the sending that fits best, or from one that was not seen."""
    came, best = found["came"], found["best"]
    rivals = sf.filter(found["ranked"], lambda other: other["is_named"] == best["is_named"])
    how = sf.when(sf.size(rivals) > 1, "time").otherwise(_how())
    return sf.when(best.isNull(), _half_received(came)).otherwise(_sent(best["away"], came, how))


def _name(away: Column) -> Column:
    """Whom it was sent to, or else by which socket it left: of equal messages of one moment there is one for each."""
    return sf.coalesce(away["peer"], away["socket"])


def _nowhere() -> Column:
    """The sendings that no arrival belongs to."""

    def is_taken(away: Column) -> Column:
        return sf.exists(
            "arrived",
            lambda move: (
                # Of an arrival alone nothing is known of its sending: with null for an answer this one would be nowhere.
                move["from_node_key"].eqNullSafe(away["node"])
                & move["sent_ns"].eqNullSafe(away["seen_ns"])
                & move["peer"].eqNullSafe(_name(away))
            ),
        )

    return sf.transform(sf.filter("away", lambda away: ~is_taken(away)), _half_sent)


def _inside() -> Column:
    """The moves inside nodes: from the last that was made or came by the same sender, to each that it was given to."""

    def with_source(given: Column) -> Column:
        def rank(source: Column) -> Column:
            is_before = source["seen_ns"] <= given["seen_ns"]
            nearness = sf.when(is_before, source["seen_ns"]).otherwise(-source["seen_ns"])
            is_same = source["sender"].eqNullSafe(given["sender"])
            return sf.struct(
                is_same.alias("is_same"), is_before.alias("is_before"), nearness.alias("nearness"), source.alias("source")
            )

        here = sf.filter(sf.concat("made", "came", _MET), lambda source: source["node"] == given["node"])
        best = sf.array_max(sf.transform(here, rank))
        return sf.struct(given.alias("given"), best["source"].alias("source"))

    pairs = sf.filter(sf.transform("given", with_source), lambda pair: pair["source"].isNotNull())
    return sf.transform(pairs, lambda pair: _given(pair["source"], pair["given"]))


def _beyond() -> Column:
    """What stands for the sightings that were not looked at, if there are any."""
    one = sf.array(_move(sf.lit(None).cast("string"), sf.lit("too many"), None, None, sf.col("last_ns"), None))
    return sf.slice(one, sf.lit(1), (sf.col("all") > MOST_SIGHTINGS).cast("int"))


# --- by time ----------------------------------------------------------------------------------------------------------


def _by_time(rows: DataFrame, what: tuple[str, ...], name: str, keep: Keep) -> DataFrame:
    """Moves of equal messages of which an arrival belongs to the last sending before it.

    Several that come to one node, with no sending between them, belong to as many of the last ones of that sender, in their
    order. What a node has sent on comes from others: it is not what comes to that node again.

    Args:
        rows: sightings of messages where they left and where they came.
        what: what a sending and its arrival have in common.
        name: of these messages, under which
        keep: keeps the sightings, which are looked at as sendings and as arrivals, and arrivals with their sendings.
    """
    time = ("seen_ns", "role", "seq")  # away comes before came
    is_away = sf.col("role") == "away"
    all_before = Window.partitionBy(*what).orderBy(*time, "node").rowsBetween(Window.unboundedPreceding, -1)
    here = Window.partitionBy(*what, "node").orderBy(*time)
    found = rows.repartition("message_uid").withColumns(  # once for all that follows
        {
            # Of one who sends: its how many-th sending this is, or was the last before.
            "number": sf.sum(is_away.cast("int")).over(here.rowsBetween(Window.unboundedPreceding, 0)),
            "passes_on": sf.first("role").over(here.rowsBetween(Window.unboundedPreceding, 0)) == "came",
            "sends": sf.max(is_away).over(Window.partitionBy(*what, "node")),
            "first_ns": sf.min("seen_ns").over(Window.partitionBy(*_MESSAGE)),
        }
    )
    sending = sf.struct("node", "number", "passes_on")
    found = found.withColumns(
        {
            "turn": sf.sum(is_away.cast("int")).over(all_before),
            "last": sf.last(sf.when(is_away, sending), ignorenulls=True).over(all_before),
            "last_own": sf.last(sf.when(is_away & ~sf.col("passes_on"), sending), ignorenulls=True).over(all_before),
        }
    )
    found = keep(f"{name}-sightings", found)
    is_own = (sf.col("last.node") == sf.col("node")) & sf.col("passes_on")
    arrivals = found.where(~is_away).withColumn("source", sf.when(is_own, sf.col("last_own")).otherwise(sf.col("last")))
    arrivals = arrivals.withColumn("before_ns", sf.lag("seen_ns").over(here))
    turn = Window.partitionBy(*what, "node", "turn")
    # Not as a count of those that follow: to find that, Spark goes through all of them again for each.
    later = sf.count("*").over(turn) - sf.row_number().over(turn.orderBy(*time))
    arrivals = arrivals.withColumns(
        {
            "source_number": sf.col("source.number") - later,
            "before_ns": sf.first("before_ns").over(turn.orderBy(*time)),
        }
    )
    sendings = found.where(is_away)
    sources = sendings.select(
        *what,
        sf.col("node").alias("source_node"),
        sf.col("number").alias("source_number"),
        sf.col("seen_ns").alias("source_ns"),
        sf.col("first_ns").alias("source_first_ns"),
    )
    arrivals = arrivals.withColumn("source_node", sf.col("source.node"))
    arrivals = keep(f"{name}-arrivals", arrivals.join(sources, [*what, "source_node", "source_number"], "left"))
    has_relay = ~sf.col("is_relayed") | sf.col("source.passes_on") | (sf.col("passes_on") & sf.col("sends"))
    is_known = (
        has_relay
        & sf.col("source_ns").isNotNull()
        & ~sf.coalesce(sf.col("source_ns") <= sf.col("before_ns"), sf.lit(col=False))
    )
    taken = arrivals.where(is_known).select(
        *what, sf.col("source_node").alias("node"), sf.col("source_number").alias("number")
    )
    came = _move(
        sf.when(is_known & (sf.col("source_node") == sf.col("node")), "local").otherwise("network"),
        sf.when(is_known, "time").when(sf.col("sender").isNotNull(), "trail"),
        sf.when(is_known, sf.col("source_node")),
        sf.col("node"),
        sf.when(is_known, sf.col("source_ns")),
        sf.col("seen_ns"),
        sf.col("sender"),
    )
    to = sf.coalesce("to", "address")
    went = _move(sf.lit("network"), sf.when(to.isNotNull(), "address"), sf.col("node"), to, sf.col("seen_ns"), None)
    nowhere = sendings.join(taken.distinct(), [*what, "node", "number"], "left_anti")
    first_ns = sf.when(is_known, sf.col("source_first_ns")).otherwise(sf.col("first_ns"))
    moves = arrivals.select(*_MESSAGE, *_FACTS, first_ns.alias("first_ns"), came.alias("move")).unionByName(
        nowhere.select(*_MESSAGE, *_FACTS, "first_ns", went.alias("move"))
    )
    return moves.select(*_MESSAGE, *_FACTS, "first_ns", "move.*")


# --- a move -----------------------------------------------------------------------------------------------------------


def _how() -> Column:
    return sf.when(sf.col("occurrence") > 0, "uid+occurrence").otherwise("uid")


def _sent(away: Column, came: Column, how: Column) -> Column:
    """A move between nodes of which both ends were seen."""
    ends = (away["node"], came["node"], away["seen_ns"], came["seen_ns"])
    return _move(sf.lit("network"), how, *ends, came["sender"], _name(away))


def _half_sent(away: Column) -> Column:
    """A sending of which the arrival was not seen."""
    to = sf.coalesce(away["to"], away["address"])
    how = sf.when(to.isNotNull(), "address")
    return _move(sf.lit("network"), how, away["node"], to, away["seen_ns"], None, away["sender"], _name(away))


def _half_received(came: Column) -> Column:
    """An arrival of which the sending was not seen."""
    how = sf.when(came["sender"].isNotNull(), "trail")
    return _move(sf.lit("network"), how, None, came["node"], None, came["seen_ns"], came["sender"])


def _given(source: Column, given: Column) -> Column:
    """A move inside a node."""
    kind = sf.when(source["role"] == "made", "local").otherwise("deliver")
    return _move(kind, _how(), source["node"], given["node"], source["seen_ns"], given["seen_ns"])


def _move(
    kind: Column,
    how: Column,
    source: Column | None,
    target: Column | None,
    sent_ns: Column | None,
    received_ns: Column | None,
    sender: Column | None = None,
    peer: Column | None = None,
) -> Column:
    nobody, never = sf.lit(None).cast("string"), sf.lit(None).cast("bigint")
    return sf.struct(
        kind.alias("kind"),
        how.cast("string").alias("matched_by"),
        (nobody if source is None else source).alias("from_node_key"),
        (nobody if target is None else target).alias("to_node_key"),
        (never if sent_ns is None else sent_ns).alias("sent_ns"),
        (never if received_ns is None else received_ns).alias("received_ns"),
        (nobody if sender is None else sender).alias("sender"),
        (nobody if peer is None else peer).alias("peer"),
    )
