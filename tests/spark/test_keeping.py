"""Keeping: what is kept is not worked out again."""

import os

import pyarrow as pa
import pytest

from hopline.spark.keeping import as_it_is, in_memory, is_local, on_disk


def new_bytes(batches):
    """Other bytes each time that somebody asks."""
    for batch in batches:
        yield pa.record_batch({"id": batch["id"], "bytes": pa.array([os.urandom(8) for _ in range(len(batch))])})


@pytest.fixture
def rows(spark):
    return spark.range(3).mapInArrow(new_bytes, "id bigint, bytes binary")


def twice(rows):
    return [sorted((row.id, bytes(row.bytes)) for row in rows.collect()) for _ in range(2)]


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_what_is_kept_is_worked_out_once(rows, tmp_path, place):
    keep = in_memory if place == "memory" else on_disk(lambda name: str(tmp_path / name), "snappy")
    kept = keep("some [1] {a} *", rows)
    assert kept.schema == rows.schema
    first, second = twice(kept)
    assert first == second
    assert len(first) == 3
    assert [file.name for file in tmp_path.iterdir()] == ([] if place == "memory" else ["some [1] {a} *"])


def test_without_keeping_it_is_worked_out_at_each_mention(rows):
    first, second = twice(as_it_is("some", rows))
    assert first != second


def test_a_session_on_this_machine_is_local(spark):
    assert is_local(spark)
