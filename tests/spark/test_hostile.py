"""Whatever a capture holds, the tables are made: odd rows are rows, and end no job."""

import json
import random
from itertools import count, product

import msgspec
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from hopline.capture.jsonl import Import
from hopline.capture.record import DIRECTIONS, Records
from hopline.capture.writer import CaptureWriter
from hopline.payload.service import MessageContract, RegisterExternalRoute, RouteRegistration
from hopline.spark import callbacks, edges, expiries, flows, hops, routes, signatures
from hopline.spark.moves import MOST_SIGHTINGS
from hopline.spark.run import Asked, Pipeline
from hopline.wire import Message, MessageType, RoutingEntry, encode
from tests.spark import odd
from tests.spark.lake import rows_of
from tests.spark.made import Tables
from tests.strategies import LAYOUTS, messages

EDGES = (0, 1, -1, 2**63 - 1, -(2**63), 2**61, 1_790_000_000_000_000_000, -1_790_000_000_000_000_000)


def odd_messages() -> list[list[bytes]]:
    """Some messages of every layout, to the edges of each field."""
    found: list[list[bytes]] = []

    @settings(
        max_examples=25, database=None, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(st.data())
    def draw(data):
        for format, variant in LAYOUTS:
            message = data.draw(messages(format, variant))
            found.append(encode(message, format, variant or None))

    draw()
    return found


def odd_times() -> Records:
    """Requests and answers between two nodes, and announcements, each with times from one edge to the other."""
    rows = []
    for number, (begun, ended) in enumerate(product(EDGES, EDGES)):
        routes = (RouteRegistration(b"\x01A", (MessageContract(1, b"ORDER"),)),)
        told = RegisterExternalRoute("tcp://n:1", b"%d" % number, routes)
        said = Message(identity=told.identity, version=1, body=told.write())
        rows += [(begun, "a", "wire_in", said, ""), (ended, "b", "wire_in", said, "")]
        for source, target in ("ab", "ba"):
            entry = RoutingEntry("tcp://x:1", source.encode())
            message = Message(
                identity=b"ORDER",
                version=1,
                correlation_id=f"{number}{source}".encode(),
                hops=1,
                routing=(entry,),
                ttl_ticks=(1, 2**63 - 1, -1)[number % 3],
                callback_points=(MessageType(b"DONE", 1),),
                callback_key=number + 1,
                callback_receiver_identity=b"\0" + source.encode(),
            )
            answer = msgspec.structs.replace(message, identity=b"DONE", receiver_identity=b"\0" + source.encode())
            rows += [(begun, source, "wire_out", message, target), (ended, target, "wire_in", message, "")]
            rows += [(ended, target, "wire_out", answer, source), (begun, source, "wire_in", answer, "")]
    return Records(
        seen_ns=[row[0] for row in rows],
        seq=list(range(1, len(rows) + 1)),
        tap=[row[2] for row in rows],
        frames=[encode(msgspec.structs.replace(row[3], socket_identity=row[4].encode())) for row in rows],
        node=[row[1] for row in rows],
        body_size=[2**62 for _ in rows],  # so that two of them are too many
    )


def test_messages_to_the_edges_of_each_field_end_no_job(spark, tmp_path):
    rng = random.Random(1)
    frames = odd_messages()
    # Equal ones too, and such as belong to each other: twice, at several places.
    frames += rng.choices(frames, k=len(frames)) + [[b"junk"]] * 3 + [encode(Message())]
    writer = CaptureWriter(str(tmp_path), owner=b"odd")
    writer.start()
    numbers = count(1)
    taps = list(DIRECTIONS)
    writer.write(
        Records(
            seen_ns=[rng.choice(EDGES) if rng.random() < 0.3 else rng.randrange(10**18) for _ in frames],
            seq=[next(numbers) for _ in frames],
            tap=[rng.choice(taps) for _ in frames],
            frames=frames,
            node=[rng.choice(["a", "b", "\U0001f40d", ""]) for _ in frames],
            encoded=[rng.random() < 0.8 for _ in frames],
            body_kept=[rng.choice(["whole", "cut", "none"]) for _ in frames],
        )
    )
    times = odd_times()
    writer.write(times)
    writer.close()
    tables = Tables(spark, str(tmp_path))
    assert tables.messages.count() == tables.sightings.count() == len(frames) - 3 + len(times)
    made = [
        hops.hops(tables.moves),
        callbacks.callbacks(tables.answers),
        flows.flows(tables.messages, tables.answers, tables.moves, tables.fates, tables.verdicts),
        edges.edges(tables.messages, tables.moves, tables.answers),
        expiries.expiries(tables.fates),
        signatures.signatures(tables.verdicts),
        routes.routes(tables.messages, skews=hops.skews(tables.moves), verdicts=tables.verdicts),
    ]
    for table in made:
        table.write.format("noop").mode("overwrite").save()
    total = signatures.signatures(tables.verdicts).groupBy().sum("messages").collect()[0][0]
    assert total == tables.messages.where("encoded").count()


def test_records_of_any_time_end_no_run_and_are_found_in_their_days(spark, tmp_path):
    """From the first time that there is to the last; and each moment before 1970 is of the day, hour and second it is in."""
    days = {-(2**63): "1677-09-21", -1: "1969-12-31", 2**63 - 1: "2262-04-11"}
    lines = []
    for number, seen_ns in enumerate(days, 1):
        asked = Message(
            identity=b"ORDER",
            version=1,
            correlation_id=b"%d" % seen_ns,
            hops=1,
            routing=(RoutingEntry("tcp://a:1", b"a"),),
            ttl_ticks=1,
            callback_points=(MessageType(b"DONE", 1),),
            callback_key=number,
            callback_receiver_identity=b"\0a",
        )
        frames = [frame.hex() for frame in encode(asked)]
        for node, direction in (("a", "out"), ("b", "in")):
            line = {"seen_ns": seen_ns, "node": node, "direction": direction, "socket": "", "frames": frames}
            lines.append(json.dumps(line))
    (tmp_path / "odd.jsonl").write_text("\n".join(lines))
    with Import(str(tmp_path / "c")) as capture:
        capture.add(tmp_path / "odd.jsonl")

    tables = tmp_path / "t"
    Pipeline(str(tmp_path / "c"), str(tables), Asked(), session=lambda _: spark).run()

    for name, each in {"messages": 2, "hops": 1, "callbacks": 1, "flows": 1, "edges": 2, "expiries": 1}.items():
        assert sorted(str(row["date"]) for row in rows_of(tables, name)) == sorted([*days.values()] * each), name
    begun = {str(row["date"]): str(row["hour"]) for row in rows_of(tables, "signatures")}
    assert begun == {
        "1677-09-21": "1677-09-21 00:00:00+00:00",
        "1969-12-31": "1969-12-31 23:00:00+00:00",
        "2262-04-11": "2262-04-11 23:00:00+00:00",
    }
    assert {row["sent_at"] for row in rows_of(tables, "hops")} == {row["seen_at"] for row in rows_of(tables, "messages")}


def test_one_flow_of_everything_from_many_segments_and_garbage(spark, tmp_path):
    """All that is odd, in one run: it is over soon, and the tables say what there was."""
    captures = tmp_path / "c"
    for _ in range(500):  # tiny segments, each a file of its own
        odd.write(captures, odd.chatter(2))
    for sightings in (odd.chatter(10_000), odd.echoes(3 * MOST_SIGHTINGS), odd.crowd(3 * MOST_SIGHTINGS), odd.twins(2000)):
        odd.write(captures, sightings)
    garbage = odd.write_garbage(captures, 100_000)
    seen = 500 * 4 + 20_000 + 3 * MOST_SIGHTINGS + 3 * MOST_SIGHTINGS + 1 + 2000

    summary = Pipeline(str(captures), str(tmp_path / "t"), Asked(), session=lambda _: spark).run()

    assert (summary.segments, summary.tables["messages"].rows) == (505, seen)
    (reject,) = rows_of(tmp_path / "t", "rejects")
    assert reject["event_id"].startswith(garbage.removesuffix(".arrows"))
    assert reject["code"] == "CAPTURE_DAMAGED"
    (flow,) = rows_of(tmp_path / "t", "flows")  # one correlation id for all
    assert (flow["correlation_key"], flow["sightings"]) == (odd.FLOW.decode(), seen)
    found = rows_of(tmp_path / "t", "hops")
    beyond = [row["identity_key"] for row in found if row["matched_by"] == "too many"]
    assert sorted(beyond) == ["CROWD", "ECHO"]  # that not all were looked at is said
    assert sum(row["identity_key"] == "ECHO" for row in found) == MOST_SIGHTINGS + 1
    skews = {(row["from_node_key"], row["to_node_key"], row["skew_ms"]) for row in found if row["identity_key"] == "TICK"}
    assert skews == {("a", "b", 3_600_000.0), ("b", "a", -3_600_000.0)}  # clocks an hour apart
    took = {
        row["p50_ms"] for row in rows_of(tmp_path / "t", "edges") if row["source_key"] == "a" and row["target_key"] == "b"
    }
    assert took == {1.0}
