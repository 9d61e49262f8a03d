"""Whether two outcomes are alike."""

import msgspec
import pytest

from hopline.identity import MessageType
from hopline.replay.outcome import Outcome, are_bodies_known, difference, name_of

ANSWER = Outcome("answer", "EHHLO v1", 2.0, b"hi")


@pytest.mark.parametrize(
    ("then", "now", "differs"),
    [
        (ANSWER, Outcome("answer", "EHHLO v1", 9.0, b"hi"), ""),
        (ANSWER, Outcome("answer", "EHHLO v1", 2.0, b"hello"), "body"),
        (ANSWER, Outcome("answer", "EHHLO v2", 2.0, b"hi"), "type"),
        (ANSWER, Outcome("exception", "ValueError", 2.0), "end"),
        (ANSWER, Outcome("NO_ROUTE"), "end"),
        (Outcome("answer", "EHHLO v1"), ANSWER, ""),
        (Outcome("exception", "ValueError"), Outcome("exception", "KeyError"), "type"),
        (Outcome("exception", "ValueError", 1.0), Outcome("exception", "ValueError", 5.0), ""),
        (Outcome("none"), Outcome("EXPIRED"), ""),
        (Outcome("EXPIRED"), Outcome("EXPIRED"), ""),
        (Outcome("none"), Outcome("NO_ROUTE"), "end"),
        (Outcome("none"), ANSWER, "end"),
        (Outcome("sent"), Outcome("sent"), ""),
        (Outcome("sent"), Outcome("EXPIRED"), "end"),
        (Outcome("receipt", "", 1.0), Outcome("receipt", "", 3.0), ""),
    ],
)
def test_a_difference_is_the_first_of_end_type_and_body(then, now, differs):
    assert difference(then, now) == differs


def test_an_empty_body_is_a_body_and_an_unknown_one_is_none():
    assert are_bodies_known(Outcome("answer", body=b""), Outcome("answer", body=b"x"))
    assert not are_bodies_known(Outcome("answer"), Outcome("answer", body=b"x"))


def test_what_is_shown_holds_no_body():
    shown = msgspec.to_builtins(ANSWER.without_body())
    assert shown == {"end": "answer", "type": "EHHLO v1", "wait_ms": 2.0}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (MessageType(b"HELLO", 1), "HELLO v1"),
        (MessageType(b"PRICE", 0, b"EU"), "PRICE v0 EU"),
        (MessageType(b"OLD", b"1.0"), "OLD v1.0"),
        (MessageType(b"\xff", b"\0", b"\n"), "0xff v0x00 0x0a"),
    ],
)
def test_a_type_has_a_name_that_can_be_printed(kind, name):
    assert name_of(kind) == name
