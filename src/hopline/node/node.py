"""A Node: one router, its actors and its hub, and its place among other nodes.

    async with Node(actors=[Orders()]) as node:
        placed = await node.ask(PlaceOrder("42", 1999), OrderPlaced, timeout=2)

Objects come in, nothing is read from files here: `assembly.py` turns addresses and configuration into them.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar, overload

from hopline.errors import DeliveryError
from hopline.identity import RECEIPT
from hopline.node.actor import Actor, handlers_of
from hopline.node.clock import Clock, LoopClock
from hopline.node.dead_letters import DeadLetters
from hopline.node.envelope import Envelope
from hopline.node.guard import HANDLED, Guard
from hopline.node.host import ActorHost, Waits
from hopline.node.hub import TICKS_PER_SECOND, MessageHub, Wait
from hopline.node.ids import Ids
from hopline.node.membership import Membership
from hopline.node.outputs import Outputs
from hopline.node.peers import Peers, Spoken
from hopline.node.router import MessageRouter
from hopline.node.routes import NodeRoutes, RoutingTable
from hopline.node.statistics import Books, Statistics
from hopline.node.taps import Tap, Taps
from hopline.payload.registry import kind_of, type_of
from hopline.security import Domains
from hopline.transport.base import Transport
from hopline.wire import TRACE_ROUTING, Distribution, Message

logger = logging.getLogger("hopline.node")

DEFAULT_TIMEOUT: Final = 30.0
PATIENCE: Final = 5.0
"""Seconds for handlers to end after they were cancelled."""

BREATH: Final = 64
"""Messages sent from here before others get a turn of the event loop: it costs each of them a hundredth."""

THREADS: Final = 32
"""Handlers that are plain functions and run at the same time, over all actors of a node."""

_RECEIPTS: Final = {"node": Wait.of({RECEIPT: None}), "handled": Wait.of({HANDLED: None})}

_A = TypeVar("_A")
_B = TypeVar("_B")
_C = TypeVar("_C")


@dataclass(frozen=True, slots=True)
class Receipt:
    """How far a delivered message got, and at which node if it was another one than ours."""

    reached: Literal["node", "handled"]
    node: bytes


class Node:
    """A running node; start it with `async with`, or with `start` and `stop`.

    Args:
        actors: the actors that live here; more can come later with `add_actor`.
        transport: the way to other nodes; without one the node is alone.
        peers: addresses of other nodes.
        domains: security domains; without any nothing is signed or checked.
        taps: who sees the messages.
        identity: the node's identity; a new one by default.
        clock: where time comes from.
        hold_seconds: how long a message waits for a route that is not there yet.
        hop_limit: over how many nodes a message may go.
        may_connect: asked before we connect to an address, also to one that another node announced.
        membership: the node's place in a cluster; it needs a transport.
    """

    def __init__(
        self,
        *,
        actors: Iterable[Actor] = (),
        transport: Transport | None = None,
        peers: Iterable[str] = (),
        domains: Domains | None = None,
        taps: Iterable[Tap] = (),
        identity: bytes | None = None,
        clock: Clock | None = None,
        hold_seconds: float = 5.0,
        hop_limit: int = 32,
        may_connect: Callable[[str], bool] = lambda _: True,
        membership: Membership | None = None,
    ) -> None:
        self._ids = Ids()
        self.identity = identity or self._ids.guid()
        self.dead_letters = DeadLetters()
        self._first_actors = list(actors)
        self._transport = transport
        self._addresses = tuple(peers)
        self._domains = domains
        self._taps = Taps(taps)
        self.clock: Clock = clock or LoopClock()
        self._hold_seconds = hold_seconds
        self._hop_limit = hop_limit
        self._may_connect = may_connect
        self.membership = membership
        self._table: RoutingTable[ActorHost | MessageHub] = RoutingTable(self.identity)
        self._books = Books()
        self._hosts: dict[bytes, ActorHost] = {}
        self._retired: list[ActorHost] = []
        self._waits: dict[tuple[type, ...], Wait] = {}
        self._unbroken = 0
        self._peers: Peers | None = None
        self._state: Literal["new", "running", "stopping", "stopped"] = "new"

    # Life.

    async def start(self) -> Self:
        """Start: actors first, then the way to others, so that nobody finds us half ready."""
        if self._state != "new":
            raise RuntimeError(f"a node is started once; this one is {self._state}")
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="hopline")
        self._hub = MessageHub(self._ids.hub(), self.identity, self.clock, self._ids)
        self._router = MessageRouter(
            self._table,
            self._hub,
            loop=self._loop,
            clock=self.clock,
            books=self._books,
            dead_letters=self.dead_letters,
            taps=self._taps,
            guard=Guard(self._domains, self.clock, self._ids) if self._domains is not None else None,
            hold_seconds=self._hold_seconds,
            hop_limit=self._hop_limit,
        )
        self._outputs = Outputs(self._router, self._taps, self.clock, lambda host: self.remove_actor(host.identity))
        self._table.add_hub(self._hub.identity, self._hub)
        self._state = "running"
        try:
            for actor in self._first_actors:
                self.add_actor(actor)
            if self._transport is not None:
                self._peers = Peers(
                    self._router,
                    self._transport,
                    self._taps,
                    clock=self.clock,
                    addresses=self._addresses,
                    domains=self._domains,
                    may_connect=self._may_connect,
                    membership=self.membership,
                )
                self._router.away = self._peers
                await self._peers.start()
        except BaseException:
            await self.stop(0)
            raise
        return self

    async def stop(self, drain: float = 5.0) -> None:
        """Stop: take nothing more from our own, let what is here come to its end for at most `drain` seconds, close."""
        if self._state != "running":
            return
        self._state = "stopping"
        if drain > 0 and self._books.in_flight:
            idle = asyncio.Event()

            def look() -> None:
                if not self._books.in_flight:
                    idle.set()

            self._router.when_ended(look)
            timer = self.clock.call_later(drain, idle.set)
            await idle.wait()
            timer.cancel()
            self._router.when_ended(None)
        self._hub.close()
        if self._peers is not None:
            self._peers.say_goodbye()
        self._router.close()
        for host in (*self._hosts.values(), *self._retired):
            await host.close(PATIENCE)
        if self._peers is not None:
            await self._peers.close(min(drain, 1.0))
        await self._join_threads()
        self._state = "stopped"

    async def _join_threads(self) -> None:
        """Wait for handlers that run in threads: nothing can stop those. Not for ever, though."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        try:
            await asyncio.wait_for(asyncio.to_thread(self._pool.shutdown), PATIENCE)
        except TimeoutError:
            logger.warning("a handler still runs in a thread; the process cannot end before it does")

    async def __aenter__(self) -> Self:
        """Start."""
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; at once if something went wrong."""
        await self.stop(0 if error is not None else 5.0)

    def add_actor(self, actor: Actor) -> bytes:
        """Let an actor live here, at any time; returns its identity. Raises PayloadError if it handles nothing."""
        handlers = handlers_of(actor)
        identity = self._ids.actor()
        host = ActorHost(actor, identity, handlers, self._outputs, self, self._loop, self._pool)
        self._hosts[identity] = host
        self._table.add_actor(identity, host.types, host, local_only=actor.local_only)
        self._router.routes_changed()
        if self._peers is not None:
            self._peers.announce()
        return identity

    def remove_actor(self, identity: bytes) -> None:
        """Let an actor live here no more. What waits for it is routed again; what it handles just now goes on to its end."""
        host = self._hosts.pop(identity, None)
        if host is None:
            return
        self._retired = [retired for retired in (*self._retired, host) if not retired.is_idle]
        self._table.remove_actor(identity)
        if self._peers is not None and not host.actor.local_only:
            self._peers.withdraw(identity, host.types)
        waiting, room = host.retire()
        for envelope in waiting:
            full = self._router.route(envelope)
            if full is not None:
                self._router.route_when_room(full, envelope)
        for callback in room:
            callback()

    def add_tap(self, tap: Tap) -> None:
        """Let somebody look at the messages, from now on."""
        self._use_taps((*self._taps.all, tap))

    def remove_tap(self, tap: Tap) -> None:
        """Let somebody look no more."""
        self._use_taps(other for other in self._taps.all if other is not tap)

    def _use_taps(self, taps: Iterable[Tap]) -> None:
        self._taps.use(taps)
        if self._state != "new":
            self._router.taps_changed()

    # Sending.

    @overload
    async def ask(
        self, payload: object, reply: type[_A], /, *, timeout: float = ..., node: bytes = ..., receiver: bytes = ...
    ) -> _A: ...
    @overload
    async def ask(
        self,
        payload: object,
        reply: type[_A],
        other: type[_B],
        /,
        *,
        timeout: float = ...,
        node: bytes = ...,
        receiver: bytes = ...,
    ) -> _A | _B: ...
    @overload
    async def ask(
        self,
        payload: object,
        reply: type[_A],
        other: type[_B],
        third: type[_C],
        /,
        *,
        timeout: float = ...,
        node: bytes = ...,
        receiver: bytes = ...,
    ) -> _A | _B | _C: ...
    def ask(
        self, payload: object, /, *replies: type, timeout: float = DEFAULT_TIMEOUT, node: bytes = b"", receiver: bytes = b""
    ) -> Any:
        """Send a request and wait for its answer, whoever gives it: a message of the flow with one of the reply types.

        Raises:
            RemoteError: the handler failed.
            DeliveryError: no answer came; its code says why (NO_ROUTE, EXPIRED, PEER_LOST, OVERFLOW, CLOSED, REJECTED).
        """
        wait = self._waits.get(replies)
        if wait is None:
            wait = self._waits[replies] = Wait.of({kind_of(reply).message_type: kind_of(reply) for reply in replies})
        return self._ask(payload, wait, timeout, node, receiver)

    async def ask_all(self, payload: object, reply: type[_A], /, *, seconds: float) -> list[_A]:
        """Send a request to every actor that handles it, and collect the answers that come within some seconds."""
        wait = Wait.of({kind_of(reply).message_type: kind_of(reply)}, "all")
        answers: list[_A] = await self._ask(payload, wait, seconds, distribution=Distribution.BROADCAST)
        return answers

    async def tell(self, payload: object, /, *, node: bytes = b"", receiver: bytes = b"", ttl: float = 0.0) -> None:
        """Send a message one way. Returns when it was taken: by a mailbox, or by the way to another node."""
        await self._taken(Envelope(self._message(payload, ttl, node=node, receiver=receiver), payload, self._since(ttl)))

    async def publish(self, payload: object, /, *, ttl: float = 0.0) -> None:
        """Send a message to every actor that handles it, on all nodes."""
        message = self._message(payload, ttl, distribution=Distribution.BROADCAST)
        await self._taken(Envelope(message, payload, self._since(ttl)))

    async def deliver(
        self,
        payload: object,
        /,
        *,
        until: Literal["node", "handled"] = "node",
        timeout: float = DEFAULT_TIMEOUT,
        node: bytes = b"",
        receiver: bytes = b"",
    ) -> Receipt:
        """Send a message and wait for a receipt: that it reached a node, or (between Hopline nodes) that it was handled."""
        return self._receipt(until, await self._ask(payload, _RECEIPTS[until], timeout, node=node, receiver=receiver))

    async def deliver_message(
        self, message: Message, /, *, until: Literal["node", "handled"] = "node", timeout: float = DEFAULT_TIMEOUT
    ) -> Receipt:
        """Send a message that is already made, its body as bytes, and wait for a receipt as `deliver` does.

        Type, body, flow, addresses, distribution, domain and TTL are as the message says (no TTL: it never expires);
        signature and trail are ours. Answers by its callback points come to us and end here: nobody waits for them. A
        broadcast is confirmed by the first node that has it.
        """
        return self._receipt(until, await self._ask(None, _RECEIPTS[until], timeout, message=message))

    def _receipt(self, until: Literal["node", "handled"], answer: Message) -> Receipt:
        own = answer.routing[len(answer.routing) - answer.hops :] if answer.hops > 0 else ()
        return Receipt(until, own[0].identity if own else self.identity)

    def _message(
        self,
        payload: object,
        ttl: float,
        *,
        node: bytes = b"",
        receiver: bytes = b"",
        distribution: Distribution = Distribution.UNICAST,
    ) -> Message:
        if self._state != "running":
            raise DeliveryError("CLOSED", f"the node is {self._state}")
        kind = type_of(payload)
        return Message(
            b"",
            kind.identity,
            kind.version,
            kind.partition,
            b"",
            self._ids.guid(),
            receiver,
            node,
            distribution,
            TRACE_ROUTING,
            ttl_ticks=int(ttl * TICKS_PER_SECOND),
        )

    def _since(self, ttl: float) -> int:
        return self.clock.now_ns() if ttl else 0

    async def _ask(
        self,
        payload: object,
        wait: Wait,
        timeout: float,
        node: bytes = b"",
        receiver: bytes = b"",
        distribution: Distribution = Distribution.UNICAST,
        message: Message | None = None,
    ) -> Any:  # noqa: ANN401 - what the wait says
        if self._state != "running":
            raise DeliveryError("CLOSED", f"the node is {self._state}")
        self._unbroken += 1
        if self._unbroken >= BREATH:
            await self._breathe()
        if message is None:
            envelope, promise = self._hub.request(type_of(payload), payload, wait, timeout, receiver, node, distribution)
        else:
            envelope, promise = self._hub.promise(message, wait, timeout)
        try:
            full = self._send(envelope)
            if full is not None or not promise.is_over:
                future = self._hub.begin_wait(promise, self._loop)
                if full is not None:
                    await self._wait_for_room(full, envelope, future)
                await future
        except BaseException:  # whoever asked was cancelled, or a tap raises
            self._hub.abandon(promise)
            raise
        if promise.error is not None:
            raise promise.error
        return promise.answer

    async def _breathe(self) -> None:
        """Let the event loop turn: what is answered at once never waits, and who asks in a loop would have it alone."""
        self._unbroken = 0
        await asyncio.sleep(0)

    async def _taken(self, envelope: Envelope) -> None:
        self._unbroken += 1
        if self._unbroken >= BREATH:
            await self._breathe()
        full = self._send(envelope)
        if full is not None:
            await self._wait_for_room(full, envelope)

    def _send(self, envelope: Envelope) -> Waits | None:
        see = self._taps.hub_out
        if see is not None:
            see(envelope.message, None, envelope.payload)
        self._books.sent_locally += 1  # not before: what a tap breaks was never sent, and a stop would wait for its end
        return self._router.dispatch(envelope)

    async def _wait_for_room(self, full: Waits, envelope: Envelope, over: asyncio.Future[Any] | None = None) -> None:
        taken = asyncio.Event()
        self._router.route_when_room(full, envelope, taken.set)
        if over is not None:
            # Whatever ends the promise ends the wait.
            over.add_done_callback(lambda _: taken.set())
        await taken.wait()

    # Looking.

    @property
    def address(self) -> str:
        """Where other nodes reach us; empty without a transport."""
        return self._transport.address if self._transport is not None else ""

    def statistics(self) -> Statistics:
        """The books of this node, frozen now."""
        links = self._peers.count if self._peers is not None else 0
        pending = 0 if self._state == "new" else len(self._hub)
        return self._books.snapshot(promises_pending=pending, links=links)

    def reaches(self, node: bytes) -> bool:
        """Whether we are connected to another node that we know; if not, we begin to connect."""
        peer = self._peers.peer(node) if self._peers is not None else None
        return peer is not None and peer.link.is_connected

    def speaks(self, node: bytes) -> Spoken | None:
        """What another node speaks; None if it has not told us about itself."""
        return self._peers.speaks(node) if self._peers is not None else None

    def routes(self) -> dict[bytes, NodeRoutes]:
        """What other nodes can take, as far as we know."""
        return self._table.nodes()
