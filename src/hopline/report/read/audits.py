"""Small sums: time to live, signatures, and what is no message. From `expiries`, `signatures` and `rejects`."""

from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from hopline.report.read.counting import Key, Tally, groups

STATUSES: Final = ("valid", "unsigned", "invalid", "unknown-domain", "replayed", "unchecked")


class Expiries:
    """Sums by message type and TTL: sent, in time, late, expired in flight; and the greatest share of it that was used.

    A node sends on what is left of a TTL, so of one TTL many come that differ by milliseconds: those that are equal to two
    digits are one, and `longest` has the longest of them.
    """

    table: ClassVar = "expiries"
    columns: ClassVar = ("identity_key", "ttl_ms", "sent", "in_time", "late", "expired_in_flight", "budget_used_p95")

    def __init__(self) -> None:
        self.types = Tally(4)
        self.used: dict[Key, float] = {}
        self.longest: dict[Key, float] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Count some more rows."""
        for (identity, ttl), (_, *sums) in groups(batch, ["identity_key", "ttl_ms"], _SUMS):
            key = (identity, two_digits(ttl))
            self.types.add(key, sums)
            self._keep(self.longest, key, ttl)
        most = pa.Table.from_batches([batch]).group_by(["identity_key", "ttl_ms"]).aggregate([("budget_used_p95", "max")])
        for row in most.to_pylist():
            self._keep(self.used, (row["identity_key"], two_digits(row["ttl_ms"])), row["budget_used_p95_max"])

    def _keep(self, greatest: dict[Key, float], key: Key, value: float | None) -> None:
        if value is not None and (key in greatest or len(greatest) < 2 * len(self.types)):
            greatest[key] = max(value, greatest.get(key, value))


_SUMS: Final = ("sent", "in_time", "late", "expired_in_flight")


def two_digits(ms: float | None) -> float | None:
    """A TTL to two significant digits. All that were over when sent are one.

    >>> [two_digits(ms) for ms in (4968, 4973.0, 5000, 120, -7, 0, None)]
    [5000.0, 5000.0, 5000.0, 120.0, -1.0, 0.0, None]
    """
    return None if ms is None else -1.0 if ms < 0 else float(f"{ms:.2g}")


class Signatures:
    """Sums by verdict, and by domain, node and verdict.

    Attributes:
        judged: by domain and node, how many sightings are invalid, and how many there are.
    """

    table: ClassVar = "signatures"
    columns: ClassVar = ("domain", "node_key", "status", "messages", "covered", "uncovered", "exemplars")

    def __init__(self) -> None:
        self.statuses = Tally()
        self.domains = Tally()
        self.bad = Tally()
        self.judged = Tally(2)
        self.covered: dict[str, tuple[list[str], list[str]]] = {}

    def count(self, *statuses: str) -> int:
        """How many sightings got one of these verdicts."""
        return sum(counts[0] for key, counts in self.statuses.ordered() if key[0] in statuses)

    @property
    def never_valid(self) -> list[tuple[Key, int]]:
        """Domains and nodes without a sighting that is not invalid, and how many: the key that was given may be wrong."""
        return [(key, invalid) for key, (invalid, all_) in self.judged.ordered() if 0 < invalid == all_]

    def add(self, batch: pa.RecordBatch) -> None:
        """Count some more rows: they are few, an hour each."""
        for row in batch.to_pylist():
            status, domain, counts = row["status"], row["domain"], [row["messages"] or 0]
            self.statuses.add((status,), counts)
            self.domains.add((domain, status), counts)
            self.judged.add((domain, row["node_key"]), [*counts, *counts] if status == "invalid" else [0, *counts])
            if status not in ("valid", "unsigned", "unchecked"):
                self.bad.add((status, domain, row["node_key"]), counts, note=next(iter(row["exemplars"] or ()), None))
            if status == "valid" and len(self.covered) < 100:
                self.covered.setdefault(domain or "", (row["covered"] or [], row["uncovered"] or []))


class Rejects:
    """What is no message, by code and reason, with an example of each; and by node."""

    table: ClassVar = "rejects"
    columns: ClassVar = ("code", "reason", "node_key", "tap", "event_id", "excerpt")

    def __init__(self) -> None:
        self.count = 0
        self.codes = Tally()
        self.nodes = Tally()

    def add(self, batch: pa.RecordBatch) -> None:
        """Count some more rows."""
        self.count += batch.num_rows
        for key, counts in groups(batch, ["node_key", "tap"]):
            self.nodes.add(key, counts)
        reason = pc.utf8_slice_codeunits(batch["reason"], 0, 200)
        named = pa.record_batch([batch["code"], reason], names=["code", "reason"])
        for key, counts in groups(named, ["code", "reason"]):
            self.codes.add(key, counts)
        for row in batch.slice(0, 1000).select(["code", "reason", "event_id", "excerpt"]).to_pylist():
            key = (row["code"], None if row["reason"] is None else row["reason"][:200])
            self.codes.add(key, [0], note=(row["event_id"], row["excerpt"]))
