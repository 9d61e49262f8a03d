"""Actors: classes whose methods handle messages. A handler is found by its annotation, not by its name.

    class Orders(Actor):
        async def place(self, order: PlaceOrder) -> OrderPlaced:
            return OrderPlaced(order.order_id)

`async def` and `def` are equals: the latter runs in a thread. A handler returns nothing, a payload, several in a list or a
tuple, or is an async generator of payloads; `broadcast(...)` and `to(...)` wrap one that is for all or for somebody. It may
take a second parameter annotated Context to see the message around the payload. This file knows no router and no mailbox.
"""

import inspect
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from hopline.errors import PayloadError
from hopline.identity import MessageType
from hopline.payload.registry import Kind, is_payload, kind_of
from hopline.wire import Distribution, Message

Policy = Literal["wait", "fail", "dead-letter"]
Recovery = Literal["resume", "restart", "stop"]


@dataclass(frozen=True, slots=True)
class Context:
    """What surrounds a payload: the message it came in, and the node it came to."""

    message: Message
    node: Any


class Actor:
    """Base of actors. Class attributes say how messages are taken.

    Attributes:
        concurrency: handlers that run at the same time.
        mailbox: messages that wait at most.
        when_full: what happens to one more: the sender waits, is told (fail), or it is dead-lettered.
        partition: the partition of types that are partitioned by a field.
        local_only: not announced to other nodes.
        quarantine_after: a message that failed so often is not tried again.
        when_failed: what happens to the actor after a handler failed: it goes on as it is, another one takes over
            (`restarted`), or it is stopped. A stopped actor takes no more messages; they go to others, if there are any.
        most_restarts: how often within `restart_seconds` another one may take over before the actor is stopped.
        restart_seconds: see there.
        drop_copies_seconds: how long a message from another node is remembered after it was handled well, so that a copy of
            it (the same flow, type and body) is confirmed and not handled again; 0 for not at all. See `copies.py`.
    """

    concurrency: ClassVar[int] = 1
    mailbox: ClassVar[int] = 1000
    when_full: ClassVar[Policy] = "wait"
    local_only: ClassVar[bool] = False
    quarantine_after: ClassVar[int] = 3
    when_failed: ClassVar[Recovery] = "resume"
    most_restarts: ClassVar[int] = 10
    restart_seconds: ClassVar[float] = 60.0
    drop_copies_seconds: ClassVar[float] = 0.0
    partition: str | bytes = b""

    def failed(self, error: BaseException) -> None:
        """Called after a handler failed: bring your state in order here. Does nothing by default."""

    def restarted(self) -> "Actor":
        """Make the actor that takes over, with `when_failed = "restart"`. By default it is made without arguments."""
        return type(self)()


class Addressed(NamedTuple):
    """A payload with an address: made by `broadcast` and `to`."""

    payload: object
    distribution: Distribution = Distribution.UNICAST
    node: bytes = b""
    receiver: bytes = b""
    ttl: float = 0.0


def broadcast(payload: object, *, ttl: float = 0.0) -> Addressed:
    """Send a payload to every actor that handles it.

    >>> broadcast("payload").distribution.name
    'BROADCAST'
    """
    return Addressed(payload, Distribution.BROADCAST, ttl=ttl)


def to(payload: object, *, node: bytes = b"", receiver: bytes = b"", ttl: float = 0.0) -> Addressed:
    """Send a payload to one node, to one actor or hub, or to one of a node."""
    return Addressed(payload, Distribution.UNICAST, node, receiver, ttl)


class Handler(NamedTuple):
    """One handler of one actor for one message type."""

    type: MessageType
    kind: Kind
    call: Callable[..., Any]
    mode: Literal["async", "thread", "generator"]
    wants_context: bool


def handlers_of(actor: Actor) -> list[Handler]:
    """Find the handlers of an actor; raises PayloadError if it has none, or two for one type."""
    found: dict[MessageType, Handler] = {}
    for name, method in inspect.getmembers(actor, inspect.ismethod):
        if name.startswith("_") or name in _OWN:
            continue
        for handler in _handlers(actor, name, method):
            if handler.type in found:
                identity = handler.type.identity.decode(errors="replace")
                reason = f"{type(actor).__qualname__} handles {identity} version {handler.type.version!r} twice"
                raise PayloadError("PAYLOAD_BAD_TYPE", reason)
            found[handler.type] = handler
    if not found:
        reason = f"{type(actor).__qualname__} has no handler: a method whose parameter is annotated with a payload"
        raise PayloadError("PAYLOAD_BAD_TYPE", reason)
    return list(found.values())


_OWN = frozenset(name for name, _ in inspect.getmembers(Actor, inspect.isfunction))


def _handlers(actor: Actor, name: str, method: Callable[..., Any]) -> list[Handler]:
    parameters = list(inspect.signature(method).parameters.values())
    if not 1 <= len(parameters) <= 2:
        return []
    try:
        hints = typing.get_type_hints(method)
    except NameError as error:
        reason = f"the annotations of {type(actor).__qualname__}.{name} cannot be resolved: {error}"
        raise PayloadError("PAYLOAD_BAD_TYPE", reason) from None
    wants_context = len(parameters) == 2
    if wants_context and hints.get(parameters[1].name) is not Context:
        return []
    if inspect.isasyncgenfunction(method):
        mode: Literal["async", "thread", "generator"] = "generator"
    else:
        mode = "async" if inspect.iscoroutinefunction(method) else "thread"
    handlers = []
    for payload_class in _classes(hints.get(parameters[0].name)):
        kind = kind_of(payload_class)
        handled = kind.message_type
        if kind.partition_by is not None:
            partition = actor.partition if isinstance(actor.partition, bytes) else actor.partition.encode()
            handled = MessageType(handled.identity, handled.version, partition)
        handlers.append(Handler(handled, kind, method, mode, wants_context))
    return handlers


def _classes(hint: object) -> list[type]:
    """The classes of an annotation: one, or those of a union. Something else is no handler."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return [item for item in typing.get_args(hint) if isinstance(item, type)]
    if isinstance(hint, type) and (is_payload(hint) or hint.__module__ != "builtins"):
        return [hint]
    return []
