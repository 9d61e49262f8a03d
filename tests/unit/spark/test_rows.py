"""Rows of a capture without Spark: what is decoded together, what is filtered when, and what is said of damage."""

import logging
from pathlib import Path

import pyarrow as pa
import pytest

from hopline.capture import open_capture
from hopline.capture.filter import parse_filter
from hopline.capture.messages import sightings
from hopline.capture.predicate import mask
from hopline.capture.record import Records
from hopline.capture.tables import MESSAGES, REJECTS
from hopline.errors import CaptureError
from hopline.spark import rows as rows_module
from hopline.spark.options import read_options
from hopline.spark.pieces import Share, Stretch, shares
from hopline.spark.rows import Rows
from tests.unit.capture.world import START_NS, make_segment, records

JUNK = Records(
    seen_ns=[START_NS + 500, START_NS + 3500],
    seq=[1, 2],
    tap=["hub_in", "wire_in"],
    frames=[[b"junk"], [b"", b"more"]],
    node="N1",
)


def read(path: Path, **given: str) -> pa.Table:
    options = read_options({"path": str(path), **given})
    found = [Stretch(segment, 0, segment.size) for segment in open_capture(str(path)).segments()]
    reader = Rows(options, options.schema)
    schema = pa.schema([options.table.field(name) for name in options.columns])
    batches = [batch for share in shares(found, options.share_bytes) for batch in reader.read(share)]
    return pa.Table.from_batches(batches, schema)


def expected(path: Path, *, columns=None, where: str = "", mode: str = "messages") -> pa.Table:
    of = parse_filter(where)
    found = []
    for segment, first_row, batch in open_capture(str(path)).batches():
        each = sightings(batch, segment=segment.name, first_row=first_row, columns=MESSAGES.names)
        table = each.messages if mode == "messages" else each.rejects
        found.append(table.filter(mask(of, table)).select(columns or table.schema.names))
    return pa.Table.from_batches(found)


@pytest.fixture
def capture(tmp_path):
    """Many small segments, with something in each that is no message."""
    for number in range(1, 31):
        taps = ("scaleout_in", "hub_out", "actor_in")
        batches = [records(1, number % 4, tap=taps[number % 3])] if number % 4 else []
        make_segment(tmp_path, [*batches, JUNK, records(5, 2)], number=number, owner=f"N{number % 2}")
    return tmp_path


@pytest.mark.parametrize("columns", [list(MESSAGES.names), ["hops"], ["seq", "event_id"]])
def test_segments_that_are_decoded_together_are_still_told_apart(capture, columns):
    assert read(capture, columns=",".join(columns)).equals(expected(capture, columns=columns))


@pytest.mark.parametrize(
    ("given", "is_all"),
    [
        ({"since": "0001-01-01"}, True),
        ({"until": "9999-12-31"}, True),
        ({"since": "9999-12-31"}, False),
        ({"until": "0001-01-01"}, False),
        ({"until": "9" * 30}, True),
        ({"where": "time < 9999-12-31T00:00:00Z"}, True),
        ({"where": "date < 9999-12-31 and date >= 0001-01-01"}, True),
        ({"where": "seen_ns > 9223372036854775807"}, False),
    ],
)
def test_times_beyond_64_bits(capture, given, is_all):
    rows = read(capture, columns="seq").num_rows
    assert read(capture, columns="seq", **given).num_rows == (rows if is_all else 0)


def test_rejects_of_segments_that_are_decoded_together(capture):
    found = read(capture, mode="rejects")
    assert found.num_rows == 60
    assert found.equals(expected(capture, mode="rejects"))


@pytest.mark.parametrize(
    "where",
    [
        "seq > 1",
        "tap == hub_out",
        "hops == 0 and seq > 1 and identity == HELLO",
        "tap == hub_out or seq == 5",
        "not tap == hub_out",
        "event_id ~ *:2",
        "body_size == 2 and node == N1",
        "time > 2026-11-15T23:15:01.123462Z",
        "direction == in",
    ],
)
def test_a_filter_gives_the_same_rows_wherever_it_is_asked(capture, where):
    assert read(capture, where=where, columns="event_id").equals(expected(capture, where=where, columns=["event_id"]))
    assert read(capture, where=where, mode="rejects").equals(expected(capture, where=where, mode="rejects"))


def test_large_records_are_decoded_in_parts(tmp_path, monkeypatch):
    make_segment(tmp_path, [records(1, 40, body=bytes(1000))])
    monkeypatch.setattr(rows_module, "_BYTES_AT_ONCE", 4000)
    options = read_options({"path": str(tmp_path), "columns": "seq,body"})
    found = [Stretch(segment, 0, segment.size) for segment in open_capture(str(tmp_path)).segments()]
    (share,) = shares(found, options.share_bytes)
    batches = list(Rows(options, options.schema).read(share))
    assert len(batches) > 5
    assert [seq for batch in batches for seq in batch["seq"].to_pylist()] == list(range(1, 41))


def test_what_is_damaged_is_a_row_of_the_rejects_and_in_the_log(tmp_path, caplog):
    good = make_segment(tmp_path, [records(1, 3)], number=2)
    name = "20261115T231501123456Z-N1-0123abcd-000001"
    (tmp_path / f"{name}.arrows").write_bytes(b"garbage" * 100)
    with caplog.at_level(logging.WARNING):
        assert read(tmp_path, columns="event_id")["event_id"].to_pylist() == [f"{good.stem}:{row}" for row in range(3)]
    assert f"CAPTURE_DAMAGED in segment {name}" in caplog.text
    (row,) = read(tmp_path, mode="rejects").to_pylist()
    assert set(row) == set(REJECTS.names)
    assert (row["event_id"], row["code"], row["node_key"]) == (f"{name}@0", "CAPTURE_DAMAGED", "N1")
    assert (row["seen_at"].isoformat(), str(row["date"])) == ("2026-11-15T23:15:01.123456+00:00", "2026-11-15")


def test_what_was_deleted_is_in_the_log_only(tmp_path, caplog):
    file = make_segment(tmp_path, [records(1, 3)])
    options = read_options({"path": str(tmp_path), "mode": "rejects"})
    found = [Stretch(segment, 0, segment.size) for segment in open_capture(str(tmp_path)).segments()]
    file.unlink()
    with caplog.at_level(logging.WARNING):
        assert [list(Rows(options, options.schema).read(share)) for share in shares(found, 1 << 30)] == [[]]
    assert "CAPTURE_NOT_FOUND" in caplog.text


def test_an_executor_without_the_capture_says_so(tmp_path):
    options = read_options({"path": str(tmp_path / "none")})
    reader = Rows(options, options.schema)
    assert list(reader.read(Share(()))) == []
    make_segment(tmp_path, [records(1, 1)])
    found = [Stretch(segment, 0, segment.size) for segment in open_capture(str(tmp_path)).segments()]
    with pytest.raises(CaptureError) as raised:
        list(reader.read(shares(found, 1000)[0]))
    assert raised.value.code == "CAPTURE_NOT_FOUND"
