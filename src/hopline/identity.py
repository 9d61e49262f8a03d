"""Who and what: the names that messages are addressed by.

A message type is three values, and they are compared together everywhere: when a route is looked up, a handler is chosen
or a callback is matched. This file knows nothing of bytes on a wire, of routes or of actors.
"""

import msgspec


class MessageType(msgspec.Struct, frozen=True, gc=False):
    """What a message is: identity, version and partition, equal only if all three are.

    A callback point is such a type too: a message of this type returns to who asked for it.
    `version` is a number; bytes only where an old format carried a version that is no number.

    >>> MessageType(b"HELLO", 1) == MessageType(b"HELLO", 1, b"")
    True
    """

    identity: bytes = b""
    version: int | bytes = 0
    partition: bytes = b""


EXCEPTION = MessageType(b"KINO.EXCEPTION", 1)
"""What a hub always listens for: the handler of its message failed."""

RECEIPT = MessageType(b"KINO.RCPTCONFIRM", 1)
"""What a node answers when a message with this callback point has arrived; the receiving node takes the point out."""

HUB_PREFIX = b"\0"
ACTOR_PREFIX = b"\1"


def is_hub(receiver: bytes) -> bool:
    """Whether a receiver identity names a hub; its first byte says so."""
    return receiver[:1] == HUB_PREFIX


def is_actor(receiver: bytes) -> bool:
    """Whether a receiver identity names an actor; its first byte says so."""
    return receiver[:1] == ACTOR_PREFIX
