"""A crew does several things at once, and says what went wrong."""

import threading

import pytest

from hopline.spark.crew import together


def test_jobs_are_done_at_the_same_time():
    both = threading.Barrier(2, timeout=10)
    together([both.wait, both.wait], at_once=2)


def test_the_error_of_a_job_is_raised_and_no_further_one_is_begun():
    begun = []

    def fail():
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        together([fail, *(lambda: begun.append(1) for _ in range(100))], at_once=1)
    assert len(begun) < 100


def test_nothing_to_do_is_fine():
    together([])
