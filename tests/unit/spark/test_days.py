"""Days and their windows."""

from datetime import date

from hypothesis import given
from hypothesis import strategies as st

from hopline.spark.days import days_of, window_of
from hopline.spark.parts import Span

NS = 1_000_000_000
MOMENTS = st.integers(-(2**62), 2**62)
REACHES = st.sampled_from([0, 1, 3600, 86_399, 86_400, 200_000])


@given(MOMENTS, st.integers(0, 10**15), REACHES)
def test_a_time_touches_the_days_in_whose_windows_it_lies(first, length, reach_s):
    span = Span(first, first + length)
    touched = list(days_of(span, reach_s))
    assert touched == sorted(touched)
    for day in touched:
        window = window_of(day, reach_s)
        assert window.first <= span.last
        assert span.first <= window.last
    for day, step in ((touched[0], -1), (touched[-1], 1)):
        window = window_of(date.fromordinal(date.fromisoformat(day).toordinal() + step).isoformat(), reach_s)
        assert not (window.first <= span.last and span.first <= window.last)


@given(MOMENTS)
def test_without_reach_a_window_is_a_day(moment):
    (day,) = days_of(Span(moment, moment), 0)
    first, last = window_of(day, 0)
    assert first <= moment <= last
    assert last - first + 1 == 86_400 * NS


@given(st.sampled_from([-(2**63), 2**63 - 1]), st.integers(0, 10**15), REACHES)
def test_at_its_ends_time_is_cut_off(end, length, reach_s):
    moment = end + length if end < 0 else end - length
    for day in days_of(Span(moment, moment), reach_s):
        first, last = window_of(day, reach_s)
        assert -(2**63) <= first <= moment <= last <= 2**63 - 1
