"""Answers: what came of requests, how long they waited, and what failures say. From `callbacks`.

Requests of the system itself are left out; so are answers of it that nobody asked for. How long somebody waited is known
only where the node that asked was captured: what others saw of request and answer is no wait, and such answers are counted.
"""

from datetime import datetime
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hopline.report.read.counting import Greatest, Key, Spread, Tally, groups
from hopline.report.read.ids import NO_FLOWS
from hopline.report.read.system import are_system

OUTCOMES: Final = ("ok", "exception", "late", "expired", "pending", "orphan", "duplicate")
UNANSWERED: Final = ("pending", "expired")
REQUESTS: Final = ("ok", "exception", "late", "expired", "pending")
"""Outcomes of requests; the other two are of answers that nobody waited for."""

_LONGEST_TEXT: Final = 300
"""Letters of a failure's text that are told apart and shown."""

_MOST_PAIRS: Final = 2_000
_NUMBER: Final = r"\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}\b|\d+"
"""What differs between texts that say the same."""


class Answers:
    """Counts outcomes and failures, and measures waits.

    Failures whose texts differ in numbers only are one: `failures` has by request, type and pattern how many there are, and
    whether some say something else than the example.

    Attributes:
        waits: how long requests of a type waited for answers of a type, as the ones who asked saw it.
        wait: the same of all.
        unmeasured: answers by the same two types whose askers were not captured.
        longest: rows that waited longest, of those that were measured.
    """

    table: ClassVar = "callbacks"
    columns: ClassVar = (
        *("correlation_key", "request_identity_key", "response_identity_key", "requested_at", "resolved_at"),
        *("wait_ms", "outcome", "error_type", "error_message", "hub_key", "asker_captured"),
    )

    def __init__(self, longest: int) -> None:
        self.outcomes = Tally()
        self.failures = Tally(2)
        self.unanswered = Tally()
        self.waits: dict[tuple[str | None, str | None], Spread] = {}
        self.wait = Spread()
        self.unmeasured = Tally()
        self.longest = Greatest("wait_ms", longest, "correlation_key")
        self.oldest: dict[Key, tuple[datetime, str]] = {}

    def count(self, *outcomes: str) -> int:
        """How many rows have one of these outcomes."""
        return sum(counts[0] for key, counts in self.outcomes.ordered() if key[0] in outcomes)

    def add(self, batch: pa.RecordBatch) -> None:
        """Count some more rows."""
        what = pc.coalesce(batch["request_identity_key"], batch["response_identity_key"])
        batch = batch.filter(pc.invert(are_system(what)))
        for key, counts in groups(batch, ["outcome"]):
            self.outcomes.add(key, counts)
        outcome = batch["outcome"]
        self._add_failures(batch.filter(pc.fill_null(pc.equal(outcome, "exception"), fill_value=False)))
        self._add_unanswered(batch.filter(pc.is_in(outcome, pa.array(UNANSWERED))))
        answered = batch.filter(pc.and_(batch["wait_ms"].is_valid(), pc.is_in(outcome, pa.array(REQUESTS))))
        is_measured = pc.fill_null(answered["asker_captured"], fill_value=True)  # old tables do not say
        for pair, counts in groups(answered.filter(pc.invert(is_measured)), _PAIR):
            self.unmeasured.add(pair, counts)
        measured = answered.filter(is_measured)
        self.longest.add(measured)
        self._add_waits(measured)

    def _add_failures(self, batch: pa.RecordBatch) -> None:
        text = pc.utf8_slice_codeunits(batch["error_message"], 0, _LONGEST_TEXT)
        named = pa.table(
            {
                "request": batch["request_identity_key"],
                "type": batch["error_type"],
                "pattern": pc.replace_substring_regex(text, _NUMBER, "#"),
                "text": text,
                "flow": pc.if_else(pc.is_in(batch["correlation_key"], pa.array(NO_FLOWS)), None, batch["correlation_key"]),
            }
        )
        found = named.group_by(["request", "type", "pattern"], use_threads=False).aggregate(
            [([], "count_all"), ("text", "min"), ("text", "max"), ("flow", "min")]
        )
        for row in found.to_pylist():
            key, example = (row["request"], row["type"], row["pattern"]), row["text_min"]
            known = self.failures.note_of(key)
            is_other = row["text_max"] != example or (known is not None and known[1] != example)
            self.failures.add(key, [row["count_all"], int(is_other)], note=(row["flow_min"], example))

    def _add_unanswered(self, batch: pa.RecordBatch) -> None:
        ordered = pa.Table.from_batches([batch]).sort_by([("requested_at", "ascending"), ("correlation_key", "ascending")])
        found = ordered.group_by(["request_identity_key", "outcome"], use_threads=False).aggregate(
            [([], "count_all"), ("requested_at", "first"), ("correlation_key", "first")]
        )
        for row in found.to_pylist():
            key = (row["request_identity_key"], row["outcome"])
            self.unanswered.add(key, [row["count_all"]])
            first = (row["requested_at_first"], row["correlation_key_first"])
            if first[0] is not None and (key not in self.oldest or first < self.oldest[key]):
                self.oldest[key] = first
        if len(self.oldest) > 4 * len(self.unanswered):  # keys that are not counted one by one any more
            self.oldest = {key: self.oldest[key] for key, _ in self.unanswered.ordered() if key in self.oldest}

    def _add_waits(self, batch: pa.RecordBatch) -> None:
        waits = batch["wait_ms"].to_numpy(zero_copy_only=False)
        self.wait.add(waits)
        ends = [batch[name].dictionary_encode(null_encoding="encode") for name in _PAIR]
        codes = [end.indices.to_numpy(zero_copy_only=False).astype(np.int64) for end in ends]
        joined = codes[0] * (len(ends[1].dictionary) + 1) + codes[1]
        order = np.argsort(joined, kind="stable")
        for places in np.split(order, np.flatnonzero(np.diff(joined[order])) + 1):
            if not len(places):
                continue
            first, second = (end.dictionary[int(code[places[0]])].as_py() for end, code in zip(ends, codes, strict=True))
            if (first, second) in self.waits or len(self.waits) < _MOST_PAIRS:
                self.waits.setdefault((first, second), Spread()).add(waits[places])


_PAIR: Final = ("request_identity_key", "response_identity_key")
