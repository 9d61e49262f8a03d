"""The end of what runs until Ctrl-C: a node or a rendezvous."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from types import FrameType


class Ending:
    """Says when a signal asks for the end, and ends the process if that takes too long.

    The handler runs between any two steps of the main thread, not as a callback of the event loop: so a second Ctrl-C also
    ends a process whose event loop stands still.

    Args:
        report: says what was done; called once.
        seconds: what an end may take.
        why: what to say if it takes longer.
    """

    def __init__(self, report: Callable[[], None], *, seconds: float, why: str) -> None:
        self.asked = asyncio.Event()
        self._report = report
        self._seconds = seconds
        self._why = why
        self._loop = asyncio.get_running_loop()
        self._is_asked = False
        self._once = threading.Lock()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._hear)

    def report(self) -> None:
        """Report, unless that was done."""
        if self._once.acquire(blocking=False):
            self._report()

    def _hear(self, number: int, _frame: "FrameType | None") -> None:
        if self._is_asked:
            os._exit(128 + number)
        self._is_asked = True
        self._loop.call_soon_threadsafe(self.asked.set)
        rest = threading.Timer(self._seconds, self._give_up)
        rest.daemon = True
        rest.start()

    def _give_up(self) -> None:
        typer.echo(f"hopline: {self._why}", err=True)
        self.report()
        os._exit(0)
