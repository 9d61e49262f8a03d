"""The tables that Spark makes of a world, made once for all tests; and how they are compared with the truth."""

import atexit
import shutil
import tempfile
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from hopline.capture import open_capture
from hopline.security import Domain
from hopline.spark import callbacks, expiries, hops, messages, signatures
from hopline.spark.keeping import Keep, in_memory, on_disk
from hopline.spark.nodes import Nodes, find_nodes
from hopline.spark.run import FOR_LITTLE
from tests.spark.generator import DOMAINS
from tests.spark.stories import World
from tests.spark.sums import Sums
from tests.spark.world import make_world

EPOCH, DAY_ONE = datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1)
TIMES = {
    "seen_at",
    "sent_at",
    "received_at",
    "requested_at",
    "resolved_at",
    "started_at",
    "ended_at",
    "valid_from",
    "valid_to",
}
TIMES |= {"minute", "hour"}

PARTS = "spark.sql.shuffle.partitions"
FOR_MUCH = {
    PARTS: "4",
    "spark.sql.files.minPartitionNum": "2",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}


class Tables:
    """What the transforms make of a capture, each table once."""

    def __init__(self, spark: SparkSession, path: str, domains: Iterable[Domain] = DOMAINS) -> None:
        self.spark = spark
        self.path = path
        self._domains = tuple(domains)
        self._place = _new_folder("tables")

    @cached_property
    def sightings(self) -> DataFrame:
        """What the source gives, with bodies."""
        return self.spark.read.format("hopline").option("bodies", "true").load(self.path)

    @cached_property
    def records(self) -> DataFrame:
        """Frames, as the capture holds them."""
        return records_of(self.spark, self.path, self._place)

    @cached_property
    def messages(self) -> DataFrame:
        return self._write("messages", messages.finish(self.sightings))

    @cached_property
    def nodes(self) -> Nodes:
        return find_nodes(self.messages, self.keep)

    @cached_property
    def moves(self) -> DataFrame:
        return self.keep("moves", hops.find_moves(self.messages, self.keep, self.nodes))

    @cached_property
    def answers(self) -> DataFrame:
        errors = callbacks.read_errors(self.sightings)
        return self.keep("answers", callbacks.find_answers(self.messages, errors, self.keep, self.nodes))

    @cached_property
    def fates(self) -> DataFrame:
        return self.keep("fates", expiries.find_fates(self.messages, self.moves, self.nodes))

    @cached_property
    def verdicts(self) -> DataFrame:
        return self.keep("verdicts", signatures.judge(self.records, self._domains))

    def of(self, messages: DataFrame) -> "Tables":
        """The tables that are made of other messages."""
        tables = Tables(self.spark, self.path, self._domains)
        tables.messages = messages
        return tables

    @cached_property
    def keep(self) -> Keep:
        """As a pipeline keeps them, with files for much: so each test plans its own part, and not all that came before."""
        if self.spark.conf.get(PARTS) == FOR_LITTLE[PARTS]:
            return in_memory
        return self._write

    @property
    def _write(self) -> Keep:
        return on_disk(lambda name: str(self._place / name), "lz4")


class Made(Tables):
    """A world, its capture, what the transforms make of it, and what is true."""

    def __init__(self, spark: SparkSession, world: World) -> None:
        super().__init__(spark, str(_new_folder("world")))
        world.network.write(self.path)
        self.truth = Sums(world)


@cache
def _all_folders() -> Path:
    """A place that is there as long as the session is: Spark reads a table again whenever it likes."""
    place = Path(tempfile.mkdtemp(prefix="hopline-worlds-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return place


def _new_folder(name: str, where: Path | None = None) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=where or _all_folders()))


def made(spark: SparkSession, seed: int = 1) -> Made:
    """A world and its tables; the same ones for all who ask. The first one is made as little data is, others as much is."""
    return _made(spark, seed)


@cache  # which takes one who names the seed for another than one who does not
def _made(spark: SparkSession, seed: int) -> Made:
    return Made(spark if seed == 1 else _for_much(spark), make_world(seed))


@cache
def _for_much(spark: SparkSession) -> SparkSession:
    """A session as Spark has it by itself: plans are compiled, and change while they run."""
    session = spark.newSession()
    for name, value in FOR_MUCH.items():
        session.conf.set(name, value)
    return session


REFERENCE_DOMAINS = tuple(Domain(name * 30, keys=(name.encode() * 16,), scheme="kino") for name in "AB")


@cache
def reference_tables(spark: SparkSession, path: str) -> Tables:
    """What the transforms make of the captures of the reference network."""
    return Tables(spark, path, REFERENCE_DOMAINS)


def records_of(spark: SparkSession, path: str, place: Path) -> DataFrame:
    """The records of a capture with their event ids."""
    found = []
    for segment, first_row, batch in open_capture(path).batches():
        ids = pa.array([f"{segment.name}:{first_row + row}" for row in range(len(batch))])
        found.append(pa.table(batch).append_column("event_id", ids))
    return _stored(spark, pa.concat_tables(found), place, "records")


def _stored(spark: SparkSession, table: pa.Table, place: Path, name: str) -> DataFrame:
    folder = _new_folder(name, place)
    half = len(table) // 2
    for number, part in enumerate((table.slice(0, half), table.slice(half))):
        pq.write_table(part, folder / f"{number}.parquet")
    return spark.read.parquet(str(folder))


# --- comparing --------------------------------------------------------------------------------------------------------


def rows_of(found: DataFrame) -> list[dict[str, Any]]:
    """Rows of Spark as the truth has them: times in microseconds, dates in days."""
    return [{name: _plain(value) for name, value in row.items()} for row in found.toArrow().to_pylist()]


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a column holds
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(microseconds=1)
    if isinstance(value, date):
        return (value - DAY_ONE).days
    return round(value, 6) if isinstance(value, float) else value


def assert_same(found: DataFrame, truth: Iterable[dict[str, Any]]) -> None:
    """The rows that Spark found are the true ones, all of them and no others, with all columns."""
    want = [
        {name: value // 1000 if name in TIMES and value is not None else _plain(value) for name, value in row.items()}
        for row in truth
    ]
    have = rows_of(found)
    assert {frozenset(row) for row in have} <= {frozenset(found.columns)}
    extra, missing = _less(have, want), _less(want, have)
    if extra or missing:
        raise AssertionError(_difference(extra, missing, len(have), len(want)))


def _less(some: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[dict[str, Any]]:
    left = sorted(map(_text, others))
    found = []
    for row in sorted(some, key=_text):
        text = _text(row)
        if text in left:
            left.remove(text)
        else:
            found.append(row)
    return found


def _text(row: dict[str, Any]) -> str:
    return repr(sorted(row.items()))


def _difference(extra: list[dict[str, Any]], missing: list[dict[str, Any]], have: int, want: int) -> str:
    """Say what differs, so that one can see it: the first rows of each kind, and in which columns they disagree."""
    lines = [f"{have} rows, {want} expected; {len(extra)} are wrong, {len(missing)} are missing"]
    for row in extra[:3]:
        near = min(missing, key=lambda other: sum(row[name] != other[name] for name in row), default=None)
        if near is None:
            lines.append(f"too much: {row}")
        else:
            odd = {name: (row[name], near[name]) for name in row if row[name] != near[name]}
            lines.append(f"found and true: {odd} in {row}")
    lines += [f"missing: {row}" for row in missing[: 0 if extra else 3]]
    return "\n".join(lines)
