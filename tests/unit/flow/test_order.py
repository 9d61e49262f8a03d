"""The order of trails, of which it is known how they came to be."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopline.flow.order import MOST_STATES, Order, find_order


def as_sent(way: str) -> dict[str, str]:
    """Who sent to whom on a way, if all of it was seen."""
    senders = {}
    for sender, receiver in pairwise(way):
        senders[receiver] = senders.get(receiver, "") + sender
    return senders


def turned_round(way: str) -> str:
    """How a trail stands if each node reverses it before it appends itself."""
    trail = ""
    for node in way:
        trail = trail[::-1] + node
    return trail


def in_order(trail: str, order: Order) -> str:
    return "".join(trail[place] for place in order.places)


@pytest.mark.parametrize("way", ["ABC", "ABCD", "ABAC", "ABABAB", "ABACABD"])
def test_a_trail_that_each_node_has_turned_round_is_put_right(way):
    trail = turned_round(way)
    found = find_order(trail, as_sent(way))
    assert (found.verdict, in_order(trail, found)) == ("restored", way)


@pytest.mark.parametrize("way", ["ABC", "ABCD", "ABA", "ABAB", "ABABABAB"])
def test_a_trail_that_nobody_has_turned_round_is_exact(way):
    assert find_order(way, as_sent(way)) == Order("exact", tuple(range(len(way))))


def test_a_repeated_entry_is_a_broadcast_where_one_was_seen_or_nothing_else_fits():
    assert find_order("PQQQ", {"Q": "PQ"}).verdict == "exact"
    assert find_order("BAA", {"A": "BA", "B": "A"}).verdict == "exact"  # else A was sent to by B
    assert find_order("CAA", {"A": "B"}).verdict == "exact"
    assert in_order("AAB", find_order("AAB", {"B": "A"})) == "AAB"


def test_what_nobody_saw_is_not_guessed():
    for trail in ("ABC", "BAA", "ABCDEF"):
        assert find_order(trail, {}) == Order("ambiguous", tuple(range(len(trail))))
    assert find_order("PQR", {"R": "PQ"}).verdict == "ambiguous"


def test_who_cannot_have_sent_makes_it_a_set():
    assert find_order("PSR", {"R": "Q"}) == Order("set", (0, 1, 2))


def test_one_step_later_may_tell_which_end_it_was():
    """Both A and B have sent to C; but nobody but C has sent to A."""
    assert in_order("BCAC", find_order("BCAC", {"C": "AB", "A": "C", "B": "X"})) == "BCAC"


@pytest.mark.parametrize("trail", ["A", "AB", "AA"])
def test_short_trails_have_one_order(trail):
    assert find_order(trail, {}).verdict == "exact"


def test_a_strangers_trail_costs_no_more_than_its_length():
    names = [str(number) for number in range(50_000)]
    assert find_order(names, {}).verdict == "ambiguous"
    assert find_order("AB" * MOST_STATES * 2, as_sent("ABA")).verdict == "ambiguous"
    assert find_order("A" * 50_000, {"A": "A"}).verdict == "exact"


WAYS = st.text("ABCD", min_size=1, max_size=9).filter(lambda way: all(a != b for a, b in pairwise(way)))
"""Ways on which nobody sends to itself."""


@given(WAYS, st.booleans())
def test_an_order_that_is_given_is_that_of_the_way_where_all_of_it_was_seen(way, is_turned):
    trail = turned_round(way) if is_turned else way
    found = find_order(trail, as_sent(way))
    assert sorted(found.places) == list(range(len(trail)))
    assert found.verdict != "set"
    if found.verdict == "ambiguous":
        assert in_order(trail, found) == trail
    else:
        assert in_order(trail, found) == way
