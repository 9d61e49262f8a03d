"""The trace of a flow: what is a message, who answers whom, how long each took, and what is missing."""

import json
from pathlib import Path

import msgspec
import pytest

from hopline.capture.jsonl import Import
from hopline.capture.query import Query
from hopline.capture.search import find_flow
from hopline.capture.store import Capture, open_capture
from hopline.capture.trace import TRACE_COLUMNS, Failure, Trace, build_trace, read_failure
from hopline.errors import PayloadError
from hopline.identity import RECEIPT
from hopline.payload.service import ExceptionMessage
from hopline.wire import Distribution, Message
from tests.unit.capture.story import Story, output, request, told

CAPTURES = Path(__file__).resolve().parents[4] / "shared" / "captures"
FAILED = ExceptionMessage("no such order", "KeyError", "at place()").write()


def traced(story: Story) -> Trace:
    return build_trace(story.rows())


def shape(trace: Trace) -> list[tuple[int, str, str]]:
    return [(step.depth, step.kind, step.identity) for step in trace.steps]


def missing(trace: Trace) -> dict[str, list[str]]:
    return {step.identity: step.missing for step in trace.steps if step.missing}


def test_request_and_answer() -> None:
    story = Story()
    arrived = story.send("client", "server", request(), 0, 2)
    story.send("server", "client", output(arrived, b"ORDERED"), 12, 3)
    trace = traced(story)
    assert shape(trace) == [(0, "request", "ORDER"), (1, "callback", "ORDERED")]
    assert (trace.outcome, trace.duration_ms, trace.messages, trace.sightings) == ("ok", 15.0, 2, 4)
    assert (trace.correlation, trace.nodes, trace.missing) == ("flow-1", ["client", "server"], [])
    asked, answered = trace.steps
    assert [(each.node, each.tap, each.at_ms, each.latency_ms, each.is_network) for each in asked.sightings] == [
        ("client", "scaleout_out", 0.0, None, False),
        ("server", "scaleout_in", 2.0, 2.0, True),
    ]
    assert [(each.node, each.at_ms, each.latency_ms) for each in answered.sightings] == [
        ("server", 12.0, None),
        ("client", 15.0, 3.0),
    ]
    assert (asked.waits_for, asked.trail, asked.origin) == (["ORDERED", "KINO.EXCEPTION"], ["client"], "client")
    assert (answered.waits_for, answered.trail, answered.origin) == ([], ["client", "server"], "server")
    assert (answered.receiver, answered.receiver_node, answered.addressing) == ("hub:hub", "client", "hub")
    assert (asked.made_after_ms, answered.made_after_ms) == (None, 10.0)
    assert missing(trace) == {}


def test_every_tap_of_two_nodes_in_the_order_of_the_way() -> None:
    story = Story()
    asked = request()
    story.see("client", "hub_out", asked, 0)
    story.see("client", "router_in", asked, 1)
    arrived = story.send("client", "server", asked, 2, 3)
    story.see("server", "router_in", arrived, 6)
    story.see("server", "actor_in", arrived, 7)
    answer = output(arrived, b"ORDERED")
    story.see("server", "actor_out", answer, 17)
    story.see("server", "router_in", answer, 18)
    back = story.send("server", "client", answer, 19, 3)
    story.see("client", "hub_in", back, 23)
    story.records.reverse()  # the order in which files are read says nothing
    trace = traced(story)
    assert shape(trace) == [(0, "request", "ORDER"), (1, "callback", "ORDERED")]
    taps = [[(each.tap, each.latency_ms) for each in step.sightings] for step in trace.steps]
    assert taps == [
        [("hub_out", None), ("router_in", 1), ("scaleout_out", 1), ("scaleout_in", 3), ("router_in", 1), ("actor_in", 1)],
        [("actor_out", None), ("router_in", 1), ("scaleout_out", 1), ("scaleout_in", 3), ("hub_in", 1)],
    ]
    assert trace.steps[1].made_after_ms == 10.0
    assert (trace.messages, trace.sightings) == (2, 11)


def test_a_flow_inside_one_node() -> None:
    story = Story()
    asked = request()
    story.see("n", "hub_out", asked, 0)
    story.see("n", "actor_in", asked, 1)
    first = output(asked, b"CHECK")
    story.see("n", "actor_out", first, 2)
    story.see("n", "actor_in", first, 3)
    story.see("n", "actor_out", output(first, b"ORDERED"), 4)
    story.see("n", "hub_in", output(first, b"ORDERED"), 5)
    assert shape(traced(story)) == [(0, "request", "ORDER"), (1, "message", "CHECK"), (2, "callback", "ORDERED")]


def chain(story: Story) -> None:
    arrived = story.send("client", "gate", request(), 0)
    taken = story.send("gate", "store", output(arrived, b"TAKE"), 10)
    story.send("gate", "log", output(arrived, b"LOG"), 11)
    back = story.send("store", "gate", output(taken, b"TAKEN"), 20)
    story.send("gate", "client", output(back, b"ORDERED"), 30)


def test_a_tree_over_several_nodes() -> None:
    story = Story()
    chain(story)
    trace = traced(story)
    assert shape(trace) == [
        (0, "request", "ORDER"),
        (1, "message", "TAKE"),
        (2, "message", "TAKEN"),
        (3, "callback", "ORDERED"),
        (1, "message", "LOG"),
    ]
    assert trace.steps[3].trail == ["client", "gate", "store", "gate"]


def test_the_tree_does_not_need_clocks_that_agree() -> None:
    story = Story()
    chain(story)
    for record in story.records:
        if record["node"] == "gate":
            record["seen_ns"] -= 3600 * 10**9
    trace = traced(story)
    assert [identity for *_, identity in shape(trace)] == ["ORDER", "TAKE", "TAKEN", "ORDERED", "LOG"]
    assert trace.steps[0].sightings[0].at_ms == 0.0
    assert "the clock of gate is at least 3599999.000 ms behind that of client" in trace.missing
    assert "disagree: received 3599999.000 ms before it was sent" in missing(trace)["ORDER"][0]
    assert trace.steps[0].sightings[1].latency_ms == -3_599_999.0


def test_a_clock_that_was_set_back_between_two_messages() -> None:
    story = Story()
    arrived = story.send("client", "server", request(), 100)
    story.send("server", "client", output(arrived, b"ORDERED"), 50)
    assert shape(traced(story)) == [(0, "request", "ORDER"), (1, "callback", "ORDERED")]


def test_old_nodes_turn_the_trail_round() -> None:
    story = Story()
    arrived = story.send("client", "gate", request(), 0, format="v5")
    taken = story.send("gate", "store", output(arrived, b"TAKE"), 10, format="v5")
    turned = told(taken, routing=taken.routing[::-1])
    story.send("store", "client", output(turned, b"ORDERED"), 20, format="v5")
    assert [depth for depth, *_ in shape(traced(story))] == [0, 1, 2]


def test_old_senders_that_leave_no_trail() -> None:
    story = Story()
    asked = request(trace_options=0, callback_key=0, callback_receiver_node_identity=b"", hops=1)
    for format in ("v4", "v3"):
        story.records.clear()
        answer = told(output(asked, b"ORDERED"), hops=1)
        for message, sender, receiver, at in ((asked, "client", "server", 0), (answer, "server", "client", 10)):
            story.see(sender, "wire_out", message, at, format)
            story.see(receiver, "wire_in", message, at + 1, format)
        trace = traced(story)
        assert shape(trace) == [(0, "request", "ORDER"), (1, "callback", "ORDERED")]
        assert (trace.outcome, missing(trace)) == ("ok", {})


def test_an_exception_says_what_failed() -> None:
    story = Story()
    story.ask(b"flow-1", 0, answer=b"KINO.EXCEPTION", body=FAILED)
    trace = traced(story)
    assert trace.outcome == "exception"
    assert trace.steps[1].kind == "exception"
    assert trace.steps[1].failure == Failure("KeyError", "no such order")


def test_an_exception_that_cannot_be_read() -> None:
    story = Story()
    story.ask(b"flow-1", 0, answer=b"KINO.EXCEPTION", body=b"junk")
    assert "its body cannot be read" in missing(traced(story))["KINO.EXCEPTION"][0]
    for record in story.records:
        record |= {"body_kept": "none", "body_size": 4}
    assert missing(traced(story))["KINO.EXCEPTION"] == ["its body was not kept, so what failed is not known"]
    with pytest.raises(PayloadError):
        read_failure(b"junk")


def test_a_receipt() -> None:
    story = Story()
    asked = request(b"NOTE", b"flow-1", RECEIPT)
    arrived = story.send("client", "server", asked, 0)
    story.send("server", "client", output(arrived, b"KINO.RCPTCONFIRM"), 5)
    # The receiving node takes the point out; it is the same message all the same.
    story.see("server", "actor_in", told(arrived, callback_points=arrived.callback_points[1:]), 6)
    trace = traced(story)
    assert shape(trace) == [(0, "request", "NOTE"), (1, "receipt", "KINO.RCPTCONFIRM")]
    assert [each.tap for each in trace.steps[0].sightings] == ["scaleout_out", "scaleout_in", "actor_in"]
    assert trace.outcome == "ok"


def test_no_answer() -> None:
    story = Story()
    arrived = story.send("client", "server", request(), 0)
    story.send("server", "store", output(arrived, b"TAKE"), 5)
    trace = traced(story)
    assert trace.outcome == "pending"
    assert missing(trace) == {"ORDER": ["no answer was seen"]}


def test_an_answer_that_did_not_get_back() -> None:
    story = Story()
    asked = request()
    story.see("client", "hub_out", asked, 0)
    arrived = story.send("client", "server", asked, 1)
    answer = output(arrived, b"ORDERED")
    story.see("server", "actor_out", answer, 5)
    story.see("server", "router_in", answer, 6)
    trace = traced(story)
    assert trace.outcome == "pending"
    assert missing(trace) == {"ORDER": ["no answer was seen"], "ORDERED": ["it was not seen to go on from server"]}
    # If nothing at all was seen of the node that waits, it is enough that an answer was sent.
    story.records = [record for record in story.records if record["node"] == "server"]
    assert traced(story).outcome == "ok"


def test_a_message_that_a_router_holds_back_is_not_sent_twice() -> None:
    story = Story()
    asked = request()
    for at in (0, 50):
        story.see("client", "router_in", asked, at)
    story.send("client", "server", asked, 51)
    (step,) = traced(story).steps
    assert (step.times, [each.latency_ms for each in step.sightings]) == (1, [None, 50.0, 1.0, 1.0])


def test_a_message_that_only_a_router_saw() -> None:
    story = Story()
    story.see("n", "router_in", request(hops=1), 0)
    (step,) = traced(story).steps
    assert (step.times, step.missing) == (1, ["no answer was seen", "it was not seen to go on from n"])


def test_nobody_waits() -> None:
    story = Story()
    story.send("client", "server", Message(identity=b"NOTE", version=1, correlation_id=b"f"), 0)
    trace = traced(story)
    assert (trace.outcome, shape(trace), missing(trace)) == ("one-way", [(0, "message", "NOTE")], {})


def test_what_was_lost_on_the_way() -> None:
    story = Story()
    story.send("client", "server", request(), 0, seen="out")
    assert missing(traced(story)) == {
        "ORDER": ["no answer was seen", "no sighting at the receiver of what client sent"],
    }


def test_a_sender_whose_capture_is_not_here() -> None:
    story = Story()
    arrived = story.send("client", "server", request(), 0, seen="in")
    story.send("server", "client", output(arrived, b"ORDERED"), 10, seen="out")
    trace = traced(story)
    assert shape(trace) == [(0, "request", "ORDER"), (1, "callback", "ORDERED")]
    assert missing(trace) == {
        "ORDER": ["no sighting at the sender of what server received"],
        "ORDERED": ["no sighting at the receiver of what server sent"],
    }


def test_an_answer_without_its_request() -> None:
    story = Story()
    arrived = story.send("client", "server", request(), 0)
    story.send("server", "client", output(arrived, b"ORDERED"), 10)
    del story.records[:2]
    trace = traced(story)
    assert (shape(trace), trace.outcome) == ([(0, "callback", "ORDERED")], "ok")
    assert missing(trace) == {"ORDERED": ["its request is not in this capture"]}


def test_a_message_without_the_one_it_answers() -> None:
    story = Story()
    chain(story)
    del story.records[:2]
    trace = traced(story)
    assert shape(trace)[0] == (0, "message", "TAKE")
    assert "the message that it answers is not in this capture" in missing(trace)["TAKE"]


def test_only_the_receiver_saw_an_answer() -> None:
    story = Story()
    arrived = story.send("client", "server", request(), 0)
    story.send("server", "client", output(arrived, b"ORDERED"), 10, seen="in")
    assert shape(traced(story)) == [(0, "request", "ORDER"), (1, "callback", "ORDERED")]


def test_hops_that_were_not_seen() -> None:
    story = Story()
    first = story.send("client", "gate", request(), 0)
    second = story.send("gate", "inner", first, 5, seen="none")
    third = story.send("inner", "deep", second, 10, seen="none")
    story.send("deep", "store", third, 15)
    assert "nothing was seen of hop 2, 3" in missing(traced(story))["ORDER"]
    story.records[0]["frames"][0] = b"anything"
    far = Story()
    far.see("n", "wire_in", request(hops=60_000), 0)
    assert all("hop 2" not in text for text in missing(traced(far))["ORDER"])


def test_a_message_that_goes_over_two_hops_is_one() -> None:
    story = Story()
    arrived = story.send("client", "gate", request(), 0)
    story.send("gate", "store", arrived, 5, seen="both")
    trace = traced(story)
    assert shape(trace) == [(0, "request", "ORDER")]
    assert [(each.node, each.hops, each.latency_ms) for each in trace.steps[0].sightings] == [
        ("client", 1, None),
        ("gate", 1, 1.0),
        ("gate", 2, 4.0),
        ("store", 2, 1.0),
    ]
    lost = Story()
    lost.send("gate", "store", lost.send("client", "gate", request(), 0), 5, seen="out")
    assert "no sighting at the receiver of what gate sent on hop 2" in missing(traced(lost))["ORDER"]


def test_equal_messages_are_one_step_sent_twice() -> None:
    story = Story()
    for at in (0, 50):
        story.send("client", "server", request(), at, at + 1)
    trace = traced(story)
    assert (len(trace.steps), trace.steps[0].times, trace.messages) == (1, 2, 2)
    assert [each.latency_ms for each in trace.steps[0].sightings if each.is_network] == [1.0, 51.0]


def test_a_broadcast_is_one_message() -> None:
    story = Story()
    asked = request(distribution=Distribution.BROADCAST)
    for number, node in enumerate(("a", "b", "c")):
        story.send("client", node, asked, number)
    trace = traced(story)
    assert (trace.messages, trace.sightings, len(trace.steps), trace.steps[0].addressing) == (1, 6, 1, "all")
    assert missing(trace) == {"ORDER": ["no answer was seen"]}


def test_after_its_time_to_live() -> None:
    story = Story()
    story.send("client", "server", request(ttl_ticks=20_000), 0, 5)
    assert "server received it after its time to live of 2 ms" in missing(traced(story))["ORDER"]


def test_bodies_that_one_node_keeps_and_the_other_does_not() -> None:
    story = Story()
    arrived = story.send("client", "server", request(), 0, seen="out")
    story.see("server", "scaleout_in", told(arrived, body=b""), 1, body_kept="none", body_size=4)
    assert len(traced(story).steps) == 1
    # With two that differ in nothing but the body nobody can tell which one it was.
    story.send("client", "server", request(body=b"FOUR"), 2, seen="out")
    assert len(traced(story).steps) == 3


def test_two_who_wait_in_one_flow() -> None:
    story = Story()
    story.ask(b"flow-1", 0)
    story.send("client", "server", request(b"AGAIN", callback_key=8), 100)
    trace = traced(story)
    assert (trace.outcome, missing(trace)) == ("pending", {"AGAIN": ["no answer was seen"]})
    assert [depth for depth, *_ in shape(trace)] == [0, 1, 0]


def test_a_version_that_is_no_number_and_a_partition() -> None:
    story = Story()
    message = Message(identity=b"OLD", version=b"latest", partition=b"p", correlation_id=b"f")
    story.see("n", "wire_in", message, 0, "v3")
    (step,) = traced(story).steps
    assert (step.version, step.partition, step.format) == ("latest", "p", "v3")


def test_what_is_not_shown_is_counted() -> None:
    story = Story()
    story.ask(b"flow-1", 0)
    trace = build_trace(story.rows(), sightings=1000)
    assert (trace.sightings, trace.missing) == (1000, ["996 more sightings of this flow are not shown"])


def test_a_circle_of_lies_is_still_a_tree() -> None:
    story = Story()
    first, second = (Message(identity=name, version=1, correlation_id=b"f", hops=1) for name in (b"A", b"B"))
    for message, sender, receiver in ((first, "x", "y"), (second, "y", "x")):
        story.see(receiver, "wire_in", message, 0)
        story.see(sender, "wire_out", message, 10)
    assert len(traced(story).steps) == 2


def test_a_long_chain_and_a_wide_fan_take_no_time() -> None:
    story = Story()
    message = request()
    for number in range(300):
        message = output(story.send("ab"[number % 2], "ba"[number % 2], message, number), b"N%d" % number)
    trace = traced(story)
    assert max(step.depth for step in trace.steps) == 299  # also beyond what a trail can hold
    fan = Story()
    arrived = fan.send("a", "b", request(), 0)
    for number in range(300):
        fan.send("b", "a", output(arrived, b"N%d" % number), 5 + number)
    assert {step.depth for step in traced(fan).steps} == {0, 1}


def test_as_json() -> None:
    story = Story()
    story.ask(b"\xff", 0, answer=b"KINO.EXCEPTION", body=FAILED)
    found = json.loads(msgspec.json.encode(traced(story)))
    assert (found["correlation"], found["started_at"]) == ("0xff", "2026-11-16T00:00:00Z")
    assert found["steps"][1]["failure"] == {"type": "KeyError", "text": "no such order"}


# The reference's own network.


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    folder = str(tmp_path_factory.mktemp("captures"))
    with Import(folder) as target:
        for file in sorted(CAPTURES.glob("*.jsonl")):
            target.add(file)
    return open_capture(folder)


def trace_of(capture: Capture, correlation: bytes) -> Trace:
    flow = find_flow(capture, correlation, Query(), TRACE_COLUMNS).flow
    assert flow is not None
    return build_trace([row for batch in flow.messages for row in batch.to_pylist()], sightings=flow.sightings)


needs_captures = pytest.mark.skipif(not CAPTURES.is_dir(), reason="reference captures are not part of the project")


@needs_captures
@pytest.mark.parametrize("flow", [b"df5a6cae-f248-4d93-9600-9dbf9e07db2d", b"c5fa904f"], ids=["v6", "v5"])
def test_a_reference_flow_with_both_sightings_of_each(reference: Capture, flow: bytes) -> None:
    trace = trace_of(reference, flow)
    assert shape(trace) == [(0, "request", "HELLO"), (1, "callback", "EHHLO")]
    assert [[(each.node, each.direction) for each in step.sightings] for step in trace.steps] == [
        [("client", "out"), ("server", "in")],
        [("server", "out"), ("client", "in")],
    ]
    assert all(step.sightings[1].latency_ms for step in trace.steps)
    assert (trace.outcome, missing(trace), trace.missing) == ("ok", {}, [])


@needs_captures
@pytest.mark.parametrize("flow", [b"7efde67d", b"f43d2480", b"65c12a59"], ids=["v6", "v5", "signed"])
def test_a_reference_flow_that_throws(reference: Capture, flow: bytes) -> None:
    trace = trace_of(reference, flow)
    assert shape(trace) == [(0, "request", "THROW"), (1, "exception", "KINO.EXCEPTION")]
    failure = trace.steps[1].failure
    assert failure is not None
    assert (failure.type, failure.text[:6], trace.outcome) == ("System.InvalidOperationException", "boom: ", "exception")
    assert [len(step.sightings) for step in trace.steps] == [2, 2]


@needs_captures
def test_a_reference_flow_of_a_client_that_was_not_captured(reference: Capture) -> None:
    trace = trace_of(reference, b"4e73d521")
    assert shape(trace) == [(0, "request", "HELLO"), (1, "callback", "EHHLO")]
    assert set(missing(trace)) == {"HELLO", "EHHLO"}


@needs_captures
def test_a_reference_receipt(reference: Capture) -> None:
    assert shape(trace_of(reference, b"6e616947")) == [(0, "request", "HELLO"), (1, "receipt", "KINO.RCPTCONFIRM")]
