"""The fields of a filter: what can be asked of a sighting, under which names, and how the values are read.

A field is a column of the table `messages`. Its kind decides what it can be asked and how a value is written. This file
knows no grammar: that is `filter.py`.
"""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Final, Literal

import pyarrow as pa

from hopline.capture.record import DIRECTIONS
from hopline.capture.tables import MESSAGES

Kind = Literal["text", "number", "duration", "flag", "time", "date", "bytes", "list"]
Value = str | int | float | bytes | datetime | date

ALIASES: Final = {
    "identity": "identity_key",
    "type": "identity_key",
    "partition": "partition_key",
    "correlation": "correlation_key",
    "flow": "correlation_key",
    "receiver": "receiver_key",
    "receiver_node": "receiver_node_key",
    "callback_receiver": "callback_receiver_key",
    "callback_receiver_node": "callback_receiver_node_key",
    "origin": "origin_key",
    "node": "node_key",
    "uid": "message_uid",
    "ttl": "ttl_ms",
    "size": "body_size",
    "time": "seen_at",
}
"""Short names of columns."""

ENTRY_FIELDS: Final = {"trail": "node_key", "callback_points": "identity_key", "parent_trail": "", "warnings": ""}
"""What counts of an entry of a list; empty if the entry itself does."""

CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "tap": tuple(DIRECTIONS),
    "direction": ("in", "out"),
    "format": ("v3", "v4", "v5", "v6"),
    "receiver_kind": ("hub", "actor", "unknown", ""),
    "distribution": ("unicast", "broadcast"),
    "addressing": ("any", "node", "actor", "hub", "all"),
    "body_kept": ("whole", "cut", "none"),
}
"""Columns that hold one of a few words; any other is a slip of the pen."""


def kind_of(column: str) -> Kind:
    """What kind of values a column of MESSAGES holds, as the language sees it."""
    of = MESSAGES.field(column).type
    if pa.types.is_list(of):
        return "list"
    return _KINDS[of]


_KINDS: Final[dict[pa.DataType, Kind]] = {
    pa.string(): "text",
    pa.int32(): "number",
    pa.int64(): "number",
    pa.float64(): "duration",
    pa.bool_(): "flag",
    pa.timestamp("us", "UTC"): "time",
    pa.date32(): "date",
    pa.binary(): "bytes",
}


def read_time(text: str) -> datetime:
    """Read a point in time, UTC if it does not say otherwise; raises ValueError.

    >>> read_time("2026-11-15T18:09:40.25").isoformat()
    '2026-11-15T18:09:40.250000+00:00'
    """
    moment = datetime.fromisoformat(text)
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:  # in UTC it is in another year, which no calendar here has
        raise ValueError(text) from None


def read_duration(text: str) -> float:
    """Read a duration in milliseconds, or with a unit; raises ValueError.

    >>> read_duration("2s"), read_duration("250us"), read_duration("5")
    (2000.0, 0.25, 5.0)
    """
    found = re.fullmatch(r"(-?[0-9]{1,15}(?:\.[0-9]{1,9})?)(us|ms|s|m|h|)", text)
    if found is None:
        raise ValueError(text)
    return float(found[1]) * _MS[found[2]]


_MS: Final = {"us": 0.001, "ms": 1.0, "": 1.0, "s": 1000.0, "m": 60_000.0, "h": 3_600_000.0}


def _read_number(text: str) -> int:
    if re.fullmatch("-?[0-9]{1,19}", text) is None or abs(int(text)) >= 1 << 63:
        raise ValueError(text)
    return int(text)


def _read_flag(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _read_bytes(text: str) -> bytes:
    if re.fullmatch("0x([0-9a-fA-F]{2})+", text):
        return bytes.fromhex(text[2:])
    return text.encode()


def read_value(text: str, kind: Kind) -> Value:
    r"""Read a value as its kind is written; raises ValueError, which says what it must be.

    >>> read_value("0x00ff", "bytes"), read_value("42", "number")
    (b'\x00\xff', 42)
    """
    read, what = _READERS[kind]
    try:
        return read(text)
    except (ValueError, KeyError, OverflowError):
        raise ValueError(what) from None


_READERS: Final[dict[Kind, tuple[Callable[[str], Value], str]]] = {
    "text": (str, ""),
    "list": (str, ""),
    "bytes": (_read_bytes, ""),
    "number": (_read_number, "a whole number of 64 bits"),
    "duration": (read_duration, "milliseconds or a duration such as 250us, 5ms, 2s"),
    "flag": (_read_flag, "true or false"),
    "time": (read_time, "a time such as 2026-11-15T18:09:40Z"),
    "date": (date.fromisoformat, "a date such as 2026-11-15"),
}
"""How the values of a kind are read, and what they must be."""
