"""A run of the pipeline: what is new in a capture becomes rows of the tables, once.

    1  finish what a crash has interrupted                        `warehouse.py`
    2  find what is new                                           `news.py`; if nothing is, that is all
    3  read it, make the tables that it touches, and commit       `batch.py`

Nothing is visible before the commit, and all of it after. Small things - names of segments, days, numbers of rows - are
known to the driver; rows never come to it. Spark is asked for only when there is something to do.

This file knows the order of things. It knows no rule of any table, no terminal and no key.
"""

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from hopline.errors import SparkError, TablesError
from hopline.security import Domain
from hopline.spark.batch import NAMES, Batch, Summary
from hopline.spark.news import find_news
from hopline.spark.reasons import reason_of
from hopline.spark.state import State, Terms
from hopline.spark.warehouse import OnStep, Warehouse, no_step
from hopline.wire import TtlUnit

_IS_FULL: Final = os.strerror(errno.ENOSPC)
"""What the system says, and Java and Python after it."""

OnProgress = Callable[[str], None]
"""Is told what is being done, in a few words."""

Session = Callable[[Mapping[str, str]], SparkSession]
"""Gives a Spark session. It is told settings that suit the work; a session that runs already may keep its own."""

_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",  # a day is a day of UTC
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # INT96 has no statistics, and others deprecate it
    "spark.sql.maxConcurrentOutputFileWriters": "16",  # else rows are sorted by day before they are written
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",  # a file beside the rows, which we would take away again
}

_SMALL_BYTES: Final = 8 * 1024 * 1024
_SMALL_ROWS: Final = 50_000
"""Of a capture, and of a table that was made before: below, a run is over before compiled code pays."""

_PARTS: Final = "spark.sql.shuffle.partitions"

FOR_LITTLE: Final = {
    _PARTS: "1",
    "spark.sql.files.minPartitionNum": "1",  # one task a stage
    "spark.sql.adaptive.enabled": "false",  # it makes each stage a job, and plans anew after each
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings for so little. Most of a short run is planning and compiling, in a JVM that is still cold: 75 s of CPU for 1700
messages without these and the next one, and a third to a half of it with them."""

_PART_BYTES: Final = 16 * 1024 * 1024
_ROW_BYTES: Final = 100
"""Of a capture, for each part into which rows are moved, and what a row of a table counts there: some hundred thousand
messages, which a task adds up in memory. Spark makes 200 parts of anything, and each costs: a tenth of `flows` of a million
messages."""

_MOST_PARTS: Final = 200
"""From here on it is as Spark, or whoever runs it, has it."""

JVM_FOR_LITTLE: Final = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"}
"""The same for the JVM, if it is started for this run. With one compiler only, Java keeps room for a fifth of the usual
code, which a few runs fill; then it compiles no more, and each run takes longer than the one before."""


def is_little(size: int, rows: int) -> bool:
    """Whether so much work is little: bytes of a capture that are new, and rows of `messages` that were made before."""
    return size <= _SMALL_BYTES and rows <= _SMALL_ROWS


def settings_for(size: int, rows: int, cores: int) -> dict[str, str]:
    """Settings of Spark that suit some work.

    Args:
        size: bytes of a capture that are new.
        rows: of `messages`, made before.
        cores: that Spark has.

    >>> settings_for(200_000_000, 0, cores=2)
    {'spark.sql.shuffle.partitions': '12'}
    >>> settings_for(10**12, 0, cores=2)
    {}
    """
    if is_little(size, rows):
        return FOR_LITTLE
    parts = max(2 * cores, -(-(size + rows * _ROW_BYTES) // _PART_BYTES))
    return {_PARTS: str(parts)} if parts < _MOST_PARTS else {}


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of a run. What is None is as the tables were begun, or as usual.

    Attributes:
        since_ns: take only what was seen then or later.
        until_ns: take only what was seen before then.
        only: the tables to make; `messages` always is, as the others are made of it.
        domains: keys to judge signatures with.
        v3_ttl: the unit of TTL in v3.
        bodies: whether `messages` has a column `body`.
        reach_s: how far apart sightings on two days may be to be put together.
    """

    since_ns: int | None = None
    until_ns: int | None = None
    only: frozenset[str] = frozenset(NAMES)
    domains: tuple[Domain, ...] | None = field(default=None, repr=False)
    v3_ttl: TtlUnit | None = None
    bodies: bool | None = None
    reach_s: int | None = None

    def terms(self, state: State | None) -> Terms:
        """The terms on which rows are made; raises TABLES_OTHER_TERMS if the tables were begun on others."""
        asked = {"v3_ttl": self.v3_ttl, "bodies": self.bodies, "reach_s": self.reach_s}
        said = {name: value for name, value in asked.items() if value is not None}
        if state is None:
            return Terms(**said)  # type: ignore[arg-type]
        for name, value in said.items():
            before = getattr(state.terms, name)
            if value != before:
                reason = f"these tables were begun {_as_option(name, before)}, and cannot go on {_as_option(name, value)}"
                reason += ": name another folder for such tables"
                raise TablesError("TABLES_OTHER_TERMS", reason)
        return state.terms


def _as_option(term: str, value: object) -> str:
    """A term as it is said on a command line: nobody knows it by another name.

    >>> _as_option("reach_s", 21_600), _as_option("bodies", False)
    ('with --reach 6h', 'without --bodies')
    """
    match value:
        case bool():
            return f"{'with' if value else 'without'} --{term}"
        case int():
            size, unit = next((size, unit) for size, unit in ((3600, "h"), (60, "m"), (1, "s")) if value % size == 0)
            return f"with --{term.removesuffix('_s')} {value // size}{unit}"
        case _:
            return f"with --{term.replace('_', '-')} {value}"


class Pipeline:
    """Turns one capture into one folder of tables.

    Args:
        captures: the folder of a capture, or a URI.
        tables: the folder of the tables, made if it is not there.
        asked: what is asked of each run.
        session: gives the Spark session, when one is needed.
        on_progress: is told what is being done.
        on_step: is told the steps of a commit; for tests that stop there.

    Raises:
        TablesError: the folder cannot be one of tables.
    """

    def __init__(
        self,
        captures: str,
        tables: str,
        asked: Asked = Asked(),  # noqa: B008 - frozen
        *,
        session: Session,
        on_progress: OnProgress = no_step,
        on_step: OnStep = no_step,
    ) -> None:
        self.warehouse = Warehouse(tables, on_step)
        self._captures = captures
        self._asked = asked
        self._session = session
        self._on_progress = on_progress
        self._own: SparkSession | None = None

    def run(self) -> Summary:
        """Take what is new, and be done; raises TablesError, CaptureError, SparkError."""
        with self.warehouse.only_me("run"):
            return self.take("run")

    def take(self, mode: str) -> Summary:
        """Take what is new, while nobody else does; the same errors."""
        state = self.warehouse.state()
        terms = self._asked.terms(state)
        news = find_news(
            self._captures,
            () if state is None else state.layers,
            since_ns=self._asked.since_ns,
            until_ns=self._asked.until_ns,
            v3_ttl=terms.v3_ttl,
        )
        is_bounded = (self._asked.since_ns, self._asked.until_ns) != (None, None)
        before = State(terms=terms) if state is None else state
        rows = before.rows_of("messages")
        batch = Batch(
            self.warehouse,
            before,
            news,
            mode=mode,
            only=self._asked.only,
            is_bounded=is_bounded,
            is_little=is_little(news.size, rows),
        )
        if state is not None and not news.work and not batch.owed:
            return batch.summary(changed=False)
        with self._as_our_error():
            return batch.make(lambda: self._spark(mode, news.size, rows), self._asked.domains, self._on_progress)

    def _spark(self, mode: str, size: int, rows: int) -> SparkSession:
        """A session of our own in what may be somebody else's Spark: its settings are ours, and theirs stay as they are."""
        if self._own is None:
            # A stream lives long enough for compiled code.
            is_short = mode == "run" and is_little(size, rows)
            self._own = self._session(JVM_FOR_LITTLE if is_short else {}).newSession()
        for name in FOR_LITTLE:
            self._own.conf.unset(name)
        for name, value in (_SETTINGS | settings_for(size, rows, self._own.sparkContext.defaultParallelism)).items():
            self._own.conf.set(name, value)
        return self._own

    @contextmanager
    def _as_our_error(self) -> Iterator[None]:
        try:
            yield
        except (PySparkException, Py4JError) as error:
            reason = reason_of(error)
            if _IS_FULL in reason:
                where = f"{self.warehouse.disk}, or to where Spark keeps its own files (spark.local.dir)"
                raise TablesError("TABLES_CANNOT_WRITE", f"cannot write to {where}: {_IS_FULL}") from error
            raise SparkError("SPARK_JOB_FAILED", f"a Spark job failed: {reason}") from error
