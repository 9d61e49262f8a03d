"""The section on traffic: sightings over time, by message type."""

from collections.abc import Iterator
from typing import Final

from hopline.report.read.facts import Facts
from hopline.report.read.system import EXCEPTION, is_system
from hopline.report.read.timeline import Timeline
from hopline.report.show.charts import Colours, Layer, Mark, bar, legend, stack
from hopline.report.show.html import Column, Html, empty, joined, key, more, number, numbers, of, section, table, tag
from hopline.report.show.words import clean, count, duration, moment, share

_MOST_MARKS: Final = 6
_MOST_TYPES: Final = 100


def traffic(facts: Facts, colours: Colours) -> Html:
    """Sightings over time."""
    lead = (
        "How many messages the taps saw, by type. A message is counted wherever it is seen: "
        "once by its sender, and once by its receiver."
    )
    title = "Traffic over time"
    if "messages" in facts.empty:
        return section("traffic", title, lead, empty(facts.empty["messages"]))
    line = facts.seen.timeline
    if not line.steps:
        return section("traffic", title, lead, empty("no sighting has both a time and a type"))
    layers = list(_layers(line, colours))
    starts = [step * line.width_us for step in line.steps]
    digits = 0 if line.width_us >= 1_000_000 else 3
    labels = [moment(start, digits=digits) for start in starts]
    width, total = _width(line.width_us), facts.seen.sightings
    words = f"Stacked bars: sightings for each {width}, by message type. The numbers are in a table below."
    entries = []
    for layer in reversed(layers):
        part = sum(layer.values)
        entries.append((layer.kind, joined(key(layer.name, 32), " ", tag("b", count(part)), f" ({share(part, total)})")))
    return section(
        "traffic",
        title,
        lead,
        tag("p", f"Sightings for each {width}; times are UTC.", class_="unit"),
        stack(layers, labels, _marks(starts, line.width_us), words),
        legend(entries),
        more("All message types", _by_type(facts, colours)),
        more("The chart as a table", _by_step(layers, labels, f"Sightings for each {width} in which there are any")),
    )


def _layers(line: Timeline, colours: Colours) -> Iterator[Layer]:
    """What is drawn, from the bottom up: types with a colour of their own, other types, failures, system traffic."""
    system = [name for name in line.names if is_system(name)]
    failed = [name for name in line.names if name == EXCEPTION]
    named = {*colours.own, *system, EXCEPTION}
    other = [name for name in line.names if name not in named]
    own = [(colours.of(name), clean(name, 60), [name]) for name in colours.own if name in line.names]
    rest = (
        ("other", "other types", other),
        ("bad", EXCEPTION, failed),
        ("system", "system (KINO.*, HOPLINE.*)", system),
    )
    for kind, shown, names in (*own, *rest):
        if names:
            yield Layer(kind, shown, _steps(line, names))


def _by_type(facts: Facts, colours: Colours) -> Html:
    types, total = facts.seen.types.ordered(), facts.seen.sightings
    most = types[0][1][0]
    return table(
        f"Sightings by message type{of(min(len(types), _MOST_TYPES), len(types))}",
        [Column("message type"), *numbers("sightings", "share"), Column("", kind="bars")],
        (
            (key(name), number(times), share(times, total), bar(times, most, colours.of(name)))
            for (name,), (times,) in types[:_MOST_TYPES]
        ),
        class_="types",
    )


def _by_step(layers: list[Layer], labels: list[str], caption: str) -> Html:
    columns = [Column("from (UTC)"), *numbers(*(layer.name for layer in layers), "all")]
    rows = [[layer.values[place] for layer in layers] for place in range(len(labels))]
    shown = ((label, *map(count, row), count(sum(row))) for label, row in zip(labels, rows, strict=True) if any(row))
    return table(caption, columns, shown)


def _steps(line: Timeline, names: list[str]) -> list[int]:
    steps = line.steps
    counts = [0] * len(steps)
    for name in names:
        for step, value in line.of(name).items():
            counts[step - steps.start] += value
    return counts


def _width(width_us: int) -> str:
    names = {3_600_000_000: "hour", 60_000_000: "minute", 1_000_000: "second", 86_400_000_000: "day"}
    return names.get(width_us) or duration(width_us / 1000)


def _marks(starts: list[int], width_us: int) -> list[Mark]:
    """Times on the axis: round ones, not more than fit; the first of a day has its date."""
    rounds = [every for every in _ROUND if every % width_us == 0]
    every = next((every for every in rounds if (starts[-1] - starts[0]) / every <= _MOST_MARKS), rounds[-1])
    marks: list[Mark] = []
    last_day = ""
    for place, start in enumerate(starts):
        if start % every < width_us or (place == 0 and len(starts) < 3):
            text = moment(start, digits=3 if every < 1_000_000 else 0)
            day, _, clock = text.partition(" ")
            clock = clock if every < _MINUTE else clock[:5]
            marks.append(Mark(place, day if every >= _DAY else clock, "" if every >= _DAY or day == last_day else day))
            last_day = day
    return marks


_MINUTE, _DAY = 60_000_000, 86_400_000_000
_ROUND: Final = tuple(
    int(1_000_000 * seconds)
    for seconds in (
        *(0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200),
        *(86_400 * days for days in (1, 2, 7, 14, 28, 91, 182, 364, 1820, 3640, 18_200, 36_400, 182_000, 364_000)),
    )
)
"""How far apart times on the axis may be."""
