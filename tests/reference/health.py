"""The health monitor of a reference node: sockets 5, 6 and 7 of protocol.md 3.2, behaving as 3.7 says.

Commands to it (KINO.ADDPEER and the like) go over an intercom inside the process, on the same SUB that hears the heart beats
of peers; they are in the captures, so they are in the traffic here too. It finds dead and stale peers and reports them.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import zmq

from hopline.payload.service import (
    AddPeer,
    CheckDeadPeers,
    CheckPeerConnection,
    CheckStalePeers,
    DeletePeer,
    Health,
    HeartBeat,
    Ping,
    ServicePayload,
    StartPeerMonitoring,
)
from hopline.wire import Message
from tests.reference.routes import Peer

INTERCOM = "inproc://intercom"


@dataclass
class Entry:
    """A peer in the health registry."""

    peer: Peer
    last: float
    is_connected: bool = False


class HealthMonitor:
    """Lives in the thread of its node (a Station), and uses its sockets, timers and record."""

    def __init__(self, node, on_unreachable: Callable[[bytes, str], None]) -> None:
        self.entries: dict[bytes, Entry] = {}
        self._node, self._on_unreachable = node, on_unreachable
        self._beats = node.open_socket(zmq.PUB, bind="tcp://127.0.0.1:0")
        self.uri = self._beats.last_endpoint.decode()
        self._intercom = node.open_socket(zmq.PUB, bind=INTERCOM)
        self._ears = node.open_socket(zmq.SUB, connect=[INTERCOM], reader=self._hear)
        self._check_s: float | None = None
        node.later(0.0, self._beat)
        node.later(node.times.stale_check_s, self._check_stale)

    @property
    def described(self) -> Health:
        """As registrations tell of it."""
        return Health(self.uri, int(self._node.times.heart_beat_s * 10_000_000))

    # --- what the router tells it -------------------------------------------------------------------------------------

    def add(self, peer: Peer) -> None:
        self._tell(AddPeer(peer.identity, peer.uri, self._health(peer)))

    def start(self, peer: Peer) -> None:
        self._tell(StartPeerMonitoring(peer.identity, peer.uri, self._health(peer)))

    def delete(self, identity: bytes) -> None:
        self._tell(DeletePeer(identity))

    def suspect(self, identity: bytes) -> None:
        self._tell(CheckPeerConnection(identity))

    def _tell(self, body: ServicePayload) -> None:
        self._node.send("intercom", self._intercom, self._node.service(body))

    def _health(self, peer: Peer) -> Health:
        return Health(peer.health_uri, int(peer.beat_s * 10_000_000))

    def check(self) -> None:
        """Do what the timers do."""
        self._beat()
        self._check_dead()
        self._check_stale()

    # --- timers -------------------------------------------------------------------------------------------------------

    def _beat(self) -> float:
        body = HeartBeat(int(self._node.times.heart_beat_s * 10_000_000), self._node.identity, self.uri)
        self._node.send("heart beat", self._beats, self._node.service(body))
        return self._node.times.heart_beat_s

    def _check_stale(self) -> float:
        self._tell(CheckStalePeers())
        return self._node.times.stale_check_s

    def _check_dead(self) -> float | None:
        self._tell(CheckDeadPeers())
        return self._check_s

    # --- the ears -----------------------------------------------------------------------------------------------------

    def _hear(self, frames: list[bytes]) -> None:
        message = self._node.read("health", frames)
        body = None if message is None else self._node.read_body(message)
        match body:
            case HeartBeat():
                self._on_beat(message, body, frames)
            case AddPeer(socket_identity=identity, uri=uri, health=health) if identity not in self.entries:
                peer = Peer(identity, uri, health.uri, health.heart_beat_interval_ticks / 10_000_000)
                self.entries[identity] = Entry(peer, time.monotonic())
            case StartPeerMonitoring(socket_identity=identity) if identity in self.entries:
                self._listen(self.entries[identity])
            case DeletePeer(node_identity=identity) if identity in self.entries:
                entry = self.entries.pop(identity)
                if entry.is_connected:
                    self._ears.disconnect(entry.peer.health_uri)
            case CheckDeadPeers():
                self._find_dead()
            case CheckStalePeers():
                now = time.monotonic()
                for entry in list(self.entries.values()):
                    if not entry.is_connected and now - entry.last > self._node.times.stale_after_s:
                        self._ping(entry)
            case CheckPeerConnection(socket_identity=identity):
                entry = self.entries.get(identity)
                if entry is not None and not entry.is_connected:
                    self._ping(entry)

    def _on_beat(self, message: Message, beat: HeartBeat, frames: list[bytes]) -> None:
        if message.domain or message.signature:
            self._node.complain("form", "a heart beat is never signed", frames)
        entry = self.entries.get(beat.socket_identity or b"")
        if entry is None:  # an unknown node: do not listen to it any longer
            if beat.health_uri:
                try:
                    self._ears.disconnect(beat.health_uri)
                except zmq.ZMQError:
                    self._node.complain("health", f"{beat.health_uri} was never connected to", frames)
            return
        if beat.health_uri != entry.peer.health_uri or beat.heart_beat_interval_ticks != int(entry.peer.beat_s * 10_000_000):
            self._node.complain("health", f"{beat} is not what was registered: {entry.peer}", frames)
        entry.last = time.monotonic()

    def _listen(self, entry: Entry) -> None:
        entry.last = time.monotonic()
        if not entry.is_connected:
            entry.is_connected = True
            self._ears.connect(entry.peer.health_uri)
        if self._check_s is None:
            self._node.later(entry.peer.beat_s, self._check_dead)
        self._check_s = min(self._check_s or entry.peer.beat_s, entry.peer.beat_s)

    def _find_dead(self) -> None:
        now = time.monotonic()
        for entry in list(self.entries.values()):
            if entry.is_connected and now - entry.last > entry.peer.beat_s * self._node.times.missing_heart_beats:
                self._on_unreachable(entry.peer.identity, "dead")

    def _ping(self, entry: Entry) -> None:
        """Connect anew, wait, and send one message that nobody answers: if it can be sent, the peer lives."""
        socket = self._node.open_socket(zmq.ROUTER, connect=[entry.peer.uri])
        try:
            ping = self._node.signed(self._node.service(Ping(), self._node.domains.domain_of(Ping.identity)))
            self._node.send_to(socket, "ping", entry.peer.identity, ping, patience_s=self._node.times.settle_s)
        except zmq.ZMQError:
            self._on_unreachable(entry.peer.identity, "stale")
        else:
            entry.last = time.monotonic()
        finally:
            socket.close(linger=200)  # the ping must get out; the reference waits for its send
