"""Keeping: rows that are needed more than once are written down, if there is somewhere to write them.

Spark works out a DataFrame anew at each mention of it. A transform that mentions one twice asks its caller to keep it; who
runs transforms alone, on little, need not bother. This file knows no table.
"""

from collections.abc import Callable

from pyspark.sql import DataFrame

Keep = Callable[[str, DataFrame], DataFrame]
"""Writes rows under a name, and gives back what was written."""


def as_it_is(name: str, rows: DataFrame) -> DataFrame:  # noqa: ARG001 - nothing is written
    """Keep nothing: the rows are worked out wherever they are mentioned."""
    return rows
