"""The JSON form of a message: what `hopline decode` prints and `hopline encode` reads.

Bytes are lower-case hex, text is text, `version` is a number (or hex, where it is none), `distribution` a word. Every field
is there, an empty one with its empty value; on reading, a missing one is empty and an unknown one is an error.
This file makes and takes plain dictionaries; it knows no files and no lines.
"""

import binascii
from typing import Any, Literal, TypeVar

import msgspec

from hopline.errors import InputError
from hopline.identity import MessageType
from hopline.wire.decoded import NO_EXTRA, Extra
from hopline.wire.message import Distribution, Message, RoutingEntry

_Form = TypeVar("_Form")


def message_to_json(message: Message) -> dict[str, Any]:
    """Turn a message into its JSON form.

    >>> fields = message_to_json(Message(identity=b"HELLO", version=1))
    >>> fields["identity"], fields["version"], fields["distribution"], fields["routing"]
    ('48454c4c4f', 1, 'unicast', [])
    """
    return {
        "socket_identity": message.socket_identity.hex(),
        "identity": message.identity.hex(),
        "version": _number_or_hex(message.version),
        "partition": message.partition.hex(),
        "body": message.body.hex(),
        "correlation_id": message.correlation_id.hex(),
        "receiver_identity": message.receiver_identity.hex(),
        "receiver_node_identity": message.receiver_node_identity.hex(),
        "distribution": "broadcast" if message.distribution else "unicast",
        "trace_options": message.trace_options,
        "callback_points": [
            {
                "identity": point.identity.hex(),
                "version": _number_or_hex(point.version),
                "partition": point.partition.hex(),
            }
            for point in message.callback_points
        ],
        "callback_key": message.callback_key,
        "callback_receiver_identity": message.callback_receiver_identity.hex(),
        "callback_receiver_node_identity": message.callback_receiver_node_identity.hex(),
        "domain": message.domain,
        "signature": message.signature.hex(),
        "ttl_ticks": message.ttl_ticks,
        "hops": message.hops,
        "routing": [{"uri": entry.uri, "identity": entry.identity.hex()} for entry in message.routing],
    }


def _number_or_hex(version: int | bytes) -> int | str:
    return version if isinstance(version, int) else version.hex()


class _Point(msgspec.Struct, forbid_unknown_fields=True):
    identity: str = ""
    version: int | str = 0
    partition: str = ""


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    uri: str = ""
    identity: str = ""


class _Fields(msgspec.Struct, forbid_unknown_fields=True):
    socket_identity: str = ""
    identity: str = ""
    version: int | str = 0
    partition: str = ""
    body: str = ""
    correlation_id: str = ""
    receiver_identity: str = ""
    receiver_node_identity: str = ""
    distribution: Literal["unicast", "broadcast"] = "unicast"
    trace_options: int = 0
    callback_points: list[_Point] = []
    callback_key: int = 0
    callback_receiver_identity: str = ""
    callback_receiver_node_identity: str = ""
    domain: str = ""
    signature: str = ""
    ttl_ticks: int = 0
    hops: int = 0
    routing: list[_Entry] = []


def message_from_json(fields: object) -> Message:
    """Turn the JSON form into a message; raises InputError.

    >>> message_from_json({"identity": "48454c4c4f", "version": 1}).identity
    b'HELLO'
    """
    form = _convert(fields, _Fields, "fields")
    return Message(
        socket_identity=read_hex(form.socket_identity, "socket_identity"),
        identity=read_hex(form.identity, "identity"),
        version=_read_version(form.version, "version"),
        partition=read_hex(form.partition, "partition"),
        body=read_hex(form.body, "body"),
        correlation_id=read_hex(form.correlation_id, "correlation_id"),
        receiver_identity=read_hex(form.receiver_identity, "receiver_identity"),
        receiver_node_identity=read_hex(form.receiver_node_identity, "receiver_node_identity"),
        distribution=Distribution[form.distribution.upper()],
        trace_options=form.trace_options,
        callback_points=tuple(
            MessageType(
                read_hex(point.identity, "callback_points.identity"),
                _read_version(point.version, "callback_points.version"),
                read_hex(point.partition, "callback_points.partition"),
            )
            for point in form.callback_points
        ),
        callback_key=form.callback_key,
        callback_receiver_identity=read_hex(form.callback_receiver_identity, "callback_receiver_identity"),
        callback_receiver_node_identity=read_hex(form.callback_receiver_node_identity, "callback_receiver_node_identity"),
        domain=form.domain,
        signature=read_hex(form.signature, "signature"),
        ttl_ticks=form.ttl_ticks,
        hops=form.hops,
        routing=tuple(RoutingEntry(entry.uri, read_hex(entry.identity, "routing.identity")) for entry in form.routing),
    )


def _read_version(version: int | str, field: str) -> int | bytes:
    return version if isinstance(version, int) else read_hex(version, field)


class _Extra(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of Extra with hex in place of bytes; all texts are hex."""

    wire_version: int | None = None
    lead: list[str] | None = None
    body_sizes: list[int] | None = None
    body_offset: int | None = None
    body_copy: str | None = None
    after_body: list[str] = []
    after_routing: list[str] = []
    after_callbacks: list[str] = []
    routing_rest: list[list[str]] = []
    callback_rest: list[list[str]] = []
    idle_routing: tuple[str, str, str] | None = None
    idle_callbacks: tuple[str, str, str] | None = None
    trace_reserved: str = ""
    routing_reserved: str = ""
    callback_reserved: str = ""
    body_reserved: str = ""
    text_version: bool | None = None
    trailing: str = ""


def extra_to_json(extra: Extra) -> dict[str, Any]:
    """Turn what is kept beside a message into its JSON form; only what is not empty is there.

    >>> extra_to_json(Extra(trailing=b"new"))
    {'trailing': '6e6577'}
    """
    return {
        name: _to_hex(value)
        for name in Extra.__struct_fields__
        if (value := getattr(extra, name)) != getattr(NO_EXTRA, name)
    }


def _to_hex(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    return [_to_hex(item) for item in value] if isinstance(value, tuple) else value


def extra_from_json(extra: object) -> Extra | None:
    """Turn the JSON form back into an Extra; raises InputError.

    >>> extra_from_json({"trailing": "6e6577"}).trailing
    b'new'
    """
    if not extra:
        return None
    form = _convert(extra, _Extra, "extra")
    return Extra(**{name: _from_hex(getattr(form, name), name) for name in Extra.__struct_fields__})


def _from_hex(value: object, field: str) -> Any:  # noqa: ANN401 - whatever the form holds there
    if isinstance(value, str):
        return read_hex(value, field)
    return tuple(_from_hex(item, field) for item in value) if isinstance(value, list | tuple) else value


def read_hex(text: str, field: str) -> bytes:
    """Read hexadecimal, two digits a byte and nothing else; raises InputError.

    >>> read_hex("4E32", "identity")
    b'N2'
    """
    try:
        return binascii.unhexlify(text)
    except ValueError:
        raise InputError("INPUT_BAD_HEX", f"{field} is not hexadecimal: {text[:32]!r}") from None


def _convert(value: object, form: type[_Form], what: str) -> _Form:
    try:
        return msgspec.convert(value, form)
    except msgspec.ValidationError as error:
        raise InputError("INPUT_BAD_JSON", f"{what}: {error}") from None
