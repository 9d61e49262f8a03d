"""The page: one file that needs nothing else, runs no script, and is let do nothing by its own policy."""

import base64
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.resources import files
from typing import Final

from hopline.report.findings import Finding
from hopline.report.read.answers import REQUESTS
from hopline.report.read.facts import Facts
from hopline.report.read.system import ANSWERS
from hopline.report.show import checks, gantt, latency, services, traffic
from hopline.report.show.charts import Colours
from hopline.report.show.html import Html, Part, joined, number, tag
from hopline.report.show.words import clean, duration, moment

_STYLE: Final = files(__package__).joinpath("page.css").read_text(encoding="utf-8")

_GRADES: Final = {"bad": ("✕", "Trouble"), "note": ("i", "Note"), "good": ("✓", "Good")}


def policy() -> str:
    """What the page may do: show its own style. No script, no network, no form, nothing from elsewhere."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"


def page(facts: Facts, found: Sequence[Finding], title: str, top: int, now: datetime) -> str:
    """The whole page.

    Args:
        facts: what was read.
        found: what was found, in plain words.
        title: of the page.
        top: how many rows of lists without end.
        now: when it is made.
    """
    colours = Colours(key[0] for key, _ in facts.seen.types.ordered())
    body = (
        traffic.traffic(facts, colours),
        services.services(facts, top),
        latency.latency(facts, top),
        gantt.flows(facts, colours),
        checks.answers(facts, top),
        checks.losses(facts, top),
        checks.expiries(facts, top),
        checks.signatures(facts, top),
        checks.formats(facts),
        checks.rejects(facts, top),
        checks.clocks(facts, top),
    )
    head = (
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy()),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("link", rel="icon", href="data:,"),
        tag("title", clean(title)),
        Html(f"<style>{_STYLE}</style>"),
    )
    skip = tag("a", "Skip to what was found", href="#found", class_="skip")
    main = tag("main", _found(found), body, id="main")
    inside = joined(skip, _header(facts, title), _contents(), main, _footer(facts, now))
    return f"<!doctype html>\n{tag('html', tag('head', *head), tag('body', inside), lang='en')}\n"


def _header(facts: Facts, title: str) -> Html:
    line = facts.seen.timeline
    nodes = len({key[0] for key, _ in facts.seen.nodes.ordered()})
    figures = [
        ("sightings", "sighting", "sightings", facts.seen.sightings, "messages"),
        ("flows", "flow", "flows", facts.flows.count, "flows"),
        ("requests", "request", "requests", facts.answers.count(*REQUESTS), "callbacks"),
        ("types", "message type", "message types", len(facts.seen.types), "messages"),
        ("nodes", "node captured", "nodes captured", nodes, "messages"),
        ("rejects", "unreadable", "unreadable", facts.rejects.count, "rejects"),
    ]
    shown = [
        tag(
            "div",
            tag("dt", many if of in facts.unknown or value != 1 else one),
            tag("dd", "-" if of in facts.unknown else number(value, f"figure-{id_}")),
        )
        for id_, one, many, value, of in figures
    ]
    when: Part = "No messages."
    if line.first_us is not None and line.last_us is not None:
        took = duration((line.last_us - line.first_us) / 1000)
        first, last = moment(line.first_us, digits=0), moment(line.last_us, digits=0)
        last = last.removeprefix(first[:11]) if line.first_us != line.last_us else last
        when = joined("Seen from ", tag("b", first), " to ", tag("b", last), f" UTC ({took}).")
    asked = ""
    if facts.since or facts.until:
        since = f" from {moment(facts.since, digits=0)}" if facts.since else ""
        until = f" until before {moment(facts.until, digits=0)}" if facts.until else " on"
        asked = f" Asked for:{since}{until}."
    notes = [tag("p", note, class_="caution") for note in facts.notes]
    return tag(
        "header",
        tag("h1", clean(title, 120)),
        tag("p", when, asked),
        tag("dl", shown, class_="figures"),
        _left_out(facts),
        notes,
    )


def _left_out(facts: Facts) -> Part:
    """Where system traffic is, and where it is not."""
    if not facts.seen.system:
        return None
    return tag(
        "p",
        number(facts.seen.system, "system-sightings"),
        f" of the sightings {'is' if facts.seen.system == 1 else 'are'} system traffic of nodes and tools (KINO.* and "
        f"HOPLINE.* without the answers {', '.join(ANSWERS)}), left out of flows, requests, latencies and who talks to "
        "whom. To see it: table ",
        tag("code", "messages"),
        " where ",
        tag("code", f"is_system and identity_key not in ({', '.join(map(repr, ANSWERS))})", id="system-where"),
        ".",
        class_="unit",
    )


SECTIONS: Final = {
    "traffic": "Traffic",
    "services": "Who talks to whom",
    "latency": "Latency",
    "flows": "Slowest flows",
    "answers": "Answers",
    "losses": "Losses",
    "expiries": "Time to live",
    "signatures": "Signatures",
    "formats": "Formats",
    "rejects": "Unreadable",
    "clocks": "Clocks",
}


def _contents() -> Html:
    links = [tag("li", tag("a", title, href=f"#{name}")) for name, title in SECTIONS.items()]
    return tag("nav", tag("ul", links), aria_label="Sections")


def _found(found: Sequence[Finding]) -> Html:
    items = []
    for finding in found:
        sign, word = _GRADES[finding.grade]
        mark = tag("span", sign, class_=f"mark {finding.grade}", role="img", aria_label=word)
        items.append(
            tag(
                "li",
                mark,
                tag(
                    "span",
                    finding.text,
                    " ",
                    tag("a", f"See {SECTIONS[finding.section].lower()}", href=f"#{finding.section}"),
                ),
            )
        )
    return tag(
        "section",
        tag("h2", "What was found", id="found-title"),
        tag("ul", items, class_="findings"),
        id="found",
        aria_labelledby="found-title",
    )


def _footer(facts: Facts, now: datetime) -> Html:
    days = f"{facts.days[0]} to {facts.days[-1]}" if len(facts.days) > 1 else "".join(facts.days)
    return tag(
        "footer",
        tag(
            "p",
            "Made of the tables in the folder ",
            tag("code", facts.path),
            f", which {f'are of {days}' if days else 'have no day yet'}",
            f", brought up to date by run {facts.run}. " if facts.run else ". ",
            f"This page was made {moment(now.astimezone(UTC), digits=0)} UTC.",
        ),
        tag(
            "p",
            "To see a flow message by message: ",
            tag("code", "hopline trace FLOW CAPTURES"),
            ". What each table holds: docs/tables.md.",
        ),
    )
