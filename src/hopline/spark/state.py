"""The state of tables: what was taken of captures, which days were made of it, and on which terms. One small JSON file.

What was taken is kept by time, because a run may be told to take only what was seen since or until some time, and a later
one may want the rest. Each layer is a stretch of time with an offset (`offsets.py`): of what was seen in that time, all that
lies before the offset was taken. Usually there is one layer, of all times.

    seen before noon      |##########........|      # taken, . came later, in the order in which captures are written
    seen after noon       |##############....|

What was made is kept by table and day, with the number of rows. A day that `messages` has and another table has not is made
up for by the next run that makes this table. This file reads no capture and starts nothing.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, Final, TypedDict

import msgspec

from hopline.errors import TablesError
from hopline.wire import TtlUnit

VERSION: Final = 1
"""Of what stands here; whoever finds a later one leaves it alone."""

LONGEST_REACH_S: Final = 12 * 3600
"""Of what is on two days: half a day, for both days have to come to the same (`midnight.py`)."""

_Numbers = Annotated[str, msgspec.Meta(pattern=r"^([0-9]{1,18}(-[0-9]{1,18})?(,|$))*$")]


class Offset(TypedDict, total=False):
    """How far each segment was taken, as `offsets.Taken` writes it."""

    runs: dict[str, _Numbers]
    segments: dict[str, Annotated[int, msgspec.Meta(ge=0)]]


_EVER: Final = 1 << 63
"""Beyond all times: they are nanoseconds in 64 bits."""


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """What was taken of all that was seen from one time until before another; None is for ever."""

    since_ns: int | None = None
    until_ns: int | None = None
    offset: Offset = {}

    @property
    def span(self) -> tuple[int, int]:
        """The same as two numbers; what lies beyond all times is for ever too."""
        first = -_EVER if self.since_ns is None else self.since_ns
        last = _EVER if self.until_ns is None else self.until_ns
        return min(max(first, -_EVER), _EVER), min(max(last, -_EVER), _EVER)


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for all rows of the tables: rows that were made on other terms would not fit together.

    Attributes:
        v3_ttl: the unit of TTL in v3.
        bodies: whether `messages` has a column `body`.
        reach_s: sightings that are farther apart, on two days, are not put together: see `days.py`.
    """

    v3_ttl: TtlUnit = "ms"
    bodies: bool = False
    reach_s: Annotated[int, msgspec.Meta(ge=0, le=LONGEST_REACH_S)] = 6 * 3600


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What tables say of themselves.

    Attributes:
        version: of this structure.
        run: the run that wrote it.
        terms: what holds for all rows.
        layers: what was taken, in order of time.
        made: rows of each table by day; the day of a table without days is empty.
    """

    version: int = VERSION
    run: str = ""
    terms: Terms = Terms()
    layers: list[Layer] = []
    made: dict[str, dict[str, int]] = {}

    def days_of(self, table: str) -> dict[str, int]:
        """The days of a table that are up to date, with their rows."""
        return self.made.get(table, {})

    def rows_of(self, table: str) -> int:
        """All rows of a table."""
        return sum(self.days_of(table).values())


_decoder: Final = msgspec.json.Decoder(State)


def read_state(data: bytes) -> State:
    """Read what `write_state` wrote; raises TABLES_BAD_STATE."""
    try:
        state = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = f"the state of the tables, _hopline/state.json, cannot be read: {error}"
        advice = "restore the folder _hopline from a copy, or make the tables anew in another folder"
        raise TablesError("TABLES_BAD_STATE", f"{reason}: {advice}") from None
    if state.version > VERSION:
        reason = f"the tables are of version {state.version}, and {VERSION} is the last one known here"
        raise TablesError("TABLES_BAD_STATE", reason)
    return state


def write_state(state: State) -> bytes:
    """A state as JSON that a person can read."""
    return msgspec.json.format(msgspec.json.encode(state, order="deterministic"), indent=1) + b"\n"


def cut(layers: Iterable[Layer], since_ns: int | None, until_ns: int | None) -> tuple[list[Layer], list[Layer]]:
    """Divide layers: those of the asked-for time, without gaps between them, and those outside of it.

    >>> inside, outside = cut([Layer(until_ns=10, offset={"segments": {"s": 5}})], 8, None)
    >>> [(layer.since_ns, layer.until_ns, layer.offset) for layer in inside]
    [(8, 10, {'segments': {'s': 5}}), (10, None, {})]
    >>> [(layer.since_ns, layer.until_ns) for layer in outside]
    [(None, 8)]
    """
    first, last = Layer(since_ns=since_ns, until_ns=until_ns).span
    last = max(first, last)
    inside: list[Layer] = []
    outside: list[Layer] = []
    reached = first
    for layer in sorted(layers, key=lambda layer: layer.span):
        start, end = layer.span
        outside += _layers(layer.offset, [(start, min(end, first)), (max(start, last), end)])
        inside += _layers({}, [(reached, min(start, last))])
        inside += _layers(layer.offset, [(max(start, first), min(end, last))])
        reached = max(reached, end)
    inside += _layers({}, [(reached, last)])
    return inside, outside


def join(layers: Iterable[Layer]) -> list[Layer]:
    """Layers in order of time; neighbours of which the same was taken become one.

    >>> join([Layer(since_ns=5), Layer(until_ns=5)]) == [Layer()]
    True
    """
    joined: list[Layer] = []
    for layer in sorted(layers, key=lambda layer: layer.span):
        if joined and joined[-1].span[1] == layer.span[0] and joined[-1].offset == layer.offset:
            joined[-1] = Layer(since_ns=joined[-1].since_ns, until_ns=layer.until_ns, offset=layer.offset)
        else:
            joined.append(layer)
    return joined


def _layers(offset: Offset, spans: Iterable[tuple[int, int]]) -> Iterator[Layer]:
    for start, end in spans:
        if start < end:
            since_ns = None if start == -_EVER else start
            yield Layer(since_ns=since_ns, until_ns=None if end == _EVER else end, offset=offset)
