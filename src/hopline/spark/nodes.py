"""The nodes of a capture: from when to when each was captured, and which identity belongs to which name.

    captured   what can be expected: a message that nobody saw is lost only if somebody looked
    names      a live node is captured under its identity, as trails have it. An imported file gives it a free name
               ("server"); then its identity is learned from what it sends, whose last trail entry is the sender itself, or
               from what is sent to it, whose frame 0 names the peer
    senders    what is learned from trails, message by message

The first two are small, a row a node, and are joined to large tables by being sent to all executors. Both are told by all
that was seen, also where a table is made of a part of it (`find_nodes`). This file knows no other table.
"""

from functools import reduce
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.window import Window

from hopline.capture.choice import PART, SHARE
from hopline.capture.segment import IMPORT, RUN
from hopline.spark.keeping import Keep, as_it_is

AWAY: Final = ("scaleout_out", "wire_out")
"""Taps where a message leaves for another node."""

CAME: Final = ("scaleout_in", "wire_in")
"""Taps where a message comes from another node."""

MADE: Final = ("hub_out", "actor_out")
"""Taps where a message begins."""

GIVEN: Final = ("actor_in", "hub_in")
"""Taps where a message ends."""

OURS: Final = "0x686f706c696e652f3120|hopline/1 "
SOCKET: Final = f"^(0x00|{OURS})"
"""A socket and no node, whose identity begins otherwise: ZeroMQ named it (a zero byte, and a random number), or Hopline did
("hopline/1 " and anything, as text or in hex). A rendezvous sends on what came from it under that name."""

_IMPORTED: Final = f"-{IMPORT}"
"""In the name of a segment: what it holds has the numbers of lines in files."""

_NUMBERED: Final = "scaleout"
"""How taps begin where each message has the number after the one before; elsewhere it may be that of a line in a file."""

_HAS: Final = ("speaks", "hears", "gives", "gets", "routes")
"""What a capture of a node can have."""

_INSIDE: Final = ("router_in", "hub_in")
"""Taps where it is seen what comes to a hub, also from the node itself."""

_FIRST: Final = "-000001:0"
"""How the id of the first record of a run ends."""

_GAPS: Final = "array<struct<after_ns: bigint, before_ns: bigint>>"

_MOST_SPANS: Final = 1000
"""Of a node that starts again and again, or loses something all the time, so many runs and gaps are known."""


_MOST_LETTERS: Final = 100
"""Messages by which it is found who a peer is that no trail names."""


class Nodes(NamedTuple):
    """The nodes of a capture: rows of `captured`, with `gaps`, the times between which something is missing; and `names`."""

    captured: DataFrame
    names: DataFrame


def find_nodes(messages: DataFrame, keep: Keep = as_it_is) -> Nodes:
    """The nodes of a capture.

    Args:
        messages: the table.
        keep: keeps what is looked at more than once: by each table that is made of messages, names more than once in each.
    """
    nodes, known = keep("captured", captured(messages)), keep("names", names(messages))
    odd = nodes.agg(sf.max("is_torn").alias("is_torn"), sf.max("is_wired").alias("is_wired")).first()
    if odd is not None and odd.is_wired:
        strangers = keep("strangers", _strangers(messages, known))
        if not strangers.isEmpty():
            known = keep("addressed", known.unionByName(_addressed(messages, strangers)))
    if odd is not None and odd.is_torn:
        return Nodes(nodes.join(keep("gaps", _gaps(messages, nodes)), "node_key", "left"), known)
    return Nodes(nodes.withColumn("gaps", sf.lit(None).cast(_GAPS)), known)


def captured(messages: DataFrame) -> DataFrame:
    """A row for each node that was captured.

    The columns are node_key, first_ns and last_ns, and

        speaks, hears, gives, gets   what its capture has: what it sent to other nodes, what it got from them, what was given
                                     to its actors, and anything at all that came to it or to its hubs
        routes                       and what came to its router or its hubs, so also from inside
        runs                         from when to when it was captured, each run by itself, and what that one has
        is_torn                      whether something is missing in them, of what it sent or got
        is_wired                     whether what it sent was imported, under a name that may be no identity
        share                        thousandths of all flows that were recorded
        cut                          how bodies were kept that are not whole: cut or none; else null
        least_cut, most_whole        the size of the smallest of these, and of the greatest one that was kept whole

    A node that records some types only has none of these: what is not in its capture may have been there all the same. That
    is said in the names of files; others than ours say nothing.
    """
    tap, is_whole = sf.col("tap"), ~sf.col("run").rlike(f"^{RUN}{PART}$")
    runs = (
        _taps(messages)
        .groupBy("node_key", "run")
        .agg(
            (sf.max("is_torn") | (sf.max("is_late") & sf.max("has_begun"))).alias("is_torn"),
            sf.max(tap == "wire_out").alias("is_wired"),
            sf.min("first_ns").alias("first_ns"),
            sf.max("last_ns").alias("last_ns"),
            sf.max(tap.isin(*AWAY) & is_whole).alias("speaks"),
            sf.max(tap.isin(*CAME) & is_whole).alias("hears"),
            sf.max((tap == "actor_in") & is_whole).alias("gives"),
            sf.max(tap.isin(*CAME, *_INSIDE) & is_whole).alias("gets"),
            sf.max(tap.isin(*_INSIDE) & is_whole).alias("routes"),
            sf.max("cut").alias("cut"),
            sf.min("least_cut").alias("least_cut"),
            sf.max("most_whole").alias("most_whole"),
        )
    )
    share = sf.coalesce(sf.regexp_extract("run", f"^{RUN}{SHARE}(\\d+)$", 1).try_cast("int"), sf.lit(1000))
    span = sf.when(is_whole, sf.struct("first_ns", "last_ns", *_HAS))
    return runs.groupBy("node_key").agg(
        sf.min("first_ns").alias("first_ns"),
        sf.max("last_ns").alias("last_ns"),
        *(sf.max(name).alias(name) for name in (*_HAS, "is_torn", "is_wired", "cut", "most_whole")),
        sf.min("least_cut").alias("least_cut"),
        sf.min_by(span, span, _MOST_SPANS).alias("runs"),
        sf.min(share).alias("share"),
    )


def _taps(messages: DataFrame) -> DataFrame:
    """What each tap of each run has recorded, and whether something is missing there."""
    is_numbered = sf.max("tap").startswith(_NUMBERED) & ~sf.max(sf.col("event_id").contains(_IMPORTED))
    is_torn = is_numbered & (sf.try_subtract(sf.max("seq"), sf.min("seq")) >= sf.count("seq"))
    return messages.groupBy("node_key", _run().alias("run"), "tap").agg(
        sf.min("seen_ns").alias("first_ns"),
        sf.max("seen_ns").alias("last_ns"),
        is_torn.alias("is_torn"),
        (is_numbered & (sf.min("seq") > 1)).alias("is_late"),
        sf.max(_is_first()).alias("has_begun"),
        sf.max(sf.when(sf.col("body_kept") != "whole", sf.col("body_kept"))).alias("cut"),
        sf.min(sf.when(sf.col("body_kept") != "whole", sf.col("body_size"))).alias("least_cut"),
        sf.max(sf.when(sf.col("body_kept") == "whole", sf.col("body_size"))).alias("most_whole"),
    )


def _run() -> Column:
    """The run of a segment, by its name: a file whose name is none of ours is one by itself."""
    # From behind, as an owner may have anything in its name.
    segment = sf.substring_index("event_id", ":", 1)
    return sf.substring_index(sf.substring_index(segment, "-", -2), "-", 1)


def _is_first() -> Column:
    """Whether it is the first record of its run: a window, or what is left of segments, may begin later."""
    return sf.col("event_id").endswith(_FIRST)


def _gaps(messages: DataFrame, nodes: DataFrame) -> DataFrame:
    """Where numbers are missing among what nodes have sent and got: the times of those before and after, by node.

    Numbers begin with 1 in a run: where its first record is there and the first ones are missing, that is since it began.
    """
    rows = messages.select("node_key", "tap", _run().alias("run"), _is_first().alias("is_first"), "seq", "seen_ns").join(
        sf.broadcast(nodes.where("is_torn").select("node_key")), "node_key"
    )
    run = Window.partitionBy("node_key", "run")
    rows = rows.withColumns({"began_ns": sf.min("seen_ns").over(run), "has_begun": sf.max("is_first").over(run)})
    order = Window.partitionBy("node_key", "run", "tap").orderBy("seq")
    before = sf.lag("seq").over(order)
    is_late = before.isNull() & sf.col("has_begun") & (sf.col("seq") > 1)
    rows = rows.where(sf.col("tap").startswith(_NUMBERED)).select(
        "node_key",
        (is_late | (sf.try_subtract("seq", before) > 1)).alias("is_gap"),
        sf.when(is_late, sf.col("began_ns")).otherwise(sf.lag("seen_ns").over(order)).alias("after_ns"),
        sf.col("seen_ns").alias("before_ns"),
    )
    gap = sf.struct("after_ns", "before_ns")
    return rows.where("is_gap").groupBy("node_key").agg(sf.min_by(gap, gap, _MOST_SPANS).alias("gaps"))


def names(messages: DataFrame) -> DataFrame:
    """A row for each identity that is known: identity_key, and the node_key under which it was captured."""
    is_live = ~sf.col("tap").startswith("wire")
    live = messages.where(is_live).select(sf.col("node_key").alias("identity_key"), "node_key")
    # Distinct first: the least of texts is found by sorting.
    pairs = live.distinct().unionByName(senders(messages).distinct())
    return pairs.groupBy("identity_key").agg(sf.min("node_key").alias("node_key"))


def _strangers(messages: DataFrame, known: DataFrame) -> DataFrame:
    """Peers that messages of imported files are sent to and no trail names: peer_key, and some of these messages."""
    is_to_one = (sf.col("distribution") != "broadcast") & (sf.col("peer_key") != "") & ~sf.col("peer_key").rlike(SOCKET)
    sent = messages.where((sf.col("tap") == "wire_out") & is_to_one)
    sent = sent.join(sf.broadcast(known.select(sf.col("identity_key").alias("peer_key"))), "peer_key", "left_anti")
    letter = sf.struct("seen_ns", "message_uid", "hops", sf.col("node_key").alias("sender"))
    return sent.groupBy("peer_key").agg(sf.min_by(letter, letter, _MOST_LETTERS).alias("letters"))


def _addressed(messages: DataFrame, strangers: DataFrame) -> DataFrame:
    """Names of peers, by where what is sent to them comes; of those that seem to be several nodes nothing is known."""
    letters = strangers.select("peer_key", sf.explode("letters").alias("letter")).select("peer_key", "letter.*")
    came = messages.where(sf.col("tap") == "wire_in").select("message_uid", "hops", "node_key")
    found = came.join(sf.broadcast(letters.drop("seen_ns")), ["message_uid", "hops"]).where("node_key != sender")
    nodes = found.groupBy(sf.col("peer_key").alias("identity_key")).agg(
        sf.min("node_key").alias("node_key"), sf.max("node_key").alias("other")
    )
    return nodes.where("node_key = other").drop("other")


def senders(messages: DataFrame) -> DataFrame:
    """A row for each imported message that tells who sent it: identity_key, and the node_key that the file gives.

    Where nothing was imported, no trail is read.
    """
    trail = sf.col("trail")
    has_sent = (sf.col("tap") == "wire_out") & (sf.col("hops") > 0) & (sf.size(trail) > 0)
    sender = sf.try_element_at(trail, sf.lit(-1))["node_key"]
    return messages.where(has_sent).select(sender.alias("identity_key"), "node_key")


def keeps_alike(size: Column, one: str, other: str) -> Column:
    """Whether two nodes keep as much of a body, for all that is known: fingerprints are over what was kept.

    Args:
        size: of the body.
        one: what stands before the names of the columns of `captured`, of who has seen it.
        other: the same, of who should have.
    """
    least, most = sf.col(f"{other}least_cut"), sf.col(f"{other}most_whole")
    is_whole = sf.coalesce(size < sf.col(f"{one}least_cut"), sf.lit(col=True))
    would_be = least.isNull() | sf.coalesce((size <= most) & (size < least), sf.lit(col=False))
    is_cut = sf.col(f"{one}cut").eqNullSafe(sf.col(f"{other}cut"))
    return sf.when(is_whole, would_be).otherwise(is_cut)


def covers(from_ns: Column, to_ns: Column, *has: str, end: str = "") -> Column:
    """Whether a node was captured from one moment to another, without a gap; null if it was not at all.

    Args:
        from_ns: the first moment.
        to_ns: the last one.
        has: what its capture must have at that time: files of one name may hold what was seen at different places.
        end: what stands before the names of the columns of `captured`.
    """
    runs, gaps = sf.col(f"{end}runs"), sf.col(f"{end}gaps")

    def is_within(run: Column) -> Column:
        return reduce(Column.__and__, (run[name] for name in has), (run["first_ns"] <= from_ns) & (to_ns <= run["last_ns"]))

    is_torn = sf.exists(gaps, lambda gap: (gap["after_ns"] < to_ns) & (from_ns < gap["before_ns"]))
    is_torn |= sf.size(gaps) >= _MOST_SPANS
    return sf.exists(runs, is_within) & ~sf.coalesce(is_torn, sf.lit(col=False))
