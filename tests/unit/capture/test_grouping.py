"""Grouping in pieces gives what grouping at once gives."""

import random

import pyarrow as pa
import pytest

from hopline.capture import grouping
from hopline.capture.grouping import Groups

SCHEMA = pa.schema([("name", pa.string()), ("place", pa.int64()), ("text", pa.string()), ("n", pa.int64())])
VALUES = {
    "place": ("place", "first"),
    "text": ("text", "first"),
    "least": ("n", "min"),
    "most": ("n", "max"),
    "total": ("n", "sum"),
}


def rows(count: int) -> list[dict]:
    choose = random.Random(count)
    return [
        {"name": f"g{choose.randrange(30)}", "place": place, "text": f"t{place}", "n": choose.randrange(100)}
        for place in choose.sample(range(count), count)
    ]


def expected(found: list[dict]) -> dict[str, dict]:
    groups: dict[str, list[dict]] = {}
    for row in found:
        groups.setdefault(row["name"], []).append(row)
    answer = {}
    for name, group in groups.items():
        first = min(group, key=lambda row: row["place"])
        numbers = [row["n"] for row in group]
        answer[name] = {
            "name": name,
            "place": first["place"],
            "text": first["text"],
            "least": min(numbers),
            "most": max(numbers),
            "total": sum(numbers),
        }
    return answer


@pytest.mark.parametrize("at_once", [1, 7, 100, 10_000])
def test_pieces(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(grouping, "_ROWS", at_once)
    found = rows(500)
    groups = Groups(SCHEMA, ["name"], VALUES, order=["place"])
    for start in range(0, 500, 20):
        groups.add(pa.RecordBatch.from_pylist(found[start : start + 20], SCHEMA))
    answer = {row["name"]: row for row in groups.result().to_pylist()}
    assert answer == expected(found)
    assert groups.result().num_rows == len(answer)  # asking again changes nothing


def test_distinct_keys_alone_and_columns_that_do_not_matter() -> None:
    groups = Groups(SCHEMA, ["name"])
    groups.add(pa.RecordBatch.from_pydict({"other": [1, 2, 3], "name": ["a", "b", "a"]}))
    assert groups.result().to_pylist() == [{"name": "a"}, {"name": "b"}]


def test_nothing() -> None:
    empty = Groups(SCHEMA, ["name"], VALUES, order=["place"]).result()
    assert empty.to_pylist() == []
    assert empty.column_names == ["name", *VALUES]
