"""Links: traffic between two nodes, and between two message types, without that of the system. From `edges`."""

from typing import ClassVar, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from hopline.report.read.counting import Tally, groups
from hopline.report.read.system import are_system


class Link(NamedTuple):
    """All that went from one end to another: nodes, or message types. None is not known, or, for a type, no answer."""

    source: str | None
    target: str | None
    flow: str | None
    messages: int
    bytes: int
    errors: int
    lost: int
    expired: int

    @property
    def bad(self) -> int:
        """How many failed, were lost, or came too late."""
        return self.errors + self.lost + self.expired


_SUMS: Final = ("messages", "bytes", "errors", "lost", "expired")
_ENDS: Final = ("level", "source_key", "target_key")
_NOTHING: Final = (0,) * len(_SUMS)
_MOST_EXAMPLES: Final = 1_000
"""Rows of a batch that are looked at for examples."""


class Links:
    """Sums links up over time."""

    table: ClassVar = "edges"
    columns: ClassVar = (*_ENDS, "identity_key", *_SUMS, "exemplars")

    def __init__(self) -> None:
        self._links = {level: Tally(len(_SUMS)) for level in ("node", "message")}

    def add(self, batch: pa.RecordBatch) -> None:
        """Count some more rows."""
        batch = batch.filter(pc.invert(_are_system(batch)))
        if not batch.num_rows:
            return
        for (level, source, target), (_, *sums) in groups(batch, _ENDS, _SUMS):
            if level in self._links:
                self._links[level].add((source, target), sums)
        # An example to look at: of a minute in which something went wrong if there is one, else of any.
        bad = pc.greater(pc.add(pc.add(batch["errors"], batch["lost"]), batch["expired"]), 0)
        has_one = pc.greater(pc.list_value_length(batch["exemplars"]), 0)
        for is_bad in (True, False):
            chosen = batch.filter(pc.and_(pc.equal(bad, is_bad), has_one))
            for row in chosen.slice(0, _MOST_EXAMPLES).select([*_ENDS, "exemplars"]).to_pylist():
                if row["level"] in self._links:
                    self._links[row["level"]].add((row["source_key"], row["target_key"]), _NOTHING, note=row["exemplars"][0])

    def between(self, level: str) -> list[Link]:
        """Links between nodes, or between message types: the busiest first."""
        tally = self._links[level]
        return [Link(source, target, tally.note_of((source, target)), *sums) for (source, target), sums in tally.ordered()]


def _are_system(batch: pa.RecordBatch) -> pa.Array:
    """Whether rows are of system traffic: what was counted is, or, between message types, what led to it."""
    is_type = pc.fill_null(pc.equal(batch["level"], "message"), fill_value=False)
    ends = pc.or_(are_system(batch["source_key"]), are_system(batch["target_key"]))
    return pc.or_(are_system(batch["identity_key"]), pc.and_(is_type, ends))
