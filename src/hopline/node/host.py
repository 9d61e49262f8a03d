"""The ActorHost: one actor, its mailbox, and what its handlers give back.

Messages are handled in the order they came, `concurrency` at a time; the rest waits in the mailbox, which is bounded. A
handler's first step runs at once. What it returns inherits the flow of what it was given and goes to the router; what it
raises goes to the caller as KINO.EXCEPTION. A slot is free again when the handler has ended and all its outputs were taken,
so an actor that writes to a slow one becomes slow itself: that is how back-pressure travels. If it came back in a circle,
nobody would ever move again; the output that would close the circle ends instead.
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
from hopline.node.actor import Actor, Context, Handler, handlers_of
from hopline.node.copies import Copies
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


class Parked(Protocol):
    """An output that waits for somebody who is full."""

    @property
    def behind(self) -> Waits:
        """Who is full."""

    def when_taken(self, callback: Callable[[], None]) -> None:
        """Call back once it was taken."""

    def give_up(self, reason: str) -> None:
        """Let it come to a bad end."""


class Surroundings(Protocol):
    """What a host needs of the node around it: `outputs.py`."""

    def emit(self, output: object, parent: Envelope) -> Parked | None:
        """Send what a handler returned; it is parked if it was not taken at once."""

    def handled(self, envelope: Envelope) -> None:
        """Hear that a handler has ended well."""

    def repeated(self, envelope: Envelope) -> None:
        """Hear that a message was a copy of one that was handled: it has ended as well as that."""

    def failed(self, envelope: Envelope, error: BaseException) -> None:
        """Hear that a handler has failed: counted, and the caller is told."""

    def refused(self, envelope: Envelope, code: str, reason: str) -> None:
        """Hear that a message came to a bad end before its handler ran."""

    def is_in_time(self, envelope: Envelope) -> bool:
        """Whether a message has not expired; if it has, it has come to its end."""

    def stopped(self, host: "ActorHost") -> None:
        """Hear that an actor has failed too often and takes no more messages."""

    def now_ns(self) -> int:
        """Nanoseconds of a clock that never goes back."""


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
        self._use(handlers)
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
        self._blocked: dict[int, list[Waits]] = {}
        """Handlers that have ended, by envelope, and whom their outputs wait for."""
        self._restarts: deque[int] = deque(maxlen=max(actor.most_restarts, 1))
        self._copies = Copies(actor.drop_copies_seconds) if actor.drop_copies_seconds else None
        self._turning = False
        self._is_closed = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs and nothing waits."""
        return not self._running and not self._waiting

    @property
    def is_stuck(self) -> bool:
        """Whether every running handler waits for somebody to take its outputs."""
        copies = self._copies.waiting if self._copies is not None else 0
        return len(self._blocked) >= self._running - copies > 0

    def _use(self, handlers: list[Handler]) -> None:
        self._handlers: dict[Key, Handler] = {key_of(handler.type): handler for handler in handlers}

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

    def retire(self) -> tuple[list[Envelope], list[Callable[[], None]]]:
        """Take no more messages; returns those that waited, and who waited to bring more. What runs goes on to its end."""
        waiting, self._waiting = list(self._waiting), deque()
        room, self._room = list(self._room), deque()
        return waiting, room

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
        if self._copies is not None and envelope.is_from_outside and self._is_copy(envelope):
            return
        self._running += 1
        if mode == "thread":
            arguments = (payload, Context(message, self._node)) if wants_context else (payload,)
            future = self._loop.run_in_executor(self._pool, call, *arguments)
            self._tasks.add(future)
            future.add_done_callback(lambda ended: self._thread_done(envelope, ended))
            return
        begun = call(payload, Context(message, self._node)) if wants_context else call(payload)
        coroutine = begun if mode == "async" else self._exhaust(envelope, begun)
        task = run_eagerly(coroutine, self._loop, self._done, envelope)
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _is_copy(self, envelope: Envelope) -> bool:
        """Whether a message is a copy, and so has ended, or will end with the first one; until then it has its slot."""
        assert self._copies is not None  # noqa: S101 - for mypy: asked before
        known = self._copies.begin(envelope.message, self._around.now_ns())
        if known == "known":
            self._around.repeated(envelope)
        elif known == "running":
            self._running += 1
            self._copies.wait(envelope)
        return known != "new"

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
                taken = asyncio.Event()
                self._park(full, envelope, taken.set)
                await taken.wait()

    def _done(self, envelope: Envelope, result: object, error: BaseException | None) -> None:
        if error is not None:
            self._failed(envelope, error)
            self._recover(error)
            self._release(envelope)
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
                self._release(envelope)
                return
            if full is not None:
                self._park(full, envelope, lambda: self._finish(envelope))
                return
        self._finish(envelope)

    def _finish(self, envelope: Envelope) -> None:
        self._around.handled(envelope)
        self._release(envelope, is_well=True)

    def _failed(self, envelope: Envelope, error: BaseException) -> None:
        self._suspect(envelope)
        self._around.failed(envelope, error)

    def _send_all(self, envelope: Envelope, outputs: Sequence[object]) -> None:
        """Send all that a handler returned; it has ended when the last of it was taken."""
        blocked = 1  # the loop below
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
                self._release(envelope)
                return
            if full is not None:
                blocked += 1
                self._park(full, envelope, unblock)
        unblock()

    def _park(self, parked: Parked, envelope: Envelope, then: Callable[[], None]) -> None:
        """Go on with `then` when an output was taken; until then the handler that made it blocks its slot."""
        key = id(envelope)
        waits = self._blocked.setdefault(key, [])
        waits.append(parked.behind)

        def taken() -> None:
            waits.remove(parked.behind)
            if not waits:
                self._blocked.pop(key, None)
            then()

        if self.is_stuck and self._is_waited_for_by(parked.behind):
            parked.give_up("the mailboxes are full in a circle")
            taken()
        else:
            parked.when_taken(taken)

    def _is_waited_for_by(self, other: Waits) -> bool:
        """Whether somebody full can only move when we do."""
        seen: set[int] = set()
        todo = [other]
        while todo:
            host = todo.pop()
            if host is self:
                return True
            if isinstance(host, ActorHost) and host.is_stuck and id(host) not in seen:
                seen.add(id(host))
                todo += [behind for waits in host._blocked.values() for behind in waits]  # noqa: SLF001 - our own kind
        return False

    def _recover(self, error: BaseException) -> None:
        """Do what the actor says is to be done after a failure."""
        actor = self.actor
        try:
            actor.failed(error)
            if actor.when_failed == "restart" and self._may_restart():
                self.actor = actor.restarted()
                self._use(handlers_of(self.actor))
                return
        except Exception:
            logger.exception("%s could not recover from a failure", type(actor).__qualname__)
        if actor.when_failed != "resume":
            logger.error("%s is stopped: it failed", type(actor).__qualname__)
            self._around.stopped(self)

    def _may_restart(self) -> bool:
        now = self._around.now_ns()
        most = self.actor.most_restarts
        if len(self._restarts) >= most and (not most or now - self._restarts[0] <= self.actor.restart_seconds * 1e9):
            return False
        self._restarts.append(now)
        return True

    def _suspect(self, envelope: Envelope) -> None:
        flow, uid = envelope.message.correlation_id, message_uid(envelope.message)
        failures = self._suspects.pop(flow, {})
        failures[uid] = failures.get(uid, 0) + 1
        self._suspects[flow] = failures
        if len(self._suspects) > MOST_SUSPECTS:
            self._suspects.popitem(last=False)

    def _is_poison(self, message: Message) -> bool:
        return self._suspects[message.correlation_id].get(message_uid(message), 0) >= self.actor.quarantine_after

    def _release(self, envelope: Envelope, *, is_well: bool = False) -> None:
        self._running -= 1
        if self._copies is not None and envelope.is_from_outside:
            for copy in self._copies.end(envelope.message, self._around.now_ns(), is_well=is_well):
                self._running -= 1
                if self._is_closed:
                    self._around.refused(copy, "CLOSED", "the node is stopping")
                else:
                    self._start(copy)
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
