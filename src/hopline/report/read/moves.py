"""Moves between nodes: latency by edge, what was seen at one end only, what was lost, and how clocks differ. From `hops`."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hopline.report.read.counting import Floats, Spread, Tally, groups
from hopline.report.read.ids import flow_of
from hopline.report.read.system import is_system, without_system

Edge = tuple[str | None, str | None]
"""From which node to which; None is not known."""

MOST_EDGES: Final = 2_000
"""Edges whose latencies are kept, 32 KB each; those that come later are counted, and not measured."""

_MOST_PAIRS: Final = 10_000
"""Pairs of nodes and days whose clocks are compared."""


class Moves:
    """Counts and measures network moves.

    System traffic is neither counted nor measured, but for two things: what of it got lost, and what it tells of clocks.

    Attributes:
        ends: moves of an edge: seen at both ends, only where sent, only where received, lost.
        spreads: latencies of an edge, clocks corrected where that is possible.
        skews: by day and edge, by how much the receiver's clock is ahead; 0 if nothing shows a difference.
        uncompared: measured moves of an edge whose clocks nothing compares.
        is_cut: whether there are edges that are not measured, as there are too many.
        backwards: moves that arrived before they were sent, by the clocks as they are.
    """

    table: ClassVar = "hops"
    columns: ClassVar = (
        *("from_node_key", "to_node_key", "kind", "identity_key", "correlation_key"),
        *("sent_at", "received_at", "latency_ms", "skew_ms", "lost"),
    )

    def __init__(self) -> None:
        self.ends = Tally(4)
        self.lost = Tally()
        self.spreads: dict[Edge, Spread] = {}
        self.skews: dict[tuple[str, str, str], float] = {}
        self.uncompared = Tally()
        self.is_cut = False
        self.backwards = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Count some more rows."""
        batch = batch.filter(pc.fill_null(pc.equal(batch["kind"], "network"), fill_value=False))
        if not batch.num_rows:
            return
        self._add_lost(batch.filter(pc.fill_null(batch["lost"], fill_value=False)))
        self._add_skews(batch.filter(pc.and_(batch["latency_ms"].is_valid(), _has_skew(batch))))
        batch = without_system(batch, "identity_key")
        self._add_ends(batch)
        self._add_latencies(batch.filter(batch["latency_ms"].is_valid()))

    @property
    def worst_skew_ms(self) -> float:
        """The greatest difference of two clocks; 0 if nothing shows one."""
        return max(map(abs, self.skews.values()), default=0.0)

    @property
    def lost_system(self) -> int:
        """How many of the lost are system traffic."""
        return sum(counts[0] for (_, _, identity), counts in self.lost.ordered() if is_system(identity))

    def _add_ends(self, batch: pa.RecordBatch) -> None:
        is_sent, is_received = batch["sent_at"].is_valid(), batch["received_at"].is_valid()
        lost = pc.fill_null(batch["lost"], fill_value=False)
        seen = {
            "both": pc.and_(is_sent, is_received),
            "only_sent": pc.and_(is_sent, pc.and_(pc.invert(is_received), pc.invert(lost))),
            "only_received": pc.and_(pc.invert(is_sent), is_received),
            "is_lost": lost,
        }
        counted = pa.record_batch(
            [batch["from_node_key"], batch["to_node_key"], *(pc.cast(flag, pa.int64()) for flag in seen.values())],
            names=["from_node_key", "to_node_key", *seen],
        )
        for key, (_, *numbers) in groups(counted, ["from_node_key", "to_node_key"], list(seen)):
            self.ends.add(key, numbers)

    def _add_lost(self, lost: pa.RecordBatch) -> None:
        keys = ["from_node_key", "to_node_key", "identity_key"]
        for row in groups(lost, [*keys, "correlation_key"]) if lost.num_rows else ():
            *key, flow = row[0]
            self.lost.add(tuple(key), row[1], note=flow_of(flow))

    def _add_latencies(self, batch: pa.RecordBatch) -> None:
        latency = batch["latency_ms"].to_numpy(zero_copy_only=False)
        self.backwards += int((latency < 0).sum())
        with np.errstate(invalid="ignore"):  # what becomes no number is left out by Spread
            took = latency - pc.fill_null(batch["skew_ms"], 0.0).to_numpy(zero_copy_only=False)
        for edge, values in _by_edge(batch, took):
            spread = self.spreads.get(edge)
            if spread is None:
                if len(self.spreads) >= MOST_EDGES:
                    self.is_cut = True
                    continue
                spread = self.spreads[edge] = Spread()
            spread.add(values)
        for key, numbers in groups(batch.filter(pc.invert(_has_skew(batch))), ["from_node_key", "to_node_key"]):
            self.uncompared.add(key, numbers)

    def _add_skews(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        moments = pc.coalesce(batch["sent_at"], batch["received_at"])
        days = pa.record_batch(
            [pc.floor_temporal(moments, unit="day"), batch["from_node_key"], batch["to_node_key"], batch["skew_ms"]],
            names=["day", "from_node_key", "to_node_key", "skew_ms"],
        )
        for (day, one, other, skew), _ in groups(days, days.schema.names):
            if day is not None and one is not None and other is not None and len(self.skews) < _MOST_PAIRS:
                self.skews[f"{day:%Y-%m-%d}", one, other] = skew


def _has_skew(batch: pa.RecordBatch) -> pa.Array:
    return pc.fill_null(pc.is_finite(batch["skew_ms"]), fill_value=False)


def _by_edge(batch: pa.RecordBatch, values: Floats) -> Iterator[tuple[Edge, Floats]]:
    ends = [batch[name].dictionary_encode(null_encoding="encode") for name in ("from_node_key", "to_node_key")]
    first, second = (end.indices.to_numpy(zero_copy_only=False).astype(np.int64) for end in ends)
    codes = first * (len(ends[1].dictionary) + 1) + second
    order = np.argsort(codes, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        if len(places):
            edge = tuple(
                end.dictionary[int(code[places[0]])].as_py() for end, code in zip(ends, (first, second), strict=True)
            )
            yield (edge[0], edge[1]), values[places]


def offsets_ms(skews: dict[tuple[str, str, str], float], day: str, root: str) -> dict[str, float]:
    """How far clocks of nodes are ahead of that of one node, as far as messages between them tell, on a day.

    >>> offsets_ms({("2026-11-15", "a", "b"): 5.0, ("2026-11-15", "c", "b"): 2.0}, "2026-11-15", "a")
    {'a': 0.0, 'b': 5.0, 'c': 3.0}
    """
    known: dict[str, list[tuple[str, float]]] = {}
    for (date, one, other), skew in sorted(skews.items()):
        if date == day:
            known.setdefault(one, []).append((other, skew))
            known.setdefault(other, []).append((one, -skew))
    ahead = {root: 0.0}
    reached = [root]
    for node in reached:  # grows while it is gone through
        for other, skew in known.get(node, ()):
            if other not in ahead:
                ahead[other] = ahead[node] + skew
                reached.append(other)
    return ahead


def day_of(moment: datetime) -> str:
    """The UTC day of a moment."""
    return f"{moment.astimezone(UTC):%Y-%m-%d}"
