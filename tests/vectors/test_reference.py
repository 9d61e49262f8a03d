"""Bytes that the reference network produced: every vector and every captured message, both ways.

They are not part of the project (their origin is GPL); where the folder is absent these tests are skipped. The JSON form of
a message is compared here without help from the project's own JSON code.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from hopline.wire import (
    Decoded,
    Distribution,
    Message,
    MessageType,
    RoutingEntry,
    TtlUnit,
    decode,
    detect,
    encode,
    select,
)
from tests.vectors.golden import encode_again

SHARED = Path(__file__).resolve().parents[3] / "shared"
VECTORS, CAPTURES = SHARED / "vectors", SHARED / "captures"

# File: lines (vectors/README.md).
WIRE_FILES = {"v3": 55, "v4": 65, "v5": 82, "v5_int32_stamp": 62, "v6": 82, "v6_early": 62}

CAPTURE_FILES = {
    "v4_hmac_broadcast": "v4",
    "v5_nullsec_client": "v5",
    "v5_nullsec_rv": "v5",
    "v5_nullsec_server": "v5",
    "v6_hmac_client": "v6",
    "v6_hmac_rv": "v6",
    "v6_hmac_server": "v6",
    "v6_nullsec_client": "v6",
    "v6_nullsec_rv": "v6",
    "v6_nullsec_server": "v6",
}

pytestmark = pytest.mark.skipif(
    not (VECTORS.is_dir() and CAPTURES.is_dir()), reason="the reference vectors are not part of the project"
)

each_wire_file = pytest.mark.parametrize("name", WIRE_FILES)
each_capture = pytest.mark.parametrize("name", CAPTURE_FILES)


def lines_of(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def vectors_of(name: str) -> dict[str, dict[str, Any]]:
    lines = lines_of(VECTORS / f"{name}.jsonl")
    vectors = {line["case"]: line for line in lines}
    assert len(vectors) == len(lines), "case names are unique"
    return vectors


def frames_of(line: dict[str, Any]) -> list[bytes]:
    return [bytes.fromhex(frame) for frame in line["frames"]]


def ttl_unit(name: str) -> TtlUnit:
    # vectors/README.md: the v3 vectors hold ticks.
    return "ticks" if name == "v3" else "ms"


def version_json(version: int | bytes) -> int | str:
    return version.hex() if isinstance(version, bytes) else version


def fields_json(message: Message) -> dict[str, Any]:
    """Build the `fields` of vectors/README.md, spelled out rather than derived from the Message."""
    return {
        "socket_identity": message.socket_identity.hex(),
        "identity": message.identity.hex(),
        "version": version_json(message.version),
        "partition": message.partition.hex(),
        "body": message.body.hex(),
        "correlation_id": message.correlation_id.hex(),
        "receiver_identity": message.receiver_identity.hex(),
        "receiver_node_identity": message.receiver_node_identity.hex(),
        "distribution": {0: "unicast", 1: "broadcast"}[message.distribution],
        "trace_options": message.trace_options,
        "callback_points": [
            {"identity": point.identity.hex(), "version": version_json(point.version), "partition": point.partition.hex()}
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


def version_of(value: int | str) -> int | bytes:
    return bytes.fromhex(value) if isinstance(value, str) else value


def message_of(fields: dict[str, Any]) -> Message:
    """Build the message that the `fields` of vectors/README.md describe."""
    hexadecimal = (
        "socket_identity",
        "identity",
        "partition",
        "body",
        "correlation_id",
        "receiver_identity",
        "receiver_node_identity",
        "callback_receiver_identity",
        "callback_receiver_node_identity",
        "signature",
    )
    return Message(
        **{name: bytes.fromhex(fields[name]) for name in hexadecimal},
        version=version_of(fields["version"]),
        distribution={"unicast": Distribution.UNICAST, "broadcast": Distribution.BROADCAST}[fields["distribution"]],
        trace_options=fields["trace_options"],
        callback_points=tuple(
            MessageType(bytes.fromhex(point["identity"]), version_of(point["version"]), bytes.fromhex(point["partition"]))
            for point in fields["callback_points"]
        ),
        callback_key=fields["callback_key"],
        domain=fields["domain"],
        ttl_ticks=fields["ttl_ticks"],
        hops=fields["hops"],
        routing=tuple(RoutingEntry(entry["uri"], bytes.fromhex(entry["identity"])) for entry in fields["routing"]),
    )


def selectors_of(decoded: Decoded, frames: list[bytes]) -> tuple[object, ...]:
    message = decoded.message
    return (
        decoded.format,
        message.partition,
        message.version,
        message.identity,
        message.receiver_identity,
        message.receiver_node_identity,
        message.distribution,
        frames,
    )


def test_all_408_vectors_are_there() -> None:
    counts = {name: len(vectors_of(name)) for name in WIRE_FILES}
    assert counts == WIRE_FILES
    assert sum(counts.values()) == 408


@each_wire_file
def test_vectors_decode_to_their_fields(name: str) -> None:
    for case, line in vectors_of(name).items():
        decoded = decode(frames_of(line), v3_ttl=ttl_unit(name))
        assert fields_json(decoded.message) == line["fields"], case
        assert (decoded.format, decoded.variant) == (line["format"], line["variant"]), case
        assert decoded.extra is None, case


@each_wire_file
def test_vectors_encode_to_their_frames(name: str) -> None:
    for case, line in vectors_of(name).items():
        message = message_of(line["fields"])
        assert encode(message, line["format"], line["variant"], v3_ttl=ttl_unit(name)) == frames_of(line), case


@each_wire_file
def test_selectors_of_vectors_are_those_of_their_fields(name: str) -> None:
    for case, line in vectors_of(name).items():
        frames = frames_of(line)
        selected = select(frames)
        assert detect(frames) == selected.format == line["format"], case
        found = {
            "partition": selected.partition.hex(),
            "version": version_json(selected.version),
            "identity": selected.identity.hex(),
            "receiver_identity": selected.receiver_identity.hex(),
            "receiver_node_identity": selected.receiver_node_identity.hex(),
            "distribution": ("unicast", "broadcast")[selected.distribution],
        }
        assert found == {field: line["fields"][field] for field in found}, case
        assert selected.frames == frames, case


@each_capture
def test_captures_round_trip_byte_for_byte(name: str) -> None:
    lines = lines_of(CAPTURES / f"{name}.jsonl")
    assert lines
    for number, line in enumerate(lines, 1):
        frames = frames_of(line)
        decoded = decode(frames)
        assert decoded.format == CAPTURE_FILES[name], f"line {number}"
        assert encode_again(decoded) == frames, f"line {number}"
        selected = select(frames)
        fields = tuple(getattr(selected, field) for field in selected.__struct_fields__)
        assert fields == selectors_of(decoded, frames), f"line {number}"


def test_every_capture_is_in_the_table() -> None:
    assert {path.stem for path in CAPTURES.glob("*.jsonl")} == set(CAPTURE_FILES)
