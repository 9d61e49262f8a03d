"""The section on how long it took: percentiles from node to node, and from request to answer."""

from collections.abc import Callable, Mapping

from hopline.report.read.counting import Key, Spread
from hopline.report.read.facts import Facts
from hopline.report.read.moves import MOST_EDGES
from hopline.report.read.system import EXCEPTION
from hopline.report.show.charts import spread
from hopline.report.show.html import Column, Html, Part, empty, joined, key, more, number, numbers, of, section, table, tag
from hopline.report.show.ticks import time_ticks
from hopline.report.show.words import count, duration


def latency(facts: Facts, top: int) -> Html:
    """Percentiles by edge, and of waits."""
    lead = (
        "Half of all took at most p50 (the dot), 95 % at most p95 (the small mark), 99 % at most p99 (the end of the line). "
        "Clocks of nodes are corrected as far as can be known. System traffic is left out."
    )
    most = max(2 * top, 20)
    return section("latency", "How long it took", lead, _between_nodes(facts, most), _waits(facts, most))


def _between_nodes(facts: Facts, most: int) -> Html:
    heading = tag("h3", "On the way from node to node")
    if "hops" in facts.empty:
        return joined(heading, empty(facts.empty["hops"]))
    both, sent, received, lost = facts.moves.ends.total()
    if not both + sent + received + lost:
        return joined(heading, empty("no message but system traffic was seen to go from one node to another"))
    halves = tag(
        "p",
        f"A latency needs both ends: {both:,} of {both + sent + received + lost:,} moves were seen where they began and "
        f"where they ended. {sent:,} were seen only where they were sent, as nobody captured the receiver; {received:,} "
        f"only where they arrived, as nobody captured the sender; {lost:,} should have been seen, and were not (see ",
        tag("a", "lost messages", href="#losses"),
        ").",
    )
    ends = dict(facts.moves.ends.ordered())

    def one_end(edge: Pair) -> str:
        _, only_sent, only_received, _ = ends.get(edge, [0, 0, 0, 0])
        return count(only_sent + only_received)

    listed = _listed("Latency between nodes", "from → to", ["measured", "one end only"], facts.moves.spreads, one_end, most)
    unsure = None
    if facts.moves.worst_skew_ms and len(facts.moves.uncompared):
        pairs = [joined(key(edge[0], 24), " → ", key(edge[1], 24)) for edge, _ in facts.moves.uncompared.ordered()[:8]]
        named = [joined(", " if place else "", pair) for place, pair in enumerate(pairs)]
        others = f" and {len(facts.moves.uncompared) - 8} more" if len(facts.moves.uncompared) > 8 else ""
        unsure = tag(
            "p",
            "Clocks of nodes differ here, and of some pairs nothing tells by how much, as messages went one way only; their "
            "latencies are as the clocks say, and may be nonsense: ",
            named,
            f"{others}.",
            class_="caution",
        )
    cut = None
    if facts.moves.is_cut:
        cut = tag("p", f"There are more than {MOST_EDGES:,} pairs of nodes; the others were not measured.", class_="unit")
    return joined(heading, halves, listed or empty("no move was seen at both of its ends"), cut, unsure, _one_sided(ends))


def _one_sided(ends: Mapping[Key, list[int]]) -> Part:
    found = [(edge, row) for edge, row in ends.items() if not row[0] and (row[1] or row[2])]
    if not found:
        return None
    listed = table(
        f"Connections of which one end was captured{of(min(len(found), 50), len(found))}",
        [Column("from → to"), *numbers("only sending seen", "only arrival seen")],
        ((joined(key(edge[0]), " → ", key(edge[1])), count(row[1]), count(row[2])) for edge, row in found[:50]),
    )
    return more(f"{count(len(found), 'connection')} with only one end captured: no latency", listed)


def _waits(facts: Facts, most: int) -> Html:
    heading = tag("h3", "From request to answer")
    if "callbacks" in facts.empty:
        return joined(heading, empty(facts.empty["callbacks"]))
    caption = "Wait for an answer, as the one who asked saw it"
    listed = _listed(caption, "request → answer", ["answers"], facts.answers.waits, None, most)
    return joined(heading, listed or empty("no request was answered"))


Pair = tuple[str | None, str | None]


def _listed(
    caption: str,
    pairs: str,
    counted: list[str],
    spreads: Mapping[Pair, Spread],
    one_end: Callable[[Pair], str] | None,
    most: int,
) -> Html | None:
    """The busiest pairs, the slowest first."""
    busiest = sorted(spreads.items(), key=lambda item: -item[1].count)[:most]
    busiest.sort(key=lambda item: -(item[1].at(0.95) or 0.0))
    if not busiest:
        return None
    scale = time_ticks(max(values.at(0.99) or 0.0 for _, values in busiest), 4)[-1]
    rows = []
    for pair, values in busiest:
        low, middle, high = (values.at(part) or 0.0 for part in (0.5, 0.95, 0.99))
        rows.append(
            (
                joined(key(pair[0], 30), " → ", key(pair[1], 30)),
                *map(duration, (low, middle, high)),
                spread(low, middle, high, scale, "bad" if pair[1] == EXCEPTION else "ink"),
                number(values.count),
                *([one_end(pair)] if one_end else []),
            )
        )
    said = caption if len(busiest) == len(spreads) else f"{caption}: the {len(busiest)} busiest of {len(spreads)}"
    columns = [
        Column(pairs),
        *numbers("p50", "p95", "p99"),
        Column(f"0 to {duration(scale)}", kind="bars"),
        *numbers(*counted),
    ]
    made = table(f"{said}, the slowest first", columns, rows, class_="spreads")
    is_exact = all(values.is_exact for _, values in busiest)
    return joined(
        made, None if is_exact else tag("p", "Percentiles of more than 4,096 values are within 1 %.", class_="unit")
    )
