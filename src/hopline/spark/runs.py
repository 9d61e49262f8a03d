"""The table `runs`: a row for each run and table, which says what was done and, if the table is empty, why.

An empty page without a reason is what people give up at: so there are rows also if nothing was found. Runs of one day are in
one file. This file decides nothing; it tells.
"""

import platform
from collections.abc import Iterable
from datetime import datetime
from importlib.metadata import version
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pyspark.sql.pandas.types import to_arrow_schema

from hopline.spark.disk import Disk
from hopline.spark.parts import PARQUET
from hopline.spark.shelves import reading
from hopline.spark.tables import BIGINT, DOUBLE, STRING, TIMESTAMP, Column, Table

RUNS: Final = Table(
    "runs",
    "one table in one run of the pipeline",
    (
        Column("run_id", STRING, "The run: when it began, and a random end. Files that it wrote are named after it."),
        Column("mode", STRING, "run, or stream: then one of many."),
        Column("started_at", TIMESTAMP, "When it began."),
        Column("seconds", DOUBLE, "How long it took, up to its commit."),
        Column("rows_in", BIGINT, "Records that it read from captures: messages, and what is none."),
        Column("table", STRING, "The table."),
        Column("rows_out", BIGINT, "Rows that it wrote, of days that it made anew too."),
        Column("rows_rejected", BIGINT, "Of the records read, those that are no messages."),
        Column("empty_reason", STRING, "Why the table has no rows at all; null if it has some."),
        Column("versions", STRING, "Of what made it."),
    ),
)

VERSIONS: Final = f"hopline {version('hopline')}, pyspark {pyspark.__version__}, python {platform.python_version()}"

_WITH_MESSAGES: Final = {
    "rejects": "every record is a message",
    "hops": "no message was seen to move: all were seen at one place only, or by taps that no move begins or ends at",
    "callbacks": "no message carries callback points: nobody asked for an answer",
    "flows": "no message has a correlation id that starts a flow",
    "edges": "no message was seen to move, and none was answered",
    "expiries": "no message has a TTL",
    "signatures": "no message was seen as bytes: inside a node nothing is signed",
    "routes": "no node announced its routes where the capture could see it, or none with a valid signature",
}
"""Why a table is empty though there are messages."""


class Found(NamedTuple):
    """What there is: segments of the capture, rows of `rejects`; and whether only some time was asked for."""

    segments: int
    rejected: int
    is_bounded: bool = False


def empty_reason(table: str, messages: int, found: Found, *, is_left_out: bool = False) -> str:
    """Why a table has no rows.

    Args:
        table: its name.
        messages: how many rows `messages` has.
        found: what there is.
        is_left_out: whether it was not to be made.

    >>> empty_reason("flows", 0, Found(segments=0, rejected=0))
    'the capture has no segments: was anything recorded or imported?'
    """
    if is_left_out:
        return "it was left out by --only"
    if not messages and not (found.rejected and table == "rejects"):
        return _nothing(found)
    return _WITH_MESSAGES.get(table, "there was nothing to write")


def _nothing(found: Found) -> str:
    if not found.segments:
        return "the capture has no segments: was anything recorded or imported?"
    if found.rejected:
        return f"none of the {found.rejected} records is a message; the table rejects says why"
    if found.is_bounded:
        return "nothing was seen in the time that was asked for"
    return "the segments of the capture have no records yet"


class Row(NamedTuple):
    """A row of the table."""

    run_id: str
    mode: str
    started_at: datetime
    seconds: float
    rows_in: int
    table: str
    rows_out: int
    rows_rejected: int
    empty_reason: str | None
    versions: str = VERSIONS


def write_runs(rows: Iterable[Row], disk: Disk, folder: str, now: datetime) -> tuple[str, str]:
    """Write the file of a day anew, with more rows: the name it is to have, and where it is until then."""
    name = f"part-{now:%Y%m%d}{PARQUET}"
    target, new = f"{RUNS.name}/{name}", f"{folder}/{name}"
    schema = to_arrow_schema(RUNS.schema, timezone="UTC")
    table = pa.Table.from_pylist([row._asdict() for row in rows], schema)
    if disk.exists(target):
        path = str(disk.path_of(target))
        with reading(path):
            table = pa.concat_tables([pq.read_table(path, schema=schema), table])
    disk.path_of(folder).mkdir(parents=True, exist_ok=True)
    pq.write_table(table, disk.path_of(new), compression="zstd")
    return target, new
