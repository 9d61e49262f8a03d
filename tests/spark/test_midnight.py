"""Midnight: both days come to the same, whatever lies on either side of it."""

import random
from itertools import count

import pytest
from pyspark.sql import functions as sf

from hopline.spark.days import window_of
from hopline.spark.midnight import Midnights

HOUR_NS = 3_600_000_000_000
DAYS = ("2026-11-14", "2026-11-15", "2026-11-16", "2026-11-17")
START_NS = window_of(DAYS[0], 0).first
REACHES_H = (1, 6, 12)


def keep(_name, rows):
    return rows


@pytest.fixture(scope="module")
def sightings(spark):
    """Things that are seen now and then for some hours or days: a number, the thing, and when."""
    rng, numbers, rows = random.Random(1), count(), []
    for thing in range(60):
        moment = START_NS + rng.randrange(80 * HOUR_NS)
        for _ in range(rng.choice([1, 2, 2, 2, 3, 20])):
            rows.append((next(numbers), str(thing), moment))
            moment += rng.randrange(rng.choice([1, 4, 8, 24, 60]) * HOUR_NS)
    rows = [row for row in rows if row[2] <= window_of(DAYS[-1], 0).last]
    return spark.createDataFrame(rows, "id int, correlation_key string, seen_ns bigint").cache()


def of_window(sightings, day, reach_h):
    midnights = Midnights(window_of(day, 0), reach_h * HOUR_NS, has_before=True, has_after=True)
    return midnights, sightings.where(sf.col("seen_ns").between(*window_of(day, reach_h * 3600)))


@pytest.mark.parametrize("reach_h", REACHES_H)
def test_every_sighting_of_a_flow_is_of_one_day(sightings, reach_h):
    shares = {}
    for day in DAYS:
        midnights, seen = of_window(sightings, day, reach_h)
        mine = midnights.mine(seen, sf.col("seen_ns"), midnights.joined(seen, keep)).collect()
        by_flow = {}
        for row in mine:
            by_flow.setdefault(row.correlation_key, []).append(row.seen_ns)
        first, last = window_of(day, 0)
        assert all(first <= min(moments) <= last for moments in by_flow.values())  # so that the row is of that day
        shares[day] = [row.id for row in mine]
    assert sorted(each for ids in shares.values() for each in ids) == [row.id for row in sightings.sort("id").collect()]


@pytest.mark.parametrize("reach_h", REACHES_H)
def test_every_sighting_of_anything_else_is_in_a_row_of_one_day(sightings, reach_h):
    found = []
    for day in DAYS:
        midnights, seen = of_window(sightings, day, reach_h)
        rows = {}
        for row in midnights.near(seen, sf.col("correlation_key"), "things", keep).collect():
            rows.setdefault(row.correlation_key, []).append(row)
        first, last = window_of(day, 0)
        of_day = [each for each in rows.values() if first <= min(row.seen_ns for row in each) <= last]
        found += [row.id for each in of_day for row in each]
    assert sorted(found) == [row.id for row in sightings.sort("id").collect()]


@pytest.mark.parametrize("reach_h", REACHES_H)
def test_two_sightings_are_put_together_by_the_first_day_or_by_none(sightings, reach_h):
    things = {}
    for row in sightings.sort("seen_ns").collect():
        things.setdefault(row.correlation_key, []).append(row)
    pairs = [each for each in things.values() if len(each) == 2]
    found = set()
    for day in DAYS:
        midnights, seen = of_window(sightings, day, reach_h)
        near = {row.id for row in midnights.near(seen, sf.col("correlation_key"), "things", keep).collect()}
        begin, end = window_of(day, 0)
        for first, second in pairs:
            is_first_here, is_second_here = (begin <= row.seen_ns <= end for row in (first, second))
            is_together = (is_first_here and is_second_here) or second.seen_ns - first.seen_ns <= reach_h * HOUR_NS
            if is_first_here:
                assert (first.id in near, second.id in near) == (True, is_together)
            elif is_second_here:
                assert (first.id in near, second.id in near) == (False, not is_together)
            if is_first_here != is_second_here:
                found.add((is_first_here, is_together))
    assert len(found) == 4, "all of it was met"
