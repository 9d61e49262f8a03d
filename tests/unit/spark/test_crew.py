"""A crew does several things at once, and says what went wrong."""

import signal
import sys
import threading
import time
from pathlib import Path

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


def test_who_is_interrupted_waits_only_for_what_is_begun(one_interrupt):
    begun = []

    def interrupt():
        look_for(lambda calls: calls[0] == "threading.wait" and "_base.wait" in calls)
        look_for(lambda calls: "thread.shutdown" in calls and "threading.join" in calls, meanwhile=press)

    with pytest.raises(KeyboardInterrupt):
        together([interrupt, lambda: begun.append(1)], at_once=1)
    assert begun == []


def press():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


@pytest.fixture
def one_interrupt():
    """The first Ctrl-C interrupts, further ones do nothing.

    One that comes just before a thread begins to wait does not wake it, so a test has to press more than once.
    """
    pressed = []

    def handle(*_):
        if not pressed:
            pressed.append(1)
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handle)
    yield
    signal.signal(signal.SIGINT, before)


def look_for(is_there, meanwhile=lambda: None):
    """Wait until the main thread is in some calls, the innermost of them first: nobody else knows that it waits."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        meanwhile()
        frame, calls = sys._current_frames()[threading.main_thread().ident], []  # noqa: SLF001 - its only name
        while frame is not None:
            calls.append(f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}")
            frame = frame.f_back
        if is_there(calls):
            return
    pytest.fail("the main thread does something else")


def test_nothing_to_do_is_fine():
    together([])
