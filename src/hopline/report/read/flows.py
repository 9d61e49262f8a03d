"""Flows: how many, how long, and the slowest of them move by move. From `flows`, `hops` and `callbacks`.

A flow that system traffic began is left out.

Durations in `flows` are by the clocks of the nodes as they are. Where clocks differ, the longest by these clocks are only
candidates, and so are those whose requests waited longest, which one clock measures: of all candidates the moves are read,
put on one clock, and then they are ordered anew.
"""

import heapq
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hopline.report.read.counting import Greatest, Spread
from hopline.report.read.moves import day_of, offsets_ms
from hopline.report.read.system import without_system
from hopline.report.read.tables import Tables

_MOST_STEPS: Final = 30
"""Steps of a flow that are drawn; of a giant flow the first ones."""

_VISIBLE: Final = 0.01
"""The share of a flow's time from which on what came before its first step is drawn: less cannot be seen."""

_MOST_SENDERS: Final = 1_000
"""Messages of a flow whose senders are remembered."""

CANDIDATES: Final = 20
"""For each flow that is shown, so many are looked at, if clocks differ."""

_EACH: Final = 2
"""Flows of one root type that come before those of others: what one burst made is all alike."""

_MOST_ROOTS: Final = 1_000
"""Root types that are told apart, 32 KB each; flows of those that come later are only among all others."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Root:
    """Flows that began with one message type: how long they took, and the longest of them."""

    def __init__(self) -> None:
        self.duration = Spread()
        self.longest = Greatest("duration_ms", _EACH, "correlation_key")


class Flows:
    """Counts flows, and finds the longest: of all, and of each root type."""

    table: ClassVar = "flows"
    columns: ClassVar = (
        *("correlation_key", "started_at", "ended_at", "duration_ms", "root_identity_key", "root_node_key", "messages"),
        *("nodes", "callbacks_pending", "errors", "expired", "completeness"),
    )

    def __init__(self, longest: int) -> None:
        self.count = 0
        self.messages = 0
        self.failed = 0
        self.incomplete = 0
        self.duration = Spread()
        self.longest = Greatest("duration_ms", longest, "correlation_key")
        self.roots: dict[str | None, Root] = {}

    def of_each_root(self, most: int) -> list[dict[str, Any]]:
        """The longest of each root type, of so many types: those with the longest."""
        found = [root for root in self.roots.values() if root.longest.rows]
        return [row for root in heapq.nlargest(most, found, key=_greatest) for row in root.longest.rows]

    def add(self, batch: pa.RecordBatch) -> None:
        """Count some more rows."""
        batch = without_system(batch, "root_identity_key")
        self.count += batch.num_rows
        self.messages += pc.sum(batch["messages"]).as_py() or 0
        self.failed += pc.sum(pc.greater(batch["errors"], 0)).as_py() or 0
        self.incomplete += pc.sum(pc.less(batch["completeness"], 1.0)).as_py() or 0
        self.duration.add(pc.drop_null(batch["duration_ms"]).to_numpy(zero_copy_only=False))
        self.longest.add(batch)
        self._add_roots(batch)

    def _add_roots(self, batch: pa.RecordBatch) -> None:
        roots = batch["root_identity_key"].dictionary_encode(null_encoding="encode")
        codes = roots.indices.to_numpy(zero_copy_only=False)
        order = np.argsort(codes, kind="stable")
        for places in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
            if not len(places):
                continue
            name = roots.dictionary[int(codes[places[0]])].as_py()
            if name in self.roots or len(self.roots) < _MOST_ROOTS:
                own, root = batch.take(pa.array(places)), self.roots.setdefault(name, Root())
                root.duration.add(pc.drop_null(own["duration_ms"]).to_numpy(zero_copy_only=False))
                root.longest.add(own)


def _greatest(root: Root) -> float:
    return root.duration.greatest


class Step(NamedTuple):
    """Something that took time in a flow, in milliseconds since it began. None is not seen."""

    kind: str
    identity: str | None
    source: str | None
    target: str | None
    begin_ms: float | None
    end_ms: float | None
    is_lost: bool = False
    outcome: str = ""
    is_hearsay: bool = False
    """Of a wait: whether the node that waited was not captured, so that others saw when it began and ended."""

    def since(self, ms: float) -> "Step":
        """The same, counted from another beginning."""
        begin, end = (None if moment is None else moment - ms for moment in (self.begin_ms, self.end_ms))
        return self._replace(begin_ms=begin, end_ms=end)

    @property
    def first_ms(self) -> float:
        """The moment that is known of it, the first of two."""
        return self.begin_ms if self.begin_ms is not None else self.end_ms or 0.0


class SlowFlow(NamedTuple):
    """A flow to be drawn."""

    key: str
    started_at: datetime
    duration_ms: float
    raw_ms: float | None
    root_identity: str | None
    root_node: str | None
    messages: int
    steps: list[Step]
    more: int


def slowest(
    tables: Tables, flows: Flows, waits: Iterable[dict[str, Any]], skews: dict[tuple[str, str, str], float], most: int
) -> list[SlowFlow]:
    """The slowest flows and the slowest of each root type, the slowest first, with what happened in them.

    Args:
        tables: where to read it.
        flows: has the longest by raw clocks.
        waits: rows of `callbacks` that waited longest.
        skews: by how much clocks differ.
        most: how many flows of all, and how many root types.

    Raises:
        ChangedError: a day was replaced meanwhile.
        TablesError: a table cannot be read.
    """
    longest = flows.longest.rows if any(skews.values()) else flows.longest.rows[:most]
    known = {row["correlation_key"]: row for row in (*longest, *flows.of_each_root(most)) if row["correlation_key"]}
    candidates = list(known)
    if any(skews.values()):
        candidates = list(dict.fromkeys([*candidates, *(row["correlation_key"] for row in waits)]))
    if not candidates:
        return []
    missing = [key for key in candidates if key not in known]
    if missing:
        for batch in tables.scan("flows", Flows.columns, missing):
            rows = without_system(batch, "root_identity_key").to_pylist()
            known.update({row["correlation_key"]: row for row in rows})
    offsets = cache(partial(offsets_ms, skews))
    drawn = {}
    for key, row in known.items():
        if row["started_at"] is not None:
            drawn[key] = _Drawing(row, offsets(day_of(row["started_at"]), row["root_node_key"] or ""))
    for batch in tables.scan("hops", _HOP, candidates):
        for row in batch.to_pylist():
            if row["correlation_key"] in drawn:
                drawn[row["correlation_key"]].add_move(row)
    for batch in tables.scan("callbacks", _CALLBACK, candidates):
        for row in batch.to_pylist():
            if row["correlation_key"] in drawn:
                drawn[row["correlation_key"]].add_wait(row)
    return sorted((drawing.finish() for drawing in drawn.values()), key=lambda flow: (-flow.duration_ms, flow.key))


def varied(found: Iterable[SlowFlow], most: int) -> list[SlowFlow]:
    """Flows to be drawn, of the slowest ones: first two of each root type, and then others if there is room."""
    first: list[SlowFlow] = []
    others: list[SlowFlow] = []
    times: Counter[str | None] = Counter()
    for flow in found:
        times[flow.root_identity] += 1
        (first if times[flow.root_identity] <= _EACH else others).append(flow)
    return [*first, *others][:most]


_HOP: Final = (
    *("correlation_key", "message_uid", "identity_key", "from_node_key", "to_node_key", "kind"),
    *("sent_at", "received_at", "lost"),
)
_CALLBACK: Final = (
    *("correlation_key", "request_uid", "request_identity_key", "response_identity_key"),
    *("requested_at", "resolved_at", "outcome", "asker_captured"),
)


class _Drawing:
    """A flow while its steps are gathered: its first ones, in order of time, on one clock."""

    def __init__(self, row: dict[str, Any], ahead: dict[str, float]) -> None:
        self._row = row
        self._ahead = ahead
        self._steps: list[Step] = []
        self._senders: dict[bytes, tuple[float, str | None]] = {}
        self._waits: list[dict[str, Any]] = []
        self._count = 0
        self._first_ms, self._last_ms = float("inf"), float("-inf")
        self._has_start = False

    def add_move(self, row: dict[str, Any]) -> None:
        begin = self._ms(row["sent_at"], row["from_node_key"])
        end = self._ms(row["received_at"], row["to_node_key"])
        if begin is not None and end is not None:
            end = max(begin, end)  # what is left of differing clocks: nothing arrives before it was sent
        self._has_start |= self._row["started_at"] in (row["sent_at"], row["received_at"])
        kind, is_lost = row["kind"] or "network", bool(row["lost"])
        self._add(Step(kind, row["identity_key"], row["from_node_key"], row["to_node_key"], begin, end, is_lost))
        uid = row["message_uid"]
        if begin is not None and len(self._senders) < _MOST_SENDERS:
            self._senders[uid] = min(
                self._senders.get(uid, (begin, row["from_node_key"])), (begin, row["from_node_key"]), key=_first
            )

    def add_wait(self, row: dict[str, Any]) -> None:
        self._has_start |= self._row["started_at"] == row["requested_at"]
        if row["requested_at"] is not None and len(self._waits) < _MOST_STEPS:
            self._waits.append(row)

    def finish(self) -> SlowFlow:
        for row in self._waits:
            # Who asked saw both ends of the wait, by its clock: it is who sent the request first.
            _, node = self._senders.get(row["request_uid"], (0.0, self._row["root_node_key"]))
            begin, end = self._ms(row["requested_at"], node), self._ms(row["resolved_at"], node)
            about = ("wait", row["request_identity_key"], node, row["response_identity_key"])
            is_hearsay = row["asker_captured"] is False  # null, in old tables, says nothing
            self._add(Step(*about, begin, end, outcome=row["outcome"] or "", is_hearsay=is_hearsay))
        row, raw = self._row, self._row["duration_ms"] or 0.0
        ordered = sorted(self._steps, key=_order)[:_MOST_STEPS]
        first = self._start_ms() if ordered else 0.0
        took = max(0.0, self._last_ms - first) if ordered and any(self._ahead.values()) else raw
        moves = [step for step in ordered if step.kind != "wait"]
        is_moved = bool(moves) and any(self._ahead.values())
        return SlowFlow(
            key=row["correlation_key"],
            started_at=row["started_at"],
            duration_ms=took,
            raw_ms=raw if abs(took - raw) > max(1.0, abs(raw) * 0.01) else None,
            root_identity=moves[0].identity if is_moved else row["root_identity_key"],
            root_node=moves[0].source if is_moved else row["root_node_key"],
            messages=row["messages"] or 0,
            steps=[*self._before(ordered, first, took), *(step.since(first) for step in ordered)],
            more=self._count - len(ordered),
        )

    def _start_ms(self) -> float:
        """When it began, which may be before its first step.

        `started_at` is by the clock of a node that is not named. If no step begins or ends then, it is the node that began
        the flow, for others first see what comes to them.
        """
        start = self._ms(self._row["started_at"], self._row["root_node_key"])
        return self._first_ms if self._has_start or start is None else min(start, self._first_ms)

    def _before(self, ordered: list[Step], start: float, took: float) -> list[Step]:
        """What was before the first step, if anything tells: the message that began it was inside its node until it left."""
        if not ordered or ordered[0].kind == "wait" or ordered[0].begin_ms is None:
            return []
        identity, node = ordered[0].identity, ordered[0].source
        if node is None or (identity, node) != (self._row["root_identity_key"], self._row["root_node_key"]):
            return []
        inside = ordered[0].begin_ms - start
        return [Step("local", identity, node, node, 0.0, inside)] if inside > _VISIBLE * took else []

    def _ms(self, moment: datetime | None, node: str | None) -> float | None:
        if moment is None:
            return None
        return (moment - _EPOCH) / timedelta(milliseconds=1) - self._ahead.get(node or "", 0.0)

    def _add(self, step: Step) -> None:
        self._count += 1
        known = [moment for moment in (step.begin_ms, step.end_ms) if moment is not None]
        self._first_ms, self._last_ms = min([self._first_ms, *known]), max([self._last_ms, *known])
        self._steps.append(step)
        if len(self._steps) >= 4 * _MOST_STEPS:
            self._steps = heapq.nsmallest(_MOST_STEPS, self._steps, key=_order)


def _first(sender: tuple[float, str | None]) -> float:
    return sender[0]


def _order(step: Step) -> tuple[float, bool, str]:
    return step.first_ms, step.kind != "wait", step.kind
