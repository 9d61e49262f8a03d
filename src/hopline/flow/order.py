"""The order of a trail that reference nodes may have turned round, found by who was seen to send to whom.

Theory. A node that sends a message on appends itself to the trail. Reference nodes that read v3, v4 or v5 hand the trail on
in reverse; Hopline's do not, and v6 is never reversed. So the last entry always is who sent the message; of the rest, the
one before is either at the right end or at the left end, depending on what the sender did when it had read it. And so on:

    on the wire   C A B D        D sent it. Had D reversed what it read, C is the one before it, else B is.
    senders       C -> D         so it is C, and A B is left, with C as the last: B -> C, then A

Which end is right, other sightings of the flow tell: a message that came to a node names in its last entry who sent it
there. All ways from the end to the beginning are followed that this allows; what is left in the end is the answer.

    one order      exact if it is that of the wire, else restored
    several        ambiguous, and left as it was
    none           a set: who is known to have sent to some node of it does not stand where it should

An entry that repeats its neighbour is that of a reference broadcast, which appends once a peer. Where a node was seen to do
so it is taken first, and else only if nothing else fits: two nodes that talk with each other, A B A B, are no broadcasts. To
a node of which nobody knows who sent to it, anybody may have.

This file is pure: names in, places out.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

MOST_STATES: Final = 32
"""Ways that are followed side by side; where more are open the order is ambiguous. A stranger's trail has any length."""

_TOLD_APART: Final = 2
"""Orders of which it is enough to know that there are so many."""


class Order(NamedTuple):
    """How sure the order of a trail is (exact, restored, ambiguous, set), and the places of its entries in that order."""

    verdict: str
    places: tuple[int, ...]


class _Way(NamedTuple):
    """The places that were taken so far, from the last one on; equal keys are the same nodes in the same order."""

    key: int
    place: int
    later: "_Way | None" = None


class _State(NamedTuple):
    """Where a way has come to: what is left lies between two places, and who sent to the one taken last is looked for."""

    low: int
    high: int
    current: int


def find_order(nodes: Sequence[str], senders: Mapping[str, Collection[str]]) -> Order:
    """Find the order in which a trail came to be.

    Args:
        nodes: the names of its entries, as they stand on the wire.
        senders: for each node at which it was seen what came, who sent to it in this flow; itself, if it was seen to repeat
            itself. Nobody else has sent to such a node.

    >>> find_order("CABD", {"D": "C", "C": "B", "B": "A"})
    Order(verdict='restored', places=(1, 2, 0, 3))
    >>> find_order("BAA", {"A": "B", "B": "A"}).verdict, find_order("BAA", {"A": "BA"}).verdict
    ('restored', 'exact')
    >>> find_order("BAA", {}).verdict, find_order("BCA", {"A": "D"}).verdict
    ('ambiguous', 'set')
    """
    as_it_was = tuple(range(len(nodes)))
    ways = _follow(nodes, senders, may_repeat=False) or _follow(nodes, senders, may_repeat=True)
    if len(ways) != 1:
        return Order("ambiguous" if ways else "set", as_it_was)
    places = tuple(_places(ways[0]))
    is_same = all(nodes[place] == node for place, node in zip(places, nodes, strict=True))
    return Order("exact", as_it_was) if is_same else Order("restored", places)


def _follow(nodes: Sequence[str], senders: Mapping[str, Collection[str]], *, may_repeat: bool) -> list[_Way]:
    """Orders that fit; at most as many as it takes to tell that there are several."""
    last = len(nodes) - 1
    states = {_State(0, last - 1, last): [_Way(hash(nodes[last]), last)]}
    for _ in range(last):
        found: dict[_State, list[_Way]] = {}
        for state, ways in states.items():
            for place in _before(nodes, senders, state, may_repeat=may_repeat):
                low, high, _ = state
                left = _State(low + 1, high, place) if place == low else _State(low, high - 1, place)
                _add(found.setdefault(left, []), (_Way(hash((way.key, nodes[place])), place, way) for way in ways))
        if len(found) > MOST_STATES:
            return [way for ways in found.values() for way in ways]  # several: none of them is whole
        states = found
    whole: list[_Way] = []
    for ways in states.values():
        _add(whole, ways)
    return whole


def _before(
    nodes: Sequence[str], senders: Mapping[str, Collection[str]], state: _State, *, may_repeat: bool
) -> Sequence[int]:
    """The ends of what is left that may have sent to the current node."""
    low, high, current = state
    if low == high:
        return (low,)  # whoever it is
    node = nodes[current]
    known = senders.get(node, ())
    for place in (high, low):
        if nodes[place] == node and (may_repeat or node in known):
            return (place,)
    is_known = any(sender != node for sender in known)
    return [place for place in (low, high) if nodes[place] in known or not is_known]


def _add(ways: list[_Way], more: Iterable[_Way]) -> None:
    """Put ways to others, each order once."""
    for way in more:
        if len(ways) < _TOLD_APART and all(way.key != other.key for other in ways):
            ways.append(way)


def _places(way: _Way | None) -> Iterator[int]:
    """The places of a way, from the first entry on."""
    while way is not None:
        yield way.place
        way = way.later
