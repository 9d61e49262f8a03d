"""Counts: as many as there are, also by an independent count of the JSON lines."""

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hopline.capture.filter import parse_filter
from hopline.capture.jsonl import Import
from hopline.capture.query import Query
from hopline.capture.stats import FormatCount, TypeCount, count
from hopline.capture.store import open_capture
from hopline.wire import Message, decode
from tests.unit.capture.story import START_NS, Story, request

CAPTURES = Path(__file__).resolve().parents[4] / "shared" / "captures"


def some_messages() -> Story:
    story = Story()
    story.ask(b"one", 0)
    story.ask(b"two", 100, answer=None)
    story.see("old", "wire_in", Message(identity=b"OLD", version=b"latest", correlation_id=b"c"), 200, "v3")
    story.see("server", "wire_in", Message(identity=b"KINO.PING", version=1, domain="d"), 300, "v5")
    story.see("server", "wire_in", [b"junk"], 400)
    return story


def test_counts(tmp_path: Path) -> None:
    found = count(some_messages().write(tmp_path), Query())
    assert (found.sightings, found.rejected, found.body_bytes) == (9, 1, 16)
    assert (found.first_ns, found.last_ns) == (START_NS, START_NS + 300_000_000)
    assert found.types == [
        TypeCount("ORDER", 1, False, 4, 16),
        TypeCount("ORDERED", 1, False, 2, 0),
        TypeCount("KINO.PING", 1, True, 1, 0),
        TypeCount("OLD", "latest", False, 1, 0),
    ]
    assert found.nodes == {"server": 5, "client": 3, "old": 1}
    assert found.taps == {"scaleout_in": 3, "scaleout_out": 3, "wire_in": 3}
    assert found.formats == [FormatCount("v6", "", 6), FormatCount("v3", "", 1), FormatCount("v5", "int32-stamp", 1)]
    assert found.domains == {"": 7, "d": 1}
    assert found.errors == {"WIRE_UNKNOWN_FORMAT": 1}
    assert list(found.nodes) == ["server", "client", "old"]  # the most frequent first


def test_a_filter_and_times(tmp_path: Path) -> None:
    capture = some_messages().write(tmp_path)
    found = count(capture, Query(parse_filter("identity == ORDER")))
    assert (found.sightings, found.rejected, found.nodes) == (4, 0, {"client": 2, "server": 2})
    later = count(capture, Query(since=datetime(2026, 11, 16, 0, 0, 0, 300_000, UTC)))
    assert (later.sightings, later.rejected) == (2, 1)


def test_a_body_that_was_not_kept_counts_as_it_was(tmp_path: Path) -> None:
    story = Story()
    story.see("n", "hub_out", request(body=b""), 0, body_kept="none", body_size=500)
    assert count(story.write(tmp_path), Query()).body_bytes == 500


def test_sizes_that_no_body_has_do_not_make_others_negative(tmp_path: Path) -> None:
    story = Story()
    for at_ms in range(2):
        story.see("n", "hub_out", request(body=b""), at_ms, body_kept="none", body_size=2**62)
    found = count(story.write(tmp_path), Query())
    assert (found.body_bytes, [each.body_bytes for each in found.types]) == (2**63, [2**63])


def test_nothing(tmp_path: Path) -> None:
    found = count(open_capture(str(tmp_path)), Query())
    assert (found.sightings, found.rejected, found.first_ns, found.last_ns, found.types, found.nodes) == (
        0,
        0,
        None,
        None,
        [],
        {},
    )


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="reference captures are not part of the project")
def test_counts_of_the_reference_captures_taken_from_their_lines(tmp_path: Path) -> None:
    files = sorted(CAPTURES.glob("*.jsonl"))
    with Import(str(tmp_path)) as target:
        for file in files:
            target.add(file)
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    decoded = [decode([bytes.fromhex(frame) for frame in line["frames"]]) for line in lines]
    found = count(open_capture(str(tmp_path)), Query())
    assert (found.sightings, found.rejected, found.errors) == (len(lines), 0, {})
    assert found.nodes == Counter(line["node"] for line in lines)
    assert found.taps == Counter(f"wire_{line['direction']}" for line in lines)
    types = Counter((each.message.identity.decode(), each.message.version) for each in decoded)
    assert {(each.identity, each.version): each.sightings for each in found.types} == types
    formats = Counter((each.format, each.variant) for each in decoded)
    assert {(each.format, each.variant): each.sightings for each in found.formats} == formats
    assert found.domains == Counter(each.message.domain for each in decoded)
    assert found.body_bytes == sum(len(each.message.body) for each in decoded)
    assert (found.first_ns, found.last_ns) == (min(s := [line["seen_ns"] for line in lines]), max(s))
