"""The stream of a capture: how far each segment was taken, and the reader that takes what is new.

An offset says for every segment how many of its bytes were taken. Spark writes it down with every batch, so it is kept
short: segments that were taken altogether are numbers of their run, and what was deleted is left out as soon as something
new is taken.

    {"runs": {"N1-9f86d081": "1-56,58"}, "segments": {"20261115T231501123456Z-N1-9f86d081-000057": 81920}}

A batch is what lies between two offsets. Segments only grow, and a sealed one never changes, so a batch that has to be
repeated after a crash holds the same rows; but for those of segments that were deleted since. One that an import has not
finished may be deleted and written anew, when the import is repeated: nothing of it is taken before it has its end.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from hopline.capture import Segment, open_capture
from hopline.spark.pieces import Share, Stretch, WholeEnd, shares, whole_end
from hopline.spark.rows import Rows

logger = logging.getLogger(__name__)

Offset = dict[str, Any]
"""As Spark has it: a dictionary that survives JSON."""


class Numbers:
    """A set of numbers of which most follow each other.

    >>> numbers = Numbers.read("1-3,5")
    >>> numbers.add(4)
    >>> str(numbers), 4 in numbers, 6 in numbers
    ('1-5', True, False)
    """

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._ranges = sorted(ranges)

    @classmethod
    def read(cls, text: str) -> "Numbers":
        """Read what `str` wrote."""
        parts = (part.partition("-") for part in text.split(",") if part)
        return cls((int(first), int(last or first)) for first, _, last in parts)

    def __str__(self) -> str:
        return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in self._ranges)

    def __contains__(self, number: int) -> bool:
        return any(first <= number <= last for first, last in self._ranges)

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self._ranges)

    def add(self, number: int) -> None:
        """Add one."""
        if number in self:
            return
        joined: list[tuple[int, int]] = []
        for first, last in sorted([*self._ranges, (number, number)]):
            if joined and joined[-1][1] + 1 >= first:
                joined[-1] = (joined[-1][0], last)
            else:
                joined.append((first, last))
        self._ranges = joined


@dataclass
class Taken:
    """How far each segment of a capture was taken: an offset, to work with."""

    runs: dict[str, Numbers] = field(default_factory=dict)
    segments: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, offset: Mapping[str, Any]) -> "Taken":
        """Read an offset."""
        runs = {run: Numbers.read(numbers) for run, numbers in offset.get("runs", {}).items()}
        return cls(runs, dict(offset.get("segments", {})))

    def to_offset(self) -> Offset:
        """Write an offset: equal ones look equal."""
        runs = {run: str(self.runs[run]) for run in sorted(self.runs)}
        return {"runs": runs, "segments": {name: self.segments[name] for name in sorted(self.segments)}}

    def bytes_of(self, segment: Segment) -> int | None:
        """How many bytes of a segment were taken; None if all of it, for ever."""
        if segment.number in self.runs.get(_run_of(segment), ()):
            return None
        return self.segments.get(segment.name, 0)

    def find_new(self, segment: Segment) -> "New | None":
        """What of a segment was not taken yet; None if it was taken for ever, or was deleted. Raises CaptureError."""
        base = self.bytes_of(segment)
        if base is None:
            return None
        # That a segment without a run was found damaged is written down nowhere: it is looked at from its start again.
        found = whole_end(segment, base if _run_of(segment) else 0)
        return None if found is None else New(Stretch(segment, base, found.end), found)

    def take(self, segment: Segment, found: WholeEnd) -> None:
        """Note that a segment was taken so far."""
        run = _run_of(segment)
        if found.is_final and run:
            self.runs.setdefault(run, Numbers()).add(segment.number)
            self.segments.pop(segment.name, None)
        else:
            self.segments[segment.name] = found.end

    def only(self, segments: Iterable[Segment]) -> "Taken":
        """What it says of these segments. A run that goes on is kept as a whole: its numbers are short."""
        segments = list(segments)
        runs, names = {_run_of(segment) for segment in segments}, {segment.name for segment in segments}
        return Taken(
            {run: Numbers.read(str(numbers)) for run, numbers in self.runs.items() if run in runs},
            {name: size for name, size in self.segments.items() if name in names},
        )


_INTERRUPTED: Final = "its import was interrupted: import the file again"


class New(NamedTuple):
    """What of a segment was not taken yet, and how far it is whole."""

    stretch: Stretch
    found: WholeEnd

    @property
    def is_takeable(self) -> bool:
        """Whether there is something to take: more of it, or that there will be no more, if an offset can say so."""
        if self.stretch.segment.is_imported and not self.found.is_final:
            return False
        return self.stretch.end > self.stretch.base or (self.found.is_final and _run_of(self.stretch.segment) != "")

    @property
    def unfinished(self) -> str:
        """Why it stops before its end, though nobody writes to it any more; empty if it does not, or nobody can tell."""
        segment = self.stretch.segment
        if self.found.is_final or segment.is_being_written() is not False:
            return ""
        return _INTERRUPTED if segment.is_imported else self.found.reason


def _run_of(segment: Segment) -> str:
    """The name of a run in an offset; empty for a segment whose name is none of ours."""
    return f"{segment.owner}-{segment.run}" if segment.run else ""


class CaptureStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what is new in a capture: new segments, and what open ones have grown by.

    One of it lives on the driver as long as the stream, and asks; copies of it on the executors only `read`.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._target: list[Segment] | None = None
        self._warned: set[str] = set()

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's names
        """Nothing is taken yet."""
        return Taken().to_offset()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """How much is taken at once, by the options. Spark has no limit of both: that of bytes stands for both of ours."""
        options = self._rows.options
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        return ReadAllAvailable() if options.max_files is None else ReadMaxFiles(options.max_files)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember what is there now: this stream ends when that is taken. Raises CaptureError."""
        self._target = self._list()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """How far the next batch goes: `start` if there is nothing new. Raises CaptureError."""
        segments = self._list() if self._target is None else self._target
        taken = Taken.read(start).only(segments)
        is_new = False
        for stretch, found in _within(self._news(segments, taken), limit, self._rows.options.max_files):
            taken.take(stretch.segment, found)
            is_new = True
        return taken.to_offset() if is_new else start

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Share out a batch. Raises CaptureError."""
        before, after = Taken.read(start), Taken.read(end)
        stretches = []
        for segment in self._list():
            first, last = before.bytes_of(segment), after.bytes_of(segment)
            if first is not None and (last is None or last > first):
                stretches.append(Stretch(segment, first, segment.size if last is None else last))
        return [*shares(stretches, self._rows.options.share_bytes)] if stretches else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a share. On an executor."""
        assert isinstance(partition, Share)  # noqa: S101 - for mypy: they are ours
        return self._rows.read(partition)

    def _list(self) -> list[Segment]:
        return open_capture(self._rows.options.path).segments()

    def _news(self, segments: Iterable[Segment], taken: Taken) -> Iterator[New]:
        """What was not taken yet, in the order of the segments."""
        for segment in segments:
            new = taken.find_new(segment)
            if new is None:
                continue
            if segment.name not in self._warned and (reason := new.unfinished):
                self._warned.add(segment.name)
                logger.warning("segment %s stops before its end: %s; the rest is taken when it comes", segment.name, reason)
            if new.is_takeable:
                yield new


def _within(news: Iterable[New], limit: ReadLimit, max_files: int | None) -> Iterator[New]:
    """The first news that a limit allows, and so many files beside one of bytes: one at least, or the stream would stand."""
    most_bytes = most_files = _NO_LIMIT
    if isinstance(limit, ReadMaxBytes):
        most_bytes, most_files = limit.max_bytes, max_files or _NO_LIMIT
    elif isinstance(limit, ReadMaxFiles):
        most_files = limit.max_files
    size = 0
    for files, each in enumerate(news, 1):
        size += each.stretch.end - each.stretch.base
        if files > 1 and (size > most_bytes or files > most_files):
            return
        yield each


_NO_LIMIT: Final = 1 << 63
