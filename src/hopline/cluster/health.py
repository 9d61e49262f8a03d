"""Health: which of the other nodes may be dead.

Every node publishes a heart beat and says where, and how often. A node listens to those it sends to; one of these that
misses some beats is dead. Of the others nothing is heard, so after a while they are stale, and whoever keeps the tables
should see whether they can still be reached. Seconds come in as an argument: this file is pure.
"""

from dataclasses import dataclass
from itertools import islice
from typing import Final

from hopline.payload.service import Health

TICKS_PER_SECOND: Final = 10_000_000

SHORTEST_S: Final = 0.1
LONGEST_S: Final = 3600.0
"""Intervals between heart beats that we believe: they come from outside."""

MOST_CHECKED: Final = 10
"""Stale nodes that are looked at at once: each is connected to, and whoever can announce could invent thousands."""


@dataclass(slots=True)
class _Peer:
    uri: str
    interval_s: float
    last_s: float
    is_used: bool = False


class PeersHealth:
    """What we know of the health of other nodes.

    Args:
        most_missed: heart beats that a node may miss.
        stale_after_s: seconds without a sign of life of a node that we do not listen to.

    >>> health = PeersHealth(most_missed=3, stale_after_s=60)
    >>> health.met(b"n1", Health("tcp://10.0.0.1:5102", 5 * TICKS_PER_SECOND), now_s=0.0)
    >>> health.uses(b"n1", now_s=1.0)
    'tcp://10.0.0.1:5102'
    >>> health.dead(now_s=15.0), health.dead(now_s=17.0)
    ([], [b'n1'])
    """

    def __init__(self, *, most_missed: int = 3, stale_after_s: float = 60.0) -> None:
        self._most_missed = most_missed
        self._stale_after_s = stale_after_s
        self._peers: dict[bytes, _Peer] = {}

    def __len__(self) -> int:
        """How many nodes are watched."""
        return len(self._peers)

    def met(self, node: bytes, health: Health | None, now_s: float) -> None:
        """A node told about itself: that is a sign of life."""
        uri = (health.uri or "") if health is not None else ""
        interval_s = health.heart_beat_interval_ticks / TICKS_PER_SECOND if health is not None else 0.0
        interval_s = min(max(interval_s, SHORTEST_S), LONGEST_S)
        peer = self._peers.get(node)
        if peer is None:
            self._peers[node] = _Peer(uri, interval_s, now_s)
        else:
            peer.interval_s, peer.last_s = interval_s, now_s

    def has_moved(self, node: bytes, health: Health | None) -> bool:
        """Whether a node that we know says that its heart beats elsewhere now: it was started anew."""
        peer = self._peers.get(node)
        return peer is not None and health is not None and "" != peer.uri != (health.uri or "")

    def uses(self, node: bytes, now_s: float) -> str:
        """We begin to send to a node; returns where to listen to it, empty if we do already or it says nowhere."""
        peer = self._peers.get(node)
        if peer is None or peer.is_used or not peer.uri:
            return ""
        peer.is_used, peer.last_s = True, now_s
        return peer.uri

    def unheard(self, node: bytes) -> None:
        """We cannot listen to a node after all: then that it is not heard says nothing."""
        peer = self._peers.get(node)
        if peer is not None:
            peer.is_used, peer.uri = False, ""

    def beat(self, node: bytes, now_s: float) -> bool:
        """A heart beat of a node; False if we do not know it."""
        peer = self._peers.get(node)
        if peer is not None:
            peer.last_s = now_s
        return peer is not None

    def slept(self, seconds: float, now_s: float) -> None:
        """We have heard nobody for some seconds because we did not listen: that is not their fault."""
        for peer in self._peers.values():
            peer.last_s = min(peer.last_s + seconds, now_s)

    def gone(self, node: bytes) -> str:
        """A node is gone; returns where not to listen any more, empty if we did not."""
        peer = self._peers.pop(node, None)
        return peer.uri if peer is not None and peer.is_used and not self.is_heard(peer.uri) else ""

    def is_heard(self, uri: str) -> bool:
        """Whether there is a node that we listen to at an address."""
        return any(peer.is_used and peer.uri == uri for peer in self._peers.values())

    def dead(self, now_s: float) -> list[bytes]:
        """Nodes that we listen to and that have missed too many beats."""
        return [
            node
            for node, peer in self._peers.items()
            if peer.is_used and now_s - peer.last_s > peer.interval_s * self._most_missed
        ]

    def stale(self, now_s: float, most: int = MOST_CHECKED) -> list[bytes]:
        """Nodes that we have not heard of for long, some of them. They are asked once: after that the time starts anew."""
        peers = self._peers.items()
        stale = (node for node, peer in peers if not peer.is_used and now_s - peer.last_s > self._stale_after_s)
        found = list(islice(stale, most))
        for node in found:
            self._peers[node].last_s = now_s
        return found
