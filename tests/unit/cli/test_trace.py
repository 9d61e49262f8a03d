"""hopline trace: one flow as a tree."""

from io import StringIO

import msgspec
import pytest
from rich.console import Console

from hopline.capture.trace import build_trace
from hopline.cli.trace import show_trace
from hopline.payload.service import ExceptionMessage
from hopline.wire import Distribution, Message
from tests.unit.capture.story import Story, output, request

FAILED = ExceptionMessage("no such\norder\x1b[2J", "KeyError").write()


@pytest.fixture
def folder(tmp_path):
    story = Story()
    story.ask(b"flow-1", 0)
    story.ask(b"flow-22", 100, answer=b"KINO.EXCEPTION", body=FAILED)
    story.ask(b"\xff\0", 200)
    story.write(tmp_path)
    return str(tmp_path)


def shown(story, width=160):
    console = Console(file=StringIO(), width=width, highlight=False)
    show_trace(console, msgspec.to_builtins(build_trace(story.rows())))
    return console.file.getvalue()


def test_as_json(here, folder):
    result = here("trace", "flow-1", folder)
    assert (result.code, result.errors) == (0, "")
    (trace,) = result.lines
    assert [step["identity"] for step in trace["steps"]] == ["ORDER", "ORDERED"]
    assert (trace["outcome"], trace["messages"], trace["sightings"]) == ("ok", 2, 4)


@pytest.mark.parametrize("correlation", ["flow-2", "0xff00", "0xff"])
def test_the_beginning_of_an_id_is_enough(here, folder, correlation):
    assert here("trace", correlation, folder).code == 0


def test_more_than_one_flow(here, folder):
    result = here("trace", "flow", folder)
    assert (result.code, result.lines) == (1, [])
    assert result.errors == "hopline: 2 flows begin with flow: flow-1 (4), flow-22 (4); write more of it\n"


def test_many_flows(here, tmp_path):
    story = Story()
    for number in range(30):
        story.see("n", "hub_out", request(flow=b"flow-%02d" % number), number)
    story.write(tmp_path)
    errors = here("trace", "flow", str(tmp_path)).errors
    assert "30 flows begin with flow: flow-00 (1)" in errors
    assert "and 20 more" in errors


@pytest.mark.parametrize("correlation", ["nothing", "00000000-0000-0000-0000-000000000000"])
def test_no_such_flow(here, folder, correlation):
    result = here("trace", correlation, folder)
    assert (result.code, result.lines) == (1, [])
    assert f"no message of a flow {correlation} was seen in {folder}" in result.errors
    assert "hopline flows" in result.errors


def test_which_flow(here, folder):
    assert here("trace", "", folder).code == 2


def test_a_tree_to_a_person():
    story = Story()
    arrived = story.send("client", "server", request(ttl_ticks=10**7), 0, 2)
    taken = story.send("server", "store", output(arrived, b"TAKE", partition=b"p"), 10)
    story.send("store", "client", output(taken, b"KINO.EXCEPTION", body=FAILED), 20)
    text = shown(story)
    assert text.splitlines() == [
        "flow flow-1  exception",
        "2026-11-16T00:00:00Z, 21.000 ms; 3 messages, 6 sightings at client, server, store",
        "ORDER v1  request, waits for ORDERED, KINO.EXCEPTION  4 bytes, v6, ttl 1000 ms",
        "       0.000 ms  client  scaleout_out",
        "       2.000 ms  server  scaleout_in   2.000 ms on the way",
        "└── TAKE v1 p  message  0 bytes, v6, made 8.000 ms after that arrived",
        "          10.000 ms  server  scaleout_out",
        "          11.000 ms  store   scaleout_in   1.000 ms on the way",
        "    trail client > server",
        f"    └── KINO.EXCEPTION v1  exception to hub:hub  {len(FAILED)} bytes, v6, made 9.000 ms after that arrived",
        r"        KeyError: no such\norder\x1b[2J",
        "              20.000 ms  store   scaleout_out",
        "              21.000 ms  client  scaleout_in   1.000 ms on the way",
        "        trail client > server > store",
    ]


def test_what_is_missing_is_shown():
    story = Story()
    story.send("client", "server", request(), 0, -5)
    story.send("client", "server", request(distribution=Distribution.BROADCAST), 10, seen="out")
    story.see("client", "hub_out", Message(identity=b"X", correlation_id=b"flow-1", receiver_node_identity=b"n2"), 30)
    for _ in range(2):
        story.see("client", "hub_out", request(body=b"twice"), 40)
    text = shown(story)
    assert "no answer was seen" in text
    assert "no sighting at the receiver of what client sent" in text
    assert "received 5.000 ms before it was sent" in text
    assert "the clock of server is at least 5.000 ms behind that of client" in text
    assert "request to all" in text
    assert "message to n2" in text
    assert "sent 2 times" in text


def test_a_deep_flow_stays_readable():
    story = Story()
    message = request()
    for number in range(60):
        message = output(story.send("ab"[number % 2], "ba"[number % 2], message, number), b"N%d" % number)
    lines = shown(story, 400).splitlines()
    assert any("N58 v1" in line for line in lines)
    assert max(len(line) - len(line.lstrip(" │└├─")) for line in lines) < 250
