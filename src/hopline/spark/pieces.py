"""Pieces of segments: how the bytes of a capture are shared among tasks, and how such a share is read.

Theory of operation. A segment is a row of messages, each a batch of records with its length (`hopline.capture.stream`). Up
to where it is whole is known without reading it: to its end if it is sealed, else to the end of its last whole message. So
work is planned by bytes, as for any large file, and nobody reads a capture to plan the reading of it. A piece gets the
messages that begin in it. Its reader finds them by walking over the headers, from a place where a message is known to
begin; that takes some microseconds a message. A header also says from when its records are, so those of another time are
not read.

    base      start            stop       end
    |---------|================|----------|       a piece: messages that begin at = are read
    0 or a place where a message begins, and where one ends

What is read is then shown to `Reading` as a segment of its own: the head of the segment, and the messages of the piece.
Whatever is wrong in there is a problem and never raises, but for a disk that fails: then nobody knows what was there, and a
task that goes on would be wrong without saying so.
"""

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from hopline.capture.folder import Folder, reason_of
from hopline.capture.reading import Problem, Reading
from hopline.capture.segment import OPEN, SEALED, Segment
from hopline.capture.stream import END, End, Fault, Message, read_messages
from hopline.errors import CaptureError
from hopline.spark.worker import settle

_MIB: Final = 1024 * 1024

_SMALL_SHARE, _LARGE_SHARE = 64 * _MIB, 128 * _MIB
"""Bytes of a capture that one task reads: an ordinary segment, some hundred thousand messages, a second of work; or two of
them, as much as Spark reads of any file. A task costs some 25 ms, half of it in Python, and more in the JVM, whatever it
reads: all fields of v6 took 3.8 us a message with large shares, and 4.0 with small ones."""

_MOST_SHARES: Final = 10_000
"""About so many there are, however small they are asked to be: the tasks cost four minutes of CPU then, as above, and more
would cost the driver its memory, which knows each of them."""

_FILE_COST: Final = 64 * 1024
"""Opening a file takes as long as reading so many bytes of one: about a millisecond."""

_SLACK: Final = 1.5
"""A segment is cut, and a share is full, when it is so many shares large: better one large task than a tiny one more."""

ROWS_AT_ONCE: Final = 32 * 1024
"""Rows that are decoded at once. Fewer, and the cost of calls shows: a tenth with 4096 rows, and a twentieth with 16 384, if
rows are wide. For that a worker takes some 420 MiB instead of 330."""

NOT_FOUND: Final = "CAPTURE_NOT_FOUND"
"""The problem that a segment was deleted before it was read, or is not as long any more as it was when that was planned."""

_EMPTY: Final = "it is empty"
_NO_END: Final = "its end mark is missing"
_NO_HEAD: Final = "its first message is not that of a segment"


class Stretch(NamedTuple):
    """Bytes of a segment that are to be read: from the start of a message to the end of one."""

    segment: Segment
    base: int
    end: int


class Piece(NamedTuple):
    """What one task reads of a segment; see above."""

    segment: str
    base: int
    start: int
    stop: int
    end: int


@dataclass(frozen=True)
class Share(InputPartition):
    """What one task reads."""

    pieces: tuple[Piece, ...]


class Times(NamedTuple):
    """From when, and until before when; None for ever."""

    since_ns: int | None = None
    until_ns: int | None = None


def segment_named(name: str, folder: Folder) -> Segment:
    """A sealed segment of which only the name is known."""
    return Segment(name=name, path=folder.path_of(name + SEALED), is_sealed=True, size=0, changed_ns=0, folder=folder)


# --- planning: on the driver ------------------------------------------------------------------------------------------


def shares(stretches: Iterable[Stretch], share_bytes: int | None = None) -> list[Share]:
    """Share out what is to be read: large segments are cut, small ones are put together, their order is kept.

    There is always one, and it may be empty: Spark asks for one.

    Args:
        stretches: what is to be read.
        share_bytes: about so much of it is a share, but no less than makes `_MOST_SHARES`; by default `usual_share`.
    """
    stretches = list(stretches)
    size = sum(stretch.end - stretch.base for stretch in stretches)
    if share_bytes is None:
        share_bytes = usual_share(size, os.cpu_count() or 1)
    else:
        share_bytes = max(share_bytes, (size + len(stretches) * _FILE_COST) // _MOST_SHARES)
    found: list[Share] = []
    pieces: list[Piece] = []
    cost = 0
    for stretch in stretches:
        for piece in _cut(stretch, share_bytes):
            if pieces and cost + _cost(piece) > share_bytes * _SLACK:
                found.append(Share(tuple(pieces)))
                pieces, cost = [], 0
            pieces.append(piece)
            cost += _cost(piece)
    if pieces or not found:
        found.append(Share(tuple(pieces)))
    return found


def usual_share(size: int, cores: int) -> int:
    """How much one task reads of so many bytes: more if there is much, less if some of the cores would have nothing to do.

    >>> usual_share(10_000_000_000, cores=8) // 2**20, usual_share(100_000_000, cores=8) // 2**20
    (128, 64)
    """
    return min(max(size // cores, _SMALL_SHARE), _LARGE_SHARE)


def _cut(stretch: Stretch, share_bytes: int) -> Iterator[Piece]:
    segment, base, end = stretch
    size = end - base
    count = max(1, round(size / share_bytes)) if size > share_bytes * _SLACK else 1
    cuts = [base + size * number // count for number in range(count + 1)]
    for start, stop in pairwise(cuts):
        yield Piece(segment.name, base, start, stop, end)


def _cost(piece: Piece) -> int:
    return piece.stop - piece.start + _FILE_COST


class WholeEnd(NamedTuple):
    """Up to where a segment is whole; whether that will never change; and what is missing behind it, if something is."""

    end: int
    is_final: bool
    reason: str = ""


def whole_end(segment: Segment, base: int = 0) -> WholeEnd | None:
    """Find up to where a segment was whole when it was listed, from the start of a message on; None if it was deleted.

    A sealed segment ends with its end mark. If it just stops, it may be a copy that is not complete yet; if it is broken
    before, what follows is lost for ever.

    Raises:
        CaptureError: the file is there and cannot be read.
    """
    try:
        with _opened(segment.folder, segment.name) as (source, size, _):
            return _whole_end(source, base, min(size, segment.size), is_sealed=segment.is_sealed)
    except FileNotFoundError:
        return None
    except (OSError, pa.ArrowException) as error:
        raise CaptureError("CAPTURE_CANNOT_READ", f"cannot read segment {segment.name}: {reason_of(error)}") from None


def _whole_end(source: pa.NativeFile, base: int, size: int, *, is_sealed: bool) -> WholeEnd:
    if is_sealed and size >= len(END):
        source.seek(size - len(END))
        if source.read(len(END)) == END:
            return WholeEnd(size, is_final=True)
    last: Message | Fault | End | None = None
    for last in read_messages(_From(source, base), size - base, facts_only=True):  # noqa: B007 - the last one counts
        pass
    if not isinstance(last, Fault):
        return WholeEnd(size, is_final=False, reason=(_NO_END if size else _EMPTY) if is_sealed else "")
    if is_sealed and not last.is_cut:
        return WholeEnd(size, is_final=True)
    return WholeEnd(base + last.start, is_final=False, reason=last.reason)


# --- reading: on the executors ----------------------------------------------------------------------------------------


class PieceReading:
    """One pass over a piece: iterate to get batches, each with the number of its first row; then ask for the problems."""

    def __init__(self, folder: Folder, piece: Piece, columns: Sequence[str], times: Times) -> None:
        self.problems: list[Problem] = []
        self._folder = folder
        self._piece = piece
        self._columns = columns
        self._times = times

    def __iter__(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Read; raises CaptureError if the disk fails."""
        settle()
        name = self._piece.segment
        try:
            with _opened(self._folder, name) as (source, size, is_sealed):
                if size < self._piece.end:  # segments only grow: this one is just copied again over itself
                    self.problems.append(Problem(NOT_FOUND, name, "it is shorter than it was when the work was planned"))
                    return
                extents = list(self._extents(source, size, is_sealed=is_sealed))
                if not extents:
                    return
                spliced = _Spliced(source, extents)
                window = _Window(self._folder, spliced)
                segment = segment_named(name, window)
                reading = Reading(segment, self._columns, most_rows=ROWS_AT_ONCE)
                yield from reading
                self._take_problems(reading.problems, spliced)
        except FileNotFoundError:
            self.problems.append(Problem(NOT_FOUND, name, "it was deleted before it was read"))
        except (OSError, pa.ArrowException) as error:
            raise CaptureError("CAPTURE_CANNOT_READ", f"cannot read segment {name}: {reason_of(error)}") from None

    def _extents(self, source: pa.NativeFile, size: int, *, is_sealed: bool) -> Iterator["_Extent"]:
        """The bytes of the file that are read: its first message, and those of the piece."""
        _, base, start, stop, end = self._piece
        if is_sealed and end == size:
            end = _whole_end(source, base, end, is_sealed=True).end
        if base == start == 0 and stop >= end and self._times == Times():
            yield _Extent(0, end)
            return
        head_end = _next_start(read_messages(source, end, facts_only=True), end)
        if start == 0:
            yield _Extent(0, head_end)
        messages = read_messages(_From(source, base or head_end), end - (base or head_end), facts_only=True)
        ours = [
            extent
            for item, extent in _with_extents(messages, base or head_end, end)
            if start <= extent.start < stop and self._may_hold(item)
        ]
        if ours and start != 0:
            yield _Extent(0, head_end)
        yield from _joined(ours)

    def _may_hold(self, item: Message | Fault | End) -> bool:
        """Whether records of the asked-for time may be in a message. Its facts are not checked yet: if odd, it is read."""
        if not isinstance(item, Message) or self._times == Times():
            return True
        earliest, latest = item.facts.get("min_ns", 0), item.facts.get("max_ns", 0)
        if not isinstance(earliest, int) or not isinstance(latest, int):
            return True
        since_ns, until_ns = self._times
        return (since_ns is None or latest >= since_ns) and (until_ns is None or earliest < until_ns)

    def _take_problems(self, found: Iterable[Problem], spliced: "_Spliced") -> None:
        """Keep what is wrong with the bytes of the piece.

        The head is a matter of the piece that begins with it, and that a piece has no seal at its end is as it should be.
        """
        for problem in found:
            if problem.position is None:
                raise CaptureError(problem.code, f"cannot read segment {problem.segment}: {problem.reason}")
            place = spliced.place_of(problem.position)
            # How a broken head shows depends on what follows it, which a cut must not decide.
            reason = _NO_HEAD if place == 0 and problem.code == "CAPTURE_DAMAGED" else problem.reason
            if problem.position < spliced.size and place >= self._piece.start:
                self.problems.append(problem._replace(position=place, reason=reason))


class _Extent(NamedTuple):
    start: int
    end: int


def _with_extents(
    items: Iterable[Message | Fault | End], base: int, end: int
) -> Iterator[tuple[Message | Fault | End, _Extent]]:
    """Each item with the bytes it takes up: up to where the next one starts."""
    before: Message | Fault | End | None = None
    for item in items:
        if before is not None:
            yield before, _Extent(base + before.start, base + item.start)
        before = item
    if before is not None:
        yield before, _Extent(base + before.start, end)


def _next_start(items: Iterator[Message | Fault | End], end: int) -> int:
    """Where the second one starts."""
    next(items, None)
    item = next(items, None)
    return end if item is None else item.start


def _joined(extents: Iterable[_Extent]) -> Iterator[_Extent]:
    """Extents that touch each other as one."""
    before: _Extent | None = None
    for extent in extents:
        if before is not None and before.end == extent.start:
            before = _Extent(before.start, extent.end)
        else:
            if before is not None:
                yield before
            before = extent
    if before is not None:
        yield before


# --- files ------------------------------------------------------------------------------------------------------------


class _Opened(NamedTuple):
    source: pa.NativeFile
    size: int
    is_sealed: bool


@contextmanager
def _opened(folder: Folder, name: str) -> Iterator[_Opened]:
    """The file of a segment, which may be sealed at any moment; raises OSError."""
    for end in (SEALED, OPEN, SEALED):
        try:
            size, source = folder.size_of(name + end), folder.open(name + end)
        except FileNotFoundError:
            continue
        with source:
            yield _Opened(source, size, end == SEALED)
        return
    raise FileNotFoundError(folder.path_of(name))


class _From:
    """A file from some place on."""

    def __init__(self, source: pa.NativeFile, start: int) -> None:
        self.read = source.read
        self._source = source
        self._start = start

    def seek(self, position: int, /) -> None:
        self._source.seek(self._start + position)


class _Spliced:
    """Extents of a file as if they followed each other. No message goes over the end of one, so no read has to."""

    def __init__(self, source: pa.NativeFile, extents: Sequence[_Extent]) -> None:
        self._source = source
        self._extents = extents
        self._starts = [0, *accumulate(extent.end - extent.start for extent in extents)]

    def __enter__(self) -> "_Spliced":
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the file open: it belongs to who opened it."""

    @property
    def size(self) -> int:
        return self._starts[-1]

    def place_of(self, position: int) -> int:
        """Where in the file a position is."""
        number = min(bisect_right(self._starts, position), len(self._extents)) - 1
        return self._extents[number].start + position - self._starts[number]

    def seek(self, position: int, /) -> None:
        self._source.seek(self.place_of(position))

    def read(self, size: int, /) -> bytes:
        return bytes(self._source.read(size))


class _Window(Folder):
    """A folder in which there is one segment, and of that only some extents."""

    def __init__(self, folder: Folder, spliced: _Spliced) -> None:
        self.path = folder.path
        self.is_local = False  # so that nobody looks for a writer
        self._spliced = spliced

    def size_of(self, name: str) -> int:  # noqa: ARG002 - there is only one
        return self._spliced.size

    def open(self, name: str) -> _Spliced:  # noqa: ARG002
        return self._spliced
