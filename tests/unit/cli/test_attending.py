"""Work in a thread of its own: what becomes of it, and what Ctrl-C does."""

import os
import signal
import subprocess
import sys
import threading
import traceback

import pytest

from hopline.cli.attending import attended


def type_ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)


def nothing():
    """Nobody is to be told to end."""
    pytest.fail("interrupted")


@pytest.fixture(autouse=True)
def _handler():
    """Whoever hears Ctrl-C afterwards is who heard it before."""
    before = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is before


def test_it_returns_what_the_work_returns():
    assert attended(lambda: 7, interrupt=nothing) == 7


def test_it_raises_what_the_work_raises():
    def fail():
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        attended(fail, interrupt=nothing)


def test_work_is_told_to_end_until_it_does():
    told = threading.Semaphore(0)

    def work():
        type_ctrl_c()
        for _ in range(3):
            assert told.acquire(timeout=30)
        raise ValueError("told to end")

    with pytest.raises(KeyboardInterrupt):
        attended(work, interrupt=told.release)


def test_ctrl_c_that_comes_to_another_thread_counts_at_once():
    told = threading.Event()

    def is_main_waiting():
        frame = sys._current_frames()[threading.main_thread().ident]  # noqa: SLF001 - there is no other way to see it
        names = [each.f_code.co_name for each, _ in traceback.walk_stack(frame)]
        return names[:4] == ["wait", "wait", "wait", "attended"]  # of a condition, of its event, of futures

    def work():
        while not is_main_waiting():
            told.wait(0.01)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        return told.wait(5)  # well before the end

    assert attended(work, interrupt=told.set)


def test_work_that_was_done_nevertheless_is_done():
    told = threading.Event()

    def work():
        type_ctrl_c()
        assert told.wait(30)
        return "done"

    assert attended(work, interrupt=told.set) == "done"


def test_the_second_ctrl_c_ends_the_process():
    code = """
    import os, signal, threading
    from hopline.cli.attending import attended
    type_ctrl_c = lambda: os.kill(os.getpid(), signal.SIGINT)
    attended(lambda: (type_ctrl_c(), threading.Event().wait()), interrupt=type_ctrl_c)
    """
    done = subprocess.run([sys.executable, "-c", code.replace("\n    ", "\n")], capture_output=True, timeout=50, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
