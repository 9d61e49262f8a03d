"""The outcome: what came of a message, then or now, and whether the two are alike.

What is known of then is what the capture saw, what is known of now is what our own hub got. This file is pure: it knows
neither captures nor nodes.
"""

from typing import Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from hopline.capture.record import key_of
from hopline.identity import MessageType

Difference = Literal["", "end", "type", "body"]
"""In what two outcomes differ first: in how they ended, in the type of the answer or exception, in the body."""

NONE: Final = "none"
"""The end of a request to which no answer was seen. Why is not known: a capture sees messages, not deadlines."""

_SILENT: Final = {NONE, "EXPIRED"}
"""Ends of a request that was sent and not answered."""


class Outcome(msgspec.Struct, frozen=True):
    """What came of a message.

    Attributes:
        end: answer; exception (the handler failed); receipt; sent (nobody waits for anything); none (no answer was seen); or
            the code of a bad end, such as EXPIRED or NO_ROUTE.
        type: what the answer is, or the type of the exception.
        wait_ms: how long it took; None if that is not known.
        body: the body of the answer; None if it is not known, UNSET if it is not to be shown.
    """

    end: str
    type: str = ""
    wait_ms: float | None = None
    body: bytes | UnsetType | None = None

    def without_body(self) -> "Outcome":
        """The same, to be shown."""
        return Outcome(self.end, self.type, self.wait_ms, UNSET)


def difference(then: Outcome, now: Outcome) -> Difference:
    """In what two outcomes differ. Times are no difference, nor is what an exception says beside its type.

    >>> difference(Outcome("answer", "EHHLO v1", 2.0, b"hi"), Outcome("answer", "EHHLO v1", 9.0, b"hello"))
    'body'
    >>> difference(Outcome("none"), Outcome("EXPIRED"))
    ''
    """
    if then.end != now.end and not {then.end, now.end} <= _SILENT:
        return "end"
    if then.type != now.type:
        return "type"
    if are_bodies_known(then, now) and then.body != now.body:
        return "body"
    return ""


def are_bodies_known(then: Outcome, now: Outcome) -> bool:
    """Whether there are two bodies to compare."""
    return isinstance(then.body, bytes) and isinstance(now.body, bytes)


def name_of(kind: MessageType) -> str:
    """A message type in words.

    >>> name_of(MessageType(b"PRICE", 2, b"EU"))
    'PRICE v2 EU'
    """
    version = kind.version if isinstance(kind.version, int) else key_of(kind.version)
    partition = f" {key_of(kind.partition)}" if kind.partition else ""
    return f"{key_of(kind.identity)} v{version}{partition}"
