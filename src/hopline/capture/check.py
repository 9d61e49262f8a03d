"""The check of a capture: which segments are whole, what is missing, and whose end was not clean.

Sequence numbers tell what is missing: each run of a writer counts the messages of each tap from 1, also those it could not
write. So a number that is not there was seen by the node and is not in the capture, whoever lost it: the writer, who then
says so, a torn or damaged segment, or somebody who deleted one. A number that is there again is in a segment that is there
twice. In which order they are does not matter (`holes.py`). Imported segments count lines, and have no gaps.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import pyarrow as pa

from hopline.capture.folder import Folder
from hopline.capture.holes import Gap, Holes
from hopline.capture.reading import Problem, Reading
from hopline.capture.record import numbers_of
from hopline.capture.segment import list_segments

State = Literal["whole", "open", "unclean", "torn", "damaged", "gone"]
"""Of a segment: sealed and good; being written now; left open by a writer that is gone, ending with a batch or inside one;
with bytes that are not those that were written; deleted while it was read."""


@dataclass(frozen=True, slots=True)
class CheckedSegment:
    """What was found in one segment."""

    name: str
    state: State
    rows: int
    size: int
    is_import: bool


@dataclass(slots=True)
class Stream:
    """The messages of one run of one writer at one tap: how many are there, are missing, and were counted as lost by it."""

    owner: str
    run: str
    tap: str
    rows: int = 0
    first_seq: int = 0
    last_seq: int = 0
    missing: int = 0
    lost: int = 0
    gaps: list[Gap] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Report:
    """What a check found. It is good if there are no problems; a segment that is being written is none."""

    segments: list[CheckedSegment]
    streams: list[Stream]
    problems: list[Problem]

    @property
    def is_good(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    @property
    def rows(self) -> int:
        """Records that can be read."""
        return sum(segment.rows for segment in self.segments)

    def count(self, state: State) -> int:
        """How many segments are in a state."""
        return sum(segment.state == state for segment in self.segments)


class _Run(NamedTuple):
    owner: str
    run: str


class _Streams:
    """The streams of a capture, as far as it has been read."""

    def __init__(self) -> None:
        self._streams: dict[tuple[_Run, str], Stream] = {}
        self._holes: dict[tuple[_Run, str], Holes] = {}
        self._starts: dict[_Run, int] = {}

    def take(self, run: _Run, number: int, batch: pa.RecordBatch) -> Counter[str]:
        """Take the sequence numbers of a batch of a segment; says how many of each tap were there before."""
        is_from_start = self._starts.setdefault(run, number) == 1
        taps = batch["tap"].dictionary_encode()
        codes = numbers_of(taps.indices)
        numbers = numbers_of(batch["seq"])
        again: Counter[str] = Counter()
        for code, tap in enumerate(taps.dictionary.to_pylist()):
            stream = self._stream(run, tap)
            seqs = numbers[codes == code]
            holes = self._holes.get((run, tap))
            if holes is None:
                # What retention deleted is not missing: a run whose first segment is gone begins where it begins.
                holes = self._holes[run, tap] = Holes(1 if is_from_start else int(seqs[0]))
            taken = holes.take(seqs)
            stream.rows += taken
            again[tap] += len(seqs) - taken
        return +again

    def lose(self, run: _Run, taps: dict[str, int]) -> None:
        """Count what a writer has counted as lost."""
        for tap, count in taps.items():
            self._stream(run, tap).lost += count

    def _stream(self, run: _Run, tap: str) -> Stream:
        return self._streams.setdefault((run, tap), Stream(run.owner, run.run, tap))

    def found(self) -> list[Stream]:
        """All of them, with what is missing."""
        for key, holes in self._holes.items():
            stream = self._streams[key]
            stream.first_seq, stream.last_seq = holes.first, holes.last
            stream.missing, stream.gaps = holes.missing, holes.gaps()
        return list(self._streams.values())


def check(folder: Folder) -> Report:
    """Read and judge all segments of a folder; raises CaptureError if it cannot be listed."""
    segments: list[CheckedSegment] = []
    problems: list[Problem] = []
    following = _Streams()
    ends: dict[_Run, Reading] = {}
    for segment in list_segments(folder):
        reading = Reading(segment)
        again: Counter[str] = Counter()
        for _, batch in reading:
            if reading.head is not None and not reading.head.is_import:
                again += following.take(_Run(reading.head.owner, reading.head.run), reading.head.number, batch)
        problems += [_again_problem(segment.name, tap, count) for tap, count in again.items()]
        state = _state_of(reading)
        segments.append(CheckedSegment(segment.name, state, reading.rows, segment.size, _is_import(reading)))
        if state != "gone":
            problems += reading.problems
        if reading.head is None:
            if state == "unclean":
                problems.append(Problem("CAPTURE_UNCLEAN", segment.name, "its writer ended before it wrote anything"))
        elif reading.head.is_import:
            if state in ("unclean", "torn"):
                reason = f"the import of {reading.head.source} was interrupted; import it again"
                problems.append(Problem("CAPTURE_UNCLEAN", segment.name, reason))
        else:
            run = _Run(reading.head.owner, reading.head.run)
            ends[run] = reading
            following.lose(run, reading.lost)
    problems += _unclean_ends(folder, ends)
    streams = following.found()
    problems += [_gap_problem(stream) for stream in streams if stream.missing or stream.lost]
    return Report(segments, sorted(streams, key=lambda stream: (stream.owner, stream.run, stream.tap)), problems)


def _is_import(reading: Reading) -> bool:
    return reading.head is not None and reading.head.is_import


def _state_of(reading: Reading) -> State:
    codes = {problem.code for problem in reading.problems}
    if "CAPTURE_NOT_FOUND" in codes:
        return "gone"
    if codes - {"CAPTURE_TORN"}:
        return "damaged"
    if reading.is_torn:
        return "torn"
    if reading.segment.is_sealed:
        return "whole"
    return "unclean" if reading.is_being_written is False else "open"


def _unclean_ends(folder: Folder, ends: dict[_Run, Reading]) -> Iterable[Problem]:
    """Runs whose last segment was not sealed because its writer was closed."""
    rolled: list[Reading] = []
    for reading in ends.values():
        if not reading.segment.is_sealed:
            if reading.is_being_written is False:
                yield Problem("CAPTURE_UNCLEAN", reading.segment.name, "its writer is gone and did not close it")
        elif reading.seal is not None and reading.seal.reason != "closed":
            rolled.append(reading)
    # A writer that is alive has begun other segments since the folder was listed.
    later = {(segment.run, segment.number) for segment in list_segments(folder)} if rolled else set()
    for reading in rolled:
        if not any(run == reading.segment.run and number > reading.segment.number for run, number in later):
            yield Problem("CAPTURE_UNCLEAN", reading.segment.name, "its writer began no other segment, and did not close")


def _again_problem(segment: str, tap: str, count: int) -> Problem:
    reason = f"{count} sequence numbers of {tap} were there before; is it there twice?"
    return Problem("CAPTURE_DAMAGED", segment, reason)


def _gap_problem(stream: Stream) -> Problem:
    reason = f"{stream.missing} messages are missing at {stream.tap} of {stream.owner}, run {stream.run}"
    if stream.gaps:
        first = stream.gaps[0]
        reason += f", the first from number {first.first} to {first.last}"
    return Problem("CAPTURE_GAP", "", f"{reason}; its writer counted {stream.lost} as lost")
