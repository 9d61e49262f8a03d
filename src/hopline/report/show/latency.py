"""The section on how long it took: percentiles from node to node, and from request to answer."""

from collections.abc import Callable, Mapping
from typing import Final

from hopline.report.read.counting import Key, Spread
from hopline.report.read.facts import Facts
from hopline.report.read.moves import MOST_EDGES
from hopline.report.read.system import EXCEPTION
from hopline.report.show.charts import spread
from hopline.report.show.html import Column, Html, Part, empty, joined, key, more, number, numbers, of, section, table, tag
from hopline.report.show.ticks import time_ticks
from hopline.report.show.words import count, duration

_MOST_NAMED: Final = 8
"""Pairs that are named in a sentence."""


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
    halves = tag("p", _halves(both, sent, received, lost))
    ends = dict(facts.moves.ends.ordered())

    def one_end(edge: Pair) -> str:
        _, only_sent, only_received, _ = ends.get(edge, [0, 0, 0, 0])
        return count(only_sent + only_received)

    uncompared = dict(facts.moves.uncompared.ordered())

    def why_below(edge: Pair) -> str:
        if edge in uncompared:
            return "below 0: the clocks of the two are apart by more than the latency, or the times are too close to tell"
        return "below 0, though the clocks were compared: the times are too close to tell"

    measured, columns = facts.moves.spreads, ["measured", "one end only"]
    listed = _listed("Latency between nodes", "from → to", columns, measured, why_below, one_end, most)
    cut = None
    if facts.moves.is_cut:
        cut = tag("p", f"There are more than {MOST_EDGES:,} pairs of nodes; the others were not measured.", class_="unit")
    shown = listed or empty("no move was seen at both of its ends")
    return joined(heading, halves, shown, cut, _uncompared(facts), _one_sided(ends))


def _halves(both: int, sent: int, received: int, lost: int) -> Html:
    """Why not all moves have a latency; of what there is none nothing is said."""
    seen = joined(
        f"A latency needs both ends: {both:,} of {count(both + sent + received + lost, 'move')} {_were(both)} seen where "
        f"{_they(both)} began and where {_they(both)} ended."
    )
    clauses: list[Html] = []
    if sent:
        where = f"{_they(sent)} {_were(sent)} sent, as the receiver was not captured, or not all of it"
        clauses.append(joined(f"{sent:,} {_were(sent)} seen only where {where}"))
    if received:
        where = f"{_they(received)} arrived, as the sender was not captured, or not all of it"
        clauses.append(joined(f"{received:,} {_were(received)} seen only where {where}"))
    if lost:
        link = tag("a", "lost messages", href="#losses")
        clauses.append(joined(f"{lost:,} should have been seen, and {_were(lost)} not (see ", link, ")"))
    rest = [joined("; " if place else " ", clause) for place, clause in enumerate(clauses)]
    return joined(seen, rest, "." if rest else None)


def _were(number: int) -> str:
    return "was" if number == 1 else "were"


def _they(number: int) -> str:
    return "it" if number == 1 else "they"


def _uncompared(facts: Facts) -> Part:
    """Pairs whose latencies are as good as their clocks, and nothing tells how good these are."""
    pairs = facts.moves.uncompared.ordered()
    if not pairs:
        return None
    named = [joined(key(edge[0], 24), " → ", key(edge[1], 24)) for edge, _ in pairs[:_MOST_NAMED]]
    others = f" and {len(pairs) - _MOST_NAMED:,} more" if len(pairs) > _MOST_NAMED else ""
    doubt = "may be nonsense, for clocks of nodes do differ here" if facts.moves.worst_skew_ms else "right if these agree"
    return tag(
        "p",
        "Nothing compares the clocks of these pairs, as no messages of flows were seen to go both ways on one day. Their "
        f"latencies are as the clocks say, and {doubt}: ",
        [joined(", " if place else "", pair) for place, pair in enumerate(named)],
        f"{others}.",
        class_="caution" if facts.moves.worst_skew_ms else "unit",
    )


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
    answers, caption = facts.answers, "Wait for an answer, as the one who asked saw it"
    left_out = answers.unmeasured.total()[0]
    if not left_out:
        listed = _listed(caption, "request → answer", ["answers"], answers.waits, _why_below, None, most)
        return joined(heading, listed or empty("no request was answered"))
    unmeasured = dict(answers.unmeasured.ordered())

    def of_others(pair: Pair) -> str:
        return count(unmeasured.get(pair, [0])[0])

    columns = ["measured", "asker not captured"]
    listed = _listed(caption, "request → answer", columns, answers.waits, _why_below, of_others, most)
    shown = listed or empty("no node that asked was captured")
    return joined(heading, tag("p", _hearsay(answers.wait.count, left_out)), shown, _unmeasured(facts))


def _hearsay(measured: int, left_out: int) -> str:
    """Why not all answers have a wait."""
    whole = count(measured + left_out, "answer")
    went = "went to a node" if left_out == 1 else "went to nodes"
    return (
        f"A wait needs the node that asked: {measured:,} of {whole} came to one that was captured. {left_out:,} {went} that "
        "nobody captured; what others saw of the time between request and answer is no wait, and is left out."
    )


def _unmeasured(facts: Facts) -> Part:
    found = [(pair, counts[0]) for pair, counts in facts.answers.unmeasured.ordered() if pair not in facts.answers.waits]
    if not found:
        return None
    listed = table(
        f"Answers to nodes that were not captured{of(min(len(found), 50), len(found))}",
        [Column("request → answer"), *numbers("answers")],
        ((joined(key(pair[0]), " → ", key(pair[1])), count(times)) for pair, times in found[:50]),
    )
    return more(f"{count(len(found), 'kind')} of answers only to nodes that were not captured: no wait", listed)


def _why_below(_pair: "Pair") -> str:
    return "below 0: seen by two clocks that are apart by more than the wait, or the times are too close to tell"


Pair = tuple[str | None, str | None]


def _listed(
    caption: str,
    pairs: str,
    counted: list[str],
    spreads: Mapping[Pair, Spread],
    why_below: Callable[[Pair], str],
    one_end: Callable[[Pair], str] | None,
    most: int,
) -> Html | None:
    """The busiest pairs, the slowest first. Nothing takes less than no time: beside what seems to it is said why."""
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
                joined(key(pair[0], 30), " → ", key(pair[1], 30), (" ", tag("small", why_below(pair))) if low < 0 else None),
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
