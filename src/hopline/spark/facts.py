"""Facts: what a run learns from new rows once and keeps, because the tables do not show it and captures may be gone by then.

    errors           what KINO.EXCEPTION messages say, by their bodies
    announcements    sightings that open and end routes, with their bodies
    verdicts         what signatures are worth: it takes the bytes, and the keys that were given then
    senders          from whom the names of nodes are learned, without the many messages that say the same
    clocks           how far the clocks of nodes were apart on a day; made with the tables of that day

Each is a shelf beside the tables, by day, and small. What was learned is never asked of captures again. This file runs no
job: it says what to write, and how it is put to use.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from hopline.capture.filter import OneOf
from hopline.security import Domain
from hopline.spark.callbacks import EXCEPTION_KEY, read_errors
from hopline.spark.gone import Gone
from hopline.spark.hops import timestamp_of
from hopline.spark.news import News
from hopline.spark.nodes import AWAY
from hopline.spark.routes import IDENTITIES
from hopline.spark.signatures import VERDICTS
from hopline.spark.tables import MESSAGES
from hopline.spark.warehouse import OWN


class Fact(NamedTuple):
    """One kind of fact: its name, its columns, and those that make two rows the same."""

    name: str
    schema: StructType
    key: tuple[str, ...]

    @property
    def shelf(self) -> str:
        """Its folder."""
        return f"{OWN}/facts/{self.name}"


def _of_messages(*names: str) -> StructType:
    return StructType([field for field in MESSAGES.schema if field.name in names])


ERRORS: Final = Fact(
    "errors",
    StructType().add("message_uid", "binary").add("error_type", "string").add("error_message", "string"),
    ("message_uid",),
)
ANNOUNCEMENTS: Final = Fact(
    "announcements",
    _of_messages(
        "event_id", "seen_ns", "node_key", "tap", "direction", "peer_key", "seq", "format", "message_uid",
        "identity", "identity_key", "version", "partition_key", "domain", "body",
    ),
    ("event_id",),
)  # fmt: skip
JUDGED: Final = Fact("verdicts", from_arrow_schema(VERDICTS), ())
SENDERS: Final = Fact("senders", _of_messages("node_key", "tap", "hops", "trail"), ("node_key", "tap", "hops", "trail"))

CLOCKS: Final = Fact(
    "clocks",
    StructType().add("from_node_key", "string").add("to_node_key", "string").add("skew_ms", "double"),
    ("from_node_key", "to_node_key"),
)

FROM_NEWS: Final = (ERRORS, ANNOUNCEMENTS, JUDGED, SENDERS)
"""The facts that are learned when something is read."""


def with_bodies(news: News, spark: SparkSession, known: Iterable[str], gone: Gone | None = None) -> DataFrame:
    """The few messages among the news whose bodies matter, with their bodies.

    Args:
        news: what is new.
        spark: the session.
        known: the columns that captures have; of these the needed ones are taken.
        gone: hears which segments are.
    """
    needed = {*ANNOUNCEMENTS.schema.names, "date"}
    which = OneOf("identity_key", (*IDENTITIES, EXCEPTION_KEY))
    return news.messages(spark, [name for name in known if name in needed], which, gone)


def verdicts_by_day(
    news: News, spark: SparkSession, domains: Iterable[Domain] | None, gone: Gone | None = None
) -> DataFrame:
    """What the signatures of the news are worth, with the days of their hours; `gone` hears which segments are."""
    return news.verdicts(spark, domains, gone).withColumn("date", timestamp_of(sf.col("hour_ns")).cast("date"))


def find_facts(sightings: DataFrame, with_bodies: DataFrame, verdicts: DataFrame) -> dict[str, DataFrame]:
    """What is to be kept of news, by the name of the fact; each has its columns and `date`.

    Args:
        sightings: the messages among the news.
        with_bodies: of `with_bodies`.
        verdicts: of `verdicts_by_day`.
    """
    failures = with_bodies.where(sf.col("identity_key") == EXCEPTION_KEY)
    announcements = with_bodies.where(sf.col("identity_key").isin(*IDENTITIES))
    found = {
        ERRORS: read_errors(failures).join(failures.select("message_uid", "date").distinct(), "message_uid"),
        ANNOUNCEMENTS: announcements,
        JUDGED: verdicts,
        SENDERS: _senders(sightings),
    }
    return {fact.name: rows.select(*fact.schema.names, "date") for fact, rows in found.items()}


def joined(fact: Fact, rows: DataFrame, more: DataFrame) -> DataFrame:
    """Facts and more facts, each once where that can be told."""
    both = rows.unionByName(more)
    return both.dropDuplicates([*fact.key, "date"]) if fact.key else both


def _senders(sightings: DataFrame) -> DataFrame:
    """What `nodes.names` looks at, and nothing else, so that few rows are different."""
    has_sent = sf.col("tap").isin(*AWAY) & (sf.col("hops") > 0) & (sf.size("trail") > 0)
    nobody = sf.array().cast(MESSAGES.schema["trail"].dataType)
    entry = sf.struct(sf.lit("").alias("uri"), sf.try_element_at("trail", sf.lit(-1))["node_key"].alias("node_key"))
    return sightings.select(
        "date",
        "node_key",
        "tap",
        sf.least("hops", sf.lit(1)).alias("hops"),
        sf.when(has_sent, sf.array(entry)).otherwise(nobody).alias("trail"),
    ).distinct()
