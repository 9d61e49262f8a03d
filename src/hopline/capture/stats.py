"""What a capture holds, counted: by message type, node, tap, format and domain, and what was no message, by its error.

Every count is of sightings: a message that was seen at two taps counts twice. All dimensions are grouped at once with
Arrow; few combinations of them occur, and the counts of each are sums over those.

Bytes are added up as doubles, which are exact up to 9 PB: a file may say of a body that was cut whatever it likes, and whole
numbers of 64 bits would come out negative. It knows no command line.
"""

from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hopline.capture.grouping import Groups
from hopline.capture.query import Query
from hopline.capture.store import Capture
from hopline.capture.tables import MESSAGES, REJECTS

_DIMENSIONS: Final = (
    "identity_key",
    "version",
    "version_bytes",
    "is_system",
    "node_key",
    "tap",
    "format",
    "variant",
    "domain",
)
_REJECT_DIMENSIONS: Final = ("code", "node_key", "tap")
_SIZE: Final = pa.field("body_size", pa.float64())


class TypeCount(msgspec.Struct, frozen=True):
    """Sightings of a message type, and the bytes of their bodies."""

    identity: str
    version: int | str
    is_system: bool
    sightings: int
    body_bytes: int


class FormatCount(msgspec.Struct, frozen=True):
    """Sightings of a format and variant."""

    format: str
    variant: str
    sightings: int


class Stats(msgspec.Struct, frozen=True):
    """The counts, the most frequent first.

    `sightings`, `nodes` and `taps` count everything that was seen; `rejected` is how many of those are no messages, and
    `errors` counts them by code. All the rest is of messages; `first_ns` and `last_ns` are None if there is none.
    """

    sightings: int
    rejected: int
    first_ns: int | None
    last_ns: int | None
    body_bytes: int
    types: list[TypeCount]
    nodes: dict[str, int]
    taps: dict[str, int]
    formats: list[FormatCount]
    domains: dict[str, int]
    errors: dict[str, int]


def count(capture: Capture, query: Query) -> Stats:
    """Count the sightings that are meant; raises CaptureError."""
    one = pa.field("one", pa.int64())
    messages = Groups(
        pa.schema([*(MESSAGES.field(name) for name in (*_DIMENSIONS, "seen_ns")), _SIZE, one]),
        _DIMENSIONS,
        {
            "sightings": ("one", "sum"),
            "body_bytes": ("body_size", "sum"),
            "first_ns": ("seen_ns", "min"),
            "last_ns": ("seen_ns", "max"),
        },
    )
    rejects = Groups(REJECTS.append(one), _REJECT_DIMENSIONS, {"sightings": ("one", "sum")})
    for found in query.read(capture, [*_DIMENSIONS, "seen_ns", "body_size"]):
        sizes = found.messages["body_size"].cast(pa.float64(), safe=False)
        at = found.messages.schema.get_field_index("body_size")
        messages.add(_with_ones(found.messages.set_column(at, _SIZE, sizes)))
        rejects.add(_with_ones(found.rejects))
    cube, errors = messages.result(), rejects.result()
    places = ["node_key", "tap", "sightings"]
    seen = pa.concat_tables([cube.select(places), errors.select(places)])
    return Stats(
        sightings=_total(cube, "sightings") + _total(errors, "sightings"),
        rejected=_total(errors, "sightings"),
        first_ns=pc.min(cube["first_ns"]).as_py(),
        last_ns=pc.max(cube["last_ns"]).as_py(),
        body_bytes=_total(cube, "body_bytes"),
        types=_types(cube),
        nodes=_by(seen, "node_key"),
        taps=_by(seen, "tap"),
        formats=[
            FormatCount(row["format"], row["variant"], row["sightings"]) for row in _ranked(cube, ["format", "variant"])
        ],
        domains=_by(cube, "domain"),
        errors=_by(errors, "code"),
    )


def _types(cube: pa.Table) -> list[TypeCount]:
    return [
        TypeCount(
            identity=row["identity_key"],
            version=row["version"] if row["version"] is not None else row["version_bytes"].decode("ascii", "replace"),
            is_system=row["is_system"],
            sightings=row["sightings"],
            body_bytes=int(row["body_bytes"]),
        )
        for row in _ranked(cube, ["identity_key", "version", "version_bytes", "is_system"])
    ]


def _with_ones(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.append_column("one", pa.array(np.ones(len(rows), np.int64)))


def _total(cube: pa.Table, name: str) -> int:
    return int(pc.sum(cube[name], min_count=0).as_py())


def _by(cube: pa.Table, name: str) -> dict[str, int]:
    return {row[name]: row["sightings"] for row in _ranked(cube, [name])}


def _ranked(cube: pa.Table, names: list[str]) -> list[dict[str, Any]]:
    """The sums over all but these columns, the largest first."""
    sums = [name for name in ("sightings", "body_bytes") if name in cube.column_names]
    groups = cube.group_by(names).aggregate([(name, "sum") for name in sums]).rename_columns([*names, *sums])
    order = [("sightings", "descending"), *((name, "ascending") for name in names)]
    rows: list[dict[str, Any]] = groups.sort_by(order).to_pylist()
    return rows
