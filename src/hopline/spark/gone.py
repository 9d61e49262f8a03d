"""Segments that were gone when they were to be read: deleted, or cut short, after somebody had seen them.

What is new is read several times and by many tasks, so a segment may be there for one of them and not for the next. The
tasks tell, and the driver hears of it when their job is done. Then the segment counts as not read at all: what others have
read of it is left out again, and if it comes back it is new. Told twice is told once, so a task may be repeated.
"""

from collections.abc import Iterable
from typing import Final

from pyspark import AccumulatorParam
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

_PLACE: Final = "[:@][0-9]+$"
"""What follows the name of the segment in an event id: the row, or the byte where it broke."""


class _Names(AccumulatorParam[frozenset[str]]):
    def zero(self, value: frozenset[str]) -> frozenset[str]:  # noqa: ARG002 - Spark's way
        return frozenset()

    def addInPlace(self, value1: frozenset[str], value2: frozenset[str]) -> frozenset[str]:  # noqa: N802 - Spark's name
        return value1 | value2


class Gone:
    """Hears from tasks which segments were gone. It is made on the driver, and travels with what the tasks do."""

    def __init__(self, spark: SparkSession) -> None:
        self._names = spark.sparkContext.accumulator(frozenset[str](), _Names())

    def add(self, segment: str) -> None:
        """Tell of one. On an executor."""
        self._names.add(frozenset([segment]))

    @property
    def names(self) -> frozenset[str]:
        """All that were told of, by jobs that are done. On the driver."""
        return self._names.value


def without(rows: DataFrame, segments: Iterable[str], event_id: str) -> DataFrame:
    """Rows that are of none of some segments, by a column with event ids."""
    return rows.where(~sf.regexp_replace(event_id, _PLACE, "").isin(*segments))
