"""How many parts the work of a run is given, and when it is so little that Spark does without the usual."""

import pytest

from hopline.spark.run import FOR_LITTLE, settings_for

MIB = 1024 * 1024


@pytest.mark.parametrize(("size", "rows"), [(0, 0), (8 * MIB, 50_000)])
def test_little_is_done_in_one_part(size, rows):
    assert settings_for(size, rows, cores=64) == FOR_LITTLE


@pytest.mark.parametrize(
    ("size", "rows", "cores", "parts"),
    [
        (9 * MIB, 0, 1, 2),  # two for each core at least, so that all have something to do
        (9 * MIB, 0, 16, 32),
        (160 * MIB, 0, 2, 10),
        (160 * MIB + 1, 0, 2, 11),
        (0, 1_677_722, 2, 11),  # what was made before is read again: 100 bytes a row
        (199 * 16 * MIB, 0, 2, 199),
    ],
)
def test_parts_grow_with_the_work(size, rows, cores, parts):
    assert settings_for(size, rows, cores) == {"spark.sql.shuffle.partitions": str(parts)}


@pytest.mark.parametrize(("size", "cores"), [(199 * 16 * MIB + 1, 2), (10**15, 2), (9 * MIB, 100)])
def test_much_is_left_to_whoever_runs_it(size, cores):
    assert settings_for(size, 0, cores) == {}
