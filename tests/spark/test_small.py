"""Single rules of the tables, each by a flow of its own in one small capture."""

import msgspec
import pytest
from pyspark.sql import functions as sf

from hopline.identity import MessageType
from hopline.spark import callbacks, expiries, flows, hops
from hopline.spark.days import Day
from hopline.spark.keeping import as_it_is
from hopline.spark.midnight import Midnights
from hopline.spark.parts import Span
from hopline.wire import Distribution, Message, RoutingEntry
from tests.spark.small import MS, START_NS, Story, output, request

ZEROS = b"00000000-0000-0000-0000-000000000000"
HOUR_MS = 3_600_000
DAY_BEFORE = "2026-11-15"


def news(flow: str, kind: bytes = b"NEWS") -> Message:
    return Message(identity=kind, version=1, correlation_id=flow.encode(), body=flow.encode())


def equal_answers(story: Story) -> None:
    """Two nodes answer one request, and say the same."""
    asked = request("equal", distribution=Distribution.BROADCAST)
    for delay, node in enumerate(("N2", "N3")):
        come = story.send("N1", node, 10, asked)
        answer = msgspec.structs.replace(output(come), distribution=Distribution.UNICAST)
        story.send(node, "N1", 20 + delay, answer)


def a_local_request(story: Story) -> None:
    """It stays in a node of which nobody knows what its actors are given."""
    asked = request("local", key=2, ttl_ms=1000)
    story.see("N1", "hub_out", 100, asked)
    story.see("N1", "hub_in", 105, output(asked))


def a_request_of_a_node_that_records_nothing_that_comes(story: Story) -> None:
    asked = request("deaf", key=3, hub="deaf")
    story.see("N8", "hub_out", 200, asked)
    come = story.send("N8", "N2", 201, asked)
    story.send("N2", "N8", 210, output(come), seen="out")


def a_request_with_a_ttl_that_was_over(story: Story) -> None:
    asked = request("over", key=4, ttl_ms=-5)
    story.see("N1", "hub_out", 300, asked)
    come = story.send("N1", "N2", 301, asked)
    story.see("N1", "hub_in", 312, story.send("N2", "N1", 310, output(come)))


def a_message_that_is_sent_on_by_a_node_whose_clock_is_behind(story: Story) -> None:
    come = story.send("N1", "N4", 6000, news("sent on"))
    story.send("N4", "N3", 6005, come, ahead_ms=-5000)


def messages_without_a_trail(story: Story) -> None:
    """Only the node in the middle was captured."""
    asked = request("no trail", key=5, hub="far")
    come = story.send("N0", "N2", 400, asked, seen="in", is_traced=False)
    story.send("N2", "N0", 405, output(come, "MIDDLE"), seen="out", is_traced=False)
    story.send("N2", "N0", 410, output(come), seen="out", is_traced=False)


def what_a_router_saw(story: Story) -> None:
    story.see("N7", "router_in", 500, news("router"))


def equal_messages_that_one_end_saw_before_the_other(story: Story) -> None:
    for number in range(4):
        story.send("N5", "N2", 60_000 * number, news("ticks"), seen="both" if number > 1 else "in")
        story.send("N2", "N5", 60_000 * number + 30_000, news(f"back {number}"), seen="both" if number > 1 else "out")
    story.send("N5", "N2", 240_000, news("once"))


def equal_messages_of_which_one_is_lost(story: Story) -> None:
    """And the first two were sent before the other node was captured; it gives them to an actor."""
    for number in range(6):
        is_seen = number > 1 and number != 3
        come = story.send("N1", "L1", 20_000 + 100 * number, news("some lost"), seen="both" if is_seen else "out")
        if is_seen:
            story.see("L1", "actor_in", 20_005 + 100 * number, come)


def control_traffic_over_midnight(story: Story) -> None:
    ping = Message(identity=b"KINO.PING", version=1, correlation_id=ZEROS, body=b"1")
    story.see("W1", "wire_out", -1, ping)
    story.see("W2", "wire_in", 1, ping)


def a_request_that_is_answered_the_next_day(story: Story) -> None:
    """Two and a half hours later, and nothing else was seen of the node that asked."""
    asked = request("next day", key=6, ttl_ms=1000, hub="patient")
    story.see("N9", "hub_out", -2 * HOUR_MS, asked)
    story.see("N9", "hub_in", HOUR_MS / 2, output(asked))


def a_message_over_midnight(story: Story) -> None:
    """It is given to an actor on the next day."""
    come = story.send("N1", "N2", -1, news("over midnight"))
    story.see("N2", "actor_in", 5, come)


def control(body: bytes, domain: str = "") -> Message:
    return Message(identity=b"KINO.X", version=1, correlation_id=ZEROS, body=body, domain=domain)


def control_traffic_of_two_domains(story: Story) -> None:
    """It is sent for both before the first comes."""
    for at_ms, domain in ((1000, "a"), (1010, "b")):
        story.see("W1", "wire_out", at_ms, control(b"domains", domain))
        story.see("W2", "wire_in", at_ms + 15, control(b"domains", domain))


def control_traffic_inside_a_node(story: Story) -> None:
    for at_ms, tap in enumerate(("wire_out", "wire_out", "wire_in", "wire_in")):
        story.see("W1", tap, 2000 + at_ms, control(b"inside"))


def control_traffic_that_is_passed_on_and_comes_again(story: Story) -> None:
    """From a node that was not captured, by one that was to another, and seconds later from the first again."""
    story.see("W3", "wire_in", 3000, control(b"again"))
    story.see("W3", "wire_out", 3001, control(b"again"))
    story.see("W2", "wire_in", 3002, control(b"again"))
    story.see("W3", "wire_in", 9000, control(b"again"))


def control_traffic_that_a_rendezvous_passes_on(story: Story) -> None:
    """Under the name of the socket that it came by; to the one who sent it too."""
    said, passed = control(b"passed on"), msgspec.structs.replace(control(b"passed on"), socket_identity=b"hopline/1 abc")
    story.see("N1", "scaleout_out", 4000, said)
    story.see("R", "wire_in", 4001, passed)
    story.see("R", "wire_out", 4002, passed)
    story.see("N1", "scaleout_in", 4003, passed)
    story.see("N2", "scaleout_in", 4005, passed)


def a_message_that_a_router_looks_at_twice(story: Story) -> None:
    """It waits for a route, inside a node."""
    asked = request("held", key=7, ttl_ms=50)
    for tap, at_ms in (("hub_out", 0), ("router_in", 1), ("router_in", 20), ("actor_in", 21)):
        story.see("N6", tap, 7000 + at_ms, asked)


def a_message_that_comes_again(story: Story) -> None:
    """A stranger sends it on, long after its time is over."""
    come = story.send("N1", "N2", 8000, request("replayed", key=8, ttl_ms=100))
    story.see("N2", "scaleout_in", 9000, msgspec.structs.replace(come, socket_identity=b"\0stranger"))


def a_node_that_comes_back_under_its_name(story: Story) -> None:
    """Imported captures name nodes as they like: both are the same nodes there, and have new identities on the wire."""
    for turn in (1, 2):
        sender, receiver = f"from {turn}".encode(), f"to {turn}".encode()
        told = Message(
            identity=b"NOTIFY",
            version=1,
            correlation_id=ZEROS,
            body=b"n0",
            distribution=Distribution.BROADCAST,
            hops=1,
            routing=(RoutingEntry("tcp://W5:1", sender),),
        )
        for tap, node, peer, at_ms in (("wire_out", "W5", receiver, 0), ("wire_in", "W6", b"\0%d" % turn, 3)):
            story.see(node, tap, 10_000 * turn + at_ms, msgspec.structs.replace(told, socket_identity=peer))
        for node, identity, at_ms in (("W5", sender, 20), ("W6", receiver, 30)):  # so that both are known
            said = Message(
                identity=b"HI", version=1, correlation_id=identity, hops=1, routing=(RoutingEntry("u", identity),)
            )
            story.see(node, "wire_out", 10_000 * turn + at_ms, said)


def questions_without_a_key(story: Story) -> None:
    """Three in one flow, as old formats have it; two are answered."""
    for number in range(3):
        points = (MessageType(b"DONE%d" % number, 1), MessageType(b"KINO.RCPTCONFIRM", 1))
        asked = msgspec.structs.replace(
            request("several", key=0, hub="old"), identity=b"ASK%d" % number, callback_points=points
        )
        come = story.send("O1", "O2", 30_000 + 10 * number, asked, format="v4")
        come = msgspec.structs.replace(come, callback_points=points[:1])  # who gives a receipt takes it out
        if number < 2:
            story.send("O2", "O1", 30_005 + 10 * number, output(come, f"DONE{number}"), format="v4")


def a_hub_that_counts_anew(story: Story) -> None:
    """It has a name of its own, and begins with the same key after each start."""
    for number, flow in enumerate(("first life", "second life")):
        come = story.send("O1", "O2", 31_000 + 100 * number, request(flow, hub="named"))
        story.send("O2", "O1", 31_005 + 100 * number, output(come))


def messages_without_a_trail_by_a_clock_that_is_behind(story: Story) -> None:
    """Both nodes were captured; that of the one who is asked, and asks on, is 5 s behind."""
    asked = request("behind", key=9, hub="ahead")
    come = story.send("O3", "O4", 32_000, asked, ahead_ms=5000, is_traced=False)
    story.send("O4", "O5", 32_003, output(come, "MIDDLE"), is_traced=False)
    answer = story.send("O4", "O3", 32_005, output(come), seen="out", is_traced=False)
    story.see("O3", "scaleout_in", 37_007, msgspec.structs.replace(answer, socket_identity=b"\0O4"))


def what_was_first_seen_when_it_came(story: Story) -> None:
    """One of them is still under way when its time is over, wherever it was before."""
    story.send("O6", "O7", 33_000, request("came", key=10, ttl_ms=100), seen="in")
    come = story.send("O6", "O7", 34_000, request("came late", key=11, ttl_ms=100), seen="in")
    story.see("O7", "actor_in", 34_200, come)


def a_broadcast_of_a_reference_node(story: Story) -> None:
    """It counts a hop for each peer; the first one gets it after its time."""
    told = msgspec.structs.replace(request("all", key=12, ttl_ms=100), distribution=Distribution.BROADCAST)
    for hop, (target, took_ms) in enumerate((("O8", 5000), ("O9", 1)), 1):
        way = (RoutingEntry("tcp://O6:1", b"O6"),) * hop
        sent = msgspec.structs.replace(told, hops=hop, routing=way, socket_identity=target.encode())
        story.see("O6", "scaleout_out", 35_000, sent)
        story.see(target, "scaleout_in", 35_000 + took_ms, msgspec.structs.replace(sent, socket_identity=b"\0O6"))


def equal_messages_of_two_of_which_one_was_captured(story: Story) -> None:
    """One is seen to leave and does not say for whom, the other to come."""
    for node, sender, tap in (("W7", b"W7", "wire_out"), ("W8", b"X9", "wire_in")):
        said = msgspec.structs.replace(news("halves"), hops=1, routing=(RoutingEntry("u", sender),))
        story.see(node, tap, 36_000, said)


def stamps_that_are_a_little_early(story: Story) -> None:
    """By 10 us, and it takes long to come back."""
    story.send("J1", "J2", 37_000, news("there"), ahead_ms=2.01)
    story.send("J2", "J1", 37_300, news("back"), ahead_ms=-198)


def equal_broadcasts_that_are_given_in_the_moment_they_are_made(story: Story) -> None:
    """What an actor is given was written first: taps are counted each by itself, so that says nothing."""
    for number in range(2):
        said = news("to all", kind=b"TO.ALL")
        said = msgspec.structs.replace(said, distribution=Distribution.BROADCAST)
        story.see("K1", "actor_in", 38_000 + number, said)
        story.see("K1", "hub_out", 38_000 + number, said)


def a_trail_over_a_node_that_was_not_captured(story: Story) -> None:
    """A X B X: of X it is known that A has sent to it, and not who else."""
    entry = {name: RoutingEntry(f"tcp://{name}:1", name.encode()) for name in ("M1", "MX", "M2")}
    there = tuple(entry[name] for name in ("M1", "MX"))
    asked = msgspec.structs.replace(news("uncaptured"), hops=2, routing=there)
    story.see("M2", "scaleout_in", 39_000, asked, "v5")
    answer = msgspec.structs.replace(output(asked), hops=2, routing=(*there, entry["M2"], entry["MX"]))
    story.see("M1", "scaleout_in", 39_002, answer, "v5")


@pytest.fixture(scope="module")
def tables(spark, tmp_path_factory):
    story = Story()
    for tell in (
        equal_answers,
        a_local_request,
        a_request_of_a_node_that_records_nothing_that_comes,
        a_request_with_a_ttl_that_was_over,
        a_message_that_is_sent_on_by_a_node_whose_clock_is_behind,
        messages_without_a_trail,
        what_a_router_saw,
        equal_messages_that_one_end_saw_before_the_other,
        equal_messages_of_which_one_is_lost,
        control_traffic_over_midnight,
        a_request_that_is_answered_the_next_day,
        a_message_over_midnight,
        control_traffic_of_two_domains,
        control_traffic_inside_a_node,
        control_traffic_that_is_passed_on_and_comes_again,
        control_traffic_that_a_rendezvous_passes_on,
        a_message_that_a_router_looks_at_twice,
        a_message_that_comes_again,
        a_node_that_comes_back_under_its_name,
        questions_without_a_key,
        a_hub_that_counts_anew,
        messages_without_a_trail_by_a_clock_that_is_behind,
        what_was_first_seen_when_it_came,
        a_broadcast_of_a_reference_node,
        equal_messages_of_two_of_which_one_was_captured,
        stamps_that_are_a_little_early,
        equal_broadcasts_that_are_given_in_the_moment_they_are_made,
        a_trail_over_a_node_that_was_not_captured,
    ):
        tell(story)
    return story.tables(spark, tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def found_hops(tables):
    return hops.hops(tables.moves).collect()


@pytest.fixture(scope="module")
def found_callbacks(tables):
    return callbacks.callbacks(tables.answers).collect()


@pytest.fixture(scope="module")
def found_flows(tables):
    found = flows.flows(tables.messages, tables.answers, tables.moves, tables.fates)
    return {row.correlation_key: row for row in found.collect()}


def test_equal_answers_of_two_nodes_are_two(found_hops, found_callbacks, found_flows):
    moved = [row for row in found_hops if row.correlation_key == "equal"]
    ways = {(row.from_node_key, row.to_node_key, row.latency_ms, row.lost) for row in moved}
    assert ways == {(a, b, 2.0, False) for one in ("N2", "N3") for a, b in ((one, "N1"), ("N1", one))}
    assert len(moved) == len(ways)
    answers = [row for row in found_callbacks if row.correlation_key == "equal"]
    assert sorted(row.outcome for row in answers) == ["duplicate", "ok"]
    assert {row.responses for row in answers} == {2}
    assert found_flows["equal"].completeness == 1.0


def test_what_went_where_nobody_looks_has_not_expired(tables, found_callbacks, found_flows):
    fates = {row.correlation_key: row.fate for row in tables.fates.collect()}
    assert fates["local"] is None
    assert [row.outcome for row in found_callbacks if row.correlation_key == "local"] == ["ok"]
    assert found_flows["local"].expired == 0


def test_an_answer_to_a_node_that_records_nothing_that_comes_counts_where_it_was_seen(found_callbacks):
    (row,) = [row for row in found_callbacks if row.correlation_key == "deaf"]
    assert (row.outcome, row.wait_ms, row.asker_captured) == ("ok", 10.0, False)


def test_what_comes_though_its_ttl_was_over_is_late(tables, found_callbacks):
    assert [row.outcome for row in found_callbacks if row.correlation_key == "over"] == ["late"]
    fates = [row for row in tables.fates.collect() if row.correlation_key == "over"]
    assert [row.fate for row in fates] == ["late"]
    (row,) = [row for row in expiries.expiries(tables.fates).collect() if row.ttl_ms == -1]
    assert (row.sent, row.in_time, row.late, row.expired_in_flight) == (1, 0, 1, 0)


def test_the_root_is_who_sent_and_not_who_sent_on(found_flows):
    assert found_flows["sent on"].root_node_key == "N1"


def test_without_a_trail_the_first_message_is_the_request_and_the_root(found_callbacks, found_flows):
    (row,) = [row for row in found_callbacks if row.correlation_key == "no trail"]
    assert (row.request_identity_key, row.response_identity_key, row.outcome) == ("ASK", "DONE", "ok")
    assert found_flows["no trail"].root_identity_key == "ASK"


def test_what_a_router_sees_before_the_first_hop_was_made_there(found_flows):
    assert found_flows["router"].root_node_key == "N7"


def test_clocks_are_not_told_by_messages_that_occur_again(found_hops):
    between = [row for row in found_hops if {row.from_node_key, row.to_node_key} == {"N2", "N5"}]
    assert {row.skew_ms for row in between if row.skew_ms is not None} == {0.0}


def test_of_equal_messages_that_came_before_their_sender_was_captured_each_other_has_its_sending(found_hops):
    rows = [row for row in found_hops if row.correlation_key == "ticks"]
    assert sorted((row.matched_by, row.latency_ms) for row in rows if row.latency_ms is not None) == [("time", 2.0)] * 2
    assert sorted(row.received_at.minute for row in rows if row.sent_at is None) == [0, 1]
    assert len(rows) == 4


def test_of_equal_messages_of_which_one_is_lost_each_arrival_has_its_sending(found_hops):
    rows = [row for row in found_hops if row.correlation_key == "some lost"]
    moved = [row for row in rows if row.kind == "network"]
    assert sorted((row.matched_by, row.latency_ms) for row in moved if row.latency_ms) == [("time", 2.0)] * 3
    half = sorted(row.sent_at.microsecond // 1000 for row in moved if row.received_at is None)
    assert half == [0, 100, 300]
    assert {(row.kind, row.latency_ms) for row in rows if row.kind != "network"} == {("deliver", 3.0)}
    assert len(rows) == 9


def test_control_traffic_meets_over_midnight(found_hops):
    (row,) = [row for row in found_hops if row.identity_key == "KINO.PING"]
    assert (row.from_node_key, row.to_node_key, row.latency_ms, row.matched_by) == ("W1", "W2", 2.0, "time")


def test_what_is_cut_at_midnight_still_shows_that_a_node_was_captured(spark, tables):
    """The answer is an orphan of the next day; the request has expired, for its node was there to see it."""
    day, hour_ns = Span(START_NS - 24 * HOUR_MS * MS, START_NS - 1), HOUR_MS * MS
    messages = tables.messages.where(sf.col("seen_ns") <= day.last + hour_ns)
    errors = spark.createDataFrame([], "message_uid binary, error_type string, error_message string")
    midnights = Midnights(day, hour_ns, has_before=False, has_after=True)
    made = Day(messages, errors, tables.verdicts, midnights, as_it_is).table("callbacks")
    rows = made.where("correlation_key = 'next day'").collect()
    assert [(row.outcome, row.responses) for row in rows] == [("expired", 0)]


def moves_of(tables, body):
    """Who sent and who got what has a body, and how many milliseconds it took."""
    uids = [
        row.message_uid for row in tables.messages.where(sf.col("body") == body).select("message_uid").distinct().collect()
    ]
    (uid,) = uids
    rows = hops.hops(tables.moves.where(sf.col("message_uid") == uid)).collect()
    return sorted(((row.kind, row.from_node_key, row.to_node_key, row.latency_ms, row.lost) for row in rows), key=str)


def test_control_traffic_stays_in_its_domain(tables):
    assert moves_of(tables, b"domains") == [("network", "W1", "W2", 15, False)] * 2


def test_each_of_two_that_come_belongs_to_a_sending_of_its_own(tables):
    assert moves_of(tables, b"inside") == [("local", "W1", "W1", 2, False)] * 2


def test_what_a_node_has_passed_on_is_not_what_comes_to_it_again(tables):
    assert moves_of(tables, b"again") == [
        ("network", "W3", "W2", 1, False),
        ("network", None, "W3", None, False),
        ("network", None, "W3", None, False),
    ]


def test_nodes_that_come_back_under_their_names_lose_nothing(tables):
    assert moves_of(tables, b"n0") == [("network", "W5", "W6", 3, False)] * 2


def test_what_a_rendezvous_passes_on_comes_from_there(tables):
    assert moves_of(tables, b"passed on") == [
        ("network", "N1", "R", 1, False),
        ("network", "R", "N1", 1, False),
        ("network", "R", "N2", 3, False),
    ]


def test_what_a_router_looks_at_twice_is_one_message(tables, found_flows):
    assert (found_flows["held"].messages, found_flows["held"].sightings, found_flows["held"].expired) == (1, 4, 0)
    assert [row.fate for row in tables.fates.collect() if row.correlation_key == "held"] == ["in_time"]


def test_what_comes_again_does_not_make_the_first_one_late(tables):
    assert [row.fate for row in tables.fates.collect() if row.correlation_key == "replayed"] == ["in_time"]


def test_what_begins_after_midnight_is_of_the_day_of_what_it_follows(tables):
    """A message is on its way over midnight, and given to an actor after it: both are moves of the day before."""
    midnights = Midnights(Span(START_NS - 24 * HOUR_MS * MS, START_NS - 1), HOUR_MS * MS, has_before=False, has_after=True)
    made = Day(tables.messages, None, tables.verdicts, midnights, as_it_is).table("hops")
    rows = made.where("correlation_key = 'over midnight'").select("kind", sf.col("date").cast("string")).collect()
    assert sorted(map(tuple, rows)) == [("deliver", DAY_BEFORE), ("network", DAY_BEFORE)]


def test_without_a_key_questions_of_one_flow_are_told_apart_by_what_they_ask_for(found_callbacks, found_flows):
    rows = [row for row in found_callbacks if row.correlation_key == "several"]
    assert sorted((row.request_identity_key, row.outcome, row.wait_ms) for row in rows) == [
        ("ASK0", "ok", 7.0),
        ("ASK1", "ok", 7.0),
        ("ASK2", "pending", None),
    ]
    assert (found_flows["several"].callbacks_ok, found_flows["several"].callbacks_pending) == (2, 1)


def test_a_key_that_is_given_again_asks_again(found_callbacks):
    rows = [row for row in found_callbacks if row.correlation_key.endswith(" life")]
    assert sorted((row.correlation_key, row.outcome, row.wait_ms) for row in rows) == [
        ("first life", "ok", 7.0),
        ("second life", "ok", 7.0),
    ]


def test_without_a_trail_a_request_counts_as_it_left_whatever_the_clocks_say(found_callbacks, found_flows):
    (row,) = [row for row in found_callbacks if row.correlation_key == "behind"]
    assert (row.request_identity_key, row.outcome, row.wait_ms, row.asker_captured) == ("ASK", "ok", 7.0, True)
    assert (found_flows["behind"].root_identity_key, found_flows["behind"].root_node_key) == ("ASK", "O3")


def test_what_was_first_seen_when_it_came_may_be_late_and_is_never_in_time(tables):
    fates = {row.correlation_key: (row.fate, row.budget_used) for row in tables.fates.collect()}
    assert (fates["came"], fates["came late"]) == ((None, None), ("late", None))


def test_of_a_broadcast_the_last_arrival_counts_however_many_hops_it_says(tables):
    assert [(row.fate, row.budget_used) for row in tables.fates.collect() if row.correlation_key == "all"] == [("late", 50)]


def test_what_was_seen_to_leave_is_a_move_whatever_else_came(tables):
    assert moves_of(tables, b"halves") == [
        ("network", "W7", None, None, False),
        ("network", "X9", "W8", None, False),
    ]


def test_clocks_are_not_corrected_for_a_stamp_that_is_a_little_early(found_hops):
    between = [row for row in found_hops if {row.from_node_key, row.to_node_key} == {"J1", "J2"}]
    assert sorted((round(row.latency_ms, 2), row.skew_ms) for row in between) == [(-0.01, 0.0), (200.0, 0.0)]


def test_copies_of_one_moment_come_behind_what_they_are_copies_of(tables):
    rows = {(row.occurrence, row.tap) for row in tables.messages.where("identity_key = 'TO.ALL'").collect()}
    assert rows == {(number, tap) for number in range(2) for tap in ("actor_in", "hub_out")}


def test_who_else_sent_to_a_node_that_was_not_captured_nobody_knows(tables):
    (row,) = tables.messages.where("correlation_key = 'uncaptured' and node_key = 'M1'").collect()
    assert (row.trail_order, [each.node_key for each in row.trail]) == ("ambiguous", ["M1", "MX", "M2", "MX"])
