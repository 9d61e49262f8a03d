"""Trailers: where the fields of many v5 messages lie.

Each field is a frame, counted from the last one, so its span is known as soon as the frames are; what is read are numbers,
and those that say where entries and body are. This file copies nothing and rejects nothing: see `columnar.py`.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hopline.wire import v5
from hopline.wire.message import Distribution
from hopline.wire.regions import CALLBACK_FRAMES, ENVELOPE, ROUTING_FRAMES
from hopline.wire.spans import (
    FORMATS,
    I64,
    U16,
    U32,
    VARIANTS,
    Entries,
    Found,
    Mask,
    Positions,
    Slot,
    Source,
    Span,
    constant,
    demand,
    numbers_of,
)


def _record(**kinds: np.dtype[Any]) -> np.dtype[np.void]:
    return np.dtype(list(kinds.items()))


_V5_SPANS: Final = {
    "callback_receiver_node_identity": 17,
    "domain": 15,
    "signature": 14,
    "receiver_identity": 11,
    "callback_receiver_identity": 10,
    "receiver_node_identity": 9,
    "partition": 8,
    "identity": 6,
    "correlation_id": 4,
}
_V5_NUMBERS: Final = {
    16: _record(callback_key=I64),
    13: _record(routing_offset=U16, routing_count=U16, routing_divisor=U16, hops=U16),
    12: _record(callback_offset=U16, callback_count=U16, callback_divisor=U16, callback_rest=U16),
    7: _record(version=U16),
    5: _record(trace_options=U16, distribution=U16, trace_rest=U32),
    3: _record(ttl_ticks=I64),
    2: _record(body_offset=U16, body_count=U16, body_rest=U32),
}
"""Which frame from the end; numbers must fill their frame."""


def v5_candidates(source: Source) -> Positions:
    """The rows that end in the stamp. None can be v3 if its BodyDescription is there: v3 has an empty frame at n-2."""
    rows = np.flatnonzero(source.whole & (source.last - source.first >= v5.FEWEST))
    start, end = source.span(source.last[rows] - 1)
    size = end - start
    four, two = (source.read(kind, start) == 5 for kind in (U32, U16))
    is_stamp: Mask = ((size == 4) & four) | ((size == 2) & two)
    return rows[is_stamp]


def find_v5(source: Source, rows: Positions) -> Found:
    """Find the fields of v5 messages; raises DropOut if some are not ordinary."""
    first, last = source.first[rows], source.last[rows]
    # edges[k] is where the k-th frame from the end starts, and edges[k - 1] where it ends.
    edges = [source.bounds[last - k] for k in range(v5.TRAILER + 1)]
    good = np.ones(rows.size, np.bool_)
    for k, record in _V5_NUMBERS.items():
        good &= edges[k - 1] - edges[k] == record.itemsize
    demand(good)
    numbers: dict[str, NDArray[Any]] = {}
    for k, record in _V5_NUMBERS.items():
        numbers |= numbers_of(source.read(record, edges[k]))
    spans: dict[str, Span | Slot] = {name: Span(edges[k], edges[k - 1]) for name, k in _V5_SPANS.items()}
    routing_offset, routing_count, routing_divisor = (numbers[f"routing_{of}"] for of in ("offset", "count", "divisor"))
    callback_offset, callback_count, callback_divisor = (numbers[f"callback_{of}"] for of in ("offset", "count", "divisor"))
    body_offset, body_count = numbers["body_offset"], numbers["body_count"]
    # The ordinary layout: the parts follow each other without a gap, and entries are no larger than they must be.
    callbacks_at = v5.TRAILER + CALLBACK_FRAMES * callback_count
    routing_at = callbacks_at + ROUTING_FRAMES * routing_count
    no_callbacks, no_routing = callback_count == 0, routing_count == 0
    demand(
        (no_callbacks | ((callback_offset == v5.TRAILER + 1) & (callback_divisor == CALLBACK_FRAMES)))
        & (no_routing | ((routing_offset == callbacks_at + 1) & (routing_divisor == ROUTING_FRAMES)))
        & (body_offset == routing_at + body_count)
        & (last - body_offset >= first + ENVELOPE)
        & (numbers["distribution"] <= Distribution.BROADCAST)
    )
    _, (start, middle, end) = _each_entry(source, last - routing_at, routing_count, ROUTING_FRAMES)
    routing = Entries(routing_count, {"uri": Span(start, middle), "identity": Span(middle, end)}, start)
    owner, (start, version, identity, end) = _each_entry(source, last - callbacks_at, callback_count, CALLBACK_FRAMES)
    good[owner[identity - version != 2]] = False
    demand(good)
    points: dict[str, Span | Slot] = {"partition": Span(start, version), "identity": Span(identity, end)}
    callbacks = Entries(callback_count, points, source.read(U16, version))
    spans["socket_identity"] = source.span(first)
    spans["body"] = body = source.span(last - body_offset, body_count)
    numbers["body_size"] = body.end - body.start
    numbers["wire_version"] = constant(5, rows.size)
    numbers["format"] = constant(FORMATS.index(v5.NAME), rows.size)
    numbers["variant"] = np.where(edges[0] - edges[1] == 2, VARIANTS.index("uint16-stamp"), VARIANTS.index("int32-stamp"))
    delimiter = source.span(first + 1)
    usual = (last - body_offset == first + ENVELOPE) & (body_count == 1) & (delimiter.start == delimiter.end)
    usual &= ~no_routing | ((routing_offset == 0) & (routing_divisor == ROUTING_FRAMES))
    usual &= ~no_callbacks | ((callback_offset == 0) & (callback_divisor == CALLBACK_FRAMES))
    usual &= (numbers["trace_rest"] | numbers["body_rest"] | numbers["callback_rest"]) == 0
    numbers["has_extra"] = ~usual
    return Found(rows, numbers, spans, routing, callbacks)


def _each_entry(source: Source, first: Positions, counts: Positions, size: int) -> tuple[Positions, list[Positions]]:
    """For every entry of every message: which message it belongs to, and where its frames start, and the last one ends."""
    owner = np.repeat(np.arange(counts.size), counts)
    ahead = np.cumsum(counts) - counts
    frame = (first - size * ahead)[owner] + size * np.arange(owner.size)
    return owner, [source.bounds[frame + k] for k in range(size + 1)]
