"""Fields: what can be asked of a sighting, and how values are read."""

import re
from datetime import UTC, date, datetime

import pytest

from hopline.capture.fields import ALIASES, CHOICES, ENTRY_FIELDS, kind_of, read_duration, read_time, read_value
from hopline.capture.tables import MESSAGES


def test_every_column_can_be_asked_for() -> None:
    kinds = {name: kind_of(name) for name in MESSAGES.names}
    assert set(kinds.values()) == {"text", "number", "duration", "flag", "time", "date", "bytes", "list"}
    assert {name for name, kind in kinds.items() if kind == "list"} == set(ENTRY_FIELDS)


def test_short_names_and_choices_are_of_columns() -> None:
    assert set(ALIASES.values()) | set(CHOICES) <= set(MESSAGES.names)
    # Where a short name is a column too, the column is the bytes, of which nobody can type the odd ones.
    assert {name for name in ALIASES if name in MESSAGES.names} == {"identity", "partition", "receiver"}


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("text", "0x00", "0x00"),
        ("bytes", "0x00fF", b"\0\xff"),
        ("bytes", "0x", b"0x"),
        ("bytes", "0x0", b"0x0"),
        ("bytes", "ö", "ö".encode()),
        ("number", "-42", -42),
        ("number", "9223372036854775807", 2**63 - 1),
        ("duration", "1.5", 1.5),
        ("duration", "250us", 0.25),
        ("duration", "-2s", -2000.0),
        ("duration", "1m", 60_000.0),
        ("duration", "1h", 3_600_000.0),
        ("flag", "TRUE", True),
        ("flag", "false", False),
        ("time", "2026-11-15", datetime(2026, 11, 15, tzinfo=UTC)),
        ("time", "2026-11-15T18:09:40.25Z", datetime(2026, 11, 15, 18, 9, 40, 250_000, UTC)),
        ("time", "2026-11-15 19:09+01:00", datetime(2026, 11, 15, 18, 9, tzinfo=UTC)),
        ("date", "2026-11-15", date(2026, 11, 15)),
    ],
)
def test_values(kind: str, text: str, value: object) -> None:
    assert read_value(text, kind) == value


@pytest.mark.parametrize(
    ("kind", "text", "must_be"),
    [
        ("number", "1.5", "a whole number"),
        ("number", "9223372036854775808", "64 bits"),
        ("number", "٣", "a whole number"),
        ("number", "", "a whole number"),
        ("duration", "5 minutes", "a duration"),
        ("duration", "1e9", "a duration"),
        ("flag", "yes", "true or false"),
        ("time", "yesterday", "a time such as"),
        ("date", "2026-13-01", "a date such as"),
    ],
)
def test_what_is_no_value(kind: str, text: str, must_be: str) -> None:
    with pytest.raises(ValueError, match=must_be):
        read_value(text, kind)


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+12:00", "soon"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        read_time(text)


def test_times_and_durations_alone() -> None:
    assert read_time("2026-11-15T00:00:00").tzinfo is UTC
    assert read_duration("2s") == 2000
    with pytest.raises(ValueError, match="2 s"):
        read_duration("2 s")
