"""Bodies that the reference network produced: every payload vector and every captured service message, both ways.

They are not part of the project (their origin is GPL); where the folder is absent these tests are skipped.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hopline.payload import is_service, read_service
from hopline.payload.proto import Int32, ProtoMessage, Uint16
from hopline.payload.service import ExceptionMessage, RouteType
from hopline.wire import FormatName, decode

SHARED = Path(__file__).resolve().parents[3] / "shared"
VECTORS, CAPTURES = SHARED / "vectors", SHARED / "captures"

pytestmark = pytest.mark.skipif(
    not (VECTORS.is_dir() and CAPTURES.is_dir()), reason="the reference vectors are not part of the project"
)

# File: era, lines (vectors/README.md).
FILES: dict[str, tuple[FormatName, int]] = {
    "payloads": ("v6", 170),
    "payloads_v3": ("v3", 52),
    "payloads_v4": ("v4", 56),
}

each_file = pytest.mark.parametrize("name", FILES)


# The three application messages among the vectors: their classes belong to a sample, not to us.


class Hello(ProtoMessage, frozen=True):
    greeting: str | None = None


class Ehllo(ProtoMessage, frozen=True):
    ehllo: str | None = None


class GroupCount(ProtoMessage, frozen=True):
    char: Uint16 = 0
    count: Int32 = 0


class GroupChars(ProtoMessage, frozen=True):
    groups: tuple[GroupCount, ...] = ()
    text: str | None = None


SAMPLES: dict[bytes, type[ProtoMessage]] = {b"HELLO": Hello, b"EHHLO": Ehllo, b"GRPCHARSRESP": GroupChars}


# --- the `fields` of vectors/README.md, made from a payload -----------------------------------------------------------

TIME_SPANS = {"heart_beat_interval_ticks": "HeartBeatInterval", "ping_interval_ticks": "PingInterval"}
"""Shown as {"ticks": ...}."""

TIMES = {"timestamp_ticks": "Timestamp", "expires_at_ticks": "ExpiresAt"}
"""Shown as numbers, under names that do not tell the unit."""

OLD_NAMES = {
    "receiver_node_identity": "SocketIdentity",
    "requestor_node_identity": "RequestorSocketIdentity",
    "broadcast_uri": "MulticastUri",
}
"""v3 and v4: what a field was called before (protocol.md 3.9)."""


def json_of(payload: msgspec.Struct, era: FormatName) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name in payload.__struct_fields__:
        value = getattr(payload, name)
        if name in TIME_SPANS:
            fields[TIME_SPANS[name]] = {"ticks": value}
        elif name in TIMES:
            fields[TIMES[name]] = value
        elif name == "ping_id":
            fields["PingId"] = {"id": value} if value else {}
        elif name in OLD_NAMES and era in ("v3", "v4"):
            fields[OLD_NAMES[name]] = value_json(value, era)
        else:
            fields["".join(word.capitalize() for word in name.split("_"))] = value_json(value, era)
    return fields


def value_json(value: object, era: FormatName) -> object:
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, tuple):
        return [value_json(item, era) for item in value]
    if isinstance(value, RouteType):
        return int(value)
    return json_of(value, era) if isinstance(value, msgspec.Struct) else value


def same(ours: object, theirs: object) -> bool:
    """Whether two forms say the same: so do null and an empty list; a field that their era does not have is empty here."""
    if isinstance(ours, list):
        theirs = theirs or []
        return (
            isinstance(theirs, list)
            and len(ours) == len(theirs)
            and all(same(our, their) for our, their in zip(ours, theirs, strict=True))
        )
    if isinstance(ours, dict) and isinstance(theirs, dict):
        added = [ours[name] for name in ours.keys() - theirs.keys()]
        return all(value in (None, False, 0, {}, {"ticks": 0}, []) for value in added) and all(
            name in ours and same(ours[name], theirs[name]) for name in theirs
        )
    return type(ours) is type(theirs) and ours == theirs


def lines_of(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def read(line: dict[str, Any], era: FormatName) -> ProtoMessage:
    identity, body = line["identity"].encode(), bytes.fromhex(line["body"])
    if identity in SAMPLES:
        return SAMPLES[identity].read(body)
    return read_service(identity, body, era=era)


# --- vectors ----------------------------------------------------------------------------------------------------------


def test_all_278_vectors_are_there() -> None:
    counts = {name: len(lines_of(VECTORS / f"{name}.jsonl")) for name in FILES}
    assert counts == {name: lines for name, (_, lines) in FILES.items()}
    assert sum(counts.values()) == 278


def test_every_payload_file_is_in_the_table() -> None:
    assert {path.stem for path in VECTORS.glob("payloads*.jsonl")} == set(FILES)


@each_file
def test_vectors_are_read_to_their_fields(name: str) -> None:
    era = FILES[name][0]
    for line in lines_of(VECTORS / f"{name}.jsonl"):
        payload = read(line, era)
        assert same(json_of(payload, era), line["fields"]), f"{line['case']}: {payload}"


@each_file
def test_vectors_are_written_to_their_bodies(name: str) -> None:
    era = FILES[name][0]
    for line in lines_of(VECTORS / f"{name}.jsonl"):
        payload = read(line, era)
        if line["encoding"] == "bson":
            assert read_service(b"KINO.EXCEPTION", payload.write()) == payload, line["case"]
        else:
            assert payload.write().hex() == line["body"], line["case"]


def test_the_comparison_would_notice() -> None:
    line = next(line for line in lines_of(VECTORS / "payloads.jsonl") if line["case"].endswith("RouteMessage-typical"))
    ours = json_of(read(line, "v6"), "v6")
    assert same(ours, line["fields"])
    for name in line["fields"]:
        for other in (None, "x", {"hex": "00"}, []):
            assert not same(ours, {**line["fields"], name: other}), (name, other)
        assert not same(ours, {key: value for key, value in line["fields"].items() if key != name}), name
    assert not same(ours, {**line["fields"], "New": None})


def split_exception(body: bytes) -> tuple[bytes, bytes]:
    """The document under `Exception`, which comes first, and all that follows it, without padding."""
    start = 4 + len(b"\x03Exception\0")
    assert body[4:start] == b"\x03Exception\0"
    end = start + int.from_bytes(body[start : start + 4], "little")
    return body[start:end], body[end : int.from_bytes(body[:4], "little")]


def exceptions() -> list[bytes]:
    vectors = [bytes.fromhex(line["body"]) for line in lines_of(VECTORS / "payloads.jsonl") if line["encoding"] == "bson"]
    captured = [body for identity, body, _ in captured_services() if identity == b"KINO.EXCEPTION"]
    return [*vectors, *captured]


def test_we_write_exceptions_in_the_shape_of_the_reference() -> None:
    bodies = exceptions()
    assert len(bodies) > 4
    for body in bodies:
        theirs, theirs_after = split_exception(body)
        ours, ours_after = split_exception(ExceptionMessage.read(body).write())
        assert ours_after == theirs_after
        for key in (b"\x02ClassName\0", b"Message\0", b"\x0aData\0", b"StackTraceString\0", b"\x10HResult\0\0\x15\x13\x80"):
            assert key in ours, key
            assert key in theirs, key


# --- captures ---------------------------------------------------------------------------------------------------------


def captured_services() -> list[tuple[bytes, bytes, FormatName]]:
    found = []
    for path in sorted(CAPTURES.glob("*.jsonl")):
        for line in lines_of(path):
            decoded = decode([bytes.fromhex(frame) for frame in line["frames"]])
            message = decoded.message
            if is_service(message.identity, message.version, message.partition):
                found.append((message.identity, message.body, decoded.format))
    return found


def test_captured_service_messages_round_trip() -> None:
    services = captured_services()
    assert {era for _, _, era in services} == {"v4", "v5", "v6"}
    for identity, body, era in services:
        payload = read_service(identity, body, era=era)
        if isinstance(payload, ExceptionMessage):
            assert read_service(identity, payload.write(), era=era) == payload
            assert (payload.message or "").startswith("boom"), "the actor of the captures says so"
        else:
            assert payload.write() == body, (identity, era)
