"""Rows become messages: which columns say what, and which rows cannot be sent."""

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from hopline.capture.tables import MESSAGES
from hopline.errors import InputError
from hopline.flow import message_uid
from hopline.identity import MessageType
from hopline.spark.letters import Letters
from hopline.wire import Distribution, Message

POINTS = MESSAGES.field("callback_points").type


def letters(**columns):
    batch = pa.record_batch(columns)
    return list(Letters(from_arrow_schema(batch.schema)).read(batch))


def code_of(**columns):
    with pytest.raises(InputError) as caught:
        letters(**columns)
    return caught.value.code, str(caught.value)


def test_every_field_is_as_its_column_says():
    found = letters(
        identity=[b"ORDER.PLACE"],
        version=[3],
        partition=["EU"],
        body=[b"\x00body"],
        correlation_id=["flow"],
        receiver=[b"\x01actor"],
        receiver_node=[b"node"],
        distribution=["unicast"],
        ttl_ms=[1.5],
        domain=["orders"],
    )
    assert found == [
        Message(
            identity=b"ORDER.PLACE",
            version=3,
            partition=b"EU",
            body=b"\x00body",
            correlation_id=b"flow",
            receiver_identity=b"\x01actor",
            receiver_node_identity=b"node",
            distribution=Distribution.UNICAST,
            ttl_ticks=15_000,
            domain="orders",
        )
    ]


def test_what_is_null_is_as_if_it_was_not_there():
    nulls = {name: pa.nulls(1) for name in ("partition", "correlation_id", "ttl_ms", "domain", "distribution")}
    assert letters(identity=["A"], body=[None], **nulls) == letters(identity=["A"], body=[b""])


def test_printable_twins_do_as_well():
    raw = letters(identity=[b"\x00A"], partition=[b"P"], body=[b""], correlation_id=[b"\xff"], receiver_node=[b"N\x01"])
    twins = letters(
        identity_key=["0x0041"], partition_key=["P"], body=[b""], correlation_key=["0xff"], receiver_node_key=["0x4e01"]
    )
    assert twins == raw


def test_the_same_row_has_the_same_flow_each_time_and_another_row_another():
    first, again, other = (letter.correlation_id for letter in letters(identity=["A", "A", "A"], body=[b"1", b"1", b"2"]))
    assert first == again != other
    assert len(first) == 36
    assert letters(identity=["A"], body=[b"1"], correlation_id=[b""])[0].correlation_id == first
    # It is documented, and receivers may have been told: it must not change.
    assert first == b"5e460d7a-e029-59d6-b039-21d6e574a759"
    assert message_uid(Message(identity=b"A", version=1, body=b"1")).hex().startswith("5e460d7ae029")


def test_where_and_how_long_are_no_part_of_the_flow():
    """It is documented: rows that differ in nothing else are copies of each other."""
    rows = {"receiver_node": [b"N1", b"N2", None], "ttl_ms": [1, None, 2], "domain": ["a", None, "b"]}
    assert len({letter.correlation_id for letter in letters(identity=["A"] * 3, body=[b""] * 3, **rows)}) == 1


def test_a_moment_to_live_is_not_for_ever():
    found = letters(identity=["A"] * 4, body=[b""] * 4, ttl_ms=[0.0, 1e-9, 0.00015, 1.0])
    assert [letter.ttl_ticks for letter in found] == [0, 1, 1, 10_000]


def test_a_whole_table_of_messages_may_be_written():
    points = [
        {"identity_key": "B", "version": 2, "partition_key": "P"},
        {"identity_key": "KINO.EXCEPTION", "version": 1, "partition_key": ""},
    ]
    row = {"identity": b"A", "identity_key": "A", "version": 1, "body": b"b", "body_kept": "whole"}
    rows = [row | {"callback_points": points}, row]
    first, second = Letters(from_arrow_schema(MESSAGES)).read(pa.RecordBatch.from_pylist(rows, schema=MESSAGES))
    assert (first.identity, first.body) == (b"A", b"b")
    assert first.callback_points == (MessageType(b"B", 2, b"P"),)
    assert second.callback_points == ()


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"body": [b""]}, "no column identity"),
        ({"identity": ["A"]}, "no column body"),
        ({"identity": [1], "body": [b""]}, "identity is bigint, and must be binary or string"),
        ({"identity": ["A"], "body": [b""], "version": ["1"]}, "version is string, and must be a whole number"),
        ({"identity": ["A"], "body": [b""], "idenity": ["B"]}, "there is no column idenity"),
        ({"identity": ["A"], "body": [["b"]]}, "body is array<string>"),
        ({"identity_key": [b"A"], "body": [b""]}, "identity_key is binary, and must be string"),
        ({"identity": ["A"], "body": [b""], "callback_points": [["B"]]}, "must be array<struct<identity_key:string"),
        ({"identity": ["A"], "body": [b""], "callback_points": ["B"]}, "must be an array"),
    ],
)
def test_columns_that_cannot_be_sent(columns, words):
    code, text = code_of(**columns)
    assert code == "INPUT_BAD_COLUMN"
    assert words in text


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"identity": [""]}, "identity is null or empty"),
        ({"identity": pa.array([None], pa.string())}, "identity is null or empty"),
        ({"identity": ["KINO.PING"]}, "what nodes say to each other"),
        ({"identity": ["HOPLINE.HANDLED"]}, "what nodes say to each other"),
        ({"version": pa.array([None], pa.int32())}, "version is null, as where it was no number (v3 and v4): leave"),
        ({"version": [65_536]}, "version is 65536"),
        ({"version": [-1]}, "version is -1"),
        ({"ttl_ms": [-1.0]}, "ttl_ms is -1"),
        ({"ttl_ms": [float("nan")]}, "ttl_ms is nan"),
        ({"ttl_ms": [1e300]}, "ttl_ms is 1e+300"),
        ({"distribution": ["multicast"]}, "must be unicast or broadcast"),
        ({"distribution": ["broadcast"], "receiver": [b"\x01a"]}, "there is a receiver"),
        ({"body_kept": ["cut"]}, "not kept whole"),
        ({"callback_points": pa.array([[{"identity_key": "B"}]], POINTS)}, "a callback point has no identity"),
        ({"callback_points": pa.array([[None]], POINTS)}, "a callback point has no identity"),
    ],
)
def test_rows_that_cannot_be_messages(columns, words):
    code, text = code_of(**{"identity": ["A"], "body": [b"secret"]} | columns)
    assert code == "INPUT_BAD_ROW"
    assert words in text
    assert "secret" not in text
