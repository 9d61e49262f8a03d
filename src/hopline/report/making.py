"""Making a report: read, judge, show, and put the file in its place at once."""

import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from hopline.report.findings import Finding, findings
from hopline.report.read.facts import read_facts
from hopline.report.show.page import page


class Made(msgspec.Struct, frozen=True):
    """A report that was made: where it is, what was read for it, and what was found."""

    report: str
    run: str
    sightings: int
    flows: int
    found: list[Finding]
    empty: dict[str, str]


def make_report(
    tables: Path, target: Path, *, title: str, top: int, since: datetime | None = None, until: datetime | None = None
) -> Made:
    """Make the report of some tables.

    Args:
        tables: their folder.
        target: the file to write, or to replace.
        title: of the page.
        top: rows of lists that could be endless, and flows that are drawn.
        since: only what happened then or later.
        until: only what happened before.

    Raises:
        TablesError: there are no tables, or they cannot be read.
        OSError: the file cannot be written.
    """
    facts = read_facts(tables, top=top, since=since, until=until)
    found = findings(facts)
    text = page(facts, found, title, top, datetime.now(UTC))
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(target)  # who looks at it meanwhile sees the old one or the new one
    finally:
        part.unlink(missing_ok=True)
    return Made(
        report=str(target),
        run=facts.run,
        sightings=facts.seen.sightings,
        flows=facts.flows.count,
        found=found,
        empty=facts.empty,
    )
