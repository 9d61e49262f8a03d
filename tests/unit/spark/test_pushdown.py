"""Filters of Spark in our language: the same rows pass, null or not."""

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from pyspark.sql import datasource as spark

from hopline.capture.filter import parse_filter
from hopline.capture.predicate import mask
from hopline.capture.tables import MESSAGES
from hopline.spark.pieces import Times
from hopline.spark.pushdown import narrower, times_of, translate

ALL = frozenset(MESSAGES.names)
MOMENTS = [datetime(2026, 11, 15, 18, tzinfo=UTC), datetime(2026, 11, 15, 19, tzinfo=UTC), None]
VALUES = {
    "origin_key": ["", "a", "ab", "b*", "ö", None],
    "version_bytes": [b"", b"\0", b"\xff", None],
    "version": [-1, 0, 1, 2, None],
    "ttl_ms": [-1.0, 0.0, 0.5, None],
    "is_system": [True, False, None],
    "seen_at": MOMENTS,
    "date": [date(2026, 11, 15), date(2026, 11, 16), None],
}


def in_sql(of, value):
    """What SQL says of a filter: true, false, or None if that is unknown."""
    match of:
        case spark.Not(child):
            inner = in_sql(child, value)
            return None if inner is None else not inner
        case spark.IsNull():
            return value is None
        case spark.IsNotNull():
            return value is not None
        case spark.EqualNullSafe(value=other):
            return value == other
    if value is None:
        return None
    match of:
        case spark.EqualTo(value=other):
            return value == other
        case spark.GreaterThan(value=other):
            return value > other
        case spark.GreaterThanOrEqual(value=other):
            return value >= other
        case spark.LessThan(value=other):
            return value < other
        case spark.LessThanOrEqual(value=other):
            return value <= other
        case spark.In(value=others):
            return value in others
        case spark.StringStartsWith(value=part):
            return value.startswith(part)
        case spark.StringEndsWith(value=part):
            return value.endswith(part)
        case spark.StringContains(value=part):
            return part in value
    raise AssertionError(of)


def filters():
    comparisons = (
        spark.EqualTo,
        spark.EqualNullSafe,
        spark.GreaterThan,
        spark.GreaterThanOrEqual,
        spark.LessThan,
        spark.LessThanOrEqual,
    )
    for column, values in VALUES.items():
        path = (column,)
        known = [value for value in values if value is not None]
        plain = [kind(path, value) for kind in comparisons for value in known]
        plain += [spark.IsNull(path), spark.IsNotNull(path), spark.In(path, tuple(known[:2])), spark.In(path, ())]
        if column == "origin_key":
            kinds = (spark.StringStartsWith, spark.StringEndsWith, spark.StringContains)
            plain += [kind(path, part) for kind in kinds for part in ("", "a", "b", "ö")]
        for each in plain:
            yield column, each
            yield column, spark.Not(each)


@pytest.mark.parametrize(
    ("column", "of"), list(filters()), ids=lambda value: value if isinstance(value, str) else repr(value)
)
def test_the_same_rows_pass_as_in_sql(column, of):
    values = VALUES[column]
    ours = translate(of, ALL)
    assert ours is not None
    batch = pa.RecordBatch.from_arrays([pa.array(values, MESSAGES.field(column).type)], [column])
    assert mask(ours, batch).to_pylist() == [in_sql(of, value) is True for value in values]


@pytest.mark.parametrize(
    "of",
    [
        spark.EqualTo(("trail", "uri"), "x"),
        spark.EqualTo(("unheard",), 1),
        spark.EqualTo(("code",), "x"),
        spark.IsNotNull(("trail",)),
        spark.EqualTo(("hops",), None),
        spark.EqualTo(("hops",), True),
        spark.EqualTo(("hops",), 1.5),
        spark.EqualTo(("date",), datetime(2026, 11, 15, tzinfo=UTC)),
        spark.EqualTo(("seen_at",), datetime(2026, 11, 15)),  # noqa: DTZ001 - the case is that it has no zone
        spark.EqualTo(("ttl_ms",), float("nan")),
        spark.EqualNullSafe(("hops",), None),
        spark.In(("hops",), (1, None)),
        spark.Not(spark.In(("hops",), (1, None))),
        spark.StringContains(("identity_key",), "what?"),
        spark.StringStartsWith(("identity_key",), "*"),
        spark.StringContains(("identity",), "x"),
        spark.Not(spark.Not(spark.IsNull(("hops",)))),
    ],
)
def test_what_cannot_be_said_exactly_is_left_to_spark(of):
    assert translate(of, ALL) is None


def test_only_columns_of_the_table_are_taken():
    assert translate(spark.EqualTo(("hops",), 1), frozenset(["tap"])) is None


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("", Times()),
        ("hops == 1", Times()),
        ("seen_ns == 5", Times(5, 6)),
        ("seen_ns > 5 and seen_ns <= 9", Times(6, 10)),
        ("seen_ns >= 5 and seen_ns >= 7 and seen_ns < 9 and seen_ns < 8", Times(7, 8)),
        ("time > 1970-01-01T00:00:00.000001Z", Times(2000, None)),
        ("time <= 1970-01-01T00:00:00.000001Z", Times(None, 2000)),
        ("date == 1970-01-02", Times(86_400_000_000_000, 172_800_000_000_000)),
        ("seen_ns != 5", Times()),
        ("seen_ns > 5 or hops == 1", Times()),
        ("not seen_ns > 5", Times()),
        ("hops == 1 and (seen_ns > 5 and tap == hub_in)", Times(6, None)),
    ],
)
def test_time_that_a_filter_leaves(text, times):
    assert times_of(parse_filter(text)) == times


def test_narrower():
    assert narrower(Times(1, None), Times(None, 9)) == Times(1, 9)
    assert narrower(Times(1, 8), Times(2, 9)) == Times(2, 8)
    assert narrower(Times(), Times()) == Times()
