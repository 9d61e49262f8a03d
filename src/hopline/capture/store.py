"""The capture: a folder of segments, read as one, and judged as one.

Reading goes over all segments in the order of their names. What is torn, damaged or gone is left out and said in
`problems`; nothing that the folder holds makes it raise. This file knows no message: it hands out records as they were
seen.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.fs as pa_fs

from hopline.capture.check import Report, check
from hopline.capture.folder import Folder, open_folder
from hopline.capture.reading import Problem, Reading
from hopline.capture.segment import Segment, list_segments
from hopline.errors import CaptureError


def open_capture(path_or_uri: str, *, filesystem: pa_fs.FileSystem | None = None) -> "Capture":
    """Open a capture to read it: a folder, or a URI that pyarrow opens, or a path in a given file system.

    Raises:
        CaptureError: there is no such folder, or it cannot be read.
    """
    folder = open_folder(path_or_uri, filesystem)
    if not folder.exists():
        raise CaptureError("CAPTURE_NOT_FOUND", f"{path_or_uri} is no folder")
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
        """All segments there are now, open ones too, in the order of their names; raises CaptureError."""
        return list_segments(self.folder)

    def batches(self, *, columns: Sequence[str] | None = None) -> Iterator[tuple[Segment, int, pa.RecordBatch]]:
        """Read all records: segment, number of the batch's first row in its segment, and the batch.

        Args:
            columns: the columns of RECORD_SCHEMA to make, in this order; by default all. What is not asked for is not
                decompressed.

        Raises:
            CaptureError: the folder cannot be listed.
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
        """Read and judge every segment: what is whole, torn or damaged, what is missing; raises CaptureError."""
        return check(self.folder)
