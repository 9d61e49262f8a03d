"""A graph of nodes on a circle, with arrows whose width says how much went and whose colour says whether it went well.

Positions are computed from the names and numbers alone: the same tables give the same picture. Nodes that talk much stand
side by side. This file knows no table.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from hopline.report.show.html import Html, Value, tag
from hopline.report.show.words import clean, short

MOST_NODES: Final = 16
"""Nodes that are drawn; more are a ball of wool. The table beside it has all."""

_WIDTH, _NODE = 900.0, 15.0
_MOST_LABELS: Final = 9
_LINE: Final = 20
"""Letters of a line of a name."""

MOST_ARROWS: Final = 40
"""Arrows that are drawn: the widest, and a few of those that carry trouble."""


class Arrow(NamedTuple):
    """What goes from one node to another: how much, how many of it badly, and what a reader is told."""

    source: str
    target: str
    weight: int
    bad: int
    label: str
    title: str
    is_sure: bool = True

    @property
    def kind(self) -> str:
        """Its colour. One failure in a thousand is no reason to see red."""
        return "bad" if self.bad * 100 >= max(self.weight, 1) else "ink"


def chosen(arrows: Sequence[Arrow]) -> list[Arrow]:
    """The arrows that are worth drawing, if there are too many."""
    widest = sorted(arrows, key=lambda arrow: -arrow.weight)
    worst = [arrow for arrow in sorted(arrows, key=lambda arrow: -arrow.bad) if arrow.bad][: MOST_ARROWS // 4]
    return list(dict.fromkeys([*worst, *widest]))[:MOST_ARROWS]


def draw(names: Sequence[str], arrows: Sequence[Arrow], description: str, unknown: str = "") -> Html:
    """Draw nodes and arrows.

    Args:
        names: of nodes.
        arrows: between them.
        description: what a person who does not see it is told.
        unknown: the name that stands for all that is not known.
    """
    order = _arranged(names, arrows)
    high = 190.0 if len(order) <= 2 else 380.0 if len(order) <= 6 else 520.0
    middle, radius = (_WIDTH / 2, high / 2), (_WIDTH / 2 - 205, high / 2 - 60)
    if len(order) == 1:
        radius = (0.0, 0.0)
    places = {name: _on_circle(place, len(order), middle, radius) for place, name in enumerate(order)}
    most = max((arrow.weight for arrow in arrows), default=1)
    both = {(arrow.source, arrow.target) for arrow in arrows}
    labels = _Labels([(x, y) for x, y in places.values()])
    drawn = [
        _arrow(arrow, places, most, is_bent=(arrow.target, arrow.source) in both, middle=middle)
        for arrow in sorted(arrows, key=lambda arrow: arrow.weight)
    ]
    named = sorted(arrows, key=lambda arrow: (-arrow.bad, -arrow.weight))[
        : _MOST_LABELS if len(arrows) > _MOST_LABELS else None
    ]
    for arrow in named:
        labels.put(arrow, _curve(arrow, places, is_bent=(arrow.target, arrow.source) in both, middle=middle))
    nodes = [_node(name, places[name], middle, is_unknown=name == unknown) for name in order]
    return tag(
        "svg",
        tag("defs", [_head(kind) for kind in ("ink", "bad")]),
        drawn,
        labels.drawn,
        nodes,
        viewBox=f"0 0 {_WIDTH:g} {high:g}",
        class_="graph",
        role="img",
        aria_label=clean(description),
    )


Point = tuple[float, float]


def _arranged(names: Sequence[str], arrows: Sequence[Arrow]) -> list[str]:
    """An order on the circle in which nodes that talk much are neighbours: from the busiest on, each time who talks most."""
    talk: dict[tuple[str, str], int] = {}
    for arrow in arrows:
        for pair in ((arrow.source, arrow.target), (arrow.target, arrow.source)):
            talk[pair] = talk.get(pair, 0) + arrow.weight
    left = sorted(names)
    total = {name: sum(weight for (one, _), weight in talk.items() if one == name) for name in left}
    order: list[str] = []
    while left:
        last = order[-1] if order else ""
        order.append(max(left, key=lambda name: (talk.get((last, name), 0), total[name])))
        left.remove(order[-1])
    return order


def _on_circle(place: int, count: int, middle: Point, radius: Point) -> Point:
    angle = math.pi + 2 * math.pi * place / count  # the busiest is at the left
    return middle[0] + radius[0] * math.cos(angle), middle[1] + radius[1] * math.sin(angle)


def _node(name: str, place: Point, middle: Point, *, is_unknown: bool) -> Html:
    x, y = place
    side, lines = x - middle[0], _lines(name)
    down = 16.0 * (len(lines) - 1)
    if abs(side) < 20:  # above or below
        anchor, at_x, at_y = "middle", x, y - _NODE - 7 - down if y < middle[1] else y + _NODE + 18
    else:
        anchor, at_x, at_y = (
            ("end", x - _NODE - 7, y + 5 - down / 2) if side < 0 else ("start", x + _NODE + 7, y + 5 - down / 2)
        )
    circle = tag("circle", cx=x, cy=y, r=_NODE, class_="node unknown" if is_unknown else "node")
    mark = tag("text", "?", x=x, y=y + 5, class_="middle") if is_unknown else None
    texts = [tag("text", line, x=at_x, y=at_y + 16 * number, class_=f"name {anchor}") for number, line in enumerate(lines)]
    return tag("g", tag("title", name), circle, mark, texts)


def _lines(name: str) -> list[str]:
    """A name in one line or two, divided where it has a joint.

    >>> _lines("store"), _lines("order-service-07.eu-central-1")
    (['store'], ['order-service-', '07.eu-central-1'])
    """
    shown = short(name, 2 * _LINE)
    if len(shown) <= _LINE:
        return [shown]
    joints = [place for place in range(len(shown) - _LINE, _LINE + 1) if shown[place - 1] in "-._:/ …"]
    cut = min(joints, key=lambda place: abs(place - len(shown) / 2)) if joints else _LINE
    return [shown[:cut], shown[cut:]]


def _curve(arrow: Arrow, places: dict[str, Point], *, is_bent: bool, middle: Point) -> tuple[Point, Point, Point, Point]:
    """Begin, end and two control points; arrows both ways pass each other, and nothing runs through a node."""
    (x1, y1), (x2, y2) = places[arrow.source], places[arrow.target]
    if arrow.source == arrow.target:
        out_x, out_y = middle[0] - x1, middle[1] - y1  # inwards: outside is the name
        long = math.hypot(out_x, out_y) or 1.0
        out_x, out_y = out_x / long, out_y / long
        far = _NODE * 4.5
        one = (x1 + out_x * far - out_y * far * 0.7, y1 + out_y * far + out_x * far * 0.7)
        two = (x1 + out_x * far + out_y * far * 0.7, y1 + out_y * far - out_x * far * 0.7)
        return _toward((x1, y1), one, _NODE), one, two, _toward((x1, y1), two, _NODE + 10)
    long = math.hypot(x2 - x1, y2 - y1) or 1.0
    bend = (0.16 if is_bent else 0.06) * long
    off = (-(y2 - y1) / long * bend, (x2 - x1) / long * bend)
    one = (x1 + (x2 - x1) / 3 + off[0], y1 + (y2 - y1) / 3 + off[1])
    two = (x1 + (x2 - x1) * 2 / 3 + off[0], y1 + (y2 - y1) * 2 / 3 + off[1])
    return _toward((x1, y1), one, _NODE), one, two, _toward((x2, y2), two, _NODE + 10)


def _toward(place: Point, other: Point, far: float) -> Point:
    long = math.hypot(other[0] - place[0], other[1] - place[1]) or 1.0
    return place[0] + (other[0] - place[0]) * far / long, place[1] + (other[1] - place[1]) * far / long


def _arrow(arrow: Arrow, places: dict[str, Point], most: int, *, is_bent: bool, middle: Point) -> Html:
    begin, one, two, end = _curve(arrow, places, is_bent=is_bent, middle=middle)
    path = f"M{begin[0]:.1f} {begin[1]:.1f}C{one[0]:.1f} {one[1]:.1f} {two[0]:.1f} {two[1]:.1f} {end[0]:.1f} {end[1]:.1f}"
    width = 1.2 + 4.3 * math.sqrt(arrow.weight / most)
    return tag(
        "path",
        tag("title", arrow.title),
        d=path,
        class_=f"arrow {arrow.kind}{'' if arrow.is_sure else ' half'}",
        stroke_width=width,
        marker_end=f"url(#head-{arrow.kind})",
    )


def _head(kind: str) -> Html:
    shape = tag("path", d="M0 0L10 5L0 10z", class_=f"head {kind}")
    place: dict[str, Value] = {"refX": 3, "refY": 5, "markerWidth": 12, "markerHeight": 12, "markerUnits": "userSpaceOnUse"}
    return tag("marker", shape, id=f"head-{kind}", orient="auto", viewBox="0 0 10 10", **place)


class _Labels:
    """Labels of arrows: each at the first place on its arrow where nothing else is written; if there is none, none."""

    def __init__(self, nodes: Sequence[Point]) -> None:
        self.drawn: list[Html] = []
        self._taken = [(x - _NODE - 4, y - _NODE - 4, x + _NODE + 4, y + _NODE + 4) for x, y in nodes]

    def put(self, arrow: Arrow, curve: tuple[Point, Point, Point, Point]) -> None:
        wide = 6.4 * len(arrow.label) + 6
        for along in (0.5, 0.4, 0.6, 0.32, 0.68, 0.25, 0.75):
            x, y = _at(curve, along)
            box = (x - wide / 2, y - 9, x + wide / 2, y + 9)
            if all(box[2] < left or box[0] > right or box[3] < up or box[1] > down for left, up, right, down in self._taken):
                self._taken.append(box)
                ground = tag("rect", x=box[0], y=box[1], width=wide, height=18, rx=4, class_="ground")
                self.drawn += [ground, tag("text", arrow.label, x=x, y=y + 4, class_=f"label middle {arrow.kind}")]
                return


def _at(curve: tuple[Point, ...], along: float) -> Point:
    points = list(curve)
    while len(points) > 1:
        points = [(a[0] + (b[0] - a[0]) * along, a[1] + (b[1] - a[1]) * along) for a, b in pairwise(points)]
    return points[0]
