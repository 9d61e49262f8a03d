"""The routing table: who can take a message, and whose turn it is.

Theory of operation. A message is addressed in one of four ways, the more specific one wins:

    receiver node       that node and no other
    receiver            that hub, or that actor if it handles the type: document 003 asks for "Version && Receiver ID"
    broadcast           every local actor of the type; every node that has one, if the message starts here
    unicast             one of all actors and nodes that can take the type, in turn

A type is identity, version and partition together. For unicast each type has one ring in which local actors and remote nodes
stand side by side, so each gets the same share. A message that came from another node is taken by a local actor if there is
one, and is only sent on if there is none: otherwise it could go round in circles.

Local targets are whatever the router delivers to; nodes are known by their identity. This file is pure: it holds tables and
answers questions, and knows nothing of sockets, actors or time.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, TypeVar

from hopline.identity import MessageType, is_hub
from hopline.wire import Message

Target = TypeVar("Target")


@dataclass(slots=True)
class NodeRoutes:
    """What one remote node can take: actors with the types each handles, and hubs."""

    uri: str
    actors: dict[bytes, set[MessageType]] = field(default_factory=dict)
    hubs: set[bytes] = field(default_factory=set)

    @property
    def size(self) -> int:
        """How much it is: receivers, and types of actors."""
        return len(self.hubs) + sum(len(types) + 1 for types in self.actors.values())


class Choice(NamedTuple, Generic[Target]):
    """Who gets a message: local targets and remote nodes. Both empty: nobody we know of."""

    local: tuple[Target, ...] = ()
    remote: tuple[bytes, ...] = ()


NOBODY: Final[Choice[Any]] = Choice()
Key = tuple[bytes, int | bytes, bytes]
"""A message type as a plain tuple: a table is asked for each message, and this is what costs least to ask with."""


def key_of(kind: MessageType) -> Key:
    """The key of a message type."""
    return kind.identity, kind.version, kind.partition


class _Ring(Generic[Target]):
    """The candidates of one type in turn: local ones by their target, remote ones by the identity of their node.

    Each has its choice ready, so that the next one is looked up and not made.
    """

    __slots__ = ("_all", "_local", "_remote", "_targets", "_turn", "alone")

    def __init__(self) -> None:
        self.alone: Choice[Target] | None = None
        """The choice if there is none: one local target, and nobody else."""
        self._targets: dict[bytes, Target] = {}
        self._local: list[Choice[Target]] = []
        self._remote: dict[bytes, Choice[Target]] = {}
        self._all: list[Choice[Target]] = []
        self._turn = 0

    def __bool__(self) -> bool:
        return bool(self._all)

    @property
    def targets(self) -> tuple[Target, ...]:
        return tuple(self._targets.values())

    @property
    def nodes(self) -> tuple[bytes, ...]:
        return tuple(self._remote)

    def add_local(self, actor: bytes, target: Target) -> None:
        self._targets[actor] = target
        self._renew()

    def remove_local(self, actor: bytes) -> None:
        self._targets.pop(actor, None)
        self._renew()

    def add_remote(self, node: bytes) -> None:
        if node not in self._remote:
            self._remote[node] = Choice(remote=(node,))
            self._renew()

    def remove_remote(self, node: bytes) -> None:
        self._remote.pop(node, None)
        self._renew()

    def _renew(self) -> None:
        self._local = [Choice(local=(target,)) for target in self._targets.values()]
        self._all = [*self._local, *self._remote.values()]
        self.alone = self._local[0] if len(self._all) == len(self._local) == 1 else None

    def next(self, *, local_first: bool, without: frozenset[bytes]) -> Choice[Target]:
        choices = self._local if local_first and self._local else self._all
        if without:
            choices = [choice for choice in choices if without.isdisjoint(choice.remote)]
        if not choices:
            return NOBODY
        self._turn = turn = self._turn + 1
        return choices[turn % len(choices)]


class RoutingTable(Generic[Target]):
    r"""All routes a node knows, its own and those of other nodes.

    >>> table = RoutingTable(b"n1")
    >>> table.add_actor(b"\x01a", [MessageType(b"HELLO", 1)], "the actor")
    >>> table.choose(Message(identity=b"HELLO", version=1)).local
    ('the actor',)
    """

    def __init__(self, node: bytes) -> None:
        self.node = node
        self._hubs: dict[bytes, Choice[Target]] = {}
        self._actors: dict[bytes, tuple[Target, frozenset[MessageType], bool]] = {}
        self._nodes: dict[bytes, NodeRoutes] = {}
        self._rings: dict[Key, _Ring[Target]] = {}
        self._remote_hubs: dict[bytes, Choice[Target]] = {}
        self.size = 0
        """How much we know of other nodes: receivers, and types of actors."""

    # Our own.

    def add_hub(self, hub: bytes, target: Target) -> None:
        """Register a local hub."""
        self._hubs[hub] = Choice(local=(target,))

    def remove_hub(self, hub: bytes) -> None:
        """Forget a local hub."""
        self._hubs.pop(hub, None)

    def add_actor(self, actor: bytes, types: Iterable[MessageType], target: Target, *, local_only: bool = False) -> None:
        """Register a local actor with the types it handles; one that is local only is not announced to others."""
        handled = frozenset(types)
        self._actors[actor] = target, handled, local_only
        for kind in handled:
            self._ring(kind).add_local(actor, target)

    def remove_actor(self, actor: bytes) -> None:
        """Forget a local actor."""
        entry = self._actors.pop(actor, None)
        if entry is not None:
            for kind in entry[1]:
                self._ring(kind).remove_local(actor)
                self._tidy(kind)

    def announced(self) -> Iterator[tuple[bytes, frozenset[MessageType]]]:
        """What other nodes may know: our hubs (with no types) and our actors that are not local only."""
        for hub in self._hubs:
            yield hub, frozenset()
        for actor, (_, types, local_only) in self._actors.items():
            if not local_only:
                yield actor, types

    # Those of others.

    def add_remote(
        self, node: bytes, uri: str, receiver: bytes, types: Iterable[MessageType], *, takes_all: bool = False
    ) -> None:
        """Learn that a node has a receiver: an actor that handles some types, or a hub, which takes all.

        A hub is known by its first byte; those of v4 nodes have none and must be said to be one (`takes_all`).
        """
        if node == self.node:
            return
        routes = self._nodes.setdefault(node, NodeRoutes(uri))
        routes.uri = uri
        if takes_all or is_hub(receiver):
            self.size += receiver not in routes.hubs
            routes.hubs.add(receiver)
            self._remote_hubs[receiver] = Choice(remote=(node,))
            return
        self.size += receiver not in routes.actors
        known = routes.actors.setdefault(receiver, set())
        self.size -= len(known)
        for kind in types:
            known.add(kind)
            self._ring(kind).add_remote(node)
        self.size += len(known)

    def remove_remote(self, node: bytes, receiver: bytes = b"", types: Iterable[MessageType] = ()) -> None:
        """Unlearn some types of a node's actor, of all its actors (no receiver), or a hub of it."""
        routes = self._nodes.get(node)
        if routes is None:
            return
        self.size -= routes.size
        if receiver in routes.hubs:
            routes.hubs.discard(receiver)
            self._remote_hubs.pop(receiver, None)
        gone = set(types)
        for actor in [receiver] if receiver in routes.actors else list(routes.actors) if not receiver else []:
            routes.actors[actor] -= gone
            if not routes.actors[actor]:
                del routes.actors[actor]
        self.size += routes.size
        self._forget(node, gone)

    def remove_node(self, node: bytes) -> None:
        """Unlearn everything of a node."""
        routes = self._nodes.get(node)
        if routes is None:
            return
        gone = {kind for types in routes.actors.values() for kind in types}
        self.size -= routes.size
        routes.actors.clear()
        for hub in routes.hubs:
            self._remote_hubs.pop(hub, None)
        del self._nodes[node]
        self._forget(node, gone)

    def _forget(self, node: bytes, types: set[MessageType]) -> None:
        """Take a node out of the rings of those types that none of its actors handles any more."""
        routes = self._nodes.get(node)
        kept = {kind for handled in routes.actors.values() for kind in handled} if routes else set()
        for kind in types - kept:
            self._ring(kind).remove_remote(node)
            self._tidy(kind)

    def nodes(self) -> dict[bytes, NodeRoutes]:
        """What we know of other nodes."""
        return dict(self._nodes)

    @property
    def node_count(self) -> int:
        """How many other nodes we know."""
        return len(self._nodes)

    def routes_of(self, node: bytes) -> NodeRoutes | None:
        """What a node can take, if we know it."""
        return self._nodes.get(node)

    def uri_of(self, node: bytes) -> str | None:
        """Where a node is reached, if we know it."""
        routes = self._nodes.get(node)
        return routes.uri if routes else None

    # The question.

    def choose(self, message: Message, *, without: frozenset[bytes] = frozenset()) -> Choice[Target]:
        """Who gets this message now. `without` are nodes that were tried and failed."""
        node = message.receiver_node_identity
        if node and node != self.node:
            return Choice(remote=(node,)) if node in self._nodes and node not in without else NOBODY
        receiver = message.receiver_identity
        if receiver:
            hub = self._hubs.get(receiver)
            return hub if hub is not None else self._choose_receiver(message, receiver, here=bool(node), without=without)
        ring = self._rings.get((message.identity, message.version, message.partition))
        if ring is None:
            return NOBODY
        if ring.alone is not None:
            return ring.alone
        if message.distribution or node:
            nodes = ring.nodes if not (message.hops or node) else ()
            return Choice(ring.targets, tuple(n for n in nodes if n not in without))
        return ring.next(local_first=message.hops > 0, without=without)

    def _choose_receiver(
        self, message: Message, receiver: bytes, *, here: bool, without: frozenset[bytes]
    ) -> Choice[Target]:
        hub = self._remote_hubs.get(receiver)
        if hub is not None:
            return hub if not here and without.isdisjoint(hub.remote) else NOBODY
        kind = message.type
        entry = self._actors.get(receiver)
        if entry is not None:
            return Choice(local=(entry[0],)) if kind in entry[1] else NOBODY
        if here:
            return NOBODY
        found = (n for n, routes in self._nodes.items() if n not in without and kind in routes.actors.get(receiver, ()))
        node = next(found, None)
        return Choice(remote=(node,)) if node else NOBODY

    def _ring(self, kind: MessageType) -> _Ring[Target]:
        key = key_of(kind)
        ring = self._rings.get(key)
        if ring is None:
            ring = self._rings[key] = _Ring()
        return ring

    def _tidy(self, kind: MessageType) -> None:
        key = key_of(kind)
        if not self._rings[key]:
            del self._rings[key]
