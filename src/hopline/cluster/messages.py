"""Control messages of a cluster: who leads, who is alive, where a rendezvous is heard. They are never signed."""

from typing import ClassVar, Final

from hopline.errors import PayloadError
from hopline.node.announcements import ZERO_FLOW
from hopline.payload.proto import Int64
from hopline.payload.service import RendezvousNode, ServicePayload, read_service
from hopline.wire import Decoded, FormatName, Message, encode

SPOKEN: Final = frozenset({"v5", "v6"})
"""Formats that clusters speak. Before them messages about routes were others, and so was the way they took."""


class WhereAreYou(ServicePayload, frozen=True):
    """Asks a rendezvous where it is heard; it answers KINO.RNDZVRECONFIG with itself first. Only Hopline's do."""

    identity: ClassVar[bytes] = b"HOPLINE.RENDEZVOUS"


class HowAreYou(ServicePayload, frozen=True):
    """Asks a rendezvous what it knows and did; it answers with a RendezvousReport. Only Hopline's do."""

    identity: ClassVar[bytes] = b"HOPLINE.RENDEZVOUSSTATUS"


class RendezvousReport(ServicePayload, frozen=True):
    """What a rendezvous knows, and its books. No leader: it knows of none."""

    identity: ClassVar[bytes] = b"HOPLINE.RENDEZVOUSREPORT"
    node: RendezvousNode | None = None
    leader: RendezvousNode | None = None
    nodes: tuple[RendezvousNode, ...] = ()
    formats: tuple[bytes, ...] = ()
    received: Int64 = 0
    relayed: Int64 = 0
    answered: Int64 = 0
    not_leading: Int64 = 0
    refused: Int64 = 0
    relayed_bytes: Int64 = 0


QUESTION: Final = WhereAreYou()

_OURS: Final[dict[bytes, type[ServicePayload]]] = {
    payload.identity: payload for payload in (WhereAreYou, HowAreYou, RendezvousReport)
}


def control_frames(payload: ServicePayload, format: FormatName = "v6") -> list[bytes]:
    """A control message in some format.

    >>> from hopline.payload.service import Ping
    >>> len(control_frames(Ping())), len(control_frames(Ping(), "v5"))
    (4, 20)
    """
    return encode(Message(identity=payload.identity, version=1, body=payload.write(), correlation_id=ZERO_FLOW), format)


def read_control(decoded: Decoded) -> ServicePayload | None:
    """What a control message says; None if it is none, or is broken."""
    message = decoded.message
    if message.version != 1 or message.partition:
        return None
    try:
        ours = _OURS.get(message.identity)
        return ours.read(message.body) if ours is not None else read_service(message.identity, message.body)
    except PayloadError:
        return None
