"""One filter, four readings: the text gives the tree back, and the Arrow mask, the row predicate and the SQL agree.

The SQL is Spark's. What of it SQLite understands too is run there: an engine that knows nothing of us.
"""

import sqlite3
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from hopline.capture.fields import CHOICES, kind_of
from hopline.capture.filter import And, Compare, Filter, IsEmpty, Match, Not, OneOf, Or, fields_of, parse_filter
from hopline.capture.predicate import mask, row_predicate, to_sql
from hopline.capture.tables import MESSAGES

# Few values, so that rows and filters meet; and what texts trip over: quotes, patterns, other alphabets.
TEXTS = [
    "",
    "a",
    "ab",
    "A",
    "é",
    "a%b",
    "a_b",
    "a*b",
    "a\\b",
    "it's",
    'say "a"',
    "€!",
    "in",
    "\n",
    "😀",
    "a.b",
    "$x",
    "0x00",
]
PATTERNS = ["*", "a*", "*b", "a?b", "?", "??", "a%?", "_*", "!", "*!*", "*'*", "*\\*", "a.b", "\n", "*\n", "[a]", "\\d"]
NUMBERS = [0, 1, -1, 7, 2**31, -(2**63) + 1, 2**63 - 1]
SMALL = [0, 1, -1, 7, 2**31 - 1]
BYTES = [b"", b"a", b"\0", b"\xff\xfe", b"it's"]
TIMES = [datetime(2026, 11, 15, 18, 9, 40, micro, UTC) for micro in (0, 1, 999_999)]
VALUES: dict[str, list[Any]] = {
    "text": TEXTS,
    "number": NUMBERS,
    "duration": [0.0, 0.25, 1.5, 2000.0, -1.0],
    "flag": [True, False],
    "time": TIMES,
    "date": [date(2026, 11, 15), date(1969, 12, 31)],
    "bytes": BYTES,
    "list": TEXTS,
}
COLUMNS = ["identity_key", "domain", "tap", "hops", "seq", "ttl_ms", "is_system", "seen_at", "date", "signature"]
LISTS = ["trail", "callback_points", "warnings", "parent_trail"]


def values(column: str) -> st.SearchStrategy[Any]:
    return st.sampled_from([value for value in CHOICES.get(column, VALUES[kind_of(column)]) if value != ""] or [""])


@st.composite
def questions(draw: st.DrawFn, columns: list[str]) -> Filter:
    column = draw(st.sampled_from(columns))
    kind = kind_of(column)
    signs = {"flag": ["==", "!="], "bytes": ["==", "!="], "list": ["=="]}.get(kind, ["==", "!=", "<", "<=", ">", ">="])
    match draw(st.sampled_from(["compare", "compare", "match", "one of", "empty"])):
        case "match" if kind in ("text", "list"):
            return Match(column, draw(st.sampled_from(PATTERNS)))
        case "one of" if kind != "flag":
            return OneOf(column, tuple(draw(st.lists(values(column), min_size=1, max_size=3))))
        case "empty":
            return IsEmpty(column)
        case _:
            return Compare(column, draw(st.sampled_from(signs)), draw(values(column)))


def filters(columns: list[str]) -> st.SearchStrategy[Filter]:
    def larger(inner: st.SearchStrategy[Filter]) -> st.SearchStrategy[Filter]:
        some = st.lists(inner, min_size=2, max_size=3).map(tuple)
        return st.builds(Not, inner) | st.builds(And, some) | st.builds(Or, some)

    return st.recursive(questions(columns), larger, max_leaves=5)


@st.composite
def rows(draw: st.DrawFn) -> dict[str, Any]:
    small = {"hops": SMALL}
    row = {
        column: draw(st.none() | st.sampled_from(small.get(column, list(CHOICES.get(column, VALUES[kind_of(column)])))))
        for column in COLUMNS
    }
    texts = st.sampled_from(TEXTS)
    row["trail"] = draw(st.none() | st.lists(st.fixed_dictionaries({"uri": texts, "node_key": texts}), max_size=2))
    row["callback_points"] = draw(
        st.lists(st.fixed_dictionaries({"identity_key": texts, "version": st.just(1), "partition_key": texts}), max_size=2)
    )
    return row | {name: draw(st.none() | st.lists(texts, max_size=2)) for name in ("warnings", "parent_trail")}


def written(of: Filter) -> str:
    """The text of a filter."""

    def quoted(value: object) -> str:
        match value:
            case bytes():
                return f"0x{value.hex()}" if value else '""'
            case datetime() | date():
                return value.isoformat()
            case bool():
                return str(value).lower()
            case str():
                escaped = value.replace("\\", "\\\\").replace('"', '\\"')
                return f'"{escaped}"'
            case _:
                return str(value)

    match of:
        case And(operands):
            return " and ".join(f"({written(operand)})" for operand in operands)
        case Or(operands):
            return " or ".join(f"({written(operand)})" for operand in operands)
        case Not(operand):
            return f"not ({written(operand)})"
        case IsEmpty(column):
            return f"{column} is empty"
        case Match(column, pattern):
            return f"{column} ~ {quoted(pattern)}"
        case OneOf(column, found):
            return f"{column} in ({', '.join(map(quoted, found))})"
        case Compare(column, operator, value):
            return f"{column} {operator} {quoted(value)}"


@given(filters(COLUMNS + LISTS))
def test_the_text_of_a_filter_gives_it_back(of: Filter) -> None:
    assert parse_filter(written(of)) == of


@given(filters(COLUMNS + LISTS), st.lists(rows(), max_size=4))
def test_mask_and_row_predicate_agree(of: Filter, found: list[dict[str, Any]]) -> None:
    schema = pa.schema([MESSAGES.field(name) for name in COLUMNS + LISTS])
    batch = pa.RecordBatch.from_pylist(found, schema)
    passed = [row_predicate(of)(row) for row in found]
    assert mask(of, batch).to_pylist() == passed
    # Only the fields that the filter names count, and one that is missing is null.
    narrow = batch.select(sorted(fields_of(of)))
    assert mask(of, narrow).to_pylist() == passed
    missing = min(fields_of(of))
    without = [{**row, missing: None} for row in found]
    assert mask(of, batch.drop_columns([missing])).to_pylist() == [row_predicate(of)(row) for row in without]


SQL_COLUMNS = ["identity_key", "domain", "tap", "hops", "seq", "is_system", "signature", "seen_at"]


def micros(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@given(filters(SQL_COLUMNS), st.lists(rows(), max_size=4))
def test_sql_agrees(of: Filter, found: list[dict[str, Any]]) -> None:
    base = sqlite3.connect(":memory:")
    try:
        base.create_function("decode", 2, lambda raw, _charset: raw.decode())
        base.create_function("timestamp_micros", 1, lambda number: number)
        base.execute("PRAGMA case_sensitive_like = ON")
        base.execute(f"CREATE TABLE messages ({', '.join(['place', *SQL_COLUMNS])})")
        for place, row in enumerate(found):
            cells = [micros(row[name]) if name == "seen_at" else row[name] for name in SQL_COLUMNS]
            base.execute(f"INSERT INTO messages VALUES ({', '.join('?' * (len(cells) + 1))})", [place, *cells])
        passed = base.execute(f"SELECT place FROM messages WHERE {to_sql(of)} ORDER BY place").fetchall()
    finally:
        base.close()
    assert [place for (place,) in passed] == [place for place, row in enumerate(found) if row_predicate(of)(row)]
