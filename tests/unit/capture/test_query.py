"""Questions about a capture: which sightings are meant, in which order they come, and how few are decoded for it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hopline.capture import query as module
from hopline.capture.fields import read_time
from hopline.capture.filter import And, Not, parse_filter
from hopline.capture.query import Dump, Query, ns_of
from hopline.capture.store import Capture, open_capture
from tests.unit.capture.story import START_NS, Story, request

START = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=START_NS // 1000)


@pytest.fixture
def capture(tmp_path: Path) -> Capture:
    story = Story()
    for number in range(10):
        story.ask(b"flow-%d" % number, number * 100)
    story.see("server", "wire_in", [b"junk"], 250)
    story.see("server", "wire_in", [b"more junk"], 950)
    return story.write(tmp_path)


def test_everything_is_read(capture: Capture) -> None:
    found = list(Query().read(capture))
    messages = [row for each in found for row in each.messages.to_pylist()]
    rejects = [row for each in found for row in each.rejects.to_pylist()]
    assert (len(messages), len(rejects)) == (40, 2)
    assert len({row["event_id"] for row in messages + rejects}) == 42
    assert "body" not in messages[0]


@pytest.mark.parametrize(
    ("where", "messages", "rejects"),
    [
        ("identity == ORDER", 20, 0),
        ("identity == ORDER and tap == scaleout_out", 10, 0),
        ("node == server", 20, 2),
        ("not identity == ORDER", 20, 2),
        ("tap == wire_in", 0, 2),
        ("flow == nothing", 0, 0),
    ],
)
def test_a_filter(capture: Capture, where: str, messages: int, rejects: int) -> None:
    found = list(Query(parse_filter(where)).read(capture, ["hops"]))
    assert sum(len(each.messages) for each in found) == messages
    assert sum(len(each.rejects) for each in found) == rejects


def test_what_passes_a_filter_is_as_without_it(capture: Capture) -> None:
    everything = [row for each in Query().read(capture) for row in each.messages.to_pylist()]
    wanted = Query(parse_filter("flow == flow-3 or flow == flow-7"))
    found = [row for each in wanted.read(capture) for row in each.messages.to_pylist()]
    assert found == [row for row in everything if row["correlation_key"] in ("flow-3", "flow-7")]


@pytest.mark.parametrize(
    ("since_ms", "until_ms", "messages"),
    [(None, None, 40), (500, None, 20), (None, 500, 20), (500, 600, 4), (501, 511, 2), (2000, None, 0), (900, 100, 0)],
)
def test_times(capture: Capture, since_ms: int | None, until_ms: int | None, messages: int) -> None:
    since, until = (None if ms is None else START + timedelta(milliseconds=ms) for ms in (since_ms, until_ms))
    found = [each.messages for each in Query(since=since, until=until).read(capture, ["event_id", "seen_ns"])]
    rows = [row for batch in found for row in batch.to_pylist()]
    assert len(rows) == messages
    everything = [row for each in Query().read(capture, ["event_id", "seen_ns"]) for row in each.messages.to_pylist()]
    assert [row for row in everything if row in rows] == rows


def test_the_unit_of_ttl_in_v3(tmp_path: Path) -> None:
    story = Story()
    message = request(callback_key=0, callback_receiver_node_identity=b"", ttl_ticks=50_000)
    story.see("old", "wire_in", message, 0, "v3")
    capture = story.write(tmp_path)
    for unit, ttl_ms in (("ms", 5.0), ("ticks", 0.0005)):
        (found,) = Query(parse_filter(f"ttl == {ttl_ms}"), v3_ttl=unit).read(capture, ["ttl_ms"])
        assert found.messages.to_pylist() == [{"ttl_ms": ttl_ms}]


def times(dump: Dump) -> list[int]:
    return [row["seen_ns"] for batch in dump for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("since", "until", "messages"),
    [("0001-01-01", "", 40), ("", "9999-12-31", 40), ("9999-12-31", "", 0), ("", "0001-01-01", 0)],
)
def test_times_beyond_64_bits(capture: Capture, since: str, until: str, messages: int) -> None:
    first, last = (read_time(text) if text else None for text in (since, until))
    assert sum(len(each.messages) for each in Query(since=first, until=last).read(capture)) == messages


def test_a_dump_is_in_the_order_of_time(capture: Capture) -> None:
    dump = Dump(capture, Query())
    found = times(dump)
    assert found == sorted(found)
    assert (len(found), dump.rejected) == (40, 2)


def test_a_dump_in_the_order_of_the_files(capture: Capture) -> None:
    dump = Dump(capture, Query(), ["node_key", "seen_ns"], order="file")
    rows = [row for batch in dump for row in batch.to_pylist()]
    assert [row["node_key"] for row in rows] == ["client"] * 20 + ["server"] * 20


@pytest.mark.parametrize("order", ["time", "file"])
@pytest.mark.parametrize("limit", [1, 7, 39, 40, 41])
def test_a_limit(capture: Capture, order: str, limit: int) -> None:
    everything = times(Dump(capture, Query(), order=order))
    assert times(Dump(capture, Query(), order=order, limit=limit)) == everything[:limit]


def test_a_limit_of_what_passes_a_filter(capture: Capture) -> None:
    query = Query(parse_filter("identity == ORDERED"))
    assert times(Dump(capture, query, limit=3)) == times(Dump(capture, query))[:3]


def test_equal_times_stay_in_the_order_of_the_files(tmp_path: Path) -> None:
    story = Story()
    for number in range(9):
        story.see("ab"[number % 2], "hub_out", request(flow=b"%d" % number), number // 3)
    capture = story.write(tmp_path)
    in_files = [row for batch in Dump(capture, Query(), ["seen_ns", "event_id"], order="file") for row in batch.to_pylist()]
    expected = sorted(in_files, key=lambda row: row["seen_ns"])
    for limit in (None, 2, 4):
        rows = [row for batch in Dump(capture, Query(), ["seen_ns", "event_id"], limit=limit) for row in batch.to_pylist()]
        assert rows == expected[:limit]


def test_what_passes_a_filter_is_decoded_some_thousand_at_a_time(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    for rows_at_once in (1, 4096):
        monkeypatch.setattr(module, "_ROWS_AT_ONCE", rows_at_once)
        found = [len(each.messages) for each in Query(parse_filter("hops == 1")).read(capture, ["hops"])]
        assert sum(found) == 40
        sizes.append(len(found))
    assert sizes[1] == 2  # one a segment, never over two of them


def test_an_empty_capture(tmp_path: Path) -> None:
    empty = open_capture(str(tmp_path))
    assert list(Dump(empty, Query())) == list(Dump(empty, Query(), order="file")) == []


def test_a_filter_that_looks_at_nothing(capture: Capture) -> None:
    assert sum(len(each.messages) for each in Query(Not(And(()))).read(capture, ["hops"])) == 0


def test_a_time_as_nanoseconds() -> None:
    assert ns_of(START) == START_NS
