"""The way to other nodes: links, which node is behind which, and the routes they tell each other.

An address is enough to be a peer. When a link connects we send what we can take (KINO.REGEXTROUTE, once in each domain)
and ask for the other's (KINO.REQCLUSTROUTES); whoever hears of a node that it has no link to connects back. So two nodes of
which one knows the other's address find each other, and a node that comes back is used again.

What a peer speaks is learned from what it sends: it is answered in its own format. What is not signed as it must be has been
refused before it comes here.
"""

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from hopline.errors import HoplineError, TransportError
from hopline.identity import MessageType
from hopline.payload.service import (
    MessageContract,
    RegisterExternalRoute,
    RegisterExternalRouteV4,
    RequestClusterRoutes,
    RequestNodeRoutes,
    RouteRegistration,
    ServicePayload,
    UnregisterMessageRoute,
    UnregisterMessageRouteV4,
    UnregisterNode,
    read_service,
)
from hopline.security import Domains
from hopline.transport.base import Link, Transport
from hopline.wire import Decoded, FormatName, Message, encode

if TYPE_CHECKING:
    from hopline.node.router import MessageRouter

logger = logging.getLogger("hopline.node")

ZERO_FLOW: Final = b"00000000-0000-0000-0000-000000000000"
"""The correlation id of messages that belong to no flow."""

MOST_PEERS: Final = 10_000
"""Nodes we connect to at most: their number comes from outside."""

MOST_NODES_PER_ADDRESS: Final = 4
MOST_TYPES: Final = 10_000
"""Types that one announcement may name."""


class LinkedPeer:
    """A link, the nodes found behind it, and what they speak."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.nodes: set[bytes] = set()
        self.format: FormatName = "v6"
        self.variant: str | None = None
        self._room: list[Callable[[], None]] = []

    def send(self, frames: list[bytes]) -> bool:
        """Hand over a message; False if the link is full."""
        return self.link.send(frames)

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call back once the link has room."""
        self._room.append(callback)

    def has_room(self) -> None:
        """Let in those who wait; who does not fit waits again."""
        waiting, self._room = self._room, []
        for callback in waiting:
            callback()


class Peers:
    """All other nodes this one knows. It listens to the transport."""

    def __init__(
        self,
        router: "MessageRouter",
        transport: Transport,
        addresses: tuple[str, ...] = (),
        domains: Domains | None = None,
        may_connect: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._router = router
        self._transport = transport
        self._addresses = addresses
        self._may_connect = may_connect
        self._domains = domains
        self._links: dict[str, LinkedPeer] = {}
        self._nodes: dict[bytes, LinkedPeer] = {}
        self._stalled = 0

    async def start(self) -> None:
        """Bind, and connect to the addresses we were given."""
        await self._transport.start(self)
        self._router.own_entry = msgspec.structs.replace(self._router.own_entry, uri=self._transport.address)
        for address in self._addresses:
            self._connect(address)

    def say_goodbye(self) -> None:
        """Tell everybody that we leave, so that nobody sends us more."""
        goodbye = UnregisterNode(self._transport.address, self._router.table.node)
        for peer in self._links.values():
            if peer.link.is_connected:
                self._tell(peer, goodbye)

    async def close(self, linger: float) -> None:
        """Close; what still waits in a queue ends here."""
        for peer in self._links.values():
            for frames in peer.link.close():
                self._router.take_back(frames)
            peer.has_room()
        await self._transport.close(linger)

    @property
    def count(self) -> int:
        """How many links there are."""
        return len(self._links)

    @property
    def may_learn(self) -> bool:
        """Routes may always come: whoever knows our address can announce some."""
        return True

    # For the router.

    def peer(self, node: bytes) -> LinkedPeer | None:
        """The connection to a node, made if need be."""
        peer = self._nodes.get(node)
        if peer is None:
            uri = self._router.table.uri_of(node)
            peer = self._connect(uri) if uri else None
            if peer is not None:
                peer.nodes.add(node)
                self._nodes[node] = peer
        return peer

    def serve(self, decoded: Decoded) -> bool:
        """Take a message about routes; False if it is none."""
        message = decoded.message
        serve = _SERVED.get(message.identity)
        if serve is None or message.partition or message.version not in (1, b"1.0"):
            return False
        try:
            serve(self, read_service(message.identity, message.body, era=_era(decoded.format)), decoded)
        except HoplineError as error:
            logger.warning("cannot serve %s: %s", message.identity.decode(errors="replace"), error)
        return True

    def announce(self) -> None:
        """Tell everybody what we can take: it has changed."""
        for peer in self._links.values():
            if peer.link.is_connected:
                self._announce(peer)

    def withdraw(self, actor: bytes, types: Iterable[MessageType]) -> None:
        """Tell everybody what one of our actors no longer takes."""
        still = {kind for _, kinds in self._router.table.announced() for kind in kinds}
        for peer in self._links.values():
            if peer.link.is_connected:
                # Old peers know what a node takes, not which of its actors.
                gone = [kind for kind in types if peer.format not in ("v3", "v4") or kind not in still]
                for name in [domain.name for domain in self._domains] if self._domains is not None else [""]:
                    contracts = tuple(MessageContract.of(kind) for kind in gone if self._belongs(kind, name))
                    if contracts:
                        self._tell(peer, self._unregistration(peer, actor, contracts), name)

    # From the transport.

    def on_message(self, frames: list[bytes]) -> None:
        """Take a message; if it finds somebody full, read no more until there is room."""
        stalled = self._router.take_frames(frames)
        if stalled is not None:
            envelope, full = stalled
            self._stalled += 1
            self._transport.pause()
            self._router.route_when_room(full, envelope, self._go_on)

    def _go_on(self) -> None:
        self._stalled -= 1
        if not self._stalled:
            self._transport.resume()

    def on_refused(self, reason: str, size: int) -> None:
        """Count what the transport refused."""
        self._router.refuse_unread(f"{reason} ({size} bytes)")

    def on_connected(self, link: Link) -> None:
        """A peer can be reached: exchange routes."""
        peer = self._links.get(link.address)
        if peer is not None:
            self._announce(peer)
            self._tell(peer, RequestClusterRoutes(self._transport.address, self._router.table.node))

    def on_lost(self, link: Link, unsent: list[list[bytes]]) -> None:
        """A peer is gone: who waits for it alone is told, and what was not sent looks for another way."""
        peer = self._links.get(link.address)
        if peer is None:
            return
        for node in list(peer.nodes):
            self._forget(node)
        for frames in unsent:
            self._router.take_back(frames)
        peer.has_room()
        self._drop(peer)

    def on_room(self, link: Link) -> None:
        """A link has room again."""
        peer = self._links.get(link.address)
        if peer is not None:
            peer.has_room()

    # Routes.

    def _connect(self, address: str) -> LinkedPeer | None:
        peer = self._links.get(address)
        if peer is None:
            if len(self._links) >= MOST_PEERS or not self._may_connect(address):
                logger.warning("will not connect to %s", address)
                return None
            try:
                link = self._transport.connect(address)
            except TransportError as error:
                logger.warning("cannot connect to %s: %s", address, error)
                return None
            peer = self._links[address] = LinkedPeer(link)
        return peer

    def _announce(self, peer: LinkedPeer) -> None:
        for name in [domain.name for domain in self._domains] if self._domains is not None else [""]:
            routes = []
            for receiver, types in self._router.table.announced():
                allowed = [kind for kind in types if self._belongs(kind, name)]
                if allowed or not types:
                    routes.append(RouteRegistration(receiver, tuple(map(MessageContract.of, allowed))))
            if routes:
                self._tell(peer, self._registration(peer, routes), name)

    def _registration(self, peer: LinkedPeer, routes: list[RouteRegistration]) -> ServicePayload:
        uri, node = self._transport.address, self._router.table.node
        if peer.format not in ("v3", "v4"):
            return RegisterExternalRoute(uri, node, tuple(routes))
        contracts = [contract for route in routes for contract in route.message_contracts]
        hubs = [route.receiver_identity for route in routes if not route.message_contracts]
        contracts += [MessageContract(0, hub, b"", is_any_identifier=True) for hub in hubs]
        return RegisterExternalRouteV4(uri, node, tuple(contracts))

    def _unregistration(self, peer: LinkedPeer, actor: bytes, contracts: tuple[MessageContract, ...]) -> ServicePayload:
        uri, node = self._transport.address, self._router.table.node
        if peer.format in ("v3", "v4"):
            return UnregisterMessageRouteV4(uri, node, contracts)
        return UnregisterMessageRoute(uri, node, (RouteRegistration(actor, contracts),))

    def _belongs(self, kind: MessageType, domain: str) -> bool:
        return self._domains is None or self._domains.may_say(domain, kind.identity)

    def _tell(self, peer: LinkedPeer, payload: ServicePayload, domain: str | None = None) -> None:
        """Send a message about routes; without a domain, once in each of ours."""
        if domain is None:
            for name in [item.name for item in self._domains] if self._domains is not None else [""]:
                self._tell(peer, payload, name)
            return
        message = Message(
            identity=payload.identity, version=1, body=payload.write(), correlation_id=ZERO_FLOW, domain=domain
        )
        if self._router.guard is not None:
            signature = self._router.guard.signature(message, domain, message.body)
            message = msgspec.structs.replace(message, signature=signature)
        frames = encode(message, peer.format, peer.variant)
        if peer.send(frames):
            self._router.books.sent_locally += 1
            self._router.sent(message, frames)

    def _registered(self, payload: ServicePayload, decoded: Decoded) -> None:
        if isinstance(payload, RegisterExternalRoute):
            node, uri, routes = payload.node_identity, payload.uri, payload.routes
        elif isinstance(payload, RegisterExternalRouteV4):
            node, uri = payload.socket_identity, payload.uri
            routes = (RouteRegistration(node, tuple(c for c in payload.message_contracts if not c.is_any_identifier)),)
        else:
            return
        if not node or not uri or node == self._router.table.node:
            return
        peer = self._connect(uri)
        if peer is None or sum(len(route.message_contracts) for route in routes) > MOST_TYPES:
            return
        peer.nodes.add(node)
        while len(peer.nodes) > MOST_NODES_PER_ADDRESS:
            # One address is one node, or the last few that lived there; whoever invents more forgets its own.
            self._forget(next(name for name in peer.nodes if name != node))
        peer.format, peer.variant = _era(decoded.format), decoded.variant or None
        peer.link.takes_bundles = self._transport.takes_bundles(decoded.message.socket_identity)
        self._nodes[node] = peer
        domain = decoded.message.domain
        for route in routes:
            kinds = [contract.type for contract in route.message_contracts]
            allowed = [kind for kind in kinds if self._belongs(kind, domain)]
            self._router.table.add_remote(node, uri, route.receiver_identity or b"", allowed)
        if isinstance(payload, RegisterExternalRouteV4):
            # There a hub is a contract that fits every message which names it as its receiver.
            for contract in payload.message_contracts:
                if contract.is_any_identifier and contract.identity:
                    self._router.table.add_remote(node, uri, contract.identity, (), takes_all=True)
        self._router.routes_changed()

    def _unregistered(self, payload: ServicePayload, decoded: Decoded) -> None:
        if isinstance(payload, UnregisterMessageRoute):
            node, routes = payload.receiver_node_identity, payload.routes
        elif isinstance(payload, UnregisterMessageRouteV4):
            # There a node is its own only receiver: see `_registered`.
            node = payload.socket_identity
            routes = (RouteRegistration(node, payload.message_contracts),)
        else:
            return
        for route in routes if node else ():
            kinds = [contract.type for contract in route.message_contracts]
            allowed = [kind for kind in kinds if self._belongs(kind, decoded.message.domain)]
            self._router.table.remove_remote(node or b"", route.receiver_identity or b"", allowed)

    def _left(self, payload: ServicePayload, _decoded: Decoded) -> None:
        node = payload.receiver_node_identity if isinstance(payload, UnregisterNode) else None
        if node and node in self._nodes:
            self._forget(node)

    def _forget(self, node: bytes) -> None:
        peer = self._nodes.pop(node, None)
        self._router.table.remove_node(node)
        self._router.hub.node_lost(node)
        if peer is not None:
            peer.nodes.discard(node)
            self._drop(peer)

    def _drop(self, peer: LinkedPeer) -> None:
        """Close a link with nobody behind it, unless we were told to keep it: who comes back connects to us."""
        address = peer.link.address
        if peer.nodes or address in self._addresses or self._links.get(address) is not peer:
            return
        del self._links[address]
        for frames in peer.link.close():
            self._router.take_back(frames)
        peer.has_room()

    def _asked(self, payload: ServicePayload, _decoded: Decoded) -> None:
        uri = payload.requestor_uri if isinstance(payload, RequestClusterRoutes) else None
        peer = self._connect(uri) if uri else None
        if peer is not None and peer.link.is_connected:
            self._announce(peer)

    def _asked_node(self, payload: ServicePayload, _decoded: Decoded) -> None:
        if isinstance(payload, RequestNodeRoutes) and payload.target_node_identity == self._router.table.node:
            self.announce()

    def _pinged(self, _payload: ServicePayload, _decoded: Decoded) -> None:
        """A ping shows that we can be reached; nothing is answered."""


_SERVED: Final = {
    b"KINO.REGEXTROUTE": Peers._registered,  # noqa: SLF001 - our own
    b"KINO.UNREGMSGROUTE": Peers._unregistered,  # noqa: SLF001
    b"KINO.UNREGNODE": Peers._left,  # noqa: SLF001
    b"KINO.REQCLUSTROUTES": Peers._asked,  # noqa: SLF001
    b"KINO.REQNODEROUTES": Peers._asked_node,  # noqa: SLF001
    b"KINO.PING": Peers._pinged,  # noqa: SLF001
}


def _era(format: str) -> FormatName:
    return format if format in ("v3", "v4", "v5", "v6") else "v6"  # type: ignore[return-value]
