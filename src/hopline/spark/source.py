"""The format `hopline` of Spark: what reads captures, and the door to what sends rows into a network (`sink.py`).

    spark.read.format("hopline").load("captures/")                          a row per sighting, all columns but the body
    spark.read.format("hopline").option("columns", "seen_at,hops")...       fewer columns: Spark cannot ask for them itself
    spark.read.format("hopline").option("mode", "rejects")...               what is no message, and what cannot be read
    spark.readStream.format("hopline")...                                   the same rows, as they come

All options are in `options.py`. Where this package is installed nothing has to be imported: Spark finds the format by
itself, through the module `pyspark_hopline`.

What runs where: all but `read` in a Python process beside the driver, once a query; `read` in the Python workers of the
executors, once a task. Both get copies of these objects, so nothing here holds a file.

Filters of a DataFrame are not pushed down, though Spark could hand them over: PySpark 4.3 keeps what a reader has taken with
the relation and not with its scan, so that two filters over one DataFrame, as in a union with itself, gave the rows of the
last one twice. The option `where` belongs to one `load` and is safe.
"""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import datasource as spark
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from hopline.capture import open_capture
from hopline.errors import InputError
from hopline.spark.offsets import CaptureStreamReader, Taken
from hopline.spark.options import Options, read_options, read_sink_options
from hopline.spark.pieces import Share, Stretch, shares
from hopline.spark.rows import Rows

if TYPE_CHECKING:
    from hopline.spark.sink import NetworkStreamWriter, NetworkWriter

logger = logging.getLogger(__name__)


class HoplineDataSource(spark.DataSource):
    """The format `hopline`."""

    @classmethod
    def name(cls) -> str:
        """Its name in `format(...)`."""
        return "hopline"

    def schema(self) -> StructType:
        """The columns that the options ask for; raises InputError. On the driver, when a DataFrame is made."""
        options = read_options(self.options)
        return from_arrow_schema(options.schema)

    def reader(self, schema: StructType) -> "CaptureReader":
        """A reader of what is there now. On the driver, when a query is planned."""
        options = _absolute(read_options(self.options))
        return CaptureReader(options, _known(options, schema))

    def streamReader(self, schema: StructType) -> CaptureStreamReader:  # noqa: N802 - Spark's name
        """A reader of what is there and what comes. On the driver, when a stream starts."""
        options = _absolute(read_options(self.options))
        return CaptureStreamReader(Rows(options, _known(options, schema)))

    def writer(self, schema: StructType, overwrite: bool) -> "NetworkWriter":  # noqa: FBT001 - Spark's way
        """What sends rows; raises InputError. On the driver, when a query is planned."""
        from hopline.spark.sink import NetworkWriter  # noqa: PLC0415 - who only reads needs no nodes

        return NetworkWriter(read_sink_options(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "NetworkStreamWriter":  # noqa: FBT001, N802
        """What sends the rows of a stream; raises InputError. On the driver, for each batch."""
        from hopline.spark.sink import NetworkStreamWriter  # noqa: PLC0415

        return NetworkStreamWriter(read_sink_options(self.options), schema, overwrite=overwrite)


class CaptureReader(spark.DataSourceReader):
    """Reads all that a capture holds when the query is planned: nothing that is written later, and all of it in a retry."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self._options = options
        self._rows = Rows(options, schema)

    def partitions(self) -> list[Share]:
        """Share out the capture; raises CaptureError if there is none. On the driver."""
        return shares(self._stretches(), self._options.share_bytes)

    def _stretches(self) -> Iterator[Stretch]:
        for segment in open_capture(self._options.path).segments():
            new = Taken().find_new(segment)
            if new is None:
                continue
            if reason := new.unfinished:
                logger.warning("segment %s stops before its end: %s; the rest is missing here", segment.name, reason)
            yield new.stretch

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a share. On an executor."""
        assert isinstance(partition, Share)  # noqa: S101 - for mypy: they are ours
        return self._rows.read(partition)


def _absolute(options: Options) -> Options:
    """The same, with a path that means the same in the folder of another process."""
    return options if "://" in options.path else replace(options, path=str(Path(options.path).absolute()))


def _known(options: Options, schema: StructType) -> pa.Schema:
    """The columns to make. A schema that the user gave may choose among them, and need not say what is never null."""
    known = {field.name: field for field in from_arrow_schema(options.table)}
    for field in schema:
        ours = known.get(field.name)
        if ours is None or ours.dataType != field.dataType or field.nullable < ours.nullable:
            types = ", ".join(f"{name} {each.dataType.simpleString()}" for name, each in known.items())
            never = "" if field.nullable else " NOT NULL"
            reason = f"the schema cannot have {field.name} {field.dataType.simpleString()}{never}; there are {types}"
            raise InputError("INPUT_BAD_OPTION", reason)
    if len(set(schema.names)) < len(schema.names):
        raise InputError("INPUT_BAD_OPTION", "the schema names a column twice")
    return pa.schema([options.table.field(field.name).with_nullable(field.nullable) for field in schema])
