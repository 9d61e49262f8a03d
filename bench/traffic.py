"""Traffic of a shop, made fast: captures of millions of messages that look like those of nodes.

A flow is an order. A front node asks, a shop asks a stock, the stock answers, and each message is seen where it leaves and
where it comes:

    front  ORDER.PLACE --> shop  STOCK.TAKE --> stock  ORDER.PLACED --> front
    hub_out, out           in, out              in, out                 in, hub_in

One order in fifty fails (KINO.EXCEPTION), and one in a hundred gets no answer. Every flow has its own id, key, times, bodies
and valid signatures; what is alike in all flows of one way is encoded once, and the rest is put into its place. Bodies are
200 bytes of JSON, 80 of them random digits. This file knows no Spark.
"""

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from hopline.capture.record import Records, frame_lists, key_of
from hopline.capture.stream import Compression
from hopline.capture.writer import CaptureWriter, Limits
from hopline.flow import inherit_flow, record_hop
from hopline.payload.service import ExceptionMessage
from hopline.security import Domain, Keyring
from hopline.wire import Message, MessageType, RoutingEntry, encode

DOMAINS: Final = (Domain("orders", keys=(b"0123456789abcdef",), scheme="kino"),)
START_NS: Final = 1_794_700_800_000_000_000 + 8 * 3_600_000_000_000
"""Eight in the morning: three hours of traffic lie far from midnight, so that one day is made."""

SIGHTINGS: Final = 8
"""Of a flow that is answered."""

_FLOW_NS: Final = 10_000_000
"""A flow begins so long after the one before: a hundred a second."""

_STEP_NS: Final = 300_000
_BATCH: Final = 1000
_ROW_GROUP: Final = 100_000
_ROLES: Final = ("front", "shop", "stock")
_TWINS: Final = 2
"""Nodes of each role."""

_CYCLE: Final = 200
_FAILED: Final = 50
_SILENT: Final = 100

_ID: Final = b"f" * 36
_KEY: Final = 0x6B6B6B6B6B6B6B6B
_SIGNATURE: Final = b"s" * 16
_TEXT: Final = (
    b'{"order":"%b","customer":"%b","items":[{"article":"screw","count":12},{"article":"nut","count":24}],"note":""}'
)
_DIGITS: Final = 40
_BODY: Final = (_TEXT % (b"b" * _DIGITS, b"b" * _DIGITS)).ljust(200)


class Node(NamedTuple):
    """A node of the shop."""

    name: str
    entry: RoutingEntry

    @property
    def hub(self) -> bytes:
        """The identity of its hub."""
        return b"\0hub-of-" + self.name.encode().ljust(29, b".")


class Sighting(NamedTuple):
    """One sighting of a flow, with gaps where flows differ: who, where, what, and how long after its beginning."""

    node: int
    tap: str
    leg: int
    frames: tuple[bytes, ...]
    after_ns: int


class Way(NamedTuple):
    """The way of a flow: its messages, which are to be signed, and its sightings."""

    legs: tuple[Message, ...]
    sightings: tuple[Sighting, ...]


@dataclass
class _Held:
    """What a node has seen and not written yet."""

    seen_ns: list[int] = field(default_factory=list)
    seq: list[int] = field(default_factory=list)
    tap: list[str] = field(default_factory=list)
    frames: list[list[bytes]] = field(default_factory=list)


NODES: Final = [
    Node(f"{role}-{twin}", RoutingEntry(f"tcp://10.0.{place}.{twin}:5101", b"%b-%031d" % (role.encode(), twin)))
    for place, role in enumerate(_ROLES)
    for twin in range(_TWINS)
]


def write_traffic(
    folder: Path,
    messages: int,
    *,
    compression: Compression = "lz4",
    segment_messages: int | None = None,
    is_one_flow: bool = False,
    frames: Path | None = None,
) -> int:
    """Write a capture of about so many sightings; how many they are.

    Args:
        folder: of the capture.
        messages: how many, if every flow were answered.
        compression: of the segments.
        segment_messages: when a segment ends; by default as nodes do it, by size.
        is_one_flow: whether all flows have one id, as if one were never changed.
        frames: a file to write the same frames to, as Parquet with one column.
    """
    limits = Limits(segment_bytes=1) if segment_messages else Limits()
    batch = segment_messages or _BATCH
    writers = [
        CaptureWriter(str(folder), owner=node.entry.identity, limits=limits, compression=compression) for node in NODES
    ]
    for writer in writers:
        writer.start()
    schema = pa.schema([("frames", pa.list_(pa.binary()))])
    parquet = None if frames is None else pq.ParquetWriter(frames, schema, compression="zstd")
    kept: list[list[bytes]] = []
    for number, held in _sightings(messages // SIGHTINGS, batch, is_one_flow=is_one_flow):
        writers[number].write(_records(NODES[number], held))
        if parquet is not None:
            kept += held.frames
            if len(kept) >= _ROW_GROUP:
                parquet.write_table(pa.table([frame_lists(kept)], schema=schema))
                kept = []
    if parquet is not None:
        parquet.write_table(pa.table([frame_lists(kept)], schema=schema))
        parquet.close()
    return sum(writer.close().written for writer in writers)


def _records(node: Node, held: _Held) -> Records:
    return Records(
        seen_ns=held.seen_ns,
        seq=held.seq,
        tap=held.tap,
        frames=held.frames,
        node=key_of(node.entry.identity),
        mono_ns=[ns - START_NS for ns in held.seen_ns],
        encoded=[not tap.startswith("hub") for tap in held.tap],
    )


def _sightings(flows: int, batch: int, *, is_one_flow: bool) -> Iterator[tuple[int, _Held]]:
    """All sightings, a batch of one node at a time."""
    noise = random.Random(1)
    ways = [_way(number) for number in range(_CYCLE)]
    keyring = Keyring(DOMAINS)
    held = [_Held() for _ in NODES]
    counts: defaultdict[tuple[int, str], int] = defaultdict(int)
    for flow in range(flows):
        legs, sightings = ways[flow % _CYCLE]
        name = noise.randbytes(18).hex().encode()
        gaps = [_gaps(leg, keyring, noise, _ID if is_one_flow else name, flow + 1) for leg in legs]
        start_ns, slowness = START_NS + flow * _FLOW_NS, noise.random()
        for node, tap, leg, frames, after_ns in sightings:
            mine, gap = held[node], gaps[leg]
            counts[node, tap] += 1
            mine.seq.append(counts[node, tap])
            mine.seen_ns.append(start_ns + int(after_ns * (1 + slowness)))
            mine.tap.append(tap)
            mine.frames.append([frame % gap if b"%" in frame else frame for frame in frames])
            if len(mine.tap) == batch:
                yield node, mine
                held[node] = _Held()
    yield from enumerate(held)


def _gaps(leg: Message, keyring: Keyring, noise: random.Random, flow: bytes, key: int) -> dict[bytes, bytes]:
    """What fills the gaps in the sightings of one message."""
    body = leg.body
    if body == _BODY:
        digits = noise.randbytes(_DIGITS).hex().encode()
        body = (_TEXT % (digits[:_DIGITS], digits[_DIGITS:])).ljust(len(_BODY))
    signed = keyring.sign(msgspec.structs.replace(leg, body=body))
    return {b"flow": flow, b"key": key.to_bytes(8, "little"), b"body": body, b"signature": signed.signature}


def _way(number: int) -> Way:
    """The way of the flow with this number: its nodes, and how it ends."""
    front, shop, stock = (_TWINS * role + (number >> role) % _TWINS for role in range(len(_ROLES)))
    is_silent, is_failed = number % _SILENT == _SILENT - 1, number % _FAILED == 0
    request = Message(
        identity=b"ORDER.PLACE",
        version=1,
        body=_BODY,
        correlation_id=_ID,
        trace_options=1,
        callback_points=(MessageType(b"ORDER.PLACED", 1), MessageType(b"KINO.EXCEPTION", 1)),
        callback_key=_KEY,
        callback_receiver_identity=NODES[front].hub,
        callback_receiver_node_identity=NODES[front].entry.identity,
        domain="orders",
        ttl_ticks=50_000_000,
    )
    asked = _sent(request, NODES[front], NODES[shop])
    taken = _sent(inherit_flow(_made(b"STOCK.TAKE"), asked), NODES[shop], NODES[stock])
    failure = _made(b"KINO.EXCEPTION", ExceptionMessage("out of stock", "ValueError").write())
    answered = _sent(inherit_flow(failure if is_failed else _made(b"ORDER.PLACED"), taken), NODES[stock], NODES[front])
    seen = [
        (front, "hub_out", 0, msgspec.structs.replace(request, signature=b"")),
        (front, "scaleout_out", 0, asked),
        (shop, "scaleout_in", 0, _came(asked)),
        (shop, "scaleout_out", 1, taken),
        (stock, "scaleout_in", 1, _came(taken)),
        (stock, "scaleout_out", 2, answered),
    ]
    if not is_silent:
        arrived = _came(answered)
        seen += [(front, "scaleout_in", 2, arrived), (front, "hub_in", 2, msgspec.structs.replace(arrived, signature=b""))]
    sightings = (
        Sighting(node, tap, leg, tuple(map(_with_gaps, encode(message))), _STEP_NS * place)
        for place, (node, tap, leg, message) in enumerate(seen)
    )
    return Way((asked, taken, answered), tuple(sightings))


def _made(identity: bytes, body: bytes = _BODY) -> Message:
    return Message(identity=identity, version=1, body=body, trace_options=1, domain="orders")


def _sent(message: Message, source: Node, target: Node) -> Message:
    """A message as it leaves a node."""
    sent = record_hop(message, source.entry).message
    return msgspec.structs.replace(sent, socket_identity=target.entry.identity, signature=_SIGNATURE)


def _came(message: Message) -> Message:
    """A message as it comes: under the name that ZeroMQ has given to the socket."""
    return msgspec.structs.replace(message, socket_identity=b"\0sock")


def _with_gaps(frame: bytes) -> bytes:
    frame = frame.replace(b"%", b"%%")
    gaps = {_ID: b"flow", _KEY.to_bytes(8, "little"): b"key", _BODY: b"body", _SIGNATURE: b"signature"}
    for value, name in gaps.items():
        frame = frame.replace(value, b"%%(%b)b" % name)
    return frame
