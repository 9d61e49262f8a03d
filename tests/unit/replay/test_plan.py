"""Which messages are played."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hopline.capture.filter import parse_filter
from hopline.capture.jsonl import Import
from hopline.capture.query import Query
from hopline.capture.store import open_capture
from hopline.flow import inherited_trail, matching_point, record_hop
from hopline.identity import EXCEPTION, RECEIPT, MessageType
from hopline.payload.service import ExceptionMessage
from hopline.replay.plan import SKIPS, make_plan
from hopline.wire import Distribution, RoutingEntry, decode
from tests.unit.capture.story import MS, ORDERED, START_NS, Story, output, request, told

CAPTURES = Path(__file__).resolve().parents[4] / "shared" / "captures"
NO_FLOW = b"00000000-0000-0000-0000-000000000000"


def plan_of(story, path, where="", **choices):
    times = {name: choices.pop(name) for name in ("since", "until") if name in choices}
    return make_plan(story.write(path), Query(parse_filter(where), **times), **choices)


def played(plan):
    """When, in ms of the story, and what."""
    rows = plan.messages.to_pylist()
    return [((row["seen_ns"] - START_NS) / MS, plan.kinds[row["kind"]].identity.decode()) for row in rows]


def answered(plan):
    """Where the answers stand, and the waits in ms."""
    return [
        (row["answer_place"], None if row["wait_ns"] is None else row["wait_ns"] / MS) for row in plan.messages.to_pylist()
    ]


def at(ms):
    return datetime.fromtimestamp(START_NS / 1e9, UTC) + timedelta(milliseconds=ms)


def test_a_message_is_played_once_from_where_it_began(tmp_path):
    story = Story()
    story.see("client", "hub_out", request(), 0)
    arrived = story.send("client", "server", request(), 1)
    answer = story.send("server", "client", output(arrived, b"ORDERED"), 5)
    story.see("client", "hub_in", answer, 7)
    plan = plan_of(story, tmp_path)
    assert played(plan) == [(0, "ORDER")]
    assert answered(plan) == [(3, 7)]
    assert plan.skipped == {}
    assert plan.types() == {MessageType(b"ORDER", 1): 1}


def test_without_a_hub_it_is_where_it_left_its_node(tmp_path):
    story = Story()
    story.ask(b"flow-1", 3)
    story.ask(b"flow-2", 1, answer=None)
    plan = plan_of(story, tmp_path)
    assert played(plan) == [(1, "ORDER"), (3, "ORDER")]
    assert [wait for _, wait in answered(plan)] == [None, 11]
    assert plan.seconds == 0.002


def test_a_capture_of_the_receiver_alone_can_be_played(tmp_path):
    story = Story()
    arrived = story.send("client", "server", request(), 0, seen="in")
    story.send("server", "client", output(arrived, b"ORDERED"), 5, seen="out")
    plan = plan_of(story, tmp_path)
    assert played(plan) == [(1, "ORDER")]
    assert answered(plan) == [(1, 4)]


def test_clocks_that_disagree_do_not_move_the_beginning(tmp_path):
    story = Story()
    story.send("client", "server", request(), 100, took_ms=-50)
    assert played(plan_of(story, tmp_path)) == [(100, "ORDER")]


def test_what_actors_make_of_it_is_not_played(tmp_path):
    story = Story()
    placed = story.send("client", "server", request(), 0)
    stored = story.send("server", "store", output(placed, b"STORE"), 5)
    story.see("store", "actor_out", output(stored, b"ORDERED"), 8)
    story.send("store", "client", output(stored, b"ORDERED"), 9)
    assert played(plan_of(story, tmp_path)) == [(0, "ORDER")]


@pytest.mark.parametrize(
    "taps", [["hub_out", "router_in", "actor_in", "actor_out"], ["router_in"], ["actor_in", "actor_out"]]
)
def test_what_an_actor_of_the_same_node_sends_on_is_not_played(tmp_path, taps):
    story = Story()
    made = output(request(), b"STORE")
    for ms, (tap, message) in enumerate(
        [("hub_out", request()), ("router_in", request()), ("actor_in", request()), ("actor_out", made), ("router_in", made)]
    ):
        if tap in taps:
            story.see("client", tap, message, ms)
    story.send("client", "server", made, 9)
    plan = plan_of(story, tmp_path)
    assert [identity for _, identity in played(plan)] == ["ORDER"]
    assert plan.skipped == {}


def test_what_is_known_to_be_made_by_an_actor_is_no_beginning(tmp_path):
    story = Story()
    made = output(request(), b"STORE")
    story.see("client", "actor_out", made, 0)
    story.send("client", "server", made, 1)
    plan = plan_of(story, tmp_path)
    assert played(plan) == []
    assert plan.skipped == {"beginning": 1}


def test_a_flow_that_began_before_the_capture_is_counted(tmp_path):
    story = Story()
    arrived = record_hop(request(), RoutingEntry("tcp://client:1", b"client")).message
    story.send("server", "store", output(arrived, b"STORE"), 3)
    story.see("client", "hub_in", output(arrived, b"ORDERED"), 9)
    plan = plan_of(story, tmp_path)
    assert (played(plan), plan.skipped) == ([], {"beginning": 1})


def test_what_nodes_say_is_not_played(tmp_path):
    story = Story()
    for number, identity in enumerate([b"KINO.PING", b"HOPLINE.STATUS", b"HOPLINE.WATCH"]):
        story.see("client", "hub_out", request(identity, b"flow-%d" % number), number)
    story.see("client", "scaleout_out", told(request(b"KINO.REGEXTROUTE", NO_FLOW), callback_key=0), 5)
    plan = plan_of(story, tmp_path)
    assert (played(plan), plan.skipped) == ([], {})


def test_broadcasts_are_played_if_asked_for_and_once_however_many_get_them(tmp_path):
    story = Story()
    notice = told(request(b"NOTICE"), distribution=Distribution.BROADCAST, callback_points=())
    story.send("client", "server", notice, 0)
    story.send("client", "store", notice, 1)
    assert plan_of(story, tmp_path / "a").skipped == {"broadcast": 1}
    assert played(plan_of(story, tmp_path / "b", broadcasts=True)) == [(0, "NOTICE")]


def test_a_message_without_its_body_is_counted(tmp_path):
    story = Story()
    story.see("client", "hub_out", request(flow=b"a"), 0, body_kept="cut", body_size=9)
    story.see("client", "hub_out", request(flow=b"b"), 1, body_kept="none", body_size=4)
    story.see("client", "hub_out", request(flow=b"c"), 2)
    plan = plan_of(story, tmp_path)
    assert played(plan) == [(2, "ORDER")]
    assert plan.skipped == {"body": 2}
    assert set(plan.skipped) <= set(SKIPS)


def test_the_filter_is_asked_of_the_first_sighting(tmp_path):
    story = Story()
    story.see("client", "hub_out", request(flow=b"a"), 0)
    story.send("client", "server", request(flow=b"a"), 1)
    story.see("client", "hub_out", request(b"HELLO", b"b"), 2)
    capture = story.write(tmp_path)
    for where, expected in {
        "identity == HELLO": [(2, "HELLO")],
        "tap == hub_out": [(0, "ORDER"), (2, "HELLO")],
        "tap == scaleout_out": [],
        "node == client and size < 9": [(0, "ORDER"), (2, "HELLO")],
    }.items():
        assert played(make_plan(capture, Query(parse_filter(where)))) == expected


def test_times_choose_beginnings_and_answers_may_come_later(tmp_path):
    story = Story()
    for number in range(4):
        story.ask(b"flow-%d" % number, number * 5)
    plan = plan_of(story, tmp_path, since=at(5), until=at(15))
    assert played(plan) == [(5, "ORDER"), (10, "ORDER")]
    assert [wait for _, wait in answered(plan)] == [11, 11]


def test_a_limit_takes_the_first_ones(tmp_path):
    story = Story()
    for number in reversed(range(5)):
        story.ask(b"flow-%d" % number, number)
    plan = plan_of(story, tmp_path, limit=2)
    assert played(plan) == [(0, "ORDER"), (1, "ORDER")]
    assert plan.skipped == {"limit": 3}


def test_two_asks_of_one_flow_are_two(tmp_path):
    story = Story()
    for key in (1, 2):
        story.send("client", "server", told(request(), callback_key=key), key)
    assert played(plan_of(story, tmp_path)) == [(1, "ORDER"), (2, "ORDER")]


def test_messages_of_no_flow_are_played_as_often_as_they_began(tmp_path):
    story = Story()
    loose = told(request(b"TICK", NO_FLOW), callback_points=(), callback_key=0, callback_receiver_identity=b"")
    for number in range(3):
        story.send("client", "server", loose, 10 * number)
    story.send("client", "server", told(loose, body=b"other"), 40, seen="in")
    story.send("other", "server", loose, 50, seen="in")
    plan = plan_of(story, tmp_path)
    assert played(plan) == [(0, "TICK"), (10, "TICK"), (20, "TICK"), (41, "TICK"), (51, "TICK")]
    assert answered(plan) == [(None, None)] * 5


def test_a_message_of_no_flow_inside_a_node_is_seen_at_several_taps_and_played_once(tmp_path):
    story = Story()
    loose = told(request(b"TICK", b""), callback_points=(), callback_key=0, callback_receiver_identity=b"")
    story.see("client", "router_in", loose, 0)
    story.see("client", "actor_in", loose, 1)
    story.send("client", "server", loose, 2)
    made = told(loose, identity=b"TOCK")
    story.see("client", "actor_out", made, 3)
    story.see("client", "router_in", made, 4)
    plan = plan_of(story, tmp_path)
    assert played(plan) == [(0, "TICK")]
    assert plan.skipped == {"beginning": 1}


def test_a_receipt_is_no_answer_where_somebody_waits_for_more(tmp_path):
    story = Story()
    asked = request(b"ORDER", b"flow-1", ORDERED, RECEIPT)
    arrived = story.send("client", "server", asked, 0)
    story.send("server", "client", output(arrived, RECEIPT.identity), 2)
    story.send("server", "client", output(arrived, b"ORDERED"), 5)
    only = story.send("client", "server", request(b"ORDER", b"flow-2", ORDERED, RECEIPT), 10)
    story.send("server", "client", output(only, RECEIPT.identity), 12)
    assert [wait for _, wait in answered(plan_of(story, tmp_path))] == [6, None]


def test_a_receipt_that_came_first_is_the_answer_of_who_waits_for_one(tmp_path):
    story = Story()
    arrived = story.send("client", "server", request(b"NOTE", b"flow-1", RECEIPT), 0)
    story.send("server", "client", output(arrived, RECEIPT.identity), 2)
    failure = ExceptionMessage("no", "ValueError").write()
    story.send("server", "client", output(arrived, EXCEPTION.identity, body=failure), 5)
    assert [wait for _, wait in answered(plan_of(story, tmp_path))] == [3]


def test_an_answer_that_was_seen_elsewhere_is_known_but_not_the_wait(tmp_path):
    story = Story()
    arrived = story.send("client", "server", request(), 0)
    story.send("server", "client", output(arrived, b"ORDERED"), 5, seen="out")
    ((place, wait),) = answered(plan_of(story, tmp_path))
    assert (place, wait) == (1, None)


def test_a_clock_that_was_set_back_says_nothing_of_a_wait(tmp_path):
    story = Story()
    story.see("client", "hub_out", request(), 100)
    story.see("client", "hub_in", output(request(), b"ORDERED"), 50)
    ((place, wait),) = answered(plan_of(story, tmp_path))
    assert (place, wait) == (1, None)


def test_the_first_of_several_answers_counts_where_it_ended(tmp_path):
    story = Story()
    story.see("client", "hub_out", request(), 0)
    for ms in (4, 8):
        arrived = story.send("server", "client", output(request(), b"ORDERED", body=b"%d" % ms), ms)
        story.see("client", "hub_in", arrived, ms + 2)
    assert [wait for _, wait in answered(plan_of(story, tmp_path))] == [6]


def test_hops_from_outside_may_be_any_number(tmp_path):
    story = Story()
    story.see("client", "scaleout_out", told(request(), hops=65_535), 0)
    story.see("client", "scaleout_in", [b"junk"], 1)
    assert played(plan_of(story, tmp_path)) == [(0, "ORDER")]


def test_a_type_is_identity_version_and_partition(tmp_path):
    story = Story()
    kinds = [("v6", {"version": 2}), ("v6", {"partition": b"EU"}), ("v3", {"version": b"one"})]
    for number, (format, changes) in enumerate(kinds):
        asked = told(request(flow=b"flow-%d" % number), **changes)
        if format == "v3":
            asked = told(asked, callback_key=0, callback_receiver_node_identity=b"", trace_options=0)
        story.see("client", "wire_out", asked, number, format)
    plan = plan_of(story, tmp_path)
    assert list(plan.types()) == [
        MessageType(b"ORDER", 2),
        MessageType(b"ORDER", 1, b"EU"),
        MessageType(b"ORDER", b"one"),
    ]


def test_an_empty_capture_has_nothing_to_play(tmp_path):
    plan = make_plan(open_capture(str(tmp_path)), Query())
    assert (len(plan), plan.seconds, plan.types(), plan.skipped) == (0, 0.0, {}, {})


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="reference captures are not part of the project")
def test_of_the_reference_captures_what_their_hubs_sent_is_played(tmp_path):
    sent, heard = Counter(), {}
    flows = set()
    with Import(str(tmp_path)) as target:
        for file in sorted(CAPTURES.glob("*.jsonl")):
            target.add(file)
            for line in map(json.loads, file.read_text().splitlines()):
                message = decode([bytes.fromhex(frame) for frame in line["frames"]]).message
                is_answer = matching_point(message) is not None or inherited_trail(message)
                if message.identity.startswith(b"KINO.") or is_answer:
                    continue
                if line["direction"] == "out":
                    sent[message.type] += 1
                    flows.add(message.correlation_id)
                else:
                    heard.setdefault(message.correlation_id, message.type)
    sent.update(kind for flow, kind in heard.items() if flow not in flows)  # one file is of a third party that listened
    plan = make_plan(open_capture(str(tmp_path)), Query(), broadcasts=True)
    assert sent.total() == 68
    assert plan.types() == sent
    assert plan.skipped == {}
