"""hopline dump, and what it shares with trace, flows and stats: how they end, and what they say about a bad capture."""

import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer

from hopline.capture.filter import parse_filter
from hopline.capture.query import Dump
from hopline.capture.store import open_capture
from hopline.cli.dump import put_rows
from hopline.cli.looking import query_of
from hopline.errors import clean
from hopline.wire import Message
from tests.unit.capture.story import START_NS, Story, request
from tests.unit.cli.test_decode import on_a_terminal


@pytest.fixture
def folder(tmp_path):
    story = Story()
    story.ask(b"flow-1", 0)
    story.ask(b"flow-2", 100)
    story.see("client", "wire_in", [b"junk"], 50)
    story.write(tmp_path)
    return str(tmp_path)


@pytest.mark.parametrize("command", ["dump", "trace", "flows", "stats"])
def test_help_has_an_example_and_the_exit_codes(here, command):
    text = "\n".join(map(str, here(command, "--help").lines))
    assert f"Example:  hopline {command} " in text
    assert "Exit codes" in text
    for option in ("--json", "--since", "--until", "--v3-ttl"):
        assert option in text


def test_everything_in_the_order_of_time(here, folder):
    result = here("dump", folder)
    assert result.code == 0
    assert [line["identity_key"] for line in result.lines] == ["ORDER", "ORDER", "ORDERED", "ORDERED"] * 2
    assert [line["seen_ns"] for line in result.lines] == sorted(line["seen_ns"] for line in result.lines)
    first = result.lines[0]
    assert (first["seen_at"], first["date"]) == ("2026-11-16T00:00:00Z", "2026-11-16")
    assert (first["identity"], first["correlation_id"], first["signature"]) == ("4f52444552", b"flow-1".hex(), "")
    assert first["trail"] == [{"uri": "tcp://client:1", "node_key": "client"}]
    assert "body" not in first
    assert result.errors == "hopline: 1 more are no messages; --rejects shows them\n"


def test_filters_limits_and_columns(here, folder):
    result = here("dump", folder, "identity == ORDER", "--where", "direction == out", "--columns", "node_key, body")
    assert result.lines == [{"node_key": "client", "body": b"four".hex()}] * 2
    result = here("dump", folder, "--sort", "file", "--limit", "3", "--columns", "node_key")
    assert result.lines == [{"node_key": "client"}] * 3


def test_what_is_no_message(here, folder):
    result = here("dump", folder, "--rejects")
    assert [(line["code"], line["node_key"], line["excerpt"]) for line in result.lines] == [
        ("WIRE_UNKNOWN_FORMAT", "client", b"junk".hex())
    ]
    assert len(here("dump", folder, "--rejects", "--limit", "5").lines) == 1


def test_a_filter_that_is_wrong_is_pointed_at(here, folder):
    result = here("dump", folder, "identity == X and hopps > 1")
    assert result.code == 2
    *_, said, shown, caret = result.errors.rstrip().splitlines()
    assert "there is no field hopps; did you mean hops?" in said
    assert shown[caret.index("^") :] == "hopps > 1"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["dump", "{}", "--columns", "nothing"], "--columns must name some of"),
        (["dump", "{}", "--since", "yesterday"], "--since must be a time"),
        (["dump", "{}", "--until", "5"], "--until must be a time"),
        (["dump", "{}", "--limit", "0"], "0 is not in the range"),
        (["dump", "{}/none"], "CAPTURE_NOT_FOUND"),
    ],
)
def test_wrong_usage_is_exit_2_in_words(here, folder, arguments, reason):
    result = here(*(word.format(folder) for word in arguments))
    assert result.code == 2
    assert reason in result.errors
    assert "Traceback" not in result.errors


def test_the_folder_is_captures_if_nothing_is_said(here, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert here("dump").code == 2
    Path("captures").mkdir()
    assert (here("dump").code, here("dump").lines) == (1, [])


@pytest.mark.parametrize("command", [["dump"], ["flows"], ["stats"], ["trace", "7efde67d"]], ids=lambda command: command[0])
def test_a_folder_without_segments_is_said_to_be_one(here, tmp_path, command):
    (tmp_path / "notes.txt").write_text("no capture")
    result = here(*command, str(tmp_path))
    assert (result.code, result.lines) == (1, [])
    assert result.errors.startswith(f"hopline: {tmp_path} holds no segments")
    assert result.errors.count("\n") == 1


def test_a_damaged_capture_is_said_and_the_rest_is_shown(here, folder):
    Path(folder, "zzz.arrows").write_bytes(b"garbage")
    result = here("dump", folder, "--limit", "1", "--columns", "hops")
    assert (result.code, result.lines) == (0, [{"hops": 1}])
    assert "CAPTURE_DAMAGED" in result.errors


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path):
    story = Story()
    for number in range(3000):
        story.see("n", "hub_out", request(flow=b"%d" % number), number)
    story.write(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-m", "hopline", "dump", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(20) == 0


def test_ctrl_c_ends_it_quietly(tmp_path):
    story = Story()
    for number in range(3000):
        story.see("n", "hub_out", request(flow=b"%d" % number), number)
    story.write(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-m", "hopline", "dump", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.readline()  # the rest does not fit the pipe: it waits for us
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(20) == 130
        assert process.stderr.read() == b""


def test_an_output_that_cannot_be_written_is_said(folder):
    command = f"{sys.executable} -m hopline dump {folder} --limit 1"
    for redirection in (">/dev/full", ">&-"):
        done = subprocess.run(
            f"{command} {redirection}", shell=True, capture_output=True, text=True, timeout=50, check=False
        )
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


def test_a_line_each_on_a_terminal(tmp_path):
    story = Story()
    story.ask(b"flow-1", 0)
    story.see(
        "n",
        "wire_in",
        Message(identity=b"\x1b[2J", partition=b"p", domain="\x1b]0;owned\x07\nforged", trace_options=4, hops=2),
        5,
    )
    story.write(tmp_path)
    code, shown = on_a_terminal("dump", str(tmp_path))
    lines = shown.splitlines()
    assert (code, len(lines)) == (0, 5)
    first = "2026-11-16 00:00:00.000000  client  scaleout_out  ORDER v1  4 bytes  flow flow-1"
    assert lines[0] == first
    assert "ORDERED v1  to hub:hub" in lines[-1]
    (odd,) = (line for line in lines if "wire_in" in line)
    assert "0x1b5b324a v0 p" in odd
    assert r"domain \x1b]0;owned\x07\nforged" in odd
    assert "hop 2" in odd
    assert "unknown trace options 0x4" in odd
    assert "\x1b[2J" not in shown


def test_chosen_columns_to_a_person(folder, capsys):
    capture = open_capture(folder)
    (first,) = Dump(capture, query_of("", "", "", "ms"), ["node_key", "hops", "version_bytes"], limit=1)
    put_rows(first, is_json=False, is_chosen=True)
    assert capsys.readouterr().out == "node_key client  hops 1  version_bytes None\n"


def test_times_as_options():
    query = query_of("is_system", "2026-11-16T00:00:00", "2026-11-16T01:00:00+01:00", "ticks")
    start = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=START_NS // 1000)
    assert (query.where, query.since, query.until, query.v3_ttl) == (parse_filter("is_system"), start, start, "ticks")
    ago = query_of("", "10m", "", "ms").since
    assert timedelta(minutes=9) < datetime.now(UTC) - ago < timedelta(minutes=11)
    for text in ("10", "10 minutes", "99999999999999h", "-"):
        with pytest.raises(typer.BadParameter, match="--since must be a time"):
            query_of("", text, "", "ms")


def test_what_came_over_a_network_is_shown_in_one_line():
    assert clean("a\nb\x1b") == r"a\nb\x1b"
    assert clean("x" * 300, 10) == "x" * 10 + "..."
