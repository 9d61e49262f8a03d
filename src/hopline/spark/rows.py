"""Rows of a share: its records are read, the wanted ones are decoded, and what passes the filter becomes Arrow batches.

Runs on the executors, in one pass and with bounded memory: some thousand records at a time. What each record says is made by
`hopline.capture.messages`, the same for the command line; here is only decided which records are decoded, and together
with which others. What is wrong with a segment is said in the log, and is a row of its own among the rejects.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from hopline.capture import Problem, open_capture
from hopline.capture.filter import And, Compare, Filter, OneOf, fields_of
from hopline.capture.folder import Folder
from hopline.capture.messages import Sightings, sightings
from hopline.capture.predicate import mask
from hopline.capture.tables import REJECTS
from hopline.spark.bounds import conjuncts, narrower, times_of
from hopline.spark.options import Options
from hopline.spark.pieces import NOT_FOUND, ROWS_AT_ONCE, Piece, PieceReading, Share, Times, segment_named

logger = logging.getLogger(__name__)

_BYTES_AT_ONCE: Final = 32 * 1024 * 1024
"""Bytes of records that are decoded at once; Spark's workers hold the answer several times over on its way."""

_RECORD_COLUMNS: Final = {
    "seen_ns": "seen_ns",
    "node_key": "node",
    "tap": "tap",
    "direction": "direction",
    "seq": "seq",
    "encoded": "encoded",
    "body_kept": "body_kept",
    "body_size": "body_size",
}
"""Columns of MESSAGES that come from a column of the records: alone, but for `body_size`."""

_KNOWN_BEFORE: Final = frozenset(_RECORD_COLUMNS) - {"body_size"}
"""Columns that are known before a message is decoded."""

_ALWAYS: Final = frozenset(["seen_ns", "node", "tap", "frames"])
"""Columns of the records that every answer needs: a reject has them."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

OnGone = Callable[[str], None]
"""Is told the name of a segment that was deleted before it was read."""


def nobody(_segment: str) -> None:
    """Nobody wants to know."""


class _Records(NamedTuple):
    """Records of one segment, and the place of the first."""

    segment: str
    first_row: int
    batch: pa.RecordBatch


class _Part(NamedTuple):
    """Records that are decoded together, of one segment or of several: its name or that of each, and their places."""

    segment: str | pa.Array
    places: pa.Array
    batch: pa.RecordBatch

    @classmethod
    def of(cls, group: list[_Records]) -> "_Part":
        """All records of a group."""
        segment: str | pa.Array = group[0].segment
        if any(records.segment != segment for records in group):
            segment = pa.concat_arrays([pa.repeat(pa.scalar(name), len(batch)) for name, _, batch in group])
        places = np.concatenate([np.arange(row, row + len(batch), dtype=np.int64) for _, row, batch in group])
        batches = [records.batch for records in group]
        return cls(segment, pa.array(places), batches[0] if len(batches) == 1 else pa.concat_batches(batches))

    def take(self, rows: pa.Array) -> "_Part":
        """Those in these rows."""
        segment = self.segment if isinstance(self.segment, str) else self.segment.take(rows)
        return _Part(segment, self.places.take(rows), self.batch.take(rows))


@dataclass(frozen=True)
class Rows:
    """Makes rows of shares. It is made on the driver and sent to the executors.

    Attributes:
        options: what was asked for.
        schema: the columns of the rows, in this order.
    """

    options: Options
    schema: pa.Schema

    def read(self, share: Share, on_gone: OnGone = nobody) -> Iterator[pa.RecordBatch]:
        """The rows of a share; raises CaptureError if the capture is not there or the disk fails."""
        if not share.pieces:
            return
        folder = open_capture(self.options.path).folder
        problems: list[Problem] = []
        for group in _grouped(self._records(folder, share.pieces, problems)):
            found = self._decode(group)
            if len(found):
                yield found
        for problem in problems:
            logger.warning("%s in segment %s: %s", problem.code, problem.segment, problem.reason)
            if problem.code == NOT_FOUND:
                on_gone(problem.segment)
        if self.options.mode == "rejects" and problems:
            rows = self._rejects(_rejects_of(folder, problems))
            if len(rows):
                yield rows

    @cached_property
    def _where(self) -> list[Filter]:
        return list(conjuncts(self.options.where))

    @cached_property
    def _before(self) -> Filter:
        """What can be asked before a message is decoded. A reject is asked only about what it shows, as everywhere."""
        asked: list[Filter] = []
        if self.options.taps:
            asked.append(OneOf("tap", self.options.taps))
        if self._times.since_ns is not None:
            asked.append(Compare("seen_ns", ">=", self._times.since_ns))
        if self._times.until_ns is not None:
            asked.append(Compare("seen_ns", "<", self._times.until_ns))
        if self.options.mode == "messages":
            asked += [each for each in self._where if fields_of(each) <= _KNOWN_BEFORE]
        return And(tuple(asked))

    @cached_property
    def _after(self) -> Filter:
        """What is asked of the rows."""
        is_asked = _KNOWN_BEFORE if self.options.mode == "messages" else frozenset()
        return And(tuple(each for each in self._where if not is_asked or not fields_of(each) <= is_asked))

    @cached_property
    def _times(self) -> Times:
        return narrower(Times(self.options.since_ns, self.options.until_ns), times_of(And(tuple(self._where))))

    @cached_property
    def _made(self) -> list[str]:
        """The columns of MESSAGES to make."""
        return self.schema.names if self.options.mode == "messages" else ["seen_ns"]  # there must be one

    def _records(self, folder: Folder, pieces: Iterable[Piece], problems: list[Problem]) -> Iterator[_Records]:
        asked = {*self._made, *fields_of(self._before), *fields_of(self._after)}
        names = sorted(_ALWAYS | {_RECORD_COLUMNS[name] for name in asked if name in _RECORD_COLUMNS})
        for piece in pieces:
            reading = PieceReading(folder, piece, names, self._times)
            for first_row, batch in reading:
                yield from _slices(_Records(piece.segment, first_row, batch))
            problems += reading.problems

    def _decode(self, group: list[_Records]) -> pa.RecordBatch:
        """Decode records, as far as they are wanted."""
        part = _Part.of(group)
        if self._before != And(()):
            part = part.take(pa.array(np.flatnonzero(mask(self._before, _known_before(part.batch)))))
        if self.options.mode == "rejects":
            return self._rejects(self._sightings(part, self._made).rejects)
        if self._after != And(()):
            # What is asked about is decoded first, and the rest of those that pass: most filters let little pass.
            found = self._sightings(part, sorted(fields_of(self._after)) or self._made)
            part = part.take(found.records.filter(mask(self._after, found.messages)))
        return self._shown(self._sightings(part, self._made).messages)

    def _sightings(self, part: _Part, columns: list[str]) -> Sightings:
        segment, places, batch = part
        return sightings(batch, segment=segment, first_row=places, v3_ttl=self.options.v3_ttl, columns=columns)

    def _rejects(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return self._shown(rows.filter(mask(self._after, rows)))

    def _shown(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Of rows the columns that were asked for."""
        return pa.RecordBatch.from_arrays([rows.column(name) for name in self.schema.names], schema=self.schema)


def _slices(records: _Records) -> Iterator[_Records]:
    """Records in parts that are not too large."""
    segment, first_row, batch = records
    count = max(1, len(batch) * _BYTES_AT_ONCE // max(batch.nbytes, 1))
    for start in range(0, len(batch), count):
        yield _Records(segment, first_row + start, batch.slice(start, count))


def _grouped(parts: Iterable[_Records]) -> Iterator[list[_Records]]:
    """Records in groups that are worth the cost of decoding: a quiet node leaves many tiny segments."""
    group: list[_Records] = []
    rows = size = 0
    for part in parts:
        if group and (rows + len(part.batch) > ROWS_AT_ONCE or size + part.batch.nbytes > _BYTES_AT_ONCE):
            yield group
            group, rows, size = [], 0, 0
        group.append(part)
        rows += len(part.batch)
        size += part.batch.nbytes
    if group:
        yield group


def _known_before(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns of the records under the names that they have in MESSAGES."""
    names = [name for name in _KNOWN_BEFORE if _RECORD_COLUMNS[name] in batch.schema.names]
    return pa.RecordBatch.from_arrays([batch.column(_RECORD_COLUMNS[name]) for name in names], names)


def _rejects_of(folder: Folder, problems: Iterable[Problem]) -> pa.RecordBatch:
    """Rows that say what of a segment could not be read: seen when the segment was begun, at the byte where it broke.

    That a segment was gone is no row: it would say so of every one that nobody keeps any more.
    """
    rows = []
    for problem in problems:
        if problem.code != NOT_FOUND:
            segment = segment_named(problem.segment, folder)
            moment = _EPOCH + timedelta(microseconds=segment.started_ns // 1000)
            rows.append(
                {
                    "event_id": f"{problem.segment}@{problem.position}",
                    "seen_at": moment,
                    "node_key": segment.owner,
                    "tap": None,
                    "code": problem.code,
                    "reason": problem.reason,
                    "tried": [],
                    "excerpt": "",
                    "date": moment.date(),
                }
            )
    return pa.RecordBatch.from_pylist(rows, REJECTS)
