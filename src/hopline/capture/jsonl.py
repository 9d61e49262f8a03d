"""JSON lines into a capture and out of it, losslessly.

Theory of operation. A segment of an import covers a range of bytes of its file, from one line's start to another's end, and
says so: the range, the number of the line before it, and the SHA-256 of everything up to its start and up to its end. So a
file is known by what it holds, not by its name, and what of it is in the capture is the union of the ranges whose sums
agree. Importing imports the rest. That is all there is to it: a file that was imported is known altogether, one that has
grown is known up to where it ended, and one whose import was interrupted up to its last sealed segment. What an interrupted
import left open is replaced.

Files may be larger than memory: lines are read one by one, their length is bounded, and batches are written as they fill.
"""

import contextlib
import os
import secrets
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.fs as pa_fs

from hopline.capture.coverage import CHUNK, LONGEST_LINE, Coverage, Covered, Gap, first_digest
from hopline.capture.folder import Folder, open_folder, reason_of
from hopline.capture.line import Seen, read_seen, write_seen
from hopline.capture.reading import Problem, Reading
from hopline.capture.record import Records
from hopline.capture.segment import VERSION, Head, Seal, Segment, SegmentWriter, list_segments
from hopline.capture.store import IMPORT_LOCK, Capture
from hopline.capture.stream import Compression
from hopline.capture.timeline import in_order
from hopline.errors import CaptureError, HoplineError, InputError

_BATCH_ROWS: Final = 1024
_BATCH_BYTES: Final = 4 * 1024 * 1024
_LAST_NS: Final = 253_402_300_799_000_000_000
"""The end of the year 9999: the latest time that the name of a segment can hold. A line may say any other."""


class Rejected(NamedTuple):
    """A line that was not imported, and why."""

    file: str
    line: int
    error: HoplineError


@dataclass(slots=True)
class Imported:
    """What became of a file: records imported now, lines rejected now, and records that were in the capture before."""

    file: str
    imported: int = 0
    rejected: int = 0
    known: int = 0
    segments: list[str] = field(default_factory=list)
    replaced: int = 0

    @property
    def has_grown(self) -> bool:
        """Whether only a part of it was in the capture before."""
        return bool(self.known and (self.imported or self.rejected))


OnRejected = Callable[[Rejected], None]
OnProgress = Callable[[int, int], None]


class Import:
    r"""Imports files into a capture. One import at a time: another process that tries gets CAPTURE_BUSY.

    Args:
        path_or_uri: the folder of the capture, made if it is not there.
        compression: of batches.
        segment_bytes: a segment that has reached this size is sealed.
        filesystem: where the folder is, if not in the local one.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "a.jsonl")
    ...     _ = file.write_text('{"seen_ns":5,"node":"N1","direction":"in","frames":["4e32"]}\n')
    ...     with Import(folder) as target:
    ...         first, second = target.add(file), target.add(file)
    >>> first.imported, second.imported, second.known
    (1, 0, 1)
    """

    def __init__(
        self,
        path_or_uri: str,
        *,
        compression: Compression = "zstd",
        segment_bytes: int = 64 * 1024 * 1024,
        filesystem: pa_fs.FileSystem | None = None,
    ) -> None:
        self._folder = open_folder(path_or_uri, filesystem)
        self._compression = compression
        self._segment_bytes = segment_bytes
        self._coverage = Coverage([])
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> "Import":
        """Make the folder, keep others out, and see what is there; raises CaptureError."""
        self._folder.make()
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._folder.only_me(IMPORT_LOCK))
            self._coverage = Coverage(Reading(segment, facts_only=True).look() for segment in list_segments(self._folder))
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def add(
        self,
        file: Path,
        on_rejected: OnRejected = lambda _: None,
        on_progress: OnProgress = lambda _done, _size: None,
    ) -> Imported:
        """Import what of a file is not in the capture yet.

        Args:
            file: JSON lines; see `line.py`.
            on_rejected: is told each line that cannot be imported. The others are.
            on_progress: is told now and then how many bytes of how many are done.

        Raises:
            CaptureError: the file cannot be read, or the capture cannot be written.
        """
        report = Imported(os.fsencode(file.name).decode("utf-8", "replace"))
        with _reading(file), file.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            found = self._coverage.of(stream, size)
            report.known = sum(covered.rows for covered in found.covered)
            for leftover in found.leftovers:
                with _writing(self._folder):
                    self._folder.delete(leftover.file_name)
                self._coverage.forget(leftover)
                report.replaced += 1
            for gap in found.gaps:
                on_progress(gap.start, size)
                self._fill(gap, stream, report, on_rejected, lambda done: on_progress(done, size))
        return report

    def _fill(
        self, gap: Gap, stream: BinaryIO, report: Imported, on_rejected: OnRejected, on_progress: Callable[[int], None]
    ) -> None:
        """Import the lines of a gap."""
        cursor = _Cursor(stream, gap)
        segments = _Segments(self._folder, report, cursor, self._compression, self._segment_bytes, self._coverage)
        try:
            for text in cursor.lines():
                if text is not None and text.isspace():
                    continue
                try:
                    seen = cursor.read(text)
                except InputError as error:
                    report.rejected += 1
                    on_rejected(Rejected(report.file, cursor.line, error))
                else:
                    if segments.add(seen):
                        on_progress(cursor.position)
            segments.close()
        except BaseException:
            segments.discard()
            raise


class _Cursor:
    """Goes over the lines of a gap, and knows the place, the number of the last line, and the sum of all before."""

    def __init__(self, stream: BinaryIO, gap: Gap) -> None:
        self.stream = stream
        self.position = gap.start
        self.line = gap.line
        self._end = gap.end
        self._summed = gap.summed
        self._is_ended = True
        self._is_changed = False

    @property
    def digest(self) -> str:
        """The sum of the file up to here."""
        return self._summed.hexdigest()

    def lines(self) -> Iterator[bytes | None]:
        """The text of each line; None for one that is too long."""
        if self.position:
            self.stream.seek(self.position - 1)
            # The file once ended inside this line, which was whole all the same, and now has got its end.
            if self.stream.read(1) != b"\n" and (rest := self._skip(b"")).strip():
                self._is_changed = True
                yield rest
                self._is_changed = False
        self.stream.seek(self.position)
        while self.position < self._end and (text := self.stream.readline(LONGEST_LINE + 1)):
            self.line += 1
            self._is_ended = text.endswith(b"\n")
            if self._is_ended:
                self._take(text)
                yield text
            elif len(text) > LONGEST_LINE:
                self._skip(text)
                yield None
            else:
                yield text

    def read(self, text: bytes | None) -> Seen:
        """Read the line that came last; raises InputError. One without an end is passed only if it can be read."""
        if text is None:
            raise InputError("INPUT_TOO_LONG", f"it is longer than {LONGEST_LINE} bytes")
        if self._is_changed:
            raise InputError("INPUT_BAD_JSON", "it was imported when the file ended here, and goes on now")
        seen = read_seen(text.removeprefix(BOM_UTF8) if self.line == 1 else text)
        if not self._is_ended:
            self._take(text)
        return seen

    def _take(self, text: bytes) -> None:
        self.position += len(text)
        self._summed.update(text)

    def _skip(self, text: bytes) -> bytes:
        """Go to the end of a line; returns how it began."""
        self._take(text)
        beginning = text
        while not text.endswith(b"\n") and (text := self.stream.readline(CHUNK)):
            self._take(text)
            beginning = beginning or text
        return beginning


class _Segments:
    """The segments that the lines of a gap go to, one after the other."""

    def __init__(
        self,
        folder: Folder,
        report: Imported,
        cursor: _Cursor,
        compression: Compression,
        segment_bytes: int,
        coverage: Coverage,
    ) -> None:
        self._folder = folder
        self._report = report
        self._cursor = cursor
        self._compression = compression
        self._segment_bytes = segment_bytes
        self._coverage = coverage
        self._run = secrets.token_hex(4)
        self._number = 0
        self._segment: SegmentWriter | None = None
        self._rows: list[Seen] = []
        self._lines: list[int] = []
        self._size = 0
        self._head = self._next_head()

    def add(self, seen: Seen) -> bool:
        """Add the line that the cursor has just read; whether a batch was written."""
        self._rows.append(seen)
        self._lines.append(self._cursor.line)
        self._size += sum(map(len, seen.frames))
        if len(self._rows) < _BATCH_ROWS and self._size < _BATCH_BYTES:
            return False
        segment = self._flush()
        if segment.is_full(self._segment_bytes):
            self._seal(segment)
        return True

    def close(self) -> None:
        """Write and seal the rest."""
        if self._rows:
            self._flush()
        if self._segment is not None:
            self._seal(self._segment)

    def discard(self) -> None:
        """Leave nothing open behind."""
        if self._segment is not None:
            with contextlib.suppress(OSError, pa.ArrowException):
                self._segment.discard()

    def _next_head(self) -> Head:
        """What the next segment will say of itself, if there is a line for it."""
        cursor = self._cursor
        self._number += 1
        head = Head(
            version=VERSION,
            owner=self._report.file,
            run=self._run,
            number=self._number,
            is_import=True,
            source=self._report.file,
            source_start=cursor.position,
            source_line=cursor.line,
            source_digest=cursor.digest,
            source_first=first_digest(cursor.stream, cursor.position),
        )
        cursor.stream.seek(cursor.position)
        return head

    def _flush(self) -> SegmentWriter:
        """Write the rows as a batch; begin a segment if there is none."""
        seen, node, tap, socket, extra, frames = map(list, zip(*self._rows, strict=True))
        batch = Records(
            seen_ns=seen,
            seq=self._lines,
            tap=tap,
            frames=frames,
            node=node,
            socket=socket,
            source=self._report.file,
            extra=extra,
        ).to_batch()
        with _writing(self._folder):
            if self._segment is None:
                # Its name says when its first message was seen: sorted by name, imported and other segments fit together.
                head = msgspec.structs.replace(self._head, started_ns=min(max(seen[0], 0), _LAST_NS))
                self._segment = SegmentWriter(self._folder, head, self._compression)
            self._segment.write(batch)
        self._report.imported += len(self._rows)
        self._rows, self._lines, self._size = [], [], 0
        return self._segment

    def _seal(self, segment: SegmentWriter) -> None:
        cursor = self._cursor
        seal = Seal(
            rows=segment.rows,
            reason="closed",
            source_end=cursor.position,
            source_line=cursor.line,
            source_digest=cursor.digest,
        )
        with _writing(self._folder):
            segment.seal(seal)
        self._segment = None
        self._report.segments.append(segment.name)
        self._coverage.add(Covered(self._head.source_start, cursor.position, cursor.line, cursor.digest, segment.rows))
        self._head = self._next_head()


@contextlib.contextmanager
def _writing(folder: Folder) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise CaptureError("CAPTURE_CANNOT_WRITE", f"cannot write to {folder}: {reason_of(error)}") from None


@contextlib.contextmanager
def _reading(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CaptureError("CAPTURE_CANNOT_READ", f"cannot read {file}: {reason_of(error)}") from None


def export_lines(capture: Capture) -> Iterator[bytes]:
    """All records of a capture as JSON lines without their ends, in the order of time, file and line.

    What could not be read is in `capture.problems` afterwards. Raises CaptureError as `Capture.segments`, at once: whoever
    calls may then open a file in the same folder to write them to.
    """
    capture.problems = []
    return _exported(capture.segments(), capture.problems)


def _exported(segments: list[Segment], problems: list[Problem]) -> Iterator[bytes]:
    for moment in in_order(segments, problems):
        yield write_seen(moment.seen_ns, moment.node, moment.direction, moment.socket, moment.extra, moment.frames)
