"""The tables that must come out of a world, written down from what happened in it, row by row and in plain Python.

Nothing here is Spark, and nothing of `hopline.spark` is used: what a column means is said a second time, by whoever knows
how it came about. Rows are dictionaries with the columns of the table; times are nanoseconds, dates days since 1970.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hopline.capture.record import key_of
from hopline.identity import MessageType
from hopline.wire import Message, RoutingEntry
from tests.spark.generator import MS, Move, Node, Sighting, is_broadcast
from tests.spark.stories import ZEROS, Asked, World

Row = dict[str, Any]

DAY = 86_400_000 * MS


def receiver_key(receiver: bytes) -> str:
    prefix = {b"\0": "hub:", b"\1": "actor:"}.get(receiver[:1], "")
    return prefix + key_of(receiver[1:] if prefix else receiver)


def point(kind: MessageType) -> Row:
    return {"identity_key": key_of(kind.identity), "version": kind.version, "partition_key": key_of(kind.partition)}


def is_flow(message: Message) -> bool:
    return message.correlation_id not in (b"", ZEROS)


@dataclass
class Truth:
    """What is true of a world. Sightings are numbered when it is made."""

    world: World

    def __post_init__(self) -> None:
        self.sightings = self.world.network.sightings
        counts: Counter[tuple[object, ...]] = Counter()
        for seen in sorted(self.sightings, key=lambda each: (each.seen_ns, each.seq)):
            is_spread = is_broadcast(seen.message) and seen.tap not in ("scaleout_out", "wire_out")
            place = (seen.uid, seen.node.name, seen.message.hops, *(() if is_spread else (seen.tap, seen.peer)))
            if not is_spread or seen.tap not in ("router_in", "actor_in", "hub_in"):
                counts[place] += 1
            seen.occurrence = max(counts[place] - 1, 0)

    # What is known of nodes.

    @cached_property
    def window(self) -> dict[str, tuple[int, int]]:
        """From when to when each node was captured."""
        found: dict[str, list[int]] = defaultdict(list)
        for seen in self.sightings:
            found[seen.node.key].append(seen.seen_ns)
        return {key: (min(times), max(times)) for key, times in found.items()}

    def named(self, node: Node) -> str:
        """How a node is called in a table: as it was captured, or by its identity."""
        return node.key if node.kind != "stranger" else key_of(node.identity)

    # Tables.

    def messages(self) -> list[Row]:
        return [self._message(seen) for seen in self.sightings]

    def _message(self, seen: Sighting) -> Row:
        m = seen.message
        keys = [key_of(entry.identity) for entry in seen.way]
        inherited = len(keys) if m.hops <= 0 else max(len(keys) - m.hops, 0)
        is_wrong = [entry.identity for entry in seen.way] != [entry.identity for entry in m.routing]
        callee = m.receiver_identity
        return {
            "event_id": seen.event_id,
            "seen_ns": seen.seen_ns,
            "node_key": seen.node.key,
            "tap": seen.tap,
            "direction": "out" if seen.tap.endswith("_out") else "in",
            "peer_key": key_of(seen.peer),
            "seq": seen.seq,
            "encoded": seen.encoded,
            "format": seen.format,
            "variant": seen.variant,
            "wire_version": int(seen.format[1]),
            "message_uid": seen.uid,
            "occurrence": seen.occurrence,
            "identity": m.identity,
            "identity_key": key_of(m.identity),
            "version": m.version,
            "version_bytes": None,
            "partition": m.partition,
            "partition_key": key_of(m.partition),
            "is_system": m.identity.startswith(b"KINO."),
            "correlation_id": m.correlation_id,
            "correlation_key": key_of(m.correlation_id),
            "receiver": callee,
            "receiver_key": receiver_key(callee),
            "receiver_kind": receiver_key(callee).partition(":")[0],
            "receiver_node_key": key_of(m.receiver_node_identity),
            "distribution": m.distribution.name.lower(),
            "addressing": "all" if is_broadcast(m) else "hub" if callee else "node" if m.receiver_node_identity else "any",
            "callback_key": m.callback_key,
            "callback_receiver_key": receiver_key(m.callback_receiver_identity),
            "callback_receiver_node_key": key_of(m.callback_receiver_node_identity),
            "callback_points": [point(kind) for kind in m.callback_points],
            "is_callback": m.type in m.callback_points,
            "trace_options": m.trace_options,
            "hops": m.hops,
            "trail": _trail(seen.way),
            "trail_order": "restored" if is_wrong else "exact",
            "wire_trail": _trail(m.routing) if is_wrong else None,
            "origin_key": keys[inherited] if inherited < len(keys) else None,
            "parent_trail": keys[:inherited],
            "ttl_ms": m.ttl_ticks / 10_000,
            "domain": m.domain,
            "signature": m.signature,
            "body_kept": seen.body_kept,
            "body_size": len(m.body),
            "warnings": [],
            "date": seen.seen_ns // DAY,
        }

    @cached_property
    def skews(self) -> dict[tuple[int, str, str], float]:
        """By how much clocks are apart, that day, as latencies show it."""
        least: dict[tuple[int, str, str], float] = {}
        for move in self.world.network.moves:
            sent, received = move.sent, move.received
            if move.kind != "network" or not sent or not received or received.occurrence or not is_flow(sent.message):
                continue
            ends = (sent.seen_ns // DAY, sent.node.key, received.node.key)
            least[ends] = min(least.get(ends, float("inf")), (received.seen_ns - sent.seen_ns) / MS)
        found = {}
        for (day, source, target), there in least.items():
            back = least.get((day, target, source))
            if back is not None:
                found[day, source, target] = (there - back) / 2 if min(there, back) < 0 else 0.0
        return found

    def skew(self, move: Move) -> float | None:
        first = move.sent or move.received
        return self.skews.get((first.seen_ns // DAY, self._source(move), self._target(move)))

    def _source(self, move: Move) -> str | None:
        if move.sent is not None:
            return move.sent.node.key
        last = move.received.message.routing[-1:]
        nodes = {node.identity: node for node in self.world.network.nodes.values()}
        return self.named(nodes[last[0].identity]) if last else None

    def _target(self, move: Move) -> str | None:
        return move.received.node.key if move.received else self.named(move.target)

    def is_missing(self, move: Move) -> bool:
        """Whether an end of a move was not seen that should have been, as its node was captured then."""
        if move.kind != "network" or (move.sent and move.received):
            return False
        skew = int((self.skew(move) or 0) * MS)
        if move.received is None:
            first, last = self.window.get(self._target(move), (1, 0))
            return first <= move.sent.seen_ns + skew <= last
        first, last = self.window.get(self._source(move), (1, 0))
        return first <= move.received.seen_ns - skew <= last

    def moves(self) -> list[Move]:
        return [move for move in self.world.network.moves if move.sent or move.received]

    def hops(self) -> list[Row]:
        return [self._hop(move) for move in self.moves()]

    def _hop(self, move: Move) -> Row:
        first = move.sent or move.received
        both = bool(move.sent and move.received)
        how = "uid+occurrence" if first.occurrence else "uid"
        if both and move.kind == "network" and not first.message.hops and first.tap.startswith("wire"):
            how = "time"
        if not both:
            how = "address" if move.sent else "trail"
        return {
            "message_uid": first.uid,
            "occurrence": first.occurrence,
            "correlation_key": key_of(first.message.correlation_id),
            "identity_key": key_of(first.message.identity),
            "from_node_key": self._source(move),
            "to_node_key": self._target(move),
            "kind": move.kind,
            "sent_at": move.sent.seen_ns if move.sent else None,
            "received_at": move.received.seen_ns if move.received else None,
            "latency_ms": (move.received.seen_ns - move.sent.seen_ns) / MS if both else None,
            "skew_ms": self.skew(move),
            "matched_by": how,
            "lost": move.received is None and self.is_missing(move),
            "date": first.seen_ns // DAY,
        }

    def callbacks(self) -> list[Row]:
        return [row for asked in self.world.asked for row in self._asked(asked)]

    def _asked(self, asked: Asked) -> list[Row]:
        first = asked.first
        rows = []
        for number, answer in enumerate(asked.answers or [None]):
            some = (first or answer).message
            began, came = (first.seen_ns if first else None), (answer.seen_ns if answer else None)
            rows.append(
                {
                    "correlation_key": key_of(some.correlation_id),
                    "callback_key": asked.key,
                    "request_uid": first.uid if first else None,
                    "request_identity_key": key_of(first.message.identity) if first else None,
                    "hub_key": receiver_key(some.callback_receiver_identity),
                    "callback_points": [point(kind) for kind in first.message.callback_points] if first else None,
                    "requested_at": began,
                    "response_uid": answer.uid if answer else None,
                    "response_identity_key": key_of(answer.message.identity) if answer else None,
                    "resolved_at": came,
                    "wait_ms": (came - began) / MS if first and answer else None,
                    "responses": len(asked.answers),
                    "outcome": "duplicate" if number else asked.outcome,
                    "error_type": asked.error[0] if answer else None,
                    "error_message": asked.error[1] if answer else None,
                    "asker_captured": asked.asker.kind != "stranger" if first else None,
                    "date": (began or came) // DAY,
                }
            )
        return rows


def _trail(entries: Iterable[RoutingEntry]) -> list[dict[str, str]]:
    return [{"uri": entry.uri, "node_key": key_of(entry.identity)} for entry in entries]
