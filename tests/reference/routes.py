"""The two tables of a reference router, and its turns (protocol.md 3.3): who is here, who is elsewhere, who is next."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hopline.identity import MessageType
from hopline.wire import Distribution, Message
from tests.reference.actors import ReferenceActor


@dataclass
class Peer:
    """Another node, as its registrations describe it. `actors`: what each of its actors handles."""

    identity: bytes
    uri: str
    health_uri: str
    beat_s: float
    is_connected: bool = False
    hubs: set[bytes] = field(default_factory=set)
    actors: dict[bytes, set[MessageType]] = field(default_factory=dict)


class Routes:
    """Tables and turns. It knows no sockets."""

    def __init__(self, actors: Sequence[ReferenceActor]) -> None:
        self.peers: dict[bytes, Peer] = {}
        self.remote: dict[MessageType, list[bytes]] = {}
        self.local: dict[MessageType, list[ReferenceActor]] = {}
        self._turns: list[bytes] = []
        for actor in actors:
            self.local.setdefault(actor.contract, []).append(actor)
            self._turns.append(actor.identity)

    # --- registrations ------------------------------------------------------------------------------------------------

    def add(self, peer: Peer, receiver: bytes, contract: MessageType | None) -> None:
        known = self.peers.setdefault(peer.identity, peer)
        if peer.identity not in self._turns:
            self._turns.append(peer.identity)
        if contract is None:
            known.hubs.add(receiver)
            return
        known.actors.setdefault(receiver, set()).add(contract)
        nodes = self.remote.setdefault(contract, [])
        if peer.identity not in nodes:
            nodes.append(peer.identity)

    def remove(self, node: bytes, contract: MessageType, receiver: bytes | None) -> bool:
        """Forget a contract of a node, of one actor or of all; True if the node has nothing left."""
        peer = self.peers.get(node)
        if peer is None:
            return False
        for actor in [receiver] if receiver else list(peer.actors):
            peer.actors.get(actor, set()).discard(contract)
            if not peer.actors.get(actor):
                peer.actors.pop(actor, None)
        if not any(contract in contracts for contracts in peer.actors.values()):
            self._forget(node, contract)
        return not peer.actors and not peer.hubs

    def remove_node(self, node: bytes) -> Peer | None:
        for contract in list(self.remote):
            self._forget(node, contract)
        if node in self._turns:
            self._turns.remove(node)
        return self.peers.pop(node, None)

    def _forget(self, node: bytes, contract: MessageType) -> None:
        nodes = self.remote.get(contract, [])
        if node in nodes:
            nodes.remove(node)
        if not nodes:
            self.remote.pop(contract, None)

    # --- finding ------------------------------------------------------------------------------------------------------

    def find_local(self, message: Message) -> list[ReferenceActor]:
        actors = self.local.get(message.type, [])
        if message.receiver_identity:
            return [actor for actor in actors if actor.identity == message.receiver_identity]
        if message.distribution == Distribution.BROADCAST:
            return list(actors)
        if actors:
            actors.append(actors.pop(0))
        return actors[-1:]

    def find_remote(self, message: Message) -> list[Peer]:
        nodes = self.remote.get(message.type, [])
        if message.distribution == Distribution.UNICAST:
            if nodes:
                nodes.append(nodes.pop(0))
            nodes = nodes[-1:]
        return [self.peers[node] for node in nodes]

    def is_turn_of(self, first: bytes, second: bytes) -> bool:
        """Whether the first of two candidates is before the other; the one whose turn it is goes to the tail."""
        before = self._turns.index(first) < self._turns.index(second)
        winner = first if before else second
        self._turns.remove(winner)
        self._turns.append(winner)
        return before
