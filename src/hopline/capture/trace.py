"""The trace: one flow as a tree, made of its sightings. Who sent what to whom, when, how long it took, what is missing.

How messages are told apart and put into a tree is in `itinerary.py`. What is missing is said, never guessed: an end of a
send that was not seen, a hop, an answer, the request. This file is pure, rows in, values out: it knows no files and no
terminal.
"""

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

import msgspec

from hopline.capture.itinerary import NS_PER_MS, RECEIPT_KEY, Itinerary, Row, find_parents, in_tree_order, tell_apart
from hopline.errors import PayloadError
from hopline.identity import EXCEPTION
from hopline.payload.service import ExceptionMessage

TRACE_COLUMNS: Final = (
    "event_id",
    "seen_ns",
    "node_key",
    "tap",
    "direction",
    "format",
    "message_uid",
    "identity_key",
    "version",
    "version_bytes",
    "partition_key",
    "correlation_key",
    "receiver_key",
    "receiver_node_key",
    "distribution",
    "addressing",
    "callback_key",
    "callback_receiver_key",
    "callback_receiver_node_key",
    "callback_points",
    "is_callback",
    "hops",
    "trail",
    "origin_key",
    "parent_trail",
    "ttl_ms",
    "body_kept",
    "body_size",
    "body",
)
"""What a trace is made of."""

Kind = Literal["request", "message", "callback", "exception", "receipt"]
Outcome = Literal["ok", "exception", "pending", "one-way"]


class Sighting(msgspec.Struct, frozen=True):
    """A message at a tap: when, since the flow began, and since the sighting before it on its way, if that was seen."""

    event_id: str
    seen_ns: int
    at_ms: float
    node: str
    tap: str
    direction: str
    hops: int
    latency_ms: float | None = None
    is_network: bool = False


class Failure(msgspec.Struct, frozen=True):
    """What an exception says of itself."""

    type: str
    text: str


class Step(msgspec.Struct, frozen=True):
    """One message of the flow.

    `depth` is how far it is from the beginning of the flow, and steps stand in the order of the tree: the parent of a step
    is the last one before it with a smaller depth. `made_after_ms` is how long after the arrival of its parent it was made.
    `times` is how often it was sent: equal messages are one step.
    """

    depth: int
    kind: Kind
    identity: str
    version: int | str
    partition: str
    uid: str
    addressing: str
    receiver: str
    receiver_node: str
    origin: str | None
    trail: list[str]
    waits_for: list[str]
    ttl_ms: float
    body_size: int
    format: str
    made_after_ms: float | None
    times: int
    sightings: list[Sighting]
    failure: Failure | None = None
    missing: list[str] = []


class Trace(msgspec.Struct, frozen=True):
    """A flow. `outcome` is that of all who wait for a callback: exception if one got one, pending if one got nothing."""

    correlation: str
    started_at: datetime
    duration_ms: float
    outcome: Outcome
    nodes: list[str]
    messages: int
    sightings: int
    steps: list[Step]
    missing: list[str]


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EXCEPTION_KEY: Final = EXCEPTION.identity.decode()


def build_trace(rows: Iterable[Row], *, sightings: int | None = None) -> Trace:
    """Make the tree of the sightings of one flow: rows of MESSAGES with TRACE_COLUMNS, at least one.

    `sightings` is how many there are, if not all of them are given.
    """
    messages = tell_apart(list(rows))
    first = min(messages, key=lambda message: (len(message.inherited), message.is_callback, message.first["seen_ns"]))
    zero_ns = first.first["seen_ns"]
    find_parents(messages)
    steps: list[Step] = []
    missing = _missing_answers(messages)
    for message, depth in in_tree_order(messages):
        steps.append(_step(message, depth, zero_ns, missing.get(id(message), [])))
    times = [row["seen_ns"] for message in messages for row in message.rows]
    seen = sum(len(message.rows) for message in messages)
    left_out = (sightings or seen) - seen
    notes = [f"{left_out} more sightings of this flow are not shown"] if left_out else []
    return Trace(
        correlation=first.first["correlation_key"],
        started_at=_EPOCH + timedelta(microseconds=min(times) // 1000),
        duration_ms=(max(times) - min(times)) / NS_PER_MS,
        outcome=_outcome(messages),
        nodes=sorted({row["node_key"] for message in messages for row in message.rows}),
        messages=sum(message.times for message in messages),
        sightings=seen + left_out,
        steps=steps,
        missing=notes + _skews(messages),
    )


def _missing_answers(messages: list[Itinerary]) -> dict[int, list[str]]:
    """What each message lacks: an answer, the request that it answers, or the rest of its way."""
    missing: dict[int, list[str]] = defaultdict(list)
    asking, answered = _asks(messages)
    for ask, waiting in asking.items():
        if ask not in answered:
            first = min(waiting, key=lambda message: (message.parent is not None, message.first["seen_ns"]))
            missing[id(first)].append("no answer was seen")
    routers = {row["node_key"] for message in messages for row in message.rows if row["tap"] == "router_in"}
    for message in messages:
        if message.is_callback and message.ask not in asking:
            missing[id(message)].append("its request is not in this capture")
        elif not message.is_callback and message.inherited and message.parent is None:
            missing[id(message)].append("the message that it answers is not in this capture")
        last = message.rows[-1]
        if last["tap"] in ("hub_out", "actor_out", "router_in") and last["node_key"] in routers:
            missing[id(message)].append(f"it was not seen to go on from {last['node_key']}")
    return missing


Ask = tuple[int, str]


def _asks(messages: list[Itinerary]) -> tuple[dict[Ask, list[Itinerary]], set[Ask]]:
    """Who waits, with the messages that they wait with; and who got an answer.

    An answer counts if it was seen to arrive. Where nothing was seen of the node that waits, it counts if it was sent.
    """
    asking: dict[Ask, list[Itinerary]] = defaultdict(list)
    answers: dict[Ask, list[Itinerary]] = defaultdict(list)
    seen_at_hub: set[Ask] = set()
    for message in messages:
        pointed = [row for row in message.rows if row["callback_points"]]
        if pointed:
            (answers if message.is_callback else asking)[message.ask].append(message)
        if any(row["node_key"] == row["callback_receiver_node_key"] for row in pointed):
            seen_at_hub.add(message.ask)
    answered = {ask for ask, found in answers.items() if ask not in seen_at_hub or any(m.has_arrived for m in found)}
    return asking, answered


def _outcome(messages: list[Itinerary]) -> Outcome:
    asking, answered = _asks(messages)
    if any(_kind(message) == "exception" for message in messages):
        return "exception"
    if asking.keys() - answered:
        return "pending"
    return "ok" if answered else "one-way"


def _kind(message: Itinerary) -> Kind:
    identity = message.first["identity_key"]
    if identity == _EXCEPTION_KEY:
        return "exception"
    if identity == RECEIPT_KEY:
        return "receipt"
    if message.is_callback:
        return "callback"
    return "request" if message.first["callback_points"] and message.parent is None and not message.inherited else "message"


def _step(message: Itinerary, depth: int, zero_ns: int, missing: list[str]) -> Step:
    first = message.first
    longest = max(message.rows, key=lambda row: len(row["trail"]))
    failure, broken = _failure(message)
    points = [point["identity_key"] for point in first["callback_points"]]
    return Step(
        depth=depth,
        kind=_kind(message),
        identity=first["identity_key"],
        version=first["version"] if first["version"] is not None else first["version_bytes"].decode("ascii", "replace"),
        partition=first["partition_key"],
        uid=first["message_uid"].hex(),
        addressing=first["addressing"],
        receiver=first["receiver_key"],
        receiver_node=first["receiver_node_key"],
        origin=next((row["origin_key"] for row in message.rows if row["origin_key"] is not None), None),
        trail=[entry["node_key"] for entry in longest["trail"]],
        waits_for=[] if message.is_callback else points,
        ttl_ms=first["ttl_ms"],
        body_size=first["body_size"],
        format=first["format"],
        made_after_ms=message.made_after_ms,
        times=message.times,
        sightings=_sightings(message, zero_ns),
        failure=failure,
        missing=[*missing, *broken, *_missing_ends(message)],
    )


def _sightings(message: Itinerary, zero_ns: int) -> list[Sighting]:
    sent_of = {id(leg.received): leg.sent for leg in message.legs}
    last_at: dict[str, Row] = {}
    found = []
    for row in message.rows:
        sent = sent_of.get(id(row))
        before = sent or last_at.get(row["node_key"])
        if before is not None and before["tap"] == row["tap"] != "router_in":  # the next copy of a broadcast, or sent again
            before = None
        found.append(
            Sighting(
                event_id=row["event_id"],
                seen_ns=row["seen_ns"],
                at_ms=(row["seen_ns"] - zero_ns) / NS_PER_MS,
                node=row["node_key"],
                tap=row["tap"],
                direction=row["direction"],
                hops=row["hops"],
                latency_ms=None if before is None else (row["seen_ns"] - before["seen_ns"]) / NS_PER_MS,
                is_network=sent is not None,
            )
        )
        last_at[row["node_key"]] = row
    return found


def _failure(message: Itinerary) -> tuple[Failure | None, list[str]]:
    """What an exception says, or why that is not known."""
    if _kind(message) != "exception":
        return None, []
    whole = [row["body"] for row in message.rows if row["body_kept"] == "whole"]
    if not whole:
        return None, ["its body was not kept, so what failed is not known"]
    try:
        return read_failure(whole[0]), []
    except PayloadError as error:
        return None, [f"its body cannot be read: {error}"]


def read_failure(body: bytes) -> Failure:
    """Read the body of KINO.EXCEPTION; raises PayloadError.

    >>> read_failure(ExceptionMessage("no such order", "KeyError").write())
    Failure(type='KeyError', text='no such order')
    """
    said = ExceptionMessage.read(body)
    return Failure(said.exception_type or "", said.message or "")


def _missing_ends(message: Itinerary) -> list[str]:
    """What was not seen of the way of a message, and what cannot be."""
    missing = [f"no sighting at the receiver of what {row['node_key']} sent{_on_hop(row)}" for row in message.lost]
    missing += [f"no sighting at the sender of what {row['node_key']} received{_on_hop(row)}" for row in message.unsent]
    if message.first["distribution"] != "broadcast":  # where reference nodes count a hop for each peer
        seen = {row["hops"] for row in message.rows}
        gone = [str(hop) for hop in range(1, max(seen)) if hop not in seen] if max(seen) <= _MOST_HOPS else []
        if gone:
            missing.append(f"nothing was seen of hop {', '.join(gone)}")
    for leg in message.legs:
        if leg.ms < 0:
            nodes = f"{leg.sent['node_key']} and {leg.received['node_key']}"
            missing.append(f"the clocks of {nodes} disagree: received {-leg.ms:.3f} ms before it was sent")
        elif 0 < leg.sent["ttl_ms"] < leg.ms:
            missing.append(f"{leg.received['node_key']} received it after its time to live of {leg.sent['ttl_ms']:g} ms")
    return missing


_MOST_HOPS: Final = 1000
"""Of more nobody wants to read which are missing."""


def _on_hop(row: Row) -> str:
    return f" on hop {row['hops']}" if row["hops"] > 1 else ""


def _skews(messages: list[Itinerary]) -> list[str]:
    """Which nodes' clocks disagree, and by how much at least."""
    worst: dict[tuple[str, str], float] = {}
    for message in messages:
        for leg in message.legs:
            if leg.ms < 0:
                pair = (leg.sent["node_key"], leg.received["node_key"])
                worst[pair] = min(worst.get(pair, 0.0), leg.ms)
    return [f"the clock of {b} is at least {-ms:.3f} ms behind that of {a}" for (a, b), ms in sorted(worst.items())]
