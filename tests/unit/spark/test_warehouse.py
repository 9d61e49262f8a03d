"""The warehouse: a change is seen as a whole or not at all, wherever it is interrupted."""

from contextlib import suppress

import pytest

from hopline.errors import TablesError
from hopline.spark.state import State
from hopline.spark.warehouse import Change, Swap, Warehouse


class CrashError(Exception):
    """The process ends here."""


class Crashing:
    """Lets some steps pass, and then crashes."""

    def __init__(self, after=1 << 30):
        self.left = after
        self.seen = []

    def __call__(self, step):
        if not self.left:
            raise CrashError(step)
        self.left -= 1
        self.seen.append(step)


def contents(warehouse):
    """All that a reader of tables can see, and the state."""
    disk = warehouse.disk
    names = [name for name in disk.files(".") if not name.endswith("lock")]
    return {name: disk.read(name) for name in names}


def begin(path, on_step=lambda _: None):
    """Tables of two runs: the second one replaces a day, adds one, removes one, and adds a file."""
    warehouse = Warehouse(str(path), on_step)
    for name in ("flows/date=1/old", "flows/date=3/old", "hops/date=1/same", "_hopline/state.json"):
        warehouse.disk.write(name, b'{"run": "first"}')
    return warehouse, prepare(warehouse)


def prepare(warehouse):
    staging = warehouse.staging("second")
    for name in ("flows/date=1/new", "flows/date=2/new", "runs/new", "scratch"):
        warehouse.disk.write(f"{staging}/{name}", name.encode())
    swaps = [
        Swap("flows/date=1", f"{staging}/flows/date=1"),
        Swap("flows/date=2", f"{staging}/flows/date=2"),
        Swap("flows/date=3"),
        Swap("runs/new", f"{staging}/runs/new"),
    ]
    return Change("second", swaps, State(run="second"))


BEFORE = {"flows/date=1/old", "flows/date=3/old", "hops/date=1/same", "_hopline/state.json"}
AFTER = {"flows/date=1/new", "flows/date=2/new", "hops/date=1/same", "runs/new", "_hopline/state.json"}


@pytest.fixture
def undisturbed(tmp_path):
    crashing = Crashing()
    warehouse, change = begin(tmp_path / "undisturbed", crashing)
    warehouse.commit(change)
    assert set(contents(warehouse)) == AFTER
    return contents(warehouse), crashing.seen


def test_a_commit_changes_what_it_says_and_nothing_else(tmp_path, undisturbed):
    expected, _ = undisturbed
    assert expected["flows/date=1/new"] == b"flows/date=1/new"
    assert Warehouse(str(tmp_path / "undisturbed")).state() == State(run="second")


def test_a_crash_at_any_step_is_made_up_for(tmp_path, undisturbed):
    expected, steps = undisturbed
    assert len(steps) == 9
    for number, step in enumerate(steps):
        path = tmp_path / str(number)
        warehouse, change = begin(path, Crashing(number))
        with pytest.raises(CrashError):
            warehouse.commit(change)
        again = Warehouse(str(path))
        was_begun = again.recover()
        if step == "journal":  # nobody knows of it: all is as before
            assert not was_begun
            assert set(contents(again)) == BEFORE
            again.commit(prepare(again))
        assert contents(again) == expected, step
        assert not again.recover()


def test_crash_after_crash_is_made_up_for(tmp_path, undisturbed):
    expected, steps = undisturbed
    path = tmp_path / "again"
    warehouse, change = begin(path, Crashing(1))
    with pytest.raises(CrashError):
        warehouse.commit(change)
    for number in range(len(steps)):
        with suppress(CrashError):
            Warehouse(str(path), Crashing(number)).recover()
    assert contents(Warehouse(str(path))) == expected


def test_what_a_crash_left_in_staging_is_cleared_away(tmp_path):
    warehouse, _ = begin(tmp_path)
    with warehouse.only_me("run"):
        assert set(contents(warehouse)) == BEFORE


def test_one_run_at_a_time(tmp_path):
    warehouse = Warehouse(str(tmp_path))
    other = Warehouse(str(tmp_path))
    with warehouse.only_me("stream"), pytest.raises(TablesError, match="stream by process") as caught, other.only_me("run"):
        pass
    assert caught.value.code == "TABLES_BUSY"


def test_there_is_no_state_before_the_first_commit(tmp_path):
    assert Warehouse(str(tmp_path / "new")).state() is None
    assert not (tmp_path / "new").exists()


def test_tables_whose_state_is_gone_are_not_begun_anew(tmp_path):
    warehouse = Warehouse(str(tmp_path))
    warehouse.disk.write("_hopline/lock", b"")
    warehouse.disk.write("messages/date=2026-11-15/part-r-00000.parquet", b"")
    with pytest.raises(TablesError, match=r"state\.json is missing") as caught, warehouse.only_me("run"):
        warehouse.state()
    assert caught.value.code == "TABLES_BAD_STATE"


def test_a_first_run_that_was_killed_is_begun_anew(tmp_path):
    warehouse = Warehouse(str(tmp_path))
    for name in ("_hopline/lock", f"{warehouse.staging('r')}/messages/part.parquet", "_hopline/facts/part.parquet"):
        warehouse.disk.write(name, b"")
    with warehouse.only_me("run"):
        assert warehouse.state() is None


@pytest.mark.parametrize("what", ["file", "full", "s3://bucket/tables"])
def test_a_folder_that_is_not_ours_is_left_alone(tmp_path, what):
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("")
    with pytest.raises(TablesError) as caught:
        Warehouse(what if "://" in what else str(tmp_path / what))
    assert caught.value.code == "TABLES_NOT_OURS"


@pytest.mark.parametrize("name", ["state.json", "journal.json"])
def test_a_broken_account_is_no_reason_to_guess(tmp_path, name):
    warehouse = Warehouse(str(tmp_path))
    warehouse.disk.write(f"_hopline/{name}", b"{")
    with pytest.raises(TablesError) as caught, warehouse.only_me("run"):
        warehouse.state()
    assert caught.value.code == "TABLES_BAD_STATE"


def test_a_disk_that_refuses_is_said(tmp_path):
    (tmp_path / "_hopline").mkdir()
    (tmp_path / "_hopline" / "lock").mkdir()
    with pytest.raises(TablesError, match="cannot write to") as caught, Warehouse(str(tmp_path)).only_me("run"):
        pass
    assert caught.value.code == "TABLES_CANNOT_WRITE"
