"""What was found, in plain words: a few sentences for somebody who reads nothing else.

Each sentence has a grade and leads to the section that shows it. They say what is, and not whose fault it is.
"""

from typing import Final, Literal

import msgspec

from hopline.report.read.answers import REQUESTS, UNANSWERED
from hopline.report.read.facts import Facts
from hopline.report.show.words import count, duration, share, short

Grade = Literal["good", "note", "bad"]

_SHOWN: Final = {
    "messages": "traffic",
    "rejects": "rejects",
    "hops": "latency",
    "callbacks": "answers",
    "flows": "flows",
    "edges": "services",
    "expiries": "expiries",
    "signatures": "signatures",
}
"""The section of each table that something is found in."""


class Finding(msgspec.Struct, frozen=True):
    """One sentence: how grave it is, and the section that shows it."""

    grade: Grade
    section: str
    text: str


def findings(facts: Facts) -> list[Finding]:
    """What was found, what is grave first."""
    found = [
        *_answers(facts),
        *_flows(facts),
        *_losses(facts),
        *_of_whole("hours", facts, [*_expiries(facts), *_signatures(facts)]),
        *_of_whole("minutes", facts, _edges(facts)),
        *_rejects(facts),
        *_clocks(facts),
        *_speed(facts),
        *_left_out(facts),
    ]
    order = {"bad": 0, "note": 1, "good": 2}
    return sorted(found, key=lambda finding: order[finding.grade]) or [Finding("note", "traffic", _nothing(facts))]


def _nothing(facts: Facts) -> str:
    if "messages" in facts.empty:
        reason = facts.empty["messages"]
        return f"There is nothing to tell: {reason}{'' if reason.endswith('?') else '.'}"
    why = "" if _others(facts) else ": no other table was made, or has rows"
    return f"There is nothing to tell but the traffic itself{why}."


def _others(facts: Facts) -> list[str]:
    """Tables with rows, but for the traffic itself."""
    return [table for table in _SHOWN if table not in facts.empty and table != "messages"]


def _left_out(facts: Facts) -> list[Finding]:
    """What nothing can be found in, where something can in others: no news of it is not good news."""
    lacking = [table for table in _SHOWN if table in facts.unknown]
    if not lacking or not _others(facts):
        return []
    *first, last = lacking
    named = f"tables {', '.join(first)} and {last} were" if first else f"table {last} was"
    would = f"what {'they' if first else 'it'} would tell is missing here"
    return [Finding("note", _SHOWN[lacking[0]], f"The {named} not made, or cannot be read: {would}.")]


def _answers(facts: Facts) -> list[Finding]:
    answers = facts.answers
    requests = answers.count(*REQUESTS)
    if not requests:
        return []
    found = []
    failed, waiting, late = answers.count("exception"), answers.count(*UNANSWERED), answers.count("late")
    if failed:
        (name, kind, _), numbers = answers.failures.ordered()[0]
        most = f"; most often {short(name, 40)}, with {short(kind, 60)}" if name and kind and numbers[0] else ""
        found.append(
            Finding(
                "bad",
                "answers",
                f"{count(failed, 'request')} of {count(requests)} failed ({share(failed, requests)}){most}.",
            )
        )
    if waiting:
        found.append(
            Finding(
                "bad",
                "answers",
                f"{count(waiting, 'request')} of {count(requests)} got no answer ({share(waiting, requests)}).",
            )
        )
    if late:
        found.append(Finding("note", "answers", f"{count(late, 'answer')} came after the time to live of the request."))
    if not failed and not waiting:
        all_ = "The only request was" if requests == 1 else f"All {count(requests)} requests were"
        found.append(Finding("good", "answers", f"{all_} answered without a failure."))
    return found


def _flows(facts: Facts) -> list[Finding]:
    """Failures, where no requests tell of them."""
    failed, all_ = facts.flows.failed, facts.flows.count
    if not failed or "callbacks" not in facts.unknown:
        return []
    return [
        Finding("bad", "flows", f"In {count(failed, 'flow')} of {count(all_)} something failed ({share(failed, all_)}).")
    ]


def _edges(facts: Facts) -> list[Finding]:
    """What edges tell, where the tables that tell it better are not there."""
    links = facts.links.between("node")
    texts = []
    errors = sum(link.errors for link in links)
    if errors and {"callbacks", "flows"} <= facts.unknown:
        texts.append(f"{count(errors, 'message')} between nodes {'is a failure' if errors == 1 else 'are failures'}.")
    waiting = sum(link.messages for link in facts.links.between("message") if link.target is None)
    if waiting and "callbacks" in facts.unknown:
        texts.append(f"{count(waiting, 'request')} got no answer.")
    lost = sum(link.lost for link in links)
    if lost and "hops" in facts.unknown:
        they = "it" if lost == 1 else "they"
        texts.append(
            f"{count(lost, 'message')} got lost between nodes, system traffic left out: sent, and never seen where {they} "
            "should be."
        )
    late = sum(link.expired for link in links)
    if late and "expiries" in facts.unknown:
        were, their = ("was", "its") if late == 1 else ("were", "their")
        way = f"longer on {their} way from one node to the next than {their} time to live"
        texts.append(f"{count(late, 'message')} {were} {way}.")
    return [Finding("bad", "services", text) for text in texts]


def _losses(facts: Facts) -> list[Finding]:
    if "hops" in facts.empty:
        return []
    lost = facts.moves.lost.total()[0]
    both, sent, *_ = facts.moves.ends.total()
    doubt = [Finding("note", "losses", _doubt(facts, sent))] if sent else []
    if not lost:
        text = "No message was lost between nodes whose captures cover both ends."
        return [*doubt, Finding("good", "losses", text)] if both else doubt
    system = facts.moves.lost_system
    of_these = f" ({system:,} of them system traffic)" if system else ""
    they = "it" if lost == 1 else "they"
    text = f"{count(lost, 'message')} got lost between nodes{of_these}: sent, and never seen where {they} should be."
    return [Finding("bad", "losses", text), *doubt]


def _doubt(facts: Facts, sent: int) -> str:
    """What may be lost or not."""
    (one, other), (_, most, _, _) = facts.moves.ends.ordered(by=1)[0]
    of_these = f", {most:,} of them" if most < sent else ","
    where = f"from {short(one, 40)} to {'a node that is not known' if other is None else short(other, 40)}"
    were, they = ("was", "it") if sent == 1 else ("were", "they")
    left = f"{count(sent, 'message')} {were} seen only where {they} {were} sent{of_these} {where}"
    return f"{left}: the receiver was not captured, or not all the time, and whether {they} arrived is not known."


def _of_whole(unit: Literal["hours", "minutes"], facts: Facts, found: list[Finding]) -> list[Finding]:
    """Say of numbers that are kept by the hour or minute what they are of, if some time was asked for.

    Where nothing at all was seen in that time they are not of it.
    """
    if not facts.since and not facts.until:
        return found
    if "messages" in facts.empty and "messages" not in facts.unknown:
        return []
    return [Finding(finding.grade, finding.section, _with_bracket(finding.text, f"of whole {unit}")) for finding in found]


def _with_bracket(sentence: str, words: str) -> str:
    """A sentence with some more words in a bracket at its end.

    >>> _with_bracket("3 are late.", "of whole hours"), _with_bracket("3 are late (1 %).", "of whole hours")
    ('3 are late (of whole hours).', '3 are late (1 %, of whole hours).')
    """
    return f"{sentence[:-2]}, {words})." if sentence.endswith(").") else f"{sentence.removesuffix('.')} ({words})."


def _expiries(facts: Facts) -> list[Finding]:
    sent, _, late, expired = facts.expiries.types.total()
    if late or expired:
        said = [f"{late:,} arrived too late"] if late else []
        said += [f"{expired:,} never arrived"] if expired else []
        return [Finding("bad", "expiries", f"Of {count(sent, 'message')} with a time to live, {' and '.join(said)}.")]
    text = f"Of {count(sent, 'message')} with a time to live, none was seen to arrive too late, or not to arrive."
    return [Finding("good", "expiries", text)] if sent else []


def _signatures(facts: Facts) -> list[Finding]:
    signatures = facts.signatures
    checked = signatures.count("valid", "invalid", "replayed")
    found = []
    if forged := signatures.count("invalid"):
        never = signatures.never_valid
        is_all = sum(times for _, times in never) == forged
        doubt = "; or the key that was given is wrong, for none of that domain is valid there" if is_all else ""
        text = f"{count(forged, 'sighting')} with a signature that is not of its domain's key: forged, or changed on the way"
        found.append(Finding("bad", "signatures", f"{text}{doubt}."))
        if never and not is_all:
            (domain, node), _ = never[0]
            named = f"domain {short(domain, 40)} at node {short(node, 40)}"
            others = f" (and {len(never) - 1:,} more)" if len(never) > 1 else ""
            text = f"No signature of {named}{others} is valid: the key that was given may be wrong."
            found.append(Finding("note", "signatures", text))
    if again := signatures.count("replayed"):
        found.append(
            Finding(
                "bad", "signatures", f"{count(again, 'sighting')} of valid messages that were seen there before: replayed."
            )
        )
    if strange := signatures.count("unknown-domain"):
        found.append(
            Finding("note", "signatures", f"{count(strange, 'sighting')} name a security domain nobody gave a key for.")
        )
    if unsigned := signatures.count("unsigned"):
        whole = signatures.statuses.total()[0]
        text = f"{unsigned:,} of {count(whole, 'sighting')} of messages between nodes {_is(unsigned)} not signed"
        found.append(Finding("note", "signatures", f"{text} ({share(unsigned, whole)})."))
    if unchecked := signatures.count("unchecked"):
        text = f"{count(unchecked, 'sighting')} with a signature that could not be checked."
        found.append(Finding("note", "signatures", text))
    if checked and not forged and not again:
        text = f"All signatures that could be checked are valid, in {count(checked, 'sighting')}."
        found.append(Finding("good", "signatures", text))
    return found


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _rejects(facts: Facts) -> list[Finding]:
    rejected = facts.rejects.count
    if not rejected:
        return []
    # Of how many is not known without the messages.
    whole = "" if "messages" in facts.unknown else f" of {count(rejected + facts.seen.sightings)}"
    return [Finding("note", "rejects", f"{count(rejected, 'record')}{whole} {_is(rejected)} unreadable.")]


def _clocks(facts: Facts) -> list[Finding]:
    worst = facts.moves.worst_skew_ms
    if not worst:
        return []
    left = facts.moves.uncompared.total()[0]
    moves = f"{count(left, 'move')} between nodes whose clocks could not be compared"
    rest = f"; {moves} {_is(left)} not corrected" if left else ""
    found = f"differ by up to {duration(worst)} where they could be compared, and latencies are corrected for it"
    return [Finding("note", "clocks", f"Clocks of nodes {found}{rest}.")]


def _speed(facts: Facts) -> list[Finding]:
    wait = facts.answers.wait
    if not wait.count:
        return []
    half, most, last = duration(wait.at(0.5)), duration(wait.at(0.95)), duration(wait.greatest)
    left_out = facts.answers.unmeasured.total()[0]
    rest = f"; {left_out:,} to nodes that were not captured {_is(left_out)} left out" if left_out else ""
    text = f"Half of all answers came within {half}, 95 % within {most}, the slowest after {last}{rest}."
    return [Finding("note", "latency", text)]
