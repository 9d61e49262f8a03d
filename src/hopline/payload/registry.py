"""Typed bodies: which Python class is which message type, and how its instances become bytes.

A payload class is declared once, with its message type; a node then sends and handles instances of it and never sees
bytes. msgspec Structs and dataclasses are written as msgpack (or JSON), protobuf classes as protobuf. Never pickle: a body
comes from outside. This file knows nothing of messages, routes or actors.
"""

from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any, Final, Literal, NamedTuple, TypeVar

import msgspec

from hopline.errors import PayloadError
from hopline.identity import MessageType

Encoding = Literal["msgpack", "json", "protobuf"]

_Class = TypeVar("_Class", bound=type)


class Payload(msgspec.Struct):
    """A convenient base for payloads: a msgspec Struct. Dataclasses and other Structs do as well.

    >>> @message("ORDER.PLACE", version=1)
    ... class PlaceOrder(Payload):
    ...     order_id: str
    >>> type_of(PlaceOrder("42"))
    MessageType(identity=b'ORDER.PLACE', version=1, partition=b'')
    """


class Kind(NamedTuple):
    """What is known of a payload class: its message type, and how to read and write a body."""

    message_type: MessageType
    payload_class: type[Any]
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    partition_by: str | None


_KINDS: Final[dict[type, Kind]] = {}
_TYPES: Final[dict[type, MessageType]] = {}
"""Of classes whose instances are all of one type: what each message asks for."""


def message(
    identity: str | bytes,
    *,
    version: int = 1,
    partition: str | bytes = b"",
    partition_by: str | None = None,
    encoding: Encoding | None = None,
) -> Callable[[_Class], _Class]:
    """Declare the message type of a payload class.

    Args:
        identity: the message identity, such as "ORDER.PLACE".
        version: the message version, 0 to 65535.
        partition: the partition of all instances.
        partition_by: the name of the field whose value is the partition of an instance.
        encoding: msgpack by default; protobuf for protobuf classes.

    >>> @message("PRICE.CHANGED", partition_by="market")
    ... class PriceChanged(Payload):
    ...     market: str
    ...     price: int
    >>> type_of(PriceChanged("EU", 3)).partition
    b'EU'
    """
    kind_type = MessageType(_as_bytes(identity), version, _as_bytes(partition))
    if not 0 <= version <= 0xFFFF:
        raise PayloadError("PAYLOAD_BAD_TYPE", f"version {version} of {identity!r} is not from 0 to 65535")
    if partition and partition_by:
        raise PayloadError("PAYLOAD_BAD_TYPE", f"{identity!r} has both a partition and a field that says it")

    def decorate(payload_class: _Class) -> _Class:
        encode, decode = _codec(payload_class, encoding)
        _keep(Kind(kind_type, payload_class, encode, decode, partition_by))
        return payload_class

    return decorate


def declare(
    payload_class: type, message_type: MessageType, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any]
) -> None:
    """Declare a payload class that is written in its own way: what `message` does, without choosing the codec.

    `decode` must raise PayloadError, and nothing else, for a body that it cannot read: bodies come from outside.

    >>> class Line(str):
    ...     pass
    >>> declare(Line, MessageType(b"LINE", 1), str.encode, lambda body: Line(body.decode()))
    >>> type_of(Line("hi")).identity
    b'LINE'
    """
    _keep(Kind(message_type, payload_class, encode, decode, None))


def _keep(kind: Kind) -> None:
    _KINDS[kind.payload_class] = kind
    if kind.partition_by is None:
        _TYPES[kind.payload_class] = kind.message_type
    else:
        _TYPES.pop(kind.payload_class, None)


def is_payload(payload_class: type[Any]) -> bool:
    """Whether a class was declared with @message."""
    return payload_class in _KINDS


def kind_of(payload_class: type) -> Kind:
    """What was declared of a class; raises PayloadError if nothing was."""
    kind = _KINDS.get(payload_class)
    if kind is None:
        name = getattr(payload_class, "__qualname__", repr(payload_class))
        raise PayloadError("PAYLOAD_BAD_TYPE", f"{name} is no payload: declare it with @message(...)")
    return kind


def type_of(payload: object) -> MessageType:
    """The message type of a payload, with its own partition if it has one."""
    message_type = _TYPES.get(type(payload))
    if message_type is not None:
        return message_type
    kind = kind_of(type(payload))
    partition = _as_bytes(getattr(payload, kind.partition_by or ""))
    return MessageType(kind.message_type.identity, kind.message_type.version, partition)


def _as_bytes(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    return str(value).encode()


def _codec(payload_class: type, encoding: Encoding | None) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    if hasattr(payload_class, "SerializeToString"):
        if encoding not in (None, "protobuf"):
            raise PayloadError("PAYLOAD_BAD_TYPE", f"{payload_class.__qualname__} is protobuf and not {encoding}")
        return _protobuf(payload_class)
    if not (issubclass(payload_class, msgspec.Struct) or is_dataclass(payload_class)):
        reason = f"{payload_class.__qualname__} is neither a msgspec Struct, a dataclass nor a protobuf class"
        raise PayloadError("PAYLOAD_BAD_TYPE", reason)
    if encoding == "json":
        return msgspec.json.Encoder().encode, _typed(msgspec.json.Decoder(payload_class).decode, payload_class)
    if encoding in (None, "msgpack"):
        return msgspec.msgpack.Encoder().encode, _typed(msgspec.msgpack.Decoder(payload_class).decode, payload_class)
    raise PayloadError("PAYLOAD_BAD_TYPE", f"{payload_class.__qualname__} cannot be written as {encoding}")


def _typed(decode: Callable[[bytes], Any], payload_class: type) -> Callable[[bytes], Any]:
    def checked(body: bytes) -> Any:  # noqa: ANN401 - whatever the payload class is
        try:
            return decode(body)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise PayloadError("PAYLOAD_BROKEN", f"not a {payload_class.__qualname__}: {error}") from None

    return checked


def _protobuf(payload_class: Any) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:  # noqa: ANN401
    def decode(body: bytes) -> Any:  # noqa: ANN401
        try:
            return payload_class.FromString(body)
        except Exception as error:  # noqa: BLE001 - protobuf's own errors, without importing protobuf
            raise PayloadError("PAYLOAD_BROKEN", f"not a {payload_class.__qualname__}: {error}") from None

    return lambda payload: payload.SerializeToString(), decode
