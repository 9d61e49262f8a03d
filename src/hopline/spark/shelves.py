"""Shelves: folders of Parquet with a folder for each day, as Spark writes them and everybody reads them.

    flows/date=2026-11-15/part-20261116T001801-9f86d0-00000.parquet

What Spark leaves beside the rows - names of its own, marks, checksums - is tidied away. How many rows there are, and from
when, is read from the ends of the files, and a few rows are added up here: nothing is counted by a job. This file knows no
table.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import date
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import DateType, StructField, StructType

from hopline.errors import TablesError
from hopline.spark.disk import Disk
from hopline.spark.parts import KEPT, PARQUET

_DAY: Final = "date="
PASSING: Final = "snappy"
"""Compression of what is read once and thrown away."""


def folder_of(shelf: str, day: str) -> str:
    """The folder of a day: that of the shelf itself if the day is empty."""
    return f"{shelf}/{_DAY}{day}" if day else shelf


def days_on(disk: Disk, shelf: str) -> list[str]:
    """The days that a shelf has folders of, as 2026-11-15, in order."""
    return [name.removeprefix(_DAY) for name in disk.folders(shelf) if name.startswith(_DAY)]


def read(spark: SparkSession, disk: Disk, shelf: str, schema: StructType, days: Iterable[str]) -> DataFrame:
    """The rows of some days, with the column `date`; those that are not there are left out.

    Args:
        spark: the session.
        disk: where the shelf is.
        shelf: its folder.
        schema: of the rows. Columns that a file does not have are null.
        days: which.
    """
    whole = schema if "date" in schema.names else StructType([*schema, StructField("date", DateType())])
    paths = [str(disk.path_of(folder)) for day in days if disk.exists(folder := folder_of(shelf, day))]
    if not paths:
        return nothing(spark, whole)
    return reader_of(spark, whole).option("basePath", str(disk.path_of(shelf))).parquet(*paths)


def reader_of(spark: SparkSession, schema: StructType) -> DataFrameReader:
    """What reads folders of Parquet by their very names, though there may be brackets or stars in them."""
    # Else Spark takes each path for a pattern. It has this option for its own commands, and does not document it; to escape
    # what means something in a pattern works too, but the list of that is Hadoop's.
    return spark.read.schema(schema).option("__globPaths__", "false")


def nothing(spark: SparkSession, schema: StructType) -> DataFrame:
    """No rows, in a way that Spark sees while it plans: what is joined to them or put to them costs nothing."""
    return spark.range(1).where(sf.lit(col=False)).to(schema)


def write_day(rows: DataFrame, disk: Disk, shelf: str, day: str, run: str) -> int:
    """Write the rows of one day, or of a table without days; how many they were. There is a file also if there are none."""
    folder = folder_of(shelf, day)
    kept = rows.where(rows["date"] == date.fromisoformat(day)).drop("date") if day else rows
    kept.write.option("compression", KEPT).parquet(str(disk.path_of(folder)))
    tidy(disk, folder, run)
    return rows_in(disk, folder)


def write_days(rows: DataFrame, disk: Disk, shelf: str, run: str, compression: str = KEPT) -> None:
    """Write rows by their column `date`, each day into its folder."""
    rows.write.option("compression", compression).partitionBy("date").parquet(str(disk.path_of(shelf)))
    tidy(disk, shelf, run)
    for day in days_on(disk, shelf):
        tidy(disk, folder_of(shelf, day), run)


def tidy(disk: Disk, folder: str, run: str) -> None:
    """Name the files of a folder after their run, and remove what is not Parquet."""
    number = 0
    for path in sorted(disk.path_of(folder).iterdir()):
        if path.is_dir():
            continue
        if path.name.startswith((".", "_")) or path.suffix != PARQUET:
            path.unlink()
        else:
            path.rename(path.with_name(f"part-{run}-{number:05}{PARQUET}"))
            number += 1


def rows_in(disk: Disk, folder: str) -> int:
    """How many rows the files in and below a folder have."""
    return sum(_footer(path).num_rows for path in _paths(disk, folder))


def total(disk: Disk, folder: str, column: str, **equal: str) -> int:
    """The sum of a column over the rows in and below a folder that have these values. They are read here: for few rows."""
    found = 0
    for path in _paths(disk, folder):
        with reading(path), pq.ParquetFile(path) as file:
            rows = file.read([column, *equal])
        for name, value in equal.items():
            rows = rows.filter(pc.equal(rows[name], value))
        found += pc.sum(rows[column], min_count=0).as_py()
    return found


def extremes(disk: Disk, name: str, column: str) -> tuple[Any, Any] | None:
    """The least and the greatest value of a column, in a file or in the files of a folder; None if there are no rows."""
    found = [pair for path in _paths(disk, name) for pair in _extremes(path, column)]
    return (min(least for least, _ in found), max(greatest for _, greatest in found)) if found else None


@contextmanager
def reading(path: str) -> Iterator[None]:
    """What goes wrong when a file is read is the error of that file: TABLES_CANNOT_READ."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise TablesError("TABLES_CANNOT_READ", f"cannot read {path}: {' '.join(str(error).split())}") from error


def _footer(path: str) -> pq.FileMetaData:
    with reading(path):
        return pq.read_metadata(path)


def _paths(disk: Disk, name: str) -> list[str]:
    return [str(disk.path_of(each)) for each in disk.files(name, PARQUET)]


def _extremes(path: str, column: str) -> Iterator[tuple[Any, Any]]:
    file = _footer(path)
    if column not in file.schema.names:
        raise TablesError("TABLES_CANNOT_READ", f"cannot read {path}: it has no column {column}, and is none of ours")
    place = file.schema.names.index(column)
    for number in range(file.num_row_groups):
        statistics = file.row_group(number).column(place).statistics
        if statistics is not None and statistics.has_min_max:
            yield statistics.min, statistics.max
