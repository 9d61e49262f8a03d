"""Small captures, sighting by sighting: what two or three nodes saw of a few messages, for tests of single rules."""

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec
from pyspark.sql import SparkSession

from hopline.capture.body import Kept, cut_frames
from hopline.capture.record import Records
from hopline.capture.writer import CaptureWriter
from hopline.identity import MessageType
from hopline.wire import TICKS_PER_MS, FormatName, Message, RoutingEntry
from tests.spark import odd
from tests.spark.made import Tables

MS = 1_000_000
START_NS = odd.START_NS
DONE = MessageType(b"DONE", 1)
_NO_BODIES: Mapping[str, int] = MappingProxyType({})


def request(flow: str, *, key: int = 1, ttl_ms: int = 0, hub: str = "hub", **fields: object) -> Message:
    """What a hub asks for."""
    return Message(
        identity=b"ASK",
        version=1,
        body=b"?" + flow.encode(),
        correlation_id=flow.encode(),
        callback_points=(DONE,),
        callback_key=key,
        callback_receiver_identity=b"\0" + hub.encode(),
        ttl_ticks=ttl_ms * TICKS_PER_MS,
        **fields,
    )


def output(of: Message, kind: str = "DONE", body: bytes = b"!") -> Message:
    """What an actor makes of a message: it carries flow, callback and trail on."""
    return msgspec.structs.replace(of, identity=kind.encode(), body=body, hops=0, ttl_ticks=0)


class Story:
    """Sightings of what happened; times are in milliseconds from its start."""

    def __init__(self) -> None:
        self._seen: list[odd.Seen] = []

    def see(self, node: str, tap: str, at_ms: float, message: Message, format: FormatName = "v6") -> None:
        """A node saw a message."""
        self._seen.append(odd.Seen(node, tap, START_NS + round(at_ms * MS), odd.encode(message, format)))

    def send(
        self,
        source: str,
        target: str,
        at_ms: float,
        message: Message,
        *,
        seen: str = "both",
        is_traced: bool = True,
        ahead_ms: float = 0,
        format: FormatName = "v6",
    ) -> Message:
        """A node sends a message to another, 2 ms away; the message as that one has it.

        Args:
            source: its name, and
            target: that of the other.
            at_ms: when.
            message: as the first has it.
            seen: by whom: both, out or in.
            is_traced: whether it records where it was.
            ahead_ms: so far the clock of the first is ahead.
            format: of the wire.
        """
        trail = (*message.routing, RoutingEntry(f"tcp://{source}:1", source.encode())) if is_traced else ()
        sent = msgspec.structs.replace(message, hops=message.hops + 1, routing=trail, socket_identity=target.encode())
        if seen != "in":
            self.see(source, "scaleout_out", at_ms + ahead_ms, sent, format)
        come = msgspec.structs.replace(sent, socket_identity=b"\0" + source.encode())
        if seen != "out":
            self.see(target, "scaleout_in", at_ms + 2, come, format)
        return sent

    def tables(self, spark: SparkSession, path: Path) -> Tables:
        """What the transforms make of it. It is one file, where numbers are missing everywhere: nothing is called lost."""
        odd.write(path, iter(sorted(self._seen, key=lambda seen: seen.seen_ns)))
        return Tables(spark, str(path), ())

    def watched(
        self, spark: SparkSession, path: Path, *, bodies: Mapping[str, int] = _NO_BODIES, missing: Collection[str] = ()
    ) -> Tables:
        """What they make of it where each node has a capture of its own, whose numbers are whole.

        Args:
            spark: the session.
            path: a folder.
            bodies: for a node, how many bytes of a body it keeps.
            missing: nodes that have lost the first five of what came to them.
        """
        for node in sorted({seen.node for seen in self._seen}):
            writer = CaptureWriter(str(path), owner=node.encode(), wall_ns=lambda: START_NS)
            writer.start()
            counts = Counter({"scaleout_in": 5} if node in missing else {})
            for seen in sorted((seen for seen in self._seen if seen.node == node), key=lambda seen: seen.seen_ns):
                counts[seen.tap] += 1
                kept = cut_frames(seen.frames, bodies[node]) if node in bodies else Kept(seen.frames, "whole", None)
                records = Records(
                    seen_ns=[seen.seen_ns],
                    seq=[counts[seen.tap]],
                    tap=[seen.tap],
                    frames=[kept.what],
                    node=node,
                    body_kept=[kept.body_kept],
                    body_size=[kept.body_size],
                )
                writer.write(records)
            writer.close()
        return Tables(spark, str(path), ())
