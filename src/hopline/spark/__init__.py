"""Spark: captures of any size as DataFrames, and the tables that answers are made of. Needs the extra `spark`.

    session    the one place where a Spark session is made
    source     `spark.read.format("hopline")` and `spark.readStream.format("hopline")`

Everything in this room is DataFrame in, DataFrame out; nothing in it makes a session at import.
"""

from importlib.util import find_spec

from hopline.errors import SparkError

if find_spec("pyspark") is None:
    raise SparkError("SPARK_NOT_INSTALLED", "pyspark is not installed. Type: pip install 'hopline[spark]'")
