"""Bodies of service messages: the golden payloads of protocol.md 3.9, the exception of 2.6, and the eras."""

import pytest

from hopline.errors import EncodeError, PayloadError
from hopline.identity import EXCEPTION, RECEIPT, MessageType
from hopline.payload import SERVICE_IDENTITIES, ServicePayload, is_service, read_service, service
from hopline.payload.bson import write_document
from hopline.payload.service import (
    AckReadLease,
    Ballot,
    DiscoverMessageRoute,
    DiscoverMessageRouteV4,
    ExceptionMessage,
    Health,
    HeartBeat,
    KnownMessageRoutes,
    MessageContract,
    MessageRoute,
    OldServicePayload,
    Ping,
    Pong,
    RegisterExternalRoute,
    RegisterExternalRouteV4,
    RendezvousNode,
    RendezvousNotLeader,
    RequestMessageRoutes,
    RouteRegistration,
    RouteType,
    UnregisterMessageRoute,
    UnregisterMessageRouteV4,
    UnregisterNodeRoute,
    UnregisterUnreachableNode,
    UnregisterUnreachableNodeV4,
)

MS = 10_000
SECOND = 1000 * MS
HELLO = MessageContract(1, b"HELLO", b"")

# protocol.md 3.9, "Golden payloads".
GOLDEN = {
    "heart beat of a rendezvous": (HeartBeat(5 * SECOND), "0a 04 08 0a 10 03"),
    "heart beat of a node": (
        HeartBeat(1500 * MS, b"N1", "tcp://10.0.0.1:5102"),
        "0a 05 08 b8 17 10 04 12 02 4e 31 1a 13 74 63 70 3a 2f 2f 31 30 2e 30 2e 30 2e 31 3a 35 31 30 32",
    ),
    "1 d": (HeartBeat(86_400 * SECOND), "0a 02 08 02"),
    "1 h": (HeartBeat(3600 * SECOND), "0a 04 08 02 10 01"),
    "2 min": (HeartBeat(120 * SECOND), "0a 04 08 04 10 02"),
    "90 s": (HeartBeat(90 * SECOND), "0a 05 08 b4 01 10 03"),
    "1 tick": (HeartBeat(1), "0a 04 08 02 10 05"),
    "-5 ms": (HeartBeat(-5 * MS), "0a 04 08 09 10 04"),
    "0": (HeartBeat(0), ""),
    "routes of a node": (
        RegisterExternalRoute(
            "tcp://10.0.0.1:5101",
            b"N1",
            (RouteRegistration(b"\1A", (HELLO,)), RouteRegistration(b"\0H")),
            Health("tcp://10.0.0.1:5102", 5 * SECOND),
        ),
        """0a 13 74 63 70 3a 2f 2f 31 30 2e 30 2e 30 2e 31 3a 35 31 30 31 12 02 4e 31
        1a 11 0a 02 01 41 12 0b 08 01 12 05 48 45 4c 4c 4f 1a 00 1a 04 0a 02 00 48
        22 1b 0a 13 74 63 70 3a 2f 2f 31 30 2e 30 2e 30 2e 31 3a 35 31 30 32 12 04 08 0a 10 03""",
    ),
    "discovery": (
        DiscoverMessageRoute(b"N1", "tcp://10.0.0.1:5101", None, HELLO),
        "0a 02 4e 31 12 13 74 63 70 3a 2f 2f 31 30 2e 30 2e 30 2e 31 3a 35 31 30 31 22 0b 08 01 12 05 48 45 4c 4c 4f 1a 00",
    ),
    "no receiver": (
        UnregisterMessageRoute("u", b"N1", (RouteRegistration(None, (HELLO,)),)),
        "0a 01 75 12 02 4e 31 1a 0d 12 0b 08 01 12 05 48 45 4c 4c 4f 1a 00",
    ),
    "not the leader": (RendezvousNotLeader(RendezvousNode("b", "c", "p")), "0a 09 0a 01 62 12 01 63 1a 01 70"),
    "null write ballot": (
        AckReadLease(Ballot(5, b"N", 1), Ballot(0, b"", 0), None, "u"),
        "0a 07 08 05 12 01 4e 18 01 12 02 12 00 22 01 75",
    ),
}

# protocol.md 3.9: a reference node accepts this much.
MINIMAL_EXCEPTION = bytes.fromhex(
    "3c 00 00 00 02 53 74 61 63 6b 54 72 61 63 65 00 03 00 00 00 73 74 00 02 4d 65 73 73 61 67 65 00 02 00 00 00 6d 00 "
    "02 45 78 63 65 70 74 69 6f 6e 54 79 70 65 00 02 00 00 00 54 00 00"
)


@pytest.mark.parametrize("era", ["v5", "v6"])
@pytest.mark.parametrize("case", GOLDEN)
def test_golden_payloads_both_ways(case, era):
    payload, written = GOLDEN[case]
    body = bytes.fromhex(written)
    assert payload.write() == body
    assert read_service(payload.identity, body, era=era) == payload


# --- eras -------------------------------------------------------------------------------------------------------------

TEXT_CONTRACT = MessageContract(b"1.0", b"HELLO", b"")
V4_CONTRACT = MessageContract(1, b"HELLO", None, is_any_identifier=True, keep_registration_local=True)

# protocol.md 3.9, "V3/V4-era differences", and the v4 vectors for fields 4 and 5 of a contract.
OLD = {
    "v3 routes": (
        RegisterExternalRouteV4("u", b"N1", (TEXT_CONTRACT,)),
        "0a 01 75 12 02 4e 31 1a 0e 0a 03 31 2e 30 12 05 48 45 4c 4c 4f 1a 00",
    ),
    "v4 routes": (
        RegisterExternalRouteV4("u", b"N1", (V4_CONTRACT,)),
        "0a 01 75 12 02 4e 31 1a 0d 08 01 12 05 48 45 4c 4c 4f 20 01 28 01",
    ),
    "no longer": (
        UnregisterMessageRouteV4("u", b"N1", (HELLO,)),
        "0a 01 75 12 02 4e 31 1a 0b 08 01 12 05 48 45 4c 4c 4f 1a 00",
    ),
    "discovery": (
        DiscoverMessageRouteV4(b"N1", "u", HELLO),
        "0a 02 4e 31 12 01 75 1a 0b 08 01 12 05 48 45 4c 4c 4f 1a 00",
    ),
    "unreachable": (UnregisterUnreachableNodeV4("u", b"N1"), "0a 01 75 12 02 4e 31"),
    "v3 leaves": (UnregisterNodeRoute("u", b"N1"), "0a 01 75 12 02 4e 31"),
    "known routes": (
        KnownMessageRoutes(MessageRoute("u", connected=True, message_contracts=(HELLO,)), (MessageRoute(),)),
        "0a 12 0a 01 75 10 01 22 0b 08 01 12 05 48 45 4c 4c 4f 1a 00 12 00",
    ),
    "ping": (Ping(5 * SECOND, 4), "0a 04 08 0a 10 03 10 04"),
    "pong": (Pong("u", b"N1", 5), "0a 01 75 12 02 4e 31 18 05"),
}


@pytest.mark.parametrize("era", ["v3", "v4"])
@pytest.mark.parametrize("case", OLD)
def test_old_payloads_both_ways(case, era):
    payload, written = OLD[case]
    body = bytes.fromhex(written)
    assert payload.write() == body
    assert read_service(payload.identity, body, era=era) == payload


def test_later_nodes_send_pings_without_fields():
    assert read_service(b"KINO.PING", b"") == Ping()
    assert Ping().write() == Pong().write() == b""


def test_the_era_decides_where_one_identity_has_two_bodies():
    body = bytes.fromhex("0a 02 4e 31")
    identity = b"KINO.UNREGUNREACHABLENODE"
    assert read_service(identity, body) == UnregisterUnreachableNode(b"N1")
    assert read_service(identity, body, era="v4") == UnregisterUnreachableNodeV4("N1", None)


def test_a_body_of_the_wrong_era_does_not_pass_for_another():
    payload, _ = OLD["v4 routes"]
    with pytest.raises(PayloadError, match=r"RouteRegistration\.receiver_identity must be bytes"):
        read_service(payload.identity, payload.write())


# --- identities -------------------------------------------------------------------------------------------------------


def classes(base=ServicePayload):
    found = [kind for each in base.__subclasses__() for kind in ([each] if hasattr(each, "identity") else classes(each))]
    return [kind for kind in found if kind.__module__ == ServicePayload.__module__]  # a cluster has some of its own


@pytest.mark.parametrize("payload", classes())
def test_every_class_is_found_by_its_identity_and_may_be_empty(payload):
    era = "v4" if issubclass(payload, OldServicePayload) else "v6"
    assert payload.identity in SERVICE_IDENTITIES
    empty = payload()
    assert read_service(payload.identity, empty.write(), era=era) == empty
    assert type(read_service(payload.identity, empty.write(), era=era)) is payload


def test_identities_are_those_of_the_protocol():
    later = """REGEXTROUTE UNREGMSGROUTE UNREGNODE REQCLUSTROUTES REQNODEROUTES DISCOVMSGROUTE UNREGUNREACHABLENODE
        PING PONG HEARTBEAT RNDZVNOTLEADER RNDZVRECONFIG EXCEPTION RCPTCONFIRM REQMSGROUTES MSGROUTES REQEXTROUTES EXTROUTES
        REQINTROUTES INTROUTES ADDPEER STARTPEERMON DELETEPEER CHCKDEADPEERS CHCKSTALEPEERS CHCKPEERCON READLEASE WRITELEASE
        ACKREADLEASE NACKREADLEASE ACKWRITELEASE NACKWRITELEASE QUORUM-HEARTBEAT QUORUM-RECONNECT"""
    old = "UNREGNODEROUTE REGINTROUTE KNOWNMSGROUTES REQKNOWNMSGROUTES"
    assert {b"KINO." + name.encode() for name in (later + " " + old).split()} == SERVICE_IDENTITIES
    assert {EXCEPTION.identity, RECEIPT.identity} < SERVICE_IDENTITIES


@pytest.mark.parametrize("era", ["v3", "v4", "v5", "v6"])
@pytest.mark.parametrize("identity", [b"HELLO", b"", b"KINO.NEW", b"\xff" * 1000])
def test_an_unknown_identity_is_refused(identity, era):
    with pytest.raises(PayloadError, match=f"is no service message of {era}") as caught:
        read_service(identity, b"", era=era)
    assert caught.value.code == "PAYLOAD_BROKEN"
    assert len(str(caught.value)) < 200


def test_identities_of_old_nodes_are_unknown_later():
    assert read_service(b"KINO.REQKNOWNMSGROUTES", b"", era="v3") == service.RequestKnownMessageRoutes()
    with pytest.raises(PayloadError):
        read_service(b"KINO.REQKNOWNMSGROUTES", b"", era="v5")


@pytest.mark.parametrize(
    ("message_type", "expected"),
    [
        (MessageType(b"KINO.PING", 1), True),
        (MessageType(b"KINO.NEW", 1), True),
        (EXCEPTION, True),
        (MessageType(b"KINO.PING", 1, b"EU"), False),
        (MessageType(b"KINO.PING", 2), False),
        (MessageType(b"KINO.PING", b"1.1"), False),
        (MessageType(b"KINO", 1), False),
        (MessageType(b"kino.PING", 1), False),
        (MessageType(b"HELLO", 1), False),
    ],
)
def test_service_messages_are_known_by_their_whole_type(message_type, expected):
    assert is_service(message_type.identity, message_type.version, message_type.partition) is expected


# --- contracts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message_type", "text_version", "contract"),
    [
        (MessageType(b"HELLO", 1), False, HELLO),
        (MessageType(b"HELLO", 1), True, TEXT_CONTRACT),
        (MessageType(b"HELLO", b"1.1", b"EU"), True, MessageContract(b"1.1", b"HELLO", b"EU")),
    ],
)
def test_a_contract_names_a_message_type(message_type, text_version, contract):
    assert MessageContract.of(message_type, text_version=text_version) == contract
    assert contract.type == message_type


def test_an_empty_contract_names_the_empty_type():
    assert MessageContract().type == MessageType()


def test_an_unknown_route_type_is_refused():
    identity = b"KINO.REQMSGROUTES"
    assert read_service(identity, b"\x10\x02") == RequestMessageRoutes(None, RouteType.EXTERNAL)
    with pytest.raises(PayloadError, match=r"RequestMessageRoutes\.route_type is 3, known are 0, 1, 2"):
        read_service(identity, b"\x10\x03")


# --- exceptions -------------------------------------------------------------------------------------------------------

BOOM = ExceptionMessage("boom", "System.Exception", "at X.Y()")


def read_exception(body):
    return read_service(b"KINO.EXCEPTION", body)


def test_the_minimal_exception_is_read():
    assert read_exception(MINIMAL_EXCEPTION) == ExceptionMessage("m", "T", "st")
    assert read_exception(MINIMAL_EXCEPTION + bytes(196)) == ExceptionMessage("m", "T", "st")


def test_an_exception_is_written_with_both_sets_of_keys_and_no_padding():
    # protocol.md 2.6: keys, types and their order; HResult as in the vectors.
    inner = (
        b"\x02ClassName\0\x11\0\0\0System.Exception\0\x02Message\0\x05\0\0\0boom\0\x0aData\0\x0aInnerException\0\x0aHelpURL\0"
        b"\x02StackTraceString\0\x09\0\0\0at X.Y()\0\x0aRemoteStackTraceString\0\x10RemoteStackIndex\0\0\0\0\0"
        b"\x0aExceptionMethod\0\x10HResult\0\x00\x15\x13\x80\x0aSource\0\x0aWatsonBuckets\0\0"
    )
    outer = (
        b"\x03Exception\0"
        + (len(inner) + 4).to_bytes(4, "little")
        + inner
        + b"\x02StackTrace\0\x09\0\0\0at X.Y()\0\x02Message\0\x05\0\0\0boom\0\x02ExceptionType\0\x11\0\0\0System.Exception\0"
        b"\x10Version\0\1\0\0\0\x05Identity\0\x0e\0\0\0\0KINO.EXCEPTION\x05Partition\0\0\0\0\0\0\0"
    )
    assert BOOM.write() == (len(outer) + 4).to_bytes(4, "little") + outer


@pytest.mark.parametrize("payload", [BOOM, ExceptionMessage(), ExceptionMessage("", "", ""), ExceptionMessage("\u0442\0")])
def test_an_exception_comes_back_as_it_was(payload):
    assert read_exception(payload.write()) == payload


INNER = {"classname": "C", "MESSAGE": "inner", "StackTraceString": "inner stack", "HResult": 1}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        # Released nodes: no Message and no ExceptionType beside the document.
        ({"Exception": INNER, "StackTrace": "st"}, ExceptionMessage("inner", "C", "st")),
        ({"exception": INNER}, ExceptionMessage("inner", "C", "inner stack")),
        # Later nodes: what is there counts, be it null.
        ({"Exception": INNER, "Message": None, "ExceptionType": "T", "StackTrace": None}, ExceptionMessage(None, "T")),
        ({"Exception": INNER, "message": "m", "exceptiontype": "T", "stacktrace": "s"}, ExceptionMessage("m", "T", "s")),
        ({"Exception": INNER, "Message": "m"}, ExceptionMessage("m", "C", "inner stack")),
        # Nothing to go by.
        ({}, ExceptionMessage()),
        ({"Exception": None}, ExceptionMessage()),
        ({"Exception": "text"}, ExceptionMessage()),
        ({"Exception": {}}, ExceptionMessage()),
        ({"Message": 5, "Exception": {"ClassName": {}, "Message": "m"}}, ExceptionMessage("m")),
        ({"Message": {}, "Exception": {"Message": "m"}}, ExceptionMessage("m")),
        ({"Unknown": {"Message": "x"}}, ExceptionMessage()),
    ],
)
def test_exceptions_of_all_ages_are_read(document, expected):
    assert read_exception(write_document(document)) == expected


def test_a_broken_exception_is_refused():
    inner = {"Exception": {"Message": "m"}}
    body = write_document(inner)
    assert read_exception(body) == ExceptionMessage("m")
    for size in range(len(body)):
        with pytest.raises(PayloadError):
            read_exception(body[:size])
    with pytest.raises(PayloadError):
        read_exception(body.replace(b"Message", b"Messag\xff\xff"))


def test_a_lone_surrogate_is_our_own_fault():
    with pytest.raises(EncodeError):
        ExceptionMessage("\ud800").write()
