"""The bodies of KINO.* messages: by them nodes tell each other about routes, peers, leaders, receipts and failures.

A class is a body. Its attributes are the fields of the protocol in their order; `proto.py` says how each is written. Its
`identity` is that of the message that carries it, always with version 1 and no partition. KINO.EXCEPTION alone is BSON.

An era is the format of the message that a body came in. v5 and v6 nodes write the same bodies; v3 and v4 nodes write some
of them in another way, or under other identities: those are at the end of this file, and `read_service` finds them if it is
told the era. Where only a name has changed (SocketIdentity became NodeIdentity, MulticastUri became BroadcastUri) there is
one class, with the later name.

Absent and empty are two things on the wire, and so they are here: absent text or bytes are None.

This file knows bodies only. Who sends one, when and why, is for `node` and `cluster` to know.
"""

from enum import IntEnum
from typing import ClassVar, Final, Self

from hopline.errors import PayloadError
from hopline.identity import MessageType
from hopline.payload.bson import find_document, read_texts, write_document
from hopline.payload.proto import Int32, Int64, ProtoMessage, TimeSpan, Uint64, Version
from hopline.wire import DEFAULT_FORMAT, FormatName
from hopline.wire.primitives import read_version, show, write_version

SERVICE_PREFIX: Final = b"KINO."
OUR_PREFIX: Final = b"HOPLINE."
"""Of messages by which Hopline's nodes and tools speak with each other."""

SERVICE_VERSION: Final = 1


class ServicePayload(ProtoMessage, frozen=True):
    """The body of one service message."""

    identity: ClassVar[bytes]


# --- parts ------------------------------------------------------------------------------------------------------------


class MessageContract(ProtoMessage, frozen=True):
    """A message type as service messages name it. The last two fields are from v4 alone.

    `version` is text bytes where v3 and early v4 nodes wrote it, a number after them.
    """

    version: Version = 0
    identity: bytes | None = None
    partition: bytes | None = None
    is_any_identifier: bool = False
    keep_registration_local: bool = False

    @classmethod
    def of(cls, message_type: MessageType, *, text_version: bool = False) -> Self:
        """Name a message type, with its version as text for v3 nodes.

        >>> MessageContract.of(MessageType(b"HELLO", 1)).write().hex()
        '0801120548454c4c4f1a00'
        """
        version = write_version(message_type.version) if text_version else message_type.version
        return cls(version, message_type.identity, message_type.partition)

    @property
    def type(self) -> MessageType:
        """The message type that is named.

        >>> MessageContract(b"1.0", b"HELLO").type
        MessageType(identity=b'HELLO', version=1, partition=b'')
        """
        version = read_version(self.version) if isinstance(self.version, bytes) else self.version
        return MessageType(self.identity or b"", version, self.partition or b"")


class RouteRegistration(ProtoMessage, frozen=True):
    """One receiver and what it handles: an actor has contracts, a hub has none. Without a receiver: all actors."""

    receiver_identity: bytes | None = None
    message_contracts: tuple[MessageContract, ...] = ()


class Health(ProtoMessage, frozen=True):
    """Where a node publishes its heart beat, and how often."""

    uri: str | None = None
    heart_beat_interval_ticks: TimeSpan = 0


class RendezvousNode(ProtoMessage, frozen=True):
    """Where a rendezvous can be reached; the last one came later than the others. Also the owner's payload of a lease."""

    broadcast_uri: str | None = None
    unicast_uri: str | None = None
    partner_broadcast_uri: str | None = None


class MessageReceivingRoute(ProtoMessage, frozen=True):
    """The actors of a node that receive a message."""

    node_identity: bytes | None = None
    actor_identity: tuple[bytes, ...] = ()


class MessageRegistration(ProtoMessage, frozen=True):
    """A message and the actors that receive it."""

    message: MessageContract | None = None
    actors: tuple[bytes, ...] = ()


class NodeExternalRegistration(ProtoMessage, frozen=True):
    """All that a node knows of another one's receivers."""

    node_identity: bytes | None = None
    node_uri: str | None = None
    message_hubs: tuple[bytes, ...] = ()
    message_routes: tuple[MessageRegistration, ...] = ()


class ReceiverRegistration(ProtoMessage, frozen=True):
    """A hub, and whether the node keeps it to itself."""

    identity: bytes | None = None
    local_registration: bool = False


class Ballot(ProtoMessage, frozen=True):
    """A round of the lease; ballots are ordered by time (UTC, since the year 1), message number, identity."""

    timestamp_ticks: Int64 = 0
    identity: bytes | None = None
    message_number: Int32 = 0


class Lease(ProtoMessage, frozen=True):
    """Who leads, until when (UTC, since the year 1), and the RendezvousNode where it can be reached."""

    identity: bytes | None = None
    expires_at_ticks: Int64 = 0
    owner_payload: bytes | None = None


class RouteType(IntEnum):
    """Which routes are asked for."""

    ALL = 0
    INTERNAL = 1
    EXTERNAL = 2


# --- routes -----------------------------------------------------------------------------------------------------------


class RegisterExternalRoute(ServicePayload, frozen=True):
    """A node tells what it can receive."""

    identity = b"KINO.REGEXTROUTE"
    uri: str | None = None
    node_identity: bytes | None = None
    routes: tuple[RouteRegistration, ...] = ()
    health: Health | None = None


class UnregisterMessageRoute(ServicePayload, frozen=True):
    """A node tells what it no longer receives."""

    identity = b"KINO.UNREGMSGROUTE"
    uri: str | None = None
    receiver_node_identity: bytes | None = None
    routes: tuple[RouteRegistration, ...] = ()


class UnregisterNode(ServicePayload, frozen=True):
    """A node leaves."""

    identity = b"KINO.UNREGNODE"
    uri: str | None = None
    receiver_node_identity: bytes | None = None


class UnregisterUnreachableNode(ServicePayload, frozen=True):
    """A node is found to be gone."""

    identity = b"KINO.UNREGUNREACHABLENODE"
    receiver_node_identity: bytes | None = None


class RequestClusterRoutes(ServicePayload, frozen=True):
    """A node asks all others for their routes."""

    identity = b"KINO.REQCLUSTROUTES"
    requestor_uri: str | None = None
    requestor_node_identity: bytes | None = None


class RequestNodeRoutes(ServicePayload, frozen=True):
    """A node asks one other for its routes."""

    identity = b"KINO.REQNODEROUTES"
    target_node_uri: str | None = None
    target_node_identity: bytes | None = None


class DiscoverMessageRoute(ServicePayload, frozen=True):
    """A node looks for a hub, or for those who handle a message."""

    identity = b"KINO.DISCOVMSGROUTE"
    requestor_node_identity: bytes | None = None
    requestor_uri: str | None = None
    receiver_identity: bytes | None = None
    message_contract: MessageContract | None = None


class RequestMessageRoutes(ServicePayload, frozen=True):
    """Ask the own node who receives a message."""

    identity = b"KINO.REQMSGROUTES"
    message_contract: MessageContract | None = None
    route_type: RouteType = RouteType.ALL


class MessageRoutes(ServicePayload, frozen=True):
    """Who receives a message."""

    identity = b"KINO.MSGROUTES"
    message_contract: MessageContract | None = None
    external_routes: tuple[MessageReceivingRoute, ...] = ()
    internal_routes: MessageReceivingRoute | None = None


class RequestExternalRoutes(ServicePayload, frozen=True):
    """Ask the own node for its routes to others."""

    identity = b"KINO.REQEXTROUTES"


class ExternalRoutes(ServicePayload, frozen=True):
    """The routes of a node to others."""

    identity = b"KINO.EXTROUTES"
    routes: tuple[NodeExternalRegistration, ...] = ()


class RequestInternalRoutes(ServicePayload, frozen=True):
    """Ask the own node for its own routes."""

    identity = b"KINO.REQINTROUTES"


class InternalRoutes(ServicePayload, frozen=True):
    """The routes of a node to its own hubs and actors."""

    identity = b"KINO.INTROUTES"
    message_hubs: tuple[ReceiverRegistration, ...] = ()
    message_routes: tuple[MessageRegistration, ...] = ()


# --- operation --------------------------------------------------------------------------------------------------------


class ReceiptConfirmation(ServicePayload, frozen=True):
    """A message has arrived at a node."""

    identity = b"KINO.RCPTCONFIRM"


class ExceptionMessage(ServicePayload, frozen=True):
    """The handler of a message failed.

    Released nodes read the document under `Exception`, later ones the three keys beside it, so we write both. On reading, a
    key beside it counts if it is there, be it null; the document is asked for what is missing. Keys have no case.

    >>> ExceptionMessage.read(ExceptionMessage("no such order", "KeyError").write())
    ExceptionMessage(message='no such order', exception_type='KeyError', stack_trace=None)
    """

    identity = b"KINO.EXCEPTION"
    message: str | None = None
    exception_type: str | None = None
    stack_trace: str | None = None

    @classmethod
    def read(cls, body: bytes) -> Self:
        """Read the document, whatever padding follows it; raises PayloadError."""
        outer = read_texts(body, _INNER_KEYS)
        inner: dict[str, str | None] = {}
        if len(outer) < len(_INNER_KEYS) and (nested := find_document(body, "Exception")) is not None:
            inner = read_texts(nested, _INNER_KEYS.values())
        return cls(*(outer.get(key, inner.get(name)) for key, name in _INNER_KEYS.items()))

    def write(self) -> bytes:
        """Write the document, without padding; raises EncodeError."""
        exception = {
            "ClassName": self.exception_type or "System.Exception",
            "Message": self.message,
            "Data": None,
            "InnerException": None,
            "HelpURL": None,
            "StackTraceString": self.stack_trace,
            "RemoteStackTraceString": None,
            "RemoteStackIndex": 0,
            "ExceptionMethod": None,
            "HResult": _HRESULT,
            "Source": None,
            "WatsonBuckets": None,
        }
        return write_document(
            {
                "Exception": exception,
                "StackTrace": self.stack_trace,
                "Message": self.message,
                "ExceptionType": self.exception_type,
                "Version": SERVICE_VERSION,
                "Identity": self.identity,
                "Partition": b"",
            }
        )


_INNER_KEYS: Final = {"Message": "Message", "ExceptionType": "ClassName", "StackTrace": "StackTraceString"}
"""A key of the exception, in the order of the attributes: its name in the document under `Exception`."""

_HRESULT: Final = -2146233088
"""0x80131500, the number of a plain System.Exception: what the reference writes."""


# --- health -----------------------------------------------------------------------------------------------------------


class Ping(ServicePayload, frozen=True):
    """Are you there? The fields are from rendezvous of v3 and v4; later ones are empty."""

    identity = b"KINO.PING"
    ping_interval_ticks: TimeSpan = 0
    ping_id: Uint64 = 0


class Pong(ServicePayload, frozen=True):
    """I am. The fields are from nodes of v3 and v4; later ones are empty."""

    identity = b"KINO.PONG"
    uri: str | None = None
    socket_identity: bytes | None = None
    ping_id: Uint64 = 0


class HeartBeat(ServicePayload, frozen=True):
    """A rendezvous or a node lives; only a node says which one it is (its node identity) and where it is heard."""

    identity = b"KINO.HEARTBEAT"
    heart_beat_interval_ticks: TimeSpan = 0
    socket_identity: bytes | None = None
    health_uri: str | None = None


class AddPeer(ServicePayload, frozen=True):
    """Within a node: remember a peer."""

    identity = b"KINO.ADDPEER"
    socket_identity: bytes | None = None
    uri: str | None = None
    health: Health | None = None


class StartPeerMonitoring(ServicePayload, frozen=True):
    """Within a node: listen to the heart beat of a peer."""

    identity = b"KINO.STARTPEERMON"
    socket_identity: bytes | None = None
    uri: str | None = None
    health: Health | None = None


class DeletePeer(ServicePayload, frozen=True):
    """Within a node: forget a peer."""

    identity = b"KINO.DELETEPEER"
    node_identity: bytes | None = None


class CheckDeadPeers(ServicePayload, frozen=True):
    """Within a node: look for peers that fell silent."""

    identity = b"KINO.CHCKDEADPEERS"


class CheckStalePeers(ServicePayload, frozen=True):
    """Within a node: look for peers that nobody talked to for long."""

    identity = b"KINO.CHCKSTALEPEERS"


class CheckPeerConnection(ServicePayload, frozen=True):
    """Within a node: see whether a peer can still be reached."""

    identity = b"KINO.CHCKPEERCON"
    socket_identity: bytes | None = None


# --- rendezvous and lease ---------------------------------------------------------------------------------------------


class RendezvousNotLeader(ServicePayload, frozen=True):
    """A rendezvous names the one that leads."""

    identity = b"KINO.RNDZVNOTLEADER"
    new_leader: RendezvousNode | None = None


class RendezvousConfigurationChanged(ServicePayload, frozen=True):
    """The rendezvous are others now."""

    identity = b"KINO.RNDZVRECONFIG"
    rendezvous_nodes: tuple[RendezvousNode, ...] = ()


class ReadLease(ServicePayload, frozen=True):
    """Ask all members for the lease, and to promise a ballot."""

    identity = b"KINO.READLEASE"
    ballot: Ballot | None = None
    sender_identity: bytes | None = None


class WriteLease(ServicePayload, frozen=True):
    """Ask all members to accept a lease."""

    identity = b"KINO.WRITELEASE"
    ballot: Ballot | None = None
    lease: Lease | None = None
    sender_identity: bytes | None = None


class AckReadLease(ServicePayload, frozen=True):
    """Promise a ballot, and tell the lease known so far."""

    identity = b"KINO.ACKREADLEASE"
    ballot: Ballot | None = None
    known_write_ballot: Ballot | None = None
    lease: Lease | None = None
    sender_uri: str | None = None


class NackReadLease(ServicePayload, frozen=True):
    """Refuse to promise a ballot."""

    identity = b"KINO.NACKREADLEASE"
    ballot: Ballot | None = None
    sender_uri: str | None = None


class AckWriteLease(ServicePayload, frozen=True):
    """Accept a lease."""

    identity = b"KINO.ACKWRITELEASE"
    ballot: Ballot | None = None
    sender_uri: str | None = None


class NackWriteLease(ServicePayload, frozen=True):
    """Refuse a lease."""

    identity = b"KINO.NACKWRITELEASE"
    ballot: Ballot | None = None
    sender_uri: str | None = None


class QuorumHeartBeat(ServicePayload, frozen=True):
    """A member of the quorum lives."""

    identity = b"KINO.QUORUM-HEARTBEAT"
    node_uri: str | None = None


class QuorumReconnect(ServicePayload, frozen=True):
    """Within a rendezvous: a member has another address now."""

    identity = b"KINO.QUORUM-RECONNECT"
    old_uri: str | None = None
    new_uri: str | None = None


# --- bodies that only v3 and v4 nodes write ---------------------------------------------------------------------------


class OldServicePayload(ServicePayload, frozen=True):
    """A body that v5 and v6 nodes write in another way, or not at all. `V4` in a name: as in v3 and v4."""


class RegisterExternalRouteV4(OldServicePayload, frozen=True):
    """A node tells what it can receive."""

    identity = b"KINO.REGEXTROUTE"
    uri: str | None = None
    socket_identity: bytes | None = None
    message_contracts: tuple[MessageContract, ...] = ()


class UnregisterMessageRouteV4(OldServicePayload, frozen=True):
    """A node tells what it no longer receives."""

    identity = b"KINO.UNREGMSGROUTE"
    uri: str | None = None
    socket_identity: bytes | None = None
    message_contracts: tuple[MessageContract, ...] = ()


class DiscoverMessageRouteV4(OldServicePayload, frozen=True):
    """A node looks for those who handle a message."""

    identity = b"KINO.DISCOVMSGROUTE"
    requestor_socket_identity: bytes | None = None
    requestor_uri: str | None = None
    message_contract: MessageContract | None = None


class UnregisterUnreachableNodeV4(OldServicePayload, frozen=True):
    """A node is found to be gone."""

    identity = b"KINO.UNREGUNREACHABLENODE"
    uri: str | None = None
    socket_identity: bytes | None = None


class UnregisterNodeRoute(OldServicePayload, frozen=True):
    """A node leaves: v3's UnregisterNode."""

    identity = b"KINO.UNREGNODEROUTE"
    uri: str | None = None
    socket_identity: bytes | None = None


class RegisterInternalRoute(OldServicePayload, frozen=True):
    """Within a node: what the receiver behind a socket handles, for all nodes and for this one alone."""

    identity = b"KINO.REGINTROUTE"
    global_message_contracts: tuple[MessageContract, ...] = ()
    local_message_contracts: tuple[MessageContract, ...] = ()
    socket_identity: bytes | None = None


class RequestKnownMessageRoutes(OldServicePayload, frozen=True):
    """Ask a node for all its routes."""

    identity = b"KINO.REQKNOWNMSGROUTES"


class MessageRoute(ProtoMessage, frozen=True):
    """A node, and what it can receive."""

    uri: str | None = None
    connected: bool = False
    socket_identity: bytes | None = None
    message_contracts: tuple[MessageContract, ...] = ()


class KnownMessageRoutes(OldServicePayload, frozen=True):
    """All routes of a node."""

    identity = b"KINO.KNOWNMSGROUTES"
    internal_routes: MessageRoute | None = None
    external_routes: tuple[MessageRoute, ...] = ()


# --- by identity ------------------------------------------------------------------------------------------------------

_LATER: Final[dict[bytes, type[ServicePayload]]] = {
    payload.identity: payload for payload in ServicePayload.__subclasses__() if payload is not OldServicePayload
}
_EARLIER: Final = _LATER | {payload.identity: payload for payload in OldServicePayload.__subclasses__()}
_BY_ERA: Final[dict[FormatName, dict[bytes, type[ServicePayload]]]] = {
    "v3": _EARLIER,
    "v4": _EARLIER,
    "v5": _LATER,
    "v6": _LATER,
}

SERVICE_IDENTITIES: Final = frozenset(_EARLIER)
"""All that can be read, of all eras."""


def is_service(identity: bytes, version: int | bytes, partition: bytes) -> bool:
    """Whether a message type is the network's own; with a partition or another version it is somebody else's.

    >>> is_service(b"KINO.PING", 1, b""), is_service(b"KINO.PING", 1, b"EU"), is_service(b"HELLO", 1, b"")
    (True, False, False)
    """
    return identity.startswith(SERVICE_PREFIX) and version == SERVICE_VERSION and not partition


def read_service(identity: bytes, body: bytes, *, era: FormatName = DEFAULT_FORMAT) -> ServicePayload:
    r"""Read the body of a service message that came in the format `era`; raises PayloadError.

    >>> read_service(b"KINO.HEARTBEAT", b"\x0a\x04\x08\x0a\x10\x03")
    HeartBeat(heart_beat_interval_ticks=50000000, socket_identity=None, health_uri=None)
    """
    payload = _BY_ERA[era].get(identity)
    if payload is None:
        raise PayloadError("PAYLOAD_BROKEN", f"{show(identity[:64])} is no service message of {era}")
    return payload.read(body)
