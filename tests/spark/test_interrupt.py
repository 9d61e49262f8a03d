"""Ctrl-C in a terminal, or SIGTERM, while the pipeline runs: one line, the tables as they were, and nobody left behind."""

import os
import pty
import signal
import subprocess
import sys

import pytest

from hopline.spark.run import Asked, Pipeline
from tests.e2e.chaos_pipeline import _session
from tests.spark.lake import rows_of
from tests.spark.standalone import until
from tests.spark.world import make_world

AS_AFTER_A_LOGIN = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # what is typed here is for all in this session
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


class Terminal:
    """A terminal, and a command that was typed in it."""

    def __init__(self, *words):
        self._own, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", AS_AFTER_A_LOGIN, "-m", "hopline", *map(str, words)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.text = ""

    def until(self, words):
        """Read until it shows some words, or to its end if there are none."""
        while not words or words not in self.text:
            try:
                read = os.read(self._own, 4096)
            except OSError:  # nobody has it open any more
                break
            if not read:
                break
            self.text += read.decode(errors="replace")

    def type_ctrl_c(self):
        os.write(self._own, b"\x03")

    def end(self):
        """Read to the end; returns lines that are still to be seen, and the exit code."""
        shown = len(self.text)
        self.until("")
        code = self.process.wait(60)
        os.close(self._own)
        lines = self.text[shown:].replace("\r\n", "\n").split("\n")
        # What stands before this erases itself: it shows how far the work is.
        return [line.rpartition("\x1b[K")[2] for line in lines if line.rpartition("\x1b[K")[2].strip()], code


def take(spark, captures, tables):
    """Let a run come to its end, in the session of all tests: what it says."""
    asked = Asked(only=frozenset({"messages"}))
    return Pipeline(str(captures), str(tables), asked, session=lambda _: spark).run()


@pytest.fixture(scope="module")
def world(spark, tmp_path_factory):
    """A capture that was taken, of which more is there by now; and its tables."""
    captures, tables = tmp_path_factory.mktemp("captures"), tmp_path_factory.mktemp("tables")
    make_world(seed=5, rounds=1).network.write(str(captures))
    take(spark, captures, tables)
    make_world(seed=6, rounds=1).network.write(str(captures))
    return captures, tables


@pytest.mark.parametrize(
    ("command", "moment", "number", "code"),
    [
        ("run", "starting Spark", signal.SIGINT, 130),
        ("run", "reading", signal.SIGINT, 130),
        ("stream", " tasks", signal.SIGINT, 130),
        ("run", "reading", signal.SIGTERM, 143),
        ("stream", " tasks", signal.SIGTERM, 0),
    ],
)
def test_an_interruption_is_one_line_and_leaves_nothing(world, command, moment, number, code):
    captures, tables = world
    before = rows_of(tables, "messages")
    terminal = Terminal("pipeline", command, captures, tables, "--only", "messages")
    terminal.until(moment)
    if number == signal.SIGINT:
        terminal.type_ctrl_c()
    else:
        terminal.process.send_signal(number)
    lines, ended = terminal.end()
    assert ended == code, lines
    assert lines[-1] == "hopline: interrupted: what is not in the tables yet is left for the next run"
    assert len(lines) <= 2, lines  # Java itself may say something when it starts
    until(lambda: not _session(terminal.process.pid), 30, "an end of its processes")
    assert rows_of(tables, "messages") == before


def test_the_next_run_takes_what_was_left(spark, world):
    captures, tables = world
    before = len(rows_of(tables, "messages"))
    read = take(spark, captures, tables).read
    assert read > 0
    assert len(rows_of(tables, "messages")) == before + read


def test_ctrl_c_while_a_stream_waits(world):
    captures, tables = world
    terminal = Terminal("pipeline", "stream", captures, tables, "--every", "600", "--only", "messages")
    terminal.until("waiting for something new")
    terminal.type_ctrl_c()
    assert terminal.end() == (["hopline: interrupted: all that was there is in the tables"], 130)
