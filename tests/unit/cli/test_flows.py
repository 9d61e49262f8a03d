"""hopline flows: which were slow, failed, or are still waiting."""

from io import StringIO

import msgspec
import pytest
from rich.console import Console

from hopline.capture.filter import parse_filter
from hopline.capture.flows import find_flows
from hopline.capture.query import Query
from hopline.capture.store import open_capture
from hopline.cli.flows import show_flows
from hopline.payload.service import ExceptionMessage
from tests.unit.capture.story import Story
from tests.unit.cli.test_decode import on_a_terminal


@pytest.fixture
def folder(tmp_path):
    story = Story()
    story.ask(b"answered", 0)
    story.ask(b"failed", 100, answer=b"KINO.EXCEPTION", body=ExceptionMessage("boom\x07", "OSError").write())
    story.ask(b"waiting", 200, answer=None)
    story.write(tmp_path)
    return str(tmp_path)


@pytest.mark.parametrize(
    ("options", "flows"),
    [
        ([], ["answered", "failed", "waiting"]),
        (["--limit", "1"], ["answered"]),
        (["--limit", "0", "--show", "latest"], ["waiting", "failed", "answered"]),
        (["--show", "failed"], ["failed"]),
        (["--show", "unanswered"], ["waiting"]),
        (["--where", "identity == ORDERED"], ["answered"]),
        (["--since", "2026-11-16T00:00:00.1", "--until", "2026-11-16T00:00:00.2"], ["failed"]),
    ],
)
def test_a_line_each(here, folder, options, flows):
    result = here("flows", folder, *options)
    assert (result.code, result.errors) == (0, "")
    assert [line["correlation"] for line in result.lines] == flows


def test_what_a_line_says(here, folder):
    (line,) = here("flows", folder, "--show", "failed").lines
    assert (line["outcome"], line["messages"], line["sightings"], line["nodes"]) == ("exception", 2, 4, 2)
    assert (line["started_at"], line["duration_ms"]) == ("2026-11-16T00:00:00.100000Z", 11.0)
    assert line["failure"] == {"type": "OSError", "text": "boom\x07"}


def shown(folder, where=""):
    console = Console(file=StringIO(), width=200, highlight=False)
    found = find_flows(open_capture(folder), Query(parse_filter(where)))
    show_flows(console, msgspec.to_builtins(found), "slowest")
    return console.file.getvalue().splitlines()


def test_to_a_person(folder):
    lines = shown(folder)
    assert lines[:2] == ["3 flows: 1 exception, 1 ok, 1 pending", "The 3 slowest:"]
    assert lines[2].split()[:2] == ["flow", "began"]
    first = "answered 2026-11-16 00:00:00.000000 11.000 ok 2 4 2 ORDER at client"
    assert lines[3].split() == first.split()
    assert lines[4].endswith(r"OSError: boom\x07")


def test_nothing_to_show(folder):
    assert shown(folder, "identity == X") == ["0 flows"]


def test_on_a_terminal(folder):
    code, text = on_a_terminal("flows", folder, "--limit", "1")
    assert (code, len(text.splitlines())) == (0, 4)
