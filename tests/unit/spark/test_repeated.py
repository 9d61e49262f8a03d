"""Repeated: what passes a place twice is found, whichever parts it is in and however they are compared."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopline.spark.repeated import keep, repeated, sift, stretch

SCHEMA = pa.schema(
    [
        ("message_uid", pa.binary()),
        ("occurrence", pa.int32()),
        ("node_key", pa.string()),
        ("hops", pa.int32()),
        ("tap", pa.string()),
        ("peer_key", pa.string()),
        ("distribution", pa.string()),
        ("origin_key", pa.string()),
    ]
)


def uid(number: int) -> bytes:
    return number.to_bytes(2, "big") * 8


ROWS = st.fixed_dictionaries(
    {
        "message_uid": st.integers(0, 5).map(uid),
        "occurrence": st.sampled_from([0, 0, 0, 0, 1]),
        "node_key": st.sampled_from(["n1", "n2", "n3"]),
        "hops": st.integers(0, 2),
        "tap": st.sampled_from(["wire_in", "wire_out", "hub_in"]),
        "peer_key": st.sampled_from([None, "", "p1", "p2"]),
        "origin_key": st.sampled_from([None, "", "o1"]),
        "distribution": st.sampled_from(["unicast", "broadcast"]),
    }
)


def place_of(row: dict) -> tuple:
    if row["distribution"] == "broadcast" and row["tap"] != "wire_out":
        has_sender = row["tap"] == "wire_in" and row["hops"] == 1 and row["origin_key"] is not None
        return row["node_key"], row["hops"], *((row["tap"], row["origin_key"]) if has_sender else ())
    return row["node_key"], row["hops"], row["tap"], row["peer_key"] or ""


def expected(rows: list[dict]) -> set[bytes]:
    passed = Counter((row["message_uid"], place_of(row)) for row in rows)
    twice = {uid for (uid, _), count in passed.items() if count > 1}
    return {each[:8] for each in twice | {row["message_uid"] for row in rows if row["occurrence"]}}


def write(folder: str, number: int, rows: list[dict]) -> str:
    path = str(Path(folder, f"{number}.parquet"))
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path, row_group_size=3)
    return path


@given(st.lists(st.lists(ROWS, max_size=8), max_size=4), st.integers(1, 3))
def test_whatever_the_parts_and_stretches_the_same_is_found(parts, count):
    with TemporaryDirectory() as folder:
        paths = [write(folder, number, rows) for number, rows in enumerate(parts)]
        wanted = expected([row for rows in parts for row in rows])
        assert set(repeated(map(sift, paths)).to_pylist()) == wanted
        kept = [keep(sift(path), folder) for path in paths]
        found = [repeated(stretch(path, number, count) for path in kept).to_pylist() for number in range(count)]
        assert {each for some in found for each in some} == wanted


def test_a_stretch_is_all_of_it_or_a_part(tmp_path):
    numbers = np.array([0, 1, 1 << 62, 1 << 63, (1 << 64) - 1], np.uint64)
    path = keep(np.stack([numbers, numbers]), str(tmp_path))
    assert stretch(path, 0, 1)[0].tolist() == numbers.tolist()
    assert [stretch(path, each, 2)[0].tolist() for each in range(2)] == [numbers[:3].tolist(), numbers[3:].tolist()]


def test_however_often_the_same_passes_it_is_held_twice(tmp_path):
    row = {"message_uid": uid(1), "occurrence": 7, "node_key": "n", "hops": 0, "tap": "wire_in", "distribution": "unicast"}
    path = write(str(tmp_path), 0, [row] * 1000 + [row | {"hops": 1, "occurrence": 0}])
    assert sift(path).shape == (2, 3)
    assert repeated([sift(path)]).to_pylist() == [uid(1)[:8]]


@pytest.mark.parametrize("again", [False, True])
def test_as_many_names_as_rows_are_told_apart(tmp_path, again):
    """In a batch in which all names differ, numbers of places would not fit if they were all counted through."""
    count = 1 << 16
    names = pa.array([f"n{number}" for number in range(count)])
    rows = pa.table(
        [
            pa.array([uid(number % 7) for number in range(count)]),
            pa.array(np.zeros(count, np.int32)),
            names,
            pa.array(np.arange(count, dtype=np.int32)),
            names,
            names,
            pa.array(["unicast"] * count),
            names,
        ],
        schema=SCHEMA,
    )
    if again:
        rows = pa.concat_tables([rows, rows.slice(count - 2, 1)])
    pq.write_table(rows, tmp_path / "part.parquet")
    assert repeated([sift(str(tmp_path / "part.parquet"))]).to_pylist() == [uid((count - 2) % 7)[:8]] * again
