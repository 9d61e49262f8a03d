"""Sightings give for every record what the row codec and the row rules say of it, spelled out here field by field."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopline.capture.messages import sightings
from hopline.capture.record import DIRECTIONS, RECORD_SCHEMA
from hopline.capture.tables import MESSAGES, REJECTS
from hopline.errors import DecodeError
from hopline.flow import inherited_trail, matching_point, message_uid, sender
from hopline.wire import Distribution, Message, TtlUnit, decode, encode, warnings_of
from tests.strategies import LAYOUTS, messages, mutations

FILES = sorted((Path(__file__).resolve().parents[3] / "shared" / "captures").glob("*.jsonl"))

Row = dict[str, Any]


def key(raw: bytes) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return "0x" + raw.hex()
    return text if text.isprintable() else "0x" + raw.hex()


def receiver_kind(raw: bytes) -> str:
    return {b"": "", b"\0": "hub", b"\1": "actor"}.get(raw[:1], "unknown")


def receiver_key(raw: bytes) -> str:
    kind = receiver_kind(raw)
    return f"{kind}:{key(raw[1:])}" if kind in ("hub", "actor") else key(raw)


def addressing(m: Message) -> str:
    kind = receiver_kind(m.receiver_identity)
    if m.distribution is Distribution.BROADCAST:
        return "all"
    if kind == "unknown":
        return "hub" if m.receiver_identity == m.callback_receiver_identity else "actor"
    return kind or ("node" if m.receiver_node_identity else "any")


def number(version: int | bytes) -> int | None:
    return version if isinstance(version, int) else None


def seen(record: Row) -> Row:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=record["seen_ns"] // 1000)
    return {"seen_at": moment, "node_key": record["node"], "tap": record["tap"], "date": moment.date()}


def row_answer(record: Row, place: int, v3_ttl: TtlUnit) -> Row:
    event_id = f"segment:{place}"
    try:
        decoded = decode(record["frames"], v3_ttl=v3_ttl)
    except DecodeError as error:
        tried = [attempt._asdict() for attempt in error.tried]
        heads = [frame[:16].hex() or "-" for frame in record["frames"][:8]] + ["..."] * (len(record["frames"]) > 8)
        said = {"code": error.code, "reason": str(error), "tried": tried, "excerpt": " ".join(heads)}
        return {"event_id": event_id} | seen(record) | said
    m = decoded.message
    origin = sender(m)
    return seen(record) | {
        "event_id": event_id,
        "seen_ns": record["seen_ns"],
        "direction": record["direction"],
        "seq": record["seq"],
        "encoded": record["encoded"],
        "format": decoded.format,
        "variant": decoded.variant,
        "wire_version": decoded.wire_version,
        "message_uid": message_uid(m),
        "identity": m.identity,
        "identity_key": key(m.identity),
        "version": number(m.version),
        "version_bytes": None if isinstance(m.version, int) else m.version,
        "partition": m.partition,
        "partition_key": key(m.partition),
        "is_system": m.identity.startswith((b"KINO.", b"HOPLINE.")),
        "correlation_id": m.correlation_id,
        "correlation_key": key(m.correlation_id),
        "receiver": m.receiver_identity,
        "receiver_key": receiver_key(m.receiver_identity),
        "receiver_kind": receiver_kind(m.receiver_identity),
        "peer_key": key(m.socket_identity),
        "receiver_node_key": key(m.receiver_node_identity),
        "distribution": m.distribution.name.lower(),
        "addressing": addressing(m),
        "callback_key": m.callback_key,
        "callback_receiver_key": receiver_key(m.callback_receiver_identity),
        "callback_receiver_node_key": key(m.callback_receiver_node_identity),
        "callback_points": [
            {"identity_key": key(p.identity), "version": number(p.version), "partition_key": key(p.partition)}
            for p in m.callback_points
        ],
        "is_callback": matching_point(m) is not None,
        "trace_options": m.trace_options if -(2**31) <= m.trace_options < 2**31 else None,
        "hops": m.hops,
        "trail": [{"uri": e.uri, "node_key": key(e.identity)} for e in m.routing],
        "origin_key": None if origin is None else key(origin.identity),
        "parent_trail": [key(e.identity) for e in inherited_trail(m)],
        "ttl_ms": float(m.ttl_ticks) / 10_000,
        "domain": m.domain,
        "signature": m.signature,
        "body_kept": record["body_kept"],
        "body_size": len(m.body) if record["body_size"] is None else record["body_size"],
        "body": m.body,
        "warnings": list(warnings_of(m)),
    }


def assert_same(records: list[Row], v3_ttl: TtlUnit = "ms") -> None:
    batch = pa.RecordBatch.from_pylist(records, RECORD_SCHEMA)
    found = sightings(batch, segment="segment", first_row=100, v3_ttl=v3_ttl, columns=MESSAGES.names)
    answers = {}
    for rows, schema in ((found.messages, MESSAGES), (found.rejects, REJECTS)):
        rows.validate(full=True)
        assert rows.schema == schema
        assert not any(rows[field.name].null_count for field in schema if not field.nullable)
        answers |= {row["event_id"]: row for row in rows.to_pylist()}
    assert len(found.messages) + len(found.rejects) == len(answers) == len(records)
    for place, record in enumerate(records, 100):
        answer = row_answer(record, place, v3_ttl)
        assert answers[answer["event_id"]] == answer


@st.composite
def frame_lists(draw: st.DrawFn) -> list[bytes]:
    format, variant = draw(st.sampled_from(LAYOUTS))
    message = draw(messages(format, variant))
    if draw(st.booleans()):  # an answer, and names that are texts
        kind = message.callback_points[0] if message.callback_points else message.type
        identity = draw(st.sampled_from([b"KINO.EXCEPTION", b"HELLO", "Ünïcode".encode(), "\u2028".encode()]))
        receiver = draw(st.sampled_from([b"", b"\0hub", b"\1actor", b"\0\xff", b"old"]))
        message = Message(
            identity=identity,
            version=message.version,
            partition=kind.partition,
            receiver_identity=receiver,
            receiver_node_identity=message.receiver_node_identity,
            callback_receiver_identity=draw(st.sampled_from([receiver, b"\0hub"])),
            callback_points=(*message.callback_points, type(kind)(identity, message.version, kind.partition)),
            hops=draw(st.integers(0, 3)),
            routing=message.routing,
        )
    frames = encode(message, format, variant)
    return draw(mutations(frames)) if draw(st.integers(0, 4)) == 0 else frames


@st.composite
def records(draw: st.DrawFn) -> Row:
    tap = draw(st.sampled_from(sorted(DIRECTIONS)))
    kept = draw(st.sampled_from(["whole", "cut", "none"]))
    return {
        "seen_ns": draw(st.integers(-(10**18), 4 * 10**18)),
        "node": draw(st.sampled_from(["n1", "0x00", ""])),
        "tap": tap,
        "direction": DIRECTIONS[tap],
        "seq": draw(st.integers(1, 2**62)),
        "encoded": draw(st.booleans()),
        "body_kept": kept,
        "body_size": None if kept == "whole" else draw(st.integers(0, 2**40)),
        "frames": draw(frame_lists()),
    }


@given(st.lists(records(), max_size=6), st.sampled_from(["ms", "ticks"]))
def test_sightings_are_what_the_rows_say(rows: list[Row], v3_ttl: TtlUnit) -> None:
    assert_same(rows, v3_ttl)


@pytest.mark.skipif(not FILES, reason="reference captures are not part of the project")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_sightings_of_reference_captures(path: Path) -> None:
    rows = []
    for line, text in enumerate(path.read_text().splitlines(), 1):
        seen = json.loads(text)
        frames = [bytes.fromhex(frame) for frame in seen["frames"]]
        tap = f"wire_{seen['direction']}"
        rows.append(
            seen | {"tap": tap, "seq": line, "encoded": True, "body_kept": "whole", "body_size": None, "frames": frames}
        )
    assert_same(rows)
