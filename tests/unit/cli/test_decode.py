import json
import os
import pty
import signal
import subprocess
import sys

import pytest

from hopline.wire import Extra, Message, MessageType, RoutingEntry, encode
from hopline.wire.fields import message_to_json
from tests.unit.cli.conftest import hexed

HELLO = Message(identity=b"HELLO", version=1, body=b"hi")


def test_one_answer_for_each_line_in_order_and_bad_lines_are_answers(hopline):
    good = json.dumps({"comment": "ignored", **hexed(encode(HELLO))})
    deep = '{"x": ' + "[" * 5000 + "]" * 5000 + ', "frames": []}'
    bad = ["{", '{"frames": ["zz"]}', '{"frames": ["0"]}', '{"frames": "00"}', "[1]", '{"other": 1}', '{"frames": []}', deep]
    result = hopline("decode", text="\n".join([good, "", "   ", *bad, good]))
    assert result.code == 1
    assert [line["ok"] for line in result.lines] == [True, *[False] * len(bad), True]
    codes = [line["error"]["code"] for line in result.lines[1:-1]]
    json_code = "INPUT_BAD_JSON"
    assert codes == [json_code, "INPUT_BAD_HEX", "INPUT_BAD_HEX", *[json_code] * 3, "WIRE_UNKNOWN_FORMAT", json_code]
    assert result.lines[0] == {
        "ok": True,
        "format": "v6",
        "variant": "",
        "wire_version": 6,
        "fields": message_to_json(HELLO),
    }
    assert result.errors == ""


def test_bytes_that_are_no_text_are_a_rejected_line(hopline):
    result = hopline("decode", text=b'\xff\xfe\n{"frames": ["\xff"]}\n')
    assert (result.code, len(result.lines)) == (1, 2)


def test_what_was_tried_is_told(hopline):
    result = hopline("decode", objects=[{"frames": ["00", "01"]}])
    error = result.lines[0]["error"]
    assert error["code"] == "WIRE_UNKNOWN_FORMAT"
    assert [attempt["format"] for attempt in error["tried"]] == ["v6", "v5", "v4", "v3"]
    assert all(attempt["reason"] for attempt in error["tried"])


def test_extra_is_there_only_if_something_must_be_kept(hopline):
    result = hopline("decode", objects=[hexed(encode(HELLO, "v6", "", Extra(trailing=b"new")))])
    assert result.code == 0
    assert result.lines[0]["extra"] == {"trailing": "6e6577"}


def test_a_file_and_all_is_well(hopline, tmp_path):
    path = tmp_path / "lines"
    path.write_text(json.dumps(hexed(encode(HELLO, "v5"))))
    result = hopline("decode", str(path))
    assert (result.code, result.lines[0]["format"], result.lines[0]["variant"]) == (0, "v5", "int32-stamp")


def test_the_unit_of_v3_ttl(hopline):
    line = hexed(encode(Message(identity=b"HELLO", ttl_ticks=10_000), "v3"))
    assert hopline("decode", objects=[line]).lines[0]["fields"]["ttl_ticks"] == 10_000
    assert hopline("decode", "--v3-ttl", "ticks", objects=[line]).lines[0]["fields"]["ttl_ticks"] == 1


def test_a_format_can_be_forced(hopline):
    result = hopline("decode", "--format", "v5", objects=[hexed(encode(HELLO))])
    assert result.code == 1
    assert result.lines[0]["error"]["code"] == "WIRE_OTHER_FORMAT"


def test_unknown_trace_options_are_kept_with_a_warning(hopline):
    result = hopline("decode", objects=[hexed(encode(Message(trace_options=5)))])
    assert (result.code, result.lines[0]["fields"]["trace_options"]) == (0, 5)
    assert "unknown trace options 0x4" in result.errors


@pytest.mark.parametrize(
    "arguments",
    [
        ("decode", "no/such/file"),
        ("decode", "--format", "v7"),
        ("decode", "--v3-ttl", "s"),
        ("decode", "a", "b"),
        ("nonsense",),
    ],
)
def test_wrong_usage_is_exit_2_in_words(hopline, arguments):
    result = hopline(*arguments)
    assert result.code == 2
    assert "Error" in result.errors
    assert "Traceback" not in result.errors


def test_an_endless_pipe_is_answered_line_by_line():
    with subprocess.Popen(
        [sys.executable, "-m", "hopline", "decode"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        for _ in range(3):
            process.stdin.write(json.dumps(hexed(encode(HELLO))).encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["ok"]
        process.stdin.close()
        assert process.wait(20) == 0


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path):
    path = tmp_path / "lines"
    path.write_text((json.dumps(hexed(encode(HELLO))) + "\n") * 20_000)
    with subprocess.Popen(
        [sys.executable, "-m", "hopline", "decode", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(20) == 0


def test_ctrl_c_ends_it_quietly():
    with subprocess.Popen(
        [sys.executable, "-m", "hopline", "decode"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdin.write(json.dumps(hexed(encode(HELLO))).encode() + b"\n")
        process.stdin.flush()
        process.stdout.readline()  # it is in its loop now
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr.read() == b""


def test_a_line_too_long_is_rejected_and_skipped(tmp_path):
    path = tmp_path / "lines"
    good = json.dumps(hexed(encode(HELLO))).encode()
    with path.open("wb") as out:
        out.write(b'{"frames": ["')
        for _ in range(65):
            out.write(b"0" * 1024 * 1024)
        out.write(b'"]}\n' + good + b"\n")
    done = subprocess.run(
        [sys.executable, "-m", "hopline", "decode", str(path)], capture_output=True, timeout=50, check=False
    )
    first, second = map(json.loads, done.stdout.splitlines())
    assert (done.returncode, first["error"]["code"], second["ok"]) == (1, "INPUT_TOO_LONG", True)


def on_a_terminal(*arguments):
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "hopline", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, "COLUMNS": "200", "TERM": "dumb"},
    )
    os.close(terminal)
    shown = b""
    try:
        while chunk := os.read(controller, 65536):
            shown += chunk
    except OSError:  # the terminal is gone: the process has ended
        pass
    os.close(controller)
    return process.wait(20), shown.decode()


def test_what_comes_from_the_wire_cannot_drive_the_terminal(tmp_path):
    path = tmp_path / "lines"
    message = Message(
        identity=b"\x1b[2J", domain="\x1b]0;owned\x07", routing=(RoutingEntry("tcp://\x1b[31m\nforged", b"\x1b"),)
    )
    path.write_text(json.dumps(hexed(encode(message))))
    for command in ("decode", "explain"):
        _, shown = on_a_terminal(command, str(path))
        assert "\x1b[2J" not in shown
        assert "\x1b]0;" not in shown
        assert "\nforged" not in shown


def test_files_that_cannot_be_read_or_written_are_said_so(tmp_path):
    path = tmp_path / "lines"
    path.write_text(json.dumps(hexed(encode(HELLO))))
    hopline_path = f"{sys.executable} -m hopline decode"
    for command in (f"{hopline_path} {path} >/dev/full", f"{hopline_path} <&-", f"{hopline_path} {path} >&-"):
        done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=50, check=False)
        assert done.returncode == 2, command
        assert "Traceback" not in done.stderr


def test_a_byte_order_mark_does_no_harm(hopline):
    assert hopline("decode", text=b"\xef\xbb\xbf" + json.dumps(hexed(encode(HELLO))).encode()).code == 0


def test_a_rejected_line_counts_even_if_the_reader_goes_away(tmp_path):
    path = tmp_path / "lines"
    path.write_text("{\n" * 100_000)
    with subprocess.Popen(
        [sys.executable, "-m", "hopline", "decode", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(20) == 1


def test_on_a_terminal_it_is_for_people(tmp_path):
    path = tmp_path / "lines"
    message = Message(
        identity=b"HELLO",
        version=1,
        body=b"x" * 200,
        domain="dom",
        ttl_ticks=50_000_000,
        callback_points=(MessageType(b"EHHLO", 1, b"P"), MessageType(b"KINO.EXCEPTION", 1)),
        routing=(RoutingEntry("tcp://[::1]:5101", b"N1"),),
    )
    lines = [json.dumps(hexed(encode(message, "v6", "", Extra(trailing=b"t")))), "{", json.dumps({"frames": ["00"]})]
    path.write_text("\n".join(lines))
    code, shown = on_a_terminal("decode", str(path))
    assert code == 1
    for word in (
        '"HELLO"',
        "EHHLO",
        "tcp://[::1]:5101",
        "5 s",
        "200 bytes",
        "trailing",
        "line 2",
        "INPUT_BAD_JSON",
        "not v6",
    ):
        assert word in shown
    code, shown = on_a_terminal("decode", "--json", str(path))
    assert json.loads(shown.splitlines()[0])["ok"]
