"""Parts: what a worker writes is whole or not there, is cut by days, and can be bound with changes. No Spark needed."""

from datetime import date, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hopline.spark.parts import FULL, Change, Source, Span, bind, write_parts

SCHEMA = pa.schema(
    [("event_id", pa.string()), ("seen_ns", pa.int64()), ("trail", pa.list_(pa.string())), ("occurrence", pa.int32())]
)
FIRST = date(2026, 11, 15)


def batch(first, count, day=FIRST):
    numbers = range(first, first + count)
    return pa.record_batch(
        {
            "event_id": [f"s:{number}" for number in numbers],
            "seen_ns": pa.array(numbers, pa.int64()),
            "trail": [["a", str(number)] for number in numbers],
            "date": pa.array([day] * count, pa.date32()),
        }
    )


def rows_of(path):
    return pq.read_table(path, partitioning=None).to_pylist()


def part(folder, first, count):
    batches = [batch(at, min(50_000, first + count - at)) for at in range(first, first + count, 50_000)]
    ((_, name),) = write_parts(batches, str(folder), SCHEMA, {"occurrence": 0})
    return str(folder / name)


def change(columns, rows):
    schema = pa.schema([("source", pa.int32()), ("row", pa.int64()), *((name, SCHEMA.field(name).type) for name in columns)])
    return Change(columns, pa.Table.from_pylist(rows, schema))


def test_rows_go_to_their_days_and_what_they_lack_is_given(tmp_path):
    days = [FIRST, FIRST + timedelta(days=1)]
    mixed = pa.concat_batches([batch(0, 2, days[0]), batch(2, 3, days[1]), batch(5, 1, days[0])])
    written = write_parts([mixed, batch(6, 1, days[1])], str(tmp_path), SCHEMA, {"occurrence": 7})
    found = {day: rows_of(tmp_path / name) for day, name in written}
    assert {day: [row["seen_ns"] for row in rows] for day, rows in found.items()} == {
        "2026-11-15": [0, 1, 5],
        "2026-11-16": [2, 3, 4, 6],
    }
    assert found["2026-11-15"][0] == {"event_id": "s:0", "seen_ns": 0, "trail": ["a", "0"], "occurrence": 7}


def test_any_number_of_days_is_written_with_few_files_open(tmp_path):
    batches = [batch(number, 1, FIRST + timedelta(days=number % 40)) for number in range(120)]
    written = write_parts(batches, str(tmp_path), SCHEMA, {})
    assert len({day for day, _ in written}) == 40
    assert sorted(row["seen_ns"] for _, name in written for row in rows_of(tmp_path / name)) == list(range(120))


def test_a_day_of_many_rows_is_several_parts(tmp_path):
    large = batch(0, FULL // 2)
    written = write_parts([large] * 5, str(tmp_path), SCHEMA, {})
    assert sorted(pq.read_metadata(tmp_path / name).num_rows for _, name in written) == [FULL // 2, FULL, FULL]


def test_what_fails_leaves_nothing(tmp_path):
    def batches():
        yield batch(0, 3)
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        write_parts(batches(), str(tmp_path), SCHEMA, {})
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_who_writes_the_same_again_disturbs_nobody(tmp_path):
    first, second = (write_parts([batch(0, 3)], str(tmp_path), SCHEMA, {}) for _ in range(2))
    assert first != second
    assert rows_of(tmp_path / first[0].name) == rows_of(tmp_path / second[0].name)


def test_parts_are_bound_with_changes_within_a_time(tmp_path):
    one, two = part(tmp_path, 0, 4), part(tmp_path, 10, 4)
    changes = [
        change(("occurrence",), [{"source": 0, "row": 1, "occurrence": 5}, {"source": 1, "row": 2, "occurrence": 6}]),
        change(("trail", "event_id"), [{"source": 0, "row": 3, "trail": ["b"], "event_id": None}]),
    ]
    sources = [Source(one, is_whole=True), Source(two, is_whole=False)]
    found = rows_of(tmp_path / bind(sources, Span(11, 12), changes, str(tmp_path), SCHEMA))
    assert [(row["seen_ns"], row["occurrence"]) for row in found] == [(0, 0), (1, 5), (2, 0), (3, 0), (11, 0), (12, 6)]
    assert [row["trail"] for row in found[2:5]] == [["a", "2"], ["b"], ["a", "11"]]
    assert found[3]["event_id"] is None


def test_changes_reach_rows_of_every_group(tmp_path):
    count = 250_000
    path = part(tmp_path, 0, count)
    assert pq.ParquetFile(path).num_row_groups > 1
    rows = [{"source": 0, "row": row, "occurrence": row} for row in (0, 65_535, 65_536, 131_072, count - 1)]
    name = bind([Source(path, is_whole=True)], Span(0, 0), [change(("occurrence",), rows)], str(tmp_path), SCHEMA)
    found = pq.read_table(tmp_path / name)["occurrence"].to_pylist()
    assert {row: number for row, number in enumerate(found) if number} == {
        row["row"]: row["row"] for row in rows if row["row"]
    }


def test_a_part_of_before_there_was_a_column_has_null_in_it(tmp_path):
    path = part(tmp_path, 0, 2)
    schema = SCHEMA.append(pa.field("wire_trail", pa.list_(pa.string())))
    name = bind([Source(path, is_whole=True)], Span(0, 9), [], str(tmp_path), schema)
    assert [row["wire_trail"] for row in rows_of(tmp_path / name)] == [None, None]
