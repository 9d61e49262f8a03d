"""Message types: three values, compared together."""

import pytest

from hopline.identity import EXCEPTION, RECEIPT, MessageType, is_actor, is_hub

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


@pytest.mark.parametrize(
    ("receiver", "hub", "actor"),
    [
        (b"\x00" + b"0" * 36, True, False),
        (b"\x01" + b"0" * 36, False, True),
        (b"\x00", True, False),
        (b"\x01", False, True),
        (b"0" * 36, False, False),  # before 593d727 there was no prefix
        (b"\x02x", False, False),
        (b"", False, False),
    ],
)
def test_the_first_byte_tells_hub_from_actor(receiver: bytes, hub: bool, actor: bool) -> None:
    # protocol 1.1: ReceiverIdentity.
    assert (is_hub(receiver), is_actor(receiver)) == (hub, actor)
