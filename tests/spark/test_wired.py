"""What was imported from reference nodes: free names, no trails, receipts without keys, a rendezvous or none."""

import msgspec
import pytest

from hopline.identity import EXCEPTION, RECEIPT
from hopline.spark import callbacks, expiries, flows, hops
from hopline.wire import FormatName, Message, RoutingEntry
from tests.spark.small import DONE, Story, output, request

SERVER, SINK, TWO = "5e4f0a31-server", "5e4f0a32-sink", "5e4f0a33-two"


class Wire:
    """Files of reference nodes: frame 0 of what leaves names the peer, and that of what comes a socket."""

    def __init__(self) -> None:
        self.story = Story()

    def send(
        self,
        source: str,
        target: str,
        at_ms: float,
        message: Message,
        *,
        to: str = "",
        format: FormatName = "v4",
        seen="both",
    ) -> Message:
        """Send a message to the node that has an identity; without one it is control traffic, which counts no hops."""
        hops = message.hops + bool(to)
        if seen != "in":
            sent = msgspec.structs.replace(message, hops=hops, socket_identity=to.encode())
            self.story.see(source, "wire_out", at_ms, sent, format)
        come = msgspec.structs.replace(message, hops=hops, socket_identity=b"\0abcd" if to else b"")
        if seen != "out":
            self.story.see(target, "wire_in", at_ms + 2, come, format)
        return come


def announcement(of: str) -> Message:
    return Message(identity=b"KINO.REGEXTROUTE", version=1, body=of.encode(), correlation_id=b"")


def requests_without_trails(wire: Wire) -> None:
    """The third is lost, and so is what was sent to one that only listens."""
    for number in range(5):
        asked = request(f"ask {number}", key=0, ttl_ms=50)
        is_lost = number == 2
        come = wire.send("client", "server", number * 100, asked, to=SERVER, seen="out" if is_lost else "both")
        if not is_lost:
            wire.send("server", "client", number * 100 + 5, output(come), to="5e4f0a30-client")
        news = Message(identity=b"NEWS", version=1, correlation_id=b"news %d" % number)
        traced = msgspec.structs.replace(news, routing=(RoutingEntry("tcp://c:1", b"5e4f0a30-client"),))
        wire.send("client", "sink", number * 100 + 7, traced, to=SINK, format="v6", seen="out" if is_lost else "both")


def one_identity_for_two(wire: Wire) -> None:
    for number, node in enumerate(("one", "other")):
        news = Message(identity=b"NEWS", version=1, correlation_id=b"two %d" % number)
        wire.send("client", node, 1000 + number, news, to=TWO)


def receipts(wire: Wire) -> None:
    for number, format in enumerate(("v3", "v4")):
        asked = request(f"receipt {format}", key=0)
        asked = msgspec.structs.replace(asked, callback_points=(EXCEPTION, RECEIPT))
        come = wire.send("client", "server", 2000 + number, asked, to=SERVER, format=format)
        receipt = msgspec.structs.replace(output(come, RECEIPT.identity.decode()), callback_points=(RECEIPT,))
        wire.send("server", "client", 2010 + number, receipt, to="5e4f0a30-client", format=format)
    both = request("two receipts", key=0)
    for number, points in enumerate(((EXCEPTION, RECEIPT), (DONE, RECEIPT))):
        asked = msgspec.structs.replace(both, callback_points=points, body=b"%d" % number)
        come = wire.send("client", "server", 2100 + number, asked, to=SERVER)
    receipt = msgspec.structs.replace(output(come, RECEIPT.identity.decode()), callback_points=(RECEIPT,))
    wire.send("server", "client", 2110, receipt, to="5e4f0a30-client")


def announcements(wire: Wire) -> None:
    """One in a network whose rendezvous was not captured, and one where it was. Who sends it gets it too."""
    wire.send("client", "", 3000, announcement("far"), seen="out")
    for node in ("client", "server"):
        wire.send("", node, 3001, announcement("far"), seen="in")
    wire.send("client", "rendezvous", 4000, announcement("near"))
    wire.send("rendezvous", "", 4010, announcement("near"), seen="out")
    for node in ("client", "server"):
        wire.send("", node, 4011, announcement("near"), seen="in")


@pytest.fixture(scope="module")
def tables(spark, tmp_path_factory):
    wire = Wire()
    for tell in (requests_without_trails, one_identity_for_two, receipts, announcements):
        tell(wire)
    return wire.story.tables(spark, tmp_path_factory.mktemp("wired"))


@pytest.fixture(scope="module")
def found_hops(tables):
    return hops.hops(tables.moves).collect()


@pytest.fixture(scope="module")
def found_callbacks(tables):
    return callbacks.callbacks(tables.answers).collect()


@pytest.mark.parametrize(("flow", "node"), [("ask", "server"), ("news", "sink")])
def test_what_is_sent_to_a_node_that_no_trail_names_is_lost_where_it_was_captured(found_hops, flow, node):
    rows = [row for row in found_hops if row.correlation_key.startswith(flow) and row.from_node_key == "client"]
    assert {row.to_node_key for row in rows} == {node}
    assert [row.correlation_key for row in rows if row.lost] == [f"{flow} 2"]


def test_what_follows_from_a_loss_is_known_too(tables):
    found = flows.flows(tables.messages, tables.answers, tables.moves, tables.fates).collect()
    assert {row.correlation_key: (row.completeness, row.expired) for row in found if row.completeness < 1} == {
        "ask 2": (0.5, 1),
        "news 2": (0.5, 0),
    }
    (row,) = expiries.expiries(tables.fates).collect()
    assert (row.sent, row.in_time, row.expired_in_flight) == (5, 4, 1)


def test_an_identity_that_seems_to_be_two_nodes_is_neither(found_hops):
    rows = [row for row in found_hops if row.correlation_key.startswith("two ") and row.identity_key == "NEWS"]
    assert sorted(row.to_node_key for row in rows) == ["one", "other"]
    assert not any(row.lost for row in rows)


def test_a_receipt_without_a_key_is_for_the_question_that_asked_for_one(found_callbacks):
    rows = [row for row in found_callbacks if row.correlation_key.startswith("receipt")]
    assert {(row.request_identity_key, row.outcome, row.response_identity_key) for row in rows} == {
        ("ASK", "ok", "KINO.RCPTCONFIRM")
    }
    assert len(rows) == 2


def test_of_two_questions_nobody_knows_which_a_receipt_is_for(found_callbacks):
    rows = [row for row in found_callbacks if row.correlation_key == "two receipts"]
    assert sorted(row.outcome for row in rows) == ["orphan", "pending", "pending"]


def test_what_is_told_to_all_goes_by_way_of_a_rendezvous(tables, found_hops):
    uids = {
        (row.message_uid, "near" if row.node_key == "rendezvous" else "far")
        for row in tables.messages.where("identity_key = 'KINO.REGEXTROUTE'").collect()
    }
    near = {uid for uid, place in uids if place == "near"}
    moved = {
        place: sorted(
            (str(row.kind), str(row.from_node_key), str(row.to_node_key))
            for row in found_hops
            if row.identity_key == "KINO.REGEXTROUTE" and (row.message_uid in near) == (place == "near")
        )
        for place in ("near", "far")
    }
    assert moved == {
        "near": [
            ("network", "client", "rendezvous"),
            ("network", "rendezvous", "client"),
            ("network", "rendezvous", "server"),
        ],
        "far": [("network", "None", "client"), ("network", "None", "server"), ("network", "client", "None")],
    }
