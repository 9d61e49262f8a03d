"""Message types: three values, compared together."""

import pytest

from hopline.identity import EXCEPTION, RECEIPT, MessageType

HELLO = MessageType(b"HELLO", 1, b"P")


@pytest.mark.parametrize(
    "other",
    [
        MessageType(b"hello", 1, b"P"),
        MessageType(b"HELLO", 2, b"P"),
        MessageType(b"HELLO", b"1.0", b"P"),
        MessageType(b"HELLO", 1, b""),
    ],
)
def test_types_differ_if_any_part_differs(other: MessageType) -> None:
    assert other != HELLO
    assert len({other, HELLO}) == 2


def test_types_with_the_same_parts_are_one() -> None:
    assert MessageType(identity=b"HELLO", version=1, partition=b"P") == HELLO
    assert hash(MessageType(b"HELLO", 1, b"P")) == hash(HELLO)


def test_parts_are_empty_unless_given() -> None:
    assert MessageType() == MessageType(b"", 0, b"")


def test_type_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        HELLO.version = 2  # type: ignore[misc]


def test_service_types_are_those_of_the_protocol() -> None:
    # protocol 1.1: version 1 for all kino messages.
    assert MessageType(b"KINO.EXCEPTION", 1, b"") == EXCEPTION
    assert MessageType(b"KINO.RCPTCONFIRM", 1, b"") == RECEIPT
