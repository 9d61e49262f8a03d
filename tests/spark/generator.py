"""A network that never ran, told from the inside: who sent what to whom, when, and what came of it.

`Network` is a small simulation. It moves messages by the rules of the documents (hops, trail, callbacks, TTL, signatures),
lets captured nodes see them by their own clocks, and keeps beside each sighting what really happened. `stories.py` tells the
flows, `truth.py` writes down the tables that must come out. None of the three uses anything of `hopline.spark`.

    kind        what it does
    live        a Hopline node, captured by its own taps; writes each peer's format, never reverses a trail
    reference   a reference node, captured on the wire under a free name; its v3 to v5 readers reverse lists
    stranger    a Hopline node that nobody captured
"""

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from hopline.capture.record import Records, key_of
from hopline.capture.writer import CaptureWriter
from hopline.flow import message_uid, record_hop, remaining_ttl
from hopline.identity import RECEIPT
from hopline.security import Domain, Keyring
from hopline.wire import Distribution, Message, RoutingEntry, encode

START_NS = 1_794_700_800_000_000_000 + 9 * 3_600_000_000_000 + 59 * 60_000_000_000
"""One minute before an hour ends, so that tables by minute and by hour have more than one row."""

MS = 1_000_000
OLD = ("v3", "v4", "v5")

DOMAINS = (
    Domain("full", keys=(b"first key", b"second key"), identities=frozenset({b"ORDER", b"ORDER.DONE"})),
    Domain("kino", keys=(b"old key",), scheme="kino"),
)
FORGERS = (Domain("full", keys=(b"no key of ours",)), Domain("kino", keys=(b"nor this",), scheme="kino"))


@dataclass(eq=False)
class Node:
    """One node of the network."""

    name: str
    kind: Literal["live", "reference", "stranger"]
    format: str = "v6"
    clock_ns: int = 0
    taps: frozenset[str] = frozenset({"hub_out", "hub_in", "scaleout_out", "scaleout_in"})

    @property
    def identity(self) -> bytes:
        return f"{self.name}-id".encode()

    @property
    def key(self) -> str:
        """The name under which it is captured."""
        return self.name if self.kind == "reference" else key_of(self.identity)

    @property
    def entry(self) -> RoutingEntry:
        return RoutingEntry(f"tcp://{self.name}:5101", self.identity)

    @property
    def hub(self) -> bytes:
        return b"\0" + f"{self.name}-hub".encode()

    def sees(self, tap: str) -> bool:
        if self.kind == "reference":
            return tap.startswith("scaleout")
        return self.kind == "live" and tap in self.taps


@dataclass(eq=False)
class Sighting:
    """What one node saw at one tap, and what the capture cannot know: the way the message really went."""

    node: Node
    tap: str
    seen_ns: int
    message: Message
    format: str
    variant: str
    frames: list[bytes]
    encoded: bool
    peer: bytes
    way: tuple[RoutingEntry, ...]
    verdict: str
    body_kept: str = "whole"
    seq: int = 0
    occurrence: int = 0
    event_id: str = ""

    @property
    def uid(self) -> bytes:
        return message_uid(self.message)


@dataclass(eq=False)
class Move:
    """A message that moved: from one sighting to the next, each if it was seen."""

    kind: str
    source: Node | None
    target: Node | None
    sent: Sighting | None
    received: Sighting | None
    is_lost: bool = False


@dataclass(eq=False)
class Parcel:
    """A message where it is now, with the way it really went, and since when it is there."""

    message: Message
    way: tuple[RoutingEntry, ...]
    at: Node
    since_ns: int
    last: Sighting | None = None


@dataclass
class Network:
    """The network, and all that was seen of it."""

    seed: int = 1
    nodes: dict[str, Node] = field(default_factory=dict)
    sightings: list[Sighting] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    now_ns: int = START_NS

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.good, self.forged = Keyring(DOMAINS), Keyring(FORGERS)
        self._seqs: dict[tuple[str, str], int] = defaultdict(int)

    def add(self, node: Node) -> Node:
        self.nodes[node.name] = node
        return node

    def wait(self, ms: float) -> int:
        """Let time pass."""
        self.now_ns += int(ms * MS) + self.rng.randrange(1000)
        return self.now_ns

    def pause(self) -> int:
        return self.wait(self.rng.uniform(1, 40))

    # Being seen.

    def see(
        self, node: Node, tap: str, parcel: Parcel, *, frames=None, format="v6", variant="", peer=b"", verdict="unsigned"
    ):
        """Let a node see a message, if it looks there; answers the sighting."""
        if not node.sees(tap):
            return None
        message = parcel.message
        encoded = frames is not None
        if frames is None:
            message = msgspec.structs.replace(message, signature=b"")
            frames, peer = encode(message), message.socket_identity
        if node.kind == "reference":
            tap = tap.replace("scaleout", "wire")
        seen = Sighting(
            node, tap, self.now_ns + node.clock_ns, message, format, variant, frames, encoded, peer, parcel.way, verdict
        )
        self._seqs[node.name, tap] += 1
        seen.seq = self._seqs[node.name, tap] if node.kind == "live" else sum(s.node is node for s in self.sightings) + 1
        self.sightings.append(seen)
        return seen

    def make(self, node: Node, message: Message, *, tap: str = "hub_out", way=()) -> Parcel:
        """A hub or an actor makes a message."""
        parcel = Parcel(message, way, node, self.now_ns)
        parcel.last = self.see(node, tap, parcel)
        return parcel

    def give(self, parcel: Parcel, tap: str = "actor_in") -> None:
        """Give a message to an actor or to the hub of the node where it is."""
        source = parcel.last
        seen = self.see(parcel.at, tap, parcel)
        if seen is not None and source is not None:
            kind = "local" if source.tap in ("hub_out", "actor_out") else "deliver"
            self.moves.append(Move(kind, parcel.at, parcel.at, source, seen))

    # Moving.

    def send(self, parcel: Parcel, target: Node, *, is_lost=False, ms=None, domain="", signer=None) -> Parcel | None:
        """Send a message to another node; answers it as that one reads it, or None if it never came."""
        source = parcel.at
        message, _ = record_hop(parcel.message, source.entry)
        if source.kind != "reference":  # reference nodes carry a TTL and never look at it
            left = remaining_ttl(message.ttl_ticks, self.now_ns - parcel.since_ns)
            message = msgspec.structs.replace(message, ttl_ticks=left)
        way = (*parcel.way, source.entry) if len(message.routing) > len(parcel.message.routing) else parcel.way
        message = msgspec.structs.replace(message, socket_identity=target.identity, domain=domain or message.domain)
        format = source.format if source.kind == "reference" else target.format
        message = _for_format(message, format)
        ring = signer or self.good
        if message.domain == "kino" or (message.domain and not message.signature):
            message = ring.sign(message, now_ns=self.now_ns, nonce=self.rng.randbytes(16))
        verdict = "unsigned" if not message.signature else "invalid" if ring is self.forged else "valid"
        return self.put(Parcel(message, way, source, self.now_ns), target, format, verdict, is_lost=is_lost, ms=ms)

    def put(self, parcel: Parcel, target: Node, format="v6", verdict="unsigned", *, is_lost=False, ms=None) -> Parcel | None:
        """Put a message on the wire as it is."""
        variant = {"v5": "int32-stamp"}.get(format, "")
        frames = encode(parcel.message, format, variant or None)
        layout = {"format": format, "variant": variant, "verdict": verdict}
        sent = self.see(parcel.at, "scaleout_out", parcel, frames=frames, peer=parcel.message.socket_identity, **layout)
        self.wait(ms if ms is not None else self.rng.uniform(0.3, 4))
        if is_lost:
            self.moves.append(Move("network", parcel.at, target, sent, None, is_lost=target.kind != "stranger"))
            return None
        return self.arrive(parcel, target, frames, sent, **layout)

    def arrive(self, parcel: Parcel, target: Node, frames: list[bytes], sent=None, *, socket=None, **layout) -> Parcel:
        """A message comes to a node, by a socket that ZeroMQ has given an id to."""
        if socket is None:
            socket = b"\0" + f"{parcel.at.name}{target.name}".encode()[:4].ljust(4, b"?")
        came = msgspec.structs.replace(parcel.message, socket_identity=socket)
        arrived = Parcel(came, parcel.way, target, self.now_ns)
        arrived.last = self.see(target, "scaleout_in", arrived, frames=[socket, *frames[1:]], peer=socket, **layout)
        if sent is not None or arrived.last is not None:
            self.moves.append(Move("network", parcel.at, target, sent, arrived.last))
        points = came.callback_points
        if target.kind == "reference" and layout["format"] in OLD:
            came, points = msgspec.structs.replace(came, routing=came.routing[::-1]), points[::-1]
        if came.type != RECEIPT:  # the receiving node takes the receipt point out
            points = tuple(point for point in points if point != RECEIPT)
        arrived.message = msgspec.structs.replace(came, callback_points=points)
        return arrived

    # Writing it down.

    def write(self, path: str) -> None:
        """Write a capture, and tell each sighting where it is in it."""
        for node in self.nodes.values():
            mine = [seen for seen in self.sightings if seen.node is node]
            if not mine:
                continue
            writer = CaptureWriter(path, owner=node.identity, wall_ns=lambda seen=mine: seen[0].seen_ns)
            writer.start()
            for start in range(0, len(mine), 100):
                writer.write(_records(mine[start : start + 100]))
            writer.close()
            segment = min(name for name in _segments(path) if writer.run in name)
            for place, seen in enumerate(mine):
                seen.event_id = f"{segment}:{place}"


def _records(seen: list[Sighting]) -> Records:
    is_live = seen[0].node.kind == "live"
    return Records(
        seen_ns=[each.seen_ns for each in seen],
        seq=[each.seq for each in seen],
        tap=[each.tap for each in seen],
        frames=[each.frames for each in seen],
        node=seen[0].node.key,
        encoded=[each.encoded for each in seen],
        body_kept=[each.body_kept for each in seen],
        source=None if is_live else f"{seen[0].node.name}.jsonl",
    )


def _segments(path: str) -> list[str]:
    from hopline.capture import open_capture  # noqa: PLC0415 - by its public name, after writing

    return [segment.name for segment in open_capture(path).segments()]


def _for_format(message: Message, format: str) -> Message:
    """Leave out what old formats have no place for."""
    if format in ("v5", "v6"):
        return message
    message = msgspec.structs.replace(
        message, callback_key=0, callback_receiver_node_identity=b"", receiver_node_identity=b""
    )
    return msgspec.structs.replace(message, domain="", signature=b"") if format == "v3" else message


def is_broadcast(message: Message) -> bool:
    return message.distribution is Distribution.BROADCAST
