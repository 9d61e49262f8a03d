"""Attending: work has a thread of its own, and the main thread waits for it and for Ctrl-C, or SIGTERM.

Python raises KeyboardInterrupt in the main thread, between any two steps. In the middle of a call to a JVM that leaves a
connection on which question and answer no longer belong together, and in the middle of a commit half of it. So the main
thread does nothing that could break: it waits. At Ctrl-C the work is told to end, again and again until it does, since what
it is told may come just before the next thing that it begins.

The system may hand Ctrl-C to any thread of a process; only the main one acts on it, and a wait without end would go on until
the work is done. So it looks up now and then.

Who does not want to wait types Ctrl-C once more: then the process ends at once. SIGTERM, by which a machine ends what runs
on it, is Ctrl-C typed by somebody else. This file knows no work.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from types import FrameType
from typing import Final, TypeVar

T = TypeVar("T")

INTERRUPTED: Final = 128 + signal.SIGINT
TERMINATED: Final = 128 + signal.SIGTERM
"""The exit codes of what these have ended."""

_AGAIN_S: Final = 0.2
"""Between two looks at the work, and between two times that it is told to end."""

_LONGEST_S: Final = 30.0
"""What an end may take: the longest is that of Spark while it starts, some seconds on a busy machine."""


def attended(work: Callable[[], T], *, interrupt: Callable[[], None]) -> T:
    """Do some work. Returns what it does, and raises what it raises; to be called in the main thread.

    Args:
        work: what to do, in another thread.
        interrupt: tells it to end; called at Ctrl-C, and again until it has ended.

    Raises:
        KeyboardInterrupt: at Ctrl-C, when the work has ended. If it came to a good end nevertheless it is not raised.
    """
    done: Future[T] = Future()
    # A daemon: nobody waits for it at exit if it did not end in time.
    thread = threading.Thread(target=_do, args=(work, done), name="work", daemon=True)
    try:
        thread.start()
        while not wait([done], _AGAIN_S).done:
            pass
    except KeyboardInterrupt:
        with ending():
            has_ended = _has_ended(done, interrupt)
        if not has_ended or done.exception() is not None:  # it failed because it was told to end
            raise
    return done.result()


@contextmanager
def ending() -> Iterator[None]:
    """What is done here is an end: at Ctrl-C or SIGTERM the process ends at once, as it would not bear another one."""
    with _handling({number: lambda number, _: os._exit(128 + number) for number in (signal.SIGINT, signal.SIGTERM)}):
        yield


@contextmanager
def terminable() -> Iterator[threading.Event]:
    """What is done here ends at SIGTERM as at Ctrl-C: KeyboardInterrupt is raised, and the event is set."""
    is_terminated = threading.Event()

    def terminate(*_: object) -> None:
        is_terminated.set()
        raise KeyboardInterrupt

    with _handling({signal.SIGTERM: terminate}):
        yield is_terminated


@contextmanager
def _handling(handlers: Mapping[signal.Signals, Callable[[int, FrameType | None], None]]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _do(work: Callable[[], T], done: Future[T]) -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - raised again by who waits
        done.set_exception(error)
    else:
        done.set_result(result)


def _has_ended(done: Future[T], interrupt: Callable[[], None]) -> bool:
    for _ in range(round(_LONGEST_S / _AGAIN_S)):
        interrupt()
        if wait([done], _AGAIN_S).done:
            return True
    return False
