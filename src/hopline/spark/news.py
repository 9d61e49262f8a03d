"""News of a capture: what was written since it was last taken, and how it is read.

What is new is decided once, on the driver, by sizes of files and ends of segments (`pieces.py`); nothing is read for that,
and no Spark is needed. Then it is read several times - messages, what is no message, bodies of a few, signatures - and each
reading gets the same bytes, because the shares of work are made of the one decision and not of another look at the folder.

Reading is one task for each share, in Python workers that open the segments themselves; only what is asked for goes to the
JVM. Keys travel inside the pickled function, and are in no plan. A segment that is gone when a worker wants to read it is
told of (`gone.py`), and then not taken. This file knows no tables.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from hopline.capture import open_capture
from hopline.capture.filter import Filter
from hopline.capture.query import EVERYTHING
from hopline.security import Domain
from hopline.spark.gone import Gone
from hopline.spark.offsets import New, Taken
from hopline.spark.options import Mode, Options
from hopline.spark.parts import Written
from hopline.spark.pieces import NOT_FOUND, PieceReading, Share, Times, shares
from hopline.spark.rows import OnGone, Rows, nobody
from hopline.spark.signatures import RECORD_COLUMNS, VERDICTS, judge_batches, keys_unlogged
from hopline.spark.state import Layer, cut, join
from hopline.wire import TtlUnit

_RECORDS: Final = tuple(name for name in RECORD_COLUMNS if name != "event_id")


class Work(NamedTuple):
    """What one task reads: a share, and of it what was seen in that time."""

    times: Times
    share: Share


_Read = Callable[[Work], Iterator[pa.RecordBatch]]
_Take = Callable[[Iterator[pa.RecordBatch]], Iterable[Written]]
_WRITTEN: Final = pa.schema([(name, pa.string()) for name in Written._fields])


@dataclass(frozen=True)
class News:
    """What is new in a capture.

    Attributes:
        path: the capture.
        v3_ttl: the unit of TTL in v3.
        work: what is to be read.
        found: what is new, for each layer of the asked-for time.
        others: what was taken of all other times.
        sizes: how many bytes there are new of segments, by name.
        known: how many segments the capture has, new or not.
        unfinished: segments that stop before their end, though nobody writes to them any more, and why.
    """

    path: str
    v3_ttl: TtlUnit
    work: tuple[Work, ...]
    found: tuple[tuple[Layer, tuple[New, ...]], ...]
    others: tuple[Layer, ...]
    sizes: Mapping[str, int]
    known: int
    unfinished: Mapping[str, str]

    @property
    def segments(self) -> int:
        """How many segments there are something new of."""
        return len(self.sizes)

    @property
    def size(self) -> int:
        """How many bytes."""
        return sum(self.sizes.values())

    @property
    def layers(self) -> tuple[Layer, ...]:
        """What is taken when all of it is."""
        return self.layers_without(())

    def layers_without(self, gone: Collection[str]) -> tuple[Layer, ...]:
        """What is taken when all of it is, but for segments that were gone."""
        after = []
        for layer, news in self.found:
            taken = Taken.read(layer.offset)
            for new in news:
                if new.stretch.segment.name not in gone:
                    taken.take(new.stretch.segment, new.found)
            after.append(msgspec.structs.replace(layer, offset=taken.to_offset()))
        return tuple(join([*self.others, *after]))

    def messages(
        self, spark: SparkSession, columns: Iterable[str], where: Filter = EVERYTHING, gone: Gone | None = None
    ) -> DataFrame:
        """The messages among the news. As with all that is read here, `gone` hears which segments are."""
        return self._rows(spark, "messages", tuple(columns), where, gone)

    def hand_messages(
        self, spark: SparkSession, columns: Iterable[str], take: _Take, gone: Gone | None = None
    ) -> list[Written]:
        """Let the Python workers hand the messages among the news to somebody there, and nothing of them to Spark.

        Args:
            spark: the session.
            columns: of the messages.
            take: gets the messages of a share, and tells which parts it has written. If a worker is lost it is called again
                with the same, perhaps while the lost one still works; what was told by those that count is given back.
            gone: hears which segments are.
        """
        read, work = self._reader("messages", tuple(columns), EVERYTHING, gone), self.work

        def hand_news(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for place in batch["id"].to_pylist():
                    written = take(read(work[place]))
                    yield pa.RecordBatch.from_pylist([part._asdict() for part in written], _WRITTEN)

        told = self._tasks(spark).mapInArrow(hand_news, from_arrow_schema(_WRITTEN)).collect()
        return [Written(row.day, row.name) for row in told]

    def rejects(self, spark: SparkSession, columns: Iterable[str], gone: Gone | None = None) -> DataFrame:
        """What is no message, and what cannot be read. What concerns a segment may come again with later news."""
        return self._rows(spark, "rejects", tuple(columns), EVERYTHING, gone)

    def verdicts(self, spark: SparkSession, domains: Iterable[Domain] | None, gone: Gone | None = None) -> DataFrame:
        """What the signatures of the news are worth, as `signatures.judge` says it."""
        path, known = self.path, None if domains is None else tuple(domains)

        def read_verdicts(work: Work) -> Iterator[pa.RecordBatch]:
            return judge_batches(_records(path, work, nobody if gone is None else gone.add), known)

        with keys_unlogged():
            return self._read(spark, read_verdicts, VERDICTS)

    def _rows(
        self, spark: SparkSession, mode: Mode, columns: tuple[str, ...], where: Filter, gone: Gone | None
    ) -> DataFrame:
        return self._read(spark, self._reader(mode, columns, where, gone), Options(self.path, mode, columns).schema)

    def _reader(self, mode: Mode, columns: tuple[str, ...], where: Filter, gone: Gone | None) -> _Read:
        options = Options(self.path, mode, columns, where, v3_ttl=self.v3_ttl)

        def read_rows(work: Work) -> Iterator[pa.RecordBatch]:
            within = replace(options, since_ns=work.times.since_ns, until_ns=work.times.until_ns)
            return Rows(within, within.schema).read(work.share, nobody if gone is None else gone.add)

        return read_rows

    def _read(self, spark: SparkSession, read: _Read, schema: pa.Schema) -> DataFrame:
        work = self.work

        def read_news(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for place in batch["id"].to_pylist():
                    yield from read(work[place])

        return self._tasks(spark).mapInArrow(read_news, from_arrow_schema(schema))

    def _tasks(self, spark: SparkSession) -> DataFrame:
        return spark.range(0, len(self.work), 1, max(len(self.work), 1))


def find_news(
    path: str,
    layers: Iterable[Layer] = (),
    *,
    since_ns: int | None = None,
    until_ns: int | None = None,
    v3_ttl: TtlUnit = "ms",
    share_bytes: int | None = None,
) -> News:
    """Find what of a capture was not taken yet; raises CaptureError.

    Args:
        path: the folder of the capture, or a URI.
        layers: what was taken.
        since_ns: only what was seen then or later is to be taken; the rest stays new.
        until_ns: the same, of what was seen before then.
        v3_ttl: the unit of TTL in v3.
        share_bytes: about so much one task reads; by default as `shares` has it.
    """
    path = path if "://" in path else str(Path(path).absolute())  # workers may run in another folder
    segments = open_capture(path).segments()
    inside, outside = cut(layers, since_ns, until_ns)
    work: list[Work] = []
    found: list[tuple[Layer, tuple[New, ...]]] = []
    sizes: dict[str, int] = {}
    unfinished: dict[str, str] = {}
    for layer in inside:
        taken = Taken.read(layer.offset)
        looked = [new for segment in segments if (new := taken.find_new(segment)) is not None]
        unfinished |= {new.stretch.segment.name: reason for new in looked if (reason := new.unfinished)}
        news = [new for new in looked if new.is_takeable]
        found.append((layer, tuple(news)))
        stretches = [new.stretch for new in news if new.stretch.end > new.stretch.base]
        if stretches:
            times = Times(layer.since_ns, layer.until_ns)
            work += [Work(times, share) for share in shares(stretches, share_bytes)]
        sizes |= {segment.name: max(sizes.get(segment.name, 0), end - base) for segment, base, end in stretches}
    return News(path, v3_ttl, tuple(work), tuple(found), tuple(outside), sizes, len(segments), unfinished)


# --- in the workers ---------------------------------------------------------------------------------------------------


def _records(path: str, work: Work, on_gone: OnGone) -> Iterator[pa.RecordBatch]:
    """The records of a share as they were captured, with their event ids. What is wrong with segments is said elsewhere."""
    folder = open_capture(path).folder
    for piece in work.share.pieces:
        reading = PieceReading(folder, piece, _RECORDS, work.times)
        for first_row, batch in reading:
            rows = pa.array(np.arange(first_row, first_row + len(batch))).cast(pa.string())
            named = batch.append_column("event_id", pc.binary_join_element_wise(piece.segment, rows, ":"))
            is_in = _within(batch["seen_ns"], work.times)
            yield named if is_in.true_count == len(named) else named.filter(is_in)
        if any(problem.code == NOT_FOUND for problem in reading.problems):
            on_gone(piece.segment)


def _within(seen_ns: pa.Array, times: Times) -> pa.Array:
    is_in = pa.repeat(pa.scalar(value=True), len(seen_ns))
    if times.since_ns is not None:
        is_in = pc.and_(is_in, pc.greater_equal(seen_ns, times.since_ns))
    if times.until_ns is not None:
        is_in = pc.and_(is_in, pc.less(seen_ns, times.until_ns))
    return is_in
