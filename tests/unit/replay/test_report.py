"""What came back, in numbers."""

import msgspec

from hopline.identity import MessageType
from hopline.replay.outcome import Outcome
from hopline.replay.report import Answers, Percentiles, Report, Waits
from hopline.replay.script import Play

HELLO = MessageType(b"HELLO", 1)
SAME = Outcome("answer", "EHHLO v1", 2.0, b"hi")


def play(then, way="ask"):
    return Play("s:7", "flow", 0, HELLO, b"", way, then=then)


def report_of(*pairs):
    report = Report()
    results = [report.add(play(then), now) for then, now in pairs]
    return report.summary(), results


def test_nothing_played_is_no_difference():
    summary, _ = report_of()
    assert summary.ok
    assert (summary.played, summary.wait_ms) == (0, Waits(0, None, None))
    assert summary.bodies == {"equal": 0, "different": 0, "unknown": 0}


def test_all_alike():
    summary, results = report_of((SAME, SAME), (Outcome("sent"), Outcome("sent")), (Outcome("none"), Outcome("EXPIRED")))
    assert summary.ok
    assert (summary.played, summary.alike, summary.different, summary.differences) == (3, 3, 0, {})
    assert [result.difference for result in results] == ["", "", ""]
    assert summary.then == {"answer": 1, "sent": 1, "none": 1}
    assert summary.now == {"answer": 1, "sent": 1, "EXPIRED": 1}


def test_every_difference_is_counted():
    summary, results = report_of(
        (SAME, Outcome("answer", "EHHLO v1", 4.0, b"ho")),
        (SAME, Outcome("answer", "OTHER v1", 4.0, b"hi")),
        (SAME, Outcome("exception", "ValueError", 4.0)),
        (SAME, Outcome("EXPIRED", "", 10.0)),
        (SAME, Outcome("NO_ROUTE")),
        (Outcome("exception", "ValueError", 1.0), SAME),
        (Outcome("none"), SAME),
        (Outcome("answer", "EHHLO v1", 2.0, None), SAME),
    )
    assert not summary.ok
    assert [result.difference for result in results] == ["body", "type", "end", "end", "end", "end", "end", ""]
    assert (summary.alike, summary.different, summary.differences) == (1, 7, {"end": 5, "body": 1, "type": 1})
    assert summary.answers == Answers(same_type=2, other_type=1, no_answer_then=2)
    assert summary.bodies == {"equal": 1, "different": 1, "unknown": 1}
    assert (summary.exceptions, summary.expired, summary.no_route) == (1, 1, 1)


def test_waits_are_compared_over_the_same_messages():
    pairs = [(Outcome("answer", "EHHLO v1", float(ms)), Outcome("answer", "EHHLO v1", ms * 2.0)) for ms in range(101)]
    pairs.append((Outcome("answer", "EHHLO v1", None), Outcome("answer", "EHHLO v1", 5000.0)))
    pairs.append((Outcome("answer", "EHHLO v1", 5000.0), Outcome("EXPIRED", "", 9000.0)))
    summary, _ = report_of(*pairs)
    assert summary.wait_ms == Waits(101, Percentiles(50.0, 95.0, 99.0), Percentiles(100.0, 190.0, 198.0))


def test_a_result_names_the_message_and_holds_no_body():
    _, (result,) = report_of((SAME, Outcome("exception", "KeyError", 3.5)))
    assert msgspec.to_builtins(result) == {
        "event_id": "s:7",
        "flow": "flow",
        "type": "HELLO v1",
        "way": "ask",
        "then": {"end": "answer", "type": "EHHLO v1", "wait_ms": 2.0},
        "now": {"end": "exception", "type": "KeyError", "wait_ms": 3.5},
        "difference": "end",
    }
