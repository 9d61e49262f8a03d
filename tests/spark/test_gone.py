"""Segments that were gone: tasks tell of them, and what others read of them is left out."""

from hopline.spark.gone import Gone, without


def test_tasks_tell_which_were_gone(spark):
    gone = Gone(spark)

    def tell(batches):
        for batch in batches:
            for number in batch["id"].to_pylist():
                gone.add(f"segment {number % 3}")
            yield batch

    assert gone.names == frozenset()
    spark.range(0, 8, 1, 4).mapInArrow(tell, "id bigint").collect()
    assert gone.names == {"segment 0", "segment 1", "segment 2"}


def test_what_was_read_of_them_is_left_out(spark):
    ids = ["a:0", "a@120", "a:b:7", "a:b:c:7", "ab:0"]
    rows = spark.createDataFrame([(each,) for each in ids], "event_id string")
    assert [row.event_id for row in without(rows, {"a", "a:b"}, "event_id").collect()] == ["a:b:c:7", "ab:0"]
