"""The report of some time: rows of a moment by their moment, and rows of an hour or a minute by what they cover."""

from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from hopline.cli import app
from hopline.report.making import make_report
from hopline.report.read.facts import read_facts
from tests.report.page import text_of
from tests.report.tables import START, Shop, write_tables

MINUTE = timedelta(minutes=1)
HOUR = 60 * MINUTE
FIRST = datetime.min.replace(tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """One order at 09:20, and what is kept of the hour and minute in which it was placed."""
    made = Shop()
    made.ask(20 * 60_000.0, 12.0)
    made.rows["expiries"] = [{"hour": START, "identity_key": "ORDER.PLACE", "ttl_ms": 9.0, "sent": 1, "late": 1}]
    made.rows["signatures"] = [{"hour": START, "status": "invalid", "domain": "orders", "node_key": "n", "messages": 7}]
    return write_tables(tmp_path_factory.mktemp("tables"), made.rows)


def counted(tables, since, until):
    """How much there is: sent with a time to live, judged signatures, links between nodes."""
    facts = read_facts(tables, top=3, since=since, until=until)
    return facts.expiries.types.total()[0], facts.signatures.count("invalid"), len(facts.links.between("node"))


@pytest.mark.parametrize(
    ("since", "until", "found"),
    [
        (START + 15 * MINUTE, None, (1, 7, 2)),
        (START + 20 * MINUTE, None, (1, 7, 2)),
        (START + 20.5 * MINUTE, None, (1, 7, 2)),
        (START + 21 * MINUTE - timedelta(microseconds=1), None, (1, 7, 2)),
        (START + 21 * MINUTE, None, (1, 7, 0)),
        (START + HOUR - timedelta(microseconds=1), None, (1, 7, 0)),
        (START + HOUR, None, (0, 0, 0)),
        (None, START, (0, 0, 0)),
        (None, START + timedelta(microseconds=1), (1, 7, 0)),
        (None, START + 20 * MINUTE, (1, 7, 0)),
        (None, START + 20 * MINUTE + timedelta(microseconds=1), (1, 7, 2)),
        (START + 20.2 * MINUTE, START + 20.4 * MINUTE, (1, 7, 2)),
        (START - 3 * HOUR, START, (0, 0, 0)),
        (FIRST, LAST, (1, 7, 2)),
    ],
)
def test_what_overlaps_the_time_is_counted(tables, since, until, found):
    assert counted(tables, since, until) == found


def test_a_day_that_begins_meanwhile(tmp_path):
    """The last hour of a day is over when the next day begins, and not before."""
    hour = START.replace(hour=23)
    signature = {"hour": hour, "status": "invalid", "domain": "orders", "node_key": "n", "messages": 7}
    tables = write_tables(tmp_path, {"signatures": [signature]})
    midnight = hour + HOUR
    assert counted(tables, midnight - MINUTE, None)[1] == 7
    assert counted(tables, midnight, None)[1] == 0
    assert counted(tables, None, hour + MINUTE)[1] == 7


def sections_of(tables, tmp_path, **asked):
    make_report(tables, tmp_path / "r.html", title="Orders", top=3, **asked)
    return text_of(tmp_path / "r.html")


def test_it_is_said_of_which_hours_and_minutes_the_numbers_are(tables, tmp_path):
    said = sections_of(tables, tmp_path, since=START + 20.5 * MINUTE, until=START + 80.5 * MINUTE)
    hours = "These numbers are of whole hours: from 2026-11-15 09:00 until before 2026-11-15 11:00 UTC."
    assert hours in said["signatures"]
    assert hours in said["expiries"]
    minutes = "These numbers are of whole minutes: from 2026-11-15 09:20 until before 2026-11-15 10:21 UTC."
    assert minutes in said["services"]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"since": START + MINUTE}, "whole hours: from 2026-11-15 09:00 on, UTC."),
        ({"until": START + HOUR}, "whole hours: until before 2026-11-15 10:00 UTC."),
        ({"since": FIRST, "until": LAST}, "These numbers are of whole hours: from "),
    ],
)
def test_one_end_only(tables, tmp_path, asked, sentence):
    assert sentence in sections_of(tables, tmp_path, **asked)["signatures"]


def test_it_is_said_where_it_was_found(tables, tmp_path):
    said = sections_of(tables, tmp_path, since=START + MINUTE)["found"]
    assert "1 message with a time to live, 1 arrived too late (of whole hours)." in said
    assert said.count("(of whole hours)") == 2


def test_of_an_hour_in_which_the_time_was_empty_nothing_is_said(tables, tmp_path):
    said = sections_of(tables, tmp_path, since=START + 30 * MINUTE)["found"]
    assert "There is nothing to tell: " in said
    assert "of whole hours" not in said


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"since": START}, "Asked for: from 2026-11-15 09:00:00 on."),
        ({"until": START + HOUR}, "Asked for: until before 2026-11-15 10:00:00."),
        ({"since": START, "until": START + HOUR}, "Asked for: from 2026-11-15 09:00:00 until before 2026-11-15 10:00:00."),
    ],
)
def test_the_time_that_was_asked_for_is_said_at_the_top(tables, tmp_path, asked, sentence):
    assert sentence in sections_of(tables, tmp_path, **asked)["header"]


def test_nothing_is_said_if_no_time_was_asked_for(tables, tmp_path):
    assert "of whole" not in " ".join(sections_of(tables, tmp_path).values())


@pytest.mark.parametrize(
    ("since", "until"),
    [("2026-11-15T10:00:00Z", "2026-11-15T09:00:00Z"), ("2026-11-15T09:00:00Z", "2026-11-15T09:00:00Z"), ("10m", "2h")],
)
def test_a_time_that_ends_before_it_begins(tables, tmp_path, since, until):
    path = tmp_path / "r.html"
    done = CliRunner().invoke(app, ["report", str(tables), "-o", str(path), "--since", since, "--until", until])
    assert (done.exit_code, done.stdout, path.exists()) == (2, "", False)
    said = " ".join(done.stderr.split())
    assert f"--since must be before --until, and {since} is not before {until}" in said


def test_a_time_that_begins_before_it_ends(tables, tmp_path):
    path = tmp_path / "r.html"
    asked = ["--since", "2026-11-15T09:00:00Z", "--until", "2026-11-15T09:00:01Z"]
    assert CliRunner().invoke(app, ["report", str(tables), "-o", str(path), *asked]).exit_code == 0
