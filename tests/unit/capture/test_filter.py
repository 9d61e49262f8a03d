"""The filter language: text to tree, and what is wrong with a text that is none."""

from datetime import UTC, date, datetime

import pytest

from hopline.capture.filter import (
    DEEPEST,
    LONGEST,
    And,
    Compare,
    IsEmpty,
    Match,
    Not,
    OneOf,
    Or,
    fields_of,
    parse_filter,
)
from hopline.errors import InputError

HELLO = Compare("identity_key", "==", "HELLO")
HOPS = Compare("hops", ">", 1)
SYSTEM = Compare("is_system", "==", True)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("", And(())),
        ("  \n", And(())),
        ("identity == HELLO", HELLO),
        ("identity=HELLO", HELLO),
        ("type == 'HELLO'", HELLO),
        ('identity_key == "HELLO"', HELLO),
        ("hops>1", HOPS),
        ("hops > 1 and is_system", And((HOPS, SYSTEM))),
        ("hops > 1 AND is_system OR identity == HELLO", Or((And((HOPS, SYSTEM)), HELLO))),
        ("hops > 1 and (is_system or identity == HELLO)", And((HOPS, Or((SYSTEM, HELLO))))),
        ("is_system and hops > 1 and identity == HELLO", And((SYSTEM, HOPS, HELLO))),
        ("not is_system", Not(SYSTEM)),
        ("not not is_system and hops > 1", And((Not(Not(SYSTEM)), HOPS))),
        ("not (is_system and hops > 1)", Not(And((SYSTEM, HOPS)))),
        ("is_system == false", Compare("is_system", "==", False)),
        ("is_callback != true", Compare("is_callback", "!=", True)),
        ("identity ~ ORDER.*", Match("identity_key", "ORDER.*")),
        ("node in (a, 'b c',\"d\")", OneOf("node_key", ("a", "b c", "d"))),
        ("hops not in (1)", Not(OneOf("hops", (1,)))),
        ("domain is empty", IsEmpty("domain")),
        ("domain is not empty", Not(IsEmpty("domain"))),
        ("trail is empty", IsEmpty("trail")),
        ("trail == gate", Compare("trail", "==", "gate")),
        ("direction == in", Compare("direction", "==", "in")),
        ("direction in (in, out)", OneOf("direction", ("in", "out"))),
        ("identity == AND", Compare("identity_key", "==", "AND")),
        ("flow == 6f9619ff-8b86", Compare("correlation_key", "==", "6f9619ff-8b86")),
        (r'domain == "say \"a\\b\""', Compare("domain", "==", r'say "a\b"')),
        ("domain == ''", Compare("domain", "==", "")),
        ("ttl <= 5ms", Compare("ttl_ms", "<=", 5.0)),
        ("uid == 0x00ff", Compare("message_uid", "==", b"\0\xff")),
        ("time >= 2026-11-15T18:09:40Z", Compare("seen_at", ">=", datetime(2026, 11, 15, 18, 9, 40, tzinfo=UTC))),
        ("seen_at < '2026-11-15 18:09'", Compare("seen_at", "<", datetime(2026, 11, 15, 18, 9, tzinfo=UTC))),
        ("date == 2026-11-15", Compare("date", "==", date(2026, 11, 15))),
        ("seq != -3", Compare("seq", "!=", -3)),
        ("receiver == hub:1", Compare("receiver_key", "==", "hub:1")),
    ],
)
def test_texts(text: str, tree: object) -> None:
    assert parse_filter(text) == tree


@pytest.mark.parametrize(
    ("text", "reason", "at"),
    [
        ("identiy == x", "there is no field identiy; did you mean identity?", 1),
        ("zzz == x", "fields are addressing", 1),
        ("identity", "expected one of ==, !=, <, <=, >, >=, ~, in or is empty after identity", 9),
        ("identity ==", "expected a value, and not the end", 12),
        ("identity == == x", "expected a value, and not ==", 13),
        ("== x", "expected the name of a field, and not ==", 1),
        ("'identity' == x", "expected the name of a field", 1),
        ("identity == a b", "expected and, or, or the end, and not b", 15),
        ("(identity == a", "closing bracket", 15),
        ("identity == a)", "expected and, or, or the end, and not )", 14),
        ("identity in a", "expected a bracket", 13),
        ("identity in ()", "expected a value, and not )", 14),
        ("identity in (a b)", "expected a comma or a closing bracket", 16),
        ("identity not a", "expected in", 14),
        ("domain is", "is empty or is not empty", 10),
        ("domain is not x", "is empty or is not empty", 15),
        ("hops == many", "hops is a whole number of 64 bits, and not many", 9),
        ("hops ~ 1*", "hops cannot be asked with ~; it takes ==", 6),
        ("is_system > true", "is_system cannot be asked with >", 11),
        ("is_system in (true)", "is_system cannot be asked with in", 11),
        ("uid < 0x00", "uid cannot be asked with <", 5),
        ("trail != gate", "write not trail == ...", 7),
        ("tap == hub", "tap is one of hub_out, router_in", 8),
        ("tap in (hub_in, hub)", "tap is one of", 17),
        ("identity == 'a", "the quote is not closed", 13),
        ("is_system && hops > 1", "and not &&; write and", 11),
        ("is_system | hops > 1", "and not |; write or", 11),
        ("!is_system", "! means nothing here; write not", 1),
        ("and", "expected the name of a field, and not and", 1),
        ("is_system and", "expected the name of a field, and not the end", 14),
        ("identity == '\udcff'", "not valid UTF-8", 13),
    ],
)
def test_what_is_wrong_is_pointed_at(text: str, reason: str, at: int) -> None:
    with pytest.raises(InputError) as caught:
        parse_filter(text)
    assert caught.value.code == "INPUT_BAD_FILTER"
    said, shown, caret = str(caught.value).split("\n")
    assert reason in said
    assert f"(character {at} of the filter)" in said
    assert shown.removeprefix("    ") == "".join(char if char.isprintable() else " " for char in text)
    assert caret.index("^") == 4 + at - 1


def test_the_place_is_shown_in_a_long_text() -> None:
    with pytest.raises(InputError) as caught:
        parse_filter("is_system and " * 100 + "wrong == 1 and " + "is_system and " * 100)
    _, shown, caret = str(caught.value).split("\n")
    assert len(shown) < 130
    assert shown[caret.index("^") :].startswith("wrong")


def test_length_and_depth_are_bounded() -> None:
    with pytest.raises(InputError, match="at most 10000 characters"):
        parse_filter("x" * (LONGEST + 1))
    parse_filter("(" * DEEPEST + "is_system" + ")" * DEEPEST)
    for opening, closing in (("(", ")"), ("not ", "")):
        with pytest.raises(InputError, match="more than 50 brackets and nots"):
            parse_filter(opening * (DEEPEST + 1) + "is_system" + closing * (DEEPEST + 1))
    # What stands beside each other is not deep.
    wide = parse_filter(" or ".join(["(not is_system)"] * 500))
    assert isinstance(wide, Or)
    assert len(wide.operands) == 500


def test_fields() -> None:
    assert fields_of(parse_filter("")) == frozenset()
    tree = parse_filter("identity ~ a* and (not hops in (1) or ttl is empty) and is_system")
    assert fields_of(tree) == {"identity_key", "hops", "ttl_ms", "is_system"}
