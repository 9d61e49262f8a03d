"""A capture read as one, and its check."""

import re
from collections import Counter
from pathlib import Path

import pyarrow.fs as pa_fs
import pytest

from hopline.capture.jsonl import Import, export_lines
from hopline.capture.reading import Problem
from hopline.capture.record import Records
from hopline.capture.store import Capture, open_capture
from hopline.capture.writer import CaptureWriter, Limits
from hopline.errors import CODES, CaptureError
from tests.unit.capture.world import START_NS, Clock, Disk, make_segment, records


def seqs(capture: Capture) -> list[int]:
    return [seq for _, _, batch in capture.batches(columns=["seq"]) for seq in batch["seq"].to_pylist()]


def codes(problems: list[Problem]) -> list[str]:
    assert {problem.code for problem in problems} <= CODES.keys()
    return [problem.code for problem in problems]


# Reading.


def test_segments_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    for number in (3, 1, 2):
        make_segment(tmp_path, [records(10 * number, 2)], number=number, started_ns=START_NS + 10**9 * number)
    capture = open_capture(str(tmp_path))
    assert seqs(capture) == [10, 11, 20, 21, 30, 31]
    assert [segment.number for segment in capture.segments()] == [1, 2, 3]
    assert [(segment.number, row) for segment, row, _ in capture.batches()] == [(1, 0), (2, 0), (3, 0)]


def test_an_empty_folder_is_an_empty_capture(tmp_path: Path) -> None:
    capture = open_capture(str(tmp_path))
    assert (capture.segments(), list(capture.batches()), capture.check().is_good) == ([], [], True)


def test_what_is_no_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "nothing", tmp_path / "file"):
        with pytest.raises(CaptureError, match="no folder") as caught:
            open_capture(str(path))
        assert caught.value.code == "CAPTURE_NOT_FOUND"


def test_json_lines_that_were_not_imported_are_no_capture(tmp_path: Path) -> None:
    folder = tmp_path / "two words"
    folder.mkdir()
    (folder / "notes.txt").write_text("")
    capture = open_capture(str(folder))
    assert capture.segments() == [], "something else may lie there: a capture may be about to begin"
    (folder / "client.jsonl").write_text("")
    for look in (capture.segments, lambda: list(capture.batches()), lambda: export_lines(capture), capture.check):
        with pytest.raises(CaptureError, match="is no capture, but has JSON lines") as caught:
            look()
        assert caught.value.code == "CAPTURE_NOT_FOUND"
        assert f"hopline capture import '{folder}'/*.jsonl CAPTURE" in str(caught.value)
    make_segment(folder, [records(1, 1)])
    assert seqs(capture) == [1]


def test_a_file_of_json_lines_is_no_capture(tmp_path: Path) -> None:
    (tmp_path / "client.jsonl").write_text("")
    with pytest.raises(CaptureError, match=f"no folder; type: hopline capture import {tmp_path}/client.jsonl CAPTURE"):
        open_capture(str(tmp_path / "client.jsonl"))


def test_a_segment_is_told_from_the_capture_that_it_is_in(tmp_path: Path) -> None:
    segment = make_segment(tmp_path, [records(1, 1)])
    with pytest.raises(CaptureError, match=r"no folder, but a segment of a capture\. Name the folder that it is in"):
        open_capture(str(segment))


def test_another_file_may_hold_json_lines(tmp_path: Path) -> None:
    (tmp_path / "client.log").write_text("")
    hint = f"no folder, but a file. If it holds JSON lines, type: hopline capture import {tmp_path}/client.log CAPTURE"
    with pytest.raises(CaptureError, match=re.escape(hint)):
        open_capture(str(tmp_path / "client.log"))


def test_json_lines_in_other_file_systems_are_no_capture_either(tmp_path: Path) -> None:
    (tmp_path / "client.jsonl").write_text("")
    subtree = pa_fs.SubTreeFileSystem(str(tmp_path), pa_fs.LocalFileSystem())
    with pytest.raises(CaptureError, match=r"hopline capture import FILES\.\.\. CAPTURE"):
        open_capture("", filesystem=subtree).segments()


def test_a_capture_beside_its_json_lines_stays_one_when_its_segments_are_deleted(tmp_path: Path) -> None:
    file = tmp_path / "client.jsonl"
    file.write_text('{"seen_ns":5,"node":"N1","direction":"in","frames":["4e32"]}\n')
    with Import(str(tmp_path)) as target:
        target.add(file)
    (segment,) = open_capture(str(tmp_path)).segments()
    Path(segment.path).unlink()  # to import it again would bring what was taken a second time
    assert open_capture(str(tmp_path)).segments() == []


def test_a_column_that_is_not_there_is_said(tmp_path: Path) -> None:
    make_segment(tmp_path, [records(1, 1)])
    with pytest.raises(ValueError, match="columns must name"):
        list(open_capture(str(tmp_path)).batches(columns=["color"]))


def test_it_reads_other_file_systems_and_uris(tmp_path: Path) -> None:
    make_segment(tmp_path, [records(1, 2)])
    subtree = pa_fs.SubTreeFileSystem(str(tmp_path.parent), pa_fs.LocalFileSystem())
    assert seqs(open_capture(tmp_path.name, filesystem=subtree)) == [1, 2]
    assert seqs(open_capture(f"file://{tmp_path}")) == [1, 2]


def test_what_cannot_be_read_is_left_out_and_said(tmp_path: Path) -> None:
    make_segment(tmp_path, [records(1, 1)], number=1)
    torn = make_segment(tmp_path, [records(2, 1), records(3, 1)], number=2, seal=None)
    torn.write_bytes(torn.read_bytes()[:-1])
    (tmp_path / "junk.arrows").write_bytes(b"garbage")
    make_segment(tmp_path, [records(4, 1)], number=3)
    capture = open_capture(str(tmp_path))
    assert seqs(capture) == [1, 2, 4]
    assert codes(capture.problems) == ["CAPTURE_TORN", "CAPTURE_DAMAGED"]
    assert capture.problems[1].segment == "junk"
    seqs(capture)
    assert len(capture.problems) == 2, "those of the last reading"


def test_a_segment_that_is_deleted_meanwhile_is_skipped_and_said(tmp_path: Path) -> None:
    paths = [make_segment(tmp_path, [records(number, 1)], number=number) for number in (1, 2, 3)]
    capture = open_capture(str(tmp_path))
    batches = capture.batches(columns=["seq"])
    assert next(batches)[2]["seq"].to_pylist() == [1]
    paths[1].unlink()
    assert [batch["seq"].to_pylist() for _, _, batch in batches] == [[3]]
    assert codes(capture.problems) == ["CAPTURE_NOT_FOUND"]


def test_a_disk_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    make_segment(tmp_path, [records(1, 1)])
    disk = Disk(tmp_path)
    disk.read_error = OSError(5, "Input/output error")
    capture = open_capture("", filesystem=disk.filesystem)
    assert list(capture.batches()) == []
    assert codes(capture.problems) == ["CAPTURE_CANNOT_READ"]
    assert capture.check().count("damaged") == 1


def test_a_link_that_leads_nowhere_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "20261115T231501123456Z-N1-0123abcd-000001.arrows").symlink_to(tmp_path / "nowhere")
    capture = open_capture(str(tmp_path))
    assert list(capture.batches()) == []


# Checking.


def states(capture: Capture) -> list[str]:
    return [segment.state for segment in capture.check().segments]


def test_a_closed_capture_is_good(tmp_path: Path) -> None:
    writer = CaptureWriter(str(tmp_path), owner=b"N1", limits=Limits(segment_bytes=1))
    writer.start()
    for first in (1, 3, 5):
        writer.write(records(first, 2))
    writer.close()
    report = open_capture(str(tmp_path)).check()
    assert (report.is_good, report.rows, report.count("whole")) == (True, 6, 4)
    (stream,) = report.streams
    assert (stream.owner, stream.run, stream.tap, stream.rows) == ("N1", writer.run, "scaleout_in", 6)
    assert (stream.first_seq, stream.last_seq, stream.missing, stream.lost) == (1, 6, 0, 0)


def test_being_written_is_told_from_left_open(tmp_path: Path) -> None:
    writer = CaptureWriter(str(tmp_path), owner=b"N1")
    writer.start()
    writer.write(records(1, 2))
    capture = open_capture(str(tmp_path))
    assert (states(capture), capture.check().is_good) == (["open"], True)
    writer.close()
    assert states(capture) == ["whole"]
    make_segment(tmp_path, [records(1, 1)], seal=None, owner="killed", run="deadbeef", started_ns=START_NS + 10**15)
    report = capture.check()
    assert [segment.state for segment in report.segments][-1] == "unclean"
    assert codes(report.problems) == ["CAPTURE_UNCLEAN"]
    assert "gone" in report.problems[0].reason


def test_an_empty_file_is_one_whose_writer_was_killed_at_once(tmp_path: Path) -> None:
    (tmp_path / "20261115T231501123456Z-N1-0123abcd-000001.open").write_bytes(b"")
    report = open_capture(str(tmp_path)).check()
    assert [segment.state for segment in report.segments] == ["unclean"]
    assert codes(report.problems) == ["CAPTURE_UNCLEAN"]


def test_where_nobody_can_tell_an_open_segment_is_open(tmp_path: Path) -> None:
    make_segment(tmp_path, [records(1, 1)], seal=None)
    capture = open_capture("", filesystem=Disk(tmp_path).filesystem)
    assert (states(capture), capture.check().is_good) == (["open"], True)


def test_a_torn_end_is_said_with_its_place(tmp_path: Path) -> None:
    path = make_segment(tmp_path, [records(1, 2), records(3, 2)], seal=None)
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    report = open_capture(str(tmp_path)).check()
    assert (report.count("torn"), report.rows) == (1, 2)
    assert codes(report.problems) == ["CAPTURE_TORN", "CAPTURE_UNCLEAN"]
    assert report.problems[0].position == data.rindex(b"\xff\xff\xff\xff")


def test_damage_is_said(tmp_path: Path) -> None:
    path = make_segment(tmp_path, [records(1, 2)])
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    report = open_capture(str(tmp_path)).check()
    assert report.count("damaged") == 1
    assert "CAPTURE_DAMAGED" in codes(report.problems)


def test_a_writer_that_was_killed_between_two_segments_did_not_end_well(tmp_path: Path) -> None:
    make_segment(tmp_path, [records(1, 2)], seal="rolled")
    report = open_capture(str(tmp_path)).check()
    assert codes(report.problems) == ["CAPTURE_UNCLEAN"]


def test_missing_numbers_are_gaps_within_and_between_segments(tmp_path: Path) -> None:
    make_segment(tmp_path, [records(1, 2), records(5, 1)], number=1, seal="rolled")
    make_segment(tmp_path, [records(10, 2)], number=2)
    report = open_capture(str(tmp_path)).check()
    (stream,) = report.streams
    assert (stream.gaps, stream.missing, stream.lost) == ([(3, 4), (6, 9)], 6, 0)
    assert codes(report.problems) == ["CAPTURE_GAP"]
    assert "6 messages are missing at scaleout_in of N1" in report.problems[0].reason


def test_taps_count_for_themselves(tmp_path: Path) -> None:
    mixed = Records(
        seen_ns=[1, 2, 3, 4],
        seq=[1, 1, 2, 3],
        tap=["hub_out", "scaleout_out", "hub_out", "scaleout_out"],
        frames=[[]] * 4,
        node="N1",
    )
    make_segment(tmp_path, [mixed])
    gaps = {stream.tap: stream.gaps for stream in open_capture(str(tmp_path)).check().streams}
    assert gaps == {"hub_out": [], "scaleout_out": [(2, 2)]}


def test_a_tap_that_lost_its_first_messages_has_a_gap_wherever_it_begins(tmp_path: Path) -> None:
    make_segment(tmp_path, [records(1, 2)], number=1, seal="rolled")
    make_segment(tmp_path, [records(4, 1, tap="hub_in"), records(3, 1)], number=2)
    gaps = {stream.tap: stream.gaps for stream in open_capture(str(tmp_path)).check().streams}
    assert gaps == {"hub_in": [(1, 3)], "scaleout_in": []}


def test_what_was_deleted_from_the_front_is_no_gap(tmp_path: Path) -> None:
    make_segment(tmp_path, [records(100, 2)], number=5)
    report = open_capture(str(tmp_path)).check()
    assert (report.is_good, report.streams[0].first_seq) == (True, 100)


def test_what_was_counted_as_lost_is_said_beside_what_is_missing(tmp_path: Path) -> None:
    writer = CaptureWriter(str(tmp_path), owner=b"N1")
    writer.start()
    writer.write(records(1, 1))
    writer.lose(Counter(scaleout_in=3))
    writer.write(records(5, 1))
    writer.lose(Counter(scaleout_in=2))
    writer.close()
    report = open_capture(str(tmp_path)).check()
    (stream,) = report.streams
    assert (stream.missing, stream.lost, stream.gaps) == (3, 5, [(2, 4)])
    assert codes(report.problems) == ["CAPTURE_GAP"]
    assert "counted 5 as lost" in report.problems[0].reason


def test_runs_and_owners_are_told_apart(tmp_path: Path) -> None:
    for owner, run in (("N1", "00000001"), ("N1", "00000002"), ("N2", "00000003")):
        make_segment(tmp_path, [records(1, 2)], owner=owner, run=run)
    report = open_capture(str(tmp_path)).check()
    assert report.is_good
    assert [(stream.owner, stream.run) for stream in report.streams] == [
        ("N1", "00000001"),
        ("N1", "00000002"),
        ("N2", "00000003"),
    ]


def test_a_copy_of_a_segment_is_noticed(tmp_path: Path) -> None:
    path = make_segment(tmp_path, [records(1, 2)])
    path.with_name(path.name.replace("000001", "000002")).write_bytes(path.read_bytes())
    report = open_capture(str(tmp_path)).check()
    assert codes(report.problems) == ["CAPTURE_DAMAGED"]
    assert "twice" in report.problems[0].reason


def in_this_order(*numbers: int, tap: str = "scaleout_in") -> Records:
    return Records(
        seen_ns=[START_NS] * len(numbers), seq=numbers, tap=[tap] * len(numbers), frames=[[]] * len(numbers), node="N1"
    )


def test_numbers_out_of_order_are_no_damage_within_and_between_segments(tmp_path: Path) -> None:
    make_segment(tmp_path, [in_this_order(2, 4, 6, 1, 3), in_this_order(9, 10)], number=1, seal="rolled")
    make_segment(tmp_path, [in_this_order(11, 7, 8), in_this_order(5)], number=2)
    report = open_capture(str(tmp_path)).check()
    (stream,) = report.streams
    assert (report.is_good, stream.rows, stream.first_seq, stream.last_seq) == (True, 11, 1, 11)


def test_among_numbers_out_of_order_gaps_are_found(tmp_path: Path) -> None:
    make_segment(tmp_path, [in_this_order(2, 5, 9, 1, 3)], number=1, seal="rolled")
    make_segment(tmp_path, [in_this_order(12, 8)], number=2)
    report = open_capture(str(tmp_path)).check()
    (stream,) = report.streams
    assert (stream.gaps, stream.missing, stream.rows) == ([(4, 4), (6, 7), (10, 11)], 5, 7)
    assert codes(report.problems) == ["CAPTURE_GAP"]


def test_among_numbers_out_of_order_those_that_are_there_twice_are_found(tmp_path: Path) -> None:
    make_segment(tmp_path, [in_this_order(2, 4, 4, 1), in_this_order(3, 1)])
    report = open_capture(str(tmp_path)).check()
    assert codes(report.problems) == ["CAPTURE_DAMAGED"]
    assert report.problems[0].reason.startswith("2 sequence numbers of scaleout_in were there before")
    (stream,) = report.streams
    assert (stream.rows, stream.missing) == (4, 0)


def test_what_was_deleted_from_the_front_is_no_gap_also_where_numbers_are_out_of_order(tmp_path: Path) -> None:
    make_segment(tmp_path, [in_this_order(100, 103, 102), in_this_order(97, 101)], number=5)
    report = open_capture(str(tmp_path)).check()
    assert (report.is_good, report.streams[0].first_seq, report.streams[0].rows) == (True, 100, 5)


def test_imported_lines_have_no_gaps(tmp_path: Path) -> None:
    make_segment(tmp_path, [records(5, 2), records(9, 1)], is_import=True, source="a.jsonl")
    report = open_capture(str(tmp_path)).check()
    assert (report.is_good, report.streams, report.segments[0].is_import) == (True, [], True)


def test_an_interrupted_import_is_said(tmp_path: Path) -> None:
    make_segment(tmp_path, [records(1, 2)], seal=None, is_import=True, source="a.jsonl")
    report = open_capture(str(tmp_path)).check()
    assert codes(report.problems) == ["CAPTURE_UNCLEAN"]
    assert "the import of a.jsonl was interrupted" in report.problems[0].reason


def test_a_segment_that_goes_while_it_is_checked_is_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_segment(tmp_path, [records(1, 2)])
    capture = open_capture(str(tmp_path))
    folder = capture.folder
    size_of = folder.size_of
    monkeypatch.setattr(folder, "size_of", lambda name: path.unlink() or size_of(name))
    report = capture.check()
    assert ([segment.state for segment in report.segments], report.is_good) == (["gone"], True)


def test_thousands_of_gaps_are_counted_but_not_all_listed(tmp_path: Path) -> None:
    odd = records(1, 1500)
    odd.seq = list(range(1, 3001, 2))
    make_segment(tmp_path, [odd])
    (stream,) = open_capture(str(tmp_path)).check().streams
    assert (stream.missing, len(stream.gaps)) == (1499, 1000)


def test_the_clock_of_a_test_does_not_matter_to_reading(tmp_path: Path) -> None:
    writer = CaptureWriter(str(tmp_path), owner=b"\x00\xff", wall_ns=Clock(0), mono_ns=Clock(0))
    writer.start()
    writer.write(records(1, 1))
    writer.close()
    (segment,) = open_capture(str(tmp_path)).segments()
    assert segment.name.startswith("19700101T000000000000Z-0x00ff-")
