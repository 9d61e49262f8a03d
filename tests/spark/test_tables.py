"""The list of tables: what the contract names, typed and explained."""

import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from hopline.capture.tables import MESSAGES as SEEN
from hopline.capture.tables import REJECTS
from hopline.spark import tables
from hopline.spark.tables import TABLES, conform

CONTRACT = {
    "hops": "message_uid occurrence correlation_key identity_key from_node_key to_node_key kind sent_at "
    "received_at latency_ms skew_ms matched_by lost date",
    "callbacks": "correlation_key callback_key request_uid request_identity_key hub_key callback_points "
    "requested_at response_uid response_identity_key resolved_at wait_ms responses outcome "
    "error_type error_message asker_captured date",
    "flows": "correlation_key started_at ended_at duration_ms root_identity_key root_node_key messages "
    "sightings nodes depth max_hops fan_out callbacks_ok callbacks_exception callbacks_pending "
    "errors expired invalid_signatures completeness date",
    "edges": "minute level source_key target_key identity_key messages bytes errors lost expired p50_ms "
    "p95_ms p99_ms exemplars date",
    "expiries": "hour identity_key ttl_ms sent in_time late expired_in_flight budget_used_p95 date",
    "signatures": "hour domain node_key status messages covered uncovered exemplars date",
    "routes": "node_key node_uri receiver_key receiver_kind identity_key version partition_key domain "
    "valid_from valid_to ended_by",
}


@pytest.mark.parametrize("name", CONTRACT)
def test_tables_have_the_columns_of_the_contract(name):
    (table,) = [table for table in TABLES if table.name == name]
    assert list(table.names) == CONTRACT[name].split()


def test_messages_are_sightings_and_what_takes_several_of_them_to_know():
    seen = {field.name: field.dataType for field in from_arrow_schema(SEEN)}
    ours = {field.name: field.dataType for field in tables.MESSAGES.schema}
    assert {name: ours[name] for name in seen} == seen
    assert set(ours) - set(seen) <= {"occurrence", "trail_order", "wire_trail"}


def test_rejects_are_those_of_the_capture_room():
    assert [(field.name, field.dataType) for field in tables.REJECTS.schema] == [
        (field.name, field.dataType) for field in from_arrow_schema(REJECTS)
    ]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_column_says_what_it_means(table):
    assert len(set(table.names)) == len(table.names)
    assert all(column.meaning.strip() for column in table.columns)
    assert all(field.metadata["comment"] for field in table.schema)
    assert table.row


def test_what_conforms_has_the_columns_types_and_comments_of_its_table(spark):
    rows = spark.range(1).selectExpr(
        "'h' as ended_by", "id as version", *(f"cast(null as string) as {name}" for name in tables.ROUTES.names[:5]),
        "'' as partition_key", "'d' as domain", "current_timestamp() as valid_from", "null as valid_to", "1 as more",
    )  # fmt: skip
    found = conform(rows, tables.ROUTES)
    assert [(field.name, field.dataType) for field in found.schema] == [
        (field.name, field.dataType) for field in tables.ROUTES.schema
    ]
    assert [field.metadata for field in found.schema] == [field.metadata for field in tables.ROUTES.schema]
    assert conform(rows, tables.ROUTES, without=("version",)).columns == [n for n in tables.ROUTES.names if n != "version"]


def test_rows_without_a_column_of_their_table_do_not_conform(spark):
    with pytest.raises(ValueError, match="rows of routes must have domain, ended_by, "):
        conform(spark.range(1).selectExpr("id as version"), tables.ROUTES)
