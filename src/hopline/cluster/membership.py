"""A node's place in a cluster: what it tells a rendezvous, what it hears from it, and whose heart beat it listens to.

    push           to the rendezvous                  our routes, our questions, our goodbye
    subscription   from the rendezvous                the same of all others; its heart beat; that it leads no longer
    publisher      to everybody who listens           our heart beat
    heart beats    from the nodes that we send to     theirs

Theory. A subscription is made some time after it is asked for, and what was published before is missed. So a node that comes
to a rendezvous first listens: Hopline's greet whoever comes, those of the reference beat every few seconds. From then on it
misses nothing, and knows in which format it is understood; it tells its routes and asks for those of all others. It does the
same at every rendezvous that it turns to, and now and then, in case something was lost after all.

Where a rendezvous is heard, whoever knows only one address of it can guess: ten ports below, as in the reference's samples
and by default in ours. If nobody is there it asks, in v6, as only one of Hopline's could be meant.

What comes from a rendezvous is believed as far as it is signed. What is never signed (heart beats, who leads, who the
rendezvous are) is taken from the one rendezvous that we listen to, and only the listed ones are turned to. That a node
cannot be reached is believed of nobody: we see for ourselves.

Many nodes may start at once, and each asks all others: an answer goes to everybody, so one is enough for all who have asked
meanwhile, and there is a shortest time between two.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from typing import Final

from hopline.cluster.discovery import MissingRoutes, Soon, Wanted
from hopline.cluster.embedded import Embedded
from hopline.cluster.endpoints import Endpoint, Endpoints
from hopline.cluster.health import LONGEST_S, TICKS_PER_SECOND, PeersHealth
from hopline.cluster.messages import QUESTION, SPOKEN, control_frames, read_control
from hopline.cluster.settings import ClusterSettings
from hopline.errors import HoplineError, WireError
from hopline.identity import MessageType, is_hub
from hopline.node.announcements import Said
from hopline.node.clock import Timer
from hopline.node.membership import Member
from hopline.payload.service import (
    DiscoverMessageRoute,
    Health,
    HeartBeat,
    MessageContract,
    Ping,
    Pong,
    RendezvousConfigurationChanged,
    RendezvousNotLeader,
    RequestClusterRoutes,
    RequestNodeRoutes,
    RouteRegistration,
    UnregisterMessageRoute,
)
from hopline.security.domains import ROUTING_CONTROL
from hopline.transport.bundle import GREETING
from hopline.transport.channels import Channels, Publisher, Push, Subscription
from hopline.wire import Decoded, FormatName, Message, decode, encode

logger = logging.getLogger("hopline.cluster")

TICK_S: Final = 0.5
"""How often we look at what is due."""

SLEPT_S: Final = 1.0
"""So much too late, and this process was stopped or blocked: what it has not heard meanwhile still waits to be read."""

GAP_S: Final = 0.25
"""Shortest time between two announcements, and between two rounds of questions."""

MOST_QUESTIONS: Final = 100
"""Questions for routes that are asked at once."""

KNOCK_S: Final = 0.1
"""How long a connection on this machine or in this house may take, before we ask where the rendezvous is heard."""

MOST_BEATS_MISSED: Final = 3
"""Heart beats that a rendezvous may miss."""

USUAL_BEAT_S: Final = 5.0
"""Between two heart beats of a rendezvous that has not said how often: the reference's samples have this."""


class Membership:
    """The membership of one node: see `hopline.node.membership.Membership`.

    Args:
        endpoints: the rendezvous.
        channels: the sockets; closed with the membership.
        health_bind: where our heart beat is heard, such as "tcp://127.0.0.1:0".
        settings: times.
        may_connect: asked before we listen to an address that another node told us.
        random: numbers from 0 to 1; nodes that were started together should not ask together for ever.
        embedded: a rendezvous that this node is itself while nobody else is.
    """

    def __init__(
        self,
        endpoints: Iterable[Endpoint],
        channels: Channels,
        *,
        health_bind: str,
        settings: ClusterSettings | None = None,
        may_connect: Callable[[str], bool] = lambda _: True,
        random: Callable[[], float] = lambda: 0.5,
        embedded: Embedded | None = None,
    ) -> None:
        self.endpoints = Endpoints(endpoints)
        self.settings = settings or ClusterSettings()
        self._channels = channels
        self._health_bind = health_bind
        self._may_connect = may_connect
        self._random = random
        self.embedded = embedded
        self._offer: asyncio.Task[None] | None = None
        self._missing = MissingRoutes()
        self._health = PeersHealth(most_missed=self.settings.most_missed, stale_after_s=self.settings.stale_after_s)
        self._formats: dict[FormatName, float] = {}
        self._spoken: dict[bytes, FormatName] = {}
        self._wanted: dict[MessageType | bytes | None, None] = {}
        self._asked_s: dict[str, float] = {}
        self._beat_s = USUAL_BEAT_S
        self._is_heard = False
        self._is_ours = False
        self._is_silent = False
        self._found: set[str] = set()
        self._is_closed = False
        self._push: Push | None = None
        self._heard: Subscription | None = None
        self._timer: Timer | None = None
        self.refused = 0
        """Messages of the cluster that were not what they should be, beside those that the node itself refuses."""

    async def start(self, member: Member) -> None:
        """Begin to beat, and turn to the first rendezvous."""
        self._member = member
        clock = member.clock
        self._announce_soon = Soon(clock.call_later, self._now_s, GAP_S, self._announce)
        self._ask_soon = Soon(clock.call_later, self._now_s, GAP_S, self._ask_missing)
        self._publisher: Publisher = self._channels.publish(self._health_bind)
        self._beats: Subscription = self._channels.subscribe(self._on_beat)
        interval_ticks = int(self.settings.heartbeat_s * TICKS_PER_SECOND)
        member.announcements.health = Health(self._publisher.address, interval_ticks)
        self._next_beat_s = self._now_s()
        self._next_discovery_s = self._now_s() + self._some(self.settings.discovery_s)
        if self.embedded is not None:
            await self.embedded.start()
        self._ticked_s = self._now_s()
        self._join()
        self._tick()

    async def close(self) -> None:
        """Leave."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        await self._channels.close(0.5)
        if self._offer is not None:
            await self._offer
        if self.embedded is not None:
            await self.embedded.close()

    @property
    def is_joined(self) -> bool:
        """Whether the current rendezvous is heard."""
        return self._is_heard

    @property
    def is_ours(self) -> bool:
        """Whether the current rendezvous shows that it is one of Hopline's. Where v5 alone is spoken it cannot."""
        return self._is_ours

    @property
    def watched(self) -> int:
        """How many nodes we keep in mind as alive."""
        return len(self._health)

    @property
    def formats(self) -> tuple[FormatName, ...]:
        """The formats in which the rendezvous speaks, and so we do; none if that is not known yet."""
        return tuple(self._formats) or ((self.settings.format,) if self.settings.format else ())

    def format_of(self, node: bytes) -> FormatName | None:
        """The format in which a node tells about itself."""
        return self._spoken.get(node)

    def on_refused(self, reason: str, size: int) -> None:
        """Count what the channels did not take."""
        logger.info("refused on a channel: %s (%s bytes)", reason, size)
        self.refused += 1

    # From the node.

    def announce(self, only: MessageType | bytes | None = None) -> None:
        """Tell the cluster what this node can take, soon."""
        self._wanted[only] = None
        self._announce_soon.ask()

    def withdraw(self, actor: bytes, types: Iterable[MessageType]) -> None:
        """Tell the cluster what an actor of this node no longer takes."""
        self._tell(self._member.announcements.withdrawals(actor, types))

    def look_for(self, message: Message) -> None:
        """Ask the cluster who can take a message; and if it was sent here by mistake, that it should not be."""
        wanted: Wanted = message.receiver_identity if is_hub(message.receiver_identity) else message.type
        if self._missing.add(wanted):
            self._ask_soon.ask()
            if message.hops > 0 and not message.receiver_identity:
                self._disown(message.type)

    def asked(self, domain: str) -> None:
        """Another node asks for all routes: all hear the answers, so for a while we need not ask ourselves."""
        if domain in self._member.announcements.names:  # where nothing is signed it may be any
            self._asked_s[domain] = self._now_s()
        self.announce()

    def met(self, node: bytes, uri: str, health: Health | None, format: FormatName) -> None:  # noqa: ARG002
        """Another node told about itself."""
        has_moved = self._health.has_moved(node, health)
        if has_moved:
            self._gone(node)
        self._spoken[node] = format
        self._health.met(node, health, self._now_s())
        if has_moved:
            self.uses(node)

    def uses(self, node: bytes) -> None:
        """Listen to the heart beat of a node that we send to."""
        uri = self._health.uses(node, self._now_s())
        if uri and not self._hears(uri):
            self._health.unheard(node)

    def lost(self, node: bytes, uri: str) -> None:
        """A node could not be reached any more: should it be there after all, it may tell its routes again."""
        self._gone(node)
        if not self._is_closed:
            self._tell(self._member.announcements.everywhere(RequestNodeRoutes(uri, node)))

    def left(self, node: bytes) -> None:
        """A node said goodbye."""
        self._gone(node)

    def say_goodbye(self) -> None:
        """Tell the cluster that this node leaves; through our own rendezvous without a socket, as it will end with us."""
        self._is_closed = True
        if self._push is not None:
            own = self.embedded.rendezvous if self.embedded is not None else None
            if own is not None:
                self._tell(self._member.announcements.goodbyes(), own.take)
            if own is None or own.endpoint.unicast != self.endpoints.current.unicast:
                self._tell(self._member.announcements.goodbyes())

    # To the rendezvous.

    def _join(self) -> None:
        """Turn to the current rendezvous."""
        if self._push is not None:
            self._push.close()
        if self._heard is not None:
            self._heard.close()
        self._is_heard = self._is_ours = False
        self._found = set()
        self._joined_s = self._last_s = self._now_s()
        self._beat_s = USUAL_BEAT_S
        endpoint = self.endpoints.current
        logger.info("turning to the rendezvous at %s", endpoint.unicast)
        self._heard = self._channels.subscribe(self._on_broadcast, self._on_found)
        try:
            self._push = self._channels.push(endpoint.unicast, self._on_reply)
        except HoplineError as error:
            logger.warning("cannot turn to the rendezvous at %s: %s", endpoint.unicast, error)
        where = endpoint.broadcast or endpoint.by_sample
        self._listen(where)
        self._member.clock.call_later(KNOCK_S if where else 0.0, self._knock)

    def _tell(self, said: Iterable[Said], send: Callable[[list[bytes]], bool] | None = None) -> None:
        """Say something to the cluster, in each format that is spoken there; who reads both must not see a repeat."""
        if self._push is None:
            return
        send = send or self._push.send
        for domain, payload in said:
            for format in self.formats:
                message = self._member.announcements.message(domain, payload)
                frames = encode(message, format)
                self._member.saying()
                if send(frames):
                    self._member.said(message, frames)

    def _announce(self) -> None:
        wanted, self._wanted = self._wanted, {}
        if self._is_closed:
            return
        for only in [None] if None in wanted else list(wanted):
            self._tell(self._member.announcements.registrations(only=only))

    def _ask_missing(self) -> None:
        announcements = self._member.announcements
        for wanted in self._missing.take(MOST_QUESTIONS):
            contract = MessageContract.of(wanted) if isinstance(wanted, MessageType) else None
            receiver = None if isinstance(wanted, MessageType) else wanted
            question = DiscoverMessageRoute(self._member.identity, announcements.address, receiver, contract)
            names = [n for n in announcements.names if receiver or announcements.belongs(wanted, n)]  # type: ignore[arg-type]
            self._tell((name, question) for name in names)
        if self._missing:
            self._ask_soon.ask()

    def _disown(self, kind: MessageType) -> None:
        announcements = self._member.announcements
        routes = (RouteRegistration(None, (MessageContract.of(kind),)),)
        payload = UnregisterMessageRoute(announcements.address, self._member.identity, routes)
        self._tell((name, payload) for name in announcements.names if announcements.belongs(kind, name))

    def _ask_all(self) -> None:
        """Tell all that we can take, and ask for all that others can."""
        announcements = self._member.announcements
        self.announce()
        self._tell(announcements.everywhere(RequestClusterRoutes(announcements.address, self._member.identity)))

    # From the rendezvous.

    def _on_broadcast(self, frames: list[bytes]) -> None:
        try:
            decoded = decode(frames)
        except WireError:
            self._member.came(frames)
            self._member.hear(frames, None)  # it counts what cannot be read
            return
        identity = decoded.message.identity
        if identity in ROUTING_CONTROL:
            self._member.came(frames)
            if not self._formats:
                self._learn_format(decoded)
            self._alive()
            self._member.hear(frames, decoded)
            return
        payload = read_control(decoded)
        if isinstance(payload, HeartBeat):
            self._on_heart_beat(payload, decoded)
        elif isinstance(payload, Pong):
            self._learn_format(decoded)
            self._alive()
        elif isinstance(payload, RendezvousNotLeader):
            self._on_not_leader(payload)
        elif isinstance(payload, RendezvousConfigurationChanged):
            self._on_reconfigured(payload)
        else:
            self.refused += 1

    def _alive(self) -> None:
        """The rendezvous is heard."""
        self._last_s = self._now_s()
        if not self._is_heard:
            self._is_heard = True
            where = self.endpoints.current.unicast
            logger.log(logging.WARNING if self._is_silent else logging.INFO, "joined at the rendezvous %s", where)
            self._is_silent = False
            self._ask_all()

    def _on_heart_beat(self, payload: HeartBeat, decoded: Decoded) -> None:
        if payload.socket_identity is None:  # that of a node has one
            self._is_ours = self._is_ours or decoded.message.socket_identity.startswith(GREETING)
            self._beat_s = min(payload.heart_beat_interval_ticks / TICKS_PER_SECOND, LONGEST_S)
            self._learn_format(decoded)
            self._alive()

    def _learn_format(self, decoded: Decoded) -> None:
        """Speak to the cluster as its rendezvous does, in each format that it has used lately."""
        if decoded.format not in SPOKEN:
            return
        now_s = self._now_s()
        is_new = decoded.format not in self._formats
        self._formats[decoded.format] = now_s  # type: ignore[index]
        oldest_s = now_s - 3 * self._silence_s
        self._formats = {name: last_s for name, last_s in self._formats.items() if last_s >= oldest_s}
        if is_new and self._is_heard:
            self._ask_all()

    def _on_not_leader(self, payload: RendezvousNotLeader) -> None:
        leader = payload.new_leader
        if leader is None or not leader.unicast_uri or leader.unicast_uri == self.endpoints.current.unicast:
            return
        if self._now_s() - self._joined_s < GAP_S:
            return  # two of them may point at each other
        if self.endpoints.turn_to(leader.unicast_uri):
            self._join()
        else:
            self.refused += 1
            logger.info("the rendezvous at %s leads, and is none of ours", leader.unicast_uri)
            if self._push is not None:
                # One of Hopline's may name it as one of ours. One of the reference that does not lead repeats nothing.
                self._push.send(control_frames(QUESTION))

    def _on_reconfigured(self, payload: RendezvousConfigurationChanged) -> None:
        known = self.endpoints.current
        if self.endpoints.replace(self._allowed(payload)):
            logger.info("the rendezvous are now %s", ", ".join(e.unicast for e in self.endpoints.all))
            if self.endpoints.current != known:
                self._join()

    def _allowed(self, payload: RendezvousConfigurationChanged) -> list[Endpoint]:
        """The rendezvous that a message names, without those that we may not go to."""
        named = [endpoint for endpoint in map(Endpoint.of, payload.rendezvous_nodes) if endpoint is not None]
        allowed = [endpoint for endpoint in named if all(map(self._may_connect, filter(None, endpoint)))]
        self.refused += len(named) > len(allowed)
        return allowed

    def _on_reply(self, frames: list[bytes]) -> None:
        """The rendezvous says where it is heard, and which others there are."""
        try:
            decoded = decode(frames)
        except WireError:
            self.refused += 1
            return
        payload = read_control(decoded)
        current = self.endpoints.current
        if not isinstance(payload, RendezvousConfigurationChanged):
            self.refused += 1
            return
        found = self._allowed(payload)
        if not found or found[0] != Endpoint.of(payload.rendezvous_nodes[0]):
            return
        # It is the first; it may call itself by another name than we do.
        own, *others = found
        if not current.broadcast:
            self.endpoints.learn(own)
        known = {endpoint.unicast for endpoint in self.endpoints.all} | {own.unicast}
        self.endpoints.replace([*self.endpoints.all, *(other for other in others if other.unicast not in known)])
        if current.broadcast:
            return
        if self._heard is not None:
            for guessed in self._heard.addresses - {own.broadcast}:
                self._heard.disconnect(guessed)
        self._listen(own.broadcast)

    def _listen(self, broadcast: str) -> None:
        if self._heard is not None and broadcast and self._may_connect(broadcast):
            try:
                self._heard.connect(broadcast)
            except HoplineError as error:
                logger.warning("cannot listen to the rendezvous at %s: %s", broadcast, error)

    # Heart beats of nodes.

    def _on_beat(self, frames: list[bytes]) -> None:
        try:
            payload = read_control(decode(frames))
        except WireError:
            payload = None
        if isinstance(payload, HeartBeat) and payload.socket_identity:
            is_known = self._health.beat(payload.socket_identity, self._now_s())
            # A stranger may name any address, also that of somebody whom we want to hear.
            if not is_known and payload.health_uri and not self._health.is_heard(payload.health_uri):
                self._beats.disconnect(payload.health_uri)
        else:
            self.refused += 1

    def _hears(self, uri: str) -> bool:
        """Listen to a heart beat; False if that cannot be, as with CURVE where we know no key for the address."""
        if not self._may_connect(uri):
            return False
        try:
            self._beats.connect(uri)
        except HoplineError as error:
            logger.info("cannot listen to the heart beat at %s: %s", uri, error)
            return False
        return True

    def _gone(self, node: bytes) -> None:
        self._spoken.pop(node, None)
        uri = self._health.gone(node)
        if uri:
            self._beats.disconnect(uri)

    # Time.

    def _tick(self) -> None:
        if self._is_closed:
            return
        self._timer = self._member.clock.call_later(TICK_S, self._tick)
        now_s = self._now_s()
        slept_s, self._ticked_s = now_s - self._ticked_s - TICK_S, now_s
        if slept_s > SLEPT_S:
            logger.warning("nothing happened here for %.1f s", slept_s)
            self._health.slept(slept_s, now_s)
            self._last_s = min(self._last_s + slept_s, now_s)
        if now_s >= self._next_beat_s:
            self._next_beat_s = now_s + self.settings.heartbeat_s
            self._beat()
        if not self._is_heard:
            self._knock()
        if now_s - self._last_s > self._silence_s:
            # Once, until one is heard: this may go on for days.
            logger.log(
                logging.INFO if self._is_silent else logging.WARNING,
                "the rendezvous at %s is silent",
                self.endpoints.current.unicast,
            )
            self._is_silent = True
            self.endpoints.turn()
            self._join()
            if self.embedded is not None and (self._offer is None or self._offer.done()):
                self._offer = asyncio.ensure_future(self.embedded.start())
        if now_s >= self._next_discovery_s:
            self._next_discovery_s = now_s + self.settings.discovery_s / 2 + self._some(self.settings.discovery_s)
            long_ago_s = now_s - self.settings.discovery_s / 2
            if any(self._asked_s.get(name, -math.inf) < long_ago_s for name in self._member.announcements.names):
                self._ask_all()
        for node in self._health.dead(now_s):
            logger.warning("node %s missed its heart beats", node.decode(errors="replace"))
            self.lost(node, self._member.forget(node))
        for node in self._health.stale(now_s):
            self._member.check(node)

    def _knock(self) -> None:
        """Nothing is heard yet: ask for a sign of life if we know in which words, or where to listen if nobody is there."""
        push = self._push
        if push is None or self._is_heard or self._is_closed:
            return
        for format in self.formats:
            push.send(control_frames(Ping(), format))
        if not (self._found or self.endpoints.current.broadcast):
            push.send(control_frames(QUESTION))

    def _on_found(self, address: str) -> None:
        """There is somebody where we listen. If there was before, we have missed what was said in between."""
        if address in self._found:
            self._is_heard = False
        self._found.add(address)

    def _beat(self) -> None:
        beat = HeartBeat(int(self.settings.heartbeat_s * TICKS_PER_SECOND), self._member.identity, self._publisher.address)
        for format in self.formats:
            self._publisher.publish(control_frames(beat, format))

    @property
    def _silence_s(self) -> float:
        """How long the rendezvous may say nothing. One that cannot even be reached is not waited for as long."""
        is_there = self._push is not None and self._push.is_connected
        return max(self.settings.silence_s, MOST_BEATS_MISSED * self._beat_s if is_there else 0.0)

    def _now_s(self) -> float:
        return self._member.clock.now_ns() / 1e9

    def _some(self, seconds: float) -> float:
        return seconds * self._random()
