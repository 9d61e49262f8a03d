"""A filter at work: over Arrow batches, on one row, and as Spark SQL. All three give the same answer.

A filter is two-valued: null, and a column that is not there, fails every test but `is empty`. SQL is three-valued: there
null counts as false in WHERE, and `coalesce` makes it false before a NOT turns it round. So `to_sql` is for WHERE.
This file knows the tree of a filter, not its text, and no files.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hopline.capture.fields import ENTRY_FIELDS, Value, kind_of
from hopline.capture.filter import And, Compare, Filter, IsEmpty, Match, Not, OneOf, Or

Row = Mapping[str, Any]
"""A row of MESSAGES as `to_pylist` gives it; what is not in it counts as null."""


# --- over Arrow batches -----------------------------------------------------------------------------------------------


def mask(of: Filter, batch: pa.RecordBatch) -> pa.Array:
    """Which rows of a batch of MESSAGES pass: true or false for each, never null.

    >>> from hopline.capture.filter import parse_filter
    >>> batch = pa.RecordBatch.from_pydict({"identity_key": ["HELLO", "EHHLO", None]})
    >>> mask(parse_filter("identity ~ H*"), batch).to_pylist()
    [True, False, False]
    """
    match of:
        case And(operands):
            passed = pa.repeat(pa.scalar(value=True), len(batch))
            for operand in operands:
                passed = pc.and_(passed, mask(operand, batch))
            return passed
        case Or(operands):
            passed = pa.repeat(pa.scalar(value=False), len(batch))
            for operand in operands:
                passed = pc.or_(passed, mask(operand, batch))
            return passed
        case Not(operand):
            return pc.invert(mask(operand, batch))
        case _:
            return _test_mask(of, batch)


_ARROW: Final = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def _test_mask(of: Compare | Match | OneOf | IsEmpty, batch: pa.RecordBatch) -> pa.Array:
    if of.column not in batch.schema.names:
        return pa.repeat(pa.scalar(isinstance(of, IsEmpty)), len(batch))
    column = batch.column(of.column)
    kind = kind_of(of.column)
    if isinstance(of, IsEmpty):
        sizes = {"list": pc.list_value_length, "text": pc.binary_length, "bytes": pc.binary_length}.get(kind)
        return column.is_null() if sizes is None else pc.equal(sizes(column), 0).fill_null(fill_value=True)
    if kind == "list":
        values = column.flatten()
        if field := ENTRY_FIELDS[of.column]:
            values = values.field(field)
        found = np.zeros(len(batch), np.bool_)
        found[np.asarray(pc.list_parent_indices(column).filter(_column_mask(of, values)))] = True
        return pa.array(found)
    if kind == "number":  # a value may be larger than its column
        column = column.cast(pa.int64())
    return _column_mask(of, column)


def _column_mask(of: Compare | Match | OneOf, column: pa.Array) -> pa.Array:
    match of:
        case Compare(_, operator, value):
            passed = _ARROW[operator](column, pa.scalar(value, column.type))
        case Match(_, pattern):
            passed = pc.match_substring_regex(column, _regex(pattern, "z"))
        case OneOf(_, values):
            passed = pc.is_in(column, pa.array(values, column.type))
    return passed.fill_null(fill_value=False)


def _regex(pattern: str, end: str) -> str:
    """A pattern as a regular expression. Python and Arrow (RE2) write the end of the text with a letter of another size."""
    parts = {"*": ".*", "?": "."}
    return rf"(?s)\A{''.join(parts.get(char) or re.escape(char) for char in pattern)}\{end}"


# --- on one row -------------------------------------------------------------------------------------------------------


def row_predicate(of: Filter) -> Callable[[Row], bool]:
    """Make the test of one row: for what comes one by one, as from a live tap.

    >>> from hopline.capture.filter import parse_filter
    >>> is_wanted = row_predicate(parse_filter("identity == HELLO and hops < 2"))
    >>> is_wanted({"identity_key": "HELLO", "hops": 1}), is_wanted({"identity_key": "HELLO"})
    (True, False)
    """
    match of:
        case And(operands):
            tests = [row_predicate(operand) for operand in operands]
            return lambda row: all(test(row) for test in tests)
        case Or(operands):
            tests = [row_predicate(operand) for operand in operands]
            return lambda row: any(test(row) for test in tests)
        case Not(operand):
            inner = row_predicate(operand)
            return lambda row: not inner(row)
        case IsEmpty(column):
            return lambda row: row.get(column) in _EMPTY
        case _:
            return _row_test(of)


_EMPTY: Final[tuple[Any, ...]] = (None, "", b"", [])
_PYTHON: Final[dict[str, Callable[[Any, Any], bool]]] = {"==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}


def _row_test(of: Compare | Match | OneOf) -> Callable[[Row], bool]:
    column, test = of.column, _value_test(of)
    if kind_of(column) != "list":
        return lambda row: (value := row.get(column)) is not None and test(value)
    if field := ENTRY_FIELDS[column]:
        return lambda row: any(test(entry[field]) for entry in row.get(column) or ())
    return lambda row: any(map(test, row.get(column) or ()))


def _value_test(of: Compare | Match | OneOf) -> Callable[[Any], bool]:
    match of:
        case Compare(_, operator, value):
            relation = _PYTHON[operator]
            return lambda seen: relation(seen, value)
        case Match(_, pattern):
            match_text = re.compile(_regex(pattern, "Z")).match
            return lambda seen: match_text(seen) is not None
        case OneOf(_, values):
            return values.__contains__


# --- as Spark SQL -----------------------------------------------------------------------------------------------------


def to_sql(of: Filter) -> str:
    """Write a filter as a boolean expression of Spark SQL over the columns of MESSAGES, for WHERE: null there is false.

    No value can leave its place: what is not plain ASCII is written in hex.

    >>> from hopline.capture.filter import parse_filter
    >>> to_sql(parse_filter("identity ~ ORDER.* and not hops > 1"))
    "(`identity_key` LIKE 'ORDER.%' ESCAPE '!' AND NOT coalesce(`hops` > 1, FALSE))"
    """
    match of:
        case And(operands):
            return f"({' AND '.join(map(to_sql, operands))})" if operands else "TRUE"
        case Or(operands):
            return f"({' OR '.join(map(to_sql, operands))})"
        case Not(operand):
            return f"NOT coalesce({to_sql(operand)}, FALSE)"
        case IsEmpty(column):
            empty = {"text": " = ''", "bytes": " = X''", "list": ""}.get(kind_of(column))
            if empty is None:
                return f"`{column}` IS NULL"
            test = f"`{column}`{empty}" if empty else f"size(`{column}`) = 0"
            return f"(`{column}` IS NULL OR {test})"
        case _ if kind_of(of.column) == "list":
            field = ENTRY_FIELDS[of.column]
            return f"exists(`{of.column}`, entry -> {_sql_test(of, f'entry.{field}' if field else 'entry')})"
        case _:
            return _sql_test(of, f"`{of.column}`")


def _sql_test(of: Compare | Match | OneOf, subject: str) -> str:
    match of:
        case Compare(_, operator, value):
            sign = {"==": "=", "!=": "<>"}.get(operator, operator)
            return f"{subject} {sign} {_sql_value(value)}"
        case Match(_, pattern):
            parts = {"*": "%", "?": "_", "%": "!%", "_": "!_", "!": "!!"}
            return f"{subject} LIKE {_sql_value(''.join(parts.get(char, char) for char in pattern))} ESCAPE '!'"
        case OneOf(_, values):
            return f"{subject} IN ({', '.join(map(_sql_value, values))})"


_PLAIN: Final = re.compile(r"[A-Za-z0-9 _.,:;/+*%!?@#()-]*")
"""What may stand between quotes: no quote, no backslash (an escape or not, by configuration), no dollar (a variable)."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _sql_value(value: Value) -> str:
    match value:
        case bool():
            return str(value).upper()
        case int():
            return str(value)
        case float():
            return f"{value!r}D"
        case bytes():
            return f"X'{value.hex()}'"
        case str():
            return f"'{value}'" if _PLAIN.fullmatch(value) else f"decode(X'{value.encode().hex()}', 'UTF-8')"
        case datetime():  # before date: it is one too
            return f"timestamp_micros({(value - _EPOCH) // timedelta(microseconds=1)})"
        case date():
            return f"DATE '{value.isoformat()}'"
