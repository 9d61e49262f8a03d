"""The section on the slowest flows: each a chart of what was on its way when."""

from typing import Final

from hopline.report.read.facts import Facts
from hopline.report.read.flows import SlowFlow, Step
from hopline.report.show.charts import Colours, percent
from hopline.report.show.html import Html, Part, empty, joined, key, more, number, section, tag, whole_id
from hopline.report.show.ticks import time_ticks
from hopline.report.show.words import NOT_KNOWN, clean, count, duration, moment

_OPEN: Final = 5
"""Flows that are seen at once; the others when asked for."""

_ALIKE: Final = 0.9
"""Flows of one type that took so much of the slowest one's time are like it."""


def flows(facts: Facts, colours: Colours) -> Html:
    """The slowest flows, move by move."""
    title = "The slowest flows"
    lead = "A flow is all that one message led to. Each bar is a message on its way; a thin one is how long somebody waited."
    if "flows" in facts.empty:
        return section("flows", title, lead, empty(facts.empty["flows"]))
    if not facts.flows.count:
        return section("flows", title, lead, empty("no flow was seen but those of system traffic"))
    values = facts.flows.duration
    text = tag(
        "p",
        number(facts.flows.count),
        " flow" if facts.flows.count == 1 else " flows",
        f" of {count(facts.flows.messages, 'message')}: half took at most {duration(values.at(0.5))}, 95 % at most "
        f"{duration(values.at(0.95))}, 99 % at most {duration(values.at(0.99))}",
        ", by the clocks of the nodes as they are. " if facts.moves.worst_skew_ms or "hops" in facts.unknown else ". ",
        _troubles(facts.flows.failed, facts.flows.incomplete),
    )
    notes = None
    if facts.moves.worst_skew_ms:
        notes = tag(
            "p", "Clocks of nodes differ: the flows below are each put on one clock, and ordered by that.", class_="unit"
        )
    order = None
    if [flow.key for flow in facts.drawn] != [flow.key for flow in facts.slowest]:
        order = tag("p", "The slowest two of each type come first: what one burst made is all alike.", class_="unit")
    firsts = {flow.root_identity: flow.key for flow in reversed(facts.drawn)}
    lacking = [
        tag("p", f"{what} is not drawn: {facts.empty[table]}.", class_="caution")
        for table, what in (("hops", "What was on its way"), ("callbacks", "Who waited"))
        if table in facts.unknown
    ]
    nothing = _nothing(facts)
    drawn = [
        _flow(flow, colours, place, _alike(flow, facts) if firsts[flow.root_identity] == flow.key else "", nothing)
        for place, flow in enumerate(facts.drawn, 1)
    ]
    rest = more(f"{count(len(drawn) - _OPEN, 'flow')} more", drawn[_OPEN:]) if len(drawn) > _OPEN else None
    shown = drawn[:_OPEN] or empty("their steps cannot be read")
    return section("flows", title, lead, text, notes, order, lacking, shown, rest)


def _troubles(failed: int, incomplete: int) -> str:
    """What is to be said of flows in which not all is well.

    >>> _troubles(29, 17), _troubles(0, 1), _troubles(0, 0)
    ('In 29 of them something failed; of 17 not all was seen.', 'Of 1 not all was seen.', '')
    """
    clauses = [f"in {failed:,} of them something failed"] if failed else []
    clauses += [f"of {incomplete:,} not all was seen"] if incomplete else []
    said = "; ".join(clauses)
    return f"{said[:1].upper()}{said[1:]}." if said else ""


def _nothing(facts: Facts) -> Part:
    """Why a flow has no steps, as far as somebody looked for them."""
    looked = (("hops", "none of its messages was seen to move"), ("callbacks", "nobody waited for an answer"))
    said = ", and ".join(words for table, words in looked if table not in facts.unknown)
    return empty(said) if said else None


def _alike(flow: SlowFlow, facts: Facts) -> str:
    """How many others began with the same message type, and how many of them took about as long."""
    root = facts.flows.roots.get(flow.root_identity)
    others = root.duration.count - 1 if root else 0
    if not root or others < 1:
        return ""
    said = f"{count(others, 'other flow')} began with it"
    if flow.raw_ms is not None:  # others were not put on one clock: they cannot be compared
        return f"{said}."
    alike = root.duration.count_from(_ALIKE * flow.duration_ms) - 1
    if alike < 1:
        return f"{said}, and took less."
    if others == 1:
        return f"{said}, and took about as long."
    return f"{said}; {'all' if alike == others else f'{alike:,}'} of them took about as long."


def _flow(flow: SlowFlow, colours: Colours, place: int, alike: str, nothing: Part) -> Html:
    scale = time_ticks(flow.duration_ms)
    most = max(float(flow.duration_ms), 1e-9)
    inside = [percent(at / most) for at in scale if at <= most]
    lines = [tag("line", x1=at, x2=at, y1=0, y2="100%", class_="grid") for at in inside]
    heading = tag(
        "h3",
        f"{place}. ",
        key(flow.root_identity),
        " from ",
        key(flow.root_node, 30),
        tag("span", f" {duration(flow.duration_ms)}", class_="took"),
    )
    about: list[Part] = [moment(flow.started_at), " UTC · ", count(flow.messages, "message"), " · flow ", whole_id(flow.key)]
    if flow.raw_ms is not None:
        about.append(f" · {duration(flow.raw_ms)} by the clocks as they are")
    about.append(f" · {alike}" if alike else None)
    rows = [_row(_axis(scale, most), "", "", "axis", hidden=True)]
    rows += [_step(step, most, lines, colours) for step in flow.steps]
    made = tag("div", rows, class_="gantt", role="table", aria_label=clean(f"Steps of flow {flow.key}"))
    body = made if flow.steps else nothing
    rest = tag("p", f"{count(flow.more, 'step')} more are not drawn.", class_="unit") if flow.more else None
    return tag("article", heading, tag("p", about, class_="unit"), body, rest, class_="flow")


def _row(picture: Html, label: Part, took: Part, kind: str = "", *, hidden: bool = False) -> Html:
    cells = (
        tag("div", label, class_="what", role="cell"),
        tag("div", picture, class_="when", role="cell"),
        tag("div", took, class_="took n", role="cell"),
    )
    return tag("div", cells, class_=f"row {kind}".strip(), role="row", aria_hidden="true" if hidden else None)


def _axis(scale: list[float], most: float) -> Html:
    texts = []
    for at in scale:
        if at <= most:
            where = "start" if at == 0 else "end" if at / most > 0.93 else "middle"
            texts.append(tag("text", duration(at) if at else "0", x=percent(at / most), y=12, class_=f"tick {where}"))
    return tag("svg", texts, width="100%", height=16, class_="chart")


def _step(step: Step, most: float, lines: list[Html], colours: Colours) -> Html:
    begin, end = step.begin_ms, step.end_ms
    kind = colours.of(step.identity)
    took = None if begin is None or end is None else end - begin
    if step.kind == "wait":
        doubt = tag("small", "as others saw it, not who asked") if step.is_hearsay else None
        label: Part = joined("asked ", key(step.identity, 28), " ", doubt)
        words, mark = _wait(step, most)
        is_good = step.outcome in ("ok", "duplicate")
        said = words if took is None else duration(took) if is_good else joined(duration(took), tag("small", f" {words}"))
        return _row(_bars(lines, mark, words), label, said if is_good else tag("span", said, class_="bad-text"), "wait")
    where = "inside " if step.source == step.target else ""
    ends = key(step.source, 18) if where else joined(key(step.source, 18), " → ", key(step.target, 18))
    label = joined(key(step.identity, 28), tag("small", where, ends))
    if took is not None and begin is not None:
        mark = tag("rect", x=percent(begin / most), width=percent(took / most), y="50%", height=10, class_=f"move {kind}")
        return _row(_bars(lines, mark, f"{duration(begin)} to {duration(end)}"), label, duration(took))
    at = percent(step.first_ms / most)
    if step.is_lost:
        shape, words = tag("text", "✕", x=at, y="50%", class_="cross middle"), "lost"
    elif begin is not None:
        shape, words = tag("circle", cx=at, cy="50%", r=4, class_=f"half {kind}"), "arrival not seen"
    else:
        shape, words = tag("circle", cx=at, cy="50%", r=4, class_=f"half {kind}"), "sending not seen"
    return _row(_bars(lines, shape, words), label, tag("span", words, class_="bad-text" if step.is_lost else "zero"))


def _wait(step: Step, most: float) -> tuple[str, Html]:
    begin = step.begin_ms or 0.0
    end = most if step.end_ms is None else step.end_ms
    words = {"pending": "no answer", "exception": "failed"}.get(step.outcome, step.outcome or NOT_KNOWN)
    kind = "wait" if step.outcome in ("ok", "duplicate") else "wait failed"
    return words, tag("rect", x=percent(begin / most), width=percent((end - begin) / most), y="50%", height=6, class_=kind)


def _bars(lines: list[Html], mark: Html, words: str) -> Html:
    return tag(
        "svg", tag("title", words), lines, mark, width="100%", height="100%", class_="chart", role="img", aria_label=words
    )
