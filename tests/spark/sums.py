"""The tables that add up: flows, edges, expiries, signatures and routes of a world, from the rows of `truth.py`."""

from collections import defaultdict
from collections.abc import Iterable
from math import ceil

from hopline.capture.record import key_of
from hopline.identity import EXCEPTION
from tests.spark.generator import MS, Sighting
from tests.spark.truth import DAY, Row, Truth, is_flow, receiver_key

HOUR, MINUTE = 3_600_000 * MS, 60_000 * MS
NETWORK = ("scaleout_out", "wire_out", "scaleout_in", "wire_in")
FAILED = key_of(EXCEPTION.identity)
KINO_FIELDS = ["identity", "version", "partition", "body", "callback_receiver"]
FULL_FIELDS = [
    *("identity", "version", "partition", "body", "correlation_id", "receiver", "receiver_node", "distribution"),
    *("trace_options", "callback_points", "callback_key", "callback_receiver", "callback_receiver_node", "domain"),
]
ALL_FIELDS = [*FULL_FIELDS, "ttl", "hops", "trail", "socket_identity"]


def rank(values: Iterable[float], share: float) -> float | None:
    """The smallest value that so large a share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(ceil(share * len(ordered)), 1) - 1] if ordered else None


class Sums(Truth):
    """What is true of a world, added up."""

    def flows(self) -> list[Row]:
        by_flow: dict[str, list[Sighting]] = defaultdict(list)
        for seen in self.sightings:
            if is_flow(seen.message):
                by_flow[key_of(seen.message.correlation_id)].append(seen)
        missing, expired = defaultdict(int), defaultdict(int)
        for move in self.moves():
            missing[key_of((move.sent or move.received).message.correlation_id)] += self.is_missing(move)
        for life in self.world.lives:
            expired[key_of(life.first.message.correlation_id)] += life.fate in ("late", "expired_in_flight")
        outcomes = defaultdict(list)
        for row in self.callbacks():
            outcomes[row["correlation_key"]].append(row["outcome"])
        return [self._flow(key, seen, outcomes[key], missing[key], expired[key]) for key, seen in by_flow.items()]

    def _flow(self, key: str, seen: list[Sighting], outcomes: list[str], missing: int, expired: int) -> Row:
        rows = {id(each): self._message(each) for each in seen}
        steps: dict[tuple[str, ...], set[tuple[bytes, int]]] = defaultdict(set)
        for each in seen:
            steps[tuple(sorted(rows[id(each)]["parent_trail"]))].add((each.uid, each.occurrence))

        def nearness(each: Sighting) -> tuple[int, int]:
            row = rows[id(each)]
            is_sent_on = each.message.hops > 1  # by a node that may have another clock
            rank = 3 if row["parent_trail"] else 2 if is_sent_on else 1 if row["direction"] == "in" else 0
            return rank, each.seen_ns

        root = min(seen, key=nearness)
        row = rows[id(root)]
        origins = {key_of(node.identity): self.named(node) for node in self.world.network.nodes.values()}
        network = sum(each.tap in NETWORK for each in seen)
        begun, ended = min(each.seen_ns for each in seen), max(each.seen_ns for each in seen)
        return {
            "correlation_key": key,
            "started_at": begun,
            "ended_at": ended,
            "duration_ms": (ended - begun) / MS,
            "root_identity_key": row["identity_key"],
            "root_node_key": row["node_key"] if row["direction"] == "out" else origins.get(row["origin_key"]),
            "messages": len({(each.uid, each.occurrence) for each in seen}),
            "sightings": len(seen),
            "nodes": len({each.node.key for each in seen}),
            "depth": max(_different(each) for each in seen),
            "max_hops": max(each.message.hops for each in seen),
            "fan_out": max(map(len, steps.values())),
            "callbacks_ok": outcomes.count("ok"),
            "callbacks_exception": outcomes.count("exception"),
            "callbacks_pending": outcomes.count("pending") + outcomes.count("expired"),
            "errors": len({(each.uid, each.occurrence) for each in seen if each.message.type == EXCEPTION}),
            "expired": expired,
            "invalid_signatures": sum(each.verdict == "invalid" for each in seen),
            "completeness": network / (network + missing) if network else 1.0,
            "date": begun // DAY,
        }

    def edges(self) -> list[Row]:
        groups: dict[tuple[object, ...], list[Row]] = defaultdict(list)
        for row in [*self._between_nodes(), *self._to_answers(), *self._to_effects()]:
            ends = (row["begun"] // MINUTE * MINUTE, row["level"], row["source"], row["target"], row["identity"])
            groups[ends].append(row)
        return [self._edge(ends, rows) for ends, rows in groups.items()]

    def _edge(self, ends: tuple[object, ...], rows: list[Row]) -> Row:
        flows = [row for row in rows if row["flow"] not in ("", "00000000-0000-0000-0000-000000000000")]
        timed = [row for row in flows if row["took"] is not None]
        failed = [row for row in flows if row["errors"] or row["lost"] or row["expired"]]
        exemplars = [max((row["took"], row["flow"]) for row in timed)[1]] if timed else []
        exemplars += [min((row["begun"], row["flow"]) for row in some)[1] for some in (failed, flows) if some]
        took = [row["took"] for row in rows if row["took"] is not None]
        return {
            **dict(zip(("minute", "level", "source_key", "target_key", "identity_key"), ends, strict=True)),
            "messages": len(rows),
            **{name: sum(row[name] for row in rows) for name in ("bytes", "errors", "lost", "expired")},
            "p50_ms": rank(took, 0.5),
            "p95_ms": rank(took, 0.95),
            "p99_ms": rank(took, 0.99),
            "exemplars": list(dict.fromkeys(exemplars)),
            "date": ends[0] // DAY,
        }

    def _between_nodes(self) -> Iterable[Row]:
        for move in self.moves():
            if move.kind != "network":
                continue
            message, hop = (move.sent or move.received).message, self._hop(move)
            took = None if hop["latency_ms"] is None else hop["latency_ms"] - (hop["skew_ms"] or 0)
            ttl_ms = message.ttl_ticks / 10_000
            yield {
                "begun": (move.sent or move.received).seen_ns,
                "level": "node",
                "source": hop["from_node_key"],
                "target": hop["to_node_key"],
                "identity": hop["identity_key"],
                "flow": hop["correlation_key"],
                "took": took,
                "bytes": len(message.body),
                "errors": hop["identity_key"] == FAILED,
                "lost": hop["lost"],
                "expired": ttl_ms < 0 or (ttl_ms > 0 and took is not None and took > ttl_ms),
            }

    def _to_answers(self) -> Iterable[Row]:
        sizes = {each.uid: len(each.message.body) for each in self.sightings}
        for row in self.callbacks():
            yield {
                "begun": row["requested_at"] or row["resolved_at"],
                "level": "message",
                "source": row["request_identity_key"],
                "target": row["response_identity_key"],
                "identity": row["response_identity_key"] or row["request_identity_key"],
                "flow": row["correlation_key"],
                "took": row["wait_ms"] if row["asker_captured"] else None,
                "bytes": sizes.get(row["response_uid"], 0),
                "errors": row["response_identity_key"] == FAILED,
                "lost": row["outcome"] == "pending",
                "expired": row["outcome"] in ("late", "expired"),
            }

    def _to_effects(self) -> Iterable[Row]:
        for effect in self.world.effects:
            cause, sent = effect.cause, effect.sent
            yield {
                "begun": sent.seen_ns,
                "level": "message",
                "source": key_of(cause.message.identity) if cause else None,
                "target": key_of(sent.message.identity),
                "identity": key_of(sent.message.identity),
                "flow": key_of(sent.message.correlation_id),
                "took": (sent.seen_ns - cause.seen_ns) / MS if cause else None,
                "bytes": len(sent.message.body),
                "errors": False,
                "lost": False,
                "expired": False,
            }

    def expiries(self) -> list[Row]:
        groups: dict[tuple[int, str, float], list[tuple[str | None, float]]] = defaultdict(list)
        for life in self.world.lives:
            ttl_ms = life.first.message.ttl_ticks / 10_000
            mine = [move for move in self.moves() if (move.sent or move.received).uid == life.first.uid]
            skew = sum(self.skew(move) or 0.0 for move in mine if move.kind == "network")
            used = ((life.last.seen_ns - life.first.seen_ns) / MS - skew) / ttl_ms
            hour = life.first.seen_ns // HOUR * HOUR
            groups[hour, key_of(life.first.message.identity), float(ceil(ttl_ms))].append((life.fate, used))
        return [
            {
                "hour": hour,
                "identity_key": identity,
                "ttl_ms": ttl_ms,
                "sent": len(lives),
                **{fate: sum(each == fate for each, _ in lives) for fate in ("in_time", "late", "expired_in_flight")},
                "budget_used_p95": rank([used for fate, used in lives if fate in ("in_time", "late")], 0.95),
                "date": hour // DAY,
            }
            for (hour, identity, ttl_ms), lives in groups.items()
        ]

    def signatures(self) -> list[Row]:
        groups: dict[tuple[int, str, str, str], list[tuple[int, str]]] = defaultdict(list)
        for seen in self.sightings:
            if seen.encoded:
                hour = seen.seen_ns // HOUR * HOUR
                groups[hour, seen.message.domain, seen.node.key, seen.verdict].append((seen.seen_ns, seen.event_id))
        rows = []
        for (hour, domain, node, verdict), seen in groups.items():
            is_signed = verdict in ("valid", "invalid", "replayed")
            covered = {"full": FULL_FIELDS, "kino": KINO_FIELDS}[domain] if is_signed else []
            rows.append(
                {
                    "hour": hour,
                    "domain": domain,
                    "node_key": node,
                    "status": verdict,
                    "messages": len(seen),
                    "covered": covered,
                    "uncovered": [name for name in ALL_FIELDS if name not in covered],
                    "exemplars": list(dict.fromkeys([min(seen)[1], max(seen)[1]])),
                    "date": hour // DAY,
                }
            )
        return rows

    def _told(self, route: Row, seen: Sighting) -> int:
        """When a route changed, by the clock of its node."""
        ends = (seen.seen_ns // DAY, route["node"].key, seen.node.key)
        return seen.seen_ns - int(self.skews.get(ends, 0.0) * MS)

    def routes(self) -> list[Row]:
        return [
            {
                "node_key": key_of(route["node"].identity),
                "node_uri": route["uri"],
                "receiver_key": receiver_key(route["receiver"]),
                "receiver_kind": receiver_key(route["receiver"]).partition(":")[0],
                "identity_key": route["kind"] and key_of(route["kind"].identity),
                "version": route["kind"] and route["kind"].version,
                "partition_key": route["kind"] and key_of(route["kind"].partition),
                "domain": route["domain"],
                "valid_from": self._told(route, route["begun"]),
                "valid_to": self._told(route, route["ended"]) if route["ended"] else None,
                "ended_by": key_of(route["ended"].message.identity) if route["ended"] else None,
            }
            for route in self.world.routes
        ]


def _different(seen: Sighting) -> int:
    """Entries of a trail, of which a reference broadcast repeats some."""
    nodes = [entry.identity for entry in seen.way]
    return sum(place == 0 or node != nodes[place - 1] for place, node in enumerate(nodes))
