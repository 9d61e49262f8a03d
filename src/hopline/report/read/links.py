"""Links: traffic between two nodes, and between two message types. From `edges`."""

from typing import ClassVar, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from hopline.report.read.counting import Tally, groups
from hopline.report.read.seen import SYSTEM


class Link(NamedTuple):
    """All that went from one end to another: nodes, or message types. None is not known, or, for a type, no answer."""

    source: str | None
    target: str | None
    flow: str | None
    messages: int
    system: int
    bytes: int
    errors: int
    lost: int
    expired: int

    @property
    def bad(self) -> int:
        """How many failed, were lost, or came too late."""
        return self.errors + self.lost + self.expired


_SUMS: Final = ("messages", "system", "bytes", "errors", "lost", "expired")
_COUNTS: Final = ("messages", "bytes", "errors", "lost", "expired")
_ENDS: Final = ("level", "source_key", "target_key")
_NOTHING: Final = (0,) * len(_SUMS)
_MOST_EXAMPLES: Final = 1_000
"""Rows of a batch that are looked at for examples."""


class Links:
    """Sums links up over time."""

    table: ClassVar = "edges"
    columns: ClassVar = (*_ENDS, "identity_key", *_COUNTS, "exemplars")

    def __init__(self) -> None:
        self._links = {level: Tally(len(_SUMS)) for level in ("node", "message")}

    def add(self, batch: pa.RecordBatch) -> None:
        """Count some more rows."""
        is_system = pc.cast(pc.fill_null(pc.starts_with(batch["identity_key"], SYSTEM), fill_value=False), pa.int64())
        batch = batch.append_column("system", pc.multiply(is_system, batch["messages"]))
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
