"""The holes of a stream: whatever the order, what is missing and what came twice is what a set would say."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hopline.capture.holes import MOST_LISTED, Gap, Holes

batches = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=8).map(np.array), min_size=1, max_size=8)


def gaps_of(missing: set[int]) -> list[Gap]:
    firsts = sorted(number for number in missing if number - 1 not in missing)
    return [Gap(first, next(n for n in range(first, first + 100) if n + 1 not in missing)) for first in firsts]


@given(batches, st.integers(1, 40))
def test_it_says_what_a_set_would_say(batches: list[np.ndarray], first: int) -> None:
    holes, come = Holes(first), set()
    for batch in batches:
        new = set(batch.tolist()) - come
        come |= new
        assert holes.take(batch) == len(new)
    missing = {number for number in range(first, max(come) + 1) if number not in come}
    assert (holes.missing, holes.gaps()) == (len(missing), gaps_of(missing))
    assert holes.last == max(come | {first - 1})


@given(st.permutations(range(1, 31)), st.integers(1, 5))
def test_all_numbers_in_any_order_leave_no_hole(order: list[int], size: int) -> None:
    holes = Holes(1)
    taken = sum(holes.take(np.array(order[start : start + size])) for start in range(0, 30, size))
    assert (taken, holes.missing, holes.gaps(), holes.last) == (30, 0, [], 30)


def test_no_more_holes_are_held_than_may_be_and_the_oldest_count_as_gaps() -> None:
    holes = Holes(1, most_held=2)
    assert holes.take(np.array([2, 4, 6, 8])) == 4
    assert (holes.missing, holes.gaps()) == (4, [(1, 1), (3, 3), (5, 5), (7, 7)])
    assert holes.take(np.array([5, 7])) == 2
    assert holes.take(np.array([1])) == 0, "its hole is not held any more"
    assert (holes.missing, holes.gaps()) == (2, [(1, 1), (3, 3)])


def test_what_is_before_the_first_number_counts_as_nothing_however_many_holes_there_are() -> None:
    holes = Holes(10, most_held=1)
    assert holes.take(np.array([10, 12, 14])) == 3
    assert (holes.missing, holes.gaps()) == (2, [(11, 11), (13, 13)])


def test_many_gaps_are_counted_and_the_first_of_them_listed() -> None:
    for most_held in (10, 1500, 10_000):
        holes = Holes(1, most_held=most_held)
        for start in range(2, 4000, 500):
            holes.take(np.arange(start, start + 500, 2))
        assert (holes.missing, len(holes.gaps())) == (2000, MOST_LISTED)
        assert holes.gaps()[-1] == (1999, 1999)
