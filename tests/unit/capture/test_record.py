"""Records and the columns they make."""

import pyarrow as pa
import pytest

from hopline.capture.record import DIRECTIONS, RECORD_SCHEMA, Records, frame_lists, key_of


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        (b"", ""),
        (b"N1", "N1"),
        ("Zoë".encode(), "Zoë"),
        (b"\x00H1", "0x004831"),
        (b"a\nb", "0x610a62"),
        (b"\xff", "0xff"),
        (b"0xff", "0xff"),
    ],
)
def test_key_is_the_text_if_that_can_be_printed_else_hex(raw: bytes, key: str) -> None:
    assert key_of(raw) == key


def test_every_column_is_there_and_what_was_not_said_is_null() -> None:
    batch = Records(seen_ns=[5, 7], seq=[1, 2], tap=["hub_out", "hub_in"], frames=[[b"a"], []], node="N1").to_batch()
    assert batch.schema.equals(RECORD_SCHEMA, check_metadata=True)
    batch.validate(full=True)
    assert batch.to_pylist() == [
        {
            "seen_ns": 5,
            "mono_ns": None,
            "node": "N1",
            "tap": "hub_out",
            "direction": "out",
            "socket": None,
            "seq": 1,
            "encoded": True,
            "body_kept": "whole",
            "body_size": None,
            "source": None,
            "extra": None,
            "frames": [b"a"],
        },
        {
            "seen_ns": 7,
            "mono_ns": None,
            "node": "N1",
            "tap": "hub_in",
            "direction": "in",
            "socket": None,
            "seq": 2,
            "encoded": True,
            "body_kept": "whole",
            "body_size": None,
            "source": None,
            "extra": None,
            "frames": [],
        },
    ]


def test_columns_that_differ_from_record_to_record() -> None:
    batch = Records(
        seen_ns=[5, 7],
        seq=[3, 4],
        tap=["wire_in", "wire_out"],
        frames=[[b""], [b"", b"x"]],
        node=["a", "b"],
        mono_ns=[8, 9],
        socket=["s", None],
        encoded=[True, False],
        body_kept=["cut", "none"],
        body_size=[10, None],
        source="f.jsonl",
        extra=[None, "{}"],
    ).to_batch()
    batch.validate(full=True)
    columns = batch.to_pydict()
    assert columns["node"] == ["a", "b"]
    assert columns["socket"] == ["s", None]
    assert columns["encoded"] == [True, False]
    assert columns["body_kept"] == ["cut", "none"]
    assert columns["body_size"] == [10, None]
    assert columns["source"] == ["f.jsonl", "f.jsonl"]
    assert columns["extra"] == [None, "{}"]
    assert columns["mono_ns"] == [8, 9]
    assert columns["frames"] == [[b""], [b"", b"x"]]


def test_no_records_are_a_batch_too() -> None:
    batch = Records(seen_ns=[], seq=[], tap=[], frames=[], node="N1").to_batch()
    assert batch.num_rows == 0
    assert batch.schema.equals(RECORD_SCHEMA)


def test_every_tap_has_a_direction() -> None:
    outward = {tap for tap, direction in DIRECTIONS.items() if direction == "out"}
    assert outward == {"hub_out", "scaleout_out", "actor_out", "wire_out"}
    assert set(DIRECTIONS.values()) == {"in", "out"}


@pytest.mark.parametrize("rows", [[], [[]], [[b""]], [[b"a", b"", b"ccc"], [], [b"d"]], [[b"x" * 1000] * 50] * 7])
def test_frame_lists_are_those_of_arrow(rows: list[list[bytes]]) -> None:
    made = frame_lists(rows)
    made.validate(full=True)
    assert made.equals(pa.array(rows, pa.list_(pa.binary())))


def test_more_bytes_than_arrow_can_count_are_refused() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return 2**31

    with pytest.raises(OverflowError, match="too many"):
        frame_lists([[Huge()]])
