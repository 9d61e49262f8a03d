"""What a node says about itself to other nodes: what it can take, what no longer, that it asks, that it leaves.

Each is a KINO.* message, said once in each domain of the node and signed there; without domains it is said once, in none.
v3 and v4 nodes know such messages in another shape. This file makes messages; it does not know who gets them.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from hopline.identity import MessageType
from hopline.payload.service import (
    Health,
    MessageContract,
    RegisterExternalRoute,
    RegisterExternalRouteV4,
    RouteRegistration,
    ServicePayload,
    UnregisterMessageRoute,
    UnregisterMessageRouteV4,
    UnregisterNode,
)
from hopline.security import Domains
from hopline.wire import FormatName, Message

if TYPE_CHECKING:
    from hopline.node.guard import Guard
    from hopline.node.routes import RoutingTable

ZERO_FLOW: Final = b"00000000-0000-0000-0000-000000000000"
"""The correlation id of messages that belong to no flow."""

OLD: Final = frozenset({"v3", "v4"})
"""Formats whose nodes know what a node takes, not which of its actors, and nothing of health."""

Said = tuple[str, ServicePayload]
"""A domain, and what is said in it."""


class Announcements:
    """What one node says about itself.

    Args:
        table: its routes.
        domains: its domains.
        guard: signs for it.
    """

    def __init__(self, table: "RoutingTable[object]", domains: Domains | None, guard: "Guard | None") -> None:
        self._table = table
        self._domains = domains
        self._guard = guard
        self.address = ""
        """Where the node is reached; known once it is bound."""
        self.health: Health | None = None
        """Where its heart beat is heard, if anywhere."""

    @property
    def names(self) -> list[str]:
        """The domains a message about routes is said in."""
        return [domain.name for domain in self._domains] if self._domains is not None else [""]

    def belongs(self, kind: MessageType, domain: str) -> bool:
        """Whether a type may be announced in a domain."""
        return self._domains is None or self._domains.may_say(domain, kind.identity)

    def registrations(self, format: FormatName = "v6", *, only: MessageType | bytes | None = None) -> Iterator[Said]:
        """What we can take: all of it, the actors of one type, or one hub."""
        for name in self.names:
            routes = []
            for receiver, types in self._table.announced():
                if only is not None and receiver != only and only not in types:
                    continue
                asked = types if only is None or receiver == only else [only]
                allowed = [kind for kind in asked if isinstance(kind, MessageType) and self.belongs(kind, name)]
                if allowed or not types:
                    routes.append(RouteRegistration(receiver, tuple(map(MessageContract.of, allowed))))
            if routes:
                yield name, self._registration(format, routes)

    def _registration(self, format: FormatName, routes: list[RouteRegistration]) -> ServicePayload:
        if format not in OLD:
            return RegisterExternalRoute(self.address, self._table.node, tuple(routes), self.health)
        contracts = [contract for route in routes for contract in route.message_contracts]
        hubs = [route.receiver_identity for route in routes if not route.message_contracts]
        contracts += [MessageContract(0, hub, b"", is_any_identifier=True) for hub in hubs]
        return RegisterExternalRouteV4(self.address, self._table.node, tuple(contracts))

    def withdrawals(self, actor: bytes, types: Iterable[MessageType], format: FormatName = "v6") -> Iterator[Said]:
        """What one of our actors no longer takes."""
        still = {kind for _, kinds in self._table.announced() for kind in kinds} if format in OLD else set()
        gone = [kind for kind in types if kind not in still]
        for name in self.names:
            contracts = tuple(MessageContract.of(kind) for kind in gone if self.belongs(kind, name))
            if contracts and format in OLD:
                yield name, UnregisterMessageRouteV4(self.address, self._table.node, contracts)
            elif contracts:
                routes = (RouteRegistration(actor, contracts),)
                yield name, UnregisterMessageRoute(self.address, self._table.node, routes)

    def goodbyes(self) -> Iterator[Said]:
        """That we leave."""
        return self.everywhere(UnregisterNode(self.address, self._table.node))

    def everywhere(self, payload: ServicePayload) -> Iterator[Said]:
        """The same in each domain."""
        return ((name, payload) for name in self.names)

    def message(self, domain: str, payload: ServicePayload) -> Message:
        """The message that says it, signed if the domain signs."""
        message = Message(
            identity=payload.identity, version=1, body=payload.write(), correlation_id=ZERO_FLOW, domain=domain
        )
        if self._guard is None:
            return message
        return msgspec.structs.replace(message, signature=self._guard.signature(message, domain, message.body))
