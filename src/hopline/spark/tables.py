"""The tables of the pipeline: their names, columns and types, and what each column means.

One list serves everybody: the transforms end with `conform`, so that what they give is what stands here; the dictionary in
the documentation is generated from it; each Spark column carries its text as a comment. Common to all tables:

    _key          the printable twin of an id: its text if all of it is printable, else 0x and hex. Receivers are hub: or
                  actor: and the text. Empty on the wire is empty here; null is not known
    _at, minute   a point in time, UTC. What is measured between two points is computed from nanoseconds
    date          the UTC day of the first sighting that a row is made of: folders of Parquet are cut by it

This file holds no rule of its own, and makes no session.
"""

from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

STRING, BINARY, BOOLEAN = StringType(), BinaryType(), BooleanType()
INT, BIGINT, DOUBLE = IntegerType(), LongType(), DoubleType()
TIMESTAMP, DATE = TimestampType(), DateType()
STRINGS = ArrayType(STRING)
POINTS = ArrayType(
    StructType([StructField("identity_key", STRING), StructField("version", INT), StructField("partition_key", STRING)])
)
TRAIL = ArrayType(StructType([StructField("uri", STRING), StructField("node_key", STRING)]))
TRIED = ArrayType(StructType([StructField("format", STRING), StructField("reason", STRING)]))


class Column(NamedTuple):
    """One column: its name, its type, and what it means."""

    name: str
    type: DataType
    meaning: str


class Table(NamedTuple):
    """One table: its name, what one row of it is, and its columns in their order."""

    name: str
    row: str
    columns: tuple[Column, ...]

    @property
    def schema(self) -> StructType:
        """The Spark type of a row; each column has its meaning as its comment."""
        return StructType([StructField(name, kind, metadata={"comment": said}) for name, kind, said in self.columns])

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)


def conform(rows: DataFrame, table: Table, *, without: tuple[str, ...] = ()) -> DataFrame:
    """Give rows the columns of a table, in its order, with its types and comments; what else they hold is dropped.

    Args:
        rows: has a column of each name.
        table: the table they are rows of.
        without: columns that are left out, such as a body that nobody asked for.
    """
    schema = StructType([field for field in table.schema if field.name not in without])
    if missing := sorted(set(schema.names).difference(rows.columns)):  # Spark would make them up, as nulls
        raise ValueError(f"rows of {table.name} must have {', '.join(missing)}")
    return rows.to(schema)


_DATE: Final = Column("date", DATE, "UTC day of the first sighting; the table is cut by it.")

MESSAGES: Final = Table(
    "messages",
    "one sighting of a message at one tap",
    (
        Column("event_id", STRING, "Segment and place in it: unique, and the way back to the bytes."),
        Column("seen_at", TIMESTAMP, "When, by the wall clock of the node."),
        Column("seen_ns", BIGINT, "The same in nanoseconds since 1970."),
        Column("node_key", STRING, "Who saw it: the node's identity; in an imported capture, the name the file gives."),
        Column(
            "tap",
            STRING,
            "Where in the node: hub_out, router_in, scaleout_out, scaleout_in, actor_in, actor_out, hub_in; "
            "at a rendezvous, and imported: wire_in, wire_out.",
        ),
        Column("direction", STRING, "in or out, as seen from what the tap is named after."),
        Column(
            "peer_key",
            STRING,
            "Frame 0: the node it is sent to, or the socket it came by; of what a Hopline node tells a peer of itself, the "
            "socket at both ends. Null if the reader does not say.",
        ),
        Column("seq", BIGINT, "Counts from 1 for each run of a writer and tap: a gap is a loss of the capture."),
        Column("encoded", BOOLEAN, "False: it never was bytes (a tap inside a node), and so never signed."),
        Column("format", STRING, "The layout that decoded: v3, v4, v5, v6."),
        Column("variant", STRING, "The variant of that layout; empty for the usual one."),
        Column("wire_version", INT, "The number read from the wire, which need not name the layout."),
        Column("message_uid", BINARY, "Fingerprint over the fields that no hop changes."),
        Column(
            "occurrence",
            INT,
            "Tells equal messages apart: the n-th seen at the same node, tap, hop and peer, from 0. "
            "Copies of a broadcast, also those for several actors of a node, are one occurrence.",
        ),
        Column("identity", BINARY, "Message type: identity."),
        Column("identity_key", STRING, "Its printable twin."),
        Column("version", INT, "Message type: version; null where it is no number."),
        Column("version_bytes", BINARY, "The version where it is no number, else null."),
        Column("partition", BINARY, "Message type: partition."),
        Column("partition_key", STRING, "Its printable twin."),
        Column("is_system", BOOLEAN, "Control traffic of the network: identity KINO.* or HOPLINE.*"),
        Column("correlation_id", BINARY, "The flow it belongs to."),
        Column("correlation_key", STRING, "Its printable twin."),
        Column("receiver", BINARY, "Hub or actor it is addressed to; empty: whoever handles the type."),
        Column("receiver_key", STRING, "Its printable twin: hub: or actor: and the text."),
        Column("receiver_kind", STRING, "hub, actor, unknown (no prefix byte) or empty."),
        Column("receiver_node_key", STRING, "Node it is addressed to, or empty."),
        Column("distribution", STRING, "unicast or broadcast."),
        Column("addressing", STRING, "any, node, actor, hub or all."),
        Column("callback_key", BIGINT, "The key under which the hub waits; 0 in formats without it."),
        Column("callback_receiver_key", STRING, "The hub that waits."),
        Column("callback_receiver_node_key", STRING, "The node of that hub; empty in formats without it."),
        Column("callback_points", POINTS, "The message types that go back to that hub."),
        Column("is_callback", BOOLEAN, "Its own type is one of these points: it is an answer."),
        Column("trace_options", INT, "Flags: 1 asks for the trail; null if the number is too large."),
        Column("hops", INT, "Sends of this message to another node, so far."),
        Column("trail", TRAIL, "The nodes that the flow was sent on by, in the order that trail_order vouches for."),
        Column(
            "trail_order",
            STRING,
            "exact: as on the wire. restored: put back in order; readers of v3 to v5 reverse it at "
            "each hop, and other sightings show which did. ambiguous: it may be reversed in parts, and nothing tells. "
            "set: other sightings contradict every order; only who is in it is known.",
        ),
        Column("wire_trail", TRAIL, "The trail as it stood on the wire, if it was restored; else null."),
        Column("origin_key", STRING, "The node that sent this message first; null if it has not left, or left no trace."),
        Column("parent_trail", STRINGS, "The nodes of the trail that was inherited: the way of the message that caused it."),
        Column("ttl_ms", DOUBLE, "What was left of its life; 0 never ends, negative is over."),
        Column("domain", STRING, "The security domain it names."),
        Column("signature", BINARY, "The signature field."),
        Column("body_kept", STRING, "How much of the body the capture kept: whole, cut or none."),
        Column("body_size", BIGINT, "Bytes of the body as it was sent."),
        Column("body", BINARY, "The body; the column is there only if asked for."),
        Column("warnings", STRINGS, "What is odd about it."),
        Column("date", DATE, "UTC day of the sighting."),
    ),
)

REJECTS: Final = Table(
    "rejects",
    "a frame list that is no message",
    (
        Column("event_id", STRING, "Segment and place in it."),
        Column("seen_at", TIMESTAMP, "When."),
        Column("node_key", STRING, "Who saw it."),
        Column("tap", STRING, "Where in the node."),
        Column("code", STRING, "What is wrong: a code of the error reference."),
        Column("reason", STRING, "The same as a sentence."),
        Column("tried", TRIED, "The formats that were tried, and why each failed."),
        Column("excerpt", STRING, "The beginning of its frames in hex; a dash is an empty one."),
        _DATE,
    ),
)

HOPS: Final = Table(
    "hops",
    "one message moving between two sightings, or the one sighting of a move between nodes of which the other was not seen",
    (
        Column("message_uid", BINARY, "The message."),
        Column(
            "occurrence",
            INT,
            "Which of equal messages; of two ends that number them differently, as it arrived.",
        ),
        Column("correlation_key", STRING, "The flow."),
        Column("identity_key", STRING, "The message type."),
        Column("from_node_key", STRING, "Who sent it; if not seen there, as the trail says; null if that says nothing."),
        Column("to_node_key", STRING, "Who got it, or was to get it; null if nothing tells."),
        Column(
            "kind",
            STRING,
            "network: between two nodes. local: inside a node, from hub or actor to actor or hub. "
            "deliver: from the network to an actor or hub of the node.",
        ),
        Column("sent_at", TIMESTAMP, "When it left; null if not seen."),
        Column("received_at", TIMESTAMP, "When it came; null if not seen."),
        Column(
            "latency_ms", DOUBLE, "The time between, each by its node's clock as it is; negative if the clocks differ more."
        ),
        Column(
            "skew_ms",
            DOUBLE,
            "By how much the receiver's clock is ahead of the sender's, that day: half the difference of "
            "the shortest latencies of both directions, of moves that have a flow and are matched by uid. 0 if none is "
            "negative by more than a hundredth of both together, for then nothing shows a difference; null if such moves "
            "went in one direction only, or in none. latency_ms - skew_ms is the true latency, as far as can be known.",
        ),
        Column(
            "matched_by",
            STRING,
            "How the two sightings were found to be one move. uid: only these two fit. "
            "uid+occurrence: n-th of equal messages at both ends. time: several sends fit, the last one before was "
            "taken. One sighting only: how the other end is known, trail or address, or null. too many: of one message with "
            "one hop number only the first 1000 sightings are looked at; this row stands for all others, and has no kind.",
        ),
        Column(
            "lost",
            BOOLEAN,
            "Sent to a node that was captured at that time, and never seen there. Not said where the capture has a gap, or "
            "was to hold only some types, or a smaller share of the flows, or where bodies are kept in another way.",
        ),
        Column("date", DATE, "UTC day on which the message was first seen at this hop; the table is cut by it."),
    ),
)

CALLBACKS: Final = Table(
    "callbacks",
    "one request and what came of it; also an answer without a request (orphan), and every further answer (duplicate)",
    (
        Column("correlation_key", STRING, "The flow."),
        Column("callback_key", BIGINT, "The key under which the hub waits; 0 where the format has none."),
        Column("request_uid", BINARY, "The request; null for an orphan."),
        Column("request_identity_key", STRING, "Its type."),
        Column("hub_key", STRING, "The hub that waits."),
        Column("callback_points", POINTS, "The types it waits for."),
        Column("requested_at", TIMESTAMP, "First sighting of the request, nearest to its hub."),
        Column("response_uid", BINARY, "The answer, if one came."),
        Column("response_identity_key", STRING, "Its type."),
        Column(
            "resolved_at",
            TIMESTAMP,
            "When it came to the hub, or to the node of the hub; where that was not captured, its first sighting.",
        ),
        Column("wait_ms", DOUBLE, "Time between these two; as the one who asked saw it only if asker_captured."),
        Column("responses", INT, "Answers that came, this row's included."),
        Column(
            "outcome",
            STRING,
            "ok; exception: the handler failed; late: answered after the request's TTL; expired: the "
            "TTL ran out without an answer; pending: no answer yet; orphan; duplicate.",
        ),
        Column("error_type", STRING, "What a KINO.EXCEPTION says: the type of the failure; null if it cannot be read."),
        Column("error_message", STRING, "And its text."),
        Column(
            "asker_captured",
            BOOLEAN,
            "Whether the node that asked was captured, with what comes to it: then times are as it saw them, and else as "
            "others did. Null for an orphan.",
        ),
        _DATE,
    ),
)

FLOWS: Final = Table(
    "flows",
    "one correlation id that started a flow (not empty, not the GUID of zeros), as far as it is of one day",
    (
        Column("correlation_key", STRING, "The flow."),
        Column(
            "started_at",
            TIMESTAMP,
            "Its first sighting. A flow that goes on over midnight is of the day on which it began, up to the reach after "
            "midnight, and then has a row of the next day: each sighting is counted in one row.",
        ),
        Column("ended_at", TIMESTAMP, "Its last sighting."),
        Column("duration_ms", DOUBLE, "The time between, by the clocks of the nodes as they are."),
        Column("root_identity_key", STRING, "The type of the message that began it."),
        Column("root_node_key", STRING, "The node that sent this message; if it was not captured, as the trail says."),
        Column("messages", BIGINT, "Different messages: uid and occurrence."),
        Column("sightings", BIGINT, "Rows of `messages`."),
        Column("nodes", INT, "Nodes whose captures it is in."),
        Column("depth", INT, "Sends behind the message that came farthest: its trail, equal neighbours counted once."),
        Column("max_hops", INT, "Most hops of one message, as it says itself."),
        Column("fan_out", INT, "Most messages that one step led to: different messages with the same inherited trail."),
        Column("callbacks_ok", BIGINT, "Requests that were answered in time."),
        Column("callbacks_exception", BIGINT, "Requests whose handler failed."),
        Column("callbacks_pending", BIGINT, "Requests without an answer: pending or expired."),
        Column("errors", BIGINT, "Different KINO.EXCEPTION messages."),
        Column("expired", BIGINT, "Different messages that came late or expired in flight."),
        Column(
            "invalid_signatures",
            BIGINT,
            "Sightings whose signature is invalid; null if none was judged that day: nothing signed, or no keys given.",
        ),
        Column(
            "completeness",
            DOUBLE,
            "Ends of network moves that were seen, of those that should have been: an end should "
            "be seen if its node's capture covers that time. 1 if nothing is missing.",
        ),
        _DATE,
    ),
)

EDGES: Final = Table(
    "edges",
    "a minute of traffic between two ends",
    (
        Column("minute", TIMESTAMP, "The minute in which it was sent, or seen if the sending was not."),
        Column(
            "level",
            STRING,
            "node: between two nodes, from `hops` of kind network. message: between two message types, "
            "from request to answer, or from the message that caused another to that one, if this left the node.",
        ),
        Column("source_key", STRING, "Node, or type of the request or cause; null if not known."),
        Column("target_key", STRING, "Node, or type of the answer or effect; null if not known, or if no answer came."),
        Column(
            "identity_key",
            STRING,
            "The type of what was counted: the message, the answer, the effect, or the request that got no answer.",
        ),
        Column("messages", BIGINT, "How many; moves of which only one end was seen are counted too."),
        Column("bytes", BIGINT, "Their bodies; null if a sum of what files say of them has no room."),
        Column("errors", BIGINT, "How many of them are KINO.EXCEPTION."),
        Column("lost", BIGINT, "node: lost on the way. message: requests that are pending."),
        Column("expired", BIGINT, "node: took longer than the TTL they were sent with. message: late and expired requests."),
        Column(
            "p50_ms",
            DOUBLE,
            "Median of the latency, clocks corrected (latency_ms - skew_ms); message: of the wait where "
            "asker_captured, or of the time from the arrival of the cause to the sending of the effect. Beyond 10000 values "
            "approximate: the rank is off by at most 0.01 %.",
        ),
        Column("p95_ms", DOUBLE, "95 % took at most so long."),
        Column("p99_ms", DOUBLE, "99 % took at most so long."),
        Column("exemplars", STRINGS, "Up to 3 flows to look at: the slowest, the first that failed, the first."),
        _DATE,
    ),
)

EXPIRIES: Final = Table(
    "expiries",
    "an hour of one message type with a TTL",
    (
        Column("hour", TIMESTAMP, "The hour in which the messages were first seen."),
        Column("identity_key", STRING, "The message type."),
        Column(
            "ttl_ms",
            DOUBLE,
            "The TTL at the first sighting, rounded up to whole milliseconds: a node sends on what is left, "
            "and that is a little less each time. -1: over already.",
        ),
        Column("sent", BIGINT, "Different messages."),
        Column("in_time", BIGINT, "Of these came to their last node within the TTL."),
        Column("late", BIGINT, "Came after it."),
        Column(
            "expired_in_flight",
            BIGINT,
            "Did not come, though the place where they should have is captured, and the TTL is "
            "over. Of what is in none of the three nobody knows: it was not seen to arrive, and it is not sure that it "
            "would have been; or it was first seen when it came, and not how long it had been under way.",
        ),
        Column("budget_used_p95", DOUBLE, "Share of the TTL that 95 % of those that came had used at most."),
        _DATE,
    ),
)

SIGNATURES: Final = Table(
    "signatures",
    "an hour of one domain at one node, for each verdict",
    (
        Column("hour", TIMESTAMP, "The hour of the sightings."),
        Column("domain", STRING, "The domain that the messages name; empty if none."),
        Column("node_key", STRING, "Who saw them."),
        Column(
            "status",
            STRING,
            "valid, invalid, unsigned, unknown-domain, replayed (valid, and this node has got the same before; only the "
            "scheme full can tell), unchecked (no keys were given, or the body was cut).",
        ),
        Column("messages", BIGINT, "Sightings of messages as bytes; what never was bytes is not signed, and not counted."),
        Column("covered", STRINGS, "The fields under the signature; empty if there is none or its scheme is not known."),
        Column("uncovered", STRINGS, "The fields that anybody on the way can change."),
        Column("exemplars", STRINGS, "Event ids of the first and the last."),
        _DATE,
    ),
)

ROUTES: Final = Table(
    "routes",
    "who could serve what, from when to when, as it was announced; what was wrongly signed by the keys that were given is "
    "left out, as nodes ignore it",
    (
        Column("node_key", STRING, "The node that can be reached, by its identity."),
        Column("node_uri", STRING, "Where."),
        Column("receiver_key", STRING, "Its hub or actor; empty where the announcement names none (v3, v4)."),
        Column("receiver_kind", STRING, "hub, actor, unknown or empty."),
        Column(
            "identity_key", STRING, "The message type that it serves; null for a hub, which serves callbacks of any type."
        ),
        Column("version", INT, "Its version; null if it is no number."),
        Column("partition_key", STRING, "Its partition."),
        Column("domain", STRING, "The domain in which it was announced."),
        Column("valid_from", TIMESTAMP, "First sighting of the announcement."),
        Column("valid_to", TIMESTAMP, "First sighting of what ended it; null if it lasts."),
        Column(
            "ended_by",
            STRING,
            "The identity of that message: KINO.UNREGNODE and others, or KINO.REGEXTROUTE if the node "
            "moved to another address.",
        ),
    ),
)

TABLES: Final = (MESSAGES, REJECTS, HOPS, CALLBACKS, FLOWS, EDGES, EXPIRIES, SIGNATURES, ROUTES)
"""All tables that are made from captures; `runs` tells of the making, and is kept by who does it."""
