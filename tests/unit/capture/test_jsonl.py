"""JSON lines in and out: once, grown, interrupted, broken."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from hopline.capture import jsonl
from hopline.capture.folder import open_folder
from hopline.capture.jsonl import Import, Imported, Rejected, export_lines
from hopline.capture.segment import OPEN, list_segments
from hopline.capture.store import open_capture
from hopline.capture.writer import CaptureWriter
from hopline.errors import CaptureError
from tests.unit.capture.world import START_NS, Disk, records

CAPTURES = Path(__file__).resolve().parents[4] / "shared" / "captures"
with_captures = pytest.mark.skipif(not CAPTURES.is_dir(), reason="the reference captures are not part of the project")


def line(number: int, **changes: object) -> dict[str, Any]:
    known = {"seen_ns": START_NS + number, "node": "N1", "direction": "in", "socket": "", "frames": [f"{number:04x}"]}
    return known | changes


def text(*numbers: int) -> str:
    return "".join(json.dumps(line(number)) + "\n" for number in numbers)


def write(path: Path, content: str | bytes, name: str = "a.jsonl") -> Path:
    file = path / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def imported(path: Path, *files: Path, **options: int) -> tuple[list[Imported], list[Rejected]]:
    rejected: list[Rejected] = []
    with Import(str(path / "captures"), **options) as target:
        return [target.add(file, rejected.append) for file in files], rejected


def exported(path: Path) -> list[dict[str, Any]]:
    capture = open_capture(str(path / "captures"))
    found = [json.loads(each) for each in export_lines(capture)]
    assert capture.problems == []
    return found


def segment_files(path: Path) -> list[str]:
    return sorted(file.name for file in (path / "captures").iterdir() if not file.name.startswith("."))


# Round trips.


@with_captures
def test_every_reference_capture_comes_out_as_it_was(tmp_path: Path) -> None:
    files = sorted(CAPTURES.glob("*.jsonl"))
    reports, rejected = imported(tmp_path, *files)
    assert rejected == []
    lines = [
        (json.loads(each)["seen_ns"], file.name, number, json.loads(each))
        for file in files
        for number, each in enumerate(file.read_text().splitlines(), 1)
    ]
    lines.sort(key=lambda each: each[:3])
    found = exported(tmp_path)
    assert found == [each[3] for each in lines]
    assert [list(each) for each in found] == [list(each[3]) for each in lines]
    assert sum(report.imported for report in reports) == len(lines)
    again, _ = imported(tmp_path, *files)
    assert [(report.imported, report.known) for report in again] == [(0, report.imported) for report in reports]
    assert open_capture(str(tmp_path / "captures")).check().is_good


def test_what_the_lines_say_is_in_the_columns(tmp_path: Path) -> None:
    lines = [line(1, direction="out", socket="s1"), line(2, host="a")]
    del lines[1]["socket"]
    imported(tmp_path, write(tmp_path, "\n" + json.dumps(lines[0]) + "\n  \n" + json.dumps(lines[1])))
    capture = open_capture(str(tmp_path / "captures"))
    first, second = [row for _, _, batch in capture.batches() for row in batch.to_pylist()]
    assert first == {
        "seen_ns": START_NS + 1,
        "mono_ns": None,
        "node": "N1",
        "tap": "wire_out",
        "direction": "out",
        "socket": "s1",
        "seq": 2,
        "encoded": True,
        "body_kept": "whole",
        "body_size": None,
        "source": "a.jsonl",
        "extra": None,
        "frames": [b"\x00\x01"],
    }
    assert (second["tap"], second["seq"], second["socket"], second["extra"]) == ("wire_in", 4, None, '{"host":"a"}')
    assert exported(tmp_path) == lines


def test_order_is_time_then_file_then_line(tmp_path: Path) -> None:
    late = json.dumps(line(9, seen_ns=START_NS)) + "\n"
    files = [write(tmp_path, text(5, 3) + late, "b.jsonl"), write(tmp_path, text(4) + late * 2, "a.jsonl")]
    imported(tmp_path, *files)
    assert [each["frames"] for each in exported(tmp_path)] == [["0009"]] * 3 + [["0003"], ["0004"], ["0005"]]


def test_a_live_capture_can_be_exported_too(tmp_path: Path) -> None:
    writer = CaptureWriter(str(tmp_path / "captures"), owner=b"N1")
    writer.start()
    writer.write(records(1, 2, tap="hub_out"))
    writer.close()
    found = exported(tmp_path)
    assert [list(each) for each in found] == [["seen_ns", "node", "direction", "frames"]] * 2
    assert [each["direction"] for each in found] == ["out", "out"]
    other = tmp_path / "other"
    other.mkdir()
    file = write(tmp_path, "".join(json.dumps(each) + "\n" for each in found))
    imported(other, file)
    assert exported(other) == found


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n"])
def test_the_last_line_needs_no_end(end: str, tmp_path: Path) -> None:
    imported(tmp_path, write(tmp_path, text(1, 2).rstrip() + end))
    assert exported(tmp_path) == [line(1), line(2)]


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    _, rejected = imported(tmp_path, write(tmp_path, b"\xef\xbb\xbf" + text(1).encode()))
    assert (rejected, exported(tmp_path)) == ([], [line(1)])


def test_an_empty_file_adds_nothing(tmp_path: Path) -> None:
    ((report,), _) = imported(tmp_path, write(tmp_path, ""))
    assert (report.imported, report.known, segment_files(tmp_path)) == (0, 0, [])


def test_any_time_will_do(tmp_path: Path) -> None:
    times = [-(2**63), -1, 0, 2**62, 2**63 - 1]
    for number, time in enumerate(times):
        imported(tmp_path, write(tmp_path, json.dumps(line(number, seen_ns=time)), f"{number}.jsonl"))
    assert [each["seen_ns"] for each in exported(tmp_path)] == times


def test_other_file_systems_will_do(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    file = write(tmp_path, text(1, 2))
    for expected in (2, 0):
        with Import("captures", filesystem=disk.filesystem) as target:
            assert target.add(file).imported == expected
    capture = open_capture("captures", filesystem=disk.filesystem)
    assert [json.loads(each) for each in export_lines(capture)] == [line(1), line(2)]


# The same file again, and grown.


def test_the_same_file_twice_adds_nothing(tmp_path: Path) -> None:
    file = write(tmp_path, text(1, 2, 3))
    imported(tmp_path, file)
    before = segment_files(tmp_path)
    copy = write(tmp_path, text(1, 2, 3), "copy.jsonl")
    (again, same), _ = imported(tmp_path, file, copy)
    assert (again.imported, again.known, again.has_grown) == (0, 3, False)
    assert (same.imported, same.known) == (0, 3)
    assert segment_files(tmp_path) == before


def test_the_same_file_twice_in_one_import_adds_nothing(tmp_path: Path) -> None:
    file = write(tmp_path, text(1, 2, 3))
    (first, second), _ = imported(tmp_path, file, file)
    assert (first.imported, second.imported, second.known) == (3, 0, 3)


def test_of_a_file_that_has_grown_the_new_lines_are_imported(tmp_path: Path) -> None:
    file = write(tmp_path, text(1, 2))
    imported(tmp_path, file)
    write(tmp_path, text(1, 2, 3, 4))
    (report,), _ = imported(tmp_path, file)
    assert (report.imported, report.known, report.has_grown) == (2, 2, True)
    write(tmp_path, text(1, 2, 3, 4, 5))
    imported(tmp_path, file)
    assert exported(tmp_path) == [line(number) for number in range(1, 6)]
    capture = open_capture(str(tmp_path / "captures"))
    assert sorted(seq for _, _, batch in capture.batches() for seq in batch["seq"].to_pylist()) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("cut", range(0, 300, 7))
def test_a_file_may_have_ended_anywhere_when_it_was_first_imported(cut: int, tmp_path: Path) -> None:
    whole = text(1, 2, 3)
    assert len(whole) < 310
    file = write(tmp_path, whole[:cut])
    imported(tmp_path, file)
    write(tmp_path, whole)
    _, rejected = imported(tmp_path, file)
    assert (rejected, exported(tmp_path)) == ([], [line(1), line(2), line(3)])
    write(tmp_path, whole + text(4))
    imported(tmp_path, file)
    assert exported(tmp_path) == [line(number) for number in (1, 2, 3, 4)]


def test_a_line_that_goes_on_after_it_was_imported_is_rejected(tmp_path: Path) -> None:
    file = write(tmp_path, text(1).rstrip())
    imported(tmp_path, file)
    write(tmp_path, text(1).rstrip() + text(2) + text(3))
    _, rejected = imported(tmp_path, file)
    assert [(reject.line, reject.error.code) for reject in rejected] == [(1, "INPUT_BAD_JSON")]
    assert exported(tmp_path) == [line(1), line(3)]


def test_a_file_with_another_beginning_is_another_file(tmp_path: Path) -> None:
    imported(tmp_path, write(tmp_path, text(1, 2)))
    (report,), _ = imported(tmp_path, write(tmp_path, text(9, 2)))
    assert (report.imported, report.known) == (2, 0)


def test_a_segment_that_was_deleted_is_imported_again_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "_BATCH_ROWS", 2)
    file = write(tmp_path, text(*range(1, 11)))
    imported(tmp_path, file, segment_bytes=1)
    names = segment_files(tmp_path)
    assert len(names) == 5
    for name in (names[1], names[2], names[4]):
        (tmp_path / "captures" / name).unlink()
    (report,), _ = imported(tmp_path, file)
    assert (report.imported, report.known) == (6, 4)
    assert exported(tmp_path) == [line(number) for number in range(1, 11)]
    assert imported(tmp_path, file)[0][0].imported == 0


# Large, interrupted, concurrent.


def test_segments_are_rolled_at_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "_BATCH_ROWS", 3)
    file = write(tmp_path, text(*range(1, 11)))
    (report,), _ = imported(tmp_path, file, segment_bytes=1)
    assert len(report.segments) == 4
    assert exported(tmp_path) == [line(number) for number in range(1, 11)]


def snapshots(path: Path, file: Path) -> list[Path]:
    """Import a file; returns what the folder was after each batch: what is left if the import is killed then."""
    taken: list[Path] = []

    def take(_done: int, _size: int) -> None:
        taken.append(path / f"snapshot {len(taken)}")
        shutil.copytree(path / "captures", taken[-1] / "captures")

    with Import(str(path / "captures"), segment_bytes=5000) as target:
        target.add(file, on_progress=take)
    return taken


def test_an_import_that_was_killed_is_finished_by_the_next_and_nothing_is_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "_BATCH_ROWS", 2)
    file = write(tmp_path, text(*range(1, 20)))
    left_behind = set()
    for snapshot in snapshots(tmp_path, file):
        segments = list_segments(open_folder(str(snapshot / "captures")))
        left_open = sum(not segment.is_sealed for segment in segments)
        left_behind.add((len(segments) > left_open, left_open))
        (report,), _ = imported(snapshot, file)
        assert report.replaced == left_open
        assert report.imported + report.known == 19
        assert exported(snapshot) == [line(number) for number in range(1, 20)]
        assert not any(name.endswith(OPEN) for name in segment_files(snapshot))
        assert open_capture(str(snapshot / "captures")).check().is_good
    assert left_behind == {(False, 0), (False, 1), (True, 0), (True, 1)}, "it was killed at every kind of place"


def test_what_another_file_left_open_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "_BATCH_ROWS", 1)
    killed = snapshots(tmp_path, write(tmp_path, text(1, 2, 3)))[1]
    (report,), _ = imported(killed, write(tmp_path, text(7, 8), "other.jsonl"))
    assert (report.imported, report.replaced) == (2, 0)
    assert [name.endswith(OPEN) for name in segment_files(killed)] == [True, False]


def test_an_import_that_is_interrupted_politely_leaves_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "_BATCH_ROWS", 1)

    def stop(_done: int, _size: int) -> None:
        if segment_files(tmp_path):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Import(str(tmp_path / "captures")) as target:
        target.add(write(tmp_path, text(1, 2, 3)), on_progress=stop)
    assert segment_files(tmp_path) == []


def test_one_import_at_a_time(tmp_path: Path) -> None:
    with Import(str(tmp_path / "captures")):
        with pytest.raises(CaptureError) as caught, Import(str(tmp_path / "captures")):
            pass
        assert caught.value.code == "CAPTURE_BUSY"
    with Import(str(tmp_path / "captures")):
        pass


def test_progress_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "_BATCH_ROWS", 2)
    file = write(tmp_path, text(1, 2, 3, 4, 5))
    told: list[tuple[int, int]] = []
    with Import(str(tmp_path / "captures")) as target:
        target.add(file, on_progress=lambda done, size: told.append((done, size)))
    size = file.stat().st_size
    assert told == [(0, size), (2 * size // 5, size), (4 * size // 5, size)]


# Bad lines and bad disks.


def test_bad_lines_are_rejected_one_by_one_and_the_rest_is_imported(tmp_path: Path) -> None:
    bad = ["junk", json.dumps(line(3, frames=["zz"])), json.dumps({"node": "N1"}), json.dumps(line(5, seen_ns="now"))]
    content = text(1) + bad[0] + "\n\n" + bad[1] + "\n" + text(2) + bad[2] + "\n" + bad[3] + "\n" + text(4)
    (report,), rejected = imported(tmp_path, write(tmp_path, content))
    assert [(reject.file, reject.line, reject.error.code) for reject in rejected] == [
        ("a.jsonl", 2, "INPUT_BAD_JSON"),
        ("a.jsonl", 4, "INPUT_BAD_HEX"),
        ("a.jsonl", 6, "INPUT_BAD_JSON"),
        ("a.jsonl", 7, "INPUT_BAD_JSON"),
    ]
    assert (report.imported, report.rejected) == (3, 4)
    assert exported(tmp_path) == [line(1), line(2), line(4)]
    (again,), _ = imported(tmp_path, write(tmp_path, content))
    assert (again.imported, again.known, again.rejected) == (0, 3, 0)


def test_a_line_that_is_too_long_is_rejected_without_being_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "LONGEST_LINE", 500)
    monkeypatch.setattr(jsonl, "CHUNK", 64)
    long = json.dumps(line(2, frames=["00" * 1000])) + "\n"
    file = write(tmp_path, text(1) + long + text(3))
    _, rejected = imported(tmp_path, file)
    assert [(reject.line, reject.error.code) for reject in rejected] == [(2, "INPUT_TOO_LONG")]
    assert exported(tmp_path) == [line(1), line(3)]
    assert imported(tmp_path, file)[0][0].known == 2


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with Import(str(tmp_path / "captures")) as target:
        for file in (tmp_path / "nothing", tmp_path):
            with pytest.raises(CaptureError, match="cannot read") as caught:
                target.add(file)
            assert caught.value.code == "CAPTURE_CANNOT_READ"


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    file = write(tmp_path, text(1))
    with pytest.raises(CaptureError) as caught, Import(str(file)):
        pass
    assert caught.value.code == "CAPTURE_CANNOT_WRITE"


def test_a_full_disk_ends_the_import_and_leaves_what_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "_BATCH_ROWS", 2)
    disk = Disk(tmp_path)
    file = write(tmp_path, text(1, 2, 3, 4))

    def fill(done: int, _size: int) -> None:
        if done:
            disk.error = OSError(28, "No space left on device")

    with (
        pytest.raises(CaptureError, match="No space left") as caught,
        Import("captures", filesystem=disk.filesystem, segment_bytes=1) as target,
    ):
        target.add(file, on_progress=fill)
    assert caught.value.code == "CAPTURE_CANNOT_WRITE"
    disk.error = None
    with Import("captures", filesystem=disk.filesystem) as target:
        report = target.add(file)
    assert (report.imported, report.known) == (2, 2)
