"""Time as a node sees it: a monotonic clock and a way to be called later. Tests hand in one that they move by hand."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """Something that will happen, unless it is cancelled."""

    def cancel(self) -> None:
        """Do not let it happen."""


class Clock(Protocol):
    """Where a node takes its time from."""

    def now_ns(self) -> int:
        """Nanoseconds of a clock that never goes back."""

    def wall_ns(self) -> int:
        """Nanoseconds since 1970; for signatures only, which cross machines."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call back in so many seconds."""


class LoopClock:
    """The clock of the machine, with timers of the running event loop."""

    now_ns = staticmethod(time.monotonic_ns)  # itself: each message asks

    def wall_ns(self) -> int:
        """Nanoseconds since 1970."""
        return time.time_ns()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call back from the event loop."""
        return asyncio.get_running_loop().call_later(seconds, callback)
