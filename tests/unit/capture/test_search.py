"""Finding a flow: by its id, by how it begins, in every format, and never another one."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from hopline.capture import search
from hopline.capture.query import Query
from hopline.capture.search import find_flow, id_of, rows_with
from hopline.wire import Message
from tests.unit.capture.story import START_NS, Story, request

COLUMNS = ["event_id", "correlation_key", "identity_key"]


@pytest.mark.parametrize(
    ("text", "raw"),
    [("c1", b"c1"), ("0x00ff", b"\0\xff"), ("0xzz", b"0xzz"), ("0x0", b"0x0"), ("ö", "ö".encode()), ("\udcff", b"\xff")],
)
def test_ids_as_they_are_shown(text: str, raw: bytes) -> None:
    assert id_of(text) == raw


@pytest.mark.parametrize(
    ("wanted", "rows"),
    [(b"needle", [1, 4]), (b"ab", [2]), (b"nothing", []), (b"", None), (b"hay", None)],
)
def test_rows_that_may_hold_it(wanted: bytes, rows: list[int] | None) -> None:
    lists = pa.array(
        [
            [b"hay", b"", b"hay"],
            [b"needle needle", b"needle"],
            [b"a", b"b"],  # where one frame ends and the next begins: found, and then found out by decoding
            [b"hay"],
            [b"", b"a needle"],
            [b"hay"],
            [],
            [b"hay"],
        ]
    )
    found = rows_with(lists, wanted)
    assert (found if found is None else found.tolist()) == rows


def test_rows_of_a_slice() -> None:
    lists = pa.array([[b"needle"], [b"hay"], [b"needle"], [b"hay"], [b"hay"], [b"hay"]])
    found = rows_with(lists.slice(1), b"needle")
    assert found is not None
    assert found.tolist() == [1]


def story() -> Story:
    told = Story()
    for format in ("v3", "v4", "v5", "v6"):
        small = {"callback_key": 0, "callback_receiver_node_identity": b""} if format in ("v3", "v4") else {}
        told.see("n", "wire_out", request(flow=b"flow-" + format.encode(), **small), 0, format)
        told.see("m", "wire_in", request(flow=b"flow-" + format.encode(), **small), 1, format)
    told.see("n", "wire_out", request(flow=b"short"), 2)
    told.see("n", "wire_out", request(flow=b"short-and-longer"), 3)
    told.see("n", "wire_out", request(flow=b"other", body=b"flow-v6"), 4)
    told.see("n", "wire_out", request(flow=b"\xff\0odd"), 5)
    told.see("n", "wire_out", Message(identity=b"KINO.PING", correlation_id=b"0" * 8 + b"-0000-0000-0000-" + b"0" * 12), 6)
    told.see("n", "wire_out", [b"flow-v6 in what is no message"], 7)
    return told


@pytest.mark.parametrize(
    ("wanted", "sightings"),
    [
        (b"flow-v3", 2),
        (b"flow-v4", 2),
        (b"flow-v5", 2),
        (b"flow-v6", 2),
        (b"short", 1),
        (b"short-", 1),
        (b"\xff", 1),
        (b"o", 1),
    ],
)
def test_one_flow(tmp_path: Path, wanted: bytes, sightings: int) -> None:
    flow = find_flow(story().write(tmp_path), wanted, Query(), COLUMNS).flow
    assert flow is not None
    assert flow.correlation_id.startswith(wanted)
    rows = [row for batch in flow.messages for row in batch.to_pylist()]
    assert len(rows) == flow.sightings == sightings
    assert list(rows[0]) == COLUMNS


@pytest.mark.parametrize("wanted", [b"nothing", b"00000000", b"short-and-longer-still"])
def test_no_such_flow(tmp_path: Path, wanted: bytes) -> None:
    found = find_flow(story().write(tmp_path), wanted, Query(), COLUMNS)
    assert (found.flow, found.candidates) == (None, {})


def test_more_than_one_flow(tmp_path: Path) -> None:
    found = find_flow(story().write(tmp_path), b"flow", Query(), COLUMNS)
    assert found.flow is None
    assert found.candidates == {f"flow-{format}": 2 for format in ("v3", "v4", "v5", "v6")}


def test_the_exact_one_among_many_that_begin_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_CANDIDATES", 3)
    told = Story()
    for number in range(10):
        told.see("n", "hub_out", request(flow=b"c1%d" % number), number)
    told.see("n", "hub_out", request(flow=b"c1"), 20)
    capture = told.write(tmp_path)
    found = find_flow(capture, b"c1", Query(), COLUMNS)
    assert found.flow is not None
    assert (found.flow.correlation_id, len(found.candidates)) == (b"c1", 11)
    # Also of those of which no sightings are kept it is known how many there are.
    assert sum(find_flow(capture, b"c", Query(), COLUMNS).candidates.values()) == 11


def test_a_flow_without_end_is_kept_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_ROWS", 5)
    told = Story()
    for number in range(9):
        told.see("ab"[number % 2], "hub_out", request(flow=b"long"), number)
    flow = find_flow(told.write(tmp_path), b"long", Query(), COLUMNS).flow
    assert flow is not None
    assert (flow.sightings, flow.kept, sum(map(len, flow.messages))) == (9, 5, 5)


def test_within_a_time(tmp_path: Path) -> None:
    told = Story()
    for number in range(4):
        told.see("n", "hub_out", request(flow=b"f"), number)
    since = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=START_NS // 1000, milliseconds=2)
    flow = find_flow(told.write(tmp_path), b"f", Query(since=since), COLUMNS).flow
    assert flow is not None
    assert flow.sightings == 2
