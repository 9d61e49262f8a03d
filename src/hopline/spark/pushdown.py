"""Filters that Spark hands to the source, as filters of ours; and what a filter says about time.

Spark is three-valued and we are two-valued: there `not a = 1` is unknown for null and drops the row, here it is true. In a
list of filters that all must hold, unknown is as good as false, so each one can be said in our language if null is
looked at where a `not` stands. What cannot be said exactly is left to Spark. This file reads no data.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from pyspark.sql import datasource as spark

from hopline.capture.fields import Kind, kind_of
from hopline.capture.filter import And, Compare, Filter, IsEmpty, Match, Not, OneOf, Operator
from hopline.capture.tables import MESSAGES
from hopline.spark.pieces import Times

_COMPARISONS: Final[dict[type[spark.Filter], tuple[Operator, Operator]]] = {
    spark.EqualTo: ("==", "!="),
    spark.GreaterThan: (">", "<="),
    spark.GreaterThanOrEqual: (">=", "<"),
    spark.LessThan: ("<", ">="),
    spark.LessThanOrEqual: ("<=", ">"),
}
"""Each comparison, and what its negation is where there is a value."""

_TYPES: Final[dict[Kind, type]] = {
    "text": str,
    "number": int,
    "duration": float,
    "flag": bool,
    "time": datetime,
    "date": date,
    "bytes": bytes,
}

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NS_PER_DAY: Final = 86_400_000_000_000


def translate(of: spark.Filter, columns: frozenset[str]) -> Filter | None:
    """Say a filter of Spark, as one of those that all must hold, in our language; None if it cannot be said.

    >>> translate(spark.EqualTo(("hops",), 1), frozenset(["hops"]))
    Compare(column='hops', operator='==', value=1)
    >>> translate(spark.EqualTo(("trail", "uri"), "x"), frozenset(["trail"])) is None
    True
    """
    is_not = isinstance(of, spark.Not)
    inner: Any = of.child if isinstance(of, spark.Not) else of
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    if len(path) != 1 or path[0] not in columns or path[0] not in MESSAGES.names or kind_of(path[0]) == "list":
        return None
    column: str = path[0]
    match inner:
        case spark.IsNull() | spark.IsNotNull():
            return _has_value(column) if isinstance(inner, spark.IsNull) == is_not else Not(_has_value(column))
        case spark.EqualNullSafe(value=value):
            if not _fits(column, value):
                return None
            equal = Compare(column, "==", value)
            return Not(equal) if is_not else equal
        case spark.In(value=values):
            if not all(_fits(column, value) for value in values):
                return None
            one_of = OneOf(column, tuple(values))
            return And((_has_value(column), Not(one_of))) if is_not else one_of
        case spark.StringStartsWith() | spark.StringEndsWith() | spark.StringContains():
            pattern = _pattern(inner)
            if pattern is None or kind_of(column) != "text":
                return None
            found = Match(column, pattern)
            return And((_has_value(column), Not(found))) if is_not else found
        case _ if type(inner) in _COMPARISONS and _fits(column, inner.value):
            return Compare(column, _COMPARISONS[type(inner)][is_not], inner.value)
        case _:
            return None


def _fits(column: str, value: object) -> bool:
    """Whether a value is of the type that a column has in Python."""
    kind = kind_of(column)
    if not isinstance(value, _TYPES[kind]):
        return False
    if isinstance(value, datetime):  # which is a date too
        return kind == "time" and value.tzinfo is not None
    if isinstance(value, bool):  # which is an int too
        return kind == "flag"
    return value == value  # noqa: PLR0124 - not a number equals nothing here, and itself in Spark


def _has_value(column: str) -> Filter:
    """Holds if a column is not null. `is empty` cannot say so of texts, but every text is at least the empty one."""
    match kind_of(column):
        case "text":
            return Compare(column, ">=", "")
        case "bytes":
            return Compare(column, ">=", b"")
        case _:
            return Not(IsEmpty(column))


def _pattern(of: spark.StringStartsWith | spark.StringEndsWith | spark.StringContains) -> str | None:
    """A pattern for a part of a text; None if the part holds what stands for something else in a pattern."""
    if "*" in of.value or "?" in of.value:
        return None
    before = "" if isinstance(of, spark.StringStartsWith) else "*"
    after = "" if isinstance(of, spark.StringEndsWith) else "*"
    return f"{before}{of.value}{after}"


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
    """The time that is in both."""
    since = [ns for ns in (one.since_ns, other.since_ns) if ns is not None]
    until = [ns for ns in (one.until_ns, other.until_ns) if ns is not None]
    return Times(max(since, default=None), min(until, default=None))


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
