"""The warehouse: one folder of tables, how a change of it becomes visible, and what a crash leaves behind.

    TABLES/flows/date=2026-11-15/part-<run>-00000.parquet   a table: folders of Parquet, for everybody to read at any time
    TABLES/routes/part-<run>-00000.parquet                  a table without days
    TABLES/_hopline/state.json                              what was taken, and what was made of it (`state.py`)
    TABLES/_hopline/facts/...                               what only bodies say, read once (`facts.py`); Parquet too
    TABLES/_hopline/journal.json                            a change that is being made
    TABLES/_hopline/staging/<run>/...                       what a run is still working at
    TABLES/_hopline/lock                                    who is at it

Theory of operation. A run works in its staging folder and touches nothing else. Then it commits: it writes down in the
journal what is to be moved where, and what the state is afterwards; moves; replaces the state; and removes journal and
staging. Moves are by folder, a day of a table at once, so that nobody finds half a day. Each step can be repeated, so a
journal that is found is simply done again from its start. The moment the journal has its name decides: before it a crash
leaves the tables as they were, and after it the next run finishes the change.

Who reads while a day is replaced may miss it for the instant between two renames, as with any folder of files; no file ever
changes once it has its name. This file knows neither Spark nor what the tables mean.
"""

import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from hopline.errors import TablesError
from hopline.spark.disk import Disk
from hopline.spark.state import State, read_state, write_state

OWN: Final = "_hopline"
"""Our own folder among those of the tables. Readers of Parquet leave out names that begin so."""

_STATE, _JOURNAL, _LOCK, _STAGING = (f"{OWN}/{name}" for name in ("state.json", "journal.json", "lock", "staging"))

OnStep = Callable[[str], None]
"""Is told the name of each step of a commit before it is made."""


class Swap(msgspec.Struct, frozen=True):
    """A file or folder that takes the place of another one, or of none; without a `new` one the old one goes."""

    target: str
    new: str = ""


class Change(msgspec.Struct, frozen=True):
    """What a commit does: swaps, and the state afterwards."""

    run: str
    swaps: list[Swap]
    state: State


_journals: Final = msgspec.json.Decoder(Change)


def no_step(_name: str) -> None:
    """Nobody wants to know."""


def new_run(now: datetime) -> str:
    """The name of a run: sorted by name, runs are in the order in which they began. It is in the names of their files.

    >>> len(new_run(datetime(2026, 11, 15, tzinfo=UTC)))
    22
    """
    return f"{now.astimezone(UTC):%Y%m%dT%H%M%S}-{os.urandom(3).hex()}"


class Warehouse:
    """A folder of tables.

    Args:
        path: the folder, made if it is not there.
        on_step: is told each step of a commit; what it raises stops there, as a crash would.

    Raises:
        TablesError: it cannot be one of ours.
    """

    def __init__(self, path: str, on_step: OnStep = no_step) -> None:
        if "://" in path:
            raise TablesError("TABLES_NOT_OURS", f"tables lie in a local folder, or one that is mounted; {path} is neither")
        self.disk = Disk(Path(path))
        self._on_step = on_step
        root = self.disk.root
        if root.exists() and not root.is_dir():
            raise TablesError("TABLES_NOT_OURS", f"{path} is no folder")
        if root.is_dir() and any(root.iterdir()) and not self.disk.exists(OWN):
            raise TablesError("TABLES_NOT_OURS", f"{path} is not empty, and what is in it are no tables")

    def path_of(self, name: str) -> str:
        """Where something in it is."""
        return str(self.disk.path_of(name))

    def state(self) -> State | None:
        """What the tables say of themselves; None if there are none yet. Raises TablesError."""
        with _as_tables_error(self.disk):
            data = self.disk.read(_STATE)
            if data is None:
                self._check_that_nothing_was_made()
        return None if data is None else read_state(data)

    def _check_that_nothing_was_made(self) -> None:
        """Raise TABLES_BAD_STATE if there are rows, and nobody knows what was taken: they would be made a second time."""
        for table in self.disk.folders("."):
            if table != OWN and self.disk.files(table, ".parquet"):
                reason = f"{self.disk} holds tables, and {_STATE} is missing, which says what was taken into them"
                advice = f"restore the folder {OWN} from a copy, or make the tables anew in another folder"
                raise TablesError("TABLES_BAD_STATE", f"{reason}: {advice}")

    @contextmanager
    def only_me(self, mode: str) -> Iterator[None]:
        """Keep all others out, and put in order what a crash has left; raises TablesError, TABLES_BUSY and others."""
        owner = f"{mode} by process {os.getpid()} on {platform.node()}, begun {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
        with _as_tables_error(self.disk):
            lock = self.disk.only_me(_LOCK, owner)
            lock.__enter__()
        try:
            self.recover()
            yield
        finally:
            lock.__exit__(None, None, None)

    def recover(self) -> bool:
        """Finish a change that a crash has interrupted, and clear away what was never to be seen; whether there was one."""
        with _as_tables_error(self.disk):
            journal = self.disk.read(_JOURNAL)
            if journal is not None:
                try:
                    change = _journals.decode(journal)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                    raise TablesError("TABLES_BAD_STATE", f"the journal of the tables cannot be read: {error}") from None
                self._perform(change)
            self.disk.clear(_STAGING)
        return journal is not None

    def staging(self, run: str) -> str:
        """The folder in which a run works."""
        return f"{_STAGING}/{run}"

    def commit(self, change: Change) -> None:
        """Make a change, whatever happens meanwhile: this one or the next run does it. Raises TablesError."""
        with _as_tables_error(self.disk):
            for swap in change.swaps:
                if swap.new:
                    self.disk.sync(swap.new)
            self._on_step("journal")
            self.disk.write(_JOURNAL, msgspec.json.encode(change))
            self._perform(change)

    def _perform(self, change: Change) -> None:
        for swap in change.swaps:
            self._swap(swap, f"{self.staging(change.run)}/replaced")
        for folder in sorted({".", *(str(Path(swap.target).parent) for swap in change.swaps)}):
            self.disk.sync_names(folder)
        self._on_step("state")
        self.disk.write(_STATE, write_state(change.state))
        self._on_step("end of the journal")
        self.disk.remove(_JOURNAL)
        self._on_step("clearing away")
        self.disk.clear(_STAGING)

    def _swap(self, swap: Swap, replaced: str) -> None:
        if swap.new and not self.disk.exists(swap.new):
            return  # done already, before a crash
        if self.disk.exists(swap.target):
            self._on_step(f"removal of {swap.target}")
            self.disk.move(swap.target, f"{replaced}/{swap.target}")
        if swap.new:
            self._on_step(f"arrival of {swap.target}")
            self.disk.move(swap.new, swap.target)


@contextmanager
def _as_tables_error(disk: Disk) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise TablesError("TABLES_CANNOT_WRITE", f"cannot write to {disk}: {reason}") from error
