"""The itinerary: the way of one message, put together from its sightings; and which message it answers.

Theory of operation.

    sighting    one message passed one tap: a row of MESSAGES. Those of one message have the same fingerprint; where a body
                was cut or left out they are told by everything else
    stage       sightings are put in the order of the way: by hops, and for equal hops from the hub or actor that made the
                message over the sender's socket, the receiver's socket and router to the actor or hub. No clock is asked
                for that, for the clocks of two nodes may disagree
    leg         the two ends of one send over the network: the same bytes, with the same hops and trail
    parent      the message that another one answers: it arrived at the node where the other was made, before that, and its
                trail is the one that the other inherited (as a set: old reference nodes turn it round). If several did, the
                last of them. Where the making of a message was not seen, the trail alone decides

Nothing is guessed: what was not seen is not there. This file is pure, rows in, values out; it knows no files and no clock.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from hopline.flow import MAX_TRAIL
from hopline.identity import RECEIPT

Row = dict[str, Any]
"""A row of MESSAGES as `to_pylist` gives it."""

_RANKS: Final = {
    "hub_out": -2,
    "actor_out": -2,
    "scaleout_out": 0,
    "wire_out": 0,
    "scaleout_in": 1,
    "wire_in": 1,
    "router_in": 2,
    "actor_in": 3,
    "hub_in": 3,
}
"""The taps in the order in which a message passes them with the same number of hops; a send counts a hop before its tap."""

_ROUTER_AT_SENDER: Final = -1

_ARRIVALS: Final = ("scaleout_in", "wire_in", "actor_in")
ARRIVALS_OF_ANSWERS: Final = ("scaleout_in", "wire_in", "hub_in")

NS_PER_MS: Final = 1_000_000
RECEIPT_KEY: Final = RECEIPT.identity.decode()


class Leg(NamedTuple):
    """A send over the network: the two ends of it."""

    sent: Row
    received: Row

    @property
    def ms(self) -> float:
        """How long it took; negative if the clocks disagree."""
        return float(self.received["seen_ns"] - self.sent["seen_ns"]) / NS_PER_MS


class Itinerary:
    """The sightings of one message, in the order of its way, and what follows from them."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = sorted(rows, key=_stage)
        self.first = self.rows[0]
        self.parent: Itinerary | None = None
        self.children: list[Itinerary] = []
        self.is_callback = any(row["is_callback"] for row in rows)
        self.inherited = tuple(sorted(_longest(row["parent_trail"] for row in rows)))
        self.legs, self.lost, self.unsent = _pair(self.rows)
        self.times = _times(self.rows)

    @property
    def has_arrived(self) -> bool:
        """Whether it was seen at a node that received it, or by the hub that it was for."""
        return any(row["tap"] in ARRIVALS_OF_ANSWERS for row in self.rows)

    @property
    def ask(self) -> tuple[int, str]:
        """Who waits for what this flow brings: the key and the hub."""
        return self.first["callback_key"], self.first["callback_receiver_key"]

    @property
    def made_after_ms(self) -> float | None:
        """How long after its parent arrived at the node it was made there, if that was seen."""
        if self.parent is None or not self.is_made_here:
            return None
        node, made_ns = self.first["node_key"], self.first["seen_ns"]
        arrived = [row["seen_ns"] for row in self.parent.rows if row["node_key"] == node and row["tap"] in _ARRIVALS]
        before = [seen_ns for seen_ns in arrived if seen_ns <= made_ns]
        return float(made_ns - max(before)) / NS_PER_MS if before else None

    @property
    def is_made_here(self) -> bool:
        """Whether the first sighting is at the node that made the message."""
        return self.first["direction"] == "out" or (self.first["tap"] == "router_in" and not self.first["hops"])


def _times(rows: list[Row]) -> int:
    """How often a message was sent: as often as it passed one tap. A router sees one that it holds back twice."""
    if rows[0]["distribution"] == "broadcast":
        return 1
    places = Counter((row["node_key"], row["tap"], row["hops"]) for row in rows if row["tap"] != "router_in")
    return max(places.values(), default=1)


def _stage(row: Row) -> tuple[int, int, int]:
    """Where on its way a message is."""
    tap, hops = row["tap"], row["hops"]
    rank = _ROUTER_AT_SENDER if tap == "router_in" and not hops else _RANKS.get(tap, 0)
    return hops, rank, row["seen_ns"]


def tell_apart(rows: list[Row]) -> list[Itinerary]:
    """Tell messages apart: by fingerprint, and where a body is not whole, by all the rest if that leaves one choice."""
    alike: dict[tuple[Any, ...], dict[bytes, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        alike[_selectors(row)][row["message_uid"]].append(row)
    messages = []
    for by_uid in alike.values():
        whole = {uid for uid, found in by_uid.items() if all(row["body_kept"] == "whole" for row in found)}
        if len(whole) <= 1 < len(by_uid):
            messages.append(Itinerary([row for found in by_uid.values() for row in found]))
        else:
            messages += [Itinerary(found) for found in by_uid.values()]
    return messages


def _selectors(row: Row) -> tuple[Any, ...]:
    points = frozenset(tuple(point.values()) for point in row["callback_points"] if point["identity_key"] != RECEIPT_KEY)
    return (*(row[name] for name in _SELECTORS), points)


_SELECTORS: Final = (
    "identity_key",
    "version",
    "version_bytes",
    "partition_key",
    "receiver_key",
    "distribution",
    "callback_key",
    "callback_receiver_key",
    "callback_receiver_node_key",
    "body_size",
)
"""What a fingerprint is over, beside the callback points and the body itself."""


def _longest(lists: Iterable[list[str]]) -> list[str]:
    return max(lists, key=len, default=[])


def _pair(rows: list[Row]) -> tuple[list[Leg], list[Row], list[Row]]:
    """Find the two ends of each send: legs, sends that nobody was seen to receive, and the other way round."""
    ends: dict[tuple[Any, ...], tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    for row in rows:
        rank = _RANKS.get(row["tap"])
        if rank in (0, 1):
            trail = tuple(entry["node_key"] for entry in row["trail"])
            ends[row["hops"], trail][rank].append(row)
    legs, lost, unsent = [], [], []
    for sent, received in ends.values():
        both = min(len(sent), len(received))
        legs += [Leg(*pair) for pair in zip(sent[:both], received[:both], strict=True)]
        lost += sent[both:]
        unsent += received[both:]
    return legs, lost, unsent


def find_parents(messages: list[Itinerary]) -> None:
    """Give each message the one that it answers, if that was seen."""
    arrived: dict[tuple[str, tuple[str, ...]], list[tuple[int, int]]] = defaultdict(list)
    by_trail: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, message in enumerate(messages):
        for row in message.rows:
            for trail in _heirs(row):
                by_trail[trail].append(number)
                if row["tap"] in _ARRIVALS:
                    arrived[row["node_key"], trail].append((row["seen_ns"], number))
    for arrivals in arrived.values():
        arrivals.sort()
    for number, message in enumerate(messages):
        if message.first["tap"] == "hub_out":
            continue  # a hub begins something, it does not answer
        if message.is_made_here:
            before = arrived.get((message.first["node_key"], message.inherited), [])
            place = bisect_right(before, (message.first["seen_ns"], len(messages)))
            # The last one that is not itself: it cannot have arrived more often than it was seen.
            nearest = before[max(place - len(message.rows) - 1, 0) : place]
            # A clock may have been set back in between. That matters only where the trail says nothing.
            nearest = nearest or (before[:1] if message.inherited else [])
            others = [other for _, other in nearest if other != number]
        else:
            others = [other for other in by_trail[message.inherited] if other != number] if message.inherited else []
        parent = messages[others[-1]] if others else None
        if parent is not None and not _is_below(parent, message):
            message.parent = parent
            parent.children.append(message)


def _heirs(row: Row) -> list[tuple[str, ...]]:
    """What those that answer this message inherit: its trail, without the oldest entry if it is as long as a trail gets."""
    nodes = [entry["node_key"] for entry in row["trail"]]
    return [tuple(sorted(nodes)), *([tuple(sorted(nodes[1:]))] if len(nodes) >= MAX_TRAIL else [])]


def _is_below(message: Itinerary | None, above: Itinerary) -> bool:
    """Whether a message is another one or below it: clocks may lie, but a tree has no circles."""
    while message is not None:
        if message is above:
            return True
        message = message.parent
    return False


def in_tree_order(messages: list[Itinerary]) -> Iterable[tuple[Itinerary, int]]:
    """Each message after its parent, with its depth in the tree; those with one parent in the order of time."""

    def by_time(some: Sequence[Itinerary]) -> list[Itinerary]:
        return sorted(some, key=lambda message: -message.first["seen_ns"])

    left = [(message, 0) for message in by_time([message for message in messages if message.parent is None])]
    while left:
        message, depth = left.pop()
        yield message, depth
        left += [(child, depth + 1) for child in by_time(message.children)]
