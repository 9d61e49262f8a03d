"""Handlers of the service messages by which nodes tell each other about routes.

What comes here has been checked: it is signed as it must be. It may have come from the node it is about, over a link, or
from anybody through a cluster (`through_cluster`). Then it is answered through the cluster, and nobody is connected to: who
has something to send does that.
"""

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from hopline.errors import HoplineError, SecurityError, clean
from hopline.identity import MessageType
from hopline.node.routes import NodeRoutes
from hopline.payload.service import (
    DiscoverMessageRoute,
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
from hopline.wire import Decoded, FormatName

if TYPE_CHECKING:
    from hopline.node.peers import Peers
    from hopline.node.router import MessageRouter

logger = logging.getLogger("hopline.node")

MOST_NODES: Final = 10_000
MOST_OF_A_NODE: Final = 10_000
MOST_ROUTES: Final = 200_000
"""Nodes that we know at most, receivers and types of one node, and those of all: whoever can announce could invent them."""

MOST_SIGNATURES: Final = 64
MOST_DEPARTED: Final = 10_000
"""Signatures of registrations that are remembered: of a node, and of all that have left."""


def format_of(decoded: Decoded) -> FormatName:
    """The format of a message by its name."""
    return decoded.format if decoded.format in ("v3", "v4", "v5", "v6") else "v6"  # type: ignore[return-value]


class ServiceHandlers:
    """Does to the routing table of a node what others say of theirs."""

    def __init__(self, peers: "Peers", router: "MessageRouter") -> None:
        self._peers = peers
        self._table = router.table
        self._router = router
        self._signatures: dict[bytes, dict[bytes, None]] = {}
        self._departed: dict[bytes, None] = {}

    def serve(self, decoded: Decoded, *, through_cluster: bool = False) -> bool:
        """Take a message about routes; False if it is none. Raises SecurityError if it may not be."""
        message = decoded.message
        serve = _SERVED.get(message.identity)
        if serve is None or message.partition or message.version not in (1, b"1.0"):
            return False
        try:
            payload = read_service(message.identity, message.body, era=format_of(decoded))
            serve(self, payload, decoded, through_cluster)
        except SecurityError:
            raise
        except HoplineError as error:
            logger.warning("cannot serve %s: %s", message.identity.decode(errors="replace"), clean(str(error)))
        return True

    def serve_cluster(self, decoded: Decoded) -> bool:
        """The same, for one that came through the cluster."""
        return self.serve(decoded, through_cluster=True)

    def _registered(self, payload: ServicePayload, decoded: Decoded, through_cluster: bool) -> None:  # noqa: FBT001
        if isinstance(payload, RegisterExternalRoute):
            node, uri, routes = payload.node_identity, payload.uri, payload.routes
        elif isinstance(payload, RegisterExternalRouteV4):
            node, uri = payload.socket_identity, payload.uri
            routes = (RouteRegistration(node, tuple(c for c in payload.message_contracts if not c.is_any_identifier)),)
        else:
            return
        if not node or not uri or node == self._table.node:
            return
        table, peers = self._table, self._peers
        accepted = self._accepted(routes, decoded.message.domain)
        # With v4 a hub is a contract that fits every message which names it as its receiver.
        contracts = payload.message_contracts if isinstance(payload, RegisterExternalRouteV4) else ()
        hubs = [contract.identity for contract in contracts if contract.is_any_identifier and contract.identity]
        if not (accepted or hubs) or not self._has_room(node, uri, [*accepted, *((hub, []) for hub in hubs)]):
            return
        self._refuse_replay(decoded.message.signature)
        if table.uri_of(node) not in (None, uri):
            # It was started anew elsewhere: what we know is of one that is gone.
            self._depart(node)
            peers.leave(node)
        self._note(node, decoded.message.signature)
        if not through_cluster:
            peer = peers.connect(uri)
            if peer is None:
                return
            peers.attach(node, peer)
        peers.learn(node, decoded)
        size = table.size
        for receiver, kinds in accepted:
            table.add_remote(node, uri, receiver, kinds)
        for hub in hubs:
            table.add_remote(node, uri, hub, (), takes_all=True)
        if through_cluster and peers.membership is not None:
            health = payload.health if isinstance(payload, RegisterExternalRoute) else None
            peers.membership.met(node, uri, health, format_of(decoded))
        if table.size > size:
            self._router.routes_learned()

    def _accepted(self, routes: Iterable[RouteRegistration], domain: str) -> list[tuple[bytes, list[MessageType]]]:
        """The receivers of an announcement with what may be announced in its domain; raises SecurityError if nothing may."""
        accepted, is_foreign = [], False
        for route in routes:
            kinds = [contract.type for contract in route.message_contracts]
            allowed = [kind for kind in kinds if self._peers.announcements.belongs(kind, domain)]
            is_foreign |= len(allowed) < len(kinds)
            if allowed or not kinds:
                accepted.append((route.receiver_identity or b"", allowed))
        if is_foreign and not accepted:
            raise SecurityError("SECURITY_UNKNOWN_IDENTITY", f"nothing of what is announced belongs to domain {domain!r}")
        if is_foreign:
            logger.warning("a node announces in domain %r what does not belong there", domain)
        return accepted

    def _has_room(self, node: bytes, uri: str, routes: list[tuple[bytes, list[MessageType]]]) -> bool:
        """Whether our tables may grow by what is new in an announcement."""
        known = self._table.routes_of(node)
        if known is None and self._table.node_count >= MOST_NODES:
            logger.warning("too many nodes: %s is not one of those we know", clean(uri))
            return False
        known = known or NodeRoutes(uri)
        new = 0
        for receiver, kinds in routes:
            types = known.actors.get(receiver, ())
            new += sum(kind not in types for kind in kinds)
            new += receiver not in known.actors and receiver not in known.hubs
        if known.size + new > MOST_OF_A_NODE or self._table.size + new > MOST_ROUTES:
            logger.warning("too many routes: the node at %s announces more than we can know", clean(uri))
            return False
        return True

    def _unregistered(self, payload: ServicePayload, decoded: Decoded, _through_cluster: bool) -> None:  # noqa: FBT001
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
            allowed = [kind for kind in kinds if self._peers.announcements.belongs(kind, decoded.message.domain)]
            self._table.remove_remote(node or b"", route.receiver_identity or b"", allowed)

    def _left(self, payload: ServicePayload, _decoded: Decoded, _through_cluster: bool) -> None:  # noqa: FBT001
        node = payload.receiver_node_identity if isinstance(payload, UnregisterNode) else None
        if node and self._table.uri_of(node) is not None:
            self._depart(node)
            self._peers.leave(node)

    def forget(self, node: bytes) -> None:
        """A node is gone, but has not said so: it may come back with what it said before."""
        self._signatures.pop(node, None)

    # A signature of the scheme `kino` says nothing of time: it can be repeated, and bring back a node that has left.

    def _refuse_replay(self, signature: bytes) -> None:
        if signature in self._departed:
            raise SecurityError("SECURITY_REPLAYED", "this registration is that of a node which has left")

    def _note(self, node: bytes, signature: bytes) -> None:
        if signature:
            known = self._signatures.setdefault(node, {})
            known[signature] = None
            while len(known) > MOST_SIGNATURES:
                del known[next(iter(known))]

    def _depart(self, node: bytes) -> None:
        self._departed |= self._signatures.pop(node, {})
        while len(self._departed) > MOST_DEPARTED:
            del self._departed[next(iter(self._departed))]

    def _asked(self, payload: ServicePayload, decoded: Decoded, through_cluster: bool) -> None:  # noqa: FBT001
        if not isinstance(payload, RequestClusterRoutes) or payload.requestor_node_identity == self._table.node:
            return
        if through_cluster:
            if self._peers.membership is not None:
                self._peers.membership.asked(decoded.message.domain)
            return
        peer = self._peers.connect(payload.requestor_uri) if payload.requestor_uri else None
        if peer is not None:
            peer.is_direct = True  # if it is not connected yet, it is told as soon as it is
            if peer.link.is_connected:
                self._peers.announce_to(peer)

    def _asked_node(self, payload: ServicePayload, _decoded: Decoded, through_cluster: bool) -> None:  # noqa: FBT001
        if isinstance(payload, RequestNodeRoutes) and payload.target_node_identity == self._table.node:
            if through_cluster:
                self._answer()
            else:
                self._peers.announce()

    def _discovered(self, payload: ServicePayload, _decoded: Decoded, through_cluster: bool) -> None:  # noqa: FBT001
        """Somebody looks for a hub, or for actors of a type."""
        if isinstance(payload, DiscoverMessageRoute) and payload.requestor_node_identity != self._table.node:
            contract = payload.message_contract
            wanted = payload.receiver_identity or (contract.type if contract is not None else None)
            if wanted is not None and through_cluster and any(self._is_ours(wanted)):
                self._answer(wanted)

    def _is_ours(self, wanted: MessageType | bytes) -> list[bool]:
        return [wanted == receiver or wanted in types for receiver, types in self._table.announced()]

    def _answer(self, only: MessageType | bytes | None = None) -> None:
        if self._peers.membership is not None:
            self._peers.membership.announce(only)

    def _pinged(self, _payload: ServicePayload, _decoded: Decoded, _through_cluster: bool) -> None:  # noqa: FBT001
        """A ping shows that we can be reached; nothing is answered."""


_SERVED: Final = {
    b"KINO.REGEXTROUTE": ServiceHandlers._registered,  # noqa: SLF001 - our own
    b"KINO.UNREGMSGROUTE": ServiceHandlers._unregistered,  # noqa: SLF001
    b"KINO.UNREGNODE": ServiceHandlers._left,  # noqa: SLF001
    b"KINO.REQCLUSTROUTES": ServiceHandlers._asked,  # noqa: SLF001
    b"KINO.REQNODEROUTES": ServiceHandlers._asked_node,  # noqa: SLF001
    b"KINO.DISCOVMSGROUTE": ServiceHandlers._discovered,  # noqa: SLF001
    b"KINO.PING": ServiceHandlers._pinged,  # noqa: SLF001
}
