"""The table `callbacks`: requests, each with what came of it.

Theory. A request begins at a hub, carries callback points, and every message of its flow carries them on: so what has the
same hub, key and flow belongs together. Among these the request is one that has inherited nothing, with the fewest hops,
seen at its hub, or on its way out rather than in: of such sightings the first counts. What records no trail inherits nothing
that shows: there the request is what was seen first, wherever that was, and it counts as it left. Answers are those whose
own type is among the points that they carry, and among those of the request. Without a key on the wire (v3, v4) the points
take its place; if the hub's own sighting has a key all the same, what has none is counted to it. A receipt of a reference
node has lost the other points, and is for the one question of its hub and flow that asked for a receipt.

An answer has come when it is seen at the hub; or, where hubs were not captured, on its way in at the node that sent the
request; or, where nothing that comes to that node was captured, anywhere. An answer that set out and did not come is none.
Answers that say the same are told apart by who sent them, where they came. Only in the first two cases the times are those
of who asked; in the last one they are of whoever saw request and answer, and `asker_captured` is false.

    ok, exception, late    by the first answer, and by the TTL of the request at its first sighting
    expired, pending       no answer: the TTL is over, or there is none or it is not over when the capture of the node ends
    duplicate              one more row for each further answer
    orphan                 a row for an answer whose request is not in the capture

What a failure says is read from bodies by `read_errors`, of KINO.EXCEPTION alone. This file knows no promises: whether
somebody still waited, only the node knew.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.window import Window

from hopline.errors import PayloadError
from hopline.identity import EXCEPTION, RECEIPT
from hopline.payload.service import ExceptionMessage
from hopline.spark.hops import NS_PER_MS, timestamp_of
from hopline.spark.keeping import Keep, as_it_is
from hopline.spark.midnight import OF_DAY, of_day
from hopline.spark.nodes import Nodes, find_nodes
from hopline.spark.tables import CALLBACKS, conform
from hopline.spark.trails import inherited_size, is_traced

EXCEPTION_KEY: Final = EXCEPTION.identity.decode()
_RECEIPT_KEY: Final = RECEIPT.identity.decode()

_ASK: Final = ("hub_key", "ask_key", "ask_flow", "ask_points")
"""What an answer and its request have in common: the hub, the key, the flow, and the points where there is no key."""


def callbacks(answers: DataFrame) -> DataFrame:
    """The table `callbacks`, of `find_answers`."""
    return conform(answers, CALLBACKS)


def find_answers(
    messages: DataFrame, errors: DataFrame | None = None, keep: Keep = as_it_is, nodes: Nodes | None = None
) -> DataFrame:
    """Requests with their answers: the columns of `callbacks`, and what other tables need to know of them.

    Beside the columns of the table these are requested_ns, and response_size: bytes of the answer's body.

    Args:
        messages: the table.
        errors: what failures say, of `read_errors`; without it error_type and error_message are null.
        keep: keeps what is looked at more than once, here the requests: by answers, and for themselves.
        nodes: who was captured, if messages are not all that was seen.
    """
    rows = _asked(messages)
    captured, _ = nodes or find_nodes(messages)
    requests = keep("requests", _with_capture(_requests(rows), captured))
    came = _came(rows, requests)
    order = Window.partitionBy(*_ASK).orderBy("resolved_ns", "response_uid", "response_occurrence")
    everything = Window.partitionBy(*_ASK)
    came = came.withColumns(
        {
            "number": sf.row_number().over(order),
            "responses": sf.count("*").over(everything).cast("int"),
            "first_ns": sf.min("resolved_ns").over(everything),  # of orphans too: what belongs together is of one day
        }
    )
    found = requests.join(came, list(_ASK), "full")
    begun_ns = sf.coalesce("requested_ns", "first_ns")
    found = found.withColumn("wait_ms", sf.try_subtract("resolved_ns", "requested_ns") / NS_PER_MS)
    found = found.withColumns(
        {
            "correlation_key": sf.coalesce("request_flow", "response_flow"),
            "callback_key": sf.col("ask_key"),
            "outcome": _outcome(),
            "asker_captured": ~sf.col("is_foreign"),
            "responses": sf.coalesce("responses", sf.lit(0)),
            "requested_at": timestamp_of(sf.col("requested_ns")),
            "resolved_at": timestamp_of(sf.col("resolved_ns")),
            "date": timestamp_of(sf.least(begun_ns, "request_of_day_ns", "response_of_day_ns")).cast("date"),
        }
    )
    if errors is None:
        nothing = sf.lit(None).cast("string")
        return found.withColumns({"error_type": nothing, "error_message": nothing})
    said = errors.select(sf.col("message_uid").alias("response_uid"), "error_type", "error_message")
    return found.join(said, "response_uid", "left")


# --- what failures say ------------------------------------------------------------------------------------------------

_ERRORS: Final = "message_uid binary, error_type string, error_message string"


def read_errors(messages: DataFrame) -> DataFrame:
    """What KINO.EXCEPTION messages say: message_uid, error_type, error_message. What cannot be read is null.

    Args:
        messages: sightings with message_uid, identity_key and body; others than exceptions are left out.
    """
    bodies = messages.where(sf.col("identity_key") == EXCEPTION_KEY).select("message_uid", "body")
    return bodies.dropDuplicates(["message_uid"]).mapInArrow(_read_errors, _ERRORS)


def _read_errors(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        said = [_error(body) for body in batch["body"].to_pylist()]
        columns = [batch["message_uid"], *(pa.array(column, pa.string()) for column in zip(*said, strict=True))]
        if said:
            yield pa.RecordBatch.from_arrays(columns, names=["message_uid", "error_type", "error_message"])


def _error(body: bytes | None) -> tuple[str | None, str | None]:
    try:
        failure = ExceptionMessage.read(body or b"")
    except PayloadError:
        return None, None
    return failure.exception_type, failure.message


# --- requests and answers ---------------------------------------------------------------------------------------------

_MOST_KEYS: Final = 1000
"""Requests of one hub and flow for the same answers that are told apart where formats carry no key."""


def _asked(messages: DataFrame) -> DataFrame:
    """All sightings of messages that carry callback points, by what was asked."""
    rows = messages.where(sf.size("callback_points") > 0).select(
        sf.col("callback_receiver_key").alias("hub_key"),
        sf.col("callback_key").alias("ask_key"),
        "correlation_key",
        "callback_points",
        "message_uid",
        "occurrence",
        sf.struct("identity_key", "version", "partition_key").alias("type"),
        "is_callback",
        "tap",
        "direction",
        "node_key",
        "origin_key",
        "seen_ns",
        of_day(messages),
        inherited_size().alias("inherited"),
        is_traced().alias("is_traced"),
        "hops",
        "ttl_ms",
        "body_size",
    )
    # All but the receipt: the node that gives it takes it out.
    points = sf.expr(f"filter(callback_points, point -> point.identity_key != '{_RECEIPT_KEY}')")
    rows = rows.withColumns({"ask_flow": sf.col("correlation_key"), "ask_points": sf.xxhash64(sf.sort_array(points))})
    keyed, keyless = rows.where("ask_key != 0"), _with_receipts(rows.where("ask_key = 0"), sf.size(points) > 0)
    question = ["hub_key", "ask_flow", "ask_points"]
    # The node of the hub knows the key, the old formats that it was sent in do not. Of several it is the one asked last.
    asked = sf.struct("began_ns", "ask_key")
    keys = (
        keyed.join(keyless.select(*question).distinct(), question, "left_semi")
        .groupBy(*question, "ask_key")
        .agg(sf.min("seen_ns").alias("began_ns"))
        .groupBy(*question)
        .agg(sf.min_by(asked, asked, _MOST_KEYS).alias("asked"))
    )
    keyless = keyless.join(keys, question, "left")
    before = sf.filter("asked", lambda each: each["began_ns"] <= sf.col("seen_ns"))
    known = sf.coalesce(sf.array_max(before), sf.array_min("asked"))["ask_key"]
    keyless = keyless.withColumn("ask_key", sf.coalesce(known, sf.lit(0))).drop("asked")
    # A key says which question it is, whatever became of the points on the way.
    points = sf.when(sf.col("ask_key") == 0, sf.col("ask_points")).otherwise(0)
    return keyed.unionByName(keyless).withColumn("ask_points", points)


def _with_receipts(keyless: DataFrame, has_others: Column) -> DataFrame:
    """Rows without a key, the receipts among them put to what they are for.

    That of a reference node carries no point but its own: it is for the one question of its hub and flow that asks for one.

    Args:
        keyless: the rows.
        has_others: whether a row has points other than that of the receipt.
    """
    is_bare = (sf.col("type.identity_key") == _RECEIPT_KEY) & ~has_others
    asks_for_it = sf.exists("callback_points", lambda point: point["identity_key"] == _RECEIPT_KEY) & has_others
    place = ["hub_key", "ask_flow"]
    meant = (
        keyless.where(asks_for_it)
        .groupBy(*place)
        .agg(sf.min("ask_points").alias("least"), sf.max("ask_points").alias("most"))
        .where("least = most")
        .select(*place, sf.col("least").alias("meant_points"))
    )
    found = keyless.join(meant, place, "left")
    points = sf.when(is_bare, sf.coalesce("meant_points", "ask_points")).otherwise(sf.col("ask_points"))
    return found.withColumn("ask_points", points).drop("meant_points")


def _requests(rows: DataFrame) -> DataFrame:
    """For each thing asked the request that began it."""
    # A request that answers itself comes straight back to its hub.
    is_request = (~sf.col("is_callback") | (sf.col("tap") == "hub_out")) & (sf.col("inherited") == 0)
    has_trail, is_seen_in = sf.col("is_traced"), sf.col("direction") == "in"
    place = (sf.when(has_trail, sf.col("hops")).otherwise(0), sf.col("tap") != "hub_out", has_trail & is_seen_in)
    sighting = ("node_key", "message_uid", "ttl_ms", "correlation_key", "type", "callback_points", OF_DAY)
    # Without a trail it is only by time that a request comes before what it causes; but a clock may be behind, so of the
    # request itself the sighting as it left counts.
    each = sf.min(sf.struct(*place, is_seen_in.alias("is_seen_in"), "seen_ns", *sighting))
    messages = (
        rows.where(is_request)
        .repartition(*_ASK)  # once for all that follows
        .groupBy(*_ASK, "message_uid")
        .agg(sf.min(sf.struct(*place, "seen_ns")).alias("rank"), each.alias("seen"))
    )
    return (
        messages.groupBy(*_ASK)
        .agg(sf.min_by("seen", sf.struct("rank", "seen")).alias("first"))
        .select(
            *_ASK,
            sf.col("first.message_uid").alias("request_uid"),
            sf.col("first.type.identity_key").alias("request_identity_key"),
            sf.col("first.correlation_key").alias("request_flow"),
            sf.col("first.callback_points").alias("callback_points"),
            sf.col("first.seen_ns").alias("requested_ns"),
            sf.col("first.node_key").alias("request_node"),
            sf.col("first.is_seen_in").alias("is_foreign"),
            sf.col("first.ttl_ms").alias("ttl_ms"),
            sf.col(f"first.{OF_DAY}").alias("request_of_day_ns"),
        )
    )


def _with_capture(requests: DataFrame, captured: DataFrame) -> DataFrame:
    """Requests with the end of the capture of their node; if it holds nothing that came, it is as if there were none."""
    nodes = captured.select(sf.col("node_key").alias("request_node"), "last_ns", "gets", "routes", "runs")
    found = requests.join(sf.broadcast(nodes), "request_node", "left")
    # A name may be that of several files, which were recorded at other times; of some runs nothing is known but the name.
    asked_ns = sf.col("requested_ns")
    mine = sf.filter("runs", lambda run: (run["first_ns"] <= asked_ns) & (asked_ns <= run["last_ns"]))
    last_ns = sf.array_max(sf.transform(mine, lambda run: run["last_ns"]))
    gets = sf.array_max(sf.transform(mine, lambda run: run["gets"]))
    routes = sf.array_max(sf.transform(mine, lambda run: run["routes"]))
    found = found.withColumns(
        {
            "end_ns": sf.coalesce(last_ns, "last_ns"),
            "is_foreign": sf.col("is_foreign") | ~sf.coalesce(gets, "gets"),
            "is_routed": sf.coalesce(routes, "routes"),
        }
    )
    return found.drop("last_ns", "gets", "routes", "runs")


def _came(rows: DataFrame, requests: DataFrame) -> DataFrame:
    """The answers that came, each once, with the time it did."""
    sightings = rows.where(sf.col("is_callback") & (sf.col("tap") != "hub_out")).drop("callback_points", "ttl_ms")
    known = requests.select(*_ASK, "callback_points", "request_node", "is_foreign", "is_routed")
    joined = sightings.join(known, list(_ASK), "left")
    is_asked_for = sf.col("callback_points").isNull() | sf.array_contains("callback_points", sf.col("type"))
    is_there = sf.col("node_key") == sf.col("request_node")
    # What an actor of that very node answers comes from no other one: where neither router nor hub was recorded it is seen
    # as it is made, and not again.
    is_inner = (sf.col("tap") == "actor_out") & ~sf.col("is_routed")
    has_come = is_there & ((sf.col("direction") == "in") | is_inner)
    has_come |= sf.col("request_node").isNull() | sf.col("is_foreign")
    # At the hub, else on its way in at its node, else at that node, else where it was first seen. Only at the first two
    # it is seen once, so that two who sent the same are two.
    is_in = sf.col("direction") == "in"
    farness = sf.when(sf.col("tap") == "hub_in", 0).when(is_there & is_in, 1).when(is_there, 2).otherwise(3)
    sender = sf.when(farness < 2, sf.col("origin_key"))
    seen = (
        joined.where(is_asked_for & has_come)
        .groupBy(*_ASK, "message_uid", "occurrence", sender.alias("sender"), farness.alias("farness"))
        .agg(
            sf.min("seen_ns").alias("resolved_ns"),
            sf.first("type.identity_key").alias("response_identity_key"),
            sf.first("correlation_key").alias("response_flow"),
            sf.max("body_size").alias("response_size"),
            sf.max(OF_DAY).alias("response_of_day_ns"),
        )
    )
    nearest = sf.min("farness").over(Window.partitionBy(*_ASK, "message_uid", "occurrence"))
    return (
        seen.withColumn("nearest", nearest)
        .where("farness = nearest")
        .select(
            *_ASK,
            sf.col("message_uid").alias("response_uid"),
            sf.col("occurrence").alias("response_occurrence"),
            "response_identity_key",
            "response_flow",
            "response_size",
            "resolved_ns",
            "response_of_day_ns",
        )
    )


def _outcome() -> Column:
    ttl_ms = sf.col("ttl_ms")
    over_ms = sf.try_subtract("end_ns", "requested_ns") / NS_PER_MS
    return (
        sf.when(sf.col("request_uid").isNull(), "orphan")
        .when(sf.col("number") > 1, "duplicate")
        .when(sf.col("response_uid").isNull() & ((ttl_ms < 0) | ((ttl_ms > 0) & (over_ms >= ttl_ms))), "expired")
        .when(sf.col("response_uid").isNull(), "pending")
        .when((ttl_ms < 0) | ((ttl_ms > 0) & (sf.col("wait_ms") > ttl_ms)), "late")
        .when(sf.col("response_identity_key") == EXCEPTION_KEY, "exception")
        .otherwise("ok")
    )
