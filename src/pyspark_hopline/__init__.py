"""Makes `format("hopline")` known to Spark: it looks for `DefaultSource` in every module whose name begins with pyspark_."""

from hopline.spark.source import HoplineDataSource as DefaultSource

__all__ = ["DefaultSource"]
