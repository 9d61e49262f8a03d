"""`hopline replay` without a network: what it says before anything is sent."""

import pytest

from tests.unit.capture.story import Story, request

NOBODY = "tcp://127.0.0.1:1"


@pytest.fixture
def folder(tmp_path):
    story = Story()
    story.ask(b"flow-1", 0)
    story.ask(b"flow-2", 30_000)
    story.see("client", "hub_out", request(b"NOTE", b"flow-3"), 60_000, body_kept="none", body_size=4)
    story.write(tmp_path)
    return str(tmp_path)


def test_a_dry_run_says_what_would_be_played(hopline, folder):
    (answer,) = hopline("replay", folder, "--dry-run", "--speed", "10").lines
    assert answer["plan"] == {
        "messages": 2,
        "skipped": {"body": 1},
        "seconds_then": 30.0,
        "seconds": 3.0,
        "types": {"ORDER v1": 2},
    }
    chosen = hopline("replay", folder, "--dry-run", "--speed", "max", "--limit", "1", "--where", "identity == ORDER")
    assert chosen.code == 0
    assert chosen.lines[0]["plan"] == {
        "messages": 1,
        "skipped": {"limit": 1},
        "seconds_then": 0.0,
        "seconds": None,
        "types": {"ORDER v1": 1},
    }


@pytest.mark.parametrize("words", [["--dry-run"], ["--to", NOBODY]])
def test_nothing_to_play_is_told(hopline, folder, words):
    told = hopline("replay", folder, *words, "--where", "identity == NOTE")
    assert told.code == 1
    assert told.errors == (
        f"hopline: nothing to play in {folder}; 1 not played: their bodies were cut or left out when they were captured\n"
    )


def test_who_does_not_answer_is_told(hopline, folder):
    told = hopline("replay", folder, "--to", NOBODY, "--timeout", "0.1")
    assert (told.code, told.lines) == (1, [])
    assert told.errors.startswith(f"hopline: NO_ROUTE: nobody answers at {NOBODY} within 0.1 s")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "say into which node"),
        (["--to", NOBODY, "--speed", "fast"], "--speed must be max or a number above 0"),
        (["--to", NOBODY, "--speed", "0"], "--speed must be max or a number above 0"),
        (["--to", NOBODY, "--speed", "nan"], "--speed must be max or a number above 0"),
        (["--to", NOBODY, "--where", "colour == red"], "colour"),
        (["--to", NOBODY, "--since", "soon"], "--since must be"),
        (["--to", NOBODY, "--in-flight", "0"], "--in-flight"),
        (["--to", "nowhere"], "nowhere"),
        (["--to", "tcp://192.0.2.1:5"], "without encryption"),
        (["--to", NOBODY, "--config", "/there/is/none"], "/there/is/none"),
    ],
)
def test_wrong_usage_sends_nothing(hopline, folder, words, reason):
    told = hopline("replay", folder, *words)
    assert (told.code, told.lines) == (2, [])
    assert reason in " ".join(told.errors.split())


def test_a_capture_that_is_not_there(hopline, tmp_path):
    told = hopline("replay", str(tmp_path / "none"), "--dry-run")
    assert told.code == 2
    assert "CAPTURE_NOT_FOUND" in told.errors
