"""`format("hopline")`: the rows of a capture as Spark gives them, in a batch and in a stream."""

import random
import threading
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from hopline.capture import open_capture
from hopline.capture.filter import parse_filter
from hopline.capture.messages import sightings
from hopline.capture.predicate import mask
from hopline.capture.record import Records
from hopline.capture.tables import DEFAULT_COLUMNS, MESSAGES, REJECTS
from hopline.wire import Message, encode
from tests.unit.capture.world import START_NS, killed_import, make_segment, records, write_lines

GARBAGE = "20261115T231501123456Z-N9-99999999-000001"


# --- what is to come --------------------------------------------------------------------------------------------------


def expected(path, *, columns=DEFAULT_COLUMNS, where="", mode="messages", v3_ttl="ms") -> pa.Table:
    """The rows that the capture room makes of the same capture."""
    of = parse_filter(where)
    schema = pa.schema([MESSAGES.field(name) for name in columns]) if mode == "messages" else REJECTS
    found = []
    for segment, first_row, batch in open_capture(str(path)).batches():
        each = sightings(batch, segment=segment.name, first_row=first_row, v3_ttl=v3_ttl, columns=MESSAGES.names)
        table = each.messages if mode == "messages" else each.rejects
        found.append(table.filter(mask(of, table)).select(schema.names))
    return pa.Table.from_batches(found, schema)


def load(spark: SparkSession, path, **options: object) -> DataFrame:
    return spark.read.format("hopline").options(**{name: str(value) for name, value in options.items()}).load(str(path))


def in_order(table: pa.Table) -> list[dict]:
    """Rows of a table by their event id."""
    return sorted(table.to_pylist(), key=lambda row: row["event_id"])


def assert_same(found: DataFrame, truth: pa.Table) -> None:
    table = found.toArrow()
    assert table.schema.names == truth.schema.names
    assert in_order(table) == in_order(truth)


def read_rows(found: DataFrame) -> int:
    """How many rows the source handed to Spark, before Spark dropped any."""
    found.collect()
    plan = found._jdf.queryExecution().executedPlan()  # noqa: SLF001 - Spark shows its metrics nowhere else
    (scan,) = [node for node in _nodes(plan) if node.nodeName().startswith("BatchScan")]
    return scan.metrics().apply("numOutputRows").value()


def _nodes(plan):
    yield plan
    if plan.nodeName().startswith("AdaptiveSparkPlan"):
        yield from _nodes(plan.executedPlan())
    children = plan.children()
    for number in range(children.size()):
        yield from _nodes(children.apply(number))


@pytest.fixture
def mixed(tmp_path):
    """Some nodes, taps and times; all formats; and things that are no messages."""
    for number in range(1, 5):
        kinds = [
            encode(
                Message(identity=b"ORDER.%d" % number, version=1, hops=number % 3, body=b"body", ttl_ticks=50_000), format
            )
            for format in ("v3", "v4", "v5", "v6")
        ]
        count = len(kinds) + 1
        batch = Records(
            seen_ns=[START_NS + 1_000_000 * (10 * number + row) for row in range(count)],
            seq=list(range(1, count + 1)),
            tap=["hub_out", "scaleout_in", "actor_in", "hub_in", "wire_in"],
            frames=[*kinds, [b"junk", bytes([number])]],
            node=f"N{number}",
        )
        make_segment(tmp_path, [batch, records(count + 1, 2)], number=number, owner=f"N{number}")
    return tmp_path


# --- a batch ----------------------------------------------------------------------------------------------------------


def test_rows_of_the_reference_network(spark, reference):
    truth = expected(reference)
    assert truth.num_rows > 1500
    assert_same(load(spark, reference), truth)
    assert load(spark, reference, mode="rejects").count() == 0


def test_rows_of_all_formats_with_all_columns(spark, mixed):
    assert_same(load(spark, mixed, bodies="true"), expected(mixed, columns=MESSAGES.names))


def test_columns_come_in_the_order_that_is_asked_for(spark, mixed):
    columns = ["hops", "event_id", "trail"]
    assert_same(load(spark, mixed, columns=",".join(columns)), expected(mixed, columns=columns))


def test_a_schema_may_choose_columns_and_change_none(spark, mixed):
    found = spark.read.format("hopline").schema("event_id STRING, hops INT").load(str(mixed))
    assert_same(found, expected(mixed, columns=["event_id", "hops"]))
    with pytest.raises(PySparkException, match="the schema cannot have hops string"):
        spark.read.format("hopline").schema("hops STRING").load(str(mixed)).collect()
    with pytest.raises(PySparkException, match="the schema cannot have version int NOT NULL"):
        spark.read.format("hopline").schema("version INT NOT NULL").load(str(mixed)).collect()


def test_spark_is_told_what_is_never_null(spark, mixed):
    schema = spark.read.format("hopline").load(str(mixed)).schema
    assert {field.name for field in schema if field.nullable} == {
        *("node_key", "tap", "direction", "seq", "encoded", "body_kept"),
        *("version", "version_bytes", "trace_options", "origin_key"),
    }


def test_v3_ttl(spark, mixed):
    columns = ["event_id", "format", "ttl_ms"]
    truths = {unit: expected(mixed, columns=columns, v3_ttl=unit) for unit in ("ms", "ticks")}
    assert truths["ms"] != truths["ticks"]
    for unit, truth in truths.items():
        assert_same(load(spark, mixed, columns=",".join(columns), v3_ttl=unit), truth)


def test_taps(spark, mixed):
    found = load(spark, mixed, columns="event_id,tap", taps="hub_out, actor_in")
    assert_same(found, expected(mixed, columns=["event_id", "tap"], where="tap in (hub_out, actor_in)"))
    assert found.count() == 8


def test_since_and_until(spark, mixed):
    since, until = START_NS + 20_000_000, START_NS + 32_000_000
    columns = ["event_id", "seen_ns"]
    truth = expected(mixed, columns=columns, where=f"seen_ns >= {since} and seen_ns < {until}")
    assert truth.num_rows == 6
    assert_same(load(spark, mixed, columns=",".join(columns), since=since, until=until), truth)
    moment = datetime.fromtimestamp(START_NS // 10**9, UTC).isoformat()
    assert load(spark, mixed, since=moment).count() == expected(mixed).num_rows
    assert load(spark, mixed, until=moment).count() == 0
    assert load(spark, mixed, mode="rejects", since=since, until=until).count() == 1


def test_rejects_are_rows(spark, mixed):
    truth = expected(mixed, mode="rejects")
    assert truth.num_rows == 4
    assert_same(load(spark, mixed, mode="rejects"), truth)


def test_a_filter_in_our_language(spark, mixed):
    where = "identity ~ ORDER.* and not hops == 1 and tap in (hub_out, hub_in)"
    found = load(spark, mixed, columns="event_id", where=where)
    assert_same(found, expected(mixed, columns=["event_id"], where=where))
    assert 0 < read_rows(found) < expected(mixed).num_rows


def test_one_sighting_of_many_segments(spark, mixed):
    everything = expected(mixed, columns=["event_id"])["event_id"].to_pylist()
    where = f"event_id in ('{everything[3]}', '{everything[-3]}') and hops >= 0"
    found = load(spark, mixed, where=where, shareBytes=2**40)  # one task
    assert_same(found, expected(mixed, where=where))
    assert sorted(found.toArrow()["event_id"].to_pylist()) == sorted([everything[3], everything[-3]])


def test_an_empty_capture_has_no_rows(spark, tmp_path):
    assert load(spark, tmp_path).count() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"colums": "hops"}, "did you mean columns?"),
        ({"columns": "hopps"}, "did you mean hops?"),
        ({"where": "hops > 1 and hopps > 1"}, "did you mean hops? (character 14 of the filter)"),
    ],
)
def test_a_wrong_option_is_said_at_once(spark, mixed, options, said):
    with pytest.raises(AnalysisException) as raised:
        load(spark, mixed, **options)
    *_, ours, sqlstate = str(raised.value).splitlines()
    assert ours.startswith("hopline.errors.InputError: the option ")
    assert ours.endswith(said)
    assert "SQLSTATE" in sqlstate


def test_a_capture_that_is_not_there_is_said(spark, tmp_path):
    with pytest.raises(PySparkException, match="is no folder"):
        load(spark, tmp_path / "none").count()


def test_json_lines_that_were_not_imported_are_said(spark, tmp_path):
    (tmp_path / "client.jsonl").write_text("")
    with pytest.raises(PySparkException, match="type: hopline capture import"):
        load(spark, tmp_path).count()


def test_every_session_finds_the_format_and_needs_no_settings(spark, mixed):
    found = load(spark.newSession(), mixed, columns="event_id,hops")
    assert_same(found.where("hops = 1"), expected(mixed, columns=["event_id", "hops"], where="hops == 1"))


# --- which rows -------------------------------------------------------------------------------------------------------


def test_two_filters_over_one_frame_do_not_meet(spark, mixed):
    """What Spark hands to a reader it keeps with the relation: each of these got the rows of the other."""
    found = load(spark, mixed, columns="event_id,hops")
    both = found.where("hops = 1").union(found.where("hops = 2"))
    apart = [found.where(f"hops = {hops}").count() for hops in (1, 2)]
    assert [both.where(f"hops = {hops}").count() for hops in (1, 2)] == apart
    assert all(apart)


def test_what_does_not_pass_the_option_is_not_handed_to_spark(spark, mixed):
    found = load(spark, mixed, columns="event_id,hops,tap", where="hops == 1 and tap == hub_in")
    count = found.count()
    assert 0 < count < expected(mixed).num_rows
    assert read_rows(found) == count


def test_filters_on_rejects(spark, mixed):
    found = load(spark, mixed, mode="rejects").where("node_key = 'N2' AND code LIKE 'WIRE%' AND tap = 'wire_in'")
    (row,) = found.toArrow().to_pylist()
    assert row["node_key"] == "N2"


# --- files that are not as they should be -----------------------------------------------------------------------------


def test_a_torn_segment_gives_what_is_whole(spark, tmp_path):
    torn = make_segment(tmp_path, [records(1, 5), records(6, 5)], seal=None)
    torn.write_bytes(torn.read_bytes()[:-100])
    found = load(spark, tmp_path, columns="event_id").toArrow()["event_id"].to_pylist()
    assert sorted(found) == [f"{torn.stem}:{row}" for row in range(5)]


def test_what_an_import_has_left_open_is_there_to_look_at(spark, tmp_path):
    """A read remembers nothing, so that it may show what a later import replaces; what remembers waits for the seal."""
    killed_import(write_lines(tmp_path / "a.jsonl", 1500), tmp_path / "c")
    assert_same(load(spark, tmp_path / "c"), expected(tmp_path / "c"))
    assert load(spark, tmp_path / "c").count() == 1024


def test_a_sealed_segment_that_lost_its_end_gives_what_is_whole(spark, tmp_path):
    cut = make_segment(tmp_path, [records(1, 5), records(6, 5)])
    data = cut.read_bytes()
    cut.write_bytes(data[: len(data) * 2 // 3])
    assert_same(load(spark, tmp_path), expected(tmp_path))
    assert load(spark, tmp_path).count() == 5


def test_a_file_of_garbage_is_a_reject_and_the_others_are_read(spark, mixed):
    (mixed / f"{GARBAGE}.arrows").write_bytes(random.Random(1).randbytes(10_000))
    (mixed / "empty.arrows").write_bytes(b"")
    (mixed / "torn.open").write_bytes(b"\xff\xff\xff\xff")
    assert_same(load(spark, mixed), expected(mixed))
    rejects = load(spark, mixed, mode="rejects").toArrow()
    (row,) = rejects.filter(pc.equal(rejects["code"], "CAPTURE_DAMAGED")).to_pylist()
    assert row["event_id"] == f"{GARBAGE}@0"
    assert rejects.num_rows == 5


def test_a_segment_that_is_deleted_after_planning_does_not_stop_the_job(spark, mixed):
    found = load(spark, mixed, columns="event_id", shareBytes=40_000)  # a task for each segment
    rows = found.rdd  # is planned once
    assert rows.getNumPartitions() == 4
    sorted(mixed.glob("*.arrows"))[1].unlink()
    left = [row.event_id for row in rows.collect()]
    assert sorted(left) == sorted(expected(mixed, columns=["event_id"])["event_id"].to_pylist())


def test_many_tiny_segments_are_few_tasks(spark, tmp_path):
    for number in range(1, 301):
        make_segment(tmp_path, [records(1, 2)], number=number)
    found = load(spark, tmp_path, columns="event_id")
    assert found.rdd.getNumPartitions() <= 2
    assert_same(found, expected(tmp_path, columns=["event_id"]))


def test_a_large_segment_is_many_tasks(spark, tmp_path):
    file = make_segment(tmp_path, [records(1 + 10 * number, 10) for number in range(40)])
    found = load(spark, tmp_path, columns="event_id,seq", shareBytes=file.stat().st_size // 8)
    assert found.rdd.getNumPartitions() == 8
    assert_same(found, expected(tmp_path, columns=["event_id", "seq"]))


# --- a stream ---------------------------------------------------------------------------------------------------------


class Stream:
    """A stream of event ids into Parquet, which ends when all is taken, and can be run again."""

    def __init__(self, spark: SparkSession, path: Path, place: Path, **options: object) -> None:
        self._spark = spark
        self._path = path
        self._place = place
        self._options = {"columns": "event_id", **{name: str(value) for name, value in options.items()}}

    def run(self) -> list:
        """Run until all is taken; what Spark says of each batch."""
        query = (
            self._spark.readStream.format("hopline")
            .options(**self._options)
            .load(str(self._path))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(self._place / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(self._place / "rows"))
        )
        query.awaitTermination()
        return [progress for progress in query.recentProgress if progress["numInputRows"]]

    def rows(self) -> list[str]:
        return sorted(row.event_id for row in self._spark.read.parquet(str(self._place / "rows")).collect())


def event_ids(path: Path) -> list[str]:
    return sorted(expected(path, columns=["event_id"])["event_id"].to_pylist())


@pytest.fixture
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("stream")


def test_available_now_delivers_every_row(spark, tmp_path, place):
    for number in range(1, 31):
        make_segment(tmp_path, [records(1, 10)], number=number)
    stream = Stream(spark, tmp_path, place)
    stream.run()
    assert len(stream.rows()) == 300
    assert stream.rows() == event_ids(tmp_path)


def test_available_now_in_several_batches_delivers_every_row(spark, tmp_path, place):
    for number in range(1, 7):
        make_segment(tmp_path, [records(1, 10)], number=number)
    stream = Stream(spark, tmp_path, place, maxFilesPerTrigger=2)
    assert [progress["numInputRows"] for progress in stream.run()] == [20, 20, 20]
    assert stream.rows() == event_ids(tmp_path)


def test_a_restart_takes_up_where_the_last_run_stopped(spark, tmp_path, place):
    growing = make_segment(tmp_path, [records(1, 5), records(6, 5)], number=1, seal=None)
    data = growing.read_bytes()
    growing.write_bytes(data[:-100])
    doomed = make_segment(tmp_path, [records(1, 3)], number=1, run="aaaaaaaa")
    doomed_ids = [f"{doomed.stem}:{row}" for row in range(3)]
    stream = Stream(spark, tmp_path, place)
    stream.run()
    assert stream.rows() == event_ids(tmp_path)

    assert stream.run() == [], "nothing is new"

    growing.write_bytes(data)
    make_segment(tmp_path, [records(1, 3)], number=2)
    doomed.unlink()
    stream.run()
    assert stream.rows() == sorted([*event_ids(tmp_path), *doomed_ids])

    growing.unlink()
    make_segment(tmp_path, [records(1, 5), records(6, 5), records(11, 5)], number=1)  # the same, with more, and sealed
    stream.run()
    assert stream.rows() == sorted([*event_ids(tmp_path), *doomed_ids])


def test_rejects_of_a_stream_are_those_of_a_batch(spark, mixed, place):
    (mixed / f"{GARBAGE}.arrows").write_bytes(random.Random(1).randbytes(10_000))
    stream = Stream(spark, mixed, place, mode="rejects")
    stream.run()
    batch = sorted(row.event_id for row in load(spark, mixed, mode="rejects").collect())
    assert stream.rows() == batch
    assert len(batch) == 5


def test_a_stream_that_stays_takes_what_comes(spark, tmp_path):
    make_segment(tmp_path, [records(1, 5)], number=1)
    seen: list[str] = []
    came = threading.Condition()

    def take(batch: DataFrame, _number: int) -> None:
        with came:
            seen.extend(row.event_id for row in batch.collect())
            came.notify_all()

    query = (
        spark.readStream.format("hopline").option("columns", "event_id").load(str(tmp_path)).writeStream.foreachBatch(take)
    )
    running = query.start()
    try:
        for number in (2, 3):
            with came:
                assert came.wait_for(lambda: sorted(seen) == event_ids(tmp_path), timeout=60)
            make_segment(tmp_path, [records(1, 5)], number=number)
        with came:
            assert came.wait_for(lambda: sorted(seen) == event_ids(tmp_path), timeout=60)
    finally:
        running.stop()
    assert len(seen) == 15
