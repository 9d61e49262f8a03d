"""A question about a capture: which sightings are meant, and all of them, decoded, batch by batch.

`Dump` is the plainest answer: those sightings. `trace.py`, `flows.py` and `stats.py` make others of them. Nothing here
goes over rows one by one, and nothing holds more of a capture than the answer needs. It knows no command line.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hopline.capture.filter import And, Filter, fields_of
from hopline.capture.messages import Sightings, sightings
from hopline.capture.predicate import mask
from hopline.capture.segment import Segment
from hopline.capture.store import Capture
from hopline.capture.tables import DEFAULT_COLUMNS
from hopline.wire import TtlUnit

EVERYTHING: Final = And(())
"""The filter that all sightings pass."""

_RECORD_COLUMNS: Final = {
    "node_key": "node",
    "direction": "direction",
    "seq": "seq",
    "encoded": "encoded",
    "body_kept": "body_kept",
    "body_size": "body_size",
}
"""Columns of MESSAGES that come from columns of records; those that every answer needs are not listed."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_NS: Final = (1 << 63) - 1


class Part(NamedTuple):
    """Some records of one segment, and their places in it."""

    segment: Segment
    places: pa.Array
    records: pa.RecordBatch

    def filter(self, passed: pa.Array) -> "Part":
        """Those that passed."""
        return Part(self.segment, self.places.filter(passed), self.records.filter(passed))

    def take(self, rows: pa.Array) -> "Part":
        """Those in these rows."""
        return Part(self.segment, self.places.take(rows), self.records.take(rows))

    @property
    def seen_ns(self) -> pa.Array:
        """When each was seen."""
        return self.records.column("seen_ns")


@dataclass(slots=True)
class Bound:
    """A time from which on nothing is wanted any more; not even decoded."""

    ns: int | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """Which sightings are meant.

    Attributes:
        where: a filter that they pass. What is no message passes it if it does with the few columns it has.
        since: the earliest time.
        until: the time before which they were seen.
        v3_ttl: the unit of TTL in v3, as for `decode`.
    """

    where: Filter = EVERYTHING
    since: datetime | None = None
    until: datetime | None = None
    v3_ttl: TtlUnit = "ms"

    def parts(self, capture: Capture, columns: Sequence[str], *, bound: Bound | None = None) -> Iterator[Part]:
        """The records within the time, undecoded, in the order of the segments; raises CaptureError.

        `columns` are those of MESSAGES that are to be made of them. `bound` may move while this goes on.
        """
        needed = {_RECORD_COLUMNS[name] for name in columns if name in _RECORD_COLUMNS}
        for segment, first_row, batch in capture.batches(columns=sorted({"seen_ns", "node", "tap", "frames", *needed})):
            part = Part(segment, pa.array(np.arange(first_row, first_row + len(batch))), batch)
            if self.since is not None:
                part = part.filter(pc.greater_equal(part.seen_ns, ns_of(self.since)))
            if self.until is not None:
                part = part.filter(pc.less(part.seen_ns, ns_of(self.until)))
            if bound is not None and bound.ns is not None:
                part = part.filter(pc.less(part.seen_ns, bound.ns))
            if len(part.places):
                yield part

    def decode(self, part: Part, columns: Sequence[str]) -> Sightings:
        """Decode records, whether they are meant or not; raises ValueError if there is no such column."""
        segment, places, records = part
        return sightings(records, segment=segment.name, first_row=places, v3_ttl=self.v3_ttl, columns=columns)

    def read(
        self, capture: Capture, columns: Sequence[str] = DEFAULT_COLUMNS, *, bound: Bound | None = None
    ) -> Iterator[Sightings]:
        """All sightings that are meant, in the order of the segments; raises CaptureError, ValueError."""
        parts = self.parts(capture, sorted(fields_of(self.where).union(columns)), bound=bound)
        if self.where == EVERYTHING:
            for part in parts:
                yield self.decode(part, columns)
            return
        for part, rejects in _joined(map(self._passed, parts)):
            yield self.decode(part, columns)._replace(rejects=rejects)

    def _passed(self, part: Part) -> tuple[Part, pa.RecordBatch]:
        """The records and the rejects that pass the filter. Only what it looks at is decoded: most let little pass."""
        tested = self.decode(part, sorted(fields_of(self.where)) or ["event_id"])
        passed = part.take(tested.records.filter(mask(self.where, tested.messages)))
        return passed, tested.rejects.filter(mask(self.where, tested.rejects))


def _joined(found: Iterable[tuple[Part, pa.RecordBatch]]) -> Iterator[tuple[Part, pa.RecordBatch]]:
    """Put what follows each other in a segment together, until there are so many that it pays to decode them."""
    held: list[tuple[Part, pa.RecordBatch]] = []
    for each in found:
        if held and (each[0].segment != held[0][0].segment or sum(len(part.places) for part, _ in held) >= _ROWS_AT_ONCE):
            yield _join(held)
            held = []
        held.append(each)
    if held:
        yield _join(held)


def _join(held: list[tuple[Part, pa.RecordBatch]]) -> tuple[Part, pa.RecordBatch]:
    parts = [part for part, _ in held]
    records = pa.Table.from_batches([part.records for part in parts]).combine_chunks().to_batches()
    rejects = pa.Table.from_batches([rejects for _, rejects in held]).combine_chunks().to_batches()
    places = pa.concat_arrays([part.places for part in parts])
    return Part(parts[0].segment, places, (records or [parts[0].records])[0]), (rejects or [held[0][1]])[0]


def ns_of(moment: datetime) -> int:
    """A point in time as nanoseconds since 1970, or the nearest that 64 bits can hold: a person may name the year 9999."""
    ns = (moment - _EPOCH) // timedelta(microseconds=1) * 1000
    return min(max(ns, -_MOST_NS - 1), _MOST_NS)


Order = Literal["time", "file"]

_ROWS_AT_ONCE: Final = 4096


class Dump:
    """The messages that are meant, some thousand at a time.

    In the order of time all of them are held until the last one is read, or the first `limit` of them; in the order of the
    files none is, and the first come at once. Equal times stay in the order of the files.

    Attributes:
        rejected: how many frame lists that are no messages were met on the way and passed the filter.
    """

    def __init__(
        self,
        capture: Capture,
        query: Query,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        *,
        order: Order = "time",
        limit: int | None = None,
    ) -> None:
        self.rejected = 0
        self._capture = capture
        self._query = query
        self._columns = list(columns)
        self._order = order
        self._limit = limit

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Read; raises CaptureError, ValueError."""
        if self._order == "file":
            return _first(self._read(self._columns), self._limit)
        return self._in_time()

    def _read(self, columns: Sequence[str], bound: Bound | None = None) -> Iterator[pa.RecordBatch]:
        for found in self._query.read(self._capture, columns, bound=bound):
            self.rejected += len(found.rejects)
            yield found.messages

    def _in_time(self) -> Iterator[pa.RecordBatch]:
        limit, bound = self._limit, Bound()
        held: list[pa.RecordBatch] = []
        rows = 0
        for messages in self._read([*self._columns, *({"seen_ns"} - set(self._columns))], bound):
            held.append(messages)
            rows += len(messages)
            if limit is not None and rows > 2 * limit:
                held = _sorted(held, limit).to_batches()
                rows, bound.ns = limit, max(pc.max(batch["seen_ns"]).as_py() for batch in held)
        if held:
            yield from _sorted(held, limit).select(self._columns).to_batches(_ROWS_AT_ONCE)


def _first(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    left = limit
    for batch in batches:
        if left is None:
            yield batch
            continue
        yield batch.slice(0, left)
        left = max(left - len(batch), 0)
        if not left:
            return


def _sorted(held: list[pa.RecordBatch], limit: int | None) -> pa.Table:
    table = pa.Table.from_batches(held)
    order = pc.sort_indices(table, sort_keys=[("seen_ns", "ascending")])
    return table.take(order if limit is None else order.slice(0, limit))
