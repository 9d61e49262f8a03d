"""Metaframes: where the fields of many v6 messages lie.

Theory of operation. Two ways, one answer:

- The walk reads the same number of every message with one NumPy gather, adds it to all positions and goes on to the next
  field. Numbers that follow each other are read as one record: a gather of sixteen bytes takes no longer than one of two.
- Flows repeat their shape. In metaframes in which all sizes and counts are the same, all fields lie at the same places: one
  of them is walked over, and the sizes of all others are compared with its at once. So their memory is fetched once, into
  rows that lie close together, and not for each field anew, which is most of what a walk costs. What has a shape of its own
  is left to the walk.

Finding is optimistic, as in `v6.py`. Lengths are read as unsigned, so a position only ever grows; a read beyond the buffer
is moved back to its end and gives nonsense; and comparing the last position with the end of the frame tells the messages in
which every read was good. The others drop out. This file copies no field and rejects nothing: see `columnar.py`.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hopline.wire import v3, v6
from hopline.wire.message import Distribution
from hopline.wire.regions import ENVELOPE
from hopline.wire.spans import (
    FORMATS,
    I64,
    U16,
    U32,
    VARIANTS,
    DropOut,
    Entries,
    Found,
    Mask,
    Positions,
    Slot,
    Source,
    Span,
    constant,
    demand,
    joined,
    numbers_of,
)

_MOST_ENTRIES: Final = 32
"""Most entries of a message on the fast path: each is a step over the messages that have so many, and few have more."""

_BYTES: Final = np.dtype("V0")
"""How a field is written that is a size and so many bytes; all others are numbers."""


class _Step(NamedTuple):
    """What is read at once: numbers, of which the last is the size of the bytes that follow, if they are a `field`."""

    record: np.dtype[np.void]
    field: str


def _step(**kinds: np.dtype[Any]) -> _Step:
    *_, (last, kind) = kinds.items()
    record = np.dtype([(name, U32 if of == _BYTES else of) for name, of in kinds.items()])
    return _Step(record, last if kind == _BYTES else "")


_Layout = tuple[_Step, ...]

_HEAD: Final[_Layout] = (
    _step(wire_version=U16, partition=_BYTES),
    _step(version=U16, identity=_BYTES),
    _step(receiver_identity=_BYTES),
    _step(receiver_node_identity=_BYTES),
    _step(trace_options=U16, distribution=U16, trace_rest=U32, callback_receiver_node_identity=_BYTES),
    _step(callback_key=I64, domain=_BYTES),
    _step(signature=_BYTES),
    _step(routing_count=U16, hops=U16, routing_rest=U32),
)
_ROUTING: Final[_Layout] = (_step(size=U32, uri=_BYTES), _step(identity=_BYTES))
_MIDDLE: Final[_Layout] = (_step(callback_count=U16),)
_CALLBACK: Final[_Layout] = (_step(size=U32, partition=_BYTES), _step(version=U16, identity=_BYTES))
_TAIL: Final[_Layout] = (
    _step(callback_receiver_identity=_BYTES),
    _step(correlation_id=_BYTES),
    _step(ttl_ticks=I64, body_offset=U16, body_count=U16, body_rest=U32),
)

_FAR: Final = 1 << 62
"""A position that no frame reaches."""


def v6_candidates(source: Source) -> Positions:
    """The rows that end in a metaframe and are too short for v3. Number 5 is left out: it may repeat the body."""
    n = source.last - source.first
    rows = np.flatnonzero(source.whole & (n > ENVELOPE) & (n < v3.FEWEST))
    start, end = source.span(source.last[rows] - 1)
    number = source.read(U16, start)
    is_meta: Mask = (end - start >= v6.SHORTEST) & ((number == 6) | (number == 4))
    return rows[is_meta]


def find_v6(source: Source, rows: Positions) -> Found:
    """Find the fields of v6 messages; raises DropOut if some are not ordinary."""
    first, last = source.first[rows], source.last[rows]
    start, end = source.span(last - 1)
    _, numbers, spans, routing, callbacks = _walk_by_shape(source, start, end)
    body_offset, body_count = numbers["body_offset"], numbers["body_count"]
    body = last - body_offset
    demand(
        (numbers["end"] <= end)
        & (numbers["distribution"] <= Distribution.BROADCAST)
        & (body >= first + ENVELOPE)
        & (body + body_count < last)
    )
    spans["socket_identity"] = source.span(first)
    spans["body"] = inside = source.span(body, body_count)
    numbers["body_size"] = inside.end - inside.start
    numbers["format"] = constant(FORMATS.index(v6.NAME), rows.size)
    numbers["variant"] = constant(VARIANTS.index(""), rows.size)
    delimiter = source.span(first + 1)
    usual = (numbers["wire_version"] == 6) & (last - first == v6.FEWEST) & (body_offset == 2) & (body_count == 1)
    usual &= (delimiter.start == delimiter.end) & (numbers["end"] == end) & ~numbers["has_rest"]
    usual &= (numbers["trace_rest"] | numbers["routing_rest"] | numbers["body_rest"]) == 0
    numbers["has_extra"] = ~usual
    return Found(rows, numbers, spans, routing, callbacks)


# The walk.


def _walk(source: Source, rows: Positions, start: Positions) -> Found:
    """Walk over metaframes; the number `end` is where each ends, and `has_rest` whether an entry is more than its fields."""
    cursor = _Cursor(source, start)
    cursor.walk(_HEAD)
    demand(cursor.numbers["routing_count"] <= _MOST_ENTRIES)
    routing = cursor.walk_entries(_ROUTING, cursor.numbers["routing_count"])
    cursor.walk(_MIDDLE)
    demand(cursor.numbers["callback_count"] <= _MOST_ENTRIES)
    callbacks = cursor.walk_entries(_CALLBACK, cursor.numbers["callback_count"])
    cursor.walk(_TAIL)
    numbers = cursor.numbers | {"end": cursor.pos, "has_rest": cursor.has_rest}
    return Found(rows, numbers, cursor.spans, routing, callbacks)


class _Cursor:
    """Walks through many metaframes at once, field by field, and keeps what it found."""

    def __init__(self, source: Source, pos: Positions) -> None:
        self._source = source
        self.pos = pos
        self.numbers: dict[str, NDArray[Any]] = {}
        self.spans: dict[str, Span | Slot] = {}
        self.has_rest: Mask = np.zeros(pos.size, np.bool_)

    def walk(self, layout: _Layout) -> None:
        """Walk over the fields of a layout."""
        for record, field in layout:
            found = self._source.read(record, self.pos)
            self.pos = self.pos + record.itemsize
            self.numbers |= numbers_of(found)
            if field:
                start, self.pos = self.pos, self.pos + self.numbers.pop(field)
                self.spans[field] = Span(start, self.pos)

    def walk_entries(self, layout: _Layout, counts: Positions) -> Entries:
        """Find the first entry of all messages, then the second of those that have one, and so on; then walk over all."""
        first = np.cumsum(counts) - counts
        start = np.empty(int(counts.sum()), np.int64)
        pos = self.pos.copy()
        rows, step = np.flatnonzero(counts), 0
        while rows.size:
            at = pos[rows]
            start[first[rows] + step] = at
            pos[rows] = at + U32.itemsize + self._source.read(U32, at)
            step += 1
            rows = rows[counts[rows] > step]
        entries = _Cursor(self._source, start)
        entries.walk(layout)
        end = start + U32.itemsize + entries.numbers["size"]
        # An entry may hold more than its fields, but not less.
        owner = np.repeat(np.arange(counts.size), counts)
        self.has_rest[owner[entries.pos != end]] = True
        pos[owner[entries.pos > end]] = _FAR
        self.pos = pos
        return Entries(counts, entries.spans, entries.numbers.get("version", start))


# Shapes.

_MOST_SHAPES: Final = 32
"""Shapes that are looked for in one block, a guess. One that few have counts as eight of them: who makes every
message another shape must not make us look at all of them so often."""

_FEWEST: Final = 128
"""Metaframes from which on a shape is worth its cost: to note one takes 50 us, to walk over many half a one each."""

_LARGEST: Final = 1 << 12
"""Bytes of a metaframe that may have a shape. Larger ones hold long names or trails, and much of them would be fetched for
nothing."""

_ROWS_AT_ONCE: Final = 1024
"""Metaframes that are compared at once: they should stay in the cache of the core."""


def _walk_by_shape(source: Source, start: Positions, end: Positions) -> Found:
    """Walk over metaframes, those of one shape at once; raises DropOut."""
    parts: list[Found] = []
    is_left = np.ones(start.size, np.bool_)
    sizes = np.minimum(end - start, _LARGEST)
    counts = np.bincount(sizes, minlength=_LARGEST)[:_LARGEST]
    looks = _MOST_SHAPES
    for size in np.flatnonzero(counts >= _FEWEST).tolist():
        alike = np.flatnonzero(sizes == size)
        while alike.size >= _FEWEST and looks > 0:
            shape = _shape_of(source.cut(start[alike[0]], end[alike[0]]))
            if shape is None:
                looks -= 1
                alike = alike[1:]
                continue
            same, found = shape.find(source, alike, start[alike])
            looks -= 1 if found.rows.size >= _FEWEST else 8
            parts.append(found)
            is_left[found.rows] = False
            alike = alike[1:][~same[1:]]  # whatever was found, the first one is done with
    if is_left.any() or not parts:
        left = np.flatnonzero(is_left)
        try:
            parts.append(_walk(source, left, start[left]))
        except DropOut as drop:
            is_left[left] = ~drop.good
            raise DropOut(~is_left) from None
    return joined(parts)


class _EntryPlaces(NamedTuple):
    """Where the fields of the entries of one metaframe lie, and which versions they have: 0 if they have none."""

    spans: dict[str, list[tuple[int, int]]]
    versions: list[int]


class _Shape(NamedTuple):
    """Metaframes that differ in bytes and in numbers of 64 bits only: where everything lies in them.

    They are read from `ahead` bytes before their start, so that they are whole words, and all places count from there.
    """

    ahead: int
    record: np.dtype[np.void]
    """The numbers in which they differ."""
    numbers: dict[str, int]
    spans: dict[str, tuple[int, int]]
    routing: _EntryPlaces
    callbacks: _EntryPlaces
    end: int
    has_rest: bool
    masks: NDArray[np.uint64]
    """Of all bits those in which they are alike, and"""
    marks: NDArray[np.uint64]
    """these bits."""

    def find(self, source: Source, rows: Positions, start: Positions) -> tuple[Mask, Found]:
        """Which of the metaframes that begin there have this shape, and what those hold."""
        begin = start - self.ahead
        same = begin >= 0
        metaframes = source.read(self.record, np.maximum(begin, 0))
        words = metaframes.view(np.uint64).reshape(-1, self.masks.size)
        for at in range(0, start.size, _ROWS_AT_ONCE):
            part = slice(at, at + _ROWS_AT_ONCE)
            are_other = (words[part] & self.masks) != self.marks
            if are_other.any():  # takes far less time than to ask each row
                same[part] &= ~are_other.any(axis=1)
        if not same.all():
            rows, begin, metaframes = rows[same], begin[same], metaframes[same]
        memory = metaframes.view(np.uint8).reshape(begin.size, -1)
        numbers: dict[str, NDArray[Any]] = {name: metaframes[name].copy() for name in self.record.names or ()}
        numbers |= {name: constant(value, begin.size) for name, value in self.numbers.items()}
        return same, Found(
            rows,
            numbers | {"end": begin + self.end, "has_rest": constant(self.has_rest, begin.size)},
            {name: Slot(memory, begin, (place,)) for name, place in self.spans.items()},
            _entries(memory, begin, self.routing),
            _entries(memory, begin, self.callbacks),
        )


def _entries(memory: NDArray[np.uint8], begin: Positions, places: _EntryPlaces) -> Entries:
    """The entries of metaframes of one shape."""
    spans: dict[str, Span | Slot] = {name: Slot(memory, begin, tuple(each)) for name, each in places.spans.items()}
    return Entries(
        constant(len(places.versions), begin.size), spans, np.tile(np.array(places.versions, np.int64), begin.size)
    )


class _Ruler:
    """Walks through one metaframe, and notes where everything lies."""

    def __init__(self, metaframe: bytes, pos: int = 0) -> None:
        self._metaframe = metaframe
        self.pos = pos
        self.has_rest = False
        self.numbers: dict[str, int] = {}
        self.large: dict[str, int] = {}
        """Where the numbers of 64 bits are."""
        self.spans: dict[str, tuple[int, int]] = {}
        self.marks: list[slice] = []
        """Where all others are."""

    def walk(self, layout: _Layout) -> None:
        """Walk over the fields of a layout; raises IndexError if the metaframe ends before it does."""
        for record, field in layout:
            for name, (kind, offset, *_) in (record.fields or {}).items():
                if kind == I64:
                    self.large[name] = self.pos + offset
                else:
                    mark = slice(self.pos + offset, self.pos + offset + kind.itemsize)
                    self.marks.append(mark)
                    self.numbers[name] = int.from_bytes(self._metaframe[mark], "little")
            self.pos += record.itemsize
            if field:
                start, self.pos = self.pos, self.pos + self.numbers.pop(field)
                self.spans[field] = start, self.pos
            if self.pos > len(self._metaframe):
                raise IndexError

    def walk_entries(self, layout: _Layout, count: int) -> _EntryPlaces:
        """Walk over entries; raises IndexError, also if one holds less than its fields."""
        if count > _MOST_ENTRIES:
            raise IndexError
        places = _EntryPlaces({step.field: [] for step in layout}, [])
        for _ in range(count):
            ruler = _Ruler(self._metaframe, self.pos)
            ruler.walk(layout)
            self.pos += U32.itemsize + ruler.numbers["size"]
            if ruler.pos > self.pos:
                raise IndexError
            self.has_rest |= ruler.pos < self.pos
            self.marks += ruler.marks
            for name, bounds in ruler.spans.items():
                places.spans[name].append(bounds)
            places.versions.append(ruler.numbers.get("version", 0))
        return places


def _shape_of(metaframe: bytes) -> _Shape | None:
    """The shape of a metaframe; None if it is not an ordinary one."""
    ahead = -len(metaframe) % 8
    row = bytes(ahead) + metaframe
    ruler = _Ruler(row, ahead)
    try:
        ruler.walk(_HEAD)
        routing = ruler.walk_entries(_ROUTING, ruler.numbers["routing_count"])
        ruler.walk(_MIDDLE)
        callbacks = ruler.walk_entries(_CALLBACK, ruler.numbers["callback_count"])
        ruler.walk(_TAIL)
    except IndexError:
        return None
    words = np.frombuffer(row, np.uint64)
    masks = np.zeros(len(row), np.uint8)
    for mark in ruler.marks:
        masks[mark] = 255
    places = list(ruler.large.values())
    record = {"names": list(ruler.large), "formats": [I64] * len(places), "offsets": places, "itemsize": masks.size}
    return _Shape(
        ahead,
        np.dtype(record),  # type: ignore[call-overload]
        ruler.numbers,
        ruler.spans,
        routing,
        callbacks,
        ruler.pos,
        ruler.has_rest,
        masks.view(np.uint64),
        words & masks.view(np.uint64),
    )
