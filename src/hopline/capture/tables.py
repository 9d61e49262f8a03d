"""The columns of the tables `messages` and `rejects`, as far as one sighting alone gives them.

    _key columns    printable twins: the text if all of it is printable, else 0x and hex; a receiver with hub: or actor: in
                    front, by its first byte. Empty on the wire is empty here
    null            not known: a version that is no number, an origin that left no trace

`messages.py` makes them. This file holds the names, the types and what they mean, for all who read them.
"""

from typing import Final

import pyarrow as pa

from hopline.wire.columnar import REJECT_SCHEMA

SEEN_AT: Final = pa.timestamp("us", "UTC")
"""The type of a point in time."""

_MAY_BE_NULL: Final = frozenset(
    [
        *("node_key", "tap", "direction", "seq", "encoded", "body_kept"),
        *("version", "version_bytes", "trace_options", "origin_key"),
    ]
)
"""Columns of MESSAGES that may be null: what a record may lack, and what is not known of a message. Spark is told that the
others never are, and does not ask for each value."""


def _messages(columns: list[tuple[str, pa.DataType]]) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=name in _MAY_BE_NULL) for name, kind in columns])


MESSAGES: Final = _messages(
    [
        ("event_id", pa.string()),
        ("seen_at", SEEN_AT),
        ("seen_ns", pa.int64()),
        ("node_key", pa.string()),
        ("tap", pa.string()),
        ("direction", pa.string()),
        ("peer_key", pa.string()),
        ("seq", pa.int64()),
        ("encoded", pa.bool_()),
        ("format", pa.string()),
        ("variant", pa.string()),
        ("wire_version", pa.int32()),
        ("message_uid", pa.binary()),
        ("identity", pa.binary()),
        ("identity_key", pa.string()),
        ("version", pa.int32()),
        ("version_bytes", pa.binary()),
        ("partition", pa.binary()),
        ("partition_key", pa.string()),
        ("is_system", pa.bool_()),
        ("correlation_id", pa.binary()),
        ("correlation_key", pa.string()),
        ("receiver", pa.binary()),
        ("receiver_key", pa.string()),
        ("receiver_kind", pa.string()),
        ("receiver_node_key", pa.string()),
        ("distribution", pa.string()),
        ("addressing", pa.string()),
        ("callback_key", pa.int64()),
        ("callback_receiver_key", pa.string()),
        ("callback_receiver_node_key", pa.string()),
        (
            "callback_points",
            pa.list_(pa.struct([("identity_key", pa.string()), ("version", pa.int32()), ("partition_key", pa.string())])),
        ),
        ("is_callback", pa.bool_()),
        ("trace_options", pa.int32()),
        ("hops", pa.int32()),
        ("trail", pa.list_(pa.struct([("uri", pa.string()), ("node_key", pa.string())]))),
        ("origin_key", pa.string()),
        ("parent_trail", pa.list_(pa.string())),
        ("ttl_ms", pa.float64()),
        ("domain", pa.string()),
        ("signature", pa.binary()),
        ("body_kept", pa.string()),
        ("body_size", pa.int64()),
        ("body", pa.binary()),
        ("warnings", pa.list_(pa.string())),
        ("date", pa.date32()),
    ]
)
"""A row per sighting of a message.

`peer_key` is frame 0: the node it is sent to, or the socket that it came by; of what a Hopline node tells a peer of itself,
the socket at both ends, as it need not know who is there. `receiver_kind` is hub, actor, unknown (a
receiver without the prefix byte, as before 2016-11) or empty. `addressing` is all (broadcast), hub, actor, node or any; a
receiver of unknown kind is the hub if it is also the one that is called back, else an actor. `trace_options` is null if it
does not fit; its warning has the number. `body_size` is that of the body as it was sent, also if less of it was kept; a
`message_uid` is over what was kept. `date` is that of `seen_at`.
"""

REJECTS: Final = pa.schema(
    [
        ("event_id", pa.string()),
        ("seen_at", SEEN_AT),
        ("node_key", pa.string()),
        ("tap", pa.string()),
        ("code", pa.string()),
        ("reason", pa.string()),
        ("tried", REJECT_SCHEMA.field("tried").type),
        ("excerpt", pa.string()),
        ("date", pa.date32()),
    ]
)
"""A row per frame list that is no message. `excerpt` is the beginning of its frames in hex, a `-` for an empty one."""

DEFAULT_COLUMNS: Final = tuple(name for name in MESSAGES.names if name != "body")
"""What is made if nobody asks for more: everything but the bodies."""
