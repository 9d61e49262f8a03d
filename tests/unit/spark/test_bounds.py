"""What a filter says about time."""

import pytest

from hopline.capture.filter import parse_filter
from hopline.spark.bounds import narrower, times_of
from hopline.spark.pieces import Times


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("", Times()),
        ("hops == 1", Times()),
        ("seen_ns == 5", Times(5, 6)),
        ("seen_ns > 5 and seen_ns <= 9", Times(6, 10)),
        ("seen_ns >= 5 and seen_ns >= 7 and seen_ns < 9 and seen_ns < 8", Times(7, 8)),
        ("time > 1970-01-01T00:00:00.000001Z", Times(2000, None)),
        ("time <= 1970-01-01T00:00:00.000001Z", Times(None, 2000)),
        ("date == 1970-01-02", Times(86_400_000_000_000, 172_800_000_000_000)),
        ("seen_ns != 5", Times()),
        ("seen_ns > 5 or hops == 1", Times()),
        ("not seen_ns > 5", Times()),
        ("hops == 1 and (seen_ns > 5 and tap == hub_in)", Times(6, None)),
    ],
)
def test_time_that_a_filter_leaves(text, times):
    assert times_of(parse_filter(text)) == times


def test_narrower():
    assert narrower(Times(1, None), Times(None, 9)) == Times(1, 9)
    assert narrower(Times(1, 8), Times(2, 9)) == Times(2, 8)
    assert narrower(Times(), Times()) == Times()


@pytest.mark.parametrize(
    ("times", "left"),
    [
        (Times(-(1 << 63), (1 << 63)), Times()),
        (Times(-(1 << 70), 1 << 70), Times()),
        (Times(1 - (1 << 63), (1 << 63) - 1), Times(1 - (1 << 63), (1 << 63) - 1)),
        (Times(1 << 63, None), Times(None, -(1 << 63))),
        (Times(None, -(1 << 70)), Times(None, -(1 << 63))),
    ],
)
def test_times_that_no_column_can_hold(times, left):
    assert narrower(times, Times()) == left
