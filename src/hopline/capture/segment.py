"""The segment: one file of a capture, and how it is written and read.

A segment is an Arrow IPC stream of small batches (see `stream.py`). Its name says when it was begun, whose it is, and which
of its run: sorted by name, segments are in the order in which they were begun.

    20261115T231501123456Z-N1-9f86d081-000001.open      while it is written
    20261115T231501123456Z-N1-9f86d081-000001.arrows    sealed: complete, and never changed again

The first message says who writes, each batch which rows it holds and what was lost before it, and a last batch without
rows seals the segment: so many rows, why it ended. Whoever reads takes nothing on trust: files come from crashed machines
and from other people.
"""

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, Final, Literal

import msgspec
import pyarrow as pa

from hopline.capture.choice import PART, SHARE
from hopline.capture.folder import Folder
from hopline.capture.record import RECORD_SCHEMA, numbers_of
from hopline.capture.stream import END, Compression, write_batch, write_schema

VERSION: Final = 1
"""Of what this file writes; a reader refuses what is later than it knows."""

OPEN, SEALED = ".open", ".arrows"

RUN: Final = "[0-9a-f]{8}"
"""How a run is named, before it is said what it records: a pattern, for Python and for Java."""

_NAME: Final = re.compile(rf"(\d{{8}}T\d{{12}}Z)-(.+)-({RUN}(?:{PART}|{SHARE}\d{{1,4}})?)-(\d{{6,}})")
IMPORT: Final = "import~"
"""Stands before the owner in the name of an imported segment. No owner can look like that: it has lost its tildes."""

_LONGEST_OWNER: Final = 80
"""Characters of the owner in a name: with the rest well below the 255 bytes that a file name may have."""

MOST_RAW_BYTES: Final = 256 * 1024 * 1024
"""Of a segment in memory: one that is out of order has to be sorted there. Bodies that compress well get there first."""

_SMALL: Final = 8 * 1024
"""Bytes of a batch below which compressing takes longer than it saves: half a millisecond to prepare. Measured."""

_EMPTY: Final = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in RECORD_SCHEMA], schema=RECORD_SCHEMA)


_Count = Annotated[int, msgspec.Meta(ge=0)]


class Head(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a segment says of itself in its first message. `source_*` are of imported ones: see `jsonl.py`."""

    version: int = 0
    owner: str
    run: str
    number: int
    host: str = ""
    pid: int = 0
    started_ns: int = 0
    is_import: bool = False
    source: str = ""
    source_start: int = 0
    source_line: int = 0
    source_digest: str = ""
    source_first: str = ""


class Seal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the last batch of a sealed segment says: how many rows there are, and why it ends there."""

    rows: int
    reason: Literal["rolled", "closed", "failed"]
    source_end: int = 0
    source_line: int = 0
    source_digest: str = ""
    source_rejected: int = 0


class BatchFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a batch says of itself: its rows, its bytes in memory, its first and last time, and what was lost before it."""

    first_row: _Count = 0
    rows: _Count = 0
    raw_size: _Count = 0
    min_ns: int = 0
    max_ns: int = 0
    is_in_order: bool = True
    lost: dict[str, _Count] = {}
    seal: Seal | None = None


def name_of(head: Head) -> str:
    """The name of a segment, without its end.

    >>> name_of(Head(owner="N 1", run="9f86d081", number=1, started_ns=1_794_784_501_123_456_789))
    '20261115T231501123456Z-N_1-9f86d081-000001'
    """
    seconds, ns = divmod(head.started_ns, 1_000_000_000)
    start = f"{datetime.fromtimestamp(seconds, UTC):%Y%m%dT%H%M%S}{ns // 1000:06}Z"
    return f"{start}-{IMPORT * head.is_import}{safe_owner(head.owner)}-{head.run}-{head.number:06}"


def safe_owner(owner: str) -> str:
    """An owner as it stands in the names of its segments."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", owner)[:_LONGEST_OWNER] or "_"


class SegmentWriter:
    """Writes one segment: batches until it is sealed. After an OSError only `give_up` is left to do.

    It must not know when to begin the next one. `size` is what it takes on the disk, `raw_size` what that is in memory.
    """

    def __init__(self, folder: Folder, head: Head, compression: Compression) -> None:
        """Begin the file; raises OSError, and leaves none behind then."""
        self.name = name_of(head)
        self.started_ns = head.started_ns
        self.rows = 0
        self.size = 0
        self.raw_size = 0
        self._folder = folder
        self._compression = compression
        self._sink = folder.create(self.name + OPEN)
        try:
            self._write(write_schema(RECORD_SCHEMA, msgspec.to_builtins(head)))
        except BaseException:
            self._sink.abandon()
            folder.delete(self.name + OPEN)
            raise

    def write(self, batch: pa.RecordBatch, lost: Mapping[str, int] | None = None) -> None:
        """Append a batch, and what was lost before it by tap; raises OSError."""
        seen = numbers_of(batch["seen_ns"])
        size = batch.nbytes  # asked for once: it looks at every buffer
        facts = BatchFacts(
            first_row=self.rows,
            rows=batch.num_rows,
            raw_size=size,
            min_ns=int(seen.min()) if seen.size else 0,
            max_ns=int(seen.max()) if seen.size else 0,
            is_in_order=bool((seen[1:] >= seen[:-1]).all()),
            lost=dict(lost or {}),
        )
        compression = self._compression if size >= _SMALL else "none"
        self._write(write_batch(batch, msgspec.to_builtins(facts), compression))
        self.rows += batch.num_rows
        self.raw_size += size

    def seal(self, seal: Seal, lost: Mapping[str, int] | None = None) -> None:
        """Write the last batch and the end mark, make it durable and give it its last name; raises OSError."""
        facts = BatchFacts(first_row=self.rows, lost=dict(lost or {}), seal=seal)
        self._write([*write_batch(_EMPTY, msgspec.to_builtins(facts), "none"), END])
        self._sink.seal(self.name + SEALED)

    def give_up(self) -> bool:
        """After an error: save what is whole, and delete a file in which nothing is. Never raises.

        What is whole is sealed if the disk lets us; else it stays open, perhaps with a torn end, and readers cope with that.
        Returns whether what was written is still there.
        """
        with contextlib.suppress(OSError, pa.ArrowException):
            if not self.rows:
                self.discard()
                return True
            self._sink.cut(self.size)
            self.seal(Seal(rows=self.rows, reason="failed"))
        self._sink.abandon()
        return any(self._is_there(end) for end in (OPEN, SEALED))

    def is_full(self, most_bytes: int) -> bool:
        """Whether it is time for the next one."""
        return self.size >= most_bytes or self.raw_size >= MOST_RAW_BYTES

    def _is_there(self, end: str) -> bool:
        try:
            return self._folder.size_of(self.name + end) > 0
        except (OSError, pa.ArrowException):
            return False

    def discard(self) -> None:
        """Close and delete it; raises OSError."""
        self._sink.abandon()
        self._folder.delete(self.name + OPEN)

    def _write(self, pieces: Sequence[bytes | memoryview]) -> None:
        self._sink.write(pieces)
        self.size += sum(map(len, pieces))


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment as the listing of its folder shows it. `name` is without the end, and stays when it is sealed."""

    name: str
    path: str
    is_sealed: bool
    size: int
    changed_ns: int
    folder: Folder = field(repr=False, compare=False)

    @property
    def file_name(self) -> str:
        """The name of the file."""
        return self.name + (SEALED if self.is_sealed else OPEN)

    @property
    def run(self) -> str:
        """Which run of its writer it belongs to, by its name; empty if the name is none of ours."""
        return self._part(3)

    @property
    def owner(self) -> str:
        """Whose it is, by its name: there the owner has lost what no file name can hold."""
        return self._part(2)

    @property
    def is_recorded(self) -> bool:
        """Whether a node wrote it, by its name: it is neither imported nor somebody else's file."""
        return bool(self.owner) and not self.is_imported

    @property
    def is_imported(self) -> bool:
        """Whether an import wrote it, by its name. Until it has its end it may be replaced: see `jsonl.py`."""
        return self.owner.startswith(IMPORT)

    @property
    def number(self) -> int:
        """Which one of its run it is, from 1; 0 if the name is none of ours."""
        return int(self._part(4) or 0)

    @property
    def started_ns(self) -> int:
        """When it was begun, to the microsecond; 0 if the name is none of ours."""
        start = self._part(1)
        try:
            moment = datetime.strptime(start[:15], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
        except ValueError:
            return 0
        return int(moment.timestamp()) * 1_000_000_000 + int(start[15:21]) * 1000

    def _part(self, group: int) -> str:
        match = _NAME.fullmatch(self.name)
        return match[group] if match else ""

    def sealed(self) -> "Segment":
        """The same one, sealed meanwhile."""
        return replace(self, is_sealed=True, path=self.folder.path_of(self.name + SEALED))

    def is_being_written(self) -> bool | None:
        """Whether its writer lives; None if nobody can tell. A sealed one has no writer."""
        return False if self.is_sealed else self.folder.is_being_written(self.file_name)


def list_segments(folder: Folder) -> list[Segment]:
    """All segments of a folder, open ones too, in the order of their names; raises CaptureError.

    A file that is renamed while a folder is listed may be in the list under neither name. A segment is renamed once, so
    it is in one of two lists; one that was deleted between them is found to be gone when it is read.
    """
    found: dict[str, Segment] = {}
    for file in [file for _ in range(2 if folder.is_local else 1) for file in folder.files()]:
        for end in (OPEN, SEALED):
            stem = file.name.removesuffix(end)
            if stem != file.name:
                path = folder.path_of(file.name)
                segment = Segment(stem, path, end == SEALED, file.size, file.changed_ns, folder)
                # If both are there it was sealed meanwhile, or sealing is a copy that was interrupted.
                if stem not in found or segment.is_sealed or not found[stem].is_sealed:
                    found[stem] = segment
    return [found[name] for name in sorted(found)]
