"""A scripted rendezvous of the reference network: sockets 8 to 11 and 13 of protocol.md 3.2, behaving as 3.8 says.

    unicast      ROUTER, bound     8    everybody's messages come in here
    broadcast    PUB, bound        9    and go out here, if this one leads
    partner      PUB, bound        10   and here
    own          DEALER to 8       11   its own heart beat takes the same way
    synod        PUB, bound, and a SUB to all members, itself among them   13   the lease

It relays what it has decoded and encoded again: in v6 frame 0 of what goes out is the routing id of the DEALER that it came
from, in v5 it is empty. It never checks a signature.
"""

import uuid
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import zmq

from hopline.payload.service import (
    SERVICE_IDENTITIES,
    HeartBeat,
    Ping,
    Pong,
    RendezvousNode,
    RendezvousNotLeader,
    is_service,
)
from tests.reference.lease import LeaseBook
from tests.reference.station import LOOPBACK, Format, Stamp, Station

BUS_S: Final = 0.1
"""Until the members' bus is taken for connected; the reference waits for its clock drift."""


class Endpoint(NamedTuple):
    """Where nodes find a rendezvous: all that they are configured with."""

    unicast: str
    broadcast: str


class ReferenceRendezvous(Station):
    """A rendezvous that runs from the moment it is made; alone it leads; otherwise, after `meet`, one of several does.

    >>> with ReferenceRendezvous() as rendezvous:
    ...     rendezvous.wait_for(lambda: rendezvous.leads)
    True
    """

    def __init__(
        self,
        *,
        format: Format = "v6",
        stamp: Stamp = "int32",
        heart_beat_s: float = 5.0,
        lease_s: float = 3.0,
        alone: bool = True,
    ) -> None:
        super().__init__(format, stamp)
        self.identity = str(uuid.uuid4()).encode()
        self.heart_beat_s, self.lease_s, self._alone = heart_beat_s, lease_s, alone
        self._start()

    def _open(self) -> None:
        self._unicast = self.open_socket(zmq.ROUTER, bind=LOOPBACK, reader=self._on_unicast)
        self._broadcast = self.open_socket(zmq.PUB, bind=LOOPBACK)
        self._partner = self.open_socket(zmq.PUB, bind=LOOPBACK)
        self._synod = self.open_socket(zmq.PUB, bind=LOOPBACK)
        unicast, broadcast, partner, synod = (
            socket.last_endpoint.decode() for socket in (self._unicast, self._broadcast, self._partner, self._synod)
        )
        self.endpoint = Endpoint(unicast, broadcast)
        self.node = RendezvousNode(broadcast, unicast, partner)
        self.synod_uri = synod
        self._own = self.open_socket(zmq.DEALER, connect=[unicast])
        self._bus = self.open_socket(zmq.SUB, connect=[synod], reader=self._on_synod)
        publish = lambda body: self.send("synod", self._synod, self.service(body))  # noqa: E731
        self.lease = LeaseBook(self.identity, synod, self.node.write(), self.lease_s, publish)
        if self._alone:
            self.later(BUS_S, self._renew)
        self.later(BUS_S, self._beat)

    @property
    def leads(self) -> bool:
        return self.lease.leads

    def meet(self, others: Sequence["ReferenceRendezvous"]) -> None:
        """Become one of several members; every one has to be told, and none may have been made to be alone."""
        assert not self._alone

        def join() -> None:
            self.lease.members = [self.synod_uri, *(other.synod_uri for other in others)]
            for other in others:
                self._bus.connect(other.synod_uri)
            self.later(BUS_S, self._renew)

        self._call(join).result()

    def beat(self) -> None:
        """Give a heart beat now, and not when it is time to."""
        self._call(self._beat_once).result()

    # --- the lease ----------------------------------------------------------------------------------------------------

    def _renew(self) -> float:
        self.lease.propose()
        if not self.leads:
            return 0.3 if self.lease.known is None else self.lease_s
        return self.lease_s * 0.7  # 2.1 s of 3 s, as captured

    def _on_synod(self, frames: list[bytes]) -> None:
        message = self.read("synod", frames)
        if message is None:
            return
        body = self.read_body(message)
        if body is None:
            return
        ballot = getattr(body, "ballot", None)
        if ballot is not None and len(ballot.identity or b"") != len(self.identity):
            self.complain("ballot", "identities of other lengths cannot be compared", frames, fatal=True)
            return
        was = self.leads
        self.note(lambda: self.lease.hear(body))
        if self.leads and not was:
            self.later(0.0, self._beat_once)

    # --- the traffic --------------------------------------------------------------------------------------------------

    def _beat(self) -> float:
        if self.lease.held is not None:  # the first one comes with the first lease
            self._beat_once()
        return self.heart_beat_s

    def _beat_once(self) -> None:
        if self.leads:
            body = HeartBeat(int(self.heart_beat_s * 10_000_000))
        elif (leader := self._leader()) is not None:
            body = RendezvousNotLeader(leader)
        else:
            return
        self.send("own", self._own, self.service(body))

    def _leader(self) -> RendezvousNode | None:
        lease = self.lease.known
        return None if lease is None else RendezvousNode.read(lease.owner_payload or b"")

    def _on_unicast(self, frames: list[bytes]) -> None:
        message = self.read("unicast", frames, from_dealer=True)
        if message is None:
            return
        known = is_service(message.identity, message.version, message.partition)
        if not known or message.identity not in SERVICE_IDENTITIES:
            self.complain("unexpected", f"{message.identity!r} is nothing for a rendezvous", frames)
        else:
            self.read_body(message)
        if self.leads:
            if message.identity == Ping.identity:
                message = self.service(Pong())
            if self.format == "v5":
                message = msgspec.structs.replace(message, socket_identity=b"")
            for name, socket in (("broadcast", self._broadcast), ("partner", self._partner)):
                self.send(name, socket, message)
        elif (leader := self._leader()) is not None:
            refusal = self.service(RendezvousNotLeader(leader))
            for name, socket in (("broadcast", self._broadcast), ("broadcast", self._broadcast), ("partner", self._partner)):
                self.send(name, socket, refusal)
