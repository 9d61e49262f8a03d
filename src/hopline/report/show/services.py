"""The section on who talks to whom: a graph of nodes, and the same as a table."""

from typing import Final

from hopline.report.read.facts import Facts
from hopline.report.read.links import Link
from hopline.report.show import graph
from hopline.report.show.html import (
    Column,
    Html,
    empty,
    grave,
    joined,
    key,
    more,
    number,
    numbers,
    of,
    section,
    sums_of,
    table,
    tag,
    whole_id,
)
from hopline.report.show.words import count, duration, short, size

_UNKNOWN: Final = "not captured"
"""All nodes of which nothing is known, as one."""


def services(facts: Facts, top: int) -> Html:
    """Nodes, and what goes between them."""
    title = "Who talks to whom"
    lead = (
        "Nodes and the messages between them: how many · how long 95 % of them took at most · ✕ how many failed, got lost "
        "or came too late on that way alone (time to live counts from the first sighting). Wider arrows carry more; of red "
        "ones 1 % or more went wrong; of dashed ones one end was not seen. System traffic is left out."
    )
    if "edges" in facts.empty:
        return section("services", title, lead, empty(facts.empty["edges"]))
    links = facts.links.between("node")
    if not links:
        return section(
            "services", title, lead, empty("no message but system traffic was seen to go from one node to another")
        )
    weights: dict[str, int] = {}
    for link in links:
        for end in {_named(link.source), _named(link.target)}:
            weights[end] = weights.get(end, 0) + link.messages
    chosen = sorted(weights, key=lambda name: (-weights[name], name))[: graph.MOST_NODES]
    drawn = [link for link in links if _named(link.source) in chosen and _named(link.target) in chosen]
    arrows = graph.chosen([_arrow(link, facts) for link in drawn])
    words = f"A graph of {count(len(chosen), 'node')} and {count(len(arrows), 'connection')}; a table below has the numbers."
    picture = graph.draw(chosen, arrows, words, unknown=_UNKNOWN)
    figure = tag("figure", tag("div", picture, class_="scroll", tabindex=0, role="group", aria_label="Graph"))
    caption = None
    if len(arrows) < len(links):
        words = (
            f"Of {count(len(links), 'connection')} of {count(len(weights), 'node')} the {len(arrows)} main ones are drawn, "
            f"of {count(len(chosen), 'node')}."
        )
        caption = tag("p", words, class_="unit")
    rows = [
        (
            joined(key(link.source), " → ", key(link.target)),
            number(link.messages),
            size(link.bytes),
            grave(link.errors),
            grave(link.lost),
            grave(link.expired),
            whole_id(link.flow),
        )
        for link in links[: max(top * 3, 30)]
    ]
    listed = table(
        f"Messages between nodes{of(len(rows), len(links))}",
        [
            Column("from → to"),
            *numbers("messages", "bodies", "failures", "lost", "too late"),
            Column("example flow"),
        ],
        rows,
    )
    minutes = sums_of("minute", facts.since, facts.until)
    graph_as_table = more("The graph as a table", listed)
    return section("services", title, lead, minutes, figure, caption, graph_as_table, _types(facts, max(top, 20)))


def _types(facts: Facts, most: int) -> Html:
    """Which message leads to which."""
    heading = tag("h3", "Which message leads to which")
    links = facts.links.between("message")
    if not links:
        return joined(heading, empty("no message was seen to cause another one, and none was answered"))
    rows = [
        (
            joined(
                key(link.source), " → ", key(link.target) if link.target else tag("span", _silence(link), class_="key none")
            ),
            number(link.messages) if link.target else tag("b", number(link.messages), class_="bad-text"),
            grave(link.errors),
            grave(link.expired if link.target else 0),
            whole_id(link.flow),
        )
        for link in links[:most]
    ]
    columns = [Column("cause → effect"), *numbers("times", "failures", "answered too late"), Column("example flow")]
    caption = f"From request to answer, and from what arrived to what was sent because of it{of(len(rows), len(links))}"
    return joined(heading, table(caption, columns, rows))


def _silence(link: Link) -> str:
    """What became of requests without an answer: of some the time is over, to others one may still come.

    >>> [_silence(Link("A", None, None, 5, 0, 0, lost, expired)) for lost, expired in ((0, 5), (5, 0), (2, 3), (0, 0))]
    ['no answer, time is over', 'no answer yet', 'no answer (time is over for 3, not yet for 2)', 'no answer']
    """
    if link.lost and link.expired:
        return f"no answer (time is over for {link.expired:,}, not yet for {link.lost:,})"
    return "no answer, time is over" if link.expired else "no answer yet" if link.lost else "no answer"


def _named(end: str | None) -> str:
    return _UNKNOWN if end is None else end


def _arrow(link: Link, facts: Facts) -> graph.Arrow:
    source, target = _named(link.source), _named(link.target)
    measured = facts.moves.spreads.get((link.source, link.target))
    label = _brief(link.messages)
    words = [f"{short(source, 40)} → {short(target, 40)}: {count(link.messages, 'message')}"]
    if measured:
        middle = measured.at(0.95)
        is_below = (measured.at(0.5) or 0.0) < 0
        why = " (below 0: see how long it took)" if is_below else ""
        words.append(f"p50 {duration(measured.at(0.5))}, p95 {duration(middle)}{why}")
        label += f" · {duration(middle)}" if (middle or 0.0) >= 0 else ""  # no room to say why
    wrong = (("failure", "failures", link.errors), ("lost", "lost", link.lost), ("too late", "too late", link.expired))
    words += [count(value, one, many) for one, many, value in wrong if value]
    if link.bad:
        label += f" · ✕ {_brief(link.bad)}"
    is_sure = measured is not None or "hops" in facts.unknown  # then nobody knows which ends were seen
    return graph.Arrow(source, target, link.messages, link.bad, label, ", ".join(words), is_sure)


def _brief(value: int) -> str:
    for least, unit in ((10**9, "G"), (10**6, "M"), (10**4, "k")):
        if value >= least:
            return f"{value / (1000 if unit == 'k' else least):.3g}{unit}"
    return f"{value:,}"
