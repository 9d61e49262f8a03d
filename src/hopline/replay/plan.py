"""The plan: which messages of a capture are played, in which order, and what answered each of them.

Theory of operation. Played is what began something; all that followed from it the network makes anew.

    ask          a flow, and within it who waits for what: all messages of one ask have its correlation id, callback key and
                 callback receiver
    beginning    the first sighting of an ask: at the hub that sent it, if that was seen; else the one with the fewest hops,
                 at the sender rather than at the receiver, and the earliest of those. It has inherited no trail and answers
                 nobody. An ask of which the first thing seen was made by an actor has no beginning in this capture
    loose        a message that belongs to no flow, and for which nobody waits: broadcasts of reference nodes. Its sightings
                 are told by what it says and by who sent it, and it began as often as it was seen where it began
    answer       the first callback of the ask, at the node where it began if it was seen there: only then both times are of
                 one clock, and the difference is how long somebody waited

What nodes say to each other (KINO.*, HOPLINE.*) is never played. The whole capture is looked at, whichever messages are
chosen of it: a beginning may be just outside of the chosen time. Sightings are grouped with Arrow, as in `capture/flows.py`:
what is held is a few numbers an ask, and no message. It knows no nodes and no network.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from hopline.capture.grouping import Groups
from hopline.capture.query import Query, ns_of
from hopline.capture.segment import Segment
from hopline.capture.store import Capture
from hopline.identity import MessageType
from hopline.replay.sightings import ANSWER, NO_BEGINNING, SIGHTING, Sightings

SKIPS: Final = {
    "beginning": "the message that began their flow was not seen",
    "broadcast": "broadcasts are only played if asked for",
    "body": "their bodies were cut or left out when they were captured",
    "limit": "beyond the limit",
    "gone": "deleted from the capture meanwhile",
}
"""Why messages are not played."""

PLAN: Final = pa.schema(
    [
        ("seen_ns", pa.int64()),
        ("kind", pa.int32()),
        ("segment", pa.int32()),
        ("place", pa.int64()),
        ("size", pa.int64()),
        ("answer_segment", pa.int32()),
        ("answer_place", pa.int64()),
        ("answer_size", pa.int64()),
        ("wait_ns", pa.int64()),
    ]
)
"""A row per message to play: when it was seen, its type (a number in `Plan.kinds`), where it and its answer stand (a number
in `Plan.segments`, and the row there), and how many bytes their bodies have. What is not known of an answer is null.
"""

_NS_PER_S: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What is played.

    Attributes:
        messages: rows of PLAN, in the order of time.
        kinds: the message types of the capture.
        segments: the segments of the capture.
        skipped: how many of the chosen messages are not played, and why: see SKIPS.
    """

    messages: pa.Table
    kinds: list[MessageType]
    segments: list[Segment]
    skipped: dict[str, int]

    def __len__(self) -> int:
        """How many messages are played."""
        return len(self.messages)

    @property
    def seconds(self) -> float:
        """How long it took then, from the first message to the last."""
        if not len(self.messages):
            return 0.0
        seen_ns = self.messages["seen_ns"]
        return float(seen_ns[-1].as_py() - seen_ns[0].as_py()) / _NS_PER_S

    def types(self) -> dict[MessageType, int]:
        """How many messages of each type are played, the most frequent first."""
        counts = pc.value_counts(self.messages["kind"]).to_pylist()
        return {self.kinds[entry["values"]]: entry["counts"] for entry in sorted(counts, key=lambda entry: -entry["counts"])}


def make_plan(capture: Capture, query: Query, *, limit: int | None = None, broadcasts: bool = False) -> Plan:
    """Plan to play what began in a capture.

    Args:
        capture: what to play.
        query: which messages: the filter and the times are those of their first sighting.
        limit: at most so many.
        broadcasts: broadcasts too.

    Raises:
        CaptureError: the capture cannot be read.
    """
    beginnings = _first(SIGHTING, ["ask"])
    answers = _first(ANSWER, ["ask", "node_key"])
    loose = [SIGHTING.empty_table()]
    sightings = Sightings(query)
    for found in sightings.read(capture):
        beginnings.add(found.asked)
        answers.add(found.answers)
        loose.append(pa.Table.from_batches([found.loose]))
    began = pa.concat_tables([beginnings.result().select(SIGHTING.names), _nearest(pa.concat_tables(loose))])
    chosen, skipped = _choose(began, query, limit=limit, broadcasts=broadcasts)
    return Plan(_with_answers(chosen, answers.result()), sightings.kinds, sightings.segments, skipped)


def _first(schema: pa.Schema, keys: list[str]) -> Groups:
    """Groups of which the first sighting is kept: by rank, then by time."""
    values = {name: (name, "first") for name in schema.names if name not in keys}
    return Groups(schema, keys, values, order=("rank", "seen_ns"))  # type: ignore[arg-type]


def _nearest(loose: pa.Table) -> pa.Table:
    """Those sightings of each loose message that are nearest to its beginning."""
    nearest = loose.group_by("ask").aggregate([("rank", "min")])
    place = pc.index_in(loose["ask"], nearest["ask"].combine_chunks())
    return loose.filter(pc.equal(loose["rank"], nearest["rank_min"].take(place)))


def _choose(began: pa.Table, query: Query, *, limit: int | None, broadcasts: bool) -> tuple[pa.Table, dict[str, int]]:
    """The beginnings that are meant and can be played, in the order of time; and how many cannot."""
    chosen = began.filter(began["is_meant"])
    if query.since is not None:
        chosen = chosen.filter(pc.greater_equal(chosen["seen_ns"], ns_of(query.since)))
    if query.until is not None:
        chosen = chosen.filter(pc.less(chosen["seen_ns"], ns_of(query.until)))
    tests: dict[str, Callable[[pa.Table], pa.ChunkedArray]] = {
        "beginning": lambda rows: pc.and_not(pc.less(rows["rank"], NO_BEGINNING), rows["is_made_by_actor"]),
        "broadcast": lambda rows: pc.or_(pc.invert(rows["is_broadcast"]), broadcasts),
        "body": lambda rows: rows["is_whole"],
    }
    skipped = {}
    for why, test in tests.items():
        passed = chosen.filter(test(chosen))
        skipped[why] = len(chosen) - len(passed)
        chosen = passed
    chosen = chosen.sort_by([(name, "ascending") for name in ("seen_ns", "segment", "place")])
    skipped["limit"] = len(chosen) - len(chosen.slice(0, limit))
    return chosen.slice(0, limit), {why: count for why, count in skipped.items() if count}


def _with_answers(chosen: pa.Table, answers: pa.Table) -> pa.Table:
    """Put the answer beside each message: the one at its node, or one that was seen elsewhere."""
    everywhere = _first(pa.schema([field for field in ANSWER if field.name != "node_key"]), ["ask"])
    for batch in answers.to_batches():
        everywhere.add(batch)
    anywhere = everywhere.result()
    here = pc.index_in(_at_node(chosen), _at_node(answers).combine_chunks())
    there = pc.index_in(chosen["ask"], anywhere["ask"].combine_chunks())
    columns = {
        f"answer_{name}": pc.coalesce(answers[name].take(here), anywhere[name].take(there))
        for name in ("segment", "place", "size")
    }
    waits = pc.subtract(answers["seen_ns"].take(here), chosen["seen_ns"])
    # A clock that was set back in between says nothing.
    columns["wait_ns"] = pc.if_else(pc.greater_equal(waits, 0), waits, pa.scalar(None, pa.int64()))
    columns |= {name: chosen[name] for name in PLAN.names if name not in columns}
    return pa.table([columns[field.name] for field in PLAN], schema=PLAN)


def _at_node(rows: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(rows["node_key"].cast(pa.binary()), rows["ask"], b"\0")
