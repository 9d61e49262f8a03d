"""Parts: the Parquet files of `messages`, written by the Python workers that decode.

Theory. The columns of `messages` are made in Python workers, as Arrow. On the way through the JVM each of them would be
copied, turned into rows, and back into columns: that was most of the cost of the table. So the workers write the files
themselves, and Spark sees of them what it asks for, which is a few columns. Two things are done:

    write_parts    what one task has decoded becomes a part for each day
    bind           several parts become one; rows outside some time are left out, and some values are replaced

Each part has a name that nobody else uses, which is told when it is whole. Whoever asked for it goes by what was told, and
not by what lies in the folder: Spark may repeat a task whose worker it has lost, while that worker lives and writes on. Rows
are held some ten thousand at a time. This file runs on the executors; it knows no Spark and no rule of the table.
"""

import contextlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

FULL: Final = 512 * 1024
"""Rows of a part: enough for the few columns that a query asks for to be worth a file, and no more than a task binds."""

PARQUET: Final = ".parquet"
KEPT: Final = "zstd"
"""Compression of what is kept: half the size of Spark's own choice for columns like ours, and read by everybody."""

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

_IN_ORDER: Final = ("seen_at", "seen_ns", "node_key", "seq", "format")
"""Columns whose least and greatest value say something of a row group. Those of the others are the same everywhere, or as
random as they are, and to find them took a sixth of the time that writing takes. `window.py` looks at some of these."""


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


class Written(NamedTuple):
    """A part that is whole: the day of its rows, if that is known, and its name in the folder it was written to."""

    day: str
    name: str


class PartWriter:
    """Writes one part; use it in a `with`. Its folder is made if need be, its `name` is new."""

    def __init__(self, folder: str, schema: pa.Schema) -> None:
        self.rows = 0
        self.name = f"{uuid4().hex}{PARQUET}"
        self._path = Path(folder, self.name)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(
            self._path,
            schema,
            compression=KEPT,
            use_dictionary=list(_repeating(schema)),
            write_statistics=list(_IN_ORDER),
            store_schema=False,
        )
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._held_bytes = 0

    def __enter__(self) -> "PartWriter":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Finish; if something went wrong, leave nothing."""
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
        """Write what is held, and finish."""
        self._write_group()
        self._writer.close()

    def give_up(self) -> None:
        """Stop, and leave nothing."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self._writer.close()
        self._path.unlink(missing_ok=True)

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
    batches: Iterable[pa.RecordBatch], folder: str, schema: pa.Schema, given: Mapping[str, Any]
) -> list[Written]:
    """Write rows into a folder, in parts by their column `date`.

    Args:
        batches: the rows.
        folder: for the parts of all days.
        schema: the columns of the parts, without `date`.
        given: values of columns that the rows do not have, the same for all.
    """
    with _Days(folder, schema) as days:
        for batch in batches:
            found = pc.unique(batch["date"])
            for day in found:
                ours = batch if len(found) == 1 else batch.filter(pc.equal(batch["date"], day))
                days.write(day.as_py().isoformat(), shaped(ours, schema, given))
    return days.written


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

    def __init__(self, folder: str, schema: pa.Schema) -> None:
        self.written: list[Written] = []
        self._folder = folder
        self._schema = schema
        self._open: OrderedDict[str, PartWriter] = OrderedDict()

    def __enter__(self) -> "_Days":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for day in list(self._open):
            if kind is None:
                self._close(day)
            else:
                self._open.pop(day).give_up()

    def write(self, day: str, rows: pa.RecordBatch) -> None:
        if day in self._open and self._open[day].rows >= FULL:
            self._close(day)
        if day in self._open:
            self._open.move_to_end(day)
        else:
            if len(self._open) >= _MOST_OPEN:
                self._close(next(iter(self._open)))
            self._open[day] = PartWriter(self._folder, self._schema)
        self._open[day].write(rows)

    def _close(self, day: str) -> None:
        writer = self._open.pop(day)
        writer.close()
        self.written.append(Written(day, writer.name))


def bind(sources: Iterable[Source], within: Span, changes: Iterable[Change], folder: str, schema: pa.Schema) -> str:
    """Make one part of several, with changes; its name.

    Args:
        sources: the parts.
        within: only rows whose `seen_ns` lies within are taken.
        changes: what is to be replaced.
        folder: for the new part.
        schema: its columns.
    """
    all_changes = list(changes)
    with PartWriter(folder, schema) as writer:
        for number, source in enumerate(sources):
            ours = [change.of(number) for change in all_changes]
            for first_row, rows in _groups(source.path, schema):
                changed = _changed(rows, first_row, ours)
                writer.write(changed if source.is_whole else changed.filter(_is_within(changed["seen_ns"], within)))
    return writer.name


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
