"""All facts of a report, read from tables while a pipeline may be writing to them."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol, TypeVar

import pyarrow as pa

from hopline.errors import TablesError
from hopline.report.read.answers import Answers
from hopline.report.read.audits import Expiries, Rejects, Signatures
from hopline.report.read.flows import CANDIDATES, Flows, SlowFlow, slowest, varied
from hopline.report.read.links import Links
from hopline.report.read.moves import Moves
from hopline.report.read.seen import Seen
from hopline.report.read.tables import NAMES, ChangedError, Tables

_TRIES: Final = 5
"""How often reading begins again because a day was replaced meanwhile."""


_UNREADABLE: Final = (pa.ArrowException, ValueError, OverflowError)
"""What values raise that no table of ours has: a text that is none, a time beyond all calendars."""


class Collector(Protocol):
    """Makes facts of the rows of one table."""

    @property
    def table(self) -> str:
        """Its name."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns that are needed."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Take some rows."""


_Collector = TypeVar("_Collector", bound=Collector)


@dataclass
class Facts:
    """What a report is made of.

    Attributes:
        slowest: the slowest flows.
        drawn: slow flows that differ: first the slowest of each root type.
        empty: why there is nothing to say of a table, by its name.
        unknown: tables that were not made, are out of date, or cannot be read: nobody knows how much is in them.
        notes: what is odd about the tables themselves.
    """

    path: str
    run: str
    days: list[str]
    since: datetime | None
    until: datetime | None
    seen: Seen
    moves: Moves
    links: Links
    answers: Answers
    flows: Flows
    slowest: list[SlowFlow]
    drawn: list[SlowFlow]
    expiries: Expiries
    signatures: Signatures
    rejects: Rejects
    empty: dict[str, str] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


def read_facts(path: Path, *, top: int, since: datetime | None = None, until: datetime | None = None) -> Facts:
    """Read tables as they are at one moment; if a run commits meanwhile, begin again once.

    Args:
        path: the folder of the tables.
        top: how many of the slowest flows.
        since: only what happened then or later.
        until: only what happened before.

    Raises:
        TablesError: there are no tables, or they change all the time.
    """
    for last in (False, True):
        tables, facts = _read_whole(path, top, since, until)
        if tables.is_as_it_was():
            break
        if last:  # somebody commits faster than this can be read: rather that than nothing
            facts.notes.append("A run of the pipeline committed while this was read: some tables may be newer than others.")
    return facts


def _read_whole(path: Path, top: int, since: datetime | None, until: datetime | None) -> tuple[Tables, Facts]:
    for _ in range(_TRIES):
        tables = Tables(path, since, until)
        with contextlib.suppress(ChangedError):
            return tables, _read(tables, top)
    raise TablesError("TABLES_BUSY", f"runs replace tables in {path} faster than they can be read")


def _read(tables: Tables, top: int) -> Facts:
    empty: dict[str, str] = {}
    notes: list[str] = []
    unknown = {name for name in NAMES if not tables.is_known(name)}

    def collect(make: Callable[[], _Collector]) -> _Collector:
        collector, rows = make(), 0
        try:
            for batch in tables.scan(collector.table, collector.columns):
                rows += batch.num_rows
                if batch.num_rows:
                    collector.add(batch)
        except (TablesError, *_UNREADABLE) as error:
            reason = str(error) if isinstance(error, TablesError) else f"the table {collector.table} cannot be read: {error}"
            reason = reason.rstrip(".")  # who puts it into a sentence ends that
            empty[collector.table] = reason
            unknown.add(collector.table)
            notes.append(f"{reason[:1].upper()}{reason[1:]}. What it would tell is missing here.")
            return make()  # half of the rows would be wrong numbers
        if not rows:
            empty[collector.table] = tables.why_empty(collector.table)
        return collector

    moves = collect(Moves)
    candidates = top * CANDIDATES if moves.worst_skew_ms else top
    answers, flows = collect(lambda: Answers(candidates)), collect(lambda: Flows(candidates))
    found = _slowest(tables, flows, answers, moves, top)
    facts = Facts(
        path=tables.path.name or str(tables.path),
        run=tables.run,
        days=tables.days,
        since=tables.since,
        until=tables.until,
        seen=collect(Seen),
        moves=moves,
        links=collect(Links),
        answers=answers,
        flows=flows,
        slowest=found[:top],
        drawn=varied(found, top),
        expiries=collect(Expiries),
        signatures=collect(Signatures),
        rejects=collect(Rejects),
        empty=empty,
        unknown=unknown,
    )
    facts.notes = [*notes, *_notes(tables)]  # at the end: what is being changed may have begun meanwhile
    return facts


def _slowest(tables: Tables, flows: Flows, answers: Answers, moves: Moves, top: int) -> list[SlowFlow]:
    try:
        return slowest(tables, flows, answers.longest.rows, moves.skews, top)
    except (TablesError, *_UNREADABLE):  # said where the table itself is shown
        return []


def _notes(tables: Tables) -> list[str]:
    notes = []
    if tables.is_being_changed:
        notes.append(
            "A run of the pipeline was putting its results in place while this was read, or was stopped while doing so: "
            "some days may be newer than others. The next run puts that right."
        )
    for name, days in tables.owed().items():
        shown = f"{', '.join(days[:3])}{' and others' if len(days) > 3 else ''}"
        notes.append(f"The table {name} is not up to date for {shown}: run the pipeline without --only.")
    return notes
