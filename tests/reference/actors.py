"""The actors of the captured server, and the bodies they speak (captures/README.md, protocol.md 2.6).

HELLO text     answers EHHLO with the same text
EHHLO text     answers GRPCHARSRESP: every character with its count, and the text
THROW text     fails
NOTIFY text    answers nothing
"""

import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from hopline.payload.bson import write_document
from hopline.payload.proto import Int32, ProtoMessage
from hopline.wire import Distribution, Message, MessageType

TRACE: Final = "   at Reference.ThrowActor.Go(IMessage m) in Reference.cs:line 21"


class ActorError(Exception):
    """What an actor raises, and what a client gets: a .NET exception by its type, text and trace."""

    def __init__(self, text: str, type_name: str = "System.InvalidOperationException", trace: str = TRACE) -> None:
        super().__init__(text)
        self.text, self.type_name, self.trace = text, type_name, trace


@dataclass(frozen=True)
class Output:
    """A message that an actor wants sent."""

    identity: bytes
    body: bytes = b""
    distribution: Distribution = Distribution.UNICAST


@dataclass(frozen=True)
class ReferenceActor:
    """One handler for one message type, under an identity that is new in every run."""

    contract: MessageType
    handle: Callable[[Message], list[Output]]
    identity: bytes = field(default_factory=lambda: b"\1" + str(uuid.uuid4()).encode())
    keep_local: bool = False


class Text(ProtoMessage, frozen=True):
    """The body of HELLO, EHHLO, THROW and NOTIFY."""

    text: str | None = None


class Group(ProtoMessage, frozen=True):
    """How often a character (a UTF-16 unit, as .NET has them) is in a text."""

    character: Int32 = 0
    count: Int32 = 0


class Groups(ProtoMessage, frozen=True):
    """The body of GRPCHARSRESP."""

    groups: tuple[Group, ...] = ()
    text: str | None = None


def text_body(text: str) -> bytes:
    return Text(text).write()


def text_of(body: bytes) -> str:
    return Text.read(body).text or ""


def _group(message: Message) -> list[Output]:
    text = text_of(message.body)
    units = memoryview(text.encode("utf-16-le")).cast("H")
    groups = Counter(units)  # in the order in which they first come
    body = Groups(tuple(Group(unit, count) for unit, count in groups.items()), text)
    return [Output(b"GRPCHARSRESP", body.write())]


def captured_actors(trace: str = TRACE) -> tuple[ReferenceActor, ...]:
    """The four of the captured server, in the order in which it registered them."""

    def fail(message: Message) -> list[Output]:
        raise ActorError(f"boom: {text_of(message.body)}", trace=trace)

    handlers: dict[bytes, Callable[[Message], list[Output]]] = {
        b"HELLO": lambda message: [Output(b"EHHLO", message.body)],
        b"EHHLO": _group,
        b"THROW": fail,
        b"NOTIFY": lambda message: [],
    }
    return tuple(ReferenceActor(MessageType(identity, 1), handle) for identity, handle in handlers.items())


APPLICATION: Final = (b"HELLO", b"EHHLO", b"GRPCHARSRESP", b"THROW", b"NOTIFY")


def exception_body(failure: ActorError, *, released: bool) -> bytes:
    """KINO.EXCEPTION as the reference writes it: BSON, and zeros up to the size of its buffer.

    `released`: nodes up to v0.0.4.2 wrote the exception itself and its trace, later ones three more texts.
    """
    whole = f"{failure.text} [{failure.type_name}] ==> {failure.trace}"
    exception = {
        "ClassName": failure.type_name if released else "System.Exception",
        "Message": failure.text if released else whole,
        "Data": None,
        "InnerException": None,
        "HelpURL": None,
        "StackTraceString": failure.trace if released else None,
        "RemoteStackTraceString": None,
        "RemoteStackIndex": 0,
        "ExceptionMethod": None,
        "HResult": -2146233088,
        "Source": None,
        "WatsonBuckets": None,
    }
    head = {"Exception": exception, "StackTrace": failure.trace}
    if not released:
        head |= {"Message": failure.text, "ExceptionType": failure.type_name}
    document = write_document(head | {"Version": 1, "Identity": b"KINO.EXCEPTION", "Partition": b""})
    size = 256
    while size < len(document):
        size *= 2
    return document.ljust(size, b"\0")
