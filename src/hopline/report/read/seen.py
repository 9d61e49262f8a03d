"""What was seen: sightings over time by message type, and which formats, nodes and taps they come from. From `messages`."""

from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hopline.report.read.counting import MOST_KEYS, Tally, groups
from hopline.report.read.system import are_system
from hopline.report.read.timeline import Timeline

MANY: Final = "\0many"
"""The name under which rare types are counted together, when there are too many; no printable key is like it."""


class Seen:
    """Counts sightings, those of system traffic included; `system` says how many these are."""

    table: ClassVar = "messages"
    columns: ClassVar = ("seen_at", "identity_key", "format", "variant", "encoded", "node_key", "tap")

    def __init__(self) -> None:
        self.sightings = 0
        self.system = 0
        self.timeline = Timeline()
        self.types = Tally()
        self.formats = Tally()
        self.nodes = Tally()

    def add(self, batch: pa.RecordBatch) -> None:
        """Count some more rows."""
        self.sightings += batch.num_rows
        self.system += pc.sum(are_system(batch["identity_key"])).as_py() or 0
        for tally, keys in ((self.formats, ["format", "variant", "encoded"]), (self.nodes, ["node_key", "tap"])):
            for key, counts in groups(batch, keys):
                tally.add(key, counts)
        batch = batch.filter(pc.and_(batch["seen_at"].is_valid(), batch["identity_key"].is_valid()))
        if not batch.num_rows:
            return
        moments = batch["seen_at"].cast(pa.int64()).to_numpy()
        coded = batch["identity_key"].dictionary_encode()
        codes = coded.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        cuts = np.flatnonzero(np.diff(codes[order])) + 1
        for places in np.split(order, cuts):
            name = coded.dictionary[int(codes[places[0]])].as_py()
            self.types.add((name,), [len(places)])
            self.timeline.add(name, moments[places])
        if len(self.timeline.names) > 2 * MOST_KEYS:
            kept = {key[0] for key, _ in self.types.ordered()[:MOST_KEYS]} | {MANY}
            self.timeline.join([name for name in self.timeline.names if name not in kept], MANY)
