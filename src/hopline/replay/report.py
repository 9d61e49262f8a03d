"""The report: what came back, compared with the original, message by message and in numbers.

Results are counted as they come, and only waits are kept, eight bytes each: so a report of any number of messages is small.
It knows no network and no terminal.
"""

from array import array
from collections import Counter
from typing import Final, Literal, get_args

import msgspec
import numpy as np

from hopline.replay.outcome import Difference, Outcome, are_bodies_known, difference, name_of
from hopline.replay.script import Play, Way

Bodies = Literal["equal", "different", "unknown"]

_HEARD: Final = {"answer", "exception", "receipt"}
"""Ends at which somebody heard something: of the others a wait is our own patience."""


class Result(msgspec.Struct, frozen=True):
    """One message that was played: what it was, what came of it then and now, and in what that differs.

    `flow` is its correlation id then: `hopline trace` shows what happened.
    """

    event_id: str
    flow: str
    type: str
    way: Way
    then: Outcome
    now: Outcome
    difference: Difference


class Answers(msgspec.Struct, frozen=True):
    """How the answers of now compare: of the same type as then, of another one, or to what nobody answered then."""

    same_type: int
    other_type: int
    no_answer_then: int


class Percentiles(msgspec.Struct, frozen=True):
    """Times in milliseconds."""

    p50: float
    p95: float
    p99: float


class Waits(msgspec.Struct, frozen=True):
    """How long was waited, over the messages of which it is known for both times."""

    messages: int
    then: Percentiles | None
    now: Percentiles | None


class Summary(msgspec.Struct, frozen=True):
    """A replay in numbers.

    `then` and `now` count the ends; see `Outcome.end`. `exceptions`, `expired` and `no_route` are taken from `now`, for they
    are what is looked for first.
    """

    ok: bool
    played: int
    alike: int
    different: int
    differences: dict[str, int]
    then: dict[str, int]
    now: dict[str, int]
    answers: Answers
    exceptions: int
    expired: int
    no_route: int
    bodies: dict[Bodies, int]
    wait_ms: Waits


class Report:
    """Compares and counts.

    >>> from hopline.identity import MessageType
    >>> report = Report()
    >>> play = Play("s:0", "f1", 0, MessageType(b"HELLO", 1), b"", "ask", then=Outcome("answer", "EHHLO v1", 2.0))
    >>> report.add(play, Outcome("exception", "ValueError", 3.0)).difference
    'end'
    >>> report.summary().differences
    {'end': 1}
    """

    def __init__(self) -> None:
        self.played = 0
        self.different = 0
        self._differences: Counter[str] = Counter()
        self._then: Counter[str] = Counter()
        self._now: Counter[str] = Counter()
        self._answers: Counter[str] = Counter()
        self._bodies: Counter[Bodies] = Counter()
        self._waits_then = array("d")
        self._waits_now = array("d")

    def add(self, play: Play, now: Outcome) -> Result:
        """Count what came of a message."""
        then = play.then
        differs = difference(then, now)
        self.played += 1
        self.different += bool(differs)
        self._then[then.end] += 1
        self._now[now.end] += 1
        if differs:
            self._differences[differs] += 1
        if now.end == "answer":
            self._count_answer(then, now)
        if (
            then.wait_ms is not None
            and now.wait_ms is not None
            and {then.end, now.end} <= {"answer", "exception", "receipt"}
        ):
            self._waits_then.append(then.wait_ms)
            self._waits_now.append(now.wait_ms)
        return Result(
            play.event_id, play.flow, name_of(play.kind), play.way, then.without_body(), now.without_body(), differs
        )

    def _count_answer(self, then: Outcome, now: Outcome) -> None:
        if then.end != "answer":
            self._answers["no_answer_then"] += 1
            return
        self._answers["same_type" if then.type == now.type else "other_type"] += 1
        if not are_bodies_known(then, now):
            self._bodies["unknown"] += 1
        else:
            self._bodies["equal" if then.body == now.body else "different"] += 1

    def summary(self) -> Summary:
        """All of it in numbers."""
        return Summary(
            ok=not self.different,
            played=self.played,
            alike=self.played - self.different,
            different=self.different,
            differences=dict(self._differences.most_common()),
            then=dict(self._then.most_common()),
            now=dict(self._now.most_common()),
            answers=Answers(*(self._answers[name] for name in Answers.__struct_fields__)),
            exceptions=self._now["exception"],
            expired=self._now["EXPIRED"],
            no_route=self._now["NO_ROUTE"],
            bodies={name: self._bodies[name] for name in get_args(Bodies)},
            wait_ms=Waits(len(self._waits_now), _percentiles(self._waits_then), _percentiles(self._waits_now)),
        )


def _percentiles(waits: "array[float]") -> Percentiles | None:
    if not waits:
        return None
    return Percentiles(*(float(value) for value in np.percentile(np.asarray(waits), [50, 95, 99])))
