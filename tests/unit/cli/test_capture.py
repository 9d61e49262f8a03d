"""hopline capture: import, export, check."""

import json
import os
import pty
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from hopline.capture.segment import list_segments
from hopline.capture.store import open_capture
from hopline.capture.writer import CaptureWriter
from hopline.cli import app
from tests.unit.capture.world import START_NS, make_segment, records
from tests.unit.cli.conftest import Result


@pytest.fixture
def hopline():
    """The command in this process: starting one for each call would take a second a test."""

    def run(*words):
        done = CliRunner().invoke(app, words, prog_name="hopline")
        try:
            lines = [json.loads(line) for line in done.stdout.splitlines()]
        except ValueError:
            lines = done.stdout.splitlines()
        return Result(done.exit_code, lines, done.stderr)

    return run


def line(number, **changes):
    known = {"seen_ns": START_NS + number, "node": "N1", "direction": "in", "socket": "", "frames": [f"{number:04x}"]}
    return known | changes


def write(path, *lines, name="a.jsonl"):
    file = path / name
    file.write_text("".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in lines))
    return str(file)


@pytest.mark.parametrize("command", ["import", "export", "check"])
def test_help_has_an_example_and_the_exit_codes(hopline, command):
    text = "\n".join(map(str, hopline("capture", command, "--help").lines))
    assert f"Example:  hopline capture {command}" in text
    assert "Exit codes" in text
    assert "--json" in text


def test_in_and_out_again(hopline, tmp_path):
    files = [write(tmp_path, line(3), line(1, host="a")), write(tmp_path, line(2), name="b.jsonl")]
    folder = str(tmp_path / "captures")
    result = hopline("capture", "import", *files, folder)
    assert (result.code, result.errors) == (0, "")
    assert [(each["ok"], each["file"], each["imported"], each["known"]) for each in result.lines] == [
        (True, "a.jsonl", 2, 0),
        (True, "b.jsonl", 1, 0),
    ]
    result = hopline("capture", "export", folder)
    assert (result.code, result.lines) == (0, [line(1, host="a"), line(2), line(3)])
    result = hopline("capture", "check", folder)
    assert (result.code, result.lines[0]["ok"], result.lines[0]["rows"]) == (0, True, 3)
    assert result.lines[0]["states"] == {"whole": 2}


def test_twice_and_grown(hopline, tmp_path):
    folder = str(tmp_path / "captures")
    file = write(tmp_path, line(1))
    hopline("capture", "import", file, folder)
    (answer,) = hopline("capture", "import", file, folder, "--json").lines
    assert (answer["imported"], answer["known"], answer["segments"]) == (0, 1, [])
    write(tmp_path, line(1), line(2))
    (answer,) = hopline("capture", "import", file, folder).lines
    assert (answer["imported"], answer["known"], len(answer["segments"])) == (1, 1, 1)


def test_rejected_lines_come_with_their_number_and_reason(hopline, tmp_path):
    file = write(tmp_path, line(1), "junk", line(2, frames=["zz"]), line(3))
    result = hopline("capture", "import", file, str(tmp_path / "captures"))
    assert result.code == 1
    first, second, summary = result.lines
    assert (first["ok"], first["file"], first["line"], first["error"]["code"]) == (False, "a.jsonl", 2, "INPUT_BAD_JSON")
    assert (second["line"], second["error"]["code"]) == (3, "INPUT_BAD_HEX")
    assert (summary["ok"], summary["imported"], summary["rejected"]) == (False, 2, 2)


def test_export_to_a_file(hopline, tmp_path):
    make_segment(tmp_path, [records(1, 2)])
    target = tmp_path / "out.jsonl"
    result = hopline("capture", "export", str(tmp_path), "-o", str(target))
    assert (result.code, result.lines) == (0, [{"ok": True, "file": str(target), "messages": 2}])
    assert len(target.read_text().splitlines()) == 2
    result = hopline("capture", "export", str(tmp_path), "-o", str(tmp_path / "no" / "folder"))
    assert result.code == 2
    assert len(result.errors.splitlines()) == 1


def test_export_says_what_it_had_to_leave_out(hopline, tmp_path):
    torn = make_segment(tmp_path, [records(1, 2), records(3, 2)], seal=None)
    torn.write_bytes(torn.read_bytes()[:-3])
    result = hopline("capture", "export", str(tmp_path))
    assert (result.code, len(result.lines)) == (1, 2)
    assert result.errors.startswith("hopline: CAPTURE_TORN: ")
    assert "at byte" in result.errors


def test_check_finds_what_is_wrong(hopline, tmp_path):
    make_segment(tmp_path, [records(1, 2), records(5, 1)], number=1)
    torn = make_segment(tmp_path, [records(1, 2)], owner="N2", seal=None)
    torn.write_bytes(torn.read_bytes()[:-3])
    (tmp_path / "junk.arrows").write_bytes(b"junk")
    result = hopline("capture", "check", str(tmp_path))
    (answer,) = result.lines
    assert (result.code, answer["ok"]) == (1, False)
    assert answer["states"] == {"damaged": 1, "torn": 1, "whole": 1}
    assert sorted(problem["code"] for problem in answer["problems"]) == [
        "CAPTURE_DAMAGED",
        "CAPTURE_GAP",
        "CAPTURE_TORN",
        "CAPTURE_UNCLEAN",
    ]
    (stream,) = answer["streams"]
    assert (stream["owner"], stream["missing"], stream["gaps"]) == ("N1", 2, [[3, 4]])


def test_check_while_it_is_written(hopline, tmp_path):
    writer = CaptureWriter(str(tmp_path), owner=b"N1")
    writer.start()
    writer.write(records(1, 2))
    (answer,) = hopline("capture", "check", str(tmp_path)).lines
    assert (answer["ok"], answer["rows"], answer["states"]) == (True, 2, {"open": 1})
    writer.close()


@pytest.mark.parametrize(
    "words",
    [
        ["export", "{path}/nothing"],
        ["check", "{path}/nothing"],
        ["check", "{path}/file"],
        ["check", "nonsense://x/y"],
        ["import", "{path}/nothing", "{path}/captures"],
        ["import", "{path}", "{path}/captures"],
        ["import", "{path}/file", "{path}/file"],
        ["import", "{path}/file"],
        ["check"],
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(hopline, tmp_path, words):
    (tmp_path / "file").write_text("")
    result = hopline("capture", *(word.format(path=tmp_path) for word in words))
    assert (result.code, result.lines) == (2, [])
    assert "Traceback" not in result.errors
    if "Usage" not in result.errors:
        assert len(result.errors.splitlines()) == 1


def test_nothing_is_imported_if_one_file_is_not_there(hopline, tmp_path):
    folder = tmp_path / "captures"
    result = hopline("capture", "import", write(tmp_path, line(1)), str(tmp_path / "nothing"), str(folder))
    assert (result.code, folder.exists()) == (2, False)


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_fault(tmp_path):
    make_segment(tmp_path, [records(1, 20_000)])
    command = f"{sys.executable} -m hopline capture export {tmp_path} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 1)


@pytest.mark.slow
def test_on_a_terminal_it_speaks_to_people(tmp_path):
    file = write(tmp_path, line(1), "junk")
    folder = str(tmp_path / "captures")
    shown = b""
    for words in (
        ["import", file, folder],
        ["import", file, folder],
        ["check", folder],
        ["export", folder, "-o", file + ".out"],
    ):
        pid, descriptor = pty.fork()
        if pid == 0:  # pragma: no cover - the other process
            os.execv(sys.executable, [sys.executable, "-m", "hopline", "capture", *words])
        try:
            while chunk := os.read(descriptor, 65536):
                shown += chunk
        except OSError:  # the other side has closed
            pass
        os.waitpid(pid, 0)
        os.close(descriptor)
    text = shown.decode()
    assert "a.jsonl, line 2: INPUT_BAD_JSON" in text
    assert "a.jsonl: 1 imported, 1 lines rejected" in text
    assert "a.jsonl: 0 imported, 1 were there already" in text
    assert "1 messages in 1 segments: 1 whole" in text
    assert "no problems" in text
    assert "1 messages" in text


@pytest.mark.slow
def test_a_killed_import_is_finished_by_the_next(hopline, tmp_path):
    file = write(tmp_path, *(line(number) for number in range(1, 30_001)))
    folder = tmp_path / "captures"
    process = subprocess.Popen([sys.executable, "-m", "hopline", "capture", "import", file, str(folder)])
    while process.poll() is None:
        if folder.is_dir() and any(each.stat().st_size > 10_000 for each in folder.glob("*.open")):
            process.kill()
            break
    process.wait()
    (answer,) = hopline("capture", "import", file, str(folder)).lines
    assert answer["imported"] + answer["known"] == 30_000
    capture = open_capture(str(folder))
    assert sum(batch.num_rows for _, _, batch in capture.batches()) == 30_000
    assert all(segment.is_sealed for segment in list_segments(capture.folder))
