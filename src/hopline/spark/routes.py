"""The table `routes`: who could serve what, from when to when, as nodes told each other.

Theory. A node announces its hubs and actors (KINO.REGEXTROUTE), takes some of them back (UNREGMSGROUTE) or all (UNREGNODE);
that it is gone, others find out (UNREGUNREACHABLENODE). Each announcement is seen many times: where it was sent, at the
rendezvous that passes it on, wherever it came. The n-th sightings of equal ones at each place are one announcement, unless
nobody saw it for ten minutes: then it was said again, and not all heard it before. Its time is that of the announced node's
own clock if it saw it, else the first, put back by how far the others' clocks are ahead of its own. A rendezvous that sends
more often than it gets publishes each one twice; what it sends is left out, as what it got says the same.

A route is open from its announcement to whatever ends it first; announced again while it is open, nothing changes. A node
that is announced at another address was started anew there, and nothing that it served before is left, in any domain: a
domain says who may speak, not where a node is. Nodes take it so too (`node/service.py`).

What is wrongly signed says nothing, as nodes ignore it: neither where it came, nor where its forger was seen to make it, if
it went out in no other way. That a node cannot be reached is believed whoever says it; nodes do not check that either.

Control messages are few, and only their bodies are read, each distinct one once. What nodes answer to questions
(KINO.EXTROUTES) or register inside themselves (REGINTROUTE) was not announced to others, and is not looked at.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.window import Window

from hopline.capture.record import key_of
from hopline.errors import PayloadError
from hopline.identity import MessageType, is_actor, is_hub
from hopline.payload.service import (
    SERVICE_VERSION,
    MessageContract,
    RegisterExternalRoute,
    RegisterExternalRouteV4,
    ServicePayload,
    UnregisterMessageRoute,
    UnregisterMessageRouteV4,
    UnregisterNode,
    UnregisterNodeRoute,
    UnregisterUnreachableNode,
    UnregisterUnreachableNodeV4,
    read_service,
)
from hopline.spark.hops import ns_of, timestamp_of
from hopline.spark.keeping import Keep, as_it_is
from hopline.spark.nodes import AWAY, CAME, names
from hopline.spark.tables import ROUTES, conform

IDENTITIES: Final = tuple(
    payload.identity.decode()
    for payload in (
        RegisterExternalRoute,
        UnregisterMessageRoute,
        UnregisterNode,
        UnregisterUnreachableNode,
        UnregisterNodeRoute,
    )
)
"""The messages that open and end routes."""

_NEVER_CHECKED: Final = (UnregisterUnreachableNode.identity.decode(),)
"""Those whose signatures no node looks at."""

_SAID: Final = pa.schema(
    [
        ("message_uid", pa.binary()),
        ("opens", pa.bool_()),
        ("route_node", pa.string()),
        ("node_uri", pa.string()),
        ("receiver_key", pa.string()),
        ("receiver_kind", pa.string()),
        ("identity_key", pa.string()),
        ("version", pa.int32()),
        ("partition_key", pa.string()),
    ]
)
"""What an announcement says, a row a route. In what ends routes, null means all."""

_SAID_DDL: Final = (
    "message_uid binary, opens boolean, route_node string, node_uri string, receiver_key string, receiver_kind string, "
    "identity_key string, version int, partition_key string"
)

_SILENCE_NS: Final = 600_000_000_000
"""Ten minutes: longer than any message is under way, and than most clocks are apart that nobody could compare."""

_ROUTE: Final = ("route_node", "receiver_key", "receiver_kind", "identity_key", "version", "partition_key", "domain")


def routes(
    messages: DataFrame,
    announcements: DataFrame | None = None,
    skews: DataFrame | None = None,
    verdicts: DataFrame | None = None,
    keep: Keep = as_it_is,
) -> DataFrame:
    """The table `routes`.

    Args:
        messages: the table, for the names of nodes.
        announcements: the same sightings with their bodies, at least those of IDENTITIES; by default `messages` has them.
        skews: of `hops.skews`, for the clocks of those who saw what the announced node did not; without it they are equal.
        verdicts: of `signatures.judge`, for what was wrongly signed; without them everything is believed.
        keep: keeps what is looked at more than once, here what was announced: what opened routes, and what ended them.
    """
    rows = messages if announcements is None else announcements
    is_ours = (sf.col("version") == SERVICE_VERSION) & (sf.col("partition_key") == "")
    rows = rows.where(sf.col("identity_key").isin(*IDENTITIES) & is_ours)
    if verdicts is not None:
        rows = _believed(rows, verdicts)
    # Equal bytes may have come in two formats, which read them differently: the newest one counts, whatever came first.
    bodies = rows.groupBy("message_uid").agg(*(sf.max(name).alias(name) for name in ("identity", "format", "body")))
    said = bodies.mapInArrow(_read_announcements, _SAID_DDL)
    told = _events(rows, said, names(messages), skews).join(said, "message_uid")
    return _intervals(_changes(keep("announced", told)))


def _believed(rows: DataFrame, verdicts: DataFrame) -> DataFrame:
    """Sightings of announcements without those that are forged."""
    invalid = verdicts.where("status = 'invalid'").select(
        sf.col("first_event_id").alias("event_id"), sf.lit(1).alias("wrong")
    )
    is_wrong = sf.col("wrong").isNotNull() & ~sf.col("identity_key").isin(*_NEVER_CHECKED)
    is_right = sf.col("tap").isin(*AWAY, *CAME) & ~is_wrong
    said = Window.partitionBy("message_uid", "domain")
    looked_at = rows.join(invalid, "event_id", "left").withColumns(
        {"is_wrong": is_wrong, "is_forged": sf.max(is_wrong).over(said) & ~sf.max(is_right).over(said)}
    )
    return looked_at.where("not is_wrong and not is_forged").select(*rows.columns)


def _events(rows: DataFrame, said: DataFrame, known: DataFrame, skews: DataFrame | None) -> DataFrame:
    """Each announcement once, with its time: message_uid, domain, said_by (its identity) and said_ns."""
    if "peer_key" not in rows.columns:
        rows = rows.withColumn("peer_key", sf.lit(None).cast("string"))
    sightings = rows.select(
        "message_uid", "domain", sf.col("identity_key").alias("said_by"), "node_key", "tap", "direction", "peer_key",
        "seen_ns", "seq", "event_id", "date",
    )  # fmt: skip
    place = Window.partitionBy("message_uid", "domain", "node_key")
    came, went = (sf.count_if(sf.col("direction") == direction).over(place) for direction in ("in", "out"))
    sightings = sightings.withColumns({"came": came, "went": went})
    # One announcement is sent to many peers. What comes again has been said again, by whatever socket.
    peer = sf.when(sf.col("direction") == "out", sf.col("peer_key"))
    order = Window.partitionBy("message_uid", "domain", "node_key", "tap", peer).orderBy("seen_ns", "seq", "event_id")
    about = said.select("message_uid", "route_node").distinct()
    own = known.select(sf.col("identity_key").alias("route_node"), sf.col("node_key").alias("own_name"))
    sightings = sightings.join(about, "message_uid").join(sf.broadcast(own), "route_node", "left")
    own_name = sf.coalesce("own_name", "route_node")
    sightings = sightings.withColumn("own_name", own_name)
    is_relay = (sf.col("direction") == "out") & (sf.col("came") > 0) & (sf.col("went") > sf.col("came"))
    is_relay &= sf.col("node_key") != sf.col("own_name")
    sightings = sightings.where(~is_relay).withColumn("number", sf.row_number().over(order))
    if skews is not None:
        ahead = skews.select(
            sf.col("from_node_key").alias("own_name"), sf.col("to_node_key").alias("node_key"), "date", "skew_ms"
        )
        sightings = sightings.join(sf.broadcast(ahead), ["own_name", "node_key", "date"], "left")
        sightings = sightings.withColumn("seen_ns", sf.try_subtract("seen_ns", ns_of("skew_ms")))
    is_others = sf.col("node_key") != sf.col("own_name")
    said_ns = sf.min(sf.struct(is_others.alias("is_others"), "seen_ns"))["seen_ns"]
    event = ("message_uid", "domain", "number", "said_by")
    in_time = Window.partitionBy(*event).orderBy("seen_ns")
    before_ns = sf.lag("seen_ns").over(in_time)
    # What cannot be subtracted is too far apart.
    is_new = before_ns.isNotNull() & sf.coalesce(sf.try_subtract("seen_ns", before_ns) > _SILENCE_NS, sf.lit(col=True))
    sightings = sightings.withColumn("is_new", is_new.cast("int"))
    sightings = sightings.withColumn("time", sf.sum("is_new").over(in_time))
    return sightings.groupBy(*event, "time").agg(said_ns.alias("said_ns"))


def _changes(told: DataFrame) -> DataFrame:
    """For each route what opened and what ended it, in its time."""
    opened = told.where("opens").select(*_ROUTE, "said_ns", "said_by", "node_uri")
    known = opened.select(*_ROUTE).distinct()
    # A move names no receivers, as those of a node that is started anew are others: what it leaves out is null, all.
    ends = told.where("not opens").unionByName(_moves(opened), allowMissingColumns=True)
    ended = ends.select(
        *(sf.col(name).alias(f"ended_{name}") for name in _ROUTE if name not in ("receiver_kind", "domain")),
        "said_ns",
        "said_by",
    )
    is_meant = sf.col("route_node") == sf.col("ended_route_node")
    is_meant &= sf.col("ended_receiver_key").isNull() | (sf.col("receiver_key") == sf.col("ended_receiver_key"))
    for name in ("identity_key", "version", "partition_key"):
        is_meant &= sf.col("ended_identity_key").isNull() | sf.col(name).eqNullSafe(sf.col(f"ended_{name}"))
    ended = known.join(ended, is_meant).select(*_ROUTE, "said_ns", "said_by", sf.lit(None).cast("string").alias("node_uri"))
    state = sf.when(sf.col("is_open"), sf.concat(sf.lit("at "), sf.coalesce("node_uri", sf.lit("")))).otherwise("ended")
    both = opened.withColumn("is_open", sf.lit(col=True)).unionByName(ended.withColumn("is_open", sf.lit(col=False)))
    return both.withColumn("state", state)


def _moves(opened: DataFrame) -> DataFrame:
    """When a node was announced at another address than before: route_node, said_ns and said_by."""
    # Who does not say which node it is, or where, has not moved: nodes do not heed it.
    placed = opened.where("route_node != '' and node_uri != ''")
    before = sf.lag("node_uri").over(Window.partitionBy("route_node").orderBy("said_ns", "node_uri"))
    return placed.withColumn("before", before).where("node_uri != before").select("route_node", "said_ns", "said_by")


def _intervals(changes: DataFrame) -> DataFrame:
    order = Window.partitionBy(*_ROUTE).orderBy("said_ns", "is_open", "state", "said_by")
    turns = changes.withColumn("before", sf.lag("state", 1, "ended").over(order)).where("state != before")
    ended = {"valid_to": timestamp_of(sf.lead("said_ns").over(order)), "ended_by": sf.lead("said_by").over(order)}
    found = turns.withColumns(ended).where("is_open").withColumnRenamed("route_node", "node_key")
    return conform(found.withColumn("valid_from", timestamp_of(sf.col("said_ns"))), ROUTES)


# --- in the workers ---------------------------------------------------------------------------------------------------


class _Said(NamedTuple):
    """One route of an announcement: the columns of _SAID after the first."""

    opens: bool
    route_node: str
    node_uri: str | None
    receiver_key: str | None = None
    receiver_kind: str | None = None
    identity_key: str | None = None
    version: int | None = None
    partition_key: str | None = None


def _read_announcements(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = [
            {"message_uid": row["message_uid"], **said._asdict()}
            for row in batch.to_pylist()
            for said in _read(row["identity"], row["body"], row["format"])
        ]
        yield pa.RecordBatch.from_pylist(rows, _SAID)


def _read(identity: bytes, body: bytes | None, era: str) -> Iterator[_Said]:
    """What an announcement says; nothing if its body cannot be read, or was not kept."""
    if body is None:
        return
    try:
        payload = read_service(identity, body, era=era)  # type: ignore[arg-type]  # a format that decoded
    except PayloadError:
        return
    yield from _routes_in(payload)


def _routes_in(payload: ServicePayload) -> Iterator[_Said]:
    match payload:
        case RegisterExternalRoute(uri=uri, node_identity=node, routes=routes):
            for route in routes:
                receiver = route.receiver_identity or b""
                for kind in _types(route.message_contracts, is_whole=not is_actor(receiver)):
                    yield _route(kind, receiver, opens=True, node=node, uri=uri)
        case UnregisterMessageRoute(uri=uri, receiver_node_identity=node, routes=routes):
            for route in routes:
                for kind in _types(route.message_contracts, is_whole=True):
                    yield _route(kind, route.receiver_identity or None, opens=False, node=node, uri=uri)
        case RegisterExternalRouteV4(uri=uri, socket_identity=node, message_contracts=contracts):
            for contract in contracts:
                yield _old_route(contract, b"", opens=True, node=node, uri=uri)
        case UnregisterMessageRouteV4(uri=uri, socket_identity=node, message_contracts=contracts):
            for contract in contracts:
                yield _old_route(contract, None, opens=False, node=node, uri=uri)
        case UnregisterNode(receiver_node_identity=node) | UnregisterUnreachableNode(receiver_node_identity=node):
            yield _route(None, None, opens=False, node=node, uri=None)
        case UnregisterNodeRoute(socket_identity=node) | UnregisterUnreachableNodeV4(socket_identity=node):
            yield _route(None, None, opens=False, node=node, uri=None)


def _types(contracts: Iterable[MessageContract], *, is_whole: bool) -> list[MessageType | None]:
    """The types that are named; if none is, the receiver as a whole may be meant."""
    types: list[MessageType | None] = [contract.type for contract in contracts]
    return types or ([None] if is_whole else [])


def _old_route(
    contract: MessageContract, receiver: bytes | None, *, opens: bool, node: bytes | None, uri: str | None
) -> _Said:
    """A route of v3 or v4, which name a hub as if it were a message type."""
    if contract.is_any_identifier:
        return _route(None, contract.identity, opens=opens, node=node, uri=uri)
    return _route(contract.type, receiver, opens=opens, node=node, uri=uri)


def _route(kind: MessageType | None, receiver: bytes | None, *, opens: bool, node: bytes | None, uri: str | None) -> _Said:
    receiver_key, receiver_kind = _receiver(receiver)
    said = _Said(opens, key_of(node or b""), uri, receiver_key, receiver_kind)
    if kind is None:
        return said
    version = kind.version if isinstance(kind.version, int) else None
    return said._replace(identity_key=key_of(kind.identity), version=version, partition_key=key_of(kind.partition))


def _receiver(receiver: bytes | None) -> tuple[str | None, str | None]:
    """The key of a receiver and its kind, as the table `messages` has them; nobody in particular if it is not said."""
    if not receiver:
        return (None, None) if receiver is None else ("", "")
    if is_hub(receiver) or is_actor(receiver):
        kind = "hub" if is_hub(receiver) else "actor"
        return f"{kind}:{key_of(receiver[1:])}", kind
    return key_of(receiver), "unknown"
