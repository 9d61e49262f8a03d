"""Folders of tables, as somebody else reads them: with pyarrow, and without Spark."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from hopline.spark.batch import NAMES


def rows_of(tables, name):
    """The rows of a table, in an order that does not depend on how they were written."""
    found = ds.dataset(Path(tables, name), format="parquet", partitioning="hive").to_table()
    return sorted(found.to_pylist(), key=lambda row: json.dumps(row, default=str))


def all_rows(tables):
    """All tables but `runs`, which tells of runs and not of captures."""
    return {name: rows_of(tables, name) for name in NAMES}


def files_of(tables):
    """All files, each with the time of its last change."""
    return {str(path): path.stat().st_mtime_ns for path in Path(tables).rglob("*") if path.is_file()}


def columns_of(tables, name) -> pa.Schema:
    return ds.dataset(Path(tables, name), format="parquet", partitioning="hive").schema


def copy_segments(source, target, names):
    """Some segments of a capture into another one."""
    target.mkdir(exist_ok=True)
    for name in names:
        shutil.copy2(Path(source, name), target / name)


class CrashError(Exception):
    """The process ends here."""


def crash_at(beginning):
    """What ends a commit before the step whose name begins so."""

    def on_step(step):
        if step.startswith(beginning):
            raise CrashError(step)

    return on_step
