"""Letters: rows become messages. Which columns say what, and what a row must be like.

    identity          what the message is; or identity_key, its printable twin
    version           a number from 0 to 65535; 1 if there is no such column. Null is refused: in a capture it stands where a
                      version is no number, as v3 and v4 may have it
    partition         or partition_key
    body              the payload, as bytes; with body_kept beside it, as captures have it, it must be whole
    correlation_id    the flow, or correlation_key. By default the fingerprint of the message (`flow/fingerprint.py`) as a
                      GUID: the same row gives the same flow each time, and so do two rows that say the same, or differ
                      only in receiver_node, ttl_ms or domain
    receiver          an actor or hub, as bytes with their first byte
    receiver_node     a node, or receiver_node_key
    distribution      unicast or broadcast
    ttl_ms            how long it may live; null or 0: for ever
    callback_points   types of answers, as in the table `messages`: they come back to the sink, which drops them; without
                      it they would look for somebody else
    domain            must be the domain that its identity has in the keys; without keys it is sent as it is

Binary or text, where it is about bytes. Other columns of the table `messages` say nothing of what is sent, and are left
alone; any other column is a mistake. Messages of nodes (KINO.*, HOPLINE.*) are refused: they would change the network.

This file knows rows and messages, and neither nodes nor sockets.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NoReturn
from uuid import UUID

import msgspec
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    FractionalType,
    IntegralType,
    NullType,
    StringType,
    StructType,
)

from hopline.capture.fields import read_value
from hopline.capture.tables import MESSAGES as CAPTURED
from hopline.errors import InputError
from hopline.flow import message_uid
from hopline.identity import MessageType
from hopline.spark.tables import MESSAGES
from hopline.wire import Distribution, Message
from hopline.wire.message import TICKS_PER_MS

_BYTES: Final = (BinaryType, StringType)
_TWINS: Final = {
    "identity": "identity_key",
    "partition": "partition_key",
    "correlation_id": "correlation_key",
    "receiver_node": "receiver_node_key",
}
"""Columns that may also come printable."""

_TYPES: Final[dict[str, tuple[type[DataType], ...]]] = {
    "identity": _BYTES,
    "version": (IntegralType,),
    "partition": _BYTES,
    "body": _BYTES,
    "correlation_id": _BYTES,
    "receiver": _BYTES,
    "receiver_node": _BYTES,
    "distribution": (StringType,),
    "ttl_ms": (IntegralType, FractionalType),
    "domain": (StringType,),
    "body_kept": (StringType,),
    "callback_points": (ArrayType,),
}
_POINTS: Final = "callback_points"
_POINTS_TYPE: Final = MESSAGES.schema[_POINTS].dataType.simpleString()
_NO_VERSION: Final = "version is null, as where it was no number (v3 and v4): leave the row out, or give it a number"
_OF_NODES: Final = (b"KINO.", b"HOPLINE.")
_LONGEST_TTL_MS: Final = (2**63 - 1) // TICKS_PER_MS
_LEFT_ALONE: Final = {*CAPTURED.names, *MESSAGES.names}


class Letters:
    """Makes messages of rows with certain columns.

    >>> from pyspark.sql.types import BinaryType, StringType, StructField
    >>> letters = Letters(StructType([StructField("identity_key", StringType()), StructField("body", BinaryType())]))
    >>> letter, = letters.read(pa.record_batch({"identity_key": ["HELLO"], "body": [b"hi"]}))
    >>> letter.identity, letter.version, letter.body, letter.correlation_id
    (b'HELLO', 1, b'hi', b'fc69b005-00d5-5597-9bf1-f0a754a03ab7')
    """

    def __init__(self, schema: StructType) -> None:
        """Look at the columns; raises InputError INPUT_BAD_COLUMN. On the driver."""
        self._columns = _choose(schema)

    def read(self, batch: pa.RecordBatch) -> Iterator[Message]:
        """The messages of a batch; raises InputError INPUT_BAD_ROW. On an executor."""
        columns = [batch.column(column).to_pylist() for column in self._columns.values()]
        readers = [_READERS.get(column) or _READERS[name] for name, column in self._columns.items()]
        names = list(self._columns)
        for row in zip(*columns, strict=True):
            fields = {}
            for name, read, value in zip(names, readers, row, strict=True):
                if value is not None:
                    fields[name] = read(value)
                elif name == "version":  # 1 would make another type of it, and it would go to another actor
                    _refuse_row(_NO_VERSION)
            yield _message(fields)


def _choose(schema: StructType) -> dict[str, str]:
    """The column behind each field of a message."""
    types = {field.name: field.dataType for field in schema}
    chosen = {}
    for name in _TYPES:
        column = name if name in types else _TWINS.get(name, "")
        if column not in types:
            continue
        kinds = _TYPES[name] if column == name else (StringType,)
        if not isinstance(types[column], (*kinds, NullType)) or isinstance(types[column], DecimalType):
            words = " or ".join(sorted({_WORDS[kind] for kind in kinds}))
            _refuse_column(f"the column {column} is {types[column].simpleString()}, and must be {words}")
        if column == _POINTS and types[column].simpleString() != _POINTS_TYPE:
            _refuse_column(f"the column {column} is {types[column].simpleString()}, and must be {_POINTS_TYPE}")
        chosen[name] = column
    for column in types:
        if column not in _LEFT_ALONE and column not in chosen.values():
            _refuse_column(f"there is no column {column} in a message; there are {', '.join(_TYPES)}")
    if "identity" not in chosen:
        _refuse_column("there is no column identity (or identity_key): it says what a message is")
    if "body" not in chosen:  # else a capture that was read without bodies would be sent without them
        _refuse_column('there is no column body; a capture has it with option("bodies", "true")')
    return chosen


_WORDS: Final = {
    BinaryType: "binary",
    StringType: "string",
    IntegralType: "a whole number",
    FractionalType: "a number",
    ArrayType: "an array",
}


def _message(fields: Mapping[str, Any]) -> Message:
    """The message of a row."""
    if not fields.get("identity"):
        _refuse_row("identity is null or empty")
    if fields["identity"].startswith(_OF_NODES):
        _refuse_row(f"identity is {fields['identity']!r}: what nodes say to each other cannot be sent as a row")
    if fields.get("body_kept", "whole") != "whole":
        _refuse_row("its body was not kept whole")
    distribution = fields.get("distribution", Distribution.UNICAST)
    if distribution is Distribution.BROADCAST and (fields.get("receiver") or fields.get("receiver_node")):
        _refuse_row("distribution is broadcast, and there is a receiver")
    message = Message(
        identity=fields["identity"],
        version=fields.get("version", 1),
        partition=fields.get("partition", b""),
        body=fields.get("body", b""),
        correlation_id=fields.get("correlation_id", b""),
        receiver_identity=fields.get("receiver", b""),
        receiver_node_identity=fields.get("receiver_node", b""),
        distribution=distribution,
        domain=fields.get("domain", ""),
        ttl_ticks=fields.get("ttl_ms", 0),
        callback_points=fields.get("callback_points", ()),
    )
    return message if message.correlation_id else msgspec.structs.replace(message, correlation_id=_flow_of(message))


def _flow_of(message: Message) -> bytes:
    """The flow of a row that names none: what it says, in the form of a GUID."""
    return str(UUID(bytes=message_uid(message), version=5)).encode()


# Reading.


def _read_bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _read_key(value: str) -> bytes:
    raw = read_value(value, "bytes")
    assert isinstance(raw, bytes)  # noqa: S101 - for mypy
    return raw


def _read_version(value: int) -> int:
    return value if 0 <= value <= 0xFFFF else _refuse_row(f"version is {value}, and must be from 0 to 65535")


def _read_distribution(value: str) -> Distribution:
    try:
        return Distribution[value.upper()]
    except KeyError:
        _refuse_row(f"distribution is {value[:20]!r}, and must be unicast or broadcast")


def _read_ttl(value: float) -> int:
    if not 0 <= value <= _LONGEST_TTL_MS:
        _refuse_row(f"ttl_ms is {value:g}, and must be from 0 to {_LONGEST_TTL_MS}")
    return max(int(value * TICKS_PER_MS), 1) if value else 0  # less than a tick is little time, and 0 is for ever


def _read_points(value: list[dict[str, Any] | None]) -> tuple[MessageType, ...]:
    points = []
    for point in value:
        if point is None or not point["identity_key"] or point["version"] is None:
            _refuse_row("a callback point has no identity, or no version that is a number")
        identity = _read_key(point["identity_key"])
        if not identity.startswith(_OF_NODES):  # receipts and failures: those are asked for anyway
            points.append(MessageType(identity, _read_version(point["version"]), _read_key(point["partition_key"] or "")))
    return tuple(points)


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    **{name: _read_bytes for name, kinds in _TYPES.items() if kinds is _BYTES},
    **dict.fromkeys(_TWINS.values(), _read_key),
    "version": _read_version,
    "distribution": _read_distribution,
    "ttl_ms": _read_ttl,
    "domain": str,
    "body_kept": str,
    "callback_points": _read_points,
}


def _refuse_column(reason: str) -> NoReturn:
    raise InputError("INPUT_BAD_COLUMN", reason)


def _refuse_row(reason: str) -> NoReturn:
    raise InputError("INPUT_BAD_ROW", f"a row cannot be a message: {reason}")
