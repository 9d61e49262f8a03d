"""Charts, as SVG that stretches with the page: positions are percentages, so text keeps its size on any screen.

Axes begin at zero. Colours are classes, given by `Colours` once for the whole page: the same type has the same colour
everywhere. This file knows no table.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from hopline.report.read.system import EXCEPTION, is_system
from hopline.report.show.html import Html, Part, Value, tag
from hopline.report.show.ticks import ticks
from hopline.report.show.words import clean, duration

_FEW: Final = 4
"""Texts of an axis that fit on any screen."""

COLOURS: Final = 6
"""Types that have a colour of their own; more could not be told apart."""


class Colours:
    """Which type has which colour: c1 to c6 by how much there is, `system` for system traffic, `other` for the rest.

    >>> colours = Colours(["ORDER", "PAID", "KINO.PING"])
    >>> colours.of("PAID"), colours.of("KINO.PING"), colours.of("rare"), colours.of(None)
    ('c2', 'system', 'other', 'other')
    """

    def __init__(self, types: Iterable[str]) -> None:
        own = [name for name in types if not is_system(name) and name != EXCEPTION][:COLOURS]
        self._classes = {name: f"c{place}" for place, name in enumerate(own, 1)}

    @property
    def own(self) -> list[str]:
        """Types with a colour of their own."""
        return list(self._classes)

    def of(self, name: str | None) -> str:
        """The class of a type."""
        if is_system(name):
            return "system"
        return "bad" if name == EXCEPTION else self._classes.get(name or "", "other")


def percent(value: float) -> str:
    """A position, as a share of the width.

    >>> percent(0.5)
    '50%'
    """
    return f"{100 * value:.4g}%"


def legend(entries: Iterable[tuple[str, Part]]) -> Html:
    """Colours and what they stand for, in the order in which they are drawn."""
    return tag("ul", [tag("li", _swatch(kind), text) for kind, text in entries], class_="legend")


def _swatch(kind: str) -> Html:
    square = tag("rect", width=12, height=12, class_=kind)
    return tag("svg", square, width=12, height=12, class_="swatch", aria_hidden="true")


class Layer(NamedTuple):
    """One colour of a stack."""

    kind: str
    name: str
    values: Sequence[int]


class Mark(NamedTuple):
    """A text on the axis: the number of its bar, and what stands below it. Every second one may be left out."""

    place: int
    text: str
    below: str = ""


def stack(layers: Sequence[Layer], labels: Sequence[str], marks: Sequence[Mark], description: str) -> Html:
    """Bars over time, one colour on the other.

    Args:
        layers: from the bottom up; each has a value for every bar.
        labels: what a bar stands for, in words.
        marks: texts on the axis.
        description: what a person who does not see it is told.
    """
    height, top = 200.0, 12.0
    scale = ticks(max((sum(column) for column in zip(*(layer.values for layer in layers), strict=True)), default=0))
    scale = [at for at in scale if at == int(at)]
    most = scale[-1]

    def up(value: float) -> float:
        return top + height * (1 - value / most)

    bars = []
    for place, label in enumerate(labels):
        base = 0
        for layer in layers:
            value = layer.values[place]
            base += value
            words = f"{label}: {layer.name}, {value:,}"
            box: dict[str, Value] = {"x": percent(place / len(labels)), "width": percent(0.9 / len(labels)), "y": up(base)}
            if value:
                bars.append(tag("rect", tag("title", words), height=height * value / most, class_=layer.kind, **box))
    axis = [tag("text", f"{at:,}", x=48, y=up(at) + 4, class_="tick end") for at in scale]
    lines = [tag("line", x1=0, x2="100%", y1=up(at), y2=up(at), class_="grid") for at in scale]
    times = []
    for number, (place, text, below) in enumerate(marks):
        middle = (place + 0.45) / len(labels)
        kind = f"tick {_anchor(middle)}{' extra' if number % 2 and len(marks) > _FEW and not below else ''}"
        for line, words in enumerate((text, below)):
            times += [tag("text", words, x=percent(middle), y=top + height + 18 + 15 * line, class_=kind)] if words else []
    # Two pictures side by side: in the second one percentages are of the plot alone.
    tall = top + height + (40 if any(mark.below for mark in marks) else 24)
    pictures = (tag("svg", axis, width=56, height=tall), tag("svg", lines, bars, times, width="100%", height=tall))
    return tag("div", pictures, class_="stack", role="img", aria_label=clean(description))


def _anchor(share: float) -> str:
    return "start" if share < 0.08 else "end" if share > 0.92 else "middle"


def bar(value: float, most: float, kind: str, text: str = "") -> Html:
    """One bar beside a number in a table."""
    width = value / most if most else 0
    mark = tag("rect", tag("title", text) if text else None, width=percent(width), height=12, y=3, class_=kind)
    return tag("svg", mark, width="100%", height=18, class_="chart cell", aria_hidden="true")


def split(parts: Sequence[tuple[str, str, int]], description: str) -> Html:
    """One bar of the whole width, divided: class, name and number of each part."""
    whole = sum(number for _, _, number in parts) or 1
    begin, drawn = 0, []
    for kind, name, number in parts:
        if number:
            title = tag("title", f"{name}: {number:,}")
            drawn.append(
                tag("rect", title, x=percent(begin / whole), width=percent(number / whole), height=26, class_=f"{kind} seam")
            )
            begin += number
    return tag("svg", drawn, width="100%", height=26, class_="chart", role="img", aria_label=clean(description))


def spread(low: float, middle: float, high: float, most: float, kind: str = "ink") -> Html:
    """Three percentiles on an axis from zero: a dot, a tick and a long tick, joined by a line."""
    places = [percent(min(1.0, max(0.0, value / most))) for value in (low, middle, high)]
    title = tag("title", f"p50 {duration(low)}, p95 {duration(middle)}, p99 {duration(high)}")
    drawn = (
        tag("line", x1=0, x2="100%", y1=9, y2=9, class_="grid"),
        tag("line", x1=places[0], x2=places[2], y1=9, y2=9, class_=f"range {kind}"),
        tag("line", x1=places[1], x2=places[1], y1=4, y2=14, class_=f"range {kind}"),
        tag("line", x1=places[2], x2=places[2], y1=2, y2=16, class_=f"range {kind}"),
        tag("circle", cx=places[0], cy=9, r=4, class_=f"dot {kind}"),
    )
    return tag("svg", title, drawn, width="100%", height=18, class_="chart cell wide", aria_hidden="true")
