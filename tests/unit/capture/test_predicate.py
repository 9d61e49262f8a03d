"""A filter at work. That its forms agree on everything is in tests/property/test_filter.py."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from hopline.capture.filter import parse_filter
from hopline.capture.predicate import mask, row_predicate, to_sql
from hopline.capture.tables import MESSAGES

ROWS = [
    {
        "identity_key": "ORDER.PLACE",
        "hops": 1,
        "ttl_ms": 5.0,
        "is_system": False,
        "domain": "",
        "seen_at": datetime(2026, 11, 15, 18, tzinfo=UTC),
        "signature": b"\1",
        "trail": [{"uri": "tcp://a:1", "node_key": "a"}, {"uri": "tcp://b:1", "node_key": "b"}],
        "callback_points": [{"identity_key": "ORDER.PLACED", "version": 1, "partition_key": ""}],
        "warnings": ["odd"],
    },
    {
        "identity_key": "KINO.PING",
        "hops": None,
        "ttl_ms": 0.0,
        "is_system": True,
        "domain": "secret",
        "seen_at": datetime(2026, 11, 16, tzinfo=UTC),
        "signature": b"",
        "trail": [],
        "callback_points": [],
        "warnings": None,
    },
]


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        ("", [True, True]),
        ("identity ~ ORDER.*", [True, False]),
        ("identity ~ order.*", [False, False]),
        ("identity ~ *P?*G", [False, True]),
        ("identity ~ ORDER", [False, False]),
        ("not identity ~ ORDER.*", [False, True]),
        ("hops == 1", [True, False]),
        ("hops != 1", [False, False]),
        ("not hops == 1", [False, True]),
        ("hops < 99999999999", [True, False]),
        ("hops is empty", [False, True]),
        ("hops in (1, 2)", [True, False]),
        ("hops not in (1, 2)", [False, True]),
        ("ttl > 1ms and ttl < 1s", [True, False]),
        ("is_system", [False, True]),
        ("domain is empty", [True, False]),
        ("signature is empty", [False, True]),
        ("signature == 0x01", [True, False]),
        ("time >= 2026-11-16", [False, True]),
        ("trail == b", [True, False]),
        ("not trail == b", [False, True]),
        ("trail is empty", [False, True]),
        ("trail in (x, a)", [True, False]),
        ("callback_points ~ *.PLACED", [True, False]),
        ("warnings is empty", [False, True]),
        ("warnings == odd", [True, False]),
        ("is_system or hops == 1", [True, True]),
        ("node == n1", [False, False]),
        ("node is empty", [True, True]),
        ("not node == n1", [True, True]),
    ],
)
def test_masks_and_rows(text: str, passed: list[bool]) -> None:
    tree = parse_filter(text)
    batch = pa.RecordBatch.from_pylist(ROWS, pa.schema([MESSAGES.field(name) for name in ROWS[0]]))
    assert mask(tree, batch).to_pylist() == passed
    assert mask(tree, batch.slice(1)).to_pylist() == passed[1:]
    assert [row_predicate(tree)(row) for row in ROWS] == passed


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("", "TRUE"),
        ("identity == HELLO", "`identity_key` = 'HELLO'"),
        ('identity != "it\'s"', "`identity_key` <> decode(X'69742773', 'UTF-8')"),
        (r"identity == '\\'", "`identity_key` = decode(X'5c', 'UTF-8')"),
        ("identity == '${x}'", "`identity_key` = decode(X'247b787d', 'UTF-8')"),
        ("identity == ö", "`identity_key` = decode(X'c3b6', 'UTF-8')"),
        ("identity ~ '100%_!*?'", "`identity_key` LIKE '100!%!_!!%_' ESCAPE '!'"),
        ("hops >= 2", "`hops` >= 2"),
        ("ttl < 1.5", "`ttl_ms` < 1.5D"),
        ("is_system", "`is_system` = TRUE"),
        ("signature == 0x00ff", "`signature` = X'00ff'"),
        ("time > 1970-01-01T00:00:01.000001Z", "`seen_at` > timestamp_micros(1000001)"),
        ("date == 2026-11-15", "`date` = DATE '2026-11-15'"),
        ("hops in (1, -2)", "`hops` IN (1, -2)"),
        ("hops is empty", "`hops` IS NULL"),
        ("domain is empty", "(`domain` IS NULL OR `domain` = '')"),
        ("signature is empty", "(`signature` IS NULL OR `signature` = X'')"),
        ("trail is empty", "(`trail` IS NULL OR size(`trail`) = 0)"),
        ("trail == a", "exists(`trail`, entry -> entry.node_key = 'a')"),
        ("warnings ~ odd*", "exists(`warnings`, entry -> entry LIKE 'odd%' ESCAPE '!')"),
        ("not hops == 1", "NOT coalesce(`hops` = 1, FALSE)"),
        ("hops == 1 and (is_system or ttl == 0)", "(`hops` = 1 AND (`is_system` = TRUE OR `ttl_ms` = 0.0D))"),
    ],
)
def test_sql(text: str, sql: str) -> None:
    assert to_sql(parse_filter(text)) == sql
