"""How messages travel in memory: the road, on which they take their time, and the inbox at its end.

Neither knows who sends and who reads. When a connection ends, who owns the road clears it; what is in an inbox has arrived.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from hopline.transport.base import FRAME_TOO_BIG, TOO_MANY_FRAMES, Limits
from hopline.transport.faults import Faults


class Clock(Protocol):
    """Where delays take their time from, such as `hopline.testing.ManualClock`."""

    def now_ns(self) -> int:
        """Nanoseconds now."""

    def call_at(self, when_ns: int, callback: Callable[[], None]) -> object:
        """Call back at that time."""


class Road:
    """Messages on their way to one place: each takes as long as the network says, none overtakes another."""

    def __init__(self, faults: Faults, clock: Clock, arrive: Callable[[list[bytes]], None]) -> None:
        self._faults = faults
        self._clock = clock
        self._arrive = arrive
        self._under_way: deque[list[bytes]] = deque()
        self._due_ns = 0
        self._cleared = 0

    def __len__(self) -> int:
        return len(self._under_way)

    def carry(self, message: list[bytes]) -> None:
        """Let a message go; without a delay it arrives now."""
        delay_ns = self._faults.delay_ns()
        if not delay_ns and not self._under_way:
            self._arrive(message)
            return
        self._under_way.append(message)
        self._due_ns = max(self._due_ns, self._clock.now_ns() + delay_ns)
        self._clock.call_at(self._due_ns, partial(self._leave, self._cleared))

    def clear(self) -> int:
        """Drop all that is under way; returns how many that were."""
        dropped = len(self._under_way)
        self._under_way.clear()
        self._cleared += 1
        return dropped

    def _leave(self, cleared: int) -> None:
        if cleared == self._cleared:
            self._arrive(self._under_way.popleft())


class Inbox:
    """Messages that have arrived at one place and were not read yet. It reads `Limits.drain` of them a turn of the loop.

    Attributes:
        life: how many times all that was in it got lost: who is connected to it knows by that that it is not the same.
    """

    def __init__(
        self,
        faults: Faults,
        limits: Limits,
        on_message: Callable[[list[bytes]], None],
        on_refused: Callable[[str, int], None],
    ) -> None:
        self.life = 0
        self._faults = faults
        self._limits = limits
        self._on_message = on_message
        self._on_refused = on_refused
        self._messages: deque[tuple[list[bytes], Callable[[], None]]] = deque()
        self._turn: asyncio.Handle | None = None
        self._is_paused = False

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: list[bytes], taken: Callable[[], None]) -> None:
        """Take a message; `taken` is called when it is read."""
        self._messages.append((message, taken))
        self._read_soon()

    def pause(self) -> None:
        """Stop reading."""
        self._is_paused = True
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def resume(self) -> None:
        """Read again."""
        self._is_paused = False
        self._read_soon()

    def lose(self) -> int:
        """Drop all that was not read; returns how many that were."""
        dropped = len(self._messages)
        self._messages.clear()
        self.life += 1
        return dropped

    def _read_soon(self) -> None:
        if self._messages and self._turn is None and not self._is_paused:
            self._turn = asyncio.get_running_loop().call_soon(self._read)

    def _read(self) -> None:
        self._turn = None
        try:
            for _ in range(self._limits.drain):
                if self._is_paused or not self._messages:
                    break
                self._take()
        finally:
            self._read_soon()

    def _take(self) -> None:
        messages = self._messages
        messages.rotate(-(index := self._faults.pick(len(messages))))
        message, taken = messages.popleft()
        messages.rotate(index)
        taken()
        if len(message) > self._limits.message_frames:
            self._on_refused(TOO_MANY_FRAMES, sum(map(len, message)))
        elif max(map(len, message)) > self._limits.message_bytes:
            self._on_refused(FRAME_TOO_BIG, sum(map(len, message)))
        else:
            self._on_message(message)


def nothing() -> None:
    """What to do when a message is read whose sender does not count."""
