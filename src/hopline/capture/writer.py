"""The writer of a capture: batches into segments, one after the other, and the count of what did not get there.

It begins a new segment when the last one is large or old, deletes what is older or more than it may keep, and outlives a
disk that is full or gone: what it cannot write it counts, says in the next batch that it can write, and tries again with a
new segment. It runs in one thread, blocks on the disk, and knows nothing of nodes; `tap.py` keeps it off the event loop.
"""

import contextlib
import logging
import os
import platform
import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa
import pyarrow.fs as pa_fs

from hopline.capture.folder import open_folder, reason_of
from hopline.capture.record import FlatRecords, Records, key_of
from hopline.capture.segment import VERSION, Head, Seal, Segment, SegmentWriter, list_segments
from hopline.capture.stream import Compression
from hopline.errors import CaptureError

logger = logging.getLogger(__name__)

_SECOND: Final = 1_000_000_000

_RETRY_NS: Final = _SECOND
"""After an error the disk is left alone for so long: an attempt takes time, and what comes meanwhile is counted."""

_KEEP_NS: Final = 60 * _SECOND
"""So often at least is looked for segments that are too old, also when nothing is written."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When a segment ends, and which are kept. None keeps all.

    What is kept is a matter of the folder, not of one node: a node that is started again has a new identity, and what it
    recorded before must not stay for ever. So nodes that are to keep different amounts record into different folders.

    Attributes:
        segment_bytes: a segment that has reached this size is sealed.
        segment_s: so is one that was begun so long ago. A power cut may cost what is not sealed, a crash does not.
        keep_bytes: the oldest segments of the folder are deleted while all of them together are larger.
        keep_s: segments of the folder that were last written to longer ago are deleted. Imported ones are never touched.
    """

    segment_bytes: int = 64 * 1024 * 1024
    segment_s: float = 300.0
    keep_bytes: int | None = None
    keep_s: float | None = None


@dataclass(frozen=True, slots=True)
class WriterStatistics:
    """What a writer did: records written, records lost by tap, bytes, segments sealed, and deleted to keep the limits."""

    written: int
    lost: dict[str, int]
    size: int
    sealed: int
    deleted: int
    last_error: str = ""


class CaptureWriter:
    """Writes records of one owner into a capture.

    Args:
        path: the folder, made if it is not there; or a URI that pyarrow opens.
        owner: who writes: the identity of a node.
        limits: when a segment ends, and which are kept.
        compression: of batches.
        wall_ns: the clock on the wall: the start in a segment's name, and what `keep_s` is measured with.
        mono_ns: a clock that never goes back: the age of a segment.
        filesystem: where `path` is, if not in the local one.
        mark: what is said of a run behind its name: see `Choice.mark`.

    >>> from tempfile import TemporaryDirectory
    >>> from hopline.capture.store import open_capture
    >>> with TemporaryDirectory() as folder:
    ...     writer = CaptureWriter(folder, owner=b"N1")
    ...     writer.start()
    ...     _ = writer.write(Records(seen_ns=[5], seq=[1], tap=["hub_out"], frames=[[b"a"]], node="N1"))
    ...     statistics = writer.close()
    ...     rows = sum(batch.num_rows for _, _, batch in open_capture(folder).batches())
    >>> statistics.written, rows
    (1, 1)
    """

    def __init__(
        self,
        path: str,
        *,
        owner: bytes,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        compression: Compression = "zstd",
        wall_ns: Callable[[], int] = time.time_ns,
        mono_ns: Callable[[], int] = time.monotonic_ns,
        filesystem: pa_fs.FileSystem | None = None,
        mark: str = "",
    ) -> None:
        self.owner = key_of(owner)
        self.run = secrets.token_hex(4) + mark
        self._folder = open_folder(path, filesystem)
        self._limits = limits
        self._compression = compression
        self._wall_ns = wall_ns
        self._mono_ns = mono_ns
        self._segment: SegmentWriter | None = None
        self._begun_ns = 0
        self._kept_ns = 0
        self._retry_ns = 0
        self._number = 0
        self._unsaid: Counter[str] = Counter()  # lost, and in no batch yet
        self._unsealed: Counter[str] = Counter()  # written to the segment that is open
        self._lost: Counter[str] = Counter()
        self._written = self._size = self._sealed = self._deleted = 0
        self._last_error = ""

    def start(self) -> None:
        """Make the folder, keep the limits and begin the first segment; raises CaptureError."""
        self._folder.make()
        self._keep_limits()
        try:
            self._begin()
        except (OSError, pa.ArrowException) as error:
            reason = f"cannot write to {self._folder}: {reason_of(error)}"
            raise CaptureError("CAPTURE_CANNOT_WRITE", reason) from None

    def write(self, records: Records | FlatRecords) -> bool:
        """Write records as one batch; false if they are lost, and counted as such. Raises nothing that a disk can do."""
        if not len(records):
            return True
        taps = records.counts()
        if self._segment is None and not self._try_again():
            self.lose(taps)
            return False
        assert self._segment is not None  # noqa: S101 - for mypy: there is one now
        try:
            batch = records.to_batch()
        except OverflowError:  # no batch can hold it; the disk is not to blame
            self.lose(taps)
            return False
        segment = self._segment
        if not segment.rows:
            self._begun_ns = self._mono_ns()  # it may have waited for long, empty
        try:
            segment.write(batch, self._unsaid)
        except (OSError, pa.ArrowException) as error:
            self.lose(taps)
            self._segment = None
            self._fail(error, segment)
            return False
        if self._last_error:
            logger.warning("writing to the capture again; lost so far: %s", _in_words(self._lost))
            self._last_error = ""
        self._unsaid.clear()
        self._unsealed += taps
        self._written += len(records)
        if segment.is_full(self._limits.segment_bytes):
            self._roll(segment)
        return True

    def lose(self, taps: Counter[str]) -> None:
        """Count records that were lost, here or before they came here."""
        self._lost += taps
        self._unsaid += taps

    def tick(self) -> None:
        """Do what is due: end a segment that is old enough, or try a disk again that failed. To be called now and then."""
        if self._segment is None:
            self._try_again()
        elif self._segment.rows and self._mono_ns() - self._begun_ns >= self._limits.segment_s * _SECOND:
            self._roll(self._segment)
        if self._mono_ns() - self._kept_ns >= _KEEP_NS:
            self._keep_limits()

    def close(self) -> WriterStatistics:
        """Seal the last segment, also an empty one: that it is there and sealed tells a clean end from another.

        A writer that never had anything to say leaves none. What could not be written is in the answer.
        """
        if self._unsaid and self._segment is None:
            self._retry_ns = 0
            self._try_again()
        if self._segment is not None and self._number == 1 and not self._segment.rows and not self._unsaid:
            with contextlib.suppress(OSError, pa.ArrowException):
                self._segment.discard()
        elif self._segment is not None:
            self._seal(self._segment, "closed")
        self._segment = None
        return self.statistics()

    def statistics(self) -> WriterStatistics:
        """What it did so far."""
        size = self._size + (self._segment.size if self._segment else 0)
        return WriterStatistics(self._written, dict(self._lost), size, self._sealed, self._deleted, self._last_error)

    def _begin(self) -> None:
        started = self._wall_ns()
        head = Head(
            version=VERSION,
            owner=self.owner,
            run=self.run,
            number=self._number + 1,
            host=platform.node(),
            pid=os.getpid(),
            started_ns=started,
        )
        self._segment = SegmentWriter(self._folder, head, self._compression)
        self._number += 1
        self._begun_ns = self._mono_ns()

    def _roll(self, segment: SegmentWriter) -> None:
        """Begin the next segment, then end this one: as long as a writer lives, one is open and locked."""
        self._segment = None
        self._try_again()
        self._seal(segment, "rolled")
        self._keep_limits()

    def _seal(self, segment: SegmentWriter, reason: Literal["rolled", "closed"]) -> None:
        try:
            segment.seal(Seal(rows=segment.rows, reason=reason), self._unsaid)
        except (OSError, pa.ArrowException) as error:
            self._fail(error, segment)
            return
        self._unsaid.clear()
        self._unsealed.clear()
        self._size += segment.size
        self._sealed += 1

    def _try_again(self) -> bool:
        """Begin a segment, unless the disk just failed; whether there is one."""
        if self._mono_ns() < self._retry_ns:
            return False
        try:
            if self._last_error:
                self._folder.make()  # it may be the folder that went away
            self._begin()
        except (OSError, pa.ArrowException, CaptureError) as error:
            self._fail(error)
            return False
        return True

    def _fail(self, error: Exception, segment: SegmentWriter | None = None) -> None:
        """Leave the disk alone for a while, and save of a segment what can be saved."""
        if not self._last_error:
            logger.warning("cannot write to the capture in %s: %s; counting what is lost", self._folder, reason_of(error))
        self._last_error = reason_of(error)
        self._retry_ns = self._mono_ns() + _RETRY_NS
        if segment is None:
            return
        if not segment.rows:
            self._number -= 1
        if not segment.give_up():  # the file itself is gone, with all that was written to it
            self._written -= self._unsealed.total()
            self.lose(self._unsealed)
        self._size += segment.size
        self._unsealed.clear()

    def _keep_limits(self) -> None:
        """Delete segments that are too old or too many. Never an imported one, or one that somebody may be writing to."""
        self._kept_ns = self._mono_ns()
        keep_bytes, keep_s = self._limits.keep_bytes, self._limits.keep_s
        if keep_bytes is None and keep_s is None:
            return
        with contextlib.suppress(CaptureError):  # the disk again: it is said when writing fails
            recorded = [segment for segment in list_segments(self._folder) if segment.is_recorded]
            size = sum(segment.size for segment in recorded)
            for segment in recorded:
                age_ns = self._wall_ns() - (segment.changed_ns or segment.started_ns)
                is_old = keep_s is not None and age_ns > keep_s * _SECOND
                is_much = keep_bytes is not None and size > keep_bytes
                if (is_old or is_much) and segment.is_being_written() is False and self._delete(segment):
                    size -= segment.size

    def _delete(self, segment: Segment) -> bool:
        try:
            self._folder.delete(segment.file_name)
        except OSError:  # gone already, or not ours to delete
            return False
        self._deleted += 1
        return True


def _in_words(lost: Counter[str]) -> str:
    return ", ".join(f"{count} at {tap}" for tap, count in sorted(lost.items())) or "nothing"
