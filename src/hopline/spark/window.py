"""A window: the sightings that the tables of a day are made of, as parts that hold the table `messages`.

Theory of operation. What one sighting alone tells is written once, by who decodes it (`parts.py`). What it takes several
sightings to know - which of equal messages it is, and the order of its trail - concerns few of them: those that are not as
they were written. These are found by a few narrow columns (`repeated.py`, `messages.py`, `trails.py`); then only the parts
with such rows in them are bound anew, by Python workers, and all others are taken as they are. Nothing wide is ever moved.

    stage    news -> parts by day: each sighting as if it were the only one
    make     parts, new ones and those of the table -> the parts of a window

Small parts are bound together on the way, so that a stream does not leave thousands of them; what is large enough stays.
This file knows no rule of the table.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from hopline.capture.tables import MESSAGES as CAPTURED
from hopline.spark import shelves
from hopline.spark.disk import Disk
from hopline.spark.gone import Gone
from hopline.spark.messages import ALONE, renumbered
from hopline.spark.news import News
from hopline.spark.parts import FULL, PARQUET, Change, Source, Span, Written, bind, write_parts
from hopline.spark.repeated import AT_ONCE, keep, repeated, sift, stretch
from hopline.spark.shelves import PASSING
from hopline.spark.tables import MESSAGES
from hopline.spark.trails import OLD_FORMATS, reread

_CHANGED: Final = {
    "occurrence": ("occurrence",),
    "trail": ("trail_order", "wire_trail", "trail", "origin_key", "parent_trail"),
}
"""What is replaced at a time."""

_SPARK_TYPES: Final = b"org.apache.spark.sql.parquet.row.metadata"
"""Where Spark writes types and comments into a file of Parquet, and finds them again."""


class _Part(NamedTuple):
    """A part on a shelf, and what its end says of it."""

    day: str
    name: str
    rows: int
    seen: Span
    first_format: str


class _Target(NamedTuple):
    """A part that is to be, and of which ones it is made."""

    day: str
    parts: tuple[_Part, ...]
    is_one_whole: bool


def stage(
    news: News, spark: SparkSession, disk: Disk, shelf: str, run: str, *, bodies: bool, gone: Gone | None = None
) -> None:
    """Write what is new as parts by day; `gone` hears which segments are."""
    schema, written = _schema(bodies=bodies), f"{shelf}-written"
    path = str(disk.path_of(written))

    def write(batches: Iterator[pa.RecordBatch]) -> list[Written]:
        return write_parts(batches, path, schema, ALONE)

    columns = [name for name in CAPTURED.names if name != "body" or bodies]
    for number, (day, name) in enumerate(news.hand_messages(spark, columns, write, gone)):
        disk.move(f"{written}/{name}", _name_of(shelf, day, run, number))
    disk.clear(written)


class Window:
    """What a window is made of, and how.

    Args:
        spark: the session.
        disk: where all shelves are.
        parts_on: shelves with the parts that it is made of.
        days: its days.
        within: from when to when it is.
        bodies: whether the parts have a column `body`.
        small: rows below which a part is bound together with others.
    """

    def __init__(
        self,
        spark: SparkSession,
        disk: Disk,
        parts_on: Iterable[str],
        days: Iterable[str],
        within: Span,
        *,
        bodies: bool,
        small: int = FULL // 8,
    ) -> None:
        self._spark = spark
        self._disk = disk
        self._within = within
        self._schema = _schema(bodies=bodies)
        self._parts_on, self._days = list(parts_on), list(days)
        found = (part for shelf in self._parts_on for day in self._days for part in _parts_of(disk, shelf, day))
        self._parts = [part for part in found if part.seen.first <= within.last and part.seen.last >= within.first]
        self._targets = list(_targets(self._parts, within, small))

    def make(self, shelf: str, run: str) -> None:
        """Make the parts of the window on a new shelf, named after a run."""
        passing, written = f"{shelf}-repeated", f"{shelf}-written"
        work = self._work(passing) if self._targets else []
        bound = self._bind(reduce(DataFrame.unionByName, work), str(self._disk.path_of(written))) if work else {}
        for number, target in enumerate(self._targets):
            name = _name_of(shelf, target.day, run, number)
            if number in bound:
                self._disk.move(f"{written}/{bound[number]}", name)
            else:
                self._disk.link(target.parts[0].name, name)
        self._disk.clear(passing)
        self._disk.clear(written)

    def _work(self, passing: str) -> list[DataFrame]:
        """What is to be bound anew, and what is to be changed in it."""
        rows = self._rows("_metadata.file_name", "_metadata.row_index")
        found = self._repeated(f"{passing}-sifted")
        path = str(self._disk.path_of(passing))
        # To files, because it matters how many there are: few are sent to every task, and without any that is all.
        found.write.option("compression", PASSING).parquet(path)
        self._disk.clear(f"{passing}-sifted")
        work = []
        if shelves.rows_in(self._disk, passing):
            again = shelves.reader_of(self._spark, found.schema).parquet(path)
            work.append(self._change("occurrence", renumbered(rows, again)))
        if any(part.first_format in OLD_FORMATS for part in self._parts):
            work.append(self._change("trail", reread(rows)))
        must = [place for place, target in enumerate(self._targets) if not target.is_one_whole]
        if must:
            places = self._spark.range(len(must)).select(sf.get(sf.lit(must), "id").alias("target"))
            work.append(places.to(_TOLD))
        return work

    def _repeated(self, passing: str) -> DataFrame:
        """Fingerprints that occur more than once somewhere, as `renumbered` asks for them; work for Python workers."""
        paths = [str(self._disk.path_of(part.name)) for part in self._parts]
        folder, count = str(self._disk.path_of(passing)), -(-sum(part.rows for part in self._parts) // AT_ONCE)

        def sift_part(number: int) -> pa.RecordBatch:
            return pa.record_batch({"path": [keep(sift(paths[number]), folder)]})

        def compare_all(_: int) -> pa.RecordBatch:
            return pa.record_batch({"uid": repeated(map(sift, paths))})

        if count <= 1:
            return _in_workers(self._spark, 1, compare_all, "uid binary")
        kept = [row.path for row in _in_workers(self._spark, len(paths), sift_part, "path string").collect()]

        def compare_stretch(number: int) -> pa.RecordBatch:
            return pa.record_batch({"uid": repeated(stretch(path, number, count) for path in kept)})

        return _in_workers(self._spark, count, compare_stretch, "uid binary")

    def _rows(self, *where: str) -> DataFrame:
        """All rows of the window, and where they stand."""
        found = [
            shelves.read(self._spark, self._disk, shelf, MESSAGES.schema, self._days).select("*", *where)
            for shelf in self._parts_on
            if not set(self._days).isdisjoint(shelves.days_on(self._disk, shelf))
        ]
        rows = reduce(DataFrame.unionByName, found)
        are_all_whole = all(_is_whole(part, self._within) for part in self._parts)
        return rows if are_all_whole else rows.where(sf.col("seen_ns").between(*self._within))

    def _change(self, kind: str, rows: DataFrame) -> DataFrame:
        """Changes of one kind: in which target, in which part of it, in which row, and what is to stand there."""
        places = [
            (part.day, Path(part.name).name, target, source)
            for target, (_, parts, _) in enumerate(self._targets)
            for source, part in enumerate(parts)
        ]
        known = self._spark.createDataFrame(places, "day string, file_name string, target int, source int")
        rows = rows.withColumn("day", sf.col("date").cast("string")).join(sf.broadcast(known), ["day", "file_name"])
        told = {"kind": sf.lit(kind), "source": sf.col("source"), "row": sf.col("row_index")}
        return rows.select("target", *(column.alias(name) for name, column in told.items()), *_CHANGED[kind]).to(_TOLD)

    def _bind(self, work: DataFrame, folder: str) -> dict[int, str]:
        """Bind all targets of which the work tells, in Python workers: the names of the new parts, by target."""
        schema, within, disk = self._schema, self._within, self._disk
        sources = [
            [Source(str(disk.path_of(part.name)), _is_whole(part, within)) for part in target.parts]
            for target in self._targets
        ]

        def bind_target(told: pa.Table) -> pa.Table:
            target = told["target"][0].as_py()
            changes = [Change(names, told.filter(pc.equal(told["kind"], kind))) for kind, names in _CHANGED.items()]
            return pa.table({"target": [target], "name": [bind(sources[target], within, changes, folder, schema)]})

        # A number of tasks, so that Spark does not think that so few rows are little work.
        shared = work.repartition(len(sources), "target").groupBy("target")
        return {row.target: row.name for row in shared.applyInArrow(bind_target, "target bigint, name string").collect()}


def _in_workers(spark: SparkSession, count: int, do: Callable[[int], pa.RecordBatch], schema: str) -> DataFrame:
    """What Python workers make of the numbers from 0 on, each a task of its own."""

    def do_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from map(do, batch["id"].to_pylist())

    return spark.range(0, count, 1, count).mapInArrow(do_all, schema)


_TOLD: Final = StructType(
    [
        StructField("target", LongType()),
        StructField("kind", StringType()),
        StructField("source", IntegerType()),
        StructField("row", LongType()),
        *(MESSAGES.schema[name] for names in _CHANGED.values() for name in names),
    ]
)
"""What those who bind are told; what is not to be changed is null."""


def _schema(*, bodies: bool) -> pa.Schema:
    """The columns of a part: those of `messages` but for the day, which is in the name of its folder."""
    left_out = {"date"} if bodies else {"date", "body"}
    columns = StructType([column for column in MESSAGES.schema if column.name not in left_out])
    return to_arrow_schema(columns, timezone="UTC").with_metadata({_SPARK_TYPES: columns.json()})


def _name_of(shelf: str, day: str, run: str, number: int) -> str:
    return f"{shelves.folder_of(shelf, day)}/part-{run}-{number:05}{PARQUET}"


def _parts_of(disk: Disk, shelf: str, day: str) -> Iterator[_Part]:
    """The parts of a day that have rows."""
    for name in disk.files(shelves.folder_of(shelf, day), PARQUET):
        seen, formats = (shelves.extremes(disk, name, column) for column in ("seen_ns", "format"))
        if seen is not None and formats is not None:
            yield _Part(day, name, shelves.rows_in(disk, name), Span(*seen), formats[0])


def _is_whole(part: _Part, within: Span) -> bool:
    return within.first <= part.seen.first and part.seen.last <= within.last


def _targets(parts: Iterable[_Part], within: Span, large: int) -> Iterator[_Target]:
    """Share out parts: a large one is one again, small ones of a day are put together until they are large."""
    small: dict[str, list[_Part]] = {}  # by day
    for part in parts:
        if part.rows >= large and _is_whole(part, within):
            yield _Target(part.day, (part,), is_one_whole=True)
            continue
        group = small.setdefault(part.day, [])
        group.append(part)
        if sum(each.rows for each in group) >= large:
            yield _target(small.pop(part.day), within)
    for group in small.values():
        yield _target(group, within)


def _target(group: list[_Part], within: Span) -> _Target:
    return _Target(group[0].day, tuple(group), is_one_whole=len(group) == 1 and _is_whole(group[0], within))
