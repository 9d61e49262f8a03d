"""The record: one sighting of a message, as seen, and the Arrow columns that many of them make.

A record says when, where and in which direction a message passed, and keeps its frames as they were; nothing is decoded.
`RECORD_SCHEMA` is what segments hold and what reading gives. This file knows no files and no clock.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from struct import Struct
from typing import Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

TapName = Literal[
    "hub_out", "router_in", "scaleout_out", "scaleout_in", "actor_in", "actor_out", "hub_in", "wire_in", "wire_out"
]
BodyKept = Literal["whole", "cut", "none"]

DIRECTIONS: Final[dict[str, str]] = {
    "hub_out": "out",
    "router_in": "in",
    "scaleout_out": "out",
    "scaleout_in": "in",
    "actor_in": "in",
    "actor_out": "out",
    "hub_in": "in",
    "wire_in": "in",
    "wire_out": "out",
}
"""Every tap, and which way a message passes it: into what the tap is named after, or out of it."""

RECORD_SCHEMA: Final = pa.schema(
    [
        pa.field("seen_ns", pa.int64(), nullable=False),
        ("mono_ns", pa.int64()),
        ("node", pa.string()),
        ("tap", pa.string()),
        ("direction", pa.string()),
        ("socket", pa.string()),
        ("seq", pa.int64()),
        ("encoded", pa.bool_()),
        ("body_kept", pa.string()),
        ("body_size", pa.int64()),
        ("source", pa.string()),
        ("extra", pa.string()),
        ("frames", pa.list_(pa.binary())),
    ]
)
"""The columns of a capture.

    seen_ns    when, by the wall clock: nanoseconds since 1970
    mono_ns    when, by the monotonic clock of the machine; null if imported
    node       who saw it: the key of its identity, or what the imported file says
    tap        where: one of DIRECTIONS
    direction  in or out
    socket     through which socket, if an imported file says so
    seq        counts from 1 for each run of a writer and tap, so that a gap shows what was lost; imported: the line
    encoded    false if the message never was bytes; it is then kept as v6 without a signature
    body_kept  whole, cut or none
    body_size  bytes of the body before it was cut or left out; null if it is whole
    source     the name of the imported file
    extra      what else an imported line says, as JSON text
    frames     the message
"""

MOST_BYTES: Final = 2**31 - 1
"""Bytes of all frames of a batch: Arrow's `binary` counts them with 32 bits."""


def key_of(raw: bytes) -> str:
    r"""The printable twin of an identity: its text if all of that is UTF-8 and printable, else `0x` and hex.

    >>> key_of(b"N1"), key_of(b"\x00H1"), key_of(b"")
    ('N1', '0x004831', '')
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return "0x" + raw.hex()
    return text if text.isprintable() else "0x" + raw.hex()


TAP_CODES: Final = {tap: code for code, tap in enumerate(DIRECTIONS)}
_TAP_NAMES: Final = [tap.encode() for tap in DIRECTIONS]
_DIRECTION_NAMES: Final = [direction.encode() for direction in DIRECTIONS.values()]


@dataclass(slots=True)
class Records:
    """Records on their way into a batch: a list a column, or one value where all records have the same.

    >>> records = Records(seen_ns=[5], seq=[1], tap=["hub_out"], frames=[[b"", b"", b"hi", b"meta"]], node="N1")
    >>> batch = records.to_batch()
    >>> batch["direction"].to_pylist(), batch["frames"].to_pylist()
    (['out'], [[b'', b'', b'hi', b'meta']])
    """

    seen_ns: Sequence[int]
    seq: Sequence[int]
    tap: Sequence[str]
    frames: Sequence[Sequence[bytes]]
    node: str | Sequence[str]
    mono_ns: Sequence[int] | None = None
    socket: Sequence[str | None] | None = None
    encoded: bool | Sequence[bool] = True
    body_kept: BodyKept | Sequence[BodyKept] = "whole"
    body_size: Sequence[int | None] | None = None
    source: str | None = None
    extra: Sequence[str | None] | None = None

    def __len__(self) -> int:
        return len(self.seen_ns)

    def counts(self) -> Counter[str]:
        """How many records there are of each tap."""
        return Counter(self.tap)

    def to_batch(self) -> pa.RecordBatch:
        """Make the Arrow batch; raises OverflowError if the frames are too many bytes for one."""
        n = len(self)
        taps = bytes(map(TAP_CODES.__getitem__, self.tap))
        return pa.RecordBatch.from_arrays(
            [
                _numbers(self.seen_ns, n),
                _numbers(self.mono_ns, n),
                _texts(self.node, n),
                _names(_TAP_NAMES, taps),
                _names(_DIRECTION_NAMES, taps),
                _texts(self.socket, n),
                _numbers(self.seq, n),
                _flags([self.encoded] * n if isinstance(self.encoded, bool) else self.encoded),
                _texts(self.body_kept, n),
                _sizes(self.body_size, n),
                _texts(self.source, n),
                _texts(self.extra, n),
                frame_lists(self.frames),
            ],
            schema=RECORD_SCHEMA,
        )


FLAT_GROUP: Final = Struct("<5q")
"""What flat records that were seen together have in common: the monotonic clock, the sequence number of the first, the code
of the tap, how many they are, and how many frames each of them has."""


@dataclass(slots=True)
class FlatRecords:
    """Records of whole messages, as a busy node hands them over.

    >>> frames = [b"", b"", b"hi", b"meta"]
    >>> group = FLAT_GROUP.pack(5, 1, TAP_CODES["hub_out"], 2, len(frames))
    >>> sizes = Struct("<8I").pack(*map(len, frames * 2))
    >>> flat = FlatRecords(group, sizes, b"".join(frames * 2), "N1", ahead_ns=100)
    >>> flat.to_batch() == Records([105] * 2, [1, 2], ["hub_out"] * 2, [frames] * 2, "N1", [5] * 2).to_batch()
    True

    Attributes:
        groups: a FLAT_GROUP each.
        sizes: of all frames, an uint32 each; those without a group do not count.
        content: all frames.
        node: who saw them.
        ahead_ns: what the wall clock is ahead of the other one.
    """

    groups: bytes | memoryview
    sizes: bytes | memoryview
    content: bytes | memoryview
    node: str
    ahead_ns: int

    def __len__(self) -> int:
        return int(self._table[:, 3].sum())

    @property
    def _table(self) -> NDArray[np.int64]:
        return np.frombuffer(self.groups, "<i8").reshape(-1, FLAT_GROUP.size // 8)

    @property
    def _frame_sizes(self) -> NDArray[np.uint32]:
        return np.frombuffer(self.sizes, "<u4", self.frames)

    @property
    def frames(self) -> int:
        """How many frames there are."""
        _, _, _, counts, widths = self._table.T
        return int(counts @ widths)

    @property
    def size(self) -> int:
        """Bytes of all frames."""
        return int(self._frame_sizes.sum(dtype=np.int64))

    def counts(self) -> Counter[str]:
        """How many records there are of each tap."""
        _, _, codes, counts, _ = self._table.T
        found = np.bincount(codes, counts, len(DIRECTIONS)).tolist()
        return Counter({tap: int(count) for tap, count in zip(DIRECTIONS, found, strict=True) if count})

    def to_batch(self) -> pa.RecordBatch:
        """Make the Arrow batch; raises OverflowError if the frames are too many bytes for one."""
        n, counts, sizes = len(self), self._table[:, 3], self._frame_sizes
        mono_ns, seq, codes, _, widths = (np.repeat(column, counts) for column in self._table.T)
        seq += np.arange(n) - np.repeat(np.cumsum(counts) - counts, counts)
        taps = codes.astype(np.uint8).tobytes()
        room = 1 << (n - 1).bit_length() if n else 0  # no batch has the length of the last one
        same, nothing, no_number, flags, whole = (column.slice(0, n) for column in _alike(self.node, room))
        frames = pa.Array.from_buffers(pa.binary(), sizes.size, [None, _offsets(sizes), pa.py_buffer(self.content)])
        return pa.RecordBatch.from_arrays(
            [
                numbers_array(mono_ns + self.ahead_ns),
                numbers_array(mono_ns),
                same,
                _names(_TAP_NAMES, taps),
                _names(_DIRECTION_NAMES, taps),
                nothing,
                numbers_array(seq),
                flags,
                whole,
                no_number,
                nothing,
                nothing,
                pa.ListArray.from_buffers(pa.list_(pa.binary()), n, [None, _offsets(widths)], children=[frames]),
            ],
            schema=RECORD_SCHEMA,
        )


@lru_cache(maxsize=16)
def _alike(node: str, room: int) -> tuple[pa.Array, ...]:
    """The columns in which all records are alike, long enough to be cut."""
    return _texts(node, room), _texts(None, room), _sizes(None, room), _flags([True] * room), _texts("whole", room)


def frame_lists(rows: Sequence[Sequence[bytes]]) -> pa.Array:
    """Make list<binary> of frame lists: the bytes joined, and NumPy for the offsets.

    Raises OverflowError if they are too many bytes.

    >>> frame_lists([[b"a", b"bc"], []]).to_pylist()
    [[b'a', b'bc'], []]
    """
    frames = _blobs(pa.binary(), list(chain.from_iterable(rows)))
    bounds = _offsets(np.fromiter(map(len, rows), np.int64, len(rows)))
    return pa.ListArray.from_buffers(pa.list_(pa.binary()), len(rows), [None, bounds], children=[frames])


# Arrow arrays, made of buffers and taken apart again: `pa.array`, `pa.scalar` and all that calls them import pandas if it is
# there, and `take` imports all of `pyarrow.compute`: both take longer than all the rest and have no business in a node.


def numbers_array(values: NDArray[np.int64]) -> pa.Array:
    """An Arrow array over the memory of a NumPy one."""
    return pa.Array.from_buffers(pa.int64(), values.size, [None, pa.py_buffer(values)])


def numbers_of(column: pa.Array) -> NDArray[np.signedinteger]:
    """The numbers of an Arrow array of int64 or int32; a null is whatever its place holds."""
    found, width = column.buffers()[1], column.type.byte_width
    if found is None or not len(column):
        return np.zeros(len(column), np.int64)
    return np.frombuffer(found, f"<i{width}", len(column), width * column.offset)


def _blobs(kind: pa.DataType, blobs: Sequence[bytes], validity: pa.Buffer | None = None) -> pa.Array:
    ends = _offsets(np.fromiter(map(len, blobs), np.int64, len(blobs)))  # first: they may be too many to be joined
    return pa.Array.from_buffers(kind, len(blobs), [validity, ends, pa.py_buffer(b"".join(blobs))])


def _offsets(sizes: NDArray[np.integer]) -> pa.Buffer:
    total = int(sizes.sum(dtype=np.int64))
    if total > MOST_BYTES:
        raise OverflowError(f"{total} bytes are too many for one batch")
    offsets = np.zeros(sizes.size + 1, np.int32)
    np.cumsum(sizes, dtype=np.int32, out=offsets[1:])
    return pa.py_buffer(offsets)


def _numbers(values: Sequence[int] | None, count: int, validity: pa.Buffer | None = None) -> pa.Array:
    if values is None:
        return pa.nulls(count, pa.int64())
    return pa.Array.from_buffers(pa.int64(), count, [validity, pa.py_buffer(np.fromiter(values, np.int64, count))])


def _sizes(values: Sequence[int | None] | None, count: int) -> pa.Array:
    if values is None:
        return pa.nulls(count, pa.int64())
    return _numbers([value or 0 for value in values], count, _validity(values))


def _flags(values: Sequence[bool]) -> pa.Array:
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])


def _texts(values: str | Sequence[str | None] | None, count: int) -> pa.Array:
    """One text for all, one for each, or none."""
    if values is None:
        return pa.nulls(count, pa.string())
    if isinstance(values, str):
        text = values.encode()
        sizes = np.full(count, len(text), np.int64)
        return pa.Array.from_buffers(pa.string(), count, [None, _offsets(sizes), pa.py_buffer(text * count)])
    return _blobs(pa.string(), [(value or "").encode() for value in values], _validity(values))


def _names(names: Sequence[bytes], codes: bytes) -> pa.Array:
    """One of a few texts for each. No code is a character of a text."""
    sizes = np.fromiter(map(len, names), np.int64, len(names))[np.frombuffer(codes, np.uint8)]
    content = codes
    for code, name in enumerate(names):
        content = content.replace(bytes([code]), name)
    return pa.Array.from_buffers(pa.string(), len(codes), [None, _offsets(sizes), pa.py_buffer(content)])


def _validity(values: Sequence[object]) -> pa.Buffer | None:
    """The bitmap of what is not null, if anything is."""
    return _bits([value is not None for value in values]) if None in values else None


def _bits(flags: Sequence[bool]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(np.fromiter(flags, np.bool_, len(flags)), bitorder="little"))
