"""Reading tables: what is committed, and nothing else."""

import shutil
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hopline.errors import TablesError
from hopline.report.read.tables import NAMES, STATE_VERSION, ChangedError, Tables
from hopline.spark import state as spark_state
from hopline.spark.tables import TABLES
from tests.report.tables import START, at, write_tables

DAY = timedelta(days=1)


def flow(key, started_at, **more):
    return {"correlation_key": key, "started_at": started_at, "duration_ms": 1.0} | more


def keys(tables, columns=("correlation_key",), **more):
    return sorted(row["correlation_key"] for batch in tables.scan("flows", columns, **more) for row in batch.to_pylist())


@pytest.fixture
def two_days(tmp_path):
    return write_tables(tmp_path, {"flows": [flow("one", START), flow("two", START + DAY)]})


def test_it_knows_what_the_pipeline_knows():
    assert tuple(table.name for table in TABLES) == NAMES
    assert spark_state.VERSION == STATE_VERSION


def test_all_days(two_days):
    assert keys(Tables(two_days)) == ["one", "two"]


def test_a_day_that_the_state_does_not_name_is_not_read(two_days):
    other = two_days / "flows" / "date=2026-11-20"
    shutil.copytree(two_days / "flows" / "date=2026-11-15", other)
    assert keys(Tables(two_days)) == ["one", "two"]


def test_what_a_run_is_still_working_at_is_not_read(two_days):
    shutil.copytree(two_days / "flows", two_days / "_hopline" / "staging" / "run" / "tables" / "flows")
    assert keys(Tables(two_days)) == ["one", "two"]


def test_a_state_leads_nowhere_else(two_days, tmp_path_factory):
    elsewhere = write_tables(tmp_path_factory.mktemp("other"), {"flows": [flow("foreign", START)]})
    path = f"../../../{elsewhere.name}/flows/date=2026-11-15"
    state = spark_state.State(made={"flows": {"2026-11-15": 1, f"x/{path}": 1}})
    (two_days / "flows" / "date=x").mkdir()
    assert (two_days / "flows" / f"date=x/{path}").exists(), "the way out is there"
    (two_days / "_hopline" / "state.json").write_bytes(spark_state.write_state(state))
    assert keys(Tables(two_days)) == ["one"]


@pytest.mark.parametrize(
    ("since", "until", "found"),
    [
        (None, START, []),
        (START, None, ["one", "two"]),
        (at(1), None, ["two"]),
        (None, at(1), ["one"]),
        (START, START + DAY, ["one"]),
        (START + 2 * DAY, None, []),
    ],
)
def test_some_time(two_days, since, until, found):
    assert keys(Tables(two_days, since, until)) == found


def test_a_row_without_its_first_time_counts_by_its_second(tmp_path):
    hops = [{"correlation_key": "a", "sent_at": None, "received_at": at(5)}, {"correlation_key": "b", "sent_at": at(50)}]
    tables = Tables(write_tables(tmp_path, {"hops": hops}), at(1), at(10))
    assert [row["correlation_key"] for batch in tables.scan("hops", ["correlation_key"]) for row in batch.to_pylist()] == [
        "a"
    ]


def test_some_flows(two_days):
    assert keys(Tables(two_days), flows=["two", "three"]) == ["two"]


def test_a_column_of_a_later_version_is_null(tmp_path):
    tables = write_tables(tmp_path, {"flows": [flow("one", START)]})
    file = next((tables / "flows").rglob("*.parquet"))
    old = pq.read_table(file).drop_columns(["completeness"])
    pq.write_table(old.set_column(0, "correlation_key", old["correlation_key"].cast(pa.large_string())), file)
    (batch,) = Tables(tables).scan("flows", ["correlation_key", "completeness"])
    assert batch.to_pylist() == [{"correlation_key": "one", "completeness": None}]
    assert batch.schema.field("correlation_key").type == pa.string()


def test_a_day_that_is_replaced_meanwhile(two_days):
    tables = Tables(two_days)
    shutil.rmtree(two_days / "flows" / "date=2026-11-16")
    with pytest.raises(ChangedError):
        keys(tables)


def test_whether_a_run_has_committed(two_days):
    tables = Tables(two_days)
    assert (tables.is_as_it_was(), tables.is_being_changed) == (True, False)
    write_tables(two_days, {}, run="20261117T000000-000000")
    (two_days / "_hopline" / "journal.json").write_text("{}")
    assert (tables.is_as_it_was(), Tables(two_days).is_being_changed) == (False, True)


@pytest.mark.parametrize(
    ("break_it", "code"),
    [
        (shutil.rmtree, "TABLES_NOT_FOUND"),
        (lambda path: (path / "_hopline" / "state.json").unlink(), "TABLES_NOT_FOUND"),
        (lambda path: (path / "_hopline" / "state.json").write_text("[["), "TABLES_BAD_STATE"),
        (lambda path: (path / "_hopline" / "state.json").write_text('{"version": 99}'), "TABLES_BAD_STATE"),
        (lambda path: (path / "_hopline" / "state.json").write_bytes(b"[" * 100_000), "TABLES_BAD_STATE"),
    ],
)
def test_no_tables(two_days, break_it, code):
    break_it(two_days)
    with pytest.raises(TablesError) as error:
        Tables(two_days)
    assert error.value.code == code


def test_a_file_in_the_place_of_the_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TablesError) as error:
        Tables(tmp_path / "file")
    assert error.value.code == "TABLES_NOT_FOUND"


def damaged(path: Path, how):
    file = next(path.rglob("*.parquet"))
    file.write_bytes(how(file.read_bytes()))


@pytest.mark.parametrize(
    "how", [lambda data: b"", lambda data: data[:-20], lambda data: data[:40] + b"\xff" * 60 + data[100:]]
)
def test_a_damaged_file(two_days, how):
    damaged(two_days / "flows", how)
    with pytest.raises(TablesError) as error:
        keys(Tables(two_days))
    assert error.value.code == "TABLES_CANNOT_READ"
    assert "flows" in str(error.value)


class TestWhyEmpty:
    def test_not_made(self, tmp_path):
        tables = Tables(write_tables(tmp_path, {}, made=["messages"]))
        assert "flows was not made" in tables.why_empty("flows")

    def test_as_the_run_says(self, tmp_path):
        tables = Tables(write_tables(tmp_path, {}, reasons={"expiries": "no message has a TTL"}))
        assert tables.why_empty("expiries") == "no message has a TTL"
        assert tables.why_empty("rejects") == "the table rejects has no rows"

    def test_deleted(self, two_days):
        shutil.rmtree(two_days / "flows")
        assert "deleted" in Tables(two_days).why_empty("flows")

    def test_another_time(self, two_days):
        assert "time that was asked for" in Tables(two_days, START + 9 * DAY).why_empty("flows")

    def test_runs_that_cannot_be_read(self, tmp_path):
        tables = write_tables(tmp_path, {}, reasons={"expiries": "no message has a TTL"})
        damaged(tables / "runs", lambda data: b"PAR1")
        assert Tables(tables).why_empty("expiries") == "the table expiries has no rows"
