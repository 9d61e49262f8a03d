"""Keeping: rows that are needed more than once are written down, if there is somewhere to write them.

Spark works out a DataFrame anew at each mention of it. A transform that mentions one twice asks its caller to keep it; who
runs transforms alone, on little, need not bother. This file knows no table.

    as_it_is     nothing is kept
    in_memory    for little, in the JVM that asks: it needs neither files nor plans to read them
    on_disk      for any amount, and wherever the work is done
"""

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from hopline.spark.shelves import reader_of

Keep = Callable[[str, DataFrame], DataFrame]
"""Writes rows under a name, and gives back what was written."""


def as_it_is(name: str, rows: DataFrame) -> DataFrame:  # noqa: ARG001 - nothing is written
    """Keep nothing: the rows are worked out wherever they are mentioned."""
    return rows


def in_memory(name: str, rows: DataFrame) -> DataFrame:  # noqa: ARG001 - a Keep
    """Keep rows where they are made, until nobody mentions them any more. Who loses an executor loses them: see `is_local`.

    A small batch in a JVM that is warm takes a fifth less CPU with it than with files.
    """
    # Under names of their own: a checkpoint has the very columns of what it was made of, and where that is in memory too,
    # Spark cannot tell them apart when the two are joined.
    return rows.localCheckpoint().toDF(*rows.columns)


def is_local(spark: SparkSession) -> bool:
    """Whether all work is done in one JVM, which lives as long as the session."""
    master = str(spark.sparkContext.master)
    return master == "local" or master.startswith("local[")


def on_disk(folder: Callable[[str], str], compression: str) -> Keep:
    """Keep rows as Parquet, each name in its folder."""

    def keep(name: str, rows: DataFrame) -> DataFrame:
        rows.write.option("compression", compression).parquet(folder(name))
        return reader_of(rows.sparkSession, rows.schema).parquet(folder(name))

    return keep
