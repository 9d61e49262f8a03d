"""Flows counted with Arrow are what their traces say, whatever was seen; and any sightings at all make a tree."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from hopline.capture.flows import find_flows
from hopline.capture.query import Query
from hopline.capture.record import DIRECTIONS, RECORD_SCHEMA
from hopline.capture.trace import TRACE_COLUMNS, build_trace
from hopline.identity import EXCEPTION, RECEIPT, MessageType
from hopline.wire import Distribution, Message, RoutingEntry, encode

NODES = ["a", "b", "c"]
POINTS = [MessageType(b"DONE", 1), EXCEPTION, RECEIPT]


class InMemory:
    """A capture that is no file."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self._records = pa.RecordBatch.from_pylist(records, RECORD_SCHEMA)

    def batches(self, *, columns: Sequence[str]) -> Iterator[tuple[Any, int, pa.RecordBatch]]:
        half = len(self._records) // 2
        for name, start, batch in (("one", 0, self._records.slice(0, half)), ("two", 0, self._records.slice(half))):
            yield SimpleNamespace(name=name), start, batch.select(list(columns))


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    node = st.sampled_from(NODES)
    message = Message(
        identity=draw(st.sampled_from([b"ASK", b"DONE", b"KINO.EXCEPTION"])),
        version=1,
        correlation_id=draw(st.sampled_from([b"f1", b"f1", b"f2", b""])),
        body=draw(st.sampled_from([b"", b"x"])),
        callback_points=tuple(draw(st.lists(st.sampled_from(POINTS), max_size=2, unique=True))),
        callback_key=draw(st.integers(0, 1)),
        callback_receiver_identity=draw(st.sampled_from([b"\0h", b"\0i"])),
        callback_receiver_node_identity=draw(node).encode(),
        distribution=draw(st.sampled_from(Distribution)),
        hops=draw(st.integers(0, 3)),
        ttl_ticks=draw(st.sampled_from([0, 10, -1])),
        routing=tuple(RoutingEntry("tcp://x:1", draw(node).encode()) for _ in range(draw(st.integers(0, 3)))),
    )
    tap = draw(st.sampled_from(sorted(DIRECTIONS)))
    return {
        "seen_ns": draw(st.integers(0, 20)) * 1000,
        "node": draw(node),
        "tap": tap,
        "direction": DIRECTIONS[tap],
        "seq": 1,
        "encoded": True,
        "body_kept": "whole",
        "frames": encode(message),
    }


@given(st.lists(records(), min_size=1, max_size=12))
def test_flows_are_as_their_traces(seen: list[dict[str, Any]]) -> None:
    capture: Any = InMemory(seen)
    by_flow = defaultdict(list)
    for each in Query().read(capture, TRACE_COLUMNS):
        for row in each.messages.to_pylist():
            by_flow[row["correlation_key"]].append(row)
    by_flow.pop("", None)
    traces = {key: build_trace(rows) for key, rows in by_flow.items()}
    found = find_flows(capture, Query(), limit=None)
    assert found.flows == len(traces)
    assert {row.correlation for row in found.shown} == set(traces)
    for row in found.shown:
        trace = traces[row.correlation]
        assert (row.outcome, row.messages, row.sightings) == (trace.outcome, trace.messages, trace.sightings)
        assert (row.nodes, row.duration_ms) == (len(trace.nodes), trace.duration_ms)


@given(st.lists(records(), min_size=1, max_size=12))
def test_any_sightings_make_a_tree(seen: list[dict[str, Any]]) -> None:
    capture: Any = InMemory(seen)
    rows = [row for each in Query().read(capture, TRACE_COLUMNS) for row in each.messages.to_pylist()]
    trace = build_trace(rows)
    depths = [step.depth for step in trace.steps]
    assert depths[0] == 0
    assert all(after <= before + 1 for before, after in pairwise(depths))
    assert sorted(each.event_id for step in trace.steps for each in step.sightings) == sorted(
        row["event_id"] for row in rows
    )
    assert msgspec.json.decode(msgspec.json.encode(trace))["sightings"] == len(rows)
