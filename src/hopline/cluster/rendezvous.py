"""The rendezvous: relays what nodes say about their routes to all nodes, so that one address is enough to find everybody.

    pull        what nodes send: routes, questions, goodbyes, pings
    publisher   the same, to all nodes; heart beats; who leads
    partners    the same as that, for other clusters; and a subscription to what those publish for us
    synod       with several rendezvous: one publisher and one subscription for the lease, see `lease.py`

Theory. Of several rendezvous one leads at a time, and only that one relays; the others tell who does. A node that hears the
wrong one turns to the right one, and one that hears nothing to the next. Nothing is kept here: who comes asks all others.

Of a partner cluster all rendezvous are heard at once: only the one that leads there repeats anything. What they say about
routes, in domains that are allowed, is told to our nodes and to no further cluster, so that nothing goes in circles.

What is relayed keeps its domain and signature; nodes check these. Only messages about routes are relayed, and a ping is
answered with a pong: with anything else strangers could use us to shout. The relayed frame 0 names the socket it came from,
as with the reference; v5 nodes expect it to be empty.

Formats. A node of the reference reads one format. Heart beats and answers go out in each format that such nodes have used or
that we were told, and in v6 if there are none; Hopline's nodes read all, and announce themselves in those they hear.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from hopline.cluster.discovery import Soon
from hopline.cluster.endpoints import Endpoint, read_endpoint
from hopline.cluster.lease import TICKS_PER_SECOND, LeaseMember, utc_ticks
from hopline.cluster.messages import SPOKEN, HowAreYou, RendezvousReport, WhereAreYou, control_frames, read_control
from hopline.cluster.settings import RendezvousSettings
from hopline.errors import HoplineError, PayloadError, WireError
from hopline.node.clock import Clock, Timer
from hopline.node.ids import Ids
from hopline.payload.service import (
    HeartBeat,
    Lease,
    Ping,
    Pong,
    QuorumHeartBeat,
    RendezvousConfigurationChanged,
    RendezvousNode,
    RendezvousNotLeader,
    ServicePayload,
)
from hopline.security.domains import ROUTING_CONTROL
from hopline.transport.bundle import GREETING
from hopline.transport.channels import Channels, Publisher, Pull, Subscription
from hopline.wire import Decoded, FormatName, Message, decode

logger = logging.getLogger("hopline.cluster")

GAP_S: Final = 0.2
"""Shortest time between two answers to all that somebody else leads, or that we are here: a stranger could ask for many."""

GREET_S: Final = 0.05
"""Shortest time between two greetings: many may come at once."""

PING: Final = Ping.identity
_LEAST_S: Final = 0.01
NS_PER_TICK: Final = 100


class Recorder(Protocol):
    """Sees what passes a rendezvous: a capture does. Called on the event loop: it must not block or raise."""

    def on_message(self, point: str, message: Message, frames: list[bytes] | None, payload: object) -> None:
        """See a message come in (`wire_in`) or go out (`wire_out`)."""


@dataclass(slots=True)
class RendezvousBooks:
    """What a rendezvous did."""

    received: int = 0
    relayed: int = 0
    answered: int = 0
    not_leading: int = 0
    refused: int = 0
    relayed_bytes: int = 0
    by_identity: Counter[str] = field(default_factory=Counter)


class Rendezvous:
    """A running rendezvous; `start` and `close` it.

    Args:
        settings: addresses and times.
        channels: the sockets; closed with the rendezvous.
        clock: where time comes from.
        random: numbers from 0 to 1.
        identity: ours; a new one by default.
        recorders: who sees what passes.
    """

    def __init__(
        self,
        settings: RendezvousSettings,
        channels: Channels,
        *,
        clock: Clock,
        random: Callable[[], float],
        identity: bytes | None = None,
        recorders: Iterable[Recorder] = (),
    ) -> None:
        self.settings = settings
        self.identity = identity or Ids().guid()
        self.books = RendezvousBooks()
        self._channels = channels
        self._clock = clock
        self._random = random
        self._recorders = tuple(recorders)
        self._formats: dict[FormatName, None] = dict.fromkeys(settings.formats)
        self._told_s: dict[FormatName, float] = {}
        self._pong_soon: dict[FormatName, Soon] = {}
        self._lease: LeaseMember | None = None
        self._owner: bytes | None = None
        self._synod: Publisher | None = None
        self._others: Subscription | None = None
        self._nodes: tuple[RendezvousNode, ...] = ()
        self._beat_timer: Timer | None = None
        self._lease_timer: Timer | None = None
        self._is_closed = False

    async def start(self) -> None:
        """Bind, and begin; raises TransportError if an address is bad or taken."""
        unicast, broadcast = self.settings.bind_addresses
        try:
            self._pull: Pull = self._channels.pull(unicast, self._on_node)
            self._greet_soon = Soon(self._clock.call_later, lambda: self._clock.now_ns() / 1e9, GREET_S, self._greet)
            self._publisher = self._channels.publish(broadcast, self._greet_soon.ask)
            partner_bind = self.settings.partner_bind
            self._partners = self._channels.publish(partner_bind) if partner_bind else None
            partner = self._partners.address if self._partners is not None else None
            self._heard = self._channels.subscribe(self._on_partner)
            for address in self.settings.partners:
                self._heard.connect(address)
            self.node = RendezvousNode(self._publisher.address, self._pull.address, partner)
            self._nodes = named_nodes(self.settings) or (self.node,)
            if len(self.settings.members) > 1:
                self._join_synod()
        except BaseException:
            await self._channels.close()
            raise
        self._beat()

    async def close(self) -> None:
        """Stop. A lease that we hold ends by itself: nobody can be told to forget it."""
        self._is_closed = True
        for timer in (self._beat_timer, self._lease_timer):
            if timer is not None:
                timer.cancel()
        await self._channels.close(0.2)

    # What is known.

    @property
    def endpoint(self) -> Endpoint:
        """Where nodes find us."""
        return Endpoint(self._pull.address, self._publisher.address)

    @property
    def is_leader(self) -> bool:
        """Whether we lead: alone always, else while the lease is ours."""
        return self._lease is None or self._lease.is_leader(self._now_ticks())

    @property
    def leader(self) -> RendezvousNode | None:
        """Who leads; None if nobody knows."""
        if self._lease is None:
            return self.node
        lease = self._lease.leader(self._now_ticks())
        return _owner_of(lease) if lease is not None else None

    @property
    def formats(self) -> tuple[FormatName, ...]:
        """What we speak to all nodes."""
        return tuple(self._formats) or ("v6",)

    def reconfigure(self, nodes: Iterable[RendezvousNode]) -> None:
        """Tell all nodes which rendezvous there are from now on, this one among them if it stays."""
        self._nodes = tuple(nodes)
        self._shout(RendezvousConfigurationChanged(self._nodes))

    def on_refused(self, reason: str, size: int) -> None:
        """Count what the channels did not take."""
        logger.info("refused on a channel: %s (%s bytes)", reason, size)
        self.books.received += 1
        self.books.refused += 1

    def take(self, frames: list[bytes]) -> bool:
        """Take what a node in this process says, without a socket in between."""
        self._on_node([GREETING, *frames])
        return True

    # From nodes.

    def _on_node(self, frames: list[bytes]) -> None:
        """Take what a node sends: its source, an empty frame where a socket identity would be, and the message."""
        self.books.received += 1
        source, rest = frames[0], frames[1:]
        try:
            decoded = decode(rest)
        except (WireError, IndexError):
            self.books.refused += 1
            return
        message = decoded.message
        self._see("wire_in", message, [source, *rest[1:]])
        format: FormatName = decoded.format  # type: ignore[assignment]
        payload = None if message.identity in ROUTING_CONTROL else read_control(decoded)
        if isinstance(payload, WhereAreYou):
            self._answer(source, RendezvousConfigurationChanged((self.node, *self._other_nodes())))
        elif isinstance(payload, HowAreYou):
            self._answer(source, self._report())
        elif message.identity not in ROUTING_CONTROL:
            self.books.refused += 1
        else:
            if not source.startswith(GREETING) and format in SPOKEN and format not in self._formats:
                self._formats[format] = None
                self._beat_now((format,))
            if self.is_leader:
                self._relay(source, rest, decoded, format)
            else:
                self._tell_leader(format)

    def _relay(self, source: bytes, rest: list[bytes], decoded: Decoded, format: FormatName) -> None:
        message = decoded.message
        if message.identity == PING:
            self.books.answered += 1
            self._pong(format)
            return
        self.books.relayed += 1
        self.books.by_identity[message.identity.decode(errors="replace")] += 1
        self._publish([source if format == "v6" else b"", *rest[1:]], message)

    def _on_partner(self, frames: list[bytes]) -> None:
        """Take what a partner cluster says: heart beats and the like are for its own nodes."""
        self.books.received += 1
        try:
            message = decode(frames).message
        except WireError:
            self.books.refused += 1
            return
        self._see("wire_in", message, frames)
        allowed = self.settings.partner_domains
        if message.identity not in ROUTING_CONTROL or message.identity == PING:
            return
        if message.domain not in allowed and "*" not in allowed:
            self.books.refused += 1
        elif self.is_leader:
            self.books.relayed += 1
            self.books.by_identity[message.identity.decode(errors="replace")] += 1
            self._publish(frames, message, is_ours=False)

    def _pong(self, format: FormatName) -> None:
        """Show that we are heard. All hear it, so one is enough for all who have asked meanwhile."""
        if format not in self._pong_soon:

            def pong() -> None:
                if not self._is_closed:
                    self._publish(control_frames(Pong(), format))

            self._pong_soon[format] = Soon(self._clock.call_later, lambda: self._clock.now_ns() / 1e9, GAP_S, pong)
        self._pong_soon[format].ask()

    def _answer(self, source: bytes, payload: ServicePayload) -> None:
        """Somebody who knows our address alone asks where we are heard, or how we are."""
        self.books.answered += 1
        frames = control_frames(payload)
        self._see("wire_out", None, frames)
        self._pull.reply(source, frames)

    def _other_nodes(self) -> list[RendezvousNode]:
        """The other rendezvous that we know, the leader among them."""
        known = {node.unicast_uri: node for node in (*filter(None, [self.leader]), *self._nodes)}
        return [node for uri, node in known.items() if uri != self.node.unicast_uri]

    def _report(self) -> RendezvousReport:
        books = self.books
        return RendezvousReport(
            self.node,
            self.leader,
            self._nodes,
            tuple(name.encode() for name in self.formats),
            books.received,
            books.relayed,
            books.answered,
            books.not_leading,
            books.refused,
            books.relayed_bytes,
        )

    def _tell_leader(self, format: FormatName) -> None:
        self.books.not_leading += 1
        leader, now_s = self.leader, self._clock.now_ns() / 1e9
        if leader is not None and now_s - self._told_s.get(format, float("-inf")) >= GAP_S:
            self._told_s[format] = now_s
            self._publish(control_frames(RendezvousNotLeader(leader), format))

    # To nodes.

    def _publish(self, frames: list[bytes], message: Message | None = None, *, is_ours: bool = True) -> None:
        """Tell our nodes, and partners if it comes from us. It is seen before: its time is not to be after it has come."""
        self._see("wire_out", message, frames)
        for publisher in filter(None, (self._publisher, self._partners if is_ours else None)):
            publisher.publish(frames)
            self.books.relayed_bytes += sum(map(len, frames))

    def _shout(self, payload: ServicePayload) -> None:
        for format in self.formats:
            self._publish(control_frames(payload, format))

    def _beat(self) -> None:
        if not self._is_closed:
            self._beat_timer = self._clock.call_later(self.settings.heartbeat_s, self._beat)
            self._beat_now(self.formats)
            if self._synod is not None:
                self._synod.publish(control_frames(QuorumHeartBeat(self.settings.synod)))

    def _greet(self) -> None:
        """Somebody has come to listen, and need not wait for the next heart beat."""
        if not self._is_closed:
            self._beat_now(self.formats)

    def _beat_now(self, formats: Iterable[FormatName]) -> None:
        for format in formats:
            if self.is_leader:
                beat = HeartBeat(int(self.settings.heartbeat_s * TICKS_PER_SECOND))
                frames = control_frames(beat, format)
                if format == "v6":
                    # There what is relayed names the socket it came from. So do we: Hopline's nodes know us by it.
                    frames[0] = GREETING + self.identity
                self._publish(frames)
            else:
                self._tell_leader(format)

    def _see(self, point: str, message: Message | None, frames: list[bytes]) -> None:
        for recorder in self._recorders:
            recorder.on_message(point, message if message is not None else decode(frames).message, frames, None)

    # The lease.

    def _join_synod(self) -> None:
        settings = self.settings
        self._synod = self._channels.publish(settings.synod)
        self._others = self._channels.subscribe(self._on_synod)
        for uri in settings.members:
            if uri != settings.synod:
                self._others.connect(uri)
        self._lease = LeaseMember(
            settings.synod,
            settings.members,
            identity=self.identity,
            payload=self.node.write(),
            now_ticks=self._now_ticks(),
            random=self._random,
            times=settings.times,
        )
        self._ahead_ns = self._clock.wall_ns() - self._clock.now_ns()
        self._wait_for_lease()

    def _on_synod(self, frames: list[bytes]) -> None:
        try:
            decoded = decode(frames)
        except WireError:
            self.books.refused += 1
            return
        self._see("wire_in", decoded.message, frames)
        payload = read_control(decoded)
        if payload is None or self._lease is None:
            self.books.refused += 1
        elif not isinstance(payload, QuorumHeartBeat):
            self._look_at_clock(self._lease)
            self._say(self._lease.on_message(self._now_ticks(), payload))

    def _say(self, payloads: Iterable[ServicePayload]) -> None:
        """Publish what the lease asks for, and come back when it wants to."""
        if self._synod is not None:
            for payload in payloads:
                frames = control_frames(payload)
                self._see("wire_out", None, frames)
                self._synod.publish(frames)
        self._wait_for_lease()
        self._look_who_leads()

    def _wait_for_lease(self) -> None:
        if self._lease is None or self._is_closed:
            return
        if self._lease_timer is not None:
            self._lease_timer.cancel()
        wait_s = (self._lease.deadline_ticks - self._now_ticks()) / TICKS_PER_SECOND
        self._lease_timer = self._clock.call_later(max(wait_s, _LEAST_S), self._on_lease_time)

    def _on_lease_time(self) -> None:
        if self._lease is not None and not self._is_closed:
            self._look_at_clock(self._lease)
            self._say(self._lease.on_time(self._now_ticks()))

    def _look_at_clock(self, lease: LeaseMember) -> None:
        """The lease lives by the clock on the wall. If that was set, all that was measured with it is void."""
        ahead_ns = self._clock.wall_ns() - self._clock.now_ns()
        moved_ns, self._ahead_ns = abs(ahead_ns - self._ahead_ns), ahead_ns
        if moved_ns > lease.times.clock_drift_ticks * NS_PER_TICK:
            logger.warning("the clock was set by %.3f s: starting anew", moved_ns / 1e9)
            lease.forget(self._now_ticks())

    def _look_who_leads(self) -> None:
        """Tell nodes at once when it is somebody else."""
        lease = self._lease.leader(self._now_ticks()) if self._lease is not None else None
        owner = lease.identity if lease is not None else None
        if owner is not None and owner != self._owner:
            self._owner = owner
            leader = self.leader
            logger.info("the leader is %s", leader.unicast_uri if leader is not None else owner)
            self._told_s.clear()
            self._beat_now(self.formats)

    def _now_ticks(self) -> int:
        return utc_ticks(self._clock.wall_ns())


def named_nodes(settings: RendezvousSettings) -> tuple[RendezvousNode, ...]:
    """All rendezvous that a configuration names; none if it leaves that open.

    >>> named_nodes(RendezvousSettings(nodes=("tcp://10.0.0.1:8011",)))[0].broadcast_uri
    'tcp://10.0.0.1:8001'
    """
    endpoints = map(read_endpoint, settings.nodes)
    return tuple(RendezvousNode(endpoint.broadcast or endpoint.by_sample, endpoint.unicast) for endpoint in endpoints)


def _owner_of(lease: Lease) -> RendezvousNode | None:
    try:
        return RendezvousNode.read(lease.owner_payload or b"")
    except (PayloadError, HoplineError):
        return None
