"""The error tree, its sentences and its list of codes."""

import re
from pathlib import Path

import pytest

import hopline
from hopline.errors import (
    CODES,
    Attempt,
    DecodeError,
    DeliveryError,
    EncodeError,
    HoplineError,
    InputError,
    RemoteError,
    SecurityError,
    WireError,
)

RAISED = re.compile(r'(?:Error|fail)\(\s*"([A-Z][A-Z_]{3,})"')


def codes_in_the_source() -> set[str]:
    sources = Path(hopline.__file__).parent.rglob("*.py")
    return {code for source in sources for code in RAISED.findall(source.read_text(encoding="utf-8"))}


@pytest.mark.parametrize(
    ("kind", "parents"),
    [
        (DecodeError, (WireError, HoplineError, Exception)),
        (EncodeError, (WireError, HoplineError, Exception)),
        (SecurityError, (HoplineError, Exception)),
        (InputError, (HoplineError, Exception)),
    ],
)
def test_tree_is_as_the_docstring_draws_it(kind: type, parents: tuple[type, ...]) -> None:
    assert kind.__mro__[1 : len(parents) + 1] == parents


def test_remote_and_local_fault_are_told_apart() -> None:
    # The style guide wants local and remote fault told apart, always.
    assert not issubclass(DecodeError, EncodeError)
    assert not issubclass(EncodeError, DecodeError)


@pytest.mark.parametrize("kind", [HoplineError, WireError, EncodeError, SecurityError, InputError])
def test_error_carries_code_and_reason(kind: type[HoplineError]) -> None:
    error = kind("WIRE_OVERFLOW", "Hops is 70000")
    assert (error.code, error.reason, str(error)) == ("WIRE_OVERFLOW", "Hops is 70000", "Hops is 70000")


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ((None, None), "Identity is cut"),
        ((3, None), "Identity is cut (frame 3)"),
        ((0, None), "Identity is cut (frame 0)"),
        ((3, 12), "Identity is cut (frame 3, byte 12)"),
        ((3, 0), "Identity is cut (frame 3, byte 0)"),
    ],
)
def test_decode_error_says_where_it_broke(place: tuple[int | None, int | None], sentence: str) -> None:
    frame, offset = place
    error = DecodeError("WIRE_TRUNCATED", "Identity is cut", frame=frame, offset=offset)
    assert str(error) == sentence
    assert error.reason == "Identity is cut"
    assert (error.frame, error.offset) == place
    assert error.tried == ()


def test_decode_error_lists_what_was_tried() -> None:
    tried = (Attempt("v6", "too short"), Attempt("v5", "no stamp"))
    error = DecodeError("WIRE_UNKNOWN_FORMAT", "none of them", tried=tried)
    assert [(attempt.format, attempt.reason) for attempt in error.tried] == [("v6", "too short"), ("v5", "no stamp")]


def test_every_code_that_is_raised_is_explained() -> None:
    raised = codes_in_the_source()
    assert "WIRE_TRUNCATED" in raised, "the search finds what it is to find"
    assert raised <= CODES.keys()


def test_every_wire_code_that_is_explained_is_raised() -> None:
    assert {code for code in CODES if code.startswith("WIRE_")} <= codes_in_the_source()


@pytest.mark.parametrize("code", CODES)
def test_code_says_what_it_means_and_what_to_do(code: str) -> None:
    meaning, remedy = CODES[code]
    assert re.fullmatch(r"[A-Z].+\.", meaning)
    assert re.fullmatch(r".+[.?]", remedy)
    assert re.fullmatch(r"[A-Z]+(_[A-Z]+)*", code)


def test_remote_error_carries_what_failed_over_there() -> None:
    error = RemoteError("ValueError", "no such order", "at handle()")
    assert isinstance(error, DeliveryError)
    assert (error.code, str(error)) == ("REMOTE_ERROR", "ValueError: no such order")
    assert (error.type_name, error.text, error.stack) == ("ValueError", "no such order", "at handle()")
