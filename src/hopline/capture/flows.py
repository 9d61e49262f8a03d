"""The flows of a capture: which took longest, which failed, who still waits for an answer.

Sightings are grouped by correlation id with Arrow, some hundred thousand at a time, and the groups are grouped again: what
is held is a few numbers a flow, and no message. Only for the flows that are shown the sightings are read once more, to count
their messages and to read what failed. It knows no command line.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hopline.capture.filter import fields_of
from hopline.capture.grouping import Groups
from hopline.capture.itinerary import ARRIVALS_OF_ANSWERS, NS_PER_MS
from hopline.capture.messages import keys_of
from hopline.capture.predicate import mask
from hopline.capture.query import Query
from hopline.capture.store import Capture
from hopline.capture.tables import MESSAGES
from hopline.capture.trace import Failure, Outcome, read_failure
from hopline.errors import PayloadError
from hopline.flow.columnar import are_flows
from hopline.identity import EXCEPTION
from hopline.wire.columnar import decode_batch

Show = Literal["slowest", "failed", "unanswered", "latest"]

_EXCEPTION_KEY: Final = EXCEPTION.identity.decode()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class FlowRow(msgspec.Struct, frozen=True):
    """One flow. `messages` counts distinct messages, and equal ones as often as they were sent."""

    correlation: str
    started_at: datetime
    started_ns: int
    duration_ms: float
    outcome: Outcome
    root_identity: str
    root_node: str
    messages: int
    sightings: int
    nodes: int
    callbacks_ok: int
    callbacks_exception: int
    callbacks_pending: int
    failure: Failure | None = None


class Flows(msgspec.Struct, frozen=True):
    """How many flows there are, of each outcome too, and those that were asked for."""

    flows: int
    outcomes: dict[str, int]
    shown: list[FlowRow]


def find_flows(capture: Capture, query: Query, *, show: Show = "slowest", limit: int | None = 20) -> Flows:
    """Find flows: the slowest; those that failed, the latest first; those without an answer, the oldest first; the latest.

    A flow is meant if one of its sightings passes the filter; then all of them count that are within the time.

    Raises:
        CaptureError: the capture cannot be read.
    """
    flows = _all_flows(capture, query)
    outcomes = {entry["values"]: entry["counts"] for entry in pc.value_counts(flows["outcome"]).to_pylist()}
    chosen = _chosen(flows, show, limit)
    counts, failures = _looked_at_again(capture, query, chosen)
    shown = [
        FlowRow(
            correlation=key,
            started_at=_at(row["started_ns"]),
            started_ns=row["started_ns"],
            duration_ms=row["duration_ns"] / NS_PER_MS,
            outcome=row["outcome"],
            root_identity=row["root_identity"],
            root_node=row["root_node"],
            messages=counts.get(row["correlation_id"], 0),
            sightings=row["sightings"],
            nodes=row["nodes"],
            callbacks_ok=row["answers"],
            callbacks_exception=row["exceptions"],
            callbacks_pending=row["pending"],
            failure=failures.get(row["correlation_id"]),
        )
        for row, key in zip(chosen.to_pylist(), keys_of(chosen["correlation_id"].combine_chunks()).to_pylist(), strict=True)
    ]
    return Flows(len(flows), outcomes, shown)


def _all_flows(capture: Capture, query: Query) -> pa.Table:
    """A row for each flow that is meant."""
    flows = Groups(
        _NARROW,
        ["correlation_id"],
        {
            "rank": ("rank", "first"),
            "first_ns": ("seen_ns", "first"),
            "root_identity": ("identity_key", "first"),
            "root_node": ("node_key", "first"),
            "started_ns": ("seen_ns", "min"),
            "ended_ns": ("seen_ns", "max"),
            "sightings": ("one", "sum"),
            "is_meant": ("is_meant", "max"),
            "has_failed": ("is_exception", "max"),
        },
        order=("rank", "first_ns"),
    )
    nodes = Groups(_NARROW, ["correlation_id", "node_key"])
    asks = Groups(
        _NARROW,
        ["correlation_id", "callback_key", "callback_receiver_key"],
        {name: (name, "max") for name in ("is_request", "is_answer", "is_failure", "has_arrived", "is_at_hub")},
    )
    for rows in _narrow(capture, query):
        flows.add(rows)
        nodes.add(rows)
        asks.add(rows.filter(rows["has_points"]))
    found = flows.result()
    found = found.filter(pc.equal(found["is_meant"], 1))
    found = _joined(found, nodes.result().group_by("correlation_id").aggregate([([], "count_all")]), {"nodes": "count_all"})
    return _with_outcomes(_joined(found, _callbacks(asks.result()), {n: n for n in ("answers", "exceptions", "pending")}))


_NARROW: Final = pa.schema(
    [
        ("correlation_id", pa.binary()),
        ("seen_ns", pa.int64()),
        ("node_key", pa.string()),
        ("identity_key", pa.string()),
        ("callback_key", pa.int64()),
        ("callback_receiver_key", pa.string()),
        ("rank", pa.int32()),
        ("one", pa.int64()),
        ("has_points", pa.bool_()),
        ("is_meant", pa.int8()),
        ("is_exception", pa.int8()),
        ("is_request", pa.int8()),
        ("is_answer", pa.int8()),
        ("is_failure", pa.int8()),
        ("has_arrived", pa.int8()),
        ("is_at_hub", pa.int8()),
    ]
)


def _narrow(capture: Capture, query: Query) -> Iterator[pa.RecordBatch]:
    """What the groups are made of: numbers, where there are texts and lists in the messages."""
    made_of = {"is_callback", "callback_points", "callback_receiver_node_key", "parent_trail", "tap"}
    made_of |= fields_of(query.where)
    columns = sorted(made_of.union(_NARROW.names) & set(MESSAGES.names))
    for part in query.parts(capture, columns):
        messages = query.decode(part, columns).messages
        messages = messages.filter(are_flows(messages["correlation_id"]))
        is_callback = messages["is_callback"]
        is_exception = pc.equal(messages["identity_key"], _EXCEPTION_KEY)
        # What begins a flow has inherited nothing and answers nobody; only after that the clock is asked.
        inherited = pc.list_value_length(messages["parent_trail"])
        made = {
            "rank": pc.add(pc.multiply(inherited, 2), is_callback.cast(pa.int32())),
            "one": _ones(len(messages)),
            "has_points": pc.greater(pc.list_value_length(messages["callback_points"]), 0),
            "is_meant": mask(query.where, messages),
            "is_exception": is_exception,
            "is_request": pc.invert(is_callback),
            "is_answer": pc.and_not(is_callback, is_exception),
            "is_failure": pc.and_(is_callback, is_exception),
            "has_arrived": pc.and_(is_callback, pc.is_in(messages["tap"], pa.array(ARRIVALS_OF_ANSWERS))),
            "is_at_hub": pc.equal(messages["node_key"], messages["callback_receiver_node_key"]),
        }
        columns_of = (made[field.name] if field.name in made else messages[field.name] for field in _NARROW)
        yield pa.RecordBatch.from_arrays(
            [column.cast(field.type) for column, field in zip(columns_of, _NARROW, strict=True)], schema=_NARROW
        )


def _ones(size: int) -> pa.Array:
    return pa.array(np.ones(size, np.int64))


def _callbacks(asks: pa.Table) -> pa.Table:
    """For each flow how many who wait got an answer, an exception, or nothing.

    An answer counts if it was seen to arrive. Where nothing was seen of the node that waits, it counts if it was sent.
    """
    counts = pc.or_(pc.equal(asks["has_arrived"], 1), pc.equal(asks["is_at_hub"], 0))
    answered = pc.and_(pc.equal(asks["is_answer"], 1), counts)
    failed = pc.and_(pc.equal(asks["is_failure"], 1), counts)
    got_nothing = pc.and_not(pc.equal(asks["is_request"], 1), pc.or_(answered, failed))
    columns = {"answers": answered, "exceptions": failed, "pending": got_nothing}
    table = pa.table({"correlation_id": asks["correlation_id"], **{n: c.cast(pa.int64()) for n, c in columns.items()}})
    summed = table.group_by("correlation_id").aggregate([(name, "sum") for name in columns])
    return summed.rename_columns([name.removesuffix("_sum") for name in summed.column_names])


def _joined(flows: pa.Table, other: pa.Table, names: dict[str, str]) -> pa.Table:
    """Add columns of another table, 0 where it has no row for a flow."""
    place = pc.index_in(flows["correlation_id"], other["correlation_id"].combine_chunks())
    for new, old in names.items():
        flows = flows.append_column(new, pc.fill_null(other[old].take(place), 0))
    return flows


def _with_outcomes(flows: pa.Table) -> pa.Table:
    outcome = pc.case_when(
        pc.make_struct(pc.equal(flows["has_failed"], 1), pc.greater(flows["pending"], 0), pc.greater(flows["answers"], 0)),
        "exception",
        "pending",
        "ok",
        pa.scalar("one-way"),
    )
    duration = pc.subtract(flows["ended_ns"], flows["started_ns"])
    return flows.append_column("outcome", outcome).append_column("duration_ns", duration)


def _chosen(flows: pa.Table, show: Show, limit: int | None) -> pa.Table:
    if show == "failed":
        flows = flows.filter(pc.equal(flows["outcome"], "exception"))
    elif show == "unanswered":
        flows = flows.filter(pc.greater(flows["pending"], 0))
    keys = {
        "slowest": [("duration_ns", "descending"), ("started_ns", "ascending")],
        "failed": [("started_ns", "descending")],
        "unanswered": [("started_ns", "ascending")],
        "latest": [("started_ns", "descending")],
    }
    order = pc.sort_indices(flows, sort_keys=keys[show])
    return flows.take(order if limit is None else order.slice(0, limit))


def _looked_at_again(capture: Capture, query: Query, chosen: pa.Table) -> tuple[dict[bytes, int], dict[bytes, Failure]]:
    """Count the messages of the chosen flows, and read what failed in them."""
    if not len(chosen):
        return {}, {}
    wanted = chosen["correlation_id"].combine_chunks()
    spans = _Spans(np.asarray(chosen["started_ns"]), np.asarray(chosen["ended_ns"]))
    places = ["correlation_id", "message_uid", "distribution", "node_key", "tap", "hops"]
    sent = Groups(MESSAGES.append(pa.field("one", pa.int64())), places, {"times": ("one", "sum")})
    failures: dict[bytes, Failure] = {}
    columns = [*places, "identity_key", "body_kept", "body"]
    for part in query.parts(capture, columns):
        part = part.filter(spans.hold(np.asarray(part.seen_ns)))  # noqa: PLW2901
        decoded = decode_batch(part.records, v3_ttl=query.v3_ttl, columns=["row", "correlation_id"]).messages
        rows = decoded["row"].filter(pc.is_in(decoded["correlation_id"], wanted))
        if not len(rows):
            continue
        messages = query.decode(part.take(rows), columns).messages
        # A router sees a message that it holds back twice.
        is_sent = pc.not_equal(messages["tap"], "router_in").cast(pa.int64())
        sent.add(messages.append_column("one", is_sent))
        is_failure = pc.and_(pc.equal(messages["identity_key"], _EXCEPTION_KEY), pc.equal(messages["body_kept"], "whole"))
        _read_failures(messages.filter(is_failure), failures)
    times = sent.result().group_by(["correlation_id", "message_uid", "distribution"]).aggregate([("times", "max")])
    # A broadcast is one message, to however many it goes.
    counted = pc.if_else(pc.equal(times["distribution"], "broadcast"), 1, pc.max_element_wise(times["times_max"], 1))
    summed = times.append_column("messages", counted).group_by("correlation_id").aggregate([("messages", "sum")])
    counts = dict(zip(summed["correlation_id"].to_pylist(), summed["messages_sum"].to_pylist(), strict=True))
    return counts, failures


class _Spans:
    """Spans of time, of which some may overlap: what lies in none of them need not be decoded."""

    def __init__(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        order = np.argsort(starts)
        self._starts = starts[order]
        # Of those that began before a moment, how far the farthest reaches.
        self._reach = np.maximum.accumulate(ends[order])

    def hold(self, times: NDArray[np.int64]) -> pa.Array:
        """Which of the times lie in a span."""
        begun = np.searchsorted(self._starts, times, "right")
        return pa.array((begun > 0) & (times <= self._reach[begun - 1]))


def _read_failures(messages: pa.RecordBatch, failures: dict[bytes, Failure]) -> None:
    """Read the first failure of each flow that has none yet."""
    known = pa.array(failures, pa.binary())
    new = messages.filter(pc.invert(pc.is_in(messages["correlation_id"], known)))
    for row in new.select(["correlation_id", "body"]).to_pylist():
        if row["correlation_id"] not in failures:
            try:
                failures[row["correlation_id"]] = read_failure(row["body"])
            except PayloadError:
                failures[row["correlation_id"]] = Failure("", "")


def _at(seen_ns: int) -> datetime:
    return _EPOCH + timedelta(microseconds=seen_ns // 1000)
