"""The Spark source, as far as it is planned: what is asked of it, and what there is to read."""

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from hopline.errors import InputError
from hopline.spark.source import HoplineDataSource
from tests.unit.capture.world import make_segment, records

SEEN = StructType([StructField("seen_ns", LongType())])


def source(path):
    return HoplineDataSource({"path": str(path)})


def rows(reader):
    return sum(len(batch) for share in reader.partitions() for batch in reader.read(share))


def test_what_a_batch_misses_of_a_segment_is_said(tmp_path, caplog):
    make_segment(tmp_path, [records(1, 2), records(3, 3)], number=1)
    file = make_segment(tmp_path, [records(1, 2), records(3, 3)], number=2)
    file.write_bytes(file.read_bytes()[:-8])
    assert rows(source(tmp_path).reader(SEEN)) == 10
    assert caplog.messages == [
        f"segment {file.stem} stops before its end: its end mark is missing; the rest is missing here"
    ]


def test_a_whole_capture_is_nothing_to_speak_of(tmp_path, caplog):
    make_segment(tmp_path, [records(1, 2)], number=1)
    assert rows(source(tmp_path).reader(SEEN)) == 2
    assert caplog.messages == []


@pytest.mark.parametrize("plan", ["reader", "streamReader"])
def test_a_schema_cannot_name_a_column_twice(tmp_path, plan):
    with pytest.raises(InputError, match="names a column twice") as caught:
        getattr(source(tmp_path), plan)(StructType([*SEEN, *SEEN]))
    assert caught.value.code == "INPUT_BAD_OPTION"
