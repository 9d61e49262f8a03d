"""Reading segments: whole, open, torn, damaged, hostile."""

import json
import struct
from pathlib import Path

import pyarrow as pa
import pytest

from hopline.capture.folder import open_folder
from hopline.capture.reading import Reading
from hopline.capture.record import RECORD_SCHEMA
from hopline.capture.segment import VERSION, SegmentWriter, list_segments
from hopline.capture.stream import END, METADATA_KEY, write_batch, write_schema
from tests.unit.capture.world import START_NS, head, make_segment, records


def read(path: Path, *columns: str, **options: object) -> tuple[Reading, list[tuple[int, pa.RecordBatch]]]:
    (segment,) = list_segments(open_folder(str(path.parent)))
    reading = Reading(segment, list(columns) or None, **options)
    return reading, list(reading)


every_place = pytest.mark.parametrize("step", [23, pytest.param(1, marks=pytest.mark.slow)])
"""Each 23rd byte, which meets every part of every message; at leisure, each."""


def seqs(batches: list[tuple[int, pa.RecordBatch]]) -> list[int]:
    return [seq for _, batch in batches for seq in batch["seq"].to_pylist()]


def codes(reading: Reading) -> list[str]:
    return [problem.code for problem in reading.problems]


def test_all_of_a_sealed_segment_is_read(tmp_path: Path) -> None:
    path = make_segment(tmp_path, [records(1, 3), records(4, 2)], lost={"scaleout_in": 7})
    reading, batches = read(path)
    assert [(row, batch.num_rows) for row, batch in batches] == [(0, 5)]
    assert batches[0][1].schema.equals(RECORD_SCHEMA, check_metadata=True)
    assert batches[0][1].to_pylist() == records(1, 5).to_batch().to_pylist()
    assert (reading.rows, reading.lost, reading.problems, reading.is_in_order) == (5, {"scaleout_in": 7}, [], True)
    assert (reading.min_ns, reading.max_ns) == (START_NS + 1000, START_NS + 5000)
    assert reading.head.owner == "N1"
    assert (reading.seal.rows, reading.seal.reason) == (5, "closed")


def test_some_columns_are_read_in_the_order_asked_for(tmp_path: Path) -> None:
    path = make_segment(tmp_path, [records(1, 2)])
    _, batches = read(path, "tap", "seen_ns")
    assert batches[0][1].to_pydict() == {"tap": ["scaleout_in"] * 2, "seen_ns": [START_NS + 1000, START_NS + 2000]}


@pytest.mark.parametrize("columns", [["nothing"], ["tap", "tap"], []])
def test_columns_must_be_known(columns: list[str], tmp_path: Path) -> None:
    make_segment(tmp_path, [])
    (segment,) = list_segments(open_folder(str(tmp_path)))
    with pytest.raises(ValueError, match="columns must name"):
        Reading(segment, columns)


def test_small_batches_are_put_together_and_large_ones_are_not(tmp_path: Path) -> None:
    path = make_segment(
        tmp_path, [records(1, 4000), records(4001, 90), records(4091, 7), records(4098, 5000), records(9098, 1)]
    )
    _, batches = read(path, "seq")
    assert [(row, batch.num_rows) for row, batch in batches] == [(0, 4090), (4090, 7), (4097, 5000), (9097, 1)]
    assert seqs(batches) == list(range(1, 9099))


def test_batches_that_are_large_in_memory_are_not_put_together(tmp_path: Path) -> None:
    path = make_segment(tmp_path, [records(number, 10, body=bytes(1_500_000)) for number in (1, 11, 21)])
    assert path.stat().st_size < 100_000
    _, batches = read(path)
    assert [(row, batch.num_rows) for row, batch in batches] == [(0, 20), (20, 10)]


def test_how_many_are_put_together_can_be_said(tmp_path: Path) -> None:
    path = make_segment(tmp_path, [records(1, 2), records(3, 2), records(5, 2)])
    _, batches = read(path, most_rows=1)
    assert [(row, batch.num_rows) for row, batch in batches] == [(0, 2), (2, 2), (4, 2)]


def test_a_look_tells_the_facts_and_decodes_nothing(tmp_path: Path) -> None:
    path = make_segment(tmp_path, [records(1, 3)], lost={"hub_in": 1})
    reading, batches = read(path, facts_only=True)
    assert batches == []
    assert (reading.rows, reading.lost, reading.seal.rows, reading.problems) == (3, {"hub_in": 1}, 3, [])


def test_records_out_of_order_are_noticed(tmp_path: Path) -> None:
    within = records(1, 3)
    within.seen_ns = [5, 4, 6]
    for number, batches in enumerate([[within], [records(10, 2), records(1, 2)]], 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        reading, _ = read(make_segment(folder, batches))
        assert not reading.is_in_order


# Open segments.


def test_an_open_segment_is_read_while_it_is_written(tmp_path: Path) -> None:
    writer = SegmentWriter(open_folder(str(tmp_path)), head(), "zstd")
    path = tmp_path / (writer.name + ".open")
    for last in (2, 4, 6):
        writer.write(records(last - 1, 2).to_batch())
        reading, batches = read(path)
        assert seqs(batches) == list(range(1, last + 1))
        assert (reading.is_being_written, reading.problems, reading.seal) == (True, [], None)
    writer.discard()


def test_half_a_batch_of_a_living_writer_is_no_problem(tmp_path: Path) -> None:
    writer = SegmentWriter(open_folder(str(tmp_path)), head(), "zstd")
    writer.write(records(1, 2).to_batch())
    path = tmp_path / (writer.name + ".open")
    with path.open("ab") as file:
        file.write(b"\xff\xff\xff\xff\x00\x01")
    reading, batches = read(path)
    assert (seqs(batches), reading.problems, reading.is_torn) == ([1, 2], [], False)
    writer.discard()


@every_place
def test_torn_anywhere_it_reads_to_its_last_whole_batch(step: int, tmp_path: Path) -> None:
    path = make_segment(tmp_path, [records(1, 2), records(3, 1), records(4, 3)], seal=None)
    data = path.read_bytes()
    _, batches = read(path, most_rows=1)
    starts = [data.index(b"\xff\xff\xff\xff", 0)]
    while (place := data.find(b"\xff\xff\xff\xff", starts[-1] + 1)) >= 0:
        starts.append(place)
    assert len(starts) == 4, "a schema and three batches"
    ends = [*starts[1:], len(data)]
    for size in {0, *ends, *range(1, len(data), step)}:
        path.write_bytes(data[:size])
        reading, batches = read(path)
        whole = sum(end <= size for end in ends[1:])
        assert seqs(batches) == list(range(1, [0, 2, 3, 6][whole] + 1))
        if size in (0, *ends):
            assert (reading.is_torn, reading.problems) == (False, [])
        else:
            start = max([0, *(end for end in ends if end < size)])
            assert (reading.is_torn, codes(reading)) == (True, ["CAPTURE_TORN"])
            assert reading.problems[0].position == start


def test_a_tail_of_zeros_as_a_power_cut_leaves_it_is_torn(tmp_path: Path) -> None:
    path = make_segment(tmp_path, [records(1, 2), records(3, 2)], seal=None)
    data = path.read_bytes()
    last = data.rindex(b"\xff\xff\xff\xff")
    for zeros_from in (last, last + 100, last + 800):
        path.write_bytes(data[:zeros_from] + bytes(len(data) - zeros_from))
        reading, batches = read(path)
        assert (seqs(batches), codes(reading)) == ([1, 2], ["CAPTURE_TORN"])


def test_one_that_was_sealed_since_the_folder_was_listed_is_found(tmp_path: Path) -> None:
    path = make_segment(tmp_path, [records(1, 2)])
    path.rename(path.with_suffix(".open"))
    (segment,) = list_segments(open_folder(str(tmp_path)))
    path.with_suffix(".open").rename(path)
    reading = Reading(segment)
    assert (seqs(list(reading)), reading.problems) == ([1, 2], [])
    assert reading.segment.is_sealed


@pytest.mark.parametrize("seal", ["closed", None])
def test_one_that_is_gone_is_said(seal: str | None, tmp_path: Path) -> None:
    path = make_segment(tmp_path, [records(1, 2)], seal=seal)
    (segment,) = list_segments(open_folder(str(tmp_path)))
    path.unlink()
    reading = Reading(segment)
    assert (list(reading), codes(reading)) == ([], ["CAPTURE_NOT_FOUND"])


# Damage.


@every_place
def test_a_changed_byte_anywhere_in_a_sealed_segment_is_found(step: int, tmp_path: Path) -> None:
    path = make_segment(tmp_path, [records(1, 2), records(3, 1)])
    data = path.read_bytes()
    for place in range(0, len(data), step):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
        reading, batches = read(path)
        assert "CAPTURE_DAMAGED" in codes(reading), place
        assert seqs(batches) in ([], [1, 2], [3], [1, 2, 3]), "nothing that was not written"


def test_a_damaged_batch_is_left_out_and_rows_keep_their_numbers(tmp_path: Path) -> None:
    path = make_segment(tmp_path, [records(1, 2), records(3, 2), records(5, 2)])
    data = bytearray(path.read_bytes())
    starts = [place for place in range(len(data)) if data.startswith(b"\xff\xff\xff\xff", place)]
    data[starts[3] - 1] ^= 1  # the last byte of the second batch
    path.write_bytes(data)
    reading, batches = read(path)
    assert [(row, batch["seq"].to_pylist()) for row, batch in batches] == [(0, [1, 2]), (4, [5, 6])]
    assert [(problem.code, problem.position) for problem in reading.problems] == [("CAPTURE_DAMAGED", starts[2])]


def test_damage_inside_an_open_segment_is_not_called_torn(tmp_path: Path) -> None:
    path = make_segment(tmp_path, [records(1, 2), records(3, 2)], seal=None)
    data = bytearray(path.read_bytes())
    data[data.rindex(b"\xff\xff\xff\xff") - 1] ^= 1
    path.write_bytes(data)
    reading, batches = read(path)
    assert (seqs(batches), codes(reading), reading.is_torn) == ([3, 4], ["CAPTURE_DAMAGED"], False)


@every_place
def test_a_sealed_segment_that_was_cut_is_damaged_wherever(step: int, tmp_path: Path) -> None:
    path = make_segment(tmp_path, [records(1, 2)])
    data = path.read_bytes()
    for size in range(0, len(data), step):
        path.write_bytes(data[:size])
        reading, _ = read(path)
        assert codes(reading) == ["CAPTURE_DAMAGED"], size


def test_a_batch_that_was_taken_out_is_missed(tmp_path: Path) -> None:
    path = make_segment(tmp_path, [records(1, 2), records(3, 2)])
    data = path.read_bytes()
    starts = [place for place in range(len(data)) if data.startswith(b"\xff\xff\xff\xff", place)]
    path.write_bytes(data[: starts[1]] + data[starts[2] :])
    reading, _ = read(path)
    assert (codes(reading), "4 rows, and 2" in reading.problems[0].reason) == (["CAPTURE_DAMAGED"], True)


@pytest.mark.parametrize("junk", [b"", b"junk", bytes(1000), b"\xff" * 1000, b"ARROW1\0\0" + bytes(64)])
def test_junk_with_the_name_of_a_segment_is_damaged(junk: bytes, tmp_path: Path) -> None:
    path = tmp_path / "20261115T231501123456Z-N1-0123abcd-000001.arrows"
    path.write_bytes(junk)
    reading, batches = read(path)
    assert (batches, codes(reading), reading.head) == ([], ["CAPTURE_DAMAGED"], None)


# Forgery: right checksums, wrong contents.


def forge(path: Path, schema_facts: dict, batch: pa.RecordBatch, facts: dict, schema: pa.Schema | None = None) -> Path:
    file = path / "20261115T231501123456Z-N1-0123abcd-000001.arrows"
    pieces = [*write_schema(schema or batch.schema, schema_facts), *write_batch(batch, facts, "none"), END]
    file.write_bytes(b"".join(pieces))
    return file


GOOD_HEAD = {"version": VERSION, "owner": "N1", "run": "0123abcd", "number": 1}


def test_a_later_format_is_refused(tmp_path: Path) -> None:
    path = forge(tmp_path, GOOD_HEAD | {"version": VERSION + 1}, records(1, 1).to_batch(), {"rows": 1})
    reading, batches = read(path)
    assert (batches, codes(reading)) == ([], ["CAPTURE_CANNOT_READ"])
    assert "later" in reading.problems[0].reason


@pytest.mark.parametrize("facts", [{"owner": 5}, {}, {"owner": "N1", "run": "r", "number": "one"}])
def test_a_head_that_says_nothing_sensible_is_damage(facts: dict, tmp_path: Path) -> None:
    reading, batches = read(forge(tmp_path, facts, records(1, 1).to_batch(), {"rows": 1}))
    assert (batches, codes(reading)) == ([], ["CAPTURE_DAMAGED"])


def test_other_columns_are_damage(tmp_path: Path) -> None:
    path = forge(tmp_path, GOOD_HEAD, pa.record_batch({"n": [1]}), {"rows": 1})
    reading, batches = read(path)
    assert (batches, codes(reading)) == ([], ["CAPTURE_DAMAGED"])


def test_columns_that_a_later_writer_added_are_skipped(tmp_path: Path) -> None:
    batch = records(1, 2).to_batch().append_column("more", pa.array(["a", "b"]))
    reading, batches = read(forge(tmp_path, GOOD_HEAD, batch, {"rows": 2}))
    assert batches[0][1].equals(records(1, 2).to_batch())
    assert "its end is missing" in reading.problems[0].reason, "only that was forged"


@pytest.mark.parametrize("facts", [{"rows": 2}, {"rows": "many"}, {"rows": -1}, {"rows": 1, "lost": {"hub_in": "all"}}])
def test_facts_of_a_batch_that_are_not_true_are_damage(facts: dict, tmp_path: Path) -> None:
    reading, batches = read(forge(tmp_path, GOOD_HEAD, records(1, 1).to_batch(), facts))
    assert (batches, codes(reading)[0]) == ([], "CAPTURE_DAMAGED")


def test_offsets_that_point_outside_end_neither_the_process_nor_the_reading(tmp_path: Path) -> None:
    good = records(1, 1).to_batch()
    wild = pa.Array.from_buffers(pa.binary(), 2, [None, pa.py_buffer(struct.pack("<3i", 0, 2**30, 1)), pa.py_buffer(b"x")])
    lists = pa.ListArray.from_buffers(
        pa.list_(pa.binary()), 1, [None, pa.py_buffer(struct.pack("<2i", 0, 2))], children=[wild]
    )
    columns = [*good.columns[:-1], lists]
    forged = pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
    reading, batches = read(forge(tmp_path, GOOD_HEAD, forged, {"rows": 1}))
    assert (batches, codes(reading)) == ([], ["CAPTURE_DAMAGED"])


def test_a_record_that_does_not_say_when_is_damage(tmp_path: Path) -> None:
    good = records(1, 2).to_batch()
    forged = pa.RecordBatch.from_arrays([pa.array([1, None], pa.int64()), *good.columns[1:]], schema=RECORD_SCHEMA)
    reading, batches = read(forge(tmp_path, GOOD_HEAD, forged, {"rows": 2}))
    assert (batches, codes(reading)) == ([], ["CAPTURE_DAMAGED"])
    assert "seen_ns" in reading.problems[0].reason


def test_the_schema_of_another_stream_does_not_pass(tmp_path: Path) -> None:
    path = make_segment(tmp_path, [records(1, 1)])
    facts = json.loads(pa.ipc.open_stream(path.read_bytes()).schema.metadata[METADATA_KEY.encode()])
    assert facts["owner"] == "N1"
    assert len(facts["crc32"]) == 8
