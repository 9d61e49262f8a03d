"""Counting in bounded memory: exact where it says so, and right for what matters where it does not."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from hopline.report.read.counting import MOST_KEYS, Greatest, Spread, Tally, groups
from hopline.report.read.timeline import MOST_STEPS, WIDTHS, Timeline


def nearest_rank(values, share):
    return sorted(values)[max(1, int(np.ceil(share * len(values)))) - 1]


class TestTally:
    def test_what_is_frequent_survives_any_number_of_rare_keys(self):
        tally = Tally(most=100)
        for number in range(10_000):
            tally.add((f"rare {number}",), [1])
            tally.add(("frequent",), [1])
        assert tally.ordered()[0] == (("frequent",), [10_000])
        assert len(tally) <= 200
        assert tally.total() == [20_000]

    def test_the_default_is_bounded_too(self):
        tally = Tally()
        for number in range(3 * MOST_KEYS):
            tally.add((number,), [1], note=number)
        assert len(tally) <= 2 * MOST_KEYS
        assert tally.total() == [3 * MOST_KEYS]

    def test_equal_ones_are_in_the_order_of_their_keys(self):
        tally = Tally()
        for name in "cab":
            tally.add((name, None), [1])
        assert [key[0] for key, _ in tally.ordered()] == ["a", "b", "c"]

    def test_nothing(self):
        assert (Tally(2).total(), Tally().ordered()) == ([0, 0], [])

    def test_the_first_note_stays(self):
        tally = Tally()
        tally.add(("a",), [1])
        tally.add(("a",), [1], note="first")
        tally.add(("a",), [1], note="second")
        assert tally.note_of(("a",)) == "first"


def test_groups_with_nulls():
    batch = pa.record_batch({"a": ["x", None, None], "n": [None, 2, 3]})
    assert dict(groups(batch, ["a"], ["n"])) == {("x",): [1, 0], (None,): [2, 5]}


class TestSpread:
    @pytest.mark.parametrize("count", [1, 2, 100, 4096])
    def test_exact_for_a_few_thousand(self, count):
        values = np.random.default_rng(count).lognormal(1, 2, count)
        spread = Spread()
        for part in np.array_split(values, 7):
            spread.add(part)
        assert spread.is_exact
        for share in (0.01, 0.5, 0.95, 0.99, 1.0):
            assert spread.at(share) == nearest_rank(values, share)

    def test_within_one_percent_beyond(self):
        values = np.random.default_rng(1).lognormal(1, 3, 100_000)
        spread = Spread()
        for part in np.array_split(values, 50):
            spread.add(part)
        assert not spread.is_exact
        for share in (0.001, 0.5, 0.95, 0.99, 0.999):
            assert spread.at(share) == pytest.approx(nearest_rank(values, share), rel=0.0101)
        assert (spread.count, spread.least, spread.greatest) == (100_000, values.min(), values.max())
        assert spread.at(1.0) == pytest.approx(values.max(), rel=0.0101)

    def test_the_order_does_not_matter(self):
        values = np.random.default_rng(2).lognormal(1, 1, 10_000)
        one, other = Spread(), Spread()
        one.add(values)
        for part in np.array_split(values[::-1], 9):
            other.add(part)
        assert [one.at(share) for share in (0.5, 0.99)] == [other.at(share) for share in (0.5, 0.99)]

    def test_what_cannot_be(self):
        spread = Spread()
        spread.add(np.array([np.nan, np.inf, -np.inf]))
        assert (spread.count, spread.at(0.5)) == (0, None)
        spread.add(np.array([-5.0] * 5000 + [1e300]))
        assert (spread.at(0.5), spread.at(1.0) > 1e10) == (-5.0, True)


class TestGreatest:
    def test_of_many_batches(self):
        greatest = Greatest("n", 3, "key")
        for start in range(0, 1000, 100):
            greatest.add(pa.record_batch({"n": list(range(start, start + 100)), "key": ["x"] * 100}))
        assert [row["n"] for row in greatest.rows] == [999, 998, 997]

    def test_equal_ones_by_key(self):
        for order in ("abc", "cba"):
            greatest = Greatest("n", 2, "key")
            for key in order:
                greatest.add(pa.record_batch({"n": [1.0], "key": [key]}))
            assert [row["key"] for row in greatest.rows] == ["a", "b"]

    def test_no_rows(self):
        greatest = Greatest("n", 2)
        greatest.add(pa.record_batch({"n": pa.array([None], pa.float64())}))
        assert greatest.rows == []


class TestTimeline:
    def test_each_width_divides_the_next(self):
        assert all(greater % less == 0 for less, greater in pairwise(WIDTHS))

    @pytest.mark.parametrize("seconds", [0.5, 60, 3600, 86_400 * 30, 86_400 * 365 * 200])
    def test_as_many_steps_as_can_be_seen(self, seconds):
        line, rng = Timeline(), np.random.default_rng(3)
        moments = rng.integers(0, int(seconds * 1e6), 5000) + 1_794_700_800_000_000
        for part in np.array_split(moments, 20):
            line.add("a", part)
        assert 8 <= len(line.steps) <= MOST_STEPS
        assert line.of("a") == {
            int(step): int(count)
            for step, count in zip(*np.unique(moments // line.width_us, return_counts=True), strict=True)
        }

    def test_before_1970_and_after_everything(self):
        line = Timeline()
        line.add("a", np.array([-(1 << 62), 1 << 62]))
        assert sum(line.of("a").values()) == 2
        assert len(line.steps) < 1000

    def test_names_become_one(self):
        line = Timeline()
        for name in "abc":
            line.add(name, np.array([0]))
        line.join(["a", "b", "not there"], "rest")
        assert (line.names, line.of("rest")) == (["c", "rest"], {0: 2})

    def test_nothing(self):
        line = Timeline()
        line.add("a", np.array([], np.int64))
        assert (list(line.steps), line.names) == ([], [])
