"""Sightings as a plan looks at them: numbers in place of names, and how near each is to the beginning of something.

All of it is done on whole columns, some thousand messages at a time; only a fingerprint is made message by message, and only
of messages that nothing else tells apart. What the columns are for is told in `plan.py`. It knows no nodes and no network.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hopline.capture.filter import fields_of
from hopline.capture.predicate import mask
from hopline.capture.query import EVERYTHING, Part, Query
from hopline.capture.segment import Segment
from hopline.capture.store import Capture
from hopline.flow.columnar import are_flows
from hopline.identity import EXCEPTION, RECEIPT, MessageType
from hopline.node.guard import HANDLED

SIGHTING: Final = pa.schema(
    [
        ("ask", pa.binary()),
        ("rank", pa.int32()),
        ("seen_ns", pa.int64()),
        ("segment", pa.int32()),
        ("place", pa.int64()),
        ("node_key", pa.string()),
        ("kind", pa.int32()),
        ("size", pa.int64()),
        ("is_made_by_actor", pa.bool_()),
        ("is_broadcast", pa.bool_()),
        ("is_whole", pa.bool_()),
        ("is_meant", pa.bool_()),
    ]
)
"""A row per sighting: what it belongs to, how near to the beginning of that, when, where in the capture, at which node, the
number of its type, the size of its body, and whether an actor made it, it is a broadcast, its body is there, it was chosen.
"""

ANSWER: Final = pa.schema([field for field in SIGHTING if not field.name.startswith("is_") and field.name != "kind"])
"""A row per sighting of a callback: the same, and its rank is how near to who waits for it."""

NO_BEGINNING: Final = 1_000_000
"""The rank of a sighting that cannot be the beginning of anything."""

RECEIPTS: Final = (RECEIPT.identity, HANDLED.identity)
"""Callback points of who wants to know how far a message got."""

NO_REPLIES: Final = (*RECEIPTS, EXCEPTION.identity)
"""Callback points that are no answer of an actor."""

_COLUMNS: Final = (
    "event_id",
    "seen_ns",
    "node_key",
    "tap",
    "direction",
    "identity",
    "version",
    "version_bytes",
    "partition",
    "is_system",
    "correlation_id",
    "distribution",
    "callback_key",
    "callback_receiver_key",
    "callback_points",
    "is_callback",
    "hops",
    "parent_trail",
    "body_kept",
    "body_size",
)
"""What of a sighting is looked at."""

_MOST_HOPS: Final = 1000
"""More are all alike: the number comes from outside."""

_LOOSE_TAPS: Final = ["actor_out", "router_in", "actor_in"]
"""Taps at which a message may be seen with the same hops, in the order in which it passes them; the rest is told by hops."""

_ANSWER_RANKS: Final = {"hub_in": 0, "scaleout_in": 1, "wire_in": 1}
"""Where an answer is looked for first: where it ended. Anywhere else is as good as anywhere else."""


class Found(NamedTuple):
    """Some sightings: those that belong to an ask, loose ones that may be beginnings, and callbacks."""

    asked: pa.RecordBatch
    loose: pa.RecordBatch
    answers: pa.RecordBatch


class Sightings:
    """The sightings of a capture.

    Args:
        query: which messages are meant, and how v3 is read.

    Attributes:
        kinds: the message types that were met; `kind` is a number in this list.
        segments: the segments that were read; `segment` is a number in this list.
    """

    def __init__(self, query: Query) -> None:
        self.kinds: list[MessageType] = []
        self.segments: list[Segment] = []
        self._where = query.where
        self._all = replace(query, where=EVERYTHING, since=None, until=None)
        self._numbers: dict[bytes, int] = {}

    def read(self, capture: Capture) -> Iterator[Found]:
        """All sightings, meant or not, but those of nodes that speak for themselves; raises CaptureError."""
        columns = sorted(fields_of(self._where).union(_COLUMNS))
        for part in self._all.parts(capture, columns):
            if part.segment not in self.segments[-1:]:
                self.segments.append(part.segment)
            messages = self._all.decode(part, columns).messages
            if len(messages):
                yield self._found(messages, part)

    def _found(self, messages: pa.RecordBatch, part: Part) -> Found:
        places = pc.utf8_slice_codeunits(messages["event_id"], len(part.segment.name) + 1).cast(pa.int64())
        common = {
            "ask": _asks(messages),
            "seen_ns": messages["seen_ns"],
            "segment": pa.repeat(pa.scalar(len(self.segments) - 1, pa.int32()), len(messages)),
            "place": places,
            "node_key": messages["node_key"],
            "size": messages["body_size"],
        }
        sightings = self._sightings(messages, common)
        is_system = pc.or_(messages["is_system"], pc.starts_with(messages["identity"], b"HOPLINE."))
        is_loose = pc.and_not(pc.equal(messages["callback_key"], 0), are_flows(messages["correlation_id"]))
        asked = sightings.filter(pc.invert(pc.or_(is_system, is_loose)))
        is_loose = pc.and_(pc.and_not(is_loose, is_system), pc.less(sightings["rank"], NO_BEGINNING))
        loose = sightings.filter(is_loose)
        if len(loose):
            loose = self._told_apart(loose, part.take(pc.index_in(loose["place"], part.places)))
        return Found(asked, loose, _answers(messages, common))

    def _sightings(self, messages: pa.RecordBatch, common: dict[str, pa.Array]) -> pa.RecordBatch:
        made = {
            **common,
            "rank": _ranks(messages),
            "kind": self._kinds(messages),
            "is_made_by_actor": pc.equal(messages["tap"], "actor_out"),
            "is_broadcast": pc.equal(messages["distribution"], "broadcast"),
            "is_whole": pc.equal(messages["body_kept"], "whole"),
            "is_meant": mask(self._where, messages),
        }
        return _batch(made, SIGHTING)

    def _told_apart(self, loose: pa.RecordBatch, part: Part) -> pa.RecordBatch:
        """Tell loose messages by fingerprint and origin, and let no two taps see one equally near to its beginning."""
        known = self._all.decode(part, ["message_uid", "origin_key", "node_key", "hops", "tap"]).messages
        # What has not left its node yet is from there; what has left no trace may be from anywhere.
        unsent = pc.if_else(pc.less_equal(known["hops"], 0), known["node_key"], "")
        origin = pc.coalesce(known["origin_key"], unsent).cast(pa.binary())
        tap = pc.index_in(known["tap"], pa.array(_LOOSE_TAPS)).fill_null(0)
        columns = {name: loose[name] for name in loose.schema.names}
        columns["ask"] = pc.binary_join_element_wise(known["message_uid"], origin, b"")
        columns["rank"] = pc.add(pc.multiply(loose["rank"], len(_LOOSE_TAPS)), tap)
        return _batch(columns, SIGHTING)

    def _kinds(self, messages: pa.RecordBatch) -> pa.Array:
        """The number of the type of each message. There are few types: each distinct one is looked at once a batch."""
        coded = _type_keys(messages).dictionary_encode()
        indices = np.asarray(coded.indices)
        _, firsts = np.unique(indices, return_index=True)
        rows = messages.select(["identity", "version", "version_bytes", "partition"]).take(pa.array(firsts)).to_pylist()
        numbers = np.empty(len(rows), np.int32)
        for place, (key, row) in enumerate(zip(coded.dictionary.to_pylist(), rows, strict=True)):
            if key not in self._numbers:
                self._numbers[key] = len(self.kinds)
                version = row["version_bytes"] if row["version"] is None else row["version"]
                self.kinds.append(MessageType(row["identity"], version, row["partition"]))
            numbers[place] = self._numbers[key]
        return pa.array(numbers[indices])


def _asks(messages: pa.RecordBatch) -> pa.Array:
    """What all messages of one ask have in common. Neither the number nor the printable key holds a zero byte."""
    number, receiver = messages["callback_key"].cast(pa.string()), messages["callback_receiver_key"]
    texts = [column.cast(pa.binary()) for column in (number, receiver)]
    return pc.binary_join_element_wise(*texts, messages["correlation_id"], b"\0")


def _ranks(messages: pa.RecordBatch) -> pa.Array:
    """How near to the beginning of its ask a sighting is, as far as that is told by anything but the clock.

    With equal hops inside a node it is the clock: only it tells what a hub sent from what an actor made of it.
    """
    tap = messages["tap"]
    hops = np.clip(np.asarray(messages["hops"]), 0, _MOST_HOPS).astype(np.int32)
    is_later_end = _flags(pc.equal(messages["direction"], "in")) & (hops > 0)
    rank = np.where(_flags(pc.equal(tap, "hub_out")), 0, 1 + 2 * hops + is_later_end)
    has_parent = np.asarray(pc.list_value_length(messages["parent_trail"])) > 0
    is_none = has_parent | _flags(messages["is_callback"]) | _flags(pc.equal(tap, "hub_in"))
    return pa.array(np.where(is_none, NO_BEGINNING, rank), pa.int32())


def _answers(messages: pa.RecordBatch, common: dict[str, pa.Array]) -> pa.RecordBatch:
    """The callbacks, but no receipts where somebody waits for more."""
    points = messages["callback_points"]
    no_replies = pa.array([identity.decode() for identity in NO_REPLIES])
    is_reply = pc.invert(pc.is_in(points.flatten().field("identity_key"), no_replies))
    replies = np.bincount(np.asarray(pc.list_parent_indices(points).filter(is_reply)), minlength=len(messages))
    is_receipt = pc.is_in(messages["identity"], pa.array(RECEIPTS))
    is_answer = pc.and_not(messages["is_callback"], pc.and_(is_receipt, pa.array(replies > 0)))
    ranks = pa.array([*_ANSWER_RANKS.values(), max(_ANSWER_RANKS.values()) + 1], pa.int32())
    places = pc.index_in(messages["tap"], pa.array(_ANSWER_RANKS)).fill_null(len(_ANSWER_RANKS))
    return _batch({**common, "rank": ranks.take(places)}, ANSWER).filter(is_answer)


def _type_keys(messages: pa.RecordBatch) -> pa.Array:
    """Message types as bytes that are equal only if the types are."""
    version_bytes = messages["version_bytes"].fill_null(b"")
    sizes = [pc.binary_length(column).cast(pa.string()) for column in (messages["identity"], version_bytes)]
    version = messages["version"].cast(pa.string()).fill_null("-")
    texts = [column.cast(pa.binary()) for column in (*sizes, version)]
    return pc.binary_join_element_wise(*texts, messages["identity"], version_bytes, messages["partition"], b" ")


def _batch(columns: dict[str, pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([columns[field.name].cast(field.type) for field in schema], schema=schema)


def _flags(column: pa.Array) -> NDArray[np.bool_]:
    flags: NDArray[np.bool_] = column.to_numpy(zero_copy_only=False)
    return flags
