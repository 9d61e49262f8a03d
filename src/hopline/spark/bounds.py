"""What a filter says about time: where it does not look, nothing has to be read. This file reads no data."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Final

from hopline.capture.filter import And, Compare, Filter
from hopline.spark.pieces import Times

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NS_PER_DAY: Final = 86_400_000_000_000
_FIRST_NS: Final = -(1 << 63)
_LAST_NS: Final = (1 << 63) - 1
"""Of all times at which something can be seen; a person may name others, as the year 9999."""


def conjuncts(of: Filter) -> Iterator[Filter]:
    """The filters that all must hold for a filter to hold."""
    if isinstance(of, And):
        for operand in of.operands:
            yield from conjuncts(operand)
    else:
        yield of


def times_of(of: Filter) -> Times:
    """The time outside of which nothing passes a filter, as far as it says so plainly.

    >>> from hopline.capture.filter import parse_filter
    >>> times_of(parse_filter("hops > 1 and time >= 1970-01-01T00:00:01Z and date < 1970-01-03"))
    Times(since_ns=1000000000, until_ns=172800000000000)
    """
    times = Times()
    for each in conjuncts(of):
        match each:
            case Compare(column, "==" | ">=" | ">" | "<" | "<=" as operator, value):
                unit = _unit_ns(column, value)
                if unit is not None:
                    times = narrower(times, _times(operator, *unit))
            case _:
                pass
    return times


def narrower(one: Times, other: Times) -> Times:
    """The time that is in both, in numbers that a column of nanoseconds can be compared with."""
    since = max((ns for ns in (one.since_ns, other.since_ns) if ns is not None), default=_FIRST_NS)
    until = min((ns for ns in (one.until_ns, other.until_ns) if ns is not None), default=_LAST_NS + 1)
    if since > _LAST_NS or until <= _FIRST_NS:
        return Times(None, _FIRST_NS)  # nothing was seen then
    return Times(since if since > _FIRST_NS else None, until if until <= _LAST_NS else None)


def _unit_ns(column: str, value: object) -> tuple[int, int] | None:
    """The first nanosecond that a value of a column stands for, and how many it does; None if it is no time."""
    match column, value:
        case "seen_ns", int():
            return value, 1
        case "seen_at", datetime():
            return (value - _EPOCH) // timedelta(microseconds=1) * 1000, 1000
        case "date", date():
            return (value - _EPOCH.date()).days * _NS_PER_DAY, _NS_PER_DAY
        case _:
            return None


def _times(operator: str, first: int, size: int) -> Times:
    match operator:
        case "==":
            return Times(first, first + size)
        case ">=":
            return Times(first, None)
        case ">":
            return Times(first + size, None)
        case "<":
            return Times(None, first)
        case _:
            return Times(None, first + size)
