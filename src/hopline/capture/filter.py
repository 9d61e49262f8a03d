r"""The filter language: which sightings are meant. One language for every command, for a live tap and for Spark.

    filter     alternative { "or" alternative }
    alternative  factor { "and" factor }
    factor     "not" factor | "(" filter ")" | test
    test       FIELD ("==" | "!=" | "<" | "<=" | ">" | ">=") VALUE
             | FIELD "~" PATTERN                  * stands for any characters, ? for one
             | FIELD ["not"] "in" "(" VALUE { "," VALUE } ")"
             | FIELD "is" ["not"] "empty"         null, the empty text, the empty list
             | FIELD                              of those that are true or false

A FIELD is a column of the table `messages` or a short name of one (`fields.ALIASES`); in a filter `identity`, `partition`
and `receiver` are the printable columns. A VALUE is a word, or a text in quotes if it has spaces, brackets or operators in
it; the field decides how it is read, quotes do not:

    text, ids       ORDER.PLACE, "two words", 0x0048; ids of kind bytes as text or as 0x and hex
    numbers         42
    ttl_ms          milliseconds, or with a unit: 250us, 5ms, 2s, 1m, 1h
    seen_at, date   2026-11-15T18:09:40.5Z, 2026-11-15; UTC if nothing is said
    true, false

A list holds a value if one of its entries does: a trail by node, callback points by identity.

Null equals nothing, is less than nothing and matches nothing: such a test is false, never unknown. So `not` turns every
false one into a true one.

This file makes a tree of a text, and is pure; `predicate.py` puts the tree to work. A filter comes from outside: its length
and its depth are bounded.
"""

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Literal, NamedTuple, NoReturn

from hopline.capture.fields import ALIASES, CHOICES, Kind, Value, kind_of, read_value
from hopline.capture.tables import MESSAGES
from hopline.errors import InputError

LONGEST: Final = 10_000
"""Characters of a filter; a person writes fewer than a hundred."""

DEEPEST: Final = 50
"""Brackets and nots inside each other: far below what a recursion bears, far above what a person can read."""

Operator = Literal["==", "!=", "<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class Compare:
    """The column stands in this relation to the value."""

    column: str
    operator: Operator
    value: Value


@dataclass(frozen=True, slots=True)
class Match:
    """The text of the column, all of it, is as the pattern says."""

    column: str
    pattern: str


@dataclass(frozen=True, slots=True)
class OneOf:
    """The column is one of the values."""

    column: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class IsEmpty:
    """The column is null, or an empty text or list."""

    column: str


@dataclass(frozen=True, slots=True)
class Not:
    """The operand does not hold."""

    operand: "Filter"


@dataclass(frozen=True, slots=True)
class And:
    """All operands hold; so it holds if there are none."""

    operands: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """One of the operands holds."""

    operands: tuple["Filter", ...]


Filter = Compare | Match | OneOf | IsEmpty | Not | And | Or

_OPERATORS: Final[dict[Kind, tuple[str, ...]]] = {
    "text": ("==", "!=", "<", "<=", ">", ">=", "~", "in"),
    "number": ("==", "!=", "<", "<=", ">", ">=", "in"),
    "duration": ("==", "!=", "<", "<=", ">", ">=", "in"),
    "time": ("==", "!=", "<", "<=", ">", ">=", "in"),
    "date": ("==", "!=", "<", "<=", ">", ">=", "in"),
    "flag": ("==", "!="),
    "bytes": ("==", "!=", "in"),
    "list": ("==", "~", "in"),
}


def parse_filter(text: str) -> Filter:
    """Read a filter; nothing at all is a filter that all sightings pass.

    Raises:
        InputError: INPUT_BAD_FILTER, with the place that is wrong.

    >>> parse_filter("identity ~ ORDER.* and hops > 1")
    And(operands=(Match(column='identity_key', pattern='ORDER.*'), Compare(column='hops', operator='>', value=1)))
    """
    if len(text) > LONGEST:
        raise InputError("INPUT_BAD_FILTER", f"a filter has at most {LONGEST} characters, this one has {len(text)}")
    return _Parser(text).parse()


def fields_of(of: Filter) -> frozenset[str]:
    """The columns of MESSAGES that a filter looks at, and that must be decoded for it.

    >>> sorted(fields_of(parse_filter("identity == HELLO or not is_system")))
    ['identity_key', 'is_system']
    """
    match of:
        case And(operands) | Or(operands):
            return frozenset().union(*map(fields_of, operands))
        case Not(operand):
            return fields_of(operand)
        case _:
            return frozenset([of.column])


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


_TOKENS: Final = re.compile(
    r"""(?P<space>\s+)
      | (?P<quoted>"(?:[^"\\]|\\["'\\])*" | '(?:[^'\\]|\\["'\\])*')
      | (?P<operator>==|!=|<=|>=|<|>|=|~)
      | (?P<mark>[(),])
      | (?P<word>[^\s(),"'<>=!~]+)""",
    re.VERBOSE,
)
_KEYWORDS: Final = frozenset(["and", "or", "not", "in", "is", "empty"])
_HABITS: Final = {"&": "and", "&&": "and", "|": "or", "||": "or", "!": "not"}
"""What people write out of habit, and what it is called here."""


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._depth = 0
        self._next = 0
        self._tokens = self._read_tokens()

    def parse(self) -> Filter:
        if self._peek().kind == "end":
            return And(())
        parsed = self._either()
        if (token := self._peek()).kind != "end":
            hint = f"; write {_HABITS[token.text]}" if token.text in _HABITS else ""
            self._fail(token, f"expected and, or, or the end, and not {token.text}{hint}")
        return parsed

    def _read_tokens(self) -> list[_Token]:
        tokens, at = [], 0
        while at < len(self._text):
            found = _TOKENS.match(self._text, at)
            if found is None:
                char = self._text[at]
                hint = "the quote is not closed" if char in "\"'" else f"{char} means nothing here"
                self._fail(_Token("", "", at), f"{hint}; write {_HABITS[char]}" if char in _HABITS else hint)
            if found.lastgroup != "space":
                kind, text = found.lastgroup or "", found[0]
                if kind == "word" and text.lower() in _KEYWORDS:
                    kind = "keyword"
                tokens.append(_Token(kind, text, at))
            at = found.end()
        return [*tokens, _Token("end", "the end", at)]

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, *texts: str) -> bool:
        """Take the next token if it is one of these words of the language."""
        token = self._peek()
        is_one = token.kind in ("keyword", "operator", "mark") and token.text.lower() in texts
        self._next += is_one
        return is_one

    def _either(self) -> Filter:
        operands = [self._both()]
        while self._take("or"):
            operands.append(self._both())
        return operands[0] if len(operands) == 1 else Or(tuple(operands))

    def _both(self) -> Filter:
        operands = [self._factor()]
        while self._take("and"):
            operands.append(self._factor())
        return operands[0] if len(operands) == 1 else And(tuple(operands))

    def _factor(self) -> Filter:
        opening = self._peek()
        if not self._take("not", "("):
            return self._test()
        self._depth += 1
        if self._depth > DEEPEST:
            self._fail(opening, f"more than {DEEPEST} brackets and nots inside each other")
        if opening.kind == "keyword":
            inner: Filter = Not(self._factor())
        else:
            inner = self._either()
            if not self._take(")"):
                self._fail(self._peek(), "expected and, or, or a closing bracket")
        self._depth -= 1
        return inner

    def _test(self) -> Filter:
        token = self._peek()
        if token.kind != "word":
            self._fail(token, f"expected the name of a field, and not {token.text}")
        self._next += 1
        column = self._column(token)
        kind = kind_of(column)
        if self._take("is"):
            is_not = self._take("not")
            if not self._take("empty"):
                self._fail(self._peek(), "expected is empty or is not empty")
            return Not(IsEmpty(column)) if is_not else IsEmpty(column)
        operator = self._peek()
        is_not = self._take("not")
        if self._take("in"):
            self._check(operator, "in", token.text, kind)
            one_of = OneOf(column, self._values(column, kind))
            return Not(one_of) if is_not else one_of
        if is_not:
            self._fail(self._peek(), "expected in")
        if operator.kind != "operator":
            if kind == "flag":
                return Compare(column, "==", value=True)
            self._fail(operator, f"expected one of {', '.join(_OPERATORS[kind])} or is empty after {token.text}")
        self._next += 1
        sign = "==" if operator.text == "=" else operator.text
        self._check(operator, sign, token.text, kind)
        if sign == "~":
            return Match(column, self._word())
        return Compare(column, sign, self._value(column, kind))  # type: ignore[arg-type]  # checked just above

    def _column(self, token: _Token) -> str:
        name = ALIASES.get(token.text, token.text)
        if name not in MESSAGES.names:
            known = sorted({*ALIASES, *MESSAGES.names})
            close = get_close_matches(token.text, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"fields are {', '.join(known)}"
            self._fail(token, f"there is no field {token.text}; {hint}")
        return name

    def _check(self, token: _Token, operator: str, name: str, kind: Kind) -> None:
        if operator in _OPERATORS[kind]:
            return
        is_unlike = kind == "list" and operator == "!="
        hint = f"write not {name} == ..." if is_unlike else f"it takes {', '.join(_OPERATORS[kind])} and is empty"
        self._fail(token, f"{name} cannot be asked with {operator}; {hint}")

    def _values(self, column: str, kind: Kind) -> tuple[Value, ...]:
        if not self._take("("):
            self._fail(self._peek(), "expected a bracket and values after in")
        values = [self._value(column, kind)]
        while self._take(","):
            values.append(self._value(column, kind))
        if not self._take(")"):
            self._fail(self._peek(), "expected a comma or a closing bracket")
        return tuple(values)

    def _value(self, column: str, kind: Kind) -> Value:
        token = self._peek()
        text = self._word()
        if text not in CHOICES.get(column, (text,)):
            self._fail(token, f"{column} is one of {', '.join(filter(None, CHOICES[column]))}, and not {token.text}")
        try:
            return read_value(text, kind)
        except ValueError as error:
            self._fail(token, f"{column} is {error}, and not {token.text}")

    def _word(self) -> str:
        """Take a value as it is written, without its quotes."""
        token = self._peek()
        if token.kind not in (
            "word",
            "keyword",
            "quoted",
        ):  # a keyword cannot stand here: it is a value, as in direction == in
            self._fail(token, f"expected a value, and not {token.text}")
        self._next += 1
        text = re.sub(r"\\(.)", r"\1", token.text[1:-1]) if token.kind == "quoted" else token.text
        if not text.isascii() and any(0xD800 <= ord(char) < 0xE000 for char in text):
            self._fail(token, "the value is not valid UTF-8")
        return text

    def _fail(self, token: _Token, reason: str) -> NoReturn:
        """Raise the error, with the place in the filter pointed at."""
        start = max(token.at - _SHOWN, 0)
        shown = self._text[start : token.at + _SHOWN]
        clean = "".join(char if char.isprintable() else " " for char in shown)
        pointed = f"    {clean}\n    {' ' * (token.at - start)}^"
        raise InputError("INPUT_BAD_FILTER", f"{reason} (character {token.at + 1} of the filter)\n{pointed}")


_SHOWN: Final = 60
"""Characters before and after the place that is wrong."""
