"""The ActorHost: one actor, its mailbox, and what its handlers give back.

Messages are handled in the order they came, `concurrency` at a time; the rest waits in the mailbox, which is bounded. A
handler's first step runs at once. What it returns inherits the flow of what it was given and goes to the router; what it
raises goes to the caller as KINO.EXCEPTION. A slot is free again when the handler has ended and all its outputs were taken,
so an actor that writes to a slow one becomes slow itself: that is how back-pressure travels.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Final, Protocol

from hopline.errors import HoplineError, PayloadError
from hopline.flow import message_uid
from hopline.identity import MessageType
from hopline.node.actor import Actor, Context, Handler
from hopline.node.eager import run_eagerly
from hopline.node.envelope import Envelope
from hopline.node.routes import Key, key_of
from hopline.wire import Message

logger = logging.getLogger("hopline.node")

TURN: Final = 256
"""Messages handled before the event loop gets a chance to read and write."""

MOST_SUSPECTS: Final = 1000
"""Flows with failed messages that are remembered for quarantine, for each actor."""


class Waits(Protocol):
    """Something that is full now and will have room again."""

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call back once there is room."""


class Surroundings(Protocol):
    """What a host needs of the node around it: `outputs.py`."""

    def emit(self, output: object, parent: Envelope) -> Waits | None:
        """Send what a handler returned; if it was not taken at once, tells who calls back when it is."""

    def handled(self, envelope: Envelope) -> None:
        """Hear that a handler has ended well."""

    def failed(self, envelope: Envelope, error: BaseException) -> None:
        """Hear that a handler has failed: counted, and the caller is told."""

    def refused(self, envelope: Envelope, code: str, reason: str) -> None:
        """Hear that a message came to a bad end before its handler ran."""

    def is_in_time(self, envelope: Envelope) -> bool:
        """Whether a message has not expired; if it has, it has come to its end."""


class ActorHost:
    """One actor at work."""

    def __init__(
        self,
        actor: Actor,
        identity: bytes,
        handlers: list[Handler],
        around: Surroundings,
        node: object,
        loop: asyncio.AbstractEventLoop,
        pool: Executor,
    ) -> None:
        self.actor = actor
        self.identity = identity
        self.types: list[MessageType] = [handler.type for handler in handlers]
        """What this actor handles."""
        self._handlers: dict[Key, Handler] = {key_of(handler.type): handler for handler in handlers}
        self._around = around
        self._node = node
        self._loop = loop
        self._pool = pool
        self._concurrency = actor.concurrency
        self._limit = actor.mailbox
        self.policy = actor.when_full
        self._running = 0
        self._waiting: deque[Envelope] = deque()
        self._room: deque[Callable[[], None]] = deque()
        self._tasks: set[asyncio.Future[Any]] = set()
        self._suspects: OrderedDict[bytes, dict[bytes, int]] = OrderedDict()
        """Flow: how often which of its messages failed here."""
        self._turning = False
        self._is_closed = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs and nothing waits."""
        return not self._running and not self._waiting

    def offer(self, envelope: Envelope) -> bool:
        """Take a message to handle it now or later; False if the mailbox is full."""
        if self._is_closed:
            self._around.refused(envelope, "CLOSED", "the node is stopping")
        elif self._running < self._concurrency and not self._waiting:
            self._start(envelope)
        elif len(self._waiting) < self._limit:
            self._waiting.append(envelope)
        else:
            return False
        return True

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call back once the mailbox has room; first come, first served."""
        self._room.append(callback)

    async def close(self, patience: float) -> None:
        """Refuse what waits, stop what runs, and give it so many seconds to end."""
        self._is_closed = True
        waiting, self._waiting = self._waiting, deque()
        for envelope in waiting:
            self._around.refused(envelope, "CLOSED", "the node is stopping")
        room, self._room = self._room, deque()
        for callback in room:
            callback()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=patience)

    def _start(self, envelope: Envelope) -> None:
        message = envelope.message
        _, kind, call, mode, wants_context = self._handlers[message.identity, message.version, message.partition]
        if self._suspects and message.correlation_id in self._suspects and self._is_poison(message):
            self._around.refused(envelope, "QUARANTINED", f"failed {self.actor.quarantine_after} times before")
            return
        payload = envelope.payload
        if payload is None:
            try:
                payload = kind.decode(message.body)
            except PayloadError as error:
                self._around.refused(envelope, "REJECTED", str(error))
                return
        self._running += 1
        arguments = (payload, Context(message, self._node)) if wants_context else (payload,)
        if mode == "thread":
            future = self._loop.run_in_executor(self._pool, call, *arguments)
            self._tasks.add(future)
            future.add_done_callback(lambda ended: self._thread_done(envelope, ended))
            return
        begun = call(*arguments)
        coroutine = begun if mode == "async" else self._exhaust(envelope, begun)
        task = run_eagerly(coroutine, self._loop, self._done, envelope)
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _thread_done(self, envelope: Envelope, future: asyncio.Future[Any]) -> None:
        self._tasks.discard(future)
        if future.cancelled():
            self._done(envelope, None, asyncio.CancelledError())
        elif (error := future.exception()) is not None:
            self._done(envelope, None, error)
        else:
            self._done(envelope, future.result(), None)

    async def _exhaust(self, envelope: Envelope, generator: Any) -> None:  # noqa: ANN401 - an async generator of anything
        async for output in generator:
            full = self._around.emit(output, envelope)
            if full is not None:
                room = asyncio.Event()
                full.when_room(room.set)
                await room.wait()

    def _done(self, envelope: Envelope, result: object, error: BaseException | None) -> None:
        if error is not None:
            self._failed(envelope, error)
            try:
                self.actor.failed(error)
            except Exception:
                logger.exception("%s.failed() failed itself", type(self.actor).__qualname__)
            self._release()
            return
        if result is not None:
            if isinstance(result, list) or type(result) is tuple:
                self._send_all(envelope, result)
                return
            try:
                full = self._around.emit(result, envelope)
            except HoplineError as refused:
                # What a handler returned cannot be sent: that is a failure of the handler.
                self._failed(envelope, refused)
                self._release()
                return
            if full is not None:
                full.when_room(lambda: self._finish(envelope))
                return
        self._finish(envelope)

    def _finish(self, envelope: Envelope) -> None:
        self._around.handled(envelope)
        self._release()

    def _failed(self, envelope: Envelope, error: BaseException) -> None:
        self._suspect(envelope)
        self._around.failed(envelope, error)

    def _send_all(self, envelope: Envelope, outputs: Sequence[object]) -> None:
        """Send all that a handler returned; it has ended when the last of it was taken."""
        blocked = 0
        has_failed = False

        def unblock() -> None:
            nonlocal blocked
            blocked -= 1
            if not blocked and not has_failed:
                self._finish(envelope)

        for output in outputs:
            try:
                full = self._around.emit(output, envelope)
            except HoplineError as refused:
                has_failed = True
                self._failed(envelope, refused)
                self._release()
                return
            if full is not None:
                blocked += 1
                full.when_room(unblock)
        if not blocked:
            self._finish(envelope)

    def _suspect(self, envelope: Envelope) -> None:
        flow, uid = envelope.message.correlation_id, message_uid(envelope.message)
        failures = self._suspects.pop(flow, {})
        failures[uid] = failures.get(uid, 0) + 1
        self._suspects[flow] = failures
        if len(self._suspects) > MOST_SUSPECTS:
            self._suspects.popitem(last=False)

    def _is_poison(self, message: Message) -> bool:
        return self._suspects[message.correlation_id].get(message_uid(message), 0) >= self.actor.quarantine_after

    def _release(self) -> None:
        self._running -= 1
        # A handler that ends at once releases its slot while a turn is still going: turns must not nest.
        if (self._waiting or self._room) and not self._turning:
            self._turn()

    def _turn(self) -> None:
        """Handle what waits and let in who waits, for a while."""
        self._turning = True
        try:
            for _ in range(TURN):
                if self._waiting and self._running < self._concurrency:
                    envelope = self._waiting.popleft()
                    if self._around.is_in_time(envelope):
                        self._start(envelope)
                elif self._room and len(self._waiting) < self._limit:
                    self._room.popleft()()
                else:
                    return
        finally:
            self._turning = False
        # There is more, but others want to live too.
        self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        if not self._turning:
            self._turn()
