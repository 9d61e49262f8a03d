"""hopline stats: what is in a capture, counted."""

from io import StringIO

import msgspec
import pytest
from rich.console import Console

from hopline.capture.query import Query
from hopline.capture.stats import count
from hopline.capture.store import open_capture
from hopline.cli.stats import show_stats
from hopline.wire import Message
from tests.unit.capture.story import Story


@pytest.fixture
def folder(tmp_path):
    story = Story()
    story.ask(b"one", 0)
    story.see("client", "wire_in", Message(identity=b"KINO.PING", version=1, domain="\x1b[2J"), 50, "v5")
    story.see("client", "wire_in", [b"junk"], 60)
    story.write(tmp_path)
    return str(tmp_path)


def test_as_json(here, folder):
    result = here("stats", folder)
    assert (result.code, result.errors) == (0, "")
    (stats,) = result.lines
    assert (stats["sightings"], stats["rejected"]) == (6, 1)
    assert stats["nodes"] == {"client": 4, "server": 2}
    assert stats["errors"] == {"WIRE_UNKNOWN_FORMAT": 1}
    assert [(each["identity"], each["sightings"]) for each in stats["types"]] == [
        ("ORDER", 2),
        ("ORDERED", 2),
        ("KINO.PING", 1),
    ]


def test_with_a_filter(here, folder):
    (stats,) = here("stats", folder, "--where", "not is_system and format == v6").lines
    assert (stats["sightings"], stats["rejected"]) == (4, 0)


def shown(folder):
    console = Console(file=StringIO(), width=100, highlight=False)
    show_stats(console, msgspec.to_builtins(count(open_capture(folder), Query())))
    return console.file.getvalue()


def test_to_a_person(folder):
    text = shown(folder)
    lines = [line.split() for line in text.splitlines()]
    assert text.splitlines()[:2] == [
        "6 sightings, 1 of them no messages, 8 bytes of bodies",
        "from 2026-11-16 00:00:00.000000 to 2026-11-16 00:00:00.050000 UTC",
    ]
    for row in (["ORDER", "v1", "2"], ["client", "4"], ["wire_in", "2"], ["v5", "int32-stamp", "1"], ["none", "4"]):
        assert row in lines
    assert ["WIRE_UNKNOWN_FORMAT", "1"] in lines
    assert "\x1b[2J" not in text
    assert r"\x1b[2J" in text


def test_many_types_to_a_person(tmp_path):
    story = Story()
    for number in range(50):
        story.see("n", "hub_out", Message(identity=b"TYPE%02d" % number, version=1, correlation_id=b"c"), number)
    story.write(tmp_path)
    assert "10 more; --json shows all" in shown(str(tmp_path))


def test_nothing_to_a_person(tmp_path):
    assert shown(str(tmp_path)) == "0 sightings, 0 bytes of bodies\n"
