"""The tables, as a report reads them: batch by batch, the columns it asks for, and only what is committed.

    TABLES/_hopline/state.json      says which days of which tables are done; what it does not name is not read
    TABLES/_hopline/journal.json    is there while a run puts its days in place, or was stopped while doing so
    TABLES/flows/date=.../*.parquet

A run may be at work meanwhile. Files never change once they have their names, but a day may be replaced: then its files are
gone, `scan` raises ChangedError, and whoever reads begins again. Neither Spark nor Java is needed.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hopline.errors import TablesError

STATE_VERSION: Final = 1
"""The last version of the state that is understood here."""

NAMES: Final = ("messages", "rejects", "hops", "callbacks", "flows", "edges", "expiries", "signatures", "routes")

_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)

_BATCH_ROWS: Final = 1 << 17
"""Rows that are held at once, whatever the size of the table."""

_BUFFER_BYTES: Final = 1 << 20

_TEXT, _COUNT, _REAL, _TIME = pa.string(), pa.int64(), pa.float64(), pa.timestamp("us", "UTC")
_LENGTH: Final = pa.duration("us")
_TYPES: Final = {
    **dict.fromkeys(("messages", "sightings", "bytes", "errors", "expired", "sent", "in_time", "late"), _COUNT),
    **dict.fromkeys(("expired_in_flight", "invalid_signatures", "nodes", "callbacks_pending"), _COUNT),
    **dict.fromkeys(("seen_at", "sent_at", "received_at", "requested_at", "resolved_at"), _TIME),
    **dict.fromkeys(("started_at", "ended_at", "minute", "hour"), _TIME),
    **dict.fromkeys(("latency_ms", "skew_ms", "wait_ms", "duration_ms", "completeness", "ttl_ms", "budget_used_p95"), _REAL),
    **dict.fromkeys(("encoded", "asker_captured"), pa.bool_()),
    **dict.fromkeys(("exemplars", "covered", "uncovered"), pa.list_(_TEXT)),
    **dict.fromkeys(("message_uid", "request_uid"), pa.binary()),
}
"""Types of columns by name; all others are texts. `lost` is a flag of a hop, and a number of an edge."""

_TIMES: Final = {
    "messages": ("seen_at",),
    "rejects": ("seen_at",),
    "hops": ("sent_at", "received_at"),
    "callbacks": ("requested_at", "resolved_at"),
    "flows": ("started_at",),
    "edges": ("minute",),
    "expiries": ("hour",),
    "signatures": ("hour",),
}
"""The column that says when a row happened; the second one where the first is null."""

_LASTS: Final = {"edges": timedelta(minutes=1), "expiries": timedelta(hours=1), "signatures": timedelta(hours=1)}
"""How long what a row sums up goes on from there; rows of other tables are of a moment."""


_LEFT_OUT: Final = "--only"
"""What a reason names if a run was told not to make a table."""


class ChangedError(Exception):
    """Something that was to be read has been replaced meanwhile."""


class _State(msgspec.Struct, frozen=True):
    """The part of the state that a reader needs."""

    version: int = STATE_VERSION
    run: str = ""
    made: dict[str, dict[str, int]] = {}


class Tables:
    """A folder of tables as it is now.

    Args:
        path: the folder.
        since: only what happened then or later. A row of a minute or an hour is one whole: it counts if a part of it does.
        until: only what happened before.

    Raises:
        TablesError: there are no tables, or they cannot be understood.
    """

    def __init__(self, path: Path, since: datetime | None = None, until: datetime | None = None) -> None:
        self.path = path
        self.since, self.until = since, until
        self._state = self._read_state()
        self._files = {name: list(self._find(name)) for name in NAMES}

    @property
    def run(self) -> str:
        """The run that brought the tables to where they are; empty if there was none."""
        return self._state.run

    @property
    def days(self) -> list[str]:
        """The days that there are messages of."""
        return sorted(self._state.made.get("messages", {}))

    @cached_property
    def is_being_changed(self) -> bool:
        """Whether a run is putting its days in place, or was stopped while doing so."""
        return (self.path / "_hopline" / "journal.json").exists()

    def is_as_it_was(self) -> bool:
        """Whether no run has committed since; raises TablesError."""
        return self._read_state() == self._state

    def is_made(self, table: str) -> bool:
        """Whether a run has made the table, with rows or without."""
        return table in self._state.made

    def is_known(self, table: str) -> bool:
        """Whether anything in the table is up to date: it was made, and not left behind with all of its days."""
        days = [day for day in self.days if self._is_wanted(day)]
        return self.is_made(table) and (not days or self.owed().get(table) != days)

    def owed(self) -> dict[str, list[str]]:
        """Days that there are messages of, and that a table which was made lacks: runs with --only have left it behind."""
        days = [day for day in self.days if self._is_wanted(day)]
        lacking = {
            name: [day for day in days if day not in made] for name, made in self._state.made.items() if name in _TIMES
        }
        return {name: lacked for name, lacked in lacking.items() if lacked}

    def why_empty(self, table: str) -> str:
        """Why there is nothing to read of a table: a sentence without its full stop."""
        if not self.is_made(table):
            reason = self._reasons.get(table)
            if reason and _LEFT_OUT not in reason:  # a run was to make it, and there was nothing to make it of
                return reason
            return f"the table {table} was not made; `hopline pipeline run` without --only makes it"
        if not self.is_known(table):
            return f"the table {table} is not up to date; `hopline pipeline run` without --only makes it anew"
        if any(self._is_wanted(day) for day in self._state.made[table]) and not self._files[table]:
            return f"the files of the table {table} were deleted"
        if sum(self._state.made[table].values()) and (self.since or self.until):
            return f"the table {table} has no rows of the time that was asked for"
        return self._reasons.get(table) or f"the table {table} has no rows"

    def scan(self, table: str, columns: Sequence[str], flows: Iterable[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Read some columns of a table.

        Args:
            table: its name.
            columns: which. One that a file does not have is null.
            flows: only rows of flows with these keys.

        Raises:
            ChangedError: a day was replaced meanwhile.
            TablesError: a file is damaged, or cannot be read.
        """
        times = _TIMES.get(table, ()) if self.since or self.until else ()
        wanted = pa.schema([(name, _type_of(table, name)) for name in dict.fromkeys((*columns, *times))])
        keys = None if flows is None else pa.array(flows, _TEXT)
        try:
            for path in self._files[table]:
                for batch in _batches(path, wanted):
                    chosen = batch if keys is None else batch.filter(pc.is_in(batch["correlation_key"], keys))
                    yield self._within(chosen, times, _LASTS.get(table)).select(list(columns))
        except FileNotFoundError as error:
            raise ChangedError(table) from error
        except (pa.ArrowException, OSError) as error:
            reason = " ".join(str(error).split())
            raise TablesError("TABLES_CANNOT_READ", f"the table {table} cannot be read: {reason}") from error

    # --- where things are ---------------------------------------------------------------------------------------------

    def _read_state(self) -> _State:
        try:
            state = msgspec.json.decode((self.path / "_hopline" / "state.json").read_bytes(), type=_State)
        except (FileNotFoundError, NotADirectoryError):
            raise TablesError("TABLES_NOT_FOUND", f"{self.path} has no tables in it") from None
        except OSError as error:
            raise TablesError("TABLES_CANNOT_READ", f"cannot read {self.path}: {error.strerror or error}") from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise TablesError("TABLES_BAD_STATE", f"the state of the tables cannot be read: {error}") from None
        if state.version > STATE_VERSION:
            reason = f"the tables are of version {state.version}, and {STATE_VERSION} is the last one known here"
            raise TablesError("TABLES_BAD_STATE", reason)
        return state

    def _find(self, table: str) -> Iterator[Path]:
        """The files of the days that are committed, and lie in the time that was asked for."""
        for day in sorted(self._state.made.get(table, {})):
            if self._is_wanted(day):
                folder = self.path / table / f"date={day}" if day else self.path / table
                yield from sorted(folder.glob("*.parquet"))

    def _is_wanted(self, day: str) -> bool:
        if not day:
            return True
        if not _DAY.fullmatch(day):  # it comes from a file, and must not lead elsewhere
            return False
        since = self.since.astimezone(UTC).date().isoformat() if self.since else ""
        until = self.until.astimezone(UTC).date().isoformat() if self.until else "9999"
        return since <= day <= until

    def _within(self, batch: pa.RecordBatch, times: Sequence[str], lasts: timedelta | None) -> pa.RecordBatch:
        """Rows of the time that was asked for."""
        if not times:
            return batch
        moment = pc.coalesce(*(batch[name] for name in times))
        if self.since is not None:
            since = pa.scalar(self.since, _TIME)
            # By Arrow, and not by Python, whose calendar begins with the year 1.
            inside = (
                pc.greater(moment, pc.subtract(since, pa.scalar(lasts, _LENGTH)))
                if lasts
                else pc.greater_equal(moment, since)
            )
            batch, moment = batch.filter(inside), moment.filter(inside)
        if self.until is not None:
            batch = batch.filter(pc.less(moment, pa.scalar(self.until, _TIME)))
        return batch

    @cached_property
    def _reasons(self) -> dict[str, str]:
        """Why tables are empty, as the last run that spoke of them says."""
        wanted = pa.schema([(name, _type_of("runs", name)) for name in ("table", "started_at", "empty_reason")])
        rows: list[dict[str, Any]] = []
        try:
            for path in (self.path / "runs").glob("*.parquet"):
                for batch in _batches(path, wanted):
                    rows += batch.to_pylist()
        except (pa.ArrowException, OSError, OverflowError):  # a reason that cannot be read is none
            return {}
        told = [row for row in rows if row["table"] and row["started_at"]]
        return {row["table"]: row["empty_reason"] for row in sorted(told, key=lambda row: row["started_at"])}


def _batches(path: Path, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a file, with the columns that are wanted, whatever it has itself."""
    # Not by a dataset: it reads so far ahead that memory grows with the size of the files.
    with pq.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER_BYTES) as file:
        known = [name for name in wanted.names if name in file.schema_arrow.names]
        for batch in file.iter_batches(_BATCH_ROWS, columns=known):
            nothing = pa.nulls(batch.num_rows)
            columns = [(batch[field.name] if field.name in known else nothing).cast(field.type) for field in wanted]
            yield pa.record_batch(columns, schema=wanted)


def _type_of(table: str, name: str) -> pa.DataType:
    if name == "lost":
        return _COUNT if table == "edges" else pa.bool_()
    return _TYPES.get(name, _TEXT)
