"""The sections that tell what went wrong, or could: answers, time to live, losses, signatures, formats, rejects, clocks."""

from typing import Final

from hopline.report.read.answers import OUTCOMES, REQUESTS
from hopline.report.read.audits import STATUSES
from hopline.report.read.facts import Facts
from hopline.report.read.ids import flow_of
from hopline.report.show.charts import bar, legend, split
from hopline.report.show.html import (
    Column,
    Html,
    Part,
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
from hopline.report.show.words import clean, count, duration, moment, share

GRADES: Final = {
    **dict.fromkeys(("ok", "valid", "in time"), "good"),
    **dict.fromkeys(("exception", "invalid", "replayed", "expired", "pending", "never arrived"), "bad"),
    **dict.fromkeys(("late", "unknown-domain"), "warn"),
}
"""The class of what can be said of a message; all else is neither good nor bad."""

_OUTCOMES: Final = {
    "ok": "answered",
    "exception": "failed",
    "late": "answered too late",
    "expired": "no answer, time is over",
    "pending": "no answer yet",
    "orphan": "answers that nobody asked for",
    "duplicate": "further answers",
}
_STATUSES: Final = {
    "valid": "valid",
    "unsigned": "not signed",
    "invalid": "forged or changed",
    "unknown-domain": "unknown key",
    "replayed": "replayed",
    "unchecked": "not checked",
}
_SHADES: Final = ("a", "b", "c", "d")
"""Steps of one colour with several parts: their names and numbers tell them apart."""


def _divided(parts: list[tuple[str, str, int]], what: str) -> Html:
    """One bar with a legend that names each part, its number and share."""
    whole = sum(value for _, _, value in parts)
    used: dict[str, int] = {}
    shaded = []
    for name, shown, value in parts:
        grade = GRADES.get(name, "plain")
        shaded.append((f"{grade} {_SHADES[min(used.get(grade, 0), 3)]}", shown, value))
        used[grade] = used.get(grade, 0) + 1
    words = f"{what}: " + ", ".join(f"{shown} {value:,}" for _, shown, value in shaded)
    entries: list[tuple[str, Part]] = [
        (kind, joined(shown, " ", tag("b", number(value)), f" ({share(value, whole)})")) for kind, shown, value in shaded
    ]
    return joined(split(shaded, words), legend(entries))


def answers(facts: Facts, top: int) -> Html:
    """What came of requests."""
    title = "Requests without a good answer"
    lead = "What came of every request for an answer, system traffic left out; and what failures say of themselves."
    if "callbacks" in facts.empty:
        return section("answers", title, lead, empty(facts.empty["callbacks"]))
    found = facts.answers
    parts = [(name, _OUTCOMES[name], found.count(name)) for name in REQUESTS if found.count(name)]
    strays = [(name, _OUTCOMES[name], found.count(name)) for name in OUTCOMES if name not in REQUESTS and found.count(name)]
    if not parts and not strays:
        return section("answers", title, lead, empty("no request was seen but those of system traffic"))
    extra = None
    if strays:
        extra = tag("p", "Besides there were ", " and ".join(f"{value:,} {shown}" for _, shown, value in strays), ".")
    return section(
        "answers",
        title,
        lead,
        _divided(parts, "Requests") if parts else None,
        extra,
        _failures(facts, top),
        _unanswered(facts, top),
    )


def _failures(facts: Facts, top: int) -> Part:
    heading = tag("h3", "Failed")
    failures = facts.answers.failures.ordered()
    if not failures:
        return joined(heading, empty("no request failed"))
    rows = []
    for (request, kind, pattern), (times, others) in failures[:top]:
        flow, text = facts.answers.failures.note_of((request, kind, pattern)) or (None, pattern)
        differ = (" ", tag("small", "(numbers in it differ)")) if others else None
        said = tag("span", clean(text or "", 300), differ, class_="said")
        rows.append((key(request), number(times), tag("code", clean(kind or "not readable", 120)), said, whole_id(flow)))
    columns = [
        Column("request"),
        *numbers("times"),
        Column("type of failure"),
        Column("what it says"),
        Column("example flow"),
    ]
    return joined(heading, table(f"Failures, the most frequent first{of(len(rows), len(failures))}", columns, rows))


def _unanswered(facts: Facts, top: int) -> Part:
    heading = tag("h3", "Not answered")
    found = facts.answers.unanswered.ordered()
    if not found:
        return joined(heading, empty("every request got an answer"))
    rows = []
    for (request, outcome), counts in found[:top]:
        at, flow = facts.answers.oldest.get((request, outcome), (None, None))
        rows.append((key(request), number(counts[0]), _OUTCOMES[outcome], moment(at), whole_id(flow_of(flow))))
    columns = [Column("request"), *numbers("times"), Column("because"), Column("first asked (UTC)"), Column("its flow")]
    return joined(heading, table(f"Requests without an answer{of(len(rows), len(found))}", columns, rows))


def expiries(facts: Facts, top: int) -> Html:
    """Time to live."""
    title = "Time to live"
    lead = joined(
        "Messages that are worth something only for a while: did they arrive within their time? Whether an answer came in "
        "time too is told under ",
        tag("a", "answers", href="#answers"),
        ". Times that are equal to two digits are one row.",
    )
    if "expiries" in facts.empty:
        return section("expiries", title, lead, empty(facts.empty["expiries"]))
    sent, in_time, late, expired = facts.expiries.types.total()
    rest = sent - in_time - late - expired
    parts = [
        ("in time", "arrived in time", in_time),
        ("late", "arrived too late", late),
        ("never arrived", "never arrived", expired),
    ]
    divided = _divided([*parts, ("not seen", "not seen to arrive", rest)], "Messages with a time to live")
    unseen = None
    if rest:  # the table does not tell these cases apart
        words = (
            "Not seen to arrive: where such a message should have been seen next nothing was captured, or nothing after its "
            "time was over."
        )
        unseen = tag("p", words, class_="unit")
    types = facts.expiries.types.ordered()
    types.sort(key=lambda item: (-(item[1][2] + item[1][3]), -item[1][0]))
    rows = [
        (
            joined(key(identity), " ", tag("small", _ttl(facts.expiries.longest.get((identity, ttl), ttl)))),
            number(sums[0]),
            count(sums[1]),
            grave(sums[2]),
            grave(sums[3]),
            _used(facts.expiries.used.get((identity, ttl))),
        )
        for (identity, ttl), sums in types[: max(top, 20)]
    ]
    columns = [
        Column("message type"),
        *numbers("sent", "arrived in time", "arrived too late", "never arrived", "time used (p95)"),
    ]
    listed = table(f"By message type and time to live{of(len(rows), len(types))}", columns, rows)
    return section("expiries", title, lead, sums_of("hour", facts.since, facts.until), divided, unseen, listed)


def _ttl(ttl_ms: float | None) -> str:
    return "over when sent" if ttl_ms is None or ttl_ms < 0 else f"within {duration(ttl_ms)}"


def _used(part: float | None) -> Part:
    if part is None:
        return "-"
    return (
        tag("b", f"{100 * part:.0f} %", class_="bad-text") if part > 1 else f"{100 * part:.0f} %" if part > 0.01 else "< 1 %"
    )


def losses(facts: Facts, top: int) -> Html:
    """What was sent and never arrived."""
    title = "Lost messages"
    lead = "Sent to a node whose capture covers that time, and never seen there."
    if "hops" in facts.empty:
        return section("losses", title, lead, empty(facts.empty["hops"]))
    lost = facts.moves.lost.ordered()
    if not lost:
        _, sent, *_ = facts.moves.ends.total()
        doubt = f"; of {count(sent, 'message')} it is not known, as only the sender was captured" if sent else ""
        return section("losses", title, lead, empty(f"nothing was lost between nodes that were captured{doubt}"))
    rows = [
        (
            joined(key(one), " → ", key(other)),
            key(identity),
            number(counts[0]),
            whole_id(facts.moves.lost.note_of((one, other, identity))),
        )
        for (one, other, identity), counts in lost[: max(top, 20)]
    ]
    columns = [Column("from → to"), Column("message type"), *numbers("lost"), Column("example flow")]
    system = facts.moves.lost_system
    of_these = f", {system:,} of them system traffic" if system else ""
    total = tag("p", tag("b", number(facts.moves.lost.total()[0], "lost-total")), f" in all{of_these}.")
    return section("losses", title, lead, total, table(f"Lost messages{of(len(rows), len(lost))}", columns, rows))


def signatures(facts: Facts, top: int) -> Html:
    """What signatures are worth."""
    title = "Signatures"
    lead = "Whether messages come from who holds the key of their domain. Every sighting of a message as bytes is counted."
    if "signatures" in facts.empty:
        return section("signatures", title, lead, empty(facts.empty["signatures"]))
    found = facts.signatures
    parts = [(name, _STATUSES[name], found.count(name)) for name in STATUSES if found.count(name)]
    domains: dict[str | None, dict[str, int]] = {}
    for (domain, status), counts in found.domains.ordered():
        domains.setdefault(domain, {})[status] = counts[0]
    shown = [name for name in STATUSES if any(name in row for row in domains.values())]
    rows = []
    for domain, row in list(domains.items())[: max(top, 20)]:
        cells: list[Part] = [
            grave(row[name]) if name in ("invalid", "replayed") and row.get(name) else count(row.get(name, 0))
            for name in shown
        ]
        rows.append([tag("span", "no domain", class_="key none") if not domain else key(domain), *cells])
    by_domain = table(
        "Sightings by security domain", [Column("domain"), *numbers(*(_STATUSES[name] for name in shown))], rows
    )
    bad = found.bad.ordered()
    never = {pair for pair, _ in found.never_valid}
    seen: Part = None
    if bad:
        seen = table(
            f"What should not be{of(min(len(bad), top), len(bad))}",
            [Column("verdict"), Column("domain"), Column("seen by"), *numbers("sightings"), Column("an example")],
            (
                (
                    _verdict(status, is_sure=(domain, node) not in never),
                    key(domain),
                    key(node),
                    number(counts[0]),
                    whole_id(found.bad.note_of((status, domain, node))),
                )
                for (status, domain, node), counts in bad[:top]
            ),
        )
    hours = sums_of("hour", facts.since, facts.until)
    return section("signatures", title, lead, hours, _divided(parts, "Signatures"), by_domain, seen, _covered(facts))


def _verdict(status: str, *, is_sure: bool) -> Html:
    doubt = None
    if status == "invalid" and not is_sure:
        doubt = (" ", tag("small", "or the key that was given is wrong: none of this domain is valid there"))
    return joined(_STATUSES.get(status, status), doubt)


def _covered(facts: Facts) -> Part:
    if not facts.signatures.covered:
        return None
    rows = [
        (key(domain), ", ".join(under), ", ".join(free) or "nothing")
        for domain, (under, free) in sorted(facts.signatures.covered.items())
    ]
    listed = table(
        "What a signature covers",
        [Column("domain"), Column("signed"), Column("anybody on the way can change")],
        rows,
        class_="texts",
    )
    return more("What the signatures cover", listed)


def formats(facts: Facts) -> Html:
    """Which formats are spoken."""
    title = "Formats"
    lead = "The wire formats in which messages were seen. Inside a node messages never become bytes."
    if "messages" in facts.empty:
        return section("formats", title, lead, empty(facts.empty["messages"]))
    rows = facts.seen.formats.ordered()
    whole = facts.seen.sightings
    most = rows[0][1][0] if rows else 0
    listed = table(
        "Sightings by format",
        [Column("format"), *numbers("sightings", "share"), Column("", kind="bars")],
        (
            (
                joined(
                    clean(format_ or "not known"),
                    " ",
                    tag("small", clean(variant or "") or ("" if encoded else "inside a node")),
                ),
                number(counts[0]),
                share(counts[0], whole),
                bar(counts[0], most, "plain a" if encoded else "plain c"),
            )
            for (format_, variant, encoded), counts in rows[:30]
        ),
        class_="types",
    )
    nodes = facts.seen.nodes.ordered()
    taps = more(
        "Who saw how much, and where",
        table(
            f"Sightings by node and tap{of(min(len(nodes), 60), len(nodes))}",
            [Column("node"), Column("tap"), *numbers("sightings", "share")],
            ((key(node), clean(tap or ""), count(counts[0]), share(counts[0], whole)) for (node, tap), counts in nodes[:60]),
        ),
    )
    return section("formats", title, lead, listed, taps)


def rejects(facts: Facts, top: int) -> Html:
    """What is no message."""
    title = "Unreadable records"
    lead = "Records of the captures that are no message in any format: broken, cut, or of another protocol."
    if "rejects" in facts.empty:
        return section("rejects", title, lead, empty(facts.empty["rejects"]))
    found = facts.rejects.codes.ordered()
    rows = []
    for (code, reason), counts in found[:top]:
        event, excerpt = facts.rejects.codes.note_of((code, reason)) or (None, None)
        example = joined(whole_id(event), " ", tag("small", tag("code", clean(excerpt or "", 60))))
        rows.append(
            (tag("code", clean(code or "")), number(counts[0]), tag("span", clean(reason or ""), class_="said"), example)
        )
    columns = [Column("code"), *numbers("times"), Column("reason"), Column("an example")]
    whole = facts.rejects.count + facts.seen.sightings
    total = tag(
        "p",
        tag("b", number(facts.rejects.count, "rejects-total")),
        f" of {count(whole, 'record')} ({share(facts.rejects.count, whole)}).",
    )
    nodes = facts.rejects.nodes.ordered()
    where = table(
        "Who saw them",
        [Column("node"), Column("tap"), *numbers("times")],
        ((key(node), clean(tap or ""), count(counts[0])) for (node, tap), counts in nodes[:top]),
    )
    return section(
        "rejects",
        title,
        lead,
        total,
        table(f"Reasons{of(len(rows), len(found))}", columns, rows),
        more("Who saw them", where),
    )


def clocks(facts: Facts, top: int) -> Html:
    """How clocks differ."""
    title = "Clocks"
    lead = (
        "Every node stamps what it sees by its own clock. Where messages went both ways, and one seems to arrive before it "
        "was sent, the difference of the clocks can be told; latencies are corrected by it."
    )
    if "hops" in facts.empty:
        return section("clocks", title, lead, empty(facts.empty["hops"]))
    pairs: dict[tuple[str, str], list[float]] = {}
    for (_, one, other), skew in facts.moves.skews.items():
        if not skew:
            continue
        ahead = (other, one, skew) if skew > 0 else (one, other, -skew)
        pairs.setdefault(ahead[:2], []).append(ahead[2])
    if not pairs:
        return section("clocks", title, lead, empty("nothing shows that clocks of nodes differ"))
    ordered = sorted(pairs.items(), key=lambda item: (-max(item[1]), item[0]))
    rows = [(key(ahead), key(behind), duration(max(values))) for (ahead, behind), values in ordered[: max(top, 20)]]
    columns = [Column("the clock of"), Column("is ahead of that of"), *numbers("by")]
    early = facts.moves.backwards
    seemed = f"{count(early, 'move')} seemed to end before {'it' if early == 1 else 'they'} began. " if early else ""
    backwards = tag(
        "p", f"{seemed}Times of single sightings, such as in the chart of traffic, are left as they were recorded."
    )
    return section("clocks", title, lead, backwards, table(f"Differences{of(len(rows), len(ordered))}", columns, rows))
