"""The MessageHub: sends, and waits for what comes back.

A request carries callback points; whatever message of its flow has one of those types comes back here under the key that
went with it. Each wait is a promise, always with a deadline, and it ends in one of two ways: with an answer, or with a
DeliveryError whose code says why not. A failure is always listened for, whether or not it was asked for.

Keys are unique to the hub, and hubs have identities of their own, so promises of two hubs cannot be mixed up. Messages of
v3 and v4 carry no key: they are matched by correlation id.
"""

import asyncio
from asyncio import Future
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

import msgspec

from hopline.errors import DeliveryError, HoplineError, RemoteError
from hopline.identity import EXCEPTION, MessageType
from hopline.node.clock import Clock, Timer
from hopline.node.envelope import Envelope
from hopline.node.ids import Ids
from hopline.node.routes import Key, key_of
from hopline.payload.registry import Kind
from hopline.payload.service import ExceptionMessage
from hopline.wire import TRACE_ROUTING, Distribution, Message

OUR_ERRORS: Final = "hopline."
"""Type names of exceptions by which a node tells that it could not deliver: this, and the code."""

TICKS_PER_SECOND: Final = 10_000_000

MOST_POINTS: Final = 1000
"""Sets of callback points of messages that were made elsewhere."""

Collect = Literal["first", "all"]


class Wait(NamedTuple):
    """What a request waits for: the types that may come, what is known of each, and the callback points that say so.

    Prepared once for each set of reply types. The codec knows the points by which tuple they are (`wire/template.py`).
    """

    kinds: dict[Key, Kind | None]
    points: tuple[MessageType, ...]
    collect: Collect

    @classmethod
    def of(cls, kinds: dict[MessageType, Kind | None], collect: Collect = "first") -> "Wait":
        """Prepare to wait for some types. None instead of a kind: the message itself is the answer."""
        points = (*kinds, EXCEPTION) if EXCEPTION not in kinds else tuple(kinds)
        return cls({key_of(kind): known for kind, known in kinds.items()}, points, collect)


class Promise(msgspec.Struct, eq=False):
    """One wait: what may come, what has come, and until when.

    It has a future and a deadline only once somebody waits: most answers from the same node are there before that, and the
    two would be a sixth of their cost.
    """

    key: int
    wait: Wait
    timeout: float
    request: Message
    since_ns: int
    nodes: tuple[bytes, ...] = ()
    """Where the request was sent; empty if it stayed here."""
    is_held: bool = False
    answers: list[Any] | None = None
    """What has come so far, if all of it is wanted."""
    is_over: bool = False
    answer: Any = None
    error: DeliveryError | None = None
    future: Future[None] | None = None
    queue: dict[int, int] | None = None

    def end(self, answer: Any, error: DeliveryError | None = None) -> None:  # noqa: ANN401 - what the wait says
        """Keep the promise, or fail it. Whoever was cancelled meanwhile does not hear of it."""
        self.is_over, self.answer, self.error = True, answer, error
        future = self.future
        if future is not None and not future.done():
            future.set_result(None)


class Deadlines:
    """When promises are over: for each length of wait a queue in order of time, so that one timer serves all.

    Promises that were answered leave their queue at once. The queues are as many as there are different timeouts.
    """

    def __init__(self, clock: Clock, expire: Callable[[int], None]) -> None:
        self._clock = clock
        self._expire = expire
        self._queues: dict[float, tuple[dict[int, int], int]] = {}
        """Timeout: when which promise is over, and the timeout in nanoseconds."""
        self._timer: Timer | None = None
        self._next_ns = 0

    def add(self, key: int, timeout: float, now_ns: int) -> dict[int, int]:
        """Begin to wait; returns the queue, and whoever takes the key out of it stops waiting."""
        known = self._queues.get(timeout)
        if known is None:
            known = self._queues[timeout] = {}, int(timeout * 1e9)
        queue, length_ns = known
        queue[key] = due_ns = now_ns + length_ns
        if self._timer is None or due_ns < self._next_ns:
            self._set(due_ns)
        return queue

    def close(self) -> None:
        """Stop the timer."""
        self._queues.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, due_ns: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next_ns = due_ns
        self._timer = self._clock.call_later(max(due_ns - self._clock.now_ns(), 0) / 1e9, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._clock.now_ns()
        next_ns = None
        for timeout in list(self._queues):
            queue, _ = self._queues[timeout]
            for key in _until(queue, now):
                del queue[key]
                self._expire(key)
            if queue:
                first = next(iter(queue.values()))
                next_ns = first if next_ns is None else min(next_ns, first)
            else:
                del self._queues[timeout]
        if next_ns is not None and self._timer is None:
            self._set(next_ns)


def _until(queue: dict[int, int], now: int) -> list[int]:
    found = []
    for key, due_ns in queue.items():
        if due_ns > now:
            break
        found.append(key)
    return found


class MessageHub:
    """The sending side of a node."""

    def __init__(self, identity: bytes, node: bytes, clock: Clock, ids: Ids) -> None:
        self.identity = identity
        self._node = node
        self._now_ns = clock.now_ns
        self._new_flow = ids.guid
        self._next_key = 0
        self._promises: dict[int, Promise] = {}
        self._by_flow: dict[bytes, int] = {}
        self._points: dict[tuple[tuple[MessageType, ...], tuple[MessageType, ...]], tuple[MessageType, ...]] = {}
        self._deadlines = Deadlines(clock, self._expire)

    def __len__(self) -> int:
        """How many promises are open."""
        return len(self._promises)

    def request(
        self,
        kind: MessageType,
        payload: object,
        wait: Wait,
        timeout: float,
        receiver: bytes = b"",
        node: bytes = b"",
        distribution: Distribution = Distribution.UNICAST,
    ) -> tuple[Envelope, Promise]:
        """Make a message that starts a flow and waits for callbacks; returns it as it must be sent, and the promise.

        Whoever has sent it begins to wait, unless the promise is over by then.
        """
        self._next_key = key = self._next_key + 1
        points = wait.points
        if kind in points:  # a request that answers itself comes straight back
            receiver, node = self.identity, self._node
        message = Message(
            b"",
            kind.identity,
            kind.version,
            kind.partition,
            b"",
            self._new_flow(),
            receiver,
            node,
            distribution,
            TRACE_ROUTING,
            points,
            key,
            self.identity,
            self._node,
            "",
            b"",
            int(timeout * TICKS_PER_SECOND),
        )
        now_ns = self._now_ns()
        self._promises[key] = promise = Promise(key, wait, timeout, message, now_ns)
        return Envelope(message, payload, now_ns), promise

    def promise(self, message: Message, wait: Wait, timeout: float) -> tuple[Envelope, Promise]:
        """Let a message that is already made wait for callbacks. Its flow, its addresses and its TTL stay as they are.

        What comes back by callback points of its own comes here too, and ends here.
        """
        self._next_key = key = self._next_key + 1
        message = msgspec.structs.replace(
            message,
            trace_options=TRACE_ROUTING,
            callback_points=self._joined(wait.points, message.callback_points) if message.callback_points else wait.points,
            callback_key=key,
            callback_receiver_identity=self.identity,
            callback_receiver_node_identity=self._node,
        )
        now_ns = self._now_ns()
        self._promises[key] = promise = Promise(key, wait, timeout, message, now_ns)
        return Envelope(message, None, now_ns), promise

    def begin_wait(self, promise: Promise, loop: asyncio.AbstractEventLoop) -> Future[None]:
        """Wait until a promise is over, at its deadline at the latest; what it came to is in the promise."""
        future: Future[None] = Future(loop=loop)
        promise.future = future
        if promise.is_over:
            future.set_result(None)
        else:
            promise.queue = self._deadlines.add(promise.key, promise.timeout, promise.since_ns)
        return future

    def receive(self, envelope: Envelope) -> bool:
        """Take a callback; False if nobody waits for it any more."""
        message = envelope.message
        promise = self._promises.get(message.callback_key or self._by_flow.get(message.correlation_id, 0))
        if promise is None or (promise.future is not None and promise.future.done()):
            return False
        kinds = promise.wait.kinds
        kind_key = message.identity, message.version, message.partition
        if kind_key not in kinds:
            if message.type != EXCEPTION:
                return False
            self._fail(promise, read_failure(envelope))
            return True
        kind = kinds[kind_key]
        answer = envelope.payload if kind is not None else message
        if answer is None and kind is not None:
            try:
                answer = kind.decode(message.body)
            except HoplineError as error:
                self._fail(promise, DeliveryError("REJECTED", str(error)))
                return True
        if promise.wait.collect == "all":
            promise.answers = promise.answers or []
            promise.answers.append(answer)
            return True
        self._forget(promise)
        promise.end(answer)
        return True

    def fail(self, message: Message, error: DeliveryError) -> bool:
        """Let the promise of a message fail, if the message is a request of ours whose promise is still open.

        Later messages of the flow carry the same key; that one of them ends badly does not say that no answer will come.
        """
        if message.callback_receiver_identity != self.identity:
            return False
        promise = self._promises.get(message.callback_key)
        if promise is None or promise.wait.collect == "all" or message.type != promise.request.type:
            return False
        self._fail(promise, error)
        return True

    def sent_to(self, message: Message, node: bytes) -> None:
        """Note that a request went to a node. Only what has left can come back without its key."""
        if message.callback_receiver_identity == self.identity:
            promise = self._promises.get(message.callback_key)
            if promise is not None and node not in promise.nodes:
                promise.nodes += (node,)
                self._by_flow[message.correlation_id] = promise.key

    def not_sent_to(self, message: Message, node: bytes) -> None:
        """Note that a request has not left for a node after all."""
        promise = self._promises.get(message.callback_key)
        if promise is not None and message.callback_receiver_identity == self.identity:
            promise.nodes = tuple(other for other in promise.nodes if other != node)

    def held(self, message: Message, *, is_held: bool) -> None:
        """Note whether a request waits for a route: if its time ends meanwhile, nobody was there."""
        if message.callback_receiver_identity == self.identity:
            promise = self._promises.get(message.callback_key)
            if promise is not None and message.type == promise.request.type:
                promise.is_held = is_held

    def node_lost(self, node: bytes) -> None:
        """Fail the promises whose request went to that node alone."""
        for promise in list(self._promises.values()):
            if promise.nodes == (node,):
                self._fail(promise, DeliveryError("PEER_LOST", "the node that had the request is gone"))
            else:
                promise.nodes = tuple(other for other in promise.nodes if other != node)

    def _joined(self, points: tuple[MessageType, ...], more: tuple[MessageType, ...]) -> tuple[MessageType, ...]:
        """Points and others behind them: the same tuple each time, by which the codec knows them."""
        joined = self._points.get((points, more))
        if joined is None:
            if len(self._points) >= MOST_POINTS:
                self._points.clear()
            joined = self._points[points, more] = points + tuple(point for point in more if point not in points)
        return joined

    def abandon(self, promise: Promise) -> None:
        """Stop waiting: the one who asked has gone."""
        self._forget(promise)

    def close(self) -> None:
        """Fail what is open."""
        for promise in list(self._promises.values()):
            self._fail(promise, DeliveryError("CLOSED", "the node is stopping"))
        self._deadlines.close()

    def _expire(self, key: int) -> None:
        promise = self._promises.get(key)
        if promise is None:
            return
        if promise.wait.collect == "all":
            self._forget(promise)
            promise.end(promise.answers or [])
            return
        if promise.is_held:
            self._fail(promise, DeliveryError("NO_ROUTE", f"nobody took it within {promise.timeout:g} s"))
        else:
            self._fail(promise, DeliveryError("EXPIRED", f"no answer within {promise.timeout:g} s"))

    def _fail(self, promise: Promise, error: DeliveryError) -> None:
        self._forget(promise)
        error.correlation = promise.request.correlation_id.decode(errors="replace")
        promise.end(None, error)

    def _forget(self, promise: Promise) -> None:
        if self._promises.pop(promise.key, None) is not None:
            if self._by_flow:
                self._by_flow.pop(promise.request.correlation_id, None)
            if promise.queue is not None:
                promise.queue.pop(promise.key, None)


def read_failure(envelope: Envelope) -> DeliveryError:
    """What a KINO.EXCEPTION says, as the error that the caller gets."""
    report = envelope.payload
    if not isinstance(report, ExceptionMessage):
        try:
            report = ExceptionMessage.read(envelope.message.body)
        except HoplineError as error:
            return RemoteError("unknown", f"the report of the failure cannot be read: {error}", "")
    type_name, text = report.exception_type or "unknown", report.message or ""
    if type_name.startswith(OUR_ERRORS):
        return DeliveryError(type_name.removeprefix(OUR_ERRORS), text)
    return RemoteError(type_name, text, report.stack_trace or "")
