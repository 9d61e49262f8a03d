"""The table `runs`: what each run did, and why a table is empty."""

from datetime import UTC, datetime

import pyarrow.parquet as pq
import pytest

from hopline.spark.disk import Disk
from hopline.spark.runs import RUNS, Found, Row, empty_reason, write_runs

NOW = datetime(2026, 11, 15, 18, tzinfo=UTC)


@pytest.mark.parametrize(
    ("table", "messages", "found", "reason"),
    [
        ("messages", 0, Found(0, 0), "no segments"),
        ("flows", 0, Found(3, 0), "no records yet"),
        ("flows", 0, Found(3, 7), "none of the 7 records is a message"),
        ("flows", 0, Found(3, 0, is_bounded=True), "in the time that was asked for"),
        ("rejects", 5, Found(3, 0), "every record is a message"),
        ("rejects", 0, Found(0, 0), "no segments"),
        ("expiries", 5, Found(3, 0), "no message has a TTL"),
        ("hops", 5, Found(3, 0), "seen to move"),
        ("callbacks", 5, Found(3, 0), "nobody asked"),
        ("flows", 5, Found(3, 0), "starts a flow"),
        ("edges", 5, Found(3, 0), "none was answered"),
        ("signatures", 5, Found(3, 0), "nothing is signed"),
        ("routes", 5, Found(3, 0), "announced"),
    ],
)
def test_an_empty_table_says_why(table, messages, found, reason):
    assert reason in empty_reason(table, messages, found)


def test_what_was_left_out_says_so():
    assert empty_reason("flows", 5, Found(1, 0), is_left_out=True) == "it was left out by --only"


def test_runs_of_a_day_are_in_one_file(tmp_path):
    disk = Disk(tmp_path)
    for number in range(2):
        rows = [Row(f"r{number}", "run", NOW, 1.5, 10, table, 4, 1, None) for table in ("messages", "flows")]
        target, new = write_runs(rows, disk, "staging", NOW)
        disk.remove(target)
        disk.move(new, target)
    assert disk.files("runs") == ["runs/part-20261115.parquet"]
    table = pq.read_table(tmp_path / "runs")
    assert table.schema.names == list(RUNS.names)
    assert table["run_id"].to_pylist() == ["r0", "r0", "r1", "r1"]
    assert table["started_at"].to_pylist() == [NOW] * 4
