"""Records to rows: what each column holds. That it is so for all messages is in tests/property/test_sightings.py."""

from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hopline.capture.messages import keys_of, sightings
from hopline.capture.record import RECORD_SCHEMA
from hopline.capture.tables import DEFAULT_COLUMNS, MESSAGES, REJECTS
from hopline.flow import message_uid
from hopline.wire import Distribution, Message, decode, encode
from tests.vectors.golden import V6_FRAMES

SEEN = {
    "seen_ns": 1_794_765_998_413_687_500,
    "node": "n1",
    "tap": "wire_in",
    "direction": "in",
    "seq": 7,
    "encoded": True,
    "body_kept": "whole",
}


def batch(*frames: list[bytes] | None, **changes: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{**SEEN, "frames": each, **changes} for each in frames], RECORD_SCHEMA)


def row(message: Message | list[bytes], format: str = "v6", **changes: object) -> dict[str, Any]:
    frames = encode(message, format) if isinstance(message, Message) else message
    (found,) = sightings(batch(frames, **changes), segment="s", first_row=0).messages.to_pylist()
    return found


def test_everything_of_a_message() -> None:
    assert row(V6_FRAMES) == {
        "event_id": "s:0",
        "seen_at": datetime(2026, 11, 15, 18, 6, 38, 413687, UTC),
        "seen_ns": 1_794_765_998_413_687_500,
        "node_key": "n1",
        "tap": "wire_in",
        "direction": "in",
        "peer_key": "N2",
        "seq": 7,
        "encoded": True,
        "format": "v6",
        "variant": "",
        "wire_version": 6,
        "message_uid": message_uid(decode(V6_FRAMES).message),
        "identity": b"HELLO",
        "identity_key": "HELLO",
        "version": 1,
        "version_bytes": None,
        "partition": b"",
        "partition_key": "",
        "is_system": False,
        "correlation_id": b"C1",
        "correlation_key": "C1",
        "receiver": b"",
        "receiver_key": "",
        "receiver_kind": "",
        "receiver_node_key": "",
        "distribution": "unicast",
        "addressing": "any",
        "callback_key": 7,
        "callback_receiver_key": "hub:H1",
        "callback_receiver_node_key": "N1",
        "callback_points": [
            {"identity_key": "EHHLO", "version": 1, "partition_key": "P"},
            {"identity_key": "KINO.EXCEPTION", "version": 1, "partition_key": ""},
        ],
        "is_callback": False,
        "trace_options": 1,
        "hops": 1,
        "trail": [{"uri": "tcp://10.0.0.1:5101", "node_key": "N1"}],
        "origin_key": "N1",
        "parent_trail": [],
        "ttl_ms": 5000.0,
        "domain": "dom",
        "signature": bytes.fromhex("68e9953fb9fa0caf08cad22f21c203fe"),
        "body_kept": "whole",
        "body_size": 4,
        "warnings": [],
        "date": date(2026, 11, 15),
    }


@pytest.mark.parametrize(
    ("message", "kind", "key", "addressing"),
    [
        (Message(receiver_identity=b"\0h"), "hub", "hub:h", "hub"),
        (Message(receiver_identity=b"\1a"), "actor", "actor:a", "actor"),
        (Message(receiver_identity=b"\1\xff"), "actor", "actor:0xff", "actor"),
        (Message(receiver_identity=b"old"), "unknown", "old", "actor"),
        (Message(receiver_identity=b"old", callback_receiver_identity=b"old"), "unknown", "old", "hub"),
        (Message(receiver_node_identity=b"n"), "", "", "node"),
        (Message(receiver_identity=b"\1a", receiver_node_identity=b"n"), "actor", "actor:a", "actor"),
        (Message(distribution=Distribution.BROADCAST), "", "", "all"),
        (Message(), "", "", "any"),
    ],
)
def test_addresses(message: Message, kind: str, key: str, addressing: str) -> None:
    found = row(message)
    assert (found["receiver_kind"], found["receiver_key"], found["addressing"]) == (kind, key, addressing)


@pytest.mark.parametrize(
    "receivers",
    [
        pytest.param([b"\1ab"] * 3, id="all alike"),
        pytest.param([b"\1ab", b"\1ab", b"\1ac"], id="equally long"),
        pytest.param([b"\1a", b"\1aaa", b"\1a"], id="as long together"),
        pytest.param([b"\1\1", b"\1\1\1\1", b""], id="of the same bytes"),
        pytest.param([b""] * 3, id="none"),
    ],
)
def test_receivers_are_told_apart_that_look_alike_together(receivers: list[bytes]) -> None:
    records = batch(*(encode(Message(receiver_identity=each)) for each in receivers))
    found = sightings(records, segment="s", first_row=0, columns=["receiver_key"]).messages
    assert found["receiver_key"].to_pylist() == [row(Message(receiver_identity=each))["receiver_key"] for each in receivers]


@pytest.mark.parametrize(
    ("options", "kept", "warnings"),
    [
        (5, 5, ["unknown trace options 0x4"]),
        (1, 1, []),
        (2**40, None, ["unknown trace options 0x10000000000"]),
        (-1, -1, ["unknown trace options 0xfffffffffffffffe"]),
    ],
)
def test_trace_options_of_v3_may_be_more_than_fits(options: int, kept: int | None, warnings: list[str]) -> None:
    found = row(Message(trace_options=options), "v3")
    assert (found["trace_options"], found["warnings"]) == (kept, warnings)


def test_the_unit_of_ttl_in_v3() -> None:
    frames = batch(encode(Message(ttl_ticks=50_000), "v3"))
    for unit, ttl_ms in (("ms", 5.0), ("ticks", 0.0005)):
        found = sightings(frames, segment="s", first_row=0, v3_ttl=unit, columns=["ttl_ms"])
        assert found.messages.to_pylist() == [{"ttl_ms": ttl_ms}]


def test_a_version_that_is_no_number() -> None:
    found = row(Message(version=b"latest"), "v3")
    assert (found["version"], found["version_bytes"]) == (None, b"latest")


def test_the_size_of_a_body_that_was_cut_is_the_one_it_had() -> None:
    assert row(Message(body=b"ab"), body_kept="cut", body_size=900)["body_size"] == 900


def test_what_is_no_message_is_a_reject() -> None:
    long = [b"\1" * 40, b"", *[b"\2"] * 8]
    records = batch(encode(Message()), long, [], None, [None, b"x"], encode(Message()))
    messages, rejects, _ = sightings(records, segment="s", first_row=10)
    assert messages["event_id"].to_pylist() == ["s:10", "s:15"]
    assert rejects.schema == REJECTS
    assert rejects["event_id"].to_pylist() == ["s:11", "s:12", "s:13", "s:14"]
    assert rejects["excerpt"].to_pylist() == ["01" * 16 + " - 02 02 02 02 02 02 ...", "", "", "null 78"]
    first = rejects.to_pylist()[0]
    assert (first["node_key"], first["tap"], first["date"]) == ("n1", "wire_in", date(2026, 11, 15))
    assert (first["code"], [attempt["format"] for attempt in first["tried"]]) == (
        "WIRE_UNKNOWN_FORMAT",
        ["v6", "v5", "v4", "v3"],
    )


def test_only_the_columns_that_are_asked_for() -> None:
    narrow = batch(V6_FRAMES).select(["seen_ns", "node", "tap", "frames"])
    found = sightings(narrow, segment="s", first_row=0, columns=["hops", "identity_key", "body"]).messages
    assert found.to_pylist() == [{"hops": 1, "identity_key": "HELLO", "body": b"\x0a\x02hi"}]
    assert "body" not in DEFAULT_COLUMNS


@pytest.mark.parametrize("columns", [[], ["nothing"], ["hops", "hops"]])
def test_columns_that_are_not_there(columns: list[str]) -> None:
    with pytest.raises(ValueError, match="columns must name some of event_id"):
        sightings(batch(V6_FRAMES), segment="s", first_row=0, columns=columns)


def test_records_that_do_not_follow_each_other() -> None:
    records = batch(V6_FRAMES, [b"junk"], V6_FRAMES)
    found = sightings(records, segment="s", first_row=pa.array([3, 8, 20]), columns=["event_id"])
    assert found.messages["event_id"].to_pylist() == ["s:3", "s:20"]
    assert found.rejects["event_id"].to_pylist() == ["s:8"]


def test_slices_and_nothing() -> None:
    records = batch(V6_FRAMES, encode(Message(identity=b"X", trace_options=4)), V6_FRAMES)
    whole = sightings(records, segment="s", first_row=0, columns=MESSAGES.names).messages
    part = sightings(records.slice(1, 1), segment="s", first_row=1, columns=MESSAGES.names).messages
    assert part.to_pylist() == whole.slice(1, 1).to_pylist()
    empty = sightings(records.slice(0, 0), segment="s", first_row=0, columns=MESSAGES.names)
    assert (len(empty.messages), len(empty.rejects), empty.messages.schema) == (0, 0, MESSAGES)


@pytest.mark.parametrize("seen_ns", [0, -1, 999, -86_400_000_000_001])
def test_times_before_and_after_the_epoch(seen_ns: int) -> None:
    found = row(V6_FRAMES, seen_ns=seen_ns)
    assert found["date"] == (np.datetime64(0, "D") + seen_ns // 86_400_000_000_000).item()
    assert found["seen_at"].timestamp() == seen_ns // 1000 / 1_000_000


def test_keys() -> None:
    raw = [b"plain", b"", b"\xff", "ünï".encode(), "a\u200bb".encode(), b"a\nb", b"\xff", b" "]
    keys = ["plain", "", "0xff", "ünï", "0x61e2808b62", "0x610a62", "0xff", " "]
    assert keys_of(pa.array(raw)).to_pylist() == keys
    assert keys_of(pa.array(raw).slice(2, 3)).to_pylist() == keys[2:5]
    assert keys_of(pa.array([], pa.binary())).to_pylist() == []
    assert keys_of(pa.array([b"\x1f", b"a", b"~", b"\x7f"]).slice(1, 2)).to_pylist() == ["a", "~"]
    assert keys_of(pa.array([b"\x1f", b"\x7f"])).to_pylist() == ["0x1f", "0x7f"]
