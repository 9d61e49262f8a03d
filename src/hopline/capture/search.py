"""Finding one flow in a capture: by searching its id in the raw bytes, and decoding only what holds it.

A correlation id stands in the frames of each message of its flow as it is, in one piece. So it is looked for in the bytes
of a whole batch at once, as fast as memory can be read; what is found is decoded and compared exactly. It knows no trees.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hopline.capture.query import Query
from hopline.capture.record import key_of
from hopline.capture.store import Capture
from hopline.flow.columnar import are_flows
from hopline.wire.columnar import decode_batch
from hopline.wire.spans import Positions, Source

MOST_ROWS: Final = 10_000
"""Sightings of a flow that are kept: a person reads hundreds, and a flow that circles has no end."""

MOST_CANDIDATES: Final = 20
"""Flows of which sightings are kept while it is not clear which one is meant."""


@dataclass(slots=True)
class Flow:
    """The sightings of one flow, in the order of the segments, and how many there are: more than are kept, it may be."""

    correlation_id: bytes
    messages: list[pa.RecordBatch] = field(default_factory=list)
    sightings: int = 0
    kept: int = 0

    def add(self, messages: pa.RecordBatch) -> None:
        """Add sightings, as long as there is room."""
        kept = messages.slice(0, MOST_ROWS - self.kept)
        self.sightings += len(messages)
        self.kept += len(kept)
        self.messages.append(kept)


@dataclass(frozen=True, slots=True)
class Found:
    """What was found: the flow that is meant, if it is clear; else those that may be, with the number of their sightings."""

    flow: Flow | None
    candidates: dict[str, int]


def id_of(text: str) -> bytes:
    r"""The bytes of a correlation id, or of its beginning, from how it is shown.

    >>> id_of("0x00ff"), id_of("6f9619ff-8b86")
    (b'\x00\xff', b'6f9619ff-8b86')
    """
    if text[:2] == "0x":
        try:
            return bytes.fromhex(text[2:])
        except ValueError:
            pass
    return text.encode(errors="surrogateescape")


def find_flow(capture: Capture, wanted: bytes, query: Query, columns: Sequence[str]) -> Found:
    """Find the flow with this id, or the only one whose id begins so; raises CaptureError.

    Of the query the times count, not the filter. `columns` are those of MESSAGES to make of its sightings.
    """
    flows: dict[bytes, Flow] = {}
    counts: Counter[bytes] = Counter()
    for part in query.parts(capture, columns):
        rows = rows_with(part.records.column("frames"), wanted)
        held = part if rows is None else part.take(pa.array(rows))
        if not len(held.places):
            continue
        # First the id alone: of many that begin alike only a few are looked at more closely.
        decoded = decode_batch(held.records, v3_ttl=query.v3_ttl, columns=["row", "correlation_id"]).messages
        ids = decoded["correlation_id"]
        meant = decoded.filter(pc.and_(pc.starts_with(ids, wanted), are_flows(ids)))
        for entry in pc.value_counts(meant["correlation_id"]).to_pylist():
            correlation_id = entry["values"]
            counts[correlation_id] += entry["counts"]
            if correlation_id == wanted or len(flows) < MOST_CANDIDATES:
                flows.setdefault(correlation_id, Flow(correlation_id))
        close = meant.filter(pc.is_in(meant["correlation_id"], pa.array(flows, pa.binary())))
        if len(close):
            messages = query.decode(held.take(close["row"]), columns).messages
            for correlation_id in pc.unique(close["correlation_id"]).to_pylist():
                flows[correlation_id].add(messages.filter(pc.equal(close["correlation_id"], correlation_id)))
    flow = flows.get(wanted) or (next(iter(flows.values())) if len(counts) == 1 else None)
    return Found(flow, {key_of(correlation_id): count for correlation_id, count in counts.items()})


def rows_with(lists: pa.Array, wanted: bytes) -> Positions | None:
    """The rows that may hold these bytes in a frame, rising; None for all of them, if searching would not pay.

    >>> rows_with(pa.array([[b"one", b"two"], [b"three"], [b"four"], [b"five", b"forty-two"]]), b"two").tolist()
    [0, 3]
    """
    if not wanted:
        return None
    source = Source(lists, 0)
    first, last = int(source.bounds[0]), int(source.bounds[-1])
    data = source.buffer.slice(first, last - first).to_pybytes()
    bounds, edges = (source.bounds - first).tolist(), source.last
    frames: list[int] = []
    place = data.find(wanted)
    while place >= 0:
        frame = bisect_right(bounds, place) - 1
        frames.append(frame)
        if len(frames) * 2 > len(lists):
            return None
        place = data.find(wanted, bounds[frame + 1])
    return np.unique(np.searchsorted(edges, np.array(frames, np.int64), "right"))
