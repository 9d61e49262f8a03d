"""Runs of the pipeline: the same tables, whether a capture comes at once, in parts, or in spite of crashes."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from hopline.capture.writer import CaptureWriter
from hopline.errors import CaptureError, SparkError, TablesError
from hopline.flow import record_hop
from hopline.security import Domain, Keyring
from hopline.spark.batch import NAMES
from hopline.spark.run import Asked, Pipeline
from hopline.spark.runs import RUNS
from hopline.spark.tables import REJECTS, TABLES
from hopline.wire import Message, RoutingEntry
from tests.spark.generator import DOMAINS, FORGERS
from tests.spark.lake import CrashError, all_rows, columns_of, copy_segments, crash_at, files_of, rows_of
from tests.spark.made import assert_same
from tests.spark.sums import Sums
from tests.unit.capture.story import START_NS, Story, output, request
from tests.unit.capture.world import records

KEYS = tuple(Domain(name * 30, keys=(name.encode() * 16,), scheme="kino") for name in "AB")
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def pipeline(spark):
    """Makes pipelines in the session of all tests."""

    def make(captures, tables, on_step=lambda _: None, **asked):
        return Pipeline(str(captures), str(tables), Asked(**asked), session=lambda _: spark, on_step=on_step)

    return make


@pytest.fixture(scope="module")
def at_once(pipeline, reference, tmp_path_factory):
    """The tables of the reference captures, made in one run."""
    tables = tmp_path_factory.mktemp("at once")
    summary = pipeline(reference, tables, domains=KEYS).run()
    return tables, summary


# --- what comes out ---------------------------------------------------------------------------------------------------


def test_the_summary_says_what_was_read_and_written(at_once):
    _, summary = at_once
    assert (summary.changed, summary.segments, summary.read, summary.rejected) == (True, 10, 1719, 0)
    assert summary.days == ["2026-11-15"]
    assert list(summary.tables) == list(NAMES)
    assert summary.tables["messages"].written == summary.tables["messages"].rows == 1719
    assert {name for name, table in summary.tables.items() if not table.rows} == {"rejects", "expiries"}
    assert summary.tables["expiries"].empty == "no message has a TTL"
    assert summary.tables["rejects"].empty == "every record is a message"


def test_what_only_bodies_and_keys_tell_is_in_the_tables(at_once):
    tables, _ = at_once
    failed = [row for row in rows_of(tables, "callbacks") if row["outcome"] == "exception"]
    assert failed
    assert all(row["error_message"] for row in failed)
    counts = dict.fromkeys(["valid", "invalid", "unsigned"], 0)
    for row in rows_of(tables, "signatures"):
        counts[row["status"]] += row["messages"]
    assert counts["valid"] > 100
    assert counts["invalid"] == 0
    assert {row["ended_by"] for row in rows_of(tables, "routes")} >= {None, "KINO.UNREGNODE"}


def test_runs_tells_of_each_table(at_once):
    tables, summary = at_once
    rows = rows_of(tables, "runs")
    assert {row["table"]: row["rows_out"] for row in rows} == {name: each.written for name, each in summary.tables.items()}
    assert {row["run_id"] for row in rows} == {summary.run}
    assert {row["table"]: row["empty_reason"] for row in rows}["expiries"] == "no message has a TTL"
    assert all("pyspark" in row["versions"] for row in rows)


def test_pandas_reads_every_table(at_once):
    tables, summary = at_once
    for name in NAMES:
        assert len(pd.read_parquet(tables / name)) == summary.tables[name].rows


@pytest.mark.parametrize("table", [*TABLES, RUNS], ids=lambda table: table.name)
def test_tables_have_the_columns_they_should_have(at_once, table):
    found = columns_of(at_once[0], table.name)
    assert set(found.names) == set(table.names) - {"body"}
    for name, kind in zip(found.names, found.types, strict=True):
        if pa.types.is_timestamp(kind):
            assert kind == pa.timestamp("us", "UTC"), name


def test_no_key_is_left_behind(at_once):
    for file in Path(at_once[0]).rglob("*"):
        assert not file.is_file() or b"A" * 16 not in file.read_bytes().replace(b"A" * 30, b"")


def test_a_run_without_news_changes_no_file(pipeline, reference, at_once):
    tables, summary = at_once
    before = files_of(tables)

    def no_session(_settings):
        pytest.fail("Spark is not needed for that")

    again = Pipeline(reference, str(tables), session=no_session).run()
    assert not again.changed
    assert again.run == summary.run
    assert again.tables["messages"].rows == 1719
    lock = str(tables / "_hopline" / "lock")
    assert {**files_of(tables), lock: 0} == {**before, lock: 0}


def test_in_parts_and_with_crashes_it_comes_to_the_same(pipeline, reference, at_once, tmp_path):
    names = sorted(file.name for file in Path(reference).glob("*.arrows"))
    captures, tables = tmp_path / "captures", tmp_path / "tables"
    copy_segments(reference, captures, names[:4])
    assert pipeline(captures, tables, domains=KEYS).run().changed
    copy_segments(reference, captures, names[4:7])
    first = all_rows(tables)
    with pytest.raises(CrashError):
        pipeline(captures, tables, crash_at("journal"), domains=KEYS).run()
    assert all_rows(tables) == first  # nothing was to be seen of it
    copy_segments(reference, captures, names[7:])
    with pytest.raises(CrashError):
        pipeline(captures, tables, crash_at("arrival of flows"), domains=KEYS).run()
    done = pipeline(captures, tables, domains=KEYS).run()
    assert not done.changed  # it was only finished
    assert all_rows(tables) == all_rows(at_once[0])
    assert not list(tables.rglob("staging"))
    assert not list(tables.rglob("journal*"))


def test_the_tables_of_a_world_are_true(spark, world_tables):
    """All that happened in a world is in the tables, and nothing else."""
    world, tables = world_tables
    truth = Sums(world)
    for table in (each for each in TABLES if each is not REJECTS):
        rows = spark.read.parquet(str(tables / table.name))
        true = list(getattr(truth, table.name)())
        assert_same(rows.select(*(name for name in table.names if name in true[0])), true)


# --- what is asked for ------------------------------------------------------------------------------------------------


def tell(path, *flows, at_ms=0.0, junk=0):
    """A capture in which a client asks a server, once for each flow."""
    story = Story()
    for number, flow in enumerate(flows):
        story.ask(flow, at_ms + number * 100)
    for number in range(junk):
        story.see("client", "scaleout_in", [b"junk"], at_ms + number)
    story.write(path)


def flows_in(tables):
    return {row["correlation_key"] for row in rows_of(tables, "messages")}


def test_what_is_no_message_fails_nothing(pipeline, tmp_path):
    tables = tmp_path / "x[1] {a,b} *? \\t"  # which would be a pattern to Spark
    tell(tmp_path / "c", b"flow", junk=3)
    summary = pipeline(tmp_path / "c", tables, only=frozenset({"messages"})).run()
    assert (summary.read, summary.rejected, summary.tables["rejects"].rows) == (7, 3, 3)
    assert {row["code"] for row in rows_of(tables, "rejects")} == {"WIRE_UNKNOWN_FORMAT"}
    tell(tmp_path / "c", b"more", junk=1)
    assert pipeline(tmp_path / "c", tables, only=frozenset({"messages"})).run().tables["rejects"].rows == 4
    assert len(rows_of(tables, "rejects")) == 4


def test_what_was_left_out_is_made_up_for(pipeline, tmp_path):
    tell(tmp_path / "c", b"one")
    only = frozenset({"callbacks"})
    summary = pipeline(tmp_path / "c", tmp_path / "t", only=only).run()
    assert summary.tables["callbacks"].rows == 1
    assert summary.tables["flows"].empty == "it was left out by --only"
    assert {path.name for path in (tmp_path / "t").iterdir()} == {"_hopline", "callbacks", "messages", "rejects", "runs"}
    messages = files_of(tmp_path / "t" / "messages")
    summary = pipeline(tmp_path / "c", tmp_path / "t", only=only | {"hops"}).run()
    assert (summary.changed, summary.read, summary.tables["hops"].written) == (True, 0, 2)
    assert summary.tables["callbacks"].written == 0
    assert files_of(tmp_path / "t" / "messages") == messages
    tell(tmp_path / "c", b"two")
    behind = pipeline(tmp_path / "c", tmp_path / "t", only=only).run()
    assert len(rows_of(tmp_path / "t", "hops")) == 2  # as it was, and known to be out of date
    hops = behind.tables["hops"]
    assert (hops.rows, hops.empty, hops.is_behind) == (2, None, True)
    assert pipeline(tmp_path / "c", tmp_path / "t", only=only | {"hops"}).run().tables["hops"].rows == 4


def test_what_was_seen_at_other_times_is_left_for_later(pipeline, tmp_path):
    tell(tmp_path / "c", b"one", b"two", b"three", b"four")
    only = frozenset({"messages"})
    noon = START_NS + 150_000_000
    pipeline(tmp_path / "c", tmp_path / "t", only=only, until_ns=noon).run()
    assert flows_in(tmp_path / "t") == {"one", "two"}
    assert not pipeline(tmp_path / "c", tmp_path / "t", only=only, until_ns=noon).run().changed
    pipeline(tmp_path / "c", tmp_path / "t", only=only, since_ns=START_NS + 250_000_000).run()
    assert flows_in(tmp_path / "t") == {"one", "two", "four"}
    pipeline(tmp_path / "c", tmp_path / "t", only=only).run()
    assert flows_in(tmp_path / "t") == {"one", "two", "three", "four"}
    assert len(rows_of(tmp_path / "t", "messages")) == 16


def test_nothing_at_that_time_is_said(pipeline, tmp_path):
    tell(tmp_path / "c", b"one")
    summary = pipeline(tmp_path / "c", tmp_path / "t", until_ns=START_NS, only=frozenset({"messages"})).run()
    assert summary.tables["messages"].empty == "nothing was seen in the time that was asked for"


def test_an_empty_capture_says_so_without_spark(tmp_path):
    (tmp_path / "c").mkdir()
    summary = Pipeline(str(tmp_path / "c"), str(tmp_path / "t"), session=lambda _: pytest.fail("no need")).run()
    assert summary.changed
    assert {table.empty for table in summary.tables.values()} == {
        "the capture has no segments: was anything recorded or imported?"
    }
    assert len(rows_of(tmp_path / "t", "runs")) == len(NAMES)
    assert not Pipeline(str(tmp_path / "c"), str(tmp_path / "t"), session=lambda _: pytest.fail("no need")).run().changed


def test_a_segment_that_is_gone_before_it_is_read_is_named_and_taken_if_it_comes_back(pipeline, spark, tmp_path):
    captures, asked = tmp_path / "c", Asked(only=frozenset({"hops", "signatures"}))
    tell(captures, b"one", b"two")
    (segment,) = captures.glob("*-server-*")

    def delete(doing):
        if doing.startswith("reading"):
            segment.rename(tmp_path / segment.name)

    gone = Pipeline(str(captures), str(tmp_path / "t"), asked, session=lambda _: spark, on_progress=delete).run()
    assert gone.gone == [segment.stem]
    assert (gone.segments, gone.read, gone.tables["messages"].rows) == (1, 4, 4)
    assert not pipeline(captures, tmp_path / "t", only=asked.only).run().changed
    (tmp_path / segment.name).rename(segment)
    back = pipeline(captures, tmp_path / "t", only=asked.only).run()
    assert (back.gone, back.read) == ([], 4)
    pipeline(captures, tmp_path / "at once", only=asked.only).run()
    for name in ("messages", "hops", "signatures"):
        assert rows_of(tmp_path / "t", name) == rows_of(tmp_path / "at once", name)


def test_bodies_are_kept_if_asked_for_and_then_always(pipeline, tmp_path):
    tell(tmp_path / "c", b"one")
    only = frozenset({"messages"})
    pipeline(tmp_path / "c", tmp_path / "t", only=only, bodies=True).run()
    tell(tmp_path / "c", b"two")
    pipeline(tmp_path / "c", tmp_path / "t", only=only).run()
    assert [row["body"] for row in rows_of(tmp_path / "t", "messages")].count(b"four") == 4


@pytest.mark.parametrize("asked", [{"v3_ttl": "ticks"}, {"bodies": True}, {"reach_s": 1}])
def test_tables_cannot_go_on_with_other_terms(tmp_path, asked):
    (tmp_path / "c").mkdir()
    make = lambda **more: Pipeline(str(tmp_path / "c"), str(tmp_path / "t"), Asked(**more), session=lambda _: None)  # noqa: E731
    make().run()
    with pytest.raises(TablesError) as caught:
        make(**asked).run()
    assert caught.value.code == "TABLES_OTHER_TERMS"


def test_a_capture_that_is_not_there_is_said(tmp_path):
    with pytest.raises(CaptureError):
        Pipeline(str(tmp_path / "c"), str(tmp_path / "t"), session=lambda _: None).run()


def test_a_job_that_failed_says_why(spark, tmp_path):
    tell(tmp_path / "c", b"one")

    def in_the_way(_settings):
        (tmp_path / "t" / "_hopline" / "staging").write_text("no folder")
        return spark

    with pytest.raises(SparkError, match=r"^a Spark job failed: \S+Exception: Parent path is not a directory: ") as caught:
        Pipeline(str(tmp_path / "c"), str(tmp_path / "t"), session=in_the_way).run()
    assert caught.value.code == "SPARK_JOB_FAILED"


@pytest.mark.parametrize(
    ("name", "holds"), [("messages/date=2026-11-16/part-x.parquet", b"PAR1"), ("runs/part-x.parquet", b"nothing")]
)
def test_a_file_of_tables_that_is_damaged_is_named(pipeline, tmp_path, name, holds):
    tell(tmp_path / "c", b"one")
    make = pipeline(tmp_path / "c", tmp_path / "t", only=frozenset({"messages"}))
    make.run()
    damaged = next((tmp_path / "t" / name).parent.iterdir())
    damaged.write_bytes(holds)
    tell(tmp_path / "c", b"two")
    with pytest.raises(TablesError, match=f"^cannot read {damaged}: ") as caught:
        pipeline(tmp_path / "c", tmp_path / "t", only=frozenset({"messages", "hops"})).run()
    assert caught.value.code == "TABLES_CANNOT_READ"


def test_a_full_disk_is_said_in_one_line_with_where_it_is(tmp_path):
    tell(tmp_path / "c", b"one")

    def full(_settings):
        raise PySparkException("An error occurred.\n: a.B: broken\nCaused by: a.C: No space left on device")

    with pytest.raises(TablesError) as caught:
        Pipeline(str(tmp_path / "c"), str(tmp_path / "t"), session=full).run()
    assert caught.value.code == "TABLES_CANNOT_WRITE"
    assert str(tmp_path / "t") in str(caught.value)
    assert "\n" not in str(caught.value)


# --- days -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def days(tmp_path):
    """A capture in three parts: a day, the next one, and more of that; a message is on its way at midnight."""
    path = tmp_path / "days"
    parts = []
    for number, hour in enumerate([0, 24, 36]):  # since the story began, at midnight
        story = Story()
        start = hour * HOUR_MS
        story.send("client", "server", Message(identity=b"TICK", version=1), start + HOUR_MS)
        story.send("client", "server", Message(identity=b"TICK", version=1), start + 2 * HOUR_MS)
        over = Message(identity=b"LATE", version=1, correlation_id=b"over midnight")
        if number < 2:
            story.send("client", "server", over, 24 * HOUR_MS - 5, 10, seen=("out", "in")[number])
        story.ask(b"flow %d" % number, start + 3 * HOUR_MS)
        before = set(path.glob("*"))
        story.write(path)
        parts.append([file.name for file in set(path.glob("*")) - before])
    return path, parts


def test_days_do_not_depend_on_how_they_came(pipeline, days, tmp_path):
    captures, (first, second, third) = days
    asked = {"only": frozenset({"hops"}), "reach_s": 3600}
    pipeline(captures, tmp_path / "at once", **asked).run()
    touched = []
    for part in (second, first, third):
        files = files_of(tmp_path / "in parts" / "messages")
        copy_segments(captures, tmp_path / "c", part)
        touched.append(pipeline(tmp_path / "c", tmp_path / "in parts", **asked).run().days)
    assert touched == [["2026-11-17"], ["2026-11-16", "2026-11-17"], ["2026-11-17"]]
    kept = {
        Path(path).parent.name
        for path, changed in files_of(tmp_path / "in parts" / "messages").items()
        if files.get(path) == changed
    }
    assert kept == {"date=2026-11-16"}  # a day that is not touched is not made again
    for name in ("messages", "hops"):
        assert rows_of(tmp_path / "in parts", name) == rows_of(tmp_path / "at once", name)
    (late,) = [row for row in rows_of(tmp_path / "at once", "hops") if row["identity_key"] == "LATE"]
    assert (late["latency_ms"], str(late["date"])) == (10, "2026-11-16")


def test_a_replay_over_midnight_is_found_within_the_reach_and_not_by_hours(pipeline, tmp_path):
    """With a reach of 30 minutes, what came at 23:45 is known at 00:05, and what came at 23:15 is not."""
    story = Story()
    for number, minute in enumerate([-15, -45]):
        told = Message(identity=b"X", version=1, correlation_id=b"%d" % number, domain="full", hops=1)
        signed = Keyring(DOMAINS).sign(told, now_ns=START_NS, nonce=bytes([number] * 16))
        for at_ms in ((24 * 60 + minute) * 60_000, (24 * 60 + 5) * 60_000):
            story.see("server", "scaleout_in", signed, at_ms)
    story.write(tmp_path / "c")
    asked = {"only": frozenset({"signatures"}), "reach_s": 1800, "domains": DOMAINS}
    pipeline(tmp_path / "c", tmp_path / "t", **asked).run()
    found = {(str(row["date"]), row["status"]): row["messages"] for row in rows_of(tmp_path / "t", "signatures")}
    assert found == {("2026-11-16", "valid"): 2, ("2026-11-17", "replayed"): 1, ("2026-11-17", "valid"): 1}


@pytest.mark.parametrize(("domains", "invalid"), [(None, None), (DOMAINS, 1)], ids=["no keys", "keys"])
def test_where_no_signature_was_judged_nobody_knows_how_many_are_invalid(pipeline, tmp_path, domains, invalid):
    """Also if the sightings come in two runs."""
    for flow, ring in ((b"good", Keyring(DOMAINS)), (b"forged", Keyring(FORGERS))):
        story = Story()
        told = Message(identity=b"X", version=1, correlation_id=flow, domain="full", hops=1)
        story.see("server", "scaleout_in", ring.sign(told, now_ns=START_NS, nonce=b"n" * 16), 5)
        story.write(tmp_path / "c")
        summary = pipeline(tmp_path / "c", tmp_path / "t", only=frozenset({"flows"}), domains=domains).run()
        assert summary.unchecked == (1 if domains is None else 0)
    later = pipeline(tmp_path / "c", tmp_path / "t", only=frozenset({"flows"}), domains=DOMAINS).run()
    assert (later.changed, later.unchecked) == (False, 0)  # keys that come later are too late
    found = {row["correlation_key"]: row["invalid_signatures"] for row in rows_of(tmp_path / "t", "flows")}
    assert found == {"good": None if domains is None else 0, "forged": invalid}


def test_what_is_on_two_days_is_counted_on_one_of_them(pipeline, tmp_path):
    """Requests that are answered 12 hours later, soon, and soon and once more; and a flow that never is silent for long."""
    parts = []
    for number, hours in enumerate([range(30), range(30, 54)]):
        story, path = Story(), tmp_path / f"part {number}"
        for hour in hours:
            step = Message(identity=b"STEP", version=1, correlation_id=b"long", body=b"%d" % hour, trace_options=1)
            story.send("client", "server", step, (hour + 0.5) * HOUR_MS)
        for flow, key, at_h, took_h in ((b"far", 8, 17, [12]), (b"near", 9, 23, [2]), (b"again", 10, 20, [5, 10.5])):
            asked = request(flow=flow, callback_key=key)
            known, arrived = (Story(), story)[at_h in hours], record_hop(asked, RoutingEntry("tcp://client:1", b"client"))
            known.send("client", "server", asked, at_h * HOUR_MS)
            for came_h in (at_h + took for took in took_h):
                known = (Story(), story)[int(came_h) in hours]
                answer = output(arrived.message, b"ORDERED", body=b"%d" % came_h)
                known.send("server", "client", answer, came_h * HOUR_MS)
        story.write(path)
        parts.append(path)
    asked = {"only": frozenset({"hops", "callbacks", "flows"})}
    for number in (1, 0):  # the later one first
        copy_segments(parts[number], tmp_path / "c", [file.name for file in parts[number].iterdir()])
        pipeline(tmp_path / "c", tmp_path / "t", **asked).run()
    pipeline(tmp_path / "c", tmp_path / "at once", **asked).run()
    assert {name: rows_of(tmp_path / "t", name) for name in asked["only"]} == {
        name: rows_of(tmp_path / "at once", name) for name in asked["only"]
    }
    callbacks = {(row["correlation_key"], str(row["date"]), row["outcome"]) for row in rows_of(tmp_path / "t", "callbacks")}
    assert callbacks == {
        ("far", "2026-11-16", "pending"),
        ("far", "2026-11-17", "orphan"),
        ("near", "2026-11-16", "ok"),
        ("again", "2026-11-16", "ok"),
        ("again", "2026-11-17", "orphan"),
    }
    flows = [(row["correlation_key"], str(row["date"]), row["sightings"]) for row in rows_of(tmp_path / "t", "flows")]
    assert sorted(flows) == [
        ("again", "2026-11-16", 4),
        ("again", "2026-11-17", 2),
        ("far", "2026-11-16", 2),
        ("far", "2026-11-17", 2),
        ("long", "2026-11-16", 60),
        ("long", "2026-11-17", 48),
        ("near", "2026-11-16", 4),
    ]
    assert len(rows_of(tmp_path / "t", "hops")) == 54 + 7


def test_days_that_somebody_deleted_stay_deleted(pipeline, days, tmp_path):
    captures, _ = days
    only = frozenset({"messages"})
    pipeline(captures, tmp_path / "t", only=only).run()
    for table in ("messages", "rejects"):
        shutil.rmtree(tmp_path / "t" / table / "date=2026-11-16")
    summary = pipeline(captures, tmp_path / "t", only=only).run()
    assert not summary.changed
    assert summary.tables["messages"].rows == len(rows_of(tmp_path / "t", "messages"))


def test_a_writer_at_work_is_followed(pipeline, tmp_path):
    """What a writer has written is taken while its segment is open, and the rest when it is sealed."""
    writer = CaptureWriter(str(tmp_path / "c"), owner=b"N1", wall_ns=lambda: START_NS)
    writer.start()
    only = frozenset({"messages"})
    counts = []
    for first in (1, 4):
        writer.write(records(first, 3))
        counts.append(pipeline(tmp_path / "c", tmp_path / "t", only=only).run().tables["messages"].rows)
    writer.close()
    summary = pipeline(tmp_path / "c", tmp_path / "t", only=only).run()
    assert [*counts, summary.tables["messages"].rows] == [3, 6, 6]
    moments = [row["seen_at"] for row in rows_of(tmp_path / "t", "messages")]
    assert all(moment > datetime(2026, 1, 1, tzinfo=UTC) for moment in moments)
