"""A batch: one piece of news on its way into the tables, in the staging folder of its run.

    stage      what is new is read: messages, what is none, the few with their bodies, what signatures are worth
    facts      what must be known later is put to what is known
    days       all days that are touched, or owed to a table that was left out before, are made again
    routes     has no days, and is small: it is made again
    commit     what was made takes the place of what was there

Rows never come to the driver; it knows names of days and numbers of rows. This file knows the order of things, and no rule
of any table.
"""

import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from hopline.capture.tables import MESSAGES as CAPTURED
from hopline.security import Domain
from hopline.spark import shelves
from hopline.spark.crew import together
from hopline.spark.days import BY_DAY, Day, days_of, window_of
from hopline.spark.facts import (
    ANNOUNCEMENTS,
    CLOCKS,
    ERRORS,
    FROM_NEWS,
    JUDGED,
    SENDERS,
    Fact,
    find_facts,
    joined,
    verdicts_by_day,
    with_bodies,
)
from hopline.spark.gone import Gone, without
from hopline.spark.keeping import Keep, in_memory, is_local, on_disk
from hopline.spark.midnight import Midnights
from hopline.spark.news import News
from hopline.spark.parts import KEPT, Span
from hopline.spark.routes import routes
from hopline.spark.runs import Found, Row, empty_reason, write_runs
from hopline.spark.state import State
from hopline.spark.tables import MESSAGES, REJECTS, ROUTES
from hopline.spark.warehouse import Change, Swap, Warehouse, new_run
from hopline.spark.window import Window, stage

ALWAYS: Final = (MESSAGES.name, REJECTS.name)
"""Tables that are never left out: the others are made of the first, and nothing else holds the second."""

LATER: Final = (*BY_DAY, ROUTES.name)
"""Tables that can be made later, of what is kept."""

NAMES: Final = (*ALWAYS, *LATER)
"""All tables that are made of captures."""

_NEW, _BODIES, _VERDICTS = "sightings", "bodies", "verdicts"
"""Shelves in staging: all messages that are new, the few of them with their bodies, and what signatures are worth."""


class TableSummary(msgspec.Struct, frozen=True):
    """What became of a table: rows written now, rows it has, and why it is empty if it is.

    One that `is_behind` was made before, and is as it was then: it has been left out since.
    """

    written: int
    rows: int
    empty: str | None = None
    is_behind: bool = False


class Summary(msgspec.Struct, frozen=True):
    """What was done. If there was nothing new, nothing is changed: then `run` is the last one that did something.

    `gone` are segments that were deleted before they were read, or were cut short. They do not count as taken: if they come
    back, they are new.
    `unfinished` are those that stop before their end, though nobody writes to them any more, and why: a copy that is not
    complete, a writer that was killed. What is whole of them is taken, and the rest when it comes.
    `unchecked` are signatures among what was read that nobody judged, as no keys were given. No later run makes up for that.
    """

    run: str
    mode: str
    changed: bool
    seconds: float
    segments: int
    bytes: int
    read: int
    rejected: int
    days: list[str]
    tables: dict[str, TableSummary]
    gone: list[str] = []
    unfinished: dict[str, str] = {}
    unchecked: int = 0


class Batch:
    """One piece of news, to be put into the tables. It is made once and then either `make`s or not.

    Args:
        warehouse: where the tables are; nobody else may change them meanwhile.
        state: what they say of themselves.
        news: what is to be taken.
        mode: run or stream.
        only: the tables that are wanted.
        is_bounded: whether only some time was asked for.
        is_little: whether what is needed twice is better kept in memory than in files.
    """

    def __init__(
        self,
        warehouse: Warehouse,
        state: State,
        news: News,
        *,
        mode: str,
        only: Iterable[str],
        is_bounded: bool,
        is_little: bool,
    ) -> None:
        self._warehouse = warehouse
        self._disk = warehouse.disk
        self._state = _without_deleted(state, warehouse)
        self._news = news
        self._mode = mode
        self._only = frozenset(only) | frozenset(ALWAYS)
        self._is_bounded = is_bounded
        self._is_little = is_little
        self._started = datetime.now(UTC)
        self._clock_s = time.monotonic()
        self._id = new_run(self._started)
        self._staging = warehouse.staging(self._id)
        self._made = {name: dict(days) for name, days in self._state.made.items()}
        self._written: dict[str, int] = {}
        self._days: list[str] = []
        self._swaps: list[Swap] = []
        self._read = self._rejected = self._unchecked = 0
        self._gone: frozenset[str] = frozenset()

    @cached_property
    def owed(self) -> dict[str, list[str]]:
        """Days that `messages` has and a wanted table has not, by table: an earlier run left it out."""
        known = self._state.days_of(MESSAGES.name)
        owed = {name: [day for day in known if day not in self._state.days_of(name)] for name in self._wanted()}
        if known and ROUTES.name in self._only and ROUTES.name not in self._state.made:
            owed[ROUTES.name] = [""]
        return {name: days for name, days in owed.items() if days}

    def make(
        self, session: Callable[[], SparkSession], domains: Iterable[Domain] | None, on_progress: Callable[[str], None]
    ) -> Summary:
        """Do all of it, and commit. Raises TablesError, and what Spark raises.

        Args:
            session: gives the Spark session; it is asked only if there is something to read or to make.
            domains: the keys to judge signatures with.
            on_progress: is told what is being done, in a few words.
        """
        if self._news.work or self.owed:
            spark = session()
            new_days: list[str] = []
            if self._news.work:
                on_progress(f"reading {self._news.segments} segments, {self._news.size / 1e6:.1f} MB")
                new_days = self._stage(spark, domains)
                on_progress("keeping what bodies and signatures say")
                self._make_rejects(spark, new_days)
                self._make_facts(spark, new_days)
            self._make_days(spark, new_days, on_progress)
            on_progress(ROUTES.name)
            self._make_routes(spark)
        on_progress("committing")
        summary = self.summary(changed=True)
        self._commit(summary)
        return summary

    # --- reading what is new ------------------------------------------------------------------------------------------

    def _stage(self, spark: SparkSession, domains: Iterable[Domain] | None) -> list[str]:
        """Read what is new; the days of the messages in it."""
        gone = Gone(spark)
        found = {
            REJECTS.name: self._news.rejects(spark, REJECTS.names, gone),
            _BODIES: with_bodies(self._news, spark, CAPTURED.names, gone),
            _VERDICTS: verdicts_by_day(self._news, spark, domains, gone),
        }
        write = partial(self._write_days, compression=shelves.PASSING)
        bodies = self._state.terms.bodies
        together(
            [
                partial(stage, self._news, spark, self._disk, self._shelf(_NEW), self._id, bodies=bodies, gone=gone),
                *(partial(write, rows, self._shelf(name)) for name, rows in found.items()),
            ]
        )
        self._gone = gone.names
        if self._gone:
            self._leave_out_gone(spark)
        self._rejected = shelves.rows_in(self._disk, self._shelf(REJECTS.name))
        self._read = shelves.rows_in(self._disk, self._shelf(_NEW)) + self._rejected
        if domains is None:  # then verdicts are few: they are told apart only by hour, node and domain
            self._unchecked = shelves.total(self._disk, self._shelf(_VERDICTS), "messages", status="unchecked")
        return shelves.days_on(self._disk, self._shelf(_NEW))

    def _leave_out_gone(self, spark: SparkSession) -> None:
        """Leave out what some tasks have read of segments that others did not find: it will be read if they come back."""
        staged = {
            _NEW: (self._schema(MESSAGES.names), "event_id"),
            REJECTS.name: (REJECTS.schema, "event_id"),
            _BODIES: (ANNOUNCEMENTS.schema, "event_id"),
            _VERDICTS: (JUDGED.schema, "first_event_id"),
        }
        for name, (schema, event_id) in staged.items():
            shelf, kept = self._shelf(name), self._shelf(f"{name}-kept")
            rows = shelves.read(spark, self._disk, shelf, schema, shelves.days_on(self._disk, shelf))
            self._write_days(without(rows, self._gone, event_id), kept)
            self._disk.remove(shelf)
            self._disk.move(kept, shelf)

    def _make_rejects(self, spark: SparkSession, message_days: Iterable[str]) -> None:
        """Put rejects to those of their days; a day of messages without any has an empty file, so that there is a table."""
        days = shelves.days_on(self._disk, self._shelf(REJECTS.name))
        schema, shelf = REJECTS.schema, self._shelf(f"tables/{REJECTS.name}")
        if days:
            before = shelves.read(spark, self._disk, REJECTS.name, schema, days)
            more = shelves.read(spark, self._disk, self._shelf(REJECTS.name), schema, days)
            # What is wrong with a segment is met each time that something new of it is read.
            self._write_days(before.unionByName(more).dropDuplicates(["event_id"]), shelf)
        for day in days:
            self._place(REJECTS.name, day, shelves.folder_of(shelf, day))
        for day in set(message_days) - set(days) - set(self._made.get(REJECTS.name, ())):
            shelves.write_day(shelves.nothing(spark, schema), self._disk, shelf, day, self._id)
            self._place(REJECTS.name, day, shelves.folder_of(shelf, day))

    def _make_facts(self, spark: SparkSession, days: list[str]) -> None:
        """Put new facts to those of their days."""
        if not days:
            return
        bodies = shelves.read(spark, self._disk, self._shelf(_BODIES), ANNOUNCEMENTS.schema, days)
        verdicts = shelves.read(spark, self._disk, self._shelf(_VERDICTS), JUDGED.schema, days)
        found = find_facts(self._staged(spark, days), bodies, verdicts)

        def make(fact: Fact) -> None:
            before = shelves.read(spark, self._disk, fact.shelf, fact.schema, days)
            shelf = self._shelf(f"facts/{fact.name}")
            self._write_days(joined(fact, before, found[fact.name]), shelf)
            for day in shelves.days_on(self._disk, shelf):
                self._swaps.append(Swap(shelves.folder_of(fact.shelf, day), shelves.folder_of(shelf, day)))

        together(partial(make, fact) for fact in FROM_NEWS)

    def _write_days(self, rows: DataFrame, shelf: str, compression: str = KEPT) -> None:
        shelves.write_days(rows, self._disk, shelf, self._id, compression)

    # --- making tables ------------------------------------------------------------------------------------------------

    def _make_days(self, spark: SparkSession, new_days: list[str], on_progress: Callable[[str], None]) -> None:
        known = sorted({*self._state.days_of(MESSAGES.name), *new_days})
        touched = self._touched(new_days) & set(known)
        for name in (*BY_DAY, CLOCKS.name):  # what is not made now is out of date, and made up for later
            for day in touched:
                self._made.get(name, {}).pop(day, None)
        wanted = self._wanted()
        due = {day: [name for name in wanted if day not in self._made.get(name, {})] for day in known}
        self._days = [day for day in known if due[day] or day in touched]
        for number, day in enumerate(self._days, 1):
            place = f"{day} ({number} of {len(self._days)})" if len(self._days) > 1 else day
            on_progress(f"{place}: {MESSAGES.name}")
            around = [each for each in days_of(window_of(day, self._reach_s), 0) if each in known]
            messages = self._make_messages(spark, day, around, is_touched=day in touched)
            errors = self._facts(spark, ERRORS, around).dropDuplicates(["message_uid"])
            # Those of other days count one by one, by when they were seen: the first of two that are the same is no replay.
            verdicts = self._facts(spark, JUDGED, around).where(sf.col("first_ns").between(*window_of(day, self._reach_s)))
            has_before, has_after = around[0] < day, around[-1] > day
            midnights = Midnights(window_of(day, 0), self._reach_s * 1_000_000_000, has_before, has_after)
            tables = Day(messages, errors, verdicts, midnights, self._keeper(spark, day))
            on_progress(f"{place}: {', '.join(due[day])}")
            together(partial(self._make_table, tables, name, day) for name in due[day])

    def _wanted(self) -> list[str]:
        """What is made by day. Routes have no days, but ask for clocks."""
        return [*(name for name in BY_DAY if name in self._only), *([CLOCKS.name] if ROUTES.name in self._only else [])]

    def _make_table(self, tables: Day, name: str, day: str) -> None:
        shelf = self._shelf(f"tables/{name}")
        shelves.write_day(tables.table(name), self._disk, shelf, day, self._id)
        self._place(name, day, shelves.folder_of(shelf, day))

    def _keeper(self, spark: SparkSession, when: str) -> Keep:
        """Keeps what belongs to some time: a day, or ever."""
        if self._is_little and is_local(spark):
            return in_memory
        return on_disk(lambda name: self._warehouse.path_of(self._shelf(f"{name}/{when}")), shelves.PASSING)

    def _touched(self, new_days: Iterable[str]) -> set[str]:
        """The days in whose windows something new lies."""
        spans = (shelves.extremes(self._disk, shelves.folder_of(self._shelf(_NEW), day), "seen_ns") for day in new_days)
        return {day for span in spans if span is not None for day in days_of(Span(*span), self._reach_s)}

    def _make_messages(self, spark: SparkSession, day: str, around: list[str], *, is_touched: bool) -> DataFrame:
        """Make `messages` of the window of a day, and give it back. Only the day itself is placed, if it is touched."""
        shelf, within = self._shelf(f"windows/{day}"), window_of(day, self._reach_s)
        parts_on = (MESSAGES.name, self._shelf(_NEW))
        Window(spark, self._disk, parts_on, around, within, bodies=self._state.terms.bodies).make(shelf, self._id)
        if is_touched:
            self._place(MESSAGES.name, day, shelves.folder_of(shelf, day))
        return shelves.read(spark, self._disk, shelf, self._schema(MESSAGES.names), around)

    def _staged(self, spark: SparkSession, days: list[str]) -> DataFrame:
        """Messages that are new."""
        return shelves.read(spark, self._disk, self._shelf(_NEW), self._schema(MESSAGES.names), days)

    def _make_routes(self, spark: SparkSession) -> None:
        """Make routes of all that was ever announced. If they are not wanted, they are out of date."""
        self._made.pop(ROUTES.name, None)
        if ROUTES.name in self._only:
            clocks = self._facts(spark, CLOCKS, made=self._shelf(f"tables/{CLOCKS.name}"))
            keep = self._keeper(spark, "ever")
            senders, told, judged = (self._facts(spark, fact) for fact in (SENDERS, ANNOUNCEMENTS, JUDGED))
            found = routes(senders, told, clocks, judged, keep)
            shelf = self._shelf(f"tables/{ROUTES.name}")
            shelves.write_day(found, self._disk, shelf, "", self._id)
            self._place(ROUTES.name, "", shelf)

    # --- what is where ------------------------------------------------------------------------------------------------

    @property
    def _reach_s(self) -> int:
        return self._state.terms.reach_s

    def _shelf(self, name: str) -> str:
        return f"{self._staging}/{name}"

    def _schema(self, names: Iterable[str]) -> StructType:
        """Columns of `messages`: without bodies, unless they were asked for."""
        names = set(names) - (set() if self._state.terms.bodies else {"body"})
        return StructType([column for column in MESSAGES.schema if column.name in names])

    def _facts(self, spark: SparkSession, fact: Fact, days: Iterable[str] | None = None, *, made: str = "") -> DataFrame:
        """Facts of some days, or of all: as this batch has made them, where it has."""
        shelf = made or self._shelf(f"facts/{fact.name}")
        new = set(shelves.days_on(self._disk, shelf))
        wanted = new | set(shelves.days_on(self._disk, fact.shelf)) if days is None else set(days)
        old = shelves.read(spark, self._disk, fact.shelf, fact.schema, sorted(wanted - new))
        return old.unionByName(shelves.read(spark, self._disk, shelf, fact.schema, sorted(wanted & new)))

    def _place(self, table: str, day: str, new: str) -> None:
        """Note that a day of a table is made, and is to take its place."""
        rows = shelves.rows_in(self._disk, new)
        self._made.setdefault(table, {})[day] = rows
        self._written[table] = self._written.get(table, 0) + rows
        self._swaps.append(Swap(shelves.folder_of(_home_of(table), day), new))

    # --- the end ------------------------------------------------------------------------------------------------------

    def summary(self, *, changed: bool) -> Summary:
        """What was done so far."""
        tables = {}
        messages = sum(self._made.get(MESSAGES.name, {}).values())
        rejected = sum(self._made.get(REJECTS.name, {}).values())
        found = Found(self._news.known, rejected, is_bounded=self._is_bounded)
        for name in NAMES:
            is_left_out = name not in self._only
            rows = sum(self._made.get(name, {}).values())
            there = shelves.rows_in(self._disk, name) if is_left_out else rows
            reason = None if there else empty_reason(name, messages, found, is_left_out=is_left_out)
            tables[name] = TableSummary(self._written.get(name, 0), there, reason, is_behind=there > rows)
        return Summary(
            run=self._id if changed else self._state.run,
            mode=self._mode,
            changed=changed,
            seconds=round(time.monotonic() - self._clock_s, 3),
            segments=self._news.segments - len(self._gone),
            bytes=sum(size for name, size in self._news.sizes.items() if name not in self._gone),
            read=self._read,
            rejected=self._rejected,
            days=self._days,
            tables=tables,
            gone=sorted(self._gone),
            unfinished=dict(self._news.unfinished),
            unchecked=self._unchecked,
        )

    def _commit(self, summary: Summary) -> None:
        rows = [
            Row(
                run_id=self._id,
                mode=self._mode,
                started_at=self._started,
                seconds=summary.seconds,
                rows_in=summary.read,
                table=name,
                rows_out=table.written,
                rows_rejected=summary.rejected,
                empty_reason=table.empty,
            )
            for name, table in summary.tables.items()
        ]
        self._swaps.append(Swap(*write_runs(rows, self._disk, self._shelf("tables"), self._started)))
        layers = list(self._news.layers_without(self._gone))
        state = State(run=self._id, terms=self._state.terms, layers=layers, made=self._made)
        swaps = sorted(self._swaps, key=lambda swap: swap.target)
        self._warehouse.commit(Change(self._id, swaps, state))


def _home_of(table: str) -> str:
    """Where a table is kept; what nobody is to see is among the facts."""
    return CLOCKS.shelf if table == CLOCKS.name else table


def _without_deleted(state: State, warehouse: Warehouse) -> State:
    """A state without the days that somebody has deleted since: tables may be cleared of old days by hand."""
    made = {
        name: {day: rows for day, rows in days.items() if warehouse.disk.exists(shelves.folder_of(_home_of(name), day))}
        for name, days in state.made.items()
    }
    return msgspec.structs.replace(state, made={name: days for name, days in made.items() if days})
