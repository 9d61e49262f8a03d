"""The capture: a folder of segments, read as one, and judged as one.

Reading goes over all segments in the order of their names. What is torn, damaged or gone is left out and said in
`problems`; nothing that a segment holds makes it raise. This file knows no message: it hands out records as they were
seen.

A folder without segments is a capture that is about to begin, and readers wait for it. But one of JSON lines is what people
name who have not imported them yet, and whoever waits there waits for ever: so it is said, with what to type.
"""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.fs as pa_fs

from hopline.capture.check import Report, check
from hopline.capture.folder import Folder, open_folder
from hopline.capture.reading import Problem, Reading
from hopline.capture.segment import OPEN, SEALED, Segment, list_segments
from hopline.errors import CaptureError

IMPORT_LOCK: Final = ".import.lock"
"""The file by which an import keeps others out. It stays: a folder that has it was a capture, whatever was deleted since."""

_JSON_LINES: Final = ".jsonl"


def open_capture(path_or_uri: str, *, filesystem: pa_fs.FileSystem | None = None) -> "Capture":
    """Open a capture to read it: a folder, or a URI that pyarrow opens, or a path in a given file system.

    Raises:
        CaptureError: there is no such folder, or it cannot be read.
    """
    folder = open_folder(path_or_uri, filesystem)
    if not folder.exists():
        raise CaptureError("CAPTURE_NOT_FOUND", f"{path_or_uri} is no folder{_hint(path_or_uri, folder)}")
    return Capture(folder)


class Capture:
    """A folder of segments.

    Attributes:
        problems: what was met by the last reading.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.problems: list[Problem] = []

    def segments(self) -> list[Segment]:
        """All segments there are now, open ones too, in the order of their names.

        Raises:
            CaptureError: the folder cannot be listed; or it has no segments, but JSON lines that were not imported.
        """
        found = list_segments(self.folder)
        if not found:
            self._refuse_json_lines()
        return found

    def batches(self, *, columns: Sequence[str] | None = None) -> Iterator[tuple[Segment, int, pa.RecordBatch]]:
        """Read all records: segment, number of the batch's first row in its segment, and the batch.

        Args:
            columns: the columns of RECORD_SCHEMA to make, in this order; by default all. What is not asked for is not
                decompressed.

        Raises:
            CaptureError: as `segments`.
            ValueError: there is no such column.
        """
        self.problems = []
        for segment in self.segments():
            reading = self.read(segment, columns)
            for first_row, batch in reading:
                yield segment, first_row, batch
            self.problems += reading.problems

    def read(self, segment: Segment, columns: Sequence[str] | None = None) -> Reading:
        """Read one segment."""
        return Reading(segment, columns)

    def check(self) -> Report:
        """Read and judge every segment: what is whole, torn or damaged, what is missing; raises as `segments`."""
        report = check(self.folder)
        if not report.segments:
            self._refuse_json_lines()
        return report

    def _refuse_json_lines(self) -> None:
        names = {file.name for file in self.folder.files()}
        if IMPORT_LOCK in names or not any(name.endswith(_JSON_LINES) for name in names):
            return
        files = f"{shlex.quote(self.folder.path)}/*{_JSON_LINES}" if self.folder.is_local else "FILES..."
        reason = f"{self.folder} is no capture, but has JSON lines that can become one; {_what_to_type(files)}"
        raise CaptureError("CAPTURE_NOT_FOUND", reason)


def _hint(path_or_uri: str, folder: Folder) -> str:
    """What to say to who has named a file: it is a part of a capture, or can become one."""
    if path_or_uri.endswith((SEALED, OPEN)):
        return ", but a segment of a capture. Name the folder that it is in"
    if path_or_uri.endswith(_JSON_LINES):
        return f"; {_what_to_type(shlex.quote(path_or_uri))}"
    if folder.is_local and Path(folder.path).is_file():
        return f", but a file. If it holds JSON lines, {_what_to_type(shlex.quote(path_or_uri))}"
    return ""


def _what_to_type(files: str) -> str:
    return f"type: hopline capture import {files} CAPTURE, and name CAPTURE"
