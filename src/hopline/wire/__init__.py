"""Bytes to Message and back, in all four formats. No I/O, no clock, no logging.

`formats.py` is the front door; each format is a file of its own, its byte layout drawn in its docstring.
"""

from hopline.identity import MessageType
from hopline.wire.decoded import Decoded, Extra, Selected
from hopline.wire.formats import (
    DEFAULT_FORMAT,
    FORMATS,
    FormatName,
    decode,
    detect,
    encode,
    select,
    writes_text_version,
)
from hopline.wire.message import TICKS_PER_MS, TRACE_ROUTING, Distribution, Message, RoutingEntry, warnings_of
from hopline.wire.v3 import TtlUnit

__all__ = [
    "DEFAULT_FORMAT",
    "FORMATS",
    "TICKS_PER_MS",
    "TRACE_ROUTING",
    "Decoded",
    "Distribution",
    "Extra",
    "FormatName",
    "Message",
    "MessageType",
    "RoutingEntry",
    "Selected",
    "TtlUnit",
    "decode",
    "detect",
    "encode",
    "select",
    "warnings_of",
    "writes_text_version",
]
