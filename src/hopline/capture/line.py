"""The line: one sighting as one JSON object, as other tools write captures.

    seen_ns      when: nanoseconds since 1970
    node         who saw it
    direction    in or out of that node
    socket       through which socket; may be missing
    frames       the message, each frame in hex
    others       kept as they are

Reading and writing a line gives an equal object: also what we have no column for is kept, as JSON text, in `extra`. This
file knows one line at a time, and no files.
"""

from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from hopline.errors import InputError
from hopline.wire.fields import read_hex

_INT64: Final = msgspec.Meta(ge=-(2**63), le=2**63 - 1)


class _Line(msgspec.Struct):
    seen_ns: Annotated[int, _INT64]
    node: str
    direction: Literal["in", "out"]
    frames: list[str]
    socket: str | msgspec.UnsetType = msgspec.UNSET


class _PlainLine(_Line, forbid_unknown_fields=True):
    """A line with no other keys, as nearly all are: read in half the time."""


_decoder = msgspec.json.Decoder(_Line)
_plain_decoder = msgspec.json.Decoder(_PlainLine)
_keys_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode = msgspec.json.encode


class Seen(NamedTuple):
    """What a line says: the columns of a record that an imported one has."""

    seen_ns: int
    node: str
    tap: str
    socket: str | None
    extra: str | None
    frames: list[bytes]


def read_seen(line: bytes) -> Seen:
    """Read a line; raises InputError.

    >>> read_seen(b'{"seen_ns":5,"node":"N1","direction":"in","frames":["4e32",""]}')
    Seen(seen_ns=5, node='N1', tap='wire_in', socket=None, extra=None, frames=[b'N2', b''])
    """
    more: dict[str, msgspec.Raw] = {}
    try:
        try:
            found: _Line = _plain_decoder.decode(line)
        except msgspec.ValidationError:  # a key that we do not know, or something that is wrong
            found = _decoder.decode(line)
            more = {key: raw for key, raw in _keys_decoder.decode(line).items() if key not in _Line.__struct_fields__}
        frames = [read_hex(text, f"frame {place}") for place, text in enumerate(found.frames)]
        if not all(text == text.lower() for text in found.frames):
            more["frames"] = msgspec.Raw(_encode(found.frames))  # hex in capitals: the object is to come out as it was
        extra = _encode(more).decode() if more else None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InputError("INPUT_BAD_JSON", f"not JSON of the expected shape: {error}") from None
    socket = None if found.socket is msgspec.UNSET else found.socket
    return Seen(found.seen_ns, found.node, f"wire_{found.direction}", socket, extra, frames)


def write_seen(
    seen_ns: int, node: str | None, direction: str | None, socket: str | None, extra: str | None, frames: list[bytes]
) -> bytes:
    """Write a line, without its end.

    >>> write_seen(5, "N1", "in", None, '{"host":"a"}', [b"N2", b""])
    b'{"seen_ns":5,"node":"N1","direction":"in","frames":["4e32",""],"host":"a"}'
    """
    line: dict[str, Any] = {"seen_ns": seen_ns, "node": node, "direction": direction}
    if socket is not None:
        line["socket"] = socket
    line["frames"] = [frame.hex() for frame in frames]
    if extra is not None:
        line.update(_keys_decoder.decode(extra))
    return _encode(line)
