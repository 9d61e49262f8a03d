"""Parts: the Parquet files of `messages`, written by the Python workers that decode.

Theory. The columns of `messages` are made in Python workers, as Arrow. On the way through the JVM each of them would be
copied, turned into rows, and back into columns: that was most of the cost of the table. So the workers write the files
themselves, and Spark sees of them what it asks for, which is a few columns. Two things are done:

    write_parts    what one task has decoded becomes a part for each day
    bind           several parts become one; rows outside some time are left out, and some values are replaced

A part has its name only when it is whole, so a task that was killed leaves nothing that is read, and one that is repeated
writes the same again. Rows are held some ten thousand at a time. This file runs on the executors; it knows no Spark and no
rule of the table.
"""

import contextlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

FULL: Final = 512 * 1024
"""Rows of a part: enough for the few columns that a query asks for to be worth a file, and no more than a task binds."""

PARQUET: Final = ".parquet"
KEPT: Final = "zstd"
"""Compression of what is kept: half the size of Spark's own choice for columns like ours, and read by everybody."""

_UNFINISHED: Final = ".part"
_GROUP_ROWS: Final = 64 * 1024
_GROUP_BYTES: Final = 64 * 1024 * 1024
"""What is held until it is written: a row group is at most so large."""

_MOST_OPEN: Final = 16
"""Parts that one task writes at a time: a capture may have rows of any number of days."""

_ALL_DIFFERENT: Final = frozenset(
    [
        "event_id", "seen_at", "seen_ns", "seq", "message_uid", "correlation_id", "correlation_key", "callback_key",
        "signature", "body",
    ]
)  # fmt: skip
"""Columns in which few values occur twice: a dictionary of them would be thrown away after it was made."""


class Span(NamedTuple):
    """The least and the greatest of some numbers."""

    first: int
    last: int


class Source(NamedTuple):
    """A part that is bound: where it is, and whether all of its rows are taken."""

    path: str
    is_whole: bool


class Change(NamedTuple):
    """What is to be replaced: rows with `source` (which of the parts), `row` (its place in there) and the columns."""

    columns: tuple[str, ...]
    rows: pa.Table

    def of(self, source: int) -> "Change":
        """What concerns one part."""
        return self._replace(rows=self.rows.filter(pc.equal(self.rows["source"], source)))


class PartWriter:
    """Writes one part; use it in a `with`. The folder is made if need be."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.rows = 0
        self._path = path
        self._unfinished = path.with_name(path.name + _UNFINISHED)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(
            self._unfinished, schema, compression=KEPT, use_dictionary=list(_repeating(schema)), store_schema=False
        )
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._held_bytes = 0

    def __enter__(self) -> "PartWriter":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Give the part its name; if something went wrong, remove what there is of it."""
        if kind is None:
            self.close()
        else:
            self.give_up()

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows; they have the columns of the schema, in its order."""
        self._held.append(batch)
        self._held_rows += len(batch)
        self._held_bytes += batch.nbytes
        if self._held_rows >= _GROUP_ROWS or self._held_bytes >= _GROUP_BYTES:
            self._write_group()

    def close(self) -> None:
        """Write what is held, and give the part its name."""
        self._write_group()
        self._writer.close()
        self._unfinished.replace(self._path)

    def give_up(self) -> None:
        """Stop, and leave nothing."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self._writer.close()
        self._unfinished.unlink(missing_ok=True)

    def _write_group(self) -> None:
        if self._held_rows:
            self._writer.write_table(pa.Table.from_batches(self._held), row_group_size=self._held_rows)
        self.rows += self._held_rows
        self._held, self._held_rows, self._held_bytes = [], 0, 0


def _repeating(schema: pa.Schema) -> Iterator[str]:
    """The paths of those columns, as Parquet names them, that a dictionary makes small."""
    for field in schema:
        if field.name not in _ALL_DIFFERENT:
            yield from _leaves(field, field.name)


def _leaves(field: pa.Field, path: str) -> Iterator[str]:
    if pa.types.is_list(field.type):
        yield from _leaves(field.type.value_field, f"{path}.list.element")
    elif pa.types.is_struct(field.type):
        for inner in field.type:
            yield from _leaves(inner, f"{path}.{inner.name}")
    else:
        yield path


def write_parts(
    batches: Iterable[pa.RecordBatch], shelf: str, name: str, schema: pa.Schema, given: Mapping[str, Any]
) -> int:
    """Write rows by their column `date` into the folders of a shelf; how many they were.

    Args:
        batches: the rows.
        shelf: the folder in which each day has its own.
        name: what the names of the parts begin with; no other task may use it.
        schema: the columns of the parts, without `date`.
        given: values of columns that the rows do not have, the same for all.
    """
    rows = 0
    with _Days(Path(shelf), name, schema) as days:
        for batch in batches:
            rows += len(batch)
            found = pc.unique(batch["date"])
            for day in found:
                ours = batch if len(found) == 1 else batch.filter(pc.equal(batch["date"], day))
                days.write(day.as_py().isoformat(), shaped(ours, schema, given))
    return rows


def shaped(rows: pa.RecordBatch, schema: pa.Schema, given: Mapping[str, Any]) -> pa.RecordBatch:
    """Rows with the columns of a schema, in its order: what they do not have is given, or null."""
    known = set(rows.schema.names)
    columns = [
        rows[field.name].cast(field.type)
        if field.name in known
        else pa.repeat(pa.scalar(given.get(field.name), field.type), len(rows))
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class _Days:
    """The parts that one task writes, by day; use it in a `with`."""

    def __init__(self, shelf: Path, name: str, schema: pa.Schema) -> None:
        self._shelf = shelf
        self._name = name
        self._schema = schema
        self._open: OrderedDict[str, PartWriter] = OrderedDict()
        self._begun = 0

    def __enter__(self) -> "_Days":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        while self._open:
            writer = self._open.popitem()[1]
            writer.close() if kind is None else writer.give_up()

    def write(self, day: str, rows: pa.RecordBatch) -> None:
        writer = self._open.pop(day, None)
        if writer is not None and writer.rows >= FULL:
            writer.close()
            writer = None
        if writer is None:
            if len(self._open) >= _MOST_OPEN:
                self._open.popitem(last=False)[1].close()
            writer = PartWriter(self._shelf / f"date={day}" / f"{self._name}-{self._begun:03}{PARQUET}", self._schema)
            self._begun += 1
        self._open[day] = writer
        writer.write(rows)


def bind(sources: Iterable[Source], within: Span, changes: Iterable[Change], path: str, schema: pa.Schema) -> int:
    """Make one part of several, with changes; how many rows it has.

    Args:
        sources: the parts.
        within: only rows whose `seen_ns` lies within are taken.
        changes: what is to be replaced.
        path: the new part.
        schema: its columns.
    """
    all_changes = list(changes)
    with PartWriter(Path(path), schema) as writer:
        for number, source in enumerate(sources):
            ours = [change.of(number) for change in all_changes]
            for first_row, rows in _groups(source.path, schema):
                changed = _changed(rows, first_row, ours)
                writer.write(changed if source.is_whole else changed.filter(_is_within(changed["seen_ns"], within)))
    return writer.rows


def _groups(path: str, schema: pa.Schema) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of a part, some at a time, and the place of the first."""
    with pq.ParquetFile(path) as file:
        names = [name for name in schema.names if name in file.schema_arrow.names]
        first_row = 0
        for batch in file.iter_batches(_GROUP_ROWS, columns=names, use_threads=False):
            yield first_row, shaped(batch, schema, {})
            first_row += len(batch)


def _is_within(numbers: pa.Array, within: Span) -> pa.Array:
    return pc.and_(pc.greater_equal(numbers, within.first), pc.less_equal(numbers, within.last))


def _changed(rows: pa.RecordBatch, first_row: int, changes: Iterable[Change]) -> pa.RecordBatch:
    """Rows with the changes that concern them."""
    columns = list(rows.columns)
    for change in changes:
        said = change.rows.filter(_is_within(change.rows["row"], Span(first_row, first_row + len(rows) - 1)))
        for name in change.columns if len(said) else ():
            place = rows.schema.get_field_index(name)
            values = said[name].cast(columns[place].type).combine_chunks()
            # Of any type, lists too: behind the old values are the new ones, and each row takes its own.
            which = np.arange(len(rows))
            which[said["row"].to_numpy() - first_row] = len(rows) + np.arange(len(values))
            columns[place] = pa.concat_arrays([columns[place], values]).take(pa.array(which))
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)
