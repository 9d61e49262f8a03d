"""The MessageRouter: finds who gets a message, and sees to it that every message comes to an end.

    from a hub or an actor, or from another node
      -> in time? over too many nodes?
      -> the routing table chooses
           a local actor      its host takes it, or is full
           a local hub        the promise is kept
           another node       hop, trail entry, remaining TTL, signature, bytes in that node's format, link
           nobody             held for a while, if there may be news; then NO_ROUTE

`route` answers who is full, if somebody is and the sender should wait; in every other case the message has been taken or has
ended. Nothing here blocks, and nothing that comes from outside may raise out of here.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from hopline.errors import DeliveryError, HoplineError, SecurityError, WireError, clean
from hopline.flow import inherit_flow, is_expired, record_hop, remaining_ttl
from hopline.identity import EXCEPTION, RECEIPT, is_hub
from hopline.node.away import Away, Peer
from hopline.node.clock import Clock
from hopline.node.dead_letters import DeadLetter, DeadLetters, cut
from hopline.node.envelope import Envelope
from hopline.node.guard import HANDLED, Guard
from hopline.node.host import ActorHost, Waits
from hopline.node.hub import OUR_ERRORS, MessageHub
from hopline.node.routes import RoutingTable
from hopline.node.statistics import Books
from hopline.node.taps import Taps
from hopline.payload.registry import kind_of
from hopline.payload.service import ExceptionMessage
from hopline.security.domains import ROUTING_CONTROL
from hopline.wire import Decoded, FormatName, Message, RoutingEntry, decode, encode
from hopline.wire.template import Templates

logger = logging.getLogger("hopline.node")

HOP_LIMIT: Final = 32
"""Nodes a message may go over: far more than a healthy network needs, few enough to end a circle soon."""

DEEPEST: Final = 16
"""Deliveries that may nest before one waits for the next turn: actors that answer at once call each other on one stack."""

MOST_TRAILS: Final = 1024
"""Trails whose continuation is remembered."""


class MessageRouter:
    """One router; a node has one."""

    def __init__(
        self,
        table: RoutingTable[Any],
        hub: MessageHub,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        books: Books,
        dead_letters: DeadLetters,
        taps: Taps,
        guard: Guard | None = None,
        hop_limit: int = HOP_LIMIT,
        hold_seconds: float = 5.0,
        hold_messages: int = 10_000,
    ) -> None:
        self.table = table
        self.hub = hub
        self.books = books
        self.dead_letters = dead_letters
        self.own_entry = RoutingEntry("", table.node)
        self.away: Away | None = None
        self._loop = loop
        self._clock = clock
        self._taps = taps
        self.guard = guard
        self._templates = Templates()
        self._hop_limit = hop_limit
        self._hold_ns = int(hold_seconds * 1e9)
        self._hold_messages = hold_messages
        self._held: dict[int, tuple[Envelope, int]] = {}
        self._held_key = 0
        self._tried: dict[int, int] = {}  # what was held and is tried again, and until when it may be
        self._is_giving_up = self._is_trying = False
        self._depth = 0
        self._is_closed = False
        self._later: list[Envelope] = []
        self._hops: dict[tuple[int, int], tuple[tuple[RoutingEntry, ...], tuple[RoutingEntry, ...]]] = {}
        self._on_end: Callable[[], None] | None = None
        self._is_tapped = bool(taps.all)
        self._is_watched = bool(taps.ends)

    # Taking.

    def route(self, envelope: Envelope, *, without: frozenset[bytes] = frozenset()) -> Waits | None:
        """See to it that a message comes to an end; returns who is full if the sender should wait."""
        if envelope.message.ttl_ticks and not self.is_in_time(envelope):
            return None
        return self.dispatch(envelope, without)

    def dispatch(self, envelope: Envelope, without: frozenset[bytes] = frozenset()) -> Waits | None:
        """Route a message that has just come or was just made, and so cannot have grown old here."""
        message = envelope.message
        if self._is_closed:
            self.end_badly(envelope, "CLOSED", "the node is stopping")
            return None
        if self._is_trying:
            self._try_held()  # first: nobody overtakes what was held
        if self._is_tapped:
            see = self._taps.router_in
            if see is not None:
                see(message, None, envelope.payload)
        local, remote = self.table.choose(message, without=without)
        if message.distribution or len(local) > 1:
            self._spread(envelope, local, remote)
        elif local:
            target = local[0]
            if target is not self.hub:
                return self._deliver(envelope, target)
            self._answer(envelope)
        elif remote:
            return self._send(envelope, remote[0], without)
        else:
            self._no_route(envelope)
        return None

    def _spread(self, envelope: Envelope, local: tuple[Any, ...], remote: tuple[bytes, ...]) -> None:
        """A copy for everybody. A broadcast waits for nobody: who is full misses it, and that is counted."""
        count = len(local) + len(remote)
        if not count:
            self.end_badly(envelope, "NO_ROUTE", "nobody listens to this broadcast")
            return
        self.books.copies += count - 1
        for target in local:
            if self._deliver(envelope.with_message(envelope.message), target) is not None:
                self.end_badly(envelope, "OVERFLOW", "the mailbox is full")
        for node in remote:
            if self._send(envelope.with_message(envelope.message), node, frozenset({node})) is not None:
                self.end_badly(envelope, "OVERFLOW", "the link is full")

    def _answer(self, envelope: Envelope) -> None:
        """Hand a message to our hub: a promise is kept, or nobody waits any more."""
        message = envelope.message
        if self._is_tapped:
            see = self._taps.hub_in
            if see is not None:
                see(message, None, envelope.payload)
        if not self.hub.receive(envelope):
            self.end_badly(envelope, "EXPIRED", "nobody waits for this answer any more")
            return
        self.books.answered += 1
        if self._is_watched:
            self._ended("answered", message, "")

    def _deliver(self, envelope: Envelope, target: ActorHost) -> Waits | None:
        if self._depth >= DEEPEST:
            if not self._later:
                self._loop.call_soon(self._go_on)
            self._later.append(envelope)
            return None
        message = envelope.message
        if self._is_tapped:
            see = self._taps.actor_in
            if see is not None:
                see(message, None, envelope.payload)
        wants_receipt = RECEIPT in message.callback_points
        if wants_receipt:
            envelope.message = _without_receipt(message)
        self._depth += 1
        try:
            is_taken = target.offer(envelope)
        finally:
            self._depth -= 1
        if is_taken:
            if wants_receipt:
                self.say(Message(identity=RECEIPT.identity, version=1), Envelope(message))
            return None
        envelope.message = message
        if target.policy == "wait":
            return target
        self.end_badly(envelope, "OVERFLOW", "the mailbox is full", tell=target.policy == "fail")
        return None

    def _go_on(self) -> None:
        later, self._later = self._later, []
        for envelope in later:
            full = self.route(envelope)
            if full is not None:
                self.route_when_room(full, envelope)

    def route_when_room(self, full: Waits, envelope: Envelope, then: Callable[[], None] | None = None) -> None:
        """Route a message again as soon as there is room, and go on with `then` once it is taken."""

        def again() -> None:
            still_full = self.route(envelope)
            if still_full is not None:
                still_full.when_room(again)
            elif then is not None:
                then()

        full.when_room(again)

    # Sending to other nodes.

    def _send(self, envelope: Envelope, node: bytes, without: frozenset[bytes]) -> Waits | None:
        message = envelope.message
        if message.hops >= self._hop_limit:
            self.end_badly(envelope, "HOP_LIMIT", f"sent on {message.hops} times; the limit is {self._hop_limit}")
            return None
        peer = self.away.peer(node) if self.away is not None else None
        if peer is None:
            self.table.remove_node(node)
            return self.route(envelope, without=without | {node})
        try:
            frames = self._pack(envelope, node, peer)
        except HoplineError as error:
            self.end_badly(envelope, "REJECTED", f"cannot be sent: {error}", tell=True)
            return None
        if self._is_tapped:
            self.sending()
        if not peer.send(frames):
            other = self.table.choose(message, without=without | {node})
            return peer if not any(other) else self.route(envelope, without=without | {node})
        if not envelope.is_from_outside:
            self.hub.sent_to(message, node)
        self.sent(message, frames)
        return None

    def sending(self) -> None:
        """Say that a message is about to leave for another node."""
        mark = self._taps.leaving
        if mark is not None:
            mark()

    def sent(self, message: Message, frames: list[bytes]) -> None:
        """Note that a message is on its way to another node, and with which bytes."""
        self.books.forwarded += 1
        see = self._taps.scaleout_out
        if see is not None:
            see(message, frames, None)
        if self._is_watched:
            self._ended("forwarded", message, "")

    def _pack(self, envelope: Envelope, node: bytes, peer: Peer) -> list[bytes]:
        """Hop, trail, what is left of the TTL, domain and signature; then bytes in the format of the peer."""
        message = envelope.message
        payload, body, ttl = envelope.payload, message.body, message.ttl_ticks
        domain, signature = message.domain, message.signature
        if payload is not None and not body:
            body = self.body_of(payload)
        if ttl:
            ttl = remaining_ttl(ttl, self._clock.now_ns() - envelope.since_ns)
        if not signature and self.guard is not None:
            domain = self.guard.domain_for(message)
            text_version = peer.variant == "text-version"
            signature = self.guard.signature(message, domain, body, text_version=text_version)
        routing = self._trail_after(message)
        hops = message.hops + 1
        if peer.format == "v6" and not peer.variant:
            return self._templates.encode_hop(message, node, body, domain, signature, ttl, hops, routing)
        sent = msgspec.structs.replace(
            message,
            socket_identity=node,
            body=body,
            domain=domain,
            signature=signature,
            ttl_ticks=ttl,
            hops=hops,
            routing=routing,
        )
        return encode(_without_v5_fields(sent, peer.format), peer.format, peer.variant)

    def _trail_after(self, message: Message) -> tuple[RoutingEntry, ...]:
        """The trail with this hop. The same trail gives the same tuple each time: the codec knows it by who it is."""
        routing = message.routing
        known = self._hops.get((id(routing), message.trace_options))
        if known is not None:
            return known[1]
        hopped, dropped = record_hop(message, self.own_entry)
        self.books.trail_entries_dropped += dropped
        if not dropped:
            if len(self._hops) >= MOST_TRAILS:
                self._hops.clear()
            # The trail is kept beside the answer, so that nobody else can get its identity.
            self._hops[id(routing), message.trace_options] = routing, hopped.routing
        return hopped.routing

    @staticmethod
    def body_of(payload: object) -> bytes:
        """The bytes of a payload: a declared class, or the report of a failure."""
        if isinstance(payload, ExceptionMessage):
            return payload.write()
        return kind_of(type(payload)).encode(payload)

    # Coming from other nodes.

    def take_frames(self, frames: list[bytes]) -> tuple[Envelope, Waits] | None:
        """Take what another node sent; returns it and who is full if it must wait, and then reading should pause."""
        self.books.received += 1
        try:
            return self._take(frames)
        except Exception:
            # A tap that raises, or a mistake of ours: whatever it is, the next message must still be read.
            logger.exception("a message from outside could not be taken")
            self._reject(None, frames, "REJECTED", "an internal error; see the log")
            return None

    def _take(self, frames: list[bytes]) -> tuple[Envelope, Waits] | None:
        try:
            decoded = self._templates.decode(frames)
        except WireError as error:
            for tap in self._taps.broken:
                tap.on_broken(frames)
            self._reject(None, frames, error.code, str(error))
            return None
        message = decoded.message
        see = self._taps.scaleout_in
        if see is not None:
            see(message, frames, None)
        if self.guard is not None:
            fault = self.guard.fault(decoded)
            if fault is not None:
                self._reject(message, frames, "REJECTED", fault)
                return None
        try:
            is_served = self.away is not None and self.away.serve(decoded)
        except SecurityError as error:
            self._reject(message, frames, "REJECTED", str(error))
            return None
        if is_served:
            self.books.served += 1
            self._ended("served", message, "")
            return None
        ttl = message.ttl_ticks
        envelope = Envelope(message, None, self._clock.now_ns() if ttl else 0, True)  # noqa: FBT003 - by position for speed
        if RECEIPT in message.callback_points and message.type != RECEIPT:
            envelope.message = self._confirm(envelope)
        full = self.dispatch(envelope) if ttl >= 0 else self.route(envelope)
        return None if full is None else (envelope, full)

    def take_service(self, frames: list[bytes], decoded: Decoded, serve: Callable[[Decoded], bool]) -> None:
        """Take a message about routes that came another way than over a link."""
        self.books.received += 1
        try:
            self._take_service(frames, decoded, serve)
        except Exception:
            # As in `take_frames`.
            logger.exception("a message about routes could not be taken")
            self._reject(None, frames, "REJECTED", "an internal error; see the log")

    def _take_service(self, frames: list[bytes], decoded: Decoded, serve: Callable[[Decoded], bool]) -> None:
        message = decoded.message
        see = self._taps.scaleout_in
        if see is not None:
            see(message, frames, None)
        fault = self.guard.fault(decoded) if self.guard is not None else None
        try:
            if fault is None and not serve(decoded):
                fault = "not a message about routes"
        except SecurityError as error:
            fault = str(error)
        if fault is not None:
            self._reject(message, frames, "REJECTED", fault)
            return
        self.books.served += 1
        self._ended("served", message, "")

    def _confirm(self, envelope: Envelope) -> Message:
        """Answer that a message has arrived, and take the receipt point out of it."""
        self.say(Message(identity=RECEIPT.identity, version=1), envelope)
        return _without_receipt(envelope.message)

    # Speaking for the node.

    def say(self, message: Message, about: Envelope, payload: object = None) -> None:
        """Send a message of the node itself that belongs to the flow of another one."""
        answer = inherit_flow(message, about.message)
        if about.message.domain and self.guard is not None:
            answer = msgspec.structs.replace(answer, domain=about.message.domain)
        self.books.sent_locally += 1
        envelope = Envelope(answer, payload)
        full = self.route(envelope)
        if full is not None:
            self.route_when_room(full, envelope)

    # Ends.

    def is_in_time(self, envelope: Envelope) -> bool:
        """Whether a message may live on; if not, it ends here."""
        message = envelope.message
        if not message.ttl_ticks:
            return True
        left = remaining_ttl(message.ttl_ticks, self._clock.now_ns() - envelope.since_ns)
        if not is_expired(left):
            return True
        self.end_badly(envelope, "EXPIRED", "the time to live is over")
        return False

    def _no_route(self, envelope: Envelope) -> None:
        message = envelope.message
        may_learn = self.away is not None and self.away.may_learn
        if not may_learn or len(self._held) >= self._hold_messages:
            self.end_badly(envelope, "NO_ROUTE", _nobody(message))
            return
        if self.away is not None:
            self.away.look_for(message)
        self.hub.held(message, is_held=True)
        self._held_key += 1
        until_ns = self._tried.get(id(envelope)) or self._clock.now_ns() + self._hold_ns
        self._held[self._held_key] = envelope, until_ns
        self._give_up_later()

    def routes_changed(self) -> None:
        """Try again what was held: there is news. What nobody takes even now waits on, not longer than it would have."""
        held, self._held = self._held, {}
        before, self._tried = self._tried, {id(envelope): until_ns for envelope, until_ns in held.values()}
        for envelope, _ in held.values():
            self.hub.held(envelope.message, is_held=False)
            full = self.route(envelope)
            if full is not None:
                self.route_when_room(full, envelope)
        self._tried = before  # a handler that ran meanwhile may have brought news of its own

    def routes_learned(self) -> None:
        """Try again what was held, once for all news of this turn of the loop: announcements come in bursts."""
        if self._held and not self._is_trying:
            self._is_trying = True
            self._loop.call_soon(self._try_held)

    def _try_held(self) -> None:
        self._is_trying = False
        self.routes_changed()

    def _give_up_later(self) -> None:
        if self._held and not self._is_giving_up:
            self._is_giving_up = True
            next_ns = min(until_ns for _, until_ns in self._held.values())
            self._clock.call_later(max(next_ns - self._clock.now_ns(), 0) / 1e9, self._give_up)

    def _give_up(self) -> None:
        self._is_giving_up = False
        now = self._clock.now_ns()
        # Nobody could be asked yet where they should go: the time they wait for that has not begun.
        is_joining = self.away is not None and self.away.is_joining
        for key, (envelope, until) in list(self._held.items()):
            if is_joining:
                self._held[key] = envelope, max(until, now + self._hold_ns)
            elif until <= now:
                del self._held[key]
                self.end_badly(envelope, "NO_ROUTE", _nobody(envelope.message))
        self._give_up_later()

    def end_badly(self, envelope: Envelope, code: str, reason: str, *, tell: bool = True) -> None:
        """A bad end: counted, kept as a dead letter, and told to who waits for it."""
        message = envelope.message
        self._letter(code, reason, message, ())
        if code == "EXPIRED":
            self.books.expired += 1
        elif code == "REJECTED":
            self.books.rejected += 1
        else:
            self.books.dead_lettered += 1
        self._ended(code, message, reason)
        if not tell or message.type == EXCEPTION:
            return
        if self.hub.fail(message, DeliveryError(code, reason)):
            return
        # An answer that nobody waits for any more is nobody's failure.
        is_answer = is_hub(message.receiver_identity)
        if envelope.is_from_outside and EXCEPTION in message.callback_points and not is_answer:
            self.report_failure(envelope, OUR_ERRORS + code, reason, "")

    def report_failure(self, envelope: Envelope, type_name: str, text: str, stack: str) -> None:
        """Tell the caller that its message failed."""
        body = ExceptionMessage(text, type_name, stack)
        self.say(Message(identity=EXCEPTION.identity, version=1), envelope, body)

    def refuse_unread(self, reason: str) -> None:
        """Count and keep word of a message that the transport did not even read."""
        self.books.received += 1
        self._reject(None, [], "REJECTED", reason)

    def take_back(self, frames: list[bytes]) -> None:
        """A message that was on its way to a node comes back unsent: look for another way."""
        message = decode(frames).message
        self.books.forwarded -= 1
        if message.identity in ROUTING_CONTROL:
            # It was about us and for that node: it means nothing to another.
            self.end_badly(Envelope(message), "PEER_LOST", "the node it was for is gone", tell=False)
            return
        self.hub.not_sent_to(message, message.socket_identity)
        routing = message.routing[:-1] if message.routing[-1:] == (self.own_entry,) else message.routing
        message = msgspec.structs.replace(message, hops=max(message.hops - 1, 0), routing=routing, signature=b"")
        envelope = Envelope(message, None, self._clock.now_ns(), message.hops > 0)
        full = self.route(envelope)
        if full is not None:
            self.route_when_room(full, envelope)

    def _reject(self, message: Message | None, frames: list[bytes], code: str, reason: str) -> None:
        """Refuse what came from outside. Nobody is told: the address would be the attacker's choice."""
        self.books.rejected += 1
        self._letter(code, reason, message, cut(frames))
        self._ended(code, message, reason)

    def _letter(self, code: str, reason: str, message: Message | None, frames: tuple[bytes, ...]) -> None:
        self.dead_letters.add(DeadLetter(code, reason, self._clock.now_ns(), message, frames))
        if logger.isEnabledFor(logging.DEBUG):
            flow = message.correlation_id if message is not None else b""
            logger.debug("%s: %s", code, clean(reason), extra={"correlation_id": flow.decode(errors="replace")})

    def when_ended(self, callback: Callable[[], None] | None) -> None:
        """Call back after every end, or no longer; a node that stops waits for the last one."""
        self._on_end = callback
        self.taps_changed()

    def taps_changed(self) -> None:
        """See whether anybody looks; if not, nobody is called."""
        self._is_tapped = bool(self._taps.all)
        self._is_watched = self._on_end is not None or bool(self._taps.ends)

    def _ended(self, end: str, message: Message | None, reason: str) -> None:
        for tap in self._taps.ends:
            tap.on_end(end, message, reason)
        if self._on_end is not None:
            self._on_end()

    def handled(self, envelope: Envelope, failure: str = "") -> None:
        """A handler has ended: well, or with a failure."""
        message = envelope.message
        self.books.handled += 1
        if self._is_watched:
            self._ended("failed" if failure else "handled", message, failure)
        if HANDLED in message.callback_points and not failure:
            self.say(Message(identity=HANDLED.identity, version=1), envelope)

    def close(self) -> None:
        """From now on every message ends as CLOSED, and first of all those that are held."""
        self._is_closed = True
        self.routes_changed()
        self._go_on()


def _without_receipt(message: Message) -> Message:
    points = tuple(point for point in message.callback_points if point != RECEIPT)
    return msgspec.structs.replace(message, callback_points=points)


def _nobody(message: Message) -> str:
    identity = message.identity.decode(errors="replace")
    return f"nobody handles {identity} version {message.version!r}"


def _without_v5_fields(message: Message, format: FormatName) -> Message:
    """Leave out what old formats have no place for; their nodes match callbacks by correlation id."""
    if format == "v3":
        return msgspec.structs.replace(
            message,
            callback_key=0,
            callback_receiver_node_identity=b"",
            domain="",
            signature=b"",
            receiver_node_identity=b"",
        )
    if format == "v4":
        return msgspec.structs.replace(
            message, callback_key=0, callback_receiver_node_identity=b"", receiver_node_identity=b""
        )
    return message
