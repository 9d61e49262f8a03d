"""Days: each is made for itself, and what lies around midnight is in the tables of one of them."""

import random
from collections import Counter
from datetime import date

import msgspec
import pytest
from pyspark.sql import functions as sf

from hopline.spark import messages
from hopline.spark.days import Day, window_of
from hopline.spark.midnight import Midnights
from hopline.wire import Message
from tests.spark.small import Story, request

HOUR_MS = 3_600_000
REACH_S = 6 * 3600
DAYS = ("2026-11-15", "2026-11-16", "2026-11-17")
"""The story begins with the second."""


def beats_over_midnight(story: Story) -> None:
    """Without a trail; and long before there was another one, which only one of two saw."""
    beat = Message(identity=b"KINO.HEARTBEAT", version=1, body=b"beat")
    story.see("R1", "wire_out", -12 * HOUR_MS, beat)
    story.see("R1", "wire_out", -50, beat)
    story.see("R2", "wire_in", 50, beat)


def a_request_by_a_clock_that_is_ahead(story: Story) -> None:
    """It left after midnight, and came before."""
    story.send("A", "B", 2, request("ahead", ttl_ms=1000), ahead_ms=3 - 6)
    asked = request("behind", key=2, ttl_ms=1000)
    story.send("A", "B", -3, asked, ahead_ms=4)


def equal_messages_on_their_way_as_the_window_begins(story: Story) -> None:
    """The window of the second day begins six hours before midnight."""
    for number, at_ms in enumerate((-6 * HOUR_MS - 1, HOUR_MS, 2 * HOUR_MS, 3 * HOUR_MS)):
        come = story.send("T1", "T2", at_ms, tick("ticks", ttl_ms=1000))
        story.see("T2", "actor_in", at_ms + 3 + number, come)


def equal_messages_of_which_some_are_lost(story: Story) -> None:
    """Every five minutes, for ten hours; one in ten is lost, and those around midnight are."""
    chance = random.Random(5)
    for number in range(-60, 60):
        is_lost = chance.random() < 0.1 or number in (-1, 0)
        come = story.send(
            "L1", "L2", number * 300_000 - 1, tick("some lost", ttl_ms=1000), seen="out" if is_lost else "both"
        )
        if not is_lost:
            story.see("L2", "actor_in", number * 300_000 + 2, come)


def tick(flow: str, ttl_ms: int = 0) -> Message:
    asked = request(flow, ttl_ms=ttl_ms)
    return msgspec.structs.replace(asked, identity=b"TICK", callback_points=(), callback_key=0)


@pytest.fixture(scope="module")
def made(spark, tmp_path_factory):
    """The rows of all days, by table; each day of its own window."""
    story = Story()
    for tell in (
        beats_over_midnight,
        a_request_by_a_clock_that_is_ahead,
        equal_messages_on_their_way_as_the_window_begins,
        equal_messages_of_which_some_are_lost,
    ):
        tell(story)
    tables = story.tables(spark, tmp_path_factory.mktemp("days"))
    errors = spark.createDataFrame([], "message_uid binary, error_type string, error_message string")
    found = {name: [] for name in ("hops", "callbacks", "expiries", "edges")}
    for day in DAYS:
        seen = tables.sightings.where(sf.col("seen_ns").between(*window_of(day, REACH_S)))
        rows = tables.keep(f"messages of {day}", messages.finish(seen))
        midnights = Midnights(window_of(day, 0), REACH_S * 10**9, has_before=day != DAYS[0], has_after=day != DAYS[-1])
        here = Day(rows, errors, tables.verdicts, midnights, lambda name, kept, day=day: tables.keep(f"{name} {day}", kept))
        for name, rows_of in found.items():
            rows_of.extend(here.table(name).where(sf.col("date") == date.fromisoformat(day)).collect())
    return found


def moved(made, flow):
    """The moves of a flow, by kind and latency, and how many of them there are."""
    return Counter((row.kind, row.latency_ms) for row in made["hops"] if row.correlation_key == flow)


def test_of_beats_the_last_that_was_sent_before_is_the_one_that_came(made):
    rows = [row for row in made["hops"] if row.identity_key == "KINO.HEARTBEAT"]
    found = {(str(row.date), row.from_node_key, row.to_node_key, row.latency_ms) for row in rows}
    assert found == {("2026-11-15", "R1", None, None), ("2026-11-15", "R1", "R2", 100.0)}
    assert len(rows) == 2


def test_a_request_is_of_the_day_of_its_first_sighting_whatever_its_own_clock_says(made):
    asked = {row.correlation_key: row for row in made["callbacks"] if row.correlation_key in ("ahead", "behind")}
    assert {flow: (str(row.date), row.outcome) for flow, row in asked.items()} == {
        "ahead": ("2026-11-15", "pending"),
        "behind": ("2026-11-15", "pending"),
    }
    assert str(asked["behind"].requested_at.date()) == "2026-11-16", "it is dated by who saw it come"
    assert sum(row.sent for row in made["expiries"] if row.identity_key == "ASK") == 2
    assert sum(row.messages for row in made["edges"] if (row.level, row.source_key) == ("message", "ASK")) == 2


def test_equal_messages_are_put_together_whatever_was_on_its_way_as_a_window_begins(made):
    assert moved(made, "ticks") == {
        ("network", 2.0): 4,
        **{("deliver", 1.0 + number): 1 for number in range(4)},
    }


def test_of_equal_messages_around_midnight_each_is_in_one_row(made):
    lost = moved(made, "some lost")["network", None]
    assert moved(made, "some lost") == {
        ("network", 2.0): 120 - lost,
        ("deliver", 1.0): 120 - lost,
        ("network", None): lost,
    }
    assert 8 < lost < 25


def test_of_equal_messages_those_behind_a_lost_one_are_in_time(made):
    lost = moved(made, "some lost")["network", None]
    rows = [row for row in made["expiries"] if row.identity_key == "TICK"]
    sent, in_time, late = (sum(row[name] for row in rows) for name in ("sent", "in_time", "late"))
    assert (sent, in_time, late) == (124, 124 - lost, 0)
