"""Flows: counted by Arrow, and the same as when they are counted by hand."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hopline.capture import grouping
from hopline.capture.filter import parse_filter
from hopline.capture.flows import FlowRow, find_flows
from hopline.capture.jsonl import Import
from hopline.capture.query import Query
from hopline.capture.store import Capture, open_capture
from hopline.capture.trace import TRACE_COLUMNS, Failure, build_trace
from hopline.payload.service import ExceptionMessage
from hopline.wire import Distribution, Message
from tests.unit.capture.story import START_NS, Story, output, request

FAILED = ExceptionMessage("no such order", "KeyError").write()
CAPTURES = Path(__file__).resolve().parents[4] / "shared" / "captures"


def some_flows() -> Story:
    story = Story()
    story.ask(b"quick", 0)
    story.ask(b"failed-1", 100, answer=b"KINO.EXCEPTION", body=FAILED)
    story.ask(b"failed-2", 200, answer=b"KINO.EXCEPTION", body=b"junk")
    story.ask(b"waiting", 300, answer=None)
    arrived = story.send("client", "gate", request(flow=b"slow"), 400)
    taken = story.send("gate", "store", output(arrived, b"TAKE"), 500)
    story.send("gate", "client", output(taken, b"ORDERED"), 900)
    story.send("client", "server", Message(identity=b"NOTE", version=1, correlation_id=b"note"), 950)
    story.see("client", "scaleout_out", Message(identity=b"KINO.PING", correlation_id=b""), 960)
    story.see("client", "scaleout_out", [b"junk"], 970)
    return story


@pytest.fixture
def capture(tmp_path: Path) -> Capture:
    return some_flows().write(tmp_path)


def names(rows: list[FlowRow]) -> list[str]:
    return [row.correlation for row in rows]


def test_all_of_them_are_counted(capture: Capture) -> None:
    found = find_flows(capture, Query())
    assert found.flows == 6
    assert found.outcomes == {"ok": 2, "exception": 2, "pending": 1, "one-way": 1}


@pytest.mark.parametrize(
    ("show", "order"),
    [
        ("slowest", ["slow", "quick", "failed-1", "failed-2", "waiting", "note"]),
        ("failed", ["failed-2", "failed-1"]),
        ("unanswered", ["waiting"]),
        ("latest", ["note", "slow", "waiting", "failed-2", "failed-1", "quick"]),
    ],
)
def test_which_ones_are_shown(capture: Capture, show: str, order: list[str]) -> None:
    assert names(find_flows(capture, Query(), show=show).shown) == order
    assert names(find_flows(capture, Query(), show=show, limit=1).shown) == order[:1]
    assert names(find_flows(capture, Query(), show=show, limit=None).shown) == order


def test_what_is_known_of_a_flow(capture: Capture) -> None:
    slow = find_flows(capture, Query()).shown[0]
    assert slow == FlowRow(
        correlation="slow",
        started_at=datetime(2026, 11, 16, 0, 0, 0, 400_000, UTC),
        started_ns=START_NS + 400_000_000,
        duration_ms=501.0,
        outcome="ok",
        root_identity="ORDER",
        root_node="client",
        messages=3,
        sightings=6,
        nodes=3,
        callbacks_ok=1,
        callbacks_exception=0,
        callbacks_pending=0,
    )


def test_what_failed(capture: Capture) -> None:
    failures = [row.failure for row in find_flows(capture, Query(), show="failed").shown]
    assert failures == [Failure("", ""), Failure("KeyError", "no such order")]


def test_a_filter_chooses_flows_and_not_sightings(capture: Capture) -> None:
    found = find_flows(capture, Query(parse_filter("identity == TAKE")))
    assert (names(found.shown), found.flows, found.outcomes) == (["slow"], 1, {"ok": 1})
    assert found.shown[0].sightings == 6


def test_times_choose_sightings(capture: Capture) -> None:
    since = datetime(2026, 11, 16, 0, 0, 0, 450_000, UTC)
    found = find_flows(capture, Query(since=since, until=since + timedelta(milliseconds=470)))
    assert [(row.correlation, row.sightings, row.root_identity) for row in found.shown] == [("slow", 4, "TAKE")]


def test_the_root_is_found_by_the_trail_and_not_by_the_clock(tmp_path: Path) -> None:
    story = Story()
    story.ask(b"flow", 0)
    for record in story.records:
        if record["node"] == "server":
            record["seen_ns"] -= 10**12
    (row,) = find_flows(story.write(tmp_path), Query()).shown
    assert (row.root_identity, row.outcome) == ("ORDER", "ok")


def test_equal_messages_and_broadcasts(tmp_path: Path) -> None:
    story = Story()
    for at in range(3):
        story.send("client", "server", request(flow=b"again"), at)
        story.send("client", "ab"[at % 2], request(flow=b"all", distribution=Distribution.BROADCAST), at)
    counts = {row.correlation: row.messages for row in find_flows(story.write(tmp_path), Query()).shown}
    assert counts == {"again": 3, "all": 1}


def test_two_who_wait_in_one_flow(tmp_path: Path) -> None:
    story = Story()
    story.ask(b"flow", 0)
    story.send("client", "server", request(b"AGAIN", b"flow", callback_key=8), 50)
    (row,) = find_flows(story.write(tmp_path), Query()).shown
    assert (row.outcome, row.callbacks_ok, row.callbacks_pending) == ("pending", 1, 1)


def test_an_answer_that_did_not_get_back(tmp_path: Path) -> None:
    story = Story()
    arrived = story.send("client", "server", request(flow=b"lost"), 0)
    story.send("server", "client", output(arrived, b"ORDERED"), 10, seen="out")
    arrived = story.send("client", "server", request(flow=b"elsewhere"), 20, seen="in")
    story.send("server", "client", output(arrived, b"ORDERED"), 30, seen="out")
    outcomes = {row.correlation: row.outcome for row in find_flows(story.write(tmp_path), Query()).shown}
    assert outcomes == {"lost": "pending", "elsewhere": "ok"}  # where nothing was seen of the client, it was sent


def test_a_message_that_a_router_holds_back_is_not_sent_twice(tmp_path: Path) -> None:
    story = Story()
    for at in (0, 50):
        story.see("client", "router_in", request(), at)
    assert find_flows(story.write(tmp_path), Query()).shown[0].messages == 1


def test_ids_that_are_no_text(tmp_path: Path) -> None:
    story = Story()
    story.ask(b"\xff\0", 0)
    assert names(find_flows(story.write(tmp_path), Query()).shown) == ["0xff00"]


def test_nothing(tmp_path: Path) -> None:
    found = find_flows(open_capture(str(tmp_path)), Query())
    assert (found.flows, found.outcomes, found.shown) == (0, {}, [])


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="reference captures are not part of the project")
def test_reference_flows_are_as_their_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping, "_ROWS", 100)  # so that groups are grouped again
    with Import(str(tmp_path)) as target:
        for file in sorted(CAPTURES.glob("*.jsonl")):
            target.add(file)
    capture = open_capture(str(tmp_path))
    rows = [row for each in Query().read(capture, TRACE_COLUMNS) for row in each.messages.to_pylist()]
    by_flow = defaultdict(list)
    for row in rows:
        if row["correlation_key"].strip("0-"):
            by_flow[row["correlation_key"]].append(row)
    traces = {key: build_trace(found) for key, found in by_flow.items()}
    found = find_flows(capture, Query(), limit=None)
    assert {row.correlation for row in found.shown} == set(traces)
    for row in found.shown:
        trace = traces[row.correlation]
        assert (row.outcome, row.messages, row.sightings) == (trace.outcome, trace.messages, trace.sightings)
        assert (row.duration_ms, row.nodes, row.started_at) == (trace.duration_ms, len(trace.nodes), trace.started_at)
        assert row.root_identity == trace.steps[0].identity
        failures = [step.failure for step in trace.steps if step.failure]
        assert row.failure == (failures[0] if failures else None)
