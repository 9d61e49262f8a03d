"""The player: sends the messages of a script through a node, at their pace, and says what came of each.

Theory of operation. Each message is due at one start time plus what lay between it and the first message then, divided by
the speed; so lateness of one does not delay the next, and nothing drifts. When more are under way than may be, the next one
waits, however late that makes it; how late is told. Messages leave in the order of the script.

Everything goes out as new: our node makes ids, callbacks and signatures, and answers come to our hub. Who is reached is the
matter of the node it is given: it must know nobody but the target. A message that no known node takes is not sent at all.
Bodies are sent and compared as they are: nothing here knows what is in them. Time is the node's clock.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Final, Literal

from hopline.errors import DeliveryError, RemoteError
from hopline.identity import MessageType
from hopline.node.node import Node
from hopline.payload.registry import declare, kind_of
from hopline.replay.outcome import Outcome, name_of
from hopline.replay.script import Play

IN_FLIGHT: Final = 100
"""Messages that are under way at the same time, if nothing else is said."""


class RawBody:
    """A body of any shape, as bytes. Each message type has a class of its own."""

    __slots__ = ("body",)

    def __init__(self, body: bytes) -> None:
        self.body = body


@cache
def raw_class(kind: MessageType) -> type[RawBody]:
    """The payload class for a message type of which we know nothing else.

    >>> kind_of(raw_class(MessageType(b"HELLO", 1))).decode(b"hi").body
    b'hi'
    """
    payload_class: type[RawBody] = type("RawBody", (RawBody,), {"__slots__": ()})
    declare(payload_class, kind, lambda payload: payload.body, payload_class)
    return payload_class


class Player:
    """Plays messages.

    Args:
        node: a running node that knows nobody but the target.
        on_played: called with each message and what came of it.
        speed: 1 for the original pace, 10 for ten times that; None for as fast as possible.
        timeout: seconds to wait for each answer, or until a message is taken.
        in_flight: messages that are under way at the same time.

    Attributes:
        sent: messages that were sent, or could not be because nobody takes them.
        under_way: messages of which it is not known yet what comes of them.
        behind_ms: how late the latest message was.
        is_stopped: whether it was stopped before the last message.
    """

    def __init__(
        self,
        node: Node,
        on_played: Callable[[Play, Outcome], None],
        *,
        speed: float | None = 1.0,
        timeout: float = 10.0,
        in_flight: int = IN_FLIGHT,
    ) -> None:
        self.sent = 0
        self.under_way = 0
        self.behind_ms = 0.0
        self.is_stopped = False
        self._node = node
        self._clock = node.clock
        self._on_played = on_played
        self._speed = speed
        self._timeout = timeout
        self._in_flight = in_flight
        self._wake = asyncio.Event()

    def stop(self) -> None:
        """Send no more. What is under way comes to its end, within the timeout."""
        self.is_stopped = True
        self._wake.set()

    async def play(self, windows: Iterator[Sequence[Play]]) -> None:
        """Play messages, in order, and wait for what comes of them. The windows are taken in another thread.

        Raises:
            Exception: whatever the windows or `on_played` raise.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._send_all(windows, tasks)
        except ExceptionGroup as group:
            raise group.exceptions[0] from None  # the others are what followed from it

    async def _send_all(self, windows: Iterator[Sequence[Play]], tasks: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        start_ns = first_ns = None
        coming = loop.run_in_executor(None, next, windows, None)
        while (window := await coming) is not None and not self.is_stopped:
            coming = loop.run_in_executor(None, next, windows, None)
            for play in window:
                if start_ns is None or first_ns is None:
                    start_ns, first_ns = self._clock.now_ns(), play.seen_ns
                due_ns = start_ns + int((play.seen_ns - first_ns) / self._speed) if self._speed is not None else None
                if not await self._may_send(due_ns):
                    break
                self.sent += 1
                self.under_way += 1
                tasks.create_task(self._play(play))
                # It sends before the next one is looked at: so they stay in order, and others get their turn.
                await asyncio.sleep(0)

    async def _may_send(self, due_ns: int | None) -> bool:
        """Wait until a message is due and there is room for it; false if there will be no more."""
        while not self.is_stopped:
            early_ns = due_ns - self._clock.now_ns() if due_ns is not None else 0
            if early_ns <= 0 and self.under_way < self._in_flight:
                self.behind_ms = max(self.behind_ms, -early_ns / 1e6)
                return True
            self._wake.clear()
            timer = self._clock.call_later(early_ns / 1e9, self._wake.set) if early_ns > 0 else None
            await self._wake.wait()
            if timer is not None:
                timer.cancel()
        return False

    async def _play(self, play: Play) -> None:
        try:
            outcome = await self._outcome(play)
        finally:
            self.under_way -= 1
            self._wake.set()
        self._on_played(play, outcome)

    async def _outcome(self, play: Play) -> Outcome:
        node = self._who_takes(play.kind)
        if node is None:
            return Outcome("NO_ROUTE")
        payload = raw_class(play.kind)(play.body)
        address = node if play.is_to_node else b""
        began_ns = self._clock.now_ns()
        try:
            match play.way:
                case "ask":
                    replies = [raw_class(kind) for kind in play.replies]
                    answer: Any = await self._node.ask(payload, *replies, timeout=self._timeout, node=address)
                    name = name_of(kind_of(type(answer)).message_type)
                    return Outcome("answer", name, self._ms_since(began_ns), answer.body)
                case "deliver" | "handled":
                    until: Literal["node", "handled"] = "handled" if play.way == "handled" else "node"
                    await self._node.deliver(payload, until=until, timeout=self._timeout, node=address)
                    return Outcome("receipt", "", self._ms_since(began_ns))
                case "tell" | "publish":
                    return await self._send(play, payload, address)
        except RemoteError as error:
            return Outcome("exception", error.type_name, self._ms_since(began_ns))
        except DeliveryError as error:
            return Outcome(error.code, "", self._ms_since(began_ns))

    async def _send(self, play: Play, payload: RawBody, address: bytes) -> Outcome:
        """Send one way. That takes as long as the link to the target is full, and so it has to be ended."""
        task = asyncio.current_task()
        is_over = False

        def give_up() -> None:
            nonlocal is_over
            is_over = True
            if task is not None:
                task.cancel()

        timer = self._clock.call_later(self._timeout, give_up)
        try:
            if play.way == "publish":
                await self._node.publish(payload, ttl=play.ttl_s)
            else:
                await self._node.tell(payload, node=address, ttl=play.ttl_s)
        except asyncio.CancelledError:
            if not is_over:
                raise
            return Outcome("EXPIRED")
        finally:
            timer.cancel()
        return Outcome("sent")

    def _who_takes(self, kind: MessageType) -> bytes | None:
        """A node that takes a type: the target, under whatever identity it runs now."""
        for identity, routes in self._node.routes().items():
            if any(kind in types for types in routes.actors.values()):
                return identity
        return None

    def _ms_since(self, began_ns: int) -> float:
        return (self._clock.now_ns() - began_ns) / 1e6
