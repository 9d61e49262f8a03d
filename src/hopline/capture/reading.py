"""The reading of a segment: one pass over its batches, and what is known of it afterwards.

Whatever a file holds, reading it never raises and gives every batch that is whole: what is wrong is a `Problem`. A segment
that is still open may end inside a batch: if its writer lives, the rest of that batch is on its way, else it is torn off.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import pyarrow as pa

from hopline.capture.folder import reason_of
from hopline.capture.record import RECORD_SCHEMA
from hopline.capture.segment import VERSION, BatchFacts, Head, Seal, Segment
from hopline.capture.stream import Chain, End, Fault, Message, read_messages

MOST_ROWS: Final = 4096
_MOST_BYTES: Final = 32 * 1024 * 1024
"""Batches of a quiet node hold few rows; they are put together up to so many rows, or bytes in memory: whoever looks at
messages by columns pays for each batch more than for the rows in it. Reading itself takes half as long with batches of 4."""

_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class Problem(NamedTuple):
    """Something about a capture that is not as it should be; the code is one of `hopline.errors.CODES`.

    `segment` is its name, empty if it is no matter of one segment; `position` is the byte in it where the problem shows.
    """

    code: str
    segment: str
    reason: str
    position: int | None = None


class Reading:
    """One pass over a segment: iterate to get batches, each with the number of its first row; then ask what was there.

    Attributes:
        head: what the segment says of itself; None if that cannot be read.
        seal: how it ended; None if it did not.
        rows: rows of all whole batches.
        lost: what its writer says was lost, by tap.
        min_ns, max_ns: the times of its earliest and its latest message; 0 if it has none.
        is_in_order: whether its rows are in the order of time.
        is_being_written: whether its writer lives; None if nobody can tell.
        is_torn: whether it ends inside a batch, and nobody is going to finish it.
        problems: what is wrong with it.
    """

    def __init__(
        self,
        segment: Segment,
        columns: Sequence[str] | None = None,
        *,
        facts_only: bool = False,
        most_rows: int = MOST_ROWS,
    ) -> None:
        """Prepare to read.

        Args:
            segment: what to read.
            columns: the columns of RECORD_SCHEMA to make, in this order; by default all.
            facts_only: decode and check nothing, only look at what the batches say of themselves. Gives no batches.
            most_rows: small batches are put together up to so many rows.
        """
        self.segment = segment
        self.head: Head | None = None
        self.seal: Seal | None = None
        self.rows = 0
        self.lost: dict[str, int] = {}
        self.min_ns = self.max_ns = 0
        self.is_in_order = True
        self.is_being_written: bool | None = False
        self.is_torn = False
        self.problems: list[Problem] = []
        self._columns = _known(columns)
        self._facts_only = facts_only
        self._most_rows = most_rows
        self._schema = b""
        self._has_end = False
        self._faults: list[Fault] = []

    def __iter__(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Read; it never raises."""
        # Before reading: a writer that ends while we read would else seem to have left a torn end.
        self.is_being_written = self.segment.is_being_written()
        try:
            size, opened = self._open()
            with opened as source:
                yield from self._batches(source, size)
        except FileNotFoundError:
            self._report("CAPTURE_NOT_FOUND", "it was deleted while the capture was read")
        except (OSError, pa.ArrowException) as error:
            self._report("CAPTURE_CANNOT_READ", reason_of(error))
        else:
            self._judge(size)

    def _open(self) -> tuple[int, pa.NativeFile]:
        folder = self.segment.folder
        try:
            return folder.size_of(self.segment.file_name), folder.open(self.segment.file_name)
        except FileNotFoundError:
            if self.segment.is_sealed:
                raise
            self.segment = self.segment.sealed()  # since the folder was listed
            return folder.size_of(self.segment.file_name), folder.open(self.segment.file_name)

    def look(self) -> "Reading":
        """Read all of it at once, for what is known afterwards."""
        for _ in self:
            pass
        return self

    def _batches(self, source: pa.NativeFile, size: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        group = _Group()
        for item in read_messages(source, size, facts_only=self._facts_only):
            if isinstance(item, End):
                self._has_end = True
            elif isinstance(item, Fault):
                self._faults.append(item)
            elif self.head is None:
                if not self._take_head(item):
                    return
            elif (facts := self._take_facts(item)) is not None and facts.rows and not self._facts_only:
                if not group.takes(facts, self._most_rows):
                    yield from self._decoded(group)
                    group = _Group()
                group.add(item, facts)
        yield from self._decoded(group)

    def _take_head(self, message: Message) -> bool:
        """Take the first message; false if nothing after it can be understood."""
        head = _convert(message.facts, Head)
        if head is not None and head.version > VERSION:
            self._report("CAPTURE_CANNOT_READ", f"format {head.version} is later than {VERSION}, the last one known here", 0)
        elif head is None or self._faults or not (self._facts_only or _has_our_columns(message.data)):
            self._report("CAPTURE_DAMAGED", "its first message is not that of a segment", 0)
        else:
            self.head = head
            self._schema = message.data
        self._faults.clear()
        return self.head is not None

    def _take_facts(self, message: Message) -> BatchFacts | None:
        """Take what a batch says of itself; None if that cannot be."""
        facts = _convert(message.facts, BatchFacts)
        if facts is None:
            self._faults.append(Fault(message.start, "the facts of a batch are not as they should be"))
            return None
        for fault in self._faults:  # something good came after them, so they are no torn end
            self._report("CAPTURE_DAMAGED", fault.reason, fault.start)
        self._faults.clear()
        for tap, count in facts.lost.items():
            self.lost[tap] = self.lost.get(tap, 0) + count
        if facts.rows:
            self.is_in_order = self.is_in_order and facts.is_in_order and (not self.rows or facts.min_ns >= self.max_ns)
            self.min_ns = min(self.min_ns, facts.min_ns) if self.rows else facts.min_ns
            self.max_ns = max(self.max_ns, facts.max_ns) if self.rows else facts.max_ns
            self.rows += facts.rows
        self.seal = facts.seal or self.seal
        return facts

    def _decoded(self, group: "_Group") -> Iterator[tuple[int, pa.RecordBatch]]:
        """Make one batch of a group of messages. Their checksums are right, so only a forger can make this fail."""
        if not group.messages:
            return
        columns = self._columns or RECORD_SCHEMA.names
        places = [RECORD_SCHEMA.get_field_index(name) for name in columns]
        options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=places)
        try:
            table = pa.ipc.open_stream(Chain([self._schema, *group.messages]), options=options).read_all()
            table.validate(full=True)  # a wrong offset would end the process
            _refuse_nulls(table)
            (batch,) = table.combine_chunks().to_batches()
        except (pa.ArrowException, OSError, ValueError) as error:
            batch, reason = None, reason_of(error)
        else:
            reason = f"{batch.num_rows} rows where {group.rows} should be"
        if batch is None or batch.num_rows != group.rows:
            self._report("CAPTURE_DAMAGED", reason, group.start)
            return
        yield group.first_row, batch.select(columns).replace_schema_metadata(None)

    def _judge(self, size: int) -> None:
        """Say what the end of the file means."""
        if not self.segment.is_sealed:
            if self._faults and not self.is_being_written:
                self.is_torn = True
                fault = self._faults[0]
                self._report("CAPTURE_TORN", f"{fault.reason}; {size - fault.start} bytes cannot be read", fault.start)
            return
        for fault in self._faults:
            self._report("CAPTURE_DAMAGED", fault.reason, fault.start)
        if self.problems:
            return
        if not self._has_end or self.seal is None:
            self._report("CAPTURE_DAMAGED", "it is sealed by its name, but its end is missing", size)
        elif self.seal.rows != self.rows:
            self._report("CAPTURE_DAMAGED", f"it was sealed with {self.seal.rows} rows, and {self.rows} are there", size)

    def _report(self, code: str, reason: str, position: int | None = None) -> None:
        self.problems.append(Problem(code, self.segment.name, reason, position))


class _Group:
    """Messages of batches that follow each other, to be decoded at once."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.start = 0
        self.first_row = 0
        self.rows = 0
        self._bytes = 0

    def takes(self, facts: BatchFacts, most_rows: int) -> bool:
        """Whether the next batch belongs to it, and it is not full."""
        if not self.messages:
            return True
        is_full = self.rows + facts.rows > most_rows or self._bytes + facts.raw_size > _MOST_BYTES
        return facts.first_row == self.first_row + self.rows and not is_full

    def add(self, message: Message, facts: BatchFacts) -> None:
        """Add a batch."""
        if not self.messages:
            self.start, self.first_row = message.start, facts.first_row
        self.messages.append(message.data)
        self.rows += facts.rows
        self._bytes += facts.raw_size


def _has_our_columns(schema: bytes) -> bool:
    """Whether a schema begins with our columns; a later writer may add some at the end, which nobody here asks for."""
    try:
        fields = list(pa.ipc.read_schema(pa.py_buffer(schema)))
    except (pa.ArrowException, OSError):
        return False
    return fields[: len(RECORD_SCHEMA)] == list(RECORD_SCHEMA)


def _refuse_nulls(table: pa.Table) -> None:
    """Raise ValueError if something is missing that every record has; Arrow itself does not look."""
    for field, column in zip(table.schema, table.columns, strict=True):
        if not field.nullable and column.null_count:
            raise ValueError(f"{field.name} is null in {column.null_count} of {len(table)} rows")


def _convert(facts: dict[str, Any], kind: type[_Struct]) -> _Struct | None:
    try:
        return msgspec.convert(facts, kind)
    except msgspec.ValidationError:
        return None


def _known(columns: Sequence[str] | None) -> list[str] | None:
    if columns is None:
        return None
    if not columns or len(set(columns)) != len(columns) or not set(columns) <= set(RECORD_SCHEMA.names):
        known = ", ".join(RECORD_SCHEMA.names)
        raise ValueError(f"columns must name some of {known}, each once, and not {', '.join(map(repr, columns)) or 'none'}")
    return list(columns)
