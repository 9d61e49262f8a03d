"""Odd captures: what no network should do and some will. How odd, their numbers say."""

import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from hopline.capture.record import Records
from hopline.capture.writer import CaptureWriter
from hopline.wire import Distribution, Message, RoutingEntry, encode

START_NS = 1_794_787_200_000_000_000
MS = 1_000_000
HOUR_NS = 3_600_000 * MS
AT_ONCE = 10_000

FLOW = b"one for all"
"""The correlation id of everything."""


class Seen(NamedTuple):
    """A sighting."""

    node: str
    tap: str
    seen_ns: int
    frames: list[bytes]


def chatter(count: int) -> Iterator[Seen]:
    """Two nodes that send each other messages, all different and all of one flow; the clock of b is an hour ahead."""
    for number in range(count):
        source, target = ("a", "b") if number % 2 else ("b", "a")
        sent_ns = START_NS + number * MS
        message = Message(
            socket_identity=target.encode(),
            identity=b"TICK",
            version=1,
            correlation_id=FLOW,
            body=b"%d" % number,
            hops=1,
            routing=(RoutingEntry(f"tcp://{source}:1", source.encode()),),
        )
        frames = encode(message)
        yield Seen(source, "scaleout_out", sent_ns + HOUR_NS * (source == "b"), frames)
        yield Seen(target, "scaleout_in", sent_ns + MS + HOUR_NS * (target == "b"), frames)


def echoes(count: int) -> Iterator[Seen]:
    """One message that comes to one node again and again, each time by another socket."""
    for number in range(count):
        message = Message(
            socket_identity=b"socket %d" % number,
            identity=b"ECHO",
            version=1,
            correlation_id=FLOW,
            hops=1,
            routing=(RoutingEntry("tcp://b:1", b"b"),),
        )
        yield Seen("a", "scaleout_in", START_NS + number, encode(message))


def crowd(count: int) -> Iterator[Seen]:
    """One broadcast inside a node, to many actors."""
    message = Message(identity=b"CROWD", version=1, correlation_id=FLOW, distribution=Distribution.BROADCAST)
    yield Seen("a", "hub_out", START_NS, encode(message))
    for number in range(count):
        yield Seen("a", "actor_in", START_NS + 1 + number, encode(message))


def twins(count: int) -> Iterator[Seen]:
    """Equal messages in an old format with a long trail: each could be out of order, and all have one fingerprint."""
    trail = tuple(RoutingEntry(f"tcp://{name}:1", name.encode()) for name in "xyb")
    message = Message(identity=b"TWIN", version=1, correlation_id=FLOW, hops=1, routing=trail)
    for number in range(count):
        yield Seen("a", "wire_in", START_NS + number, encode(message, "v5"))


def write(path: Path, sightings: Iterator[Seen]) -> None:
    """Write one segment."""
    path.mkdir(exist_ok=True)
    writer = CaptureWriter(str(path), owner=b"odd", wall_ns=lambda: START_NS)
    writer.start()
    first = 1
    while rows := list(islice(sightings, AT_ONCE)):
        writer.write(
            Records(
                seen_ns=[row.seen_ns for row in rows],
                seq=list(range(first, first + len(rows))),
                tap=[row.tap for row in rows],
                frames=[row.frames for row in rows],
                node=[row.node for row in rows],
            )
        )
        first += len(rows)
    writer.close()


def write_garbage(path: Path, size: int) -> str:
    """Write what is no segment, but is named like one."""
    name = "20261115T000000000000Z-odd-0badbeef-000001.arrows"
    (path / name).write_bytes(random.Random(1).randbytes(size))
    return name
