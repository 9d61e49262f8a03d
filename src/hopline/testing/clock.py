"""A clock that stands still until it is moved: tests of timeouts and delays without waiting.

It has the methods of a node's clock, so a node, its transport and a test can share one.
"""

import heapq
import itertools
from collections.abc import Callable


class ManualTimer:
    """A call that will be made when the clock gets there, unless it is cancelled."""

    __slots__ = ("_callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Do not call."""
        self._callback = None

    def fire(self) -> None:
        """Call, once."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class ManualClock:
    """Time in nanoseconds, moved by hand.

    >>> clock = ManualClock()
    >>> _ = clock.call_later(2.0, lambda: print("two seconds"))
    >>> clock.advance(1.5)
    >>> clock.advance(0.5)
    two seconds
    >>> clock.now_ns()
    2000000000
    """

    def __init__(self, start_ns: int = 0, *, wall_ns: int = 1_700_000_000 * 10**9) -> None:
        self._now_ns = start_ns
        self._wall_offset_ns = wall_ns - start_ns
        self._timers: list[tuple[int, int, ManualTimer]] = []
        self._order = itertools.count()

    def now_ns(self) -> int:
        """Nanoseconds since the clock was made."""
        return self._now_ns

    def wall_ns(self) -> int:
        """Nanoseconds since 1970, as far as this clock knows."""
        return self._now_ns + self._wall_offset_ns

    def call_at(self, when_ns: int, callback: Callable[[], None]) -> ManualTimer:
        """Call back when the clock gets to `when_ns`; in the next `advance` if it is there already."""
        timer = ManualTimer(callback)
        heapq.heappush(self._timers, (when_ns, next(self._order), timer))
        return timer

    def call_later(self, seconds: float, callback: Callable[[], None]) -> ManualTimer:
        """Call back in so many seconds."""
        return self.call_at(self._now_ns + _nanoseconds(seconds), callback)

    def advance(self, seconds: float) -> None:
        """Move the clock forward; what falls due is called in the order of its time, and sees its own time."""
        end_ns = self._now_ns + _nanoseconds(seconds)
        while self._timers and self._timers[0][0] <= end_ns:
            when_ns, _, timer = heapq.heappop(self._timers)
            self._now_ns = max(self._now_ns, when_ns)
            timer.fire()
        self._now_ns = end_ns


def _nanoseconds(seconds: float) -> int:
    if seconds < 0:
        raise ValueError("A clock never goes back")
    return round(seconds * 1e9)
