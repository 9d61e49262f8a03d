"""Stories to look at: messages on their way, as the taps of several nodes see them, told step by step."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from hopline.capture.messages import sightings
from hopline.capture.record import DIRECTIONS, RECORD_SCHEMA, Records
from hopline.capture.store import Capture, open_capture
from hopline.capture.trace import TRACE_COLUMNS
from hopline.capture.writer import CaptureWriter
from hopline.flow import inherit_flow, record_hop
from hopline.identity import EXCEPTION, MessageType
from hopline.wire import FormatName, Message, RoutingEntry, encode

START_NS = 1_794_787_200_000_000_000
MS = 1_000_000
HUB = b"\0hub"
ORDERED = MessageType(b"ORDERED", 1)


def request(identity: bytes = b"ORDER", flow: bytes = b"flow-1", *points: MessageType, **changes: object) -> Message:
    """What a hub at node `client` sends, and waits for ORDERED if nothing else is said."""
    known: dict[str, Any] = {
        "identity": identity,
        "version": 1,
        "correlation_id": flow,
        "callback_points": (*(points or (ORDERED,)), EXCEPTION),
        "callback_key": 7,
        "callback_receiver_identity": HUB,
        "callback_receiver_node_identity": b"client",
        "trace_options": 1,
        "body": b"four",
    }
    return Message(**known | changes)


def output(parent: Message, identity: bytes, **changes: object) -> Message:
    """What an actor sends in answer to a message."""
    return inherit_flow(Message(**{"identity": identity, "version": 1, **changes}), parent)


class Story:
    """Records what taps see; times are milliseconds since the story began."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def see(
        self, node: str, tap: str, message: Message | list[bytes], at_ms: float, format: FormatName = "v6", **changes: object
    ) -> None:
        """A message, or frames that are none, at a tap."""
        frames = encode(message, format) if isinstance(message, Message) else message
        known = {
            "seen_ns": START_NS + round(at_ms * MS),
            "node": node,
            "tap": tap,
            "direction": DIRECTIONS[tap],
            "seq": len(self.records) + 1,
            "encoded": True,
            "body_kept": "whole",
            "body_size": None,
            "frames": frames,
        }
        self.records.append(known | changes)

    def send(
        self,
        sender: str,
        receiver: str,
        message: Message,
        at_ms: float,
        took_ms: float = 1.0,
        *,
        seen: str = "both",
        format: FormatName = "v6",
    ) -> Message:
        """A message from node to node; the answer is the message as it arrives."""
        moved = record_hop(message, RoutingEntry(f"tcp://{sender}:1", sender.encode())).message
        if seen in ("both", "out"):
            self.see(sender, "scaleout_out", moved, at_ms, format)
        if seen in ("both", "in"):
            self.see(receiver, "scaleout_in", moved, at_ms + took_ms, format)
        return moved

    def ask(self, flow: bytes, at_ms: float, *, answer: bytes | None = b"ORDERED", body: bytes = b"") -> None:
        """A request from client to server, and the answer 10 ms later if there is one."""
        arrived = self.send("client", "server", request(flow=flow), at_ms)
        if answer is not None:
            self.send("server", "client", output(arrived, answer, body=body), at_ms + 10)

    def rows(self) -> list[dict[str, Any]]:
        """The rows that a trace is made of."""
        batch = pa.RecordBatch.from_pylist(self.records, RECORD_SCHEMA)
        rows: list[dict[str, Any]] = sightings(batch, segment="s", first_row=0, columns=TRACE_COLUMNS).messages.to_pylist()
        return rows

    def write(self, path: Path) -> Capture:
        """A capture of it: segments for each node."""
        by_node = defaultdict(list)
        for record in self.records:
            by_node[record["node"]].append(record)
        for node, records in sorted(by_node.items()):
            writer = CaptureWriter(str(path), owner=node.encode(), wall_ns=lambda: START_NS)
            writer.start()
            columns = {
                name: [record[name] for record in records] for name in records[0] if name not in ("node", "direction")
            }
            writer.write(Records(**columns, node=node))
            writer.close()
        return open_capture(str(path))


def told(message: Message, **changes: object) -> Message:
    """The same message with other fields."""
    return msgspec.structs.replace(message, **changes)
