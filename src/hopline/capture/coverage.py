"""The coverage of a file by a capture: which of its bytes were imported before, whatever its name was then.

A sealed segment of an import says which bytes of its file it covers, and the SHA-256 of everything up to their end. Where a
file has the same sum up to the same byte, it begins with the same bytes, so the segment covers them. A segment that an
interrupted import left open says where it begins, with the sum up to there, and the sum of the line it begins with.
"""

import hashlib
from collections.abc import Iterable
from typing import BinaryIO, Final, NamedTuple

from hopline.capture.reading import Reading

LONGEST_LINE: Final = 64 * 1024 * 1024
"""Bytes read for one line: a message of 32 MiB in hex. A longer line is rejected, and skipped without being held."""

CHUNK: Final = 1024 * 1024


class Covered(NamedTuple):
    """Bytes that a segment covers; the number of their last line, the sum of the file up to their end, and the rows."""

    start: int
    end: int
    line: int
    digest: str
    rows: int


class Leftover(NamedTuple):
    """A segment that an interrupted import left open: where it begins, the sum up to there, and of the line there."""

    file_name: str
    start: int
    digest: str
    first: str


class Gap(NamedTuple):
    """Bytes that nothing covers: from the end of a line, its number, to the start of another; and the sum up to there."""

    start: int
    end: int
    line: int
    summed: "hashlib._Hash"


class FileCoverage(NamedTuple):
    """What of a file is in the capture, what is not, and what was left of an attempt to import it."""

    covered: list[Covered]
    gaps: list[Gap]
    leftovers: list[Leftover]


class Coverage:
    """All that a capture says about the files that were imported into it."""

    def __init__(self, looks: Iterable[Reading]) -> None:
        self._covered: list[Covered] = []
        self._leftovers: list[Leftover] = []
        for look in looks:
            head, seal = look.head, look.seal
            if head is None or not head.is_import:
                continue
            if seal is not None:
                self.add(Covered(head.source_start, seal.source_end, seal.source_line, seal.source_digest, seal.rows))
            elif look.is_being_written is not True:
                name = look.segment.file_name
                self._leftovers.append(Leftover(name, head.source_start, head.source_digest, head.source_first))

    def add(self, covered: Covered) -> None:
        """Remember what a new segment covers."""
        self._covered.append(covered)

    def forget(self, leftover: Leftover) -> None:
        """Forget what was deleted."""
        self._leftovers.remove(leftover)

    def of(self, stream: BinaryIO, size: int) -> FileCoverage:
        """Find out what of the first `size` bytes of a file is covered: one pass over it, if anything may be."""
        places = {covered.end for covered in self._covered} | {left.start for left in self._leftovers}
        sums = _sums_at(stream, {place for place in places if place <= size})
        covered = sorted(
            found for found in self._covered if found.end in sums and sums[found.end].hexdigest() == found.digest
        )
        leftovers = [
            left
            for left in self._leftovers
            if left.start in sums
            and sums[left.start].hexdigest() == left.digest
            and first_digest(stream, left.start) == left.first
        ]
        gaps: list[Gap] = []
        place, line = 0, 0
        for found in covered:
            if found.start > place:
                gaps.append(Gap(place, found.start, line, sums[place].copy()))
            if found.end > place:
                place, line = found.end, found.line
        if place < size:
            gaps.append(Gap(place, size, line, sums[place].copy()))
        return FileCoverage(covered, gaps, leftovers)


def first_digest(stream: BinaryIO, start: int) -> str:
    """The sum of the line that starts there, or of its beginning if it is too long."""
    stream.seek(start)
    return hashlib.sha256(stream.readline(LONGEST_LINE)).hexdigest()


def _sums_at(stream: BinaryIO, places: set[int]) -> dict[int, "hashlib._Hash"]:
    """The SHA-256 of a file up to each of the places; always of nothing up to 0."""
    running = hashlib.sha256()
    sums = {0: running.copy()}
    stream.seek(0)
    done = 0
    for place in sorted(places):
        while done < place and (chunk := stream.read(min(CHUNK, place - done))):
            running.update(chunk)
            done += len(chunk)
        if done < place:  # it became shorter meanwhile
            break
        sums[place] = running.copy()
    return sums
