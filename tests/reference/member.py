"""A member of the reference network: sockets 3 and 4 of protocol.md 3.2, behaving as 3.5 and 3.6 say.

    sender      DEALER to the rendezvous    3   announcements and questions
    listener    SUB to the rendezvous       4   those of all nodes

What it announces, whom it believes, and when it turns to another rendezvous. Messages of the application are `node.py`'s.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import zmq

from hopline.identity import is_actor, is_hub
from hopline.payload.service import (
    DiscoverMessageRoute,
    HeartBeat,
    MessageContract,
    Pong,
    RegisterExternalRoute,
    RendezvousConfigurationChanged,
    RendezvousNotLeader,
    RequestClusterRoutes,
    RequestNodeRoutes,
    RouteRegistration,
    ServicePayload,
    UnregisterMessageRoute,
    UnregisterNode,
    UnregisterUnreachableNode,
    is_service,
)
from hopline.wire import Message, MessageType
from tests.reference.actors import ReferenceActor
from tests.reference.domains import NotAllowedError, NullDomains
from tests.reference.health import HealthMonitor
from tests.reference.rendezvous import Endpoint
from tests.reference.routes import Peer, Routes
from tests.reference.station import Format, Stamp, Station, new_identity

SLOW_S: Final = 2.0
"""How much longer than the reference we wait for a first connection: a busy machine is not the peer's fault."""

ROUTING_CONTROL: Final = (
    RegisterExternalRoute,
    UnregisterMessageRoute,
    UnregisterNode,
    UnregisterUnreachableNode,
    RequestClusterRoutes,
    RequestNodeRoutes,
    DiscoverMessageRoute,
)


@dataclass(frozen=True)
class Times:
    """What a host configures, in seconds; the values of the captures where they are known."""

    heart_beat_s: float = 5.0
    missing_heart_beats: int = 3
    stale_check_s: float = 15.0
    stale_after_s: float = 30.0
    settle_s: float = 0.1
    discovery_s: float = 30.0
    missing_routes_s: float = 1.0
    silence_s: float = 15.0
    unregister_s: float = 0.5


class Member(Station):
    """Announces its actors, asks for the routes of others, announces its hub; keeps the tables and the health monitor."""

    uri: str

    def __init__(
        self,
        rendezvous: Sequence[Endpoint],
        actors: Sequence[ReferenceActor],
        hub: bool,
        format: Format,
        stamp: Stamp,
        domains: NullDomains | None,
        times: Times | None,
    ) -> None:
        super().__init__(format, stamp)
        self.identity = new_identity()
        self.hub = b"\0" + new_identity() if hub else b""
        self.actors, self.routes = tuple(actors), Routes(actors)
        self.domains, self.times = domains or NullDomains(), times or Times()
        self.endpoints = list(rendezvous)
        self.lost: list[tuple[bytes, str]] = []
        """Nodes that were found to be gone, and how: `dead`, `stale`, `unreachable`."""
        self._missing: dict[tuple[bytes, MessageType], bool] = {}

    # --- start and stop -----------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self.health = HealthMonitor(self, self.on_unreachable)
        self._join()
        for actor in self.actors:
            if not actor.keep_local:
                self._announce(self.domains.domain_of(actor.contract.identity), (_registration(actor),))
        self._ask_for_routes()
        self.later(self.times.discovery_s, self._discover)
        self.later(self.times.missing_routes_s, self._look_for_missing)
        for domain in self.domains.names if self.hub else ():
            self._announce(domain, (RouteRegistration(self.hub),))

    def _join(self) -> None:
        """Connect to the current rendezvous, and wait (bounded) until the subscription has arrived there."""
        self._listener = self.open_socket(zmq.SUB, reader=self._on_broadcast)
        monitor = self._listener.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        self._listener.connect(self.endpoints[0].broadcast)
        if monitor.poll(int(SLOW_S * 1000)):
            time.sleep(self.times.settle_s)  # the subscription follows the handshake
        self._listener.disable_monitor()
        monitor.close()
        self._sender = self.open_socket(
            zmq.DEALER, connect=[self.endpoints[0].unicast], reader=lambda frames: self.on_deaf("sender", frames)
        )
        self._heard = time.monotonic()
        self.later(self.times.silence_s / 3, self._check_silence)

    def _leave(self) -> None:
        for domain in self.domains.names:
            self._say(UnregisterNode(self.uri, self.identity), domain)
        deadline = time.monotonic() + self.times.unregister_s  # the reference sleeps; we leave when it has come round
        left = len(self.domains.names)
        while left and (remaining := deadline - time.monotonic()) > 0 and self._listener.poll(remaining * 1000):
            message = self.read("listener", self._listener.recv_multipart())
            left -= message is not None and message.identity == UnregisterNode.identity and self.identity in message.body

    # --- the rendezvous -----------------------------------------------------------------------------------------------

    def _say(self, body: ServicePayload, domain: str) -> None:
        self.send("sender", self._sender, self.signed(self.service(body, domain)))

    def _announce(self, domain: str, routes: tuple[RouteRegistration, ...]) -> None:
        if routes:
            self._say(RegisterExternalRoute(self.uri, self.identity, routes, self.health.described), domain)

    def _announce_all(self, domain: str, contract: MessageType | None = None) -> None:
        """Every own route of a domain, or those of one contract; a hub belongs to all domains."""
        routes = [
            _registration(actor)
            for actor in self.actors
            if not actor.keep_local
            and contract in {None, actor.contract}
            and self.domains.domain_of(actor.contract.identity) == domain
        ]
        if self.hub and contract is None:
            routes.append(RouteRegistration(self.hub))
        self._announce(domain, tuple(routes))

    def _ask_for_routes(self) -> None:
        for domain in self.domains.names:
            self._say(RequestClusterRoutes(self.uri, self.identity), domain)

    def _discover(self) -> float:
        self._ask_for_routes()
        return self.times.discovery_s

    def _look_for_missing(self) -> float:
        """Ask once for each route that was missed; what was asked for a period ago may be asked for again."""
        self._missing = {key: False for key, is_new in self._missing.items() if is_new}
        for receiver, contract in self._missing:
            if is_hub(receiver):
                for domain in self.domains.names:
                    self._say(DiscoverMessageRoute(self.identity, self.uri, receiver, MessageContract.of(contract)), domain)
                continue
            try:
                domain = self.domains.domain_of(contract.identity)
            except NotAllowedError:
                continue
            self._say(DiscoverMessageRoute(self.identity, self.uri, None, MessageContract.of(contract)), domain)
        return self.times.missing_routes_s

    def _check_silence(self) -> float | None:
        if time.monotonic() - self._heard <= self.times.silence_s:
            return self.times.silence_s / 3
        self._restart([*self.endpoints[1:], self.endpoints[0]])
        return None

    def _restart(self, endpoints: list[Endpoint]) -> None:
        self.endpoints = endpoints
        for socket in (self._listener, self._sender):
            self._drop(socket)
        self._timers = [timer for timer in self._timers if timer[1] != self._check_silence]
        self._join()
        self._ask_for_routes()

    def _on_broadcast(self, frames: list[bytes]) -> None:
        message = self.read("listener", frames)
        if message is None:
            return
        if not is_service(message.identity, message.version, message.partition):
            self.complain("unexpected", f"{message.identity!r} is nothing for a node's listener", frames)
            return
        body = self.read_body(message)
        match body:
            case HeartBeat():
                self._heard = time.monotonic()
            case Pong():
                pass
            case RendezvousConfigurationChanged(rendezvous_nodes=nodes):
                self._restart([Endpoint(node.unicast_uri or "", node.broadcast_uri or "") for node in nodes])
            case RendezvousNotLeader(new_leader=leader) if leader is not None:
                new = Endpoint(leader.unicast_uri or "", leader.broadcast_uri or "")
                if new not in self.endpoints:
                    self.complain("leader", f"{new} is not configured", frames)
                elif new != self.endpoints[0]:
                    self._restart([new, *(known for known in self.endpoints if known != new)])
            case RequestNodeRoutes(target_node_identity=node):
                if node == self.identity:
                    self.control(message, body)
            case ServicePayload() if isinstance(body, ROUTING_CONTROL):
                if _node_of(body) != self.identity or isinstance(body, UnregisterUnreachableNode):
                    self.control(message, body)
            case ServicePayload():
                self.complain("unexpected", f"{body} is nothing for a node's listener", frames)

    # --- routing control ----------------------------------------------------------------------------------------------

    def control(self, message: Message, body: ServicePayload) -> None:
        frames = self.write(message)
        if not isinstance(body, UnregisterUnreachableNode):
            if not self.domains.is_allowed(message.domain):
                self.complain("domain", f"{message.identity!r} in domain {message.domain!r} is ignored", frames)
                return
            try:
                self.domains.check(message)
            except NotAllowedError as error:
                self.complain("signature", f"{message.identity!r}: {error}", frames)
                return
        match body:
            case RequestClusterRoutes() | RequestNodeRoutes():
                self._announce_all(message.domain)
            case DiscoverMessageRoute(receiver_identity=receiver) if receiver:
                if receiver == self.hub:
                    self._announce(message.domain, (RouteRegistration(self.hub),))
            case DiscoverMessageRoute(message_contract=contract) if contract is not None:
                if self.domains.has(contract.type.identity, message.domain):
                    self._announce_all(message.domain, contract.type)
            case RegisterExternalRoute():
                self.note(lambda: self._register(message, body))
            case UnregisterMessageRoute():
                self.note(lambda: self._unregister(message, body))
            case UnregisterNode(receiver_node_identity=node) | UnregisterUnreachableNode(receiver_node_identity=node):
                self.remove(node or b"")
            case _:
                self.complain("body", f"{body} says nothing", frames)

    def _register(self, message: Message, body: RegisterExternalRoute) -> None:
        frames, health = self.write(message), body.health
        if not (body.uri and body.node_identity and health and health.uri and health.heart_beat_interval_ticks):
            self.complain("body", f"a registration needs all of: {body}", frames)
            return
        peer = Peer(body.node_identity, body.uri, health.uri, health.heart_beat_interval_ticks / 10_000_000)
        known = self.routes.peers.get(peer.identity)
        if known is not None and (known.uri, known.health_uri) != (peer.uri, peer.health_uri):
            self.complain("moved", f"{known} has become {peer}, without leaving", frames)
        accepted = 0
        for route in body.routes:
            receiver = route.receiver_identity or b""
            if is_hub(receiver):
                self.routes.add(peer, receiver, None)
                accepted += 1
            elif not is_actor(receiver):
                self.complain("receiver", f"{receiver!r} is neither hub nor actor", frames)
            else:
                accepted += self._register_contracts(message, peer, route)
        if accepted:
            self.health.add(self.routes.peers[peer.identity])

    def _register_contracts(self, message: Message, peer: Peer, route: RouteRegistration) -> int:
        accepted = 0
        for contract in route.message_contracts:
            if not self.domains.has(contract.type.identity, message.domain):
                self.complain("contract", f"{contract} is not of domain {message.domain!r}", self.write(message))
                continue
            self.routes.add(peer, route.receiver_identity or b"", contract.type)
            accepted += 1
        return accepted

    def _unregister(self, message: Message, body: UnregisterMessageRoute) -> None:
        node = body.receiver_node_identity or b""
        for route in body.routes:
            if not route.message_contracts:  # it arrives as null, and the handler throws
                self.complain("body", "a hub cannot be unregistered by itself", self.write(message))
            for contract in route.message_contracts:
                if self.routes.remove(node, contract.type, route.receiver_identity):
                    self.remove(node)

    def remove(self, node: bytes) -> None:
        """Forget a node, and hang up."""
        peer = self.routes.peers.get(node)
        self.note(lambda: self.routes.remove_node(node))
        if peer is not None and peer.is_connected and all(peer.uri != other.uri for other in self.routes.peers.values()):
            self.disconnect(peer)
        self.health.delete(node)

    def disconnect(self, peer: Peer) -> None:
        raise NotImplementedError

    def on_unreachable(self, node: bytes, how: str) -> None:
        """What a node tells itself with KINO.UNREGUNREACHABLENODE."""
        self.note(lambda: self.lost.append((node, how)))
        self.remove(node)

    def miss(self, message: Message) -> None:
        """Look for somebody who takes a message like this; if it came from elsewhere, say that it is not us."""
        self._missing.setdefault(
            (message.receiver_identity if is_hub(message.receiver_identity) else b"", message.type), True
        )
        if message.hops and self.domains.is_allowed(message.domain):
            contract = MessageContract.of(message.type)
            route = RouteRegistration(message.receiver_identity or None, (contract,))
            self._say(UnregisterMessageRoute(self.uri, self.identity, (route,)), message.domain)

    def signed(self, message: Message) -> Message:
        return self.domains.sign(message)

    def on_deaf(self, name: str, frames: list[bytes]) -> None:
        """Something has come where nobody listens."""
        self.record(name, "in", frames, None)
        self.complain("deaf", f"the reference never reads its {name} socket", frames)


def _registration(actor: ReferenceActor) -> RouteRegistration:
    return RouteRegistration(actor.identity, (MessageContract.of(actor.contract),))


def _node_of(body: ServicePayload) -> bytes | None:
    """Whom a routing control message is from, or about."""
    for name in ("node_identity", "receiver_node_identity", "requestor_node_identity"):
        if hasattr(body, name):
            return getattr(body, name)
    return None
