"""The stream: the same rows as a run, taken as they come."""

from pathlib import Path

import pytest

from hopline.errors import TablesError
from hopline.spark.run import Asked, Pipeline
from hopline.spark.stream import stream
from tests.spark.lake import CrashError, copy_segments, crash_at, rows_of
from tests.unit.capture.story import Story

ONLY = frozenset({"messages", "callbacks"})


@pytest.fixture(scope="module")
def pipeline(spark):
    """Makes pipelines in the session of all tests."""

    def make(captures, tables, on_step=lambda _: None):
        return Pipeline(str(captures), str(tables), Asked(only=ONLY), session=lambda _: spark, on_step=on_step)

    return make


def test_in_pieces_it_comes_to_the_same_as_a_run(pipeline, reference, tmp_path):
    pipeline(reference, tmp_path / "run").run()
    names = sorted(file.name for file in Path(reference).glob("*.arrows"))
    pieces = [names[:3], [], names[3:]]
    captures, tables = tmp_path / "c", tmp_path / "stream"
    captures.mkdir()
    batches, waits = [], []

    def wait(seconds):
        """Instead of waiting something comes; when nothing is left, it is time to end."""
        waits.append(seconds)
        if not pieces:
            return True
        copy_segments(reference, captures, pieces.pop(0))
        return False

    with pytest.raises(CrashError):  # and if it is killed, the next one goes on
        stream(pipeline(captures, tables, crash_at("removal of messages")), every_s=5, on_batch=batches.append, wait=wait)
    stream(pipeline(captures, tables), every_s=5, on_batch=batches.append, wait=wait)
    assert waits == [5] * len(waits)
    assert {batch.mode for batch in batches} == {"stream"}
    for name in ONLY:
        assert rows_of(tables, name) == rows_of(tmp_path / "run", name)
    assert not pipeline(captures, tables).run().changed  # a run goes on where the stream has stopped


def test_until_drained_it_takes_what_is_there_and_ends(pipeline, tmp_path):
    story = Story()
    story.ask(b"flow", 0)
    story.write(tmp_path / "c")
    batches = []
    stream(pipeline(tmp_path / "c", tmp_path / "t"), is_endless=False, on_batch=batches.append)
    assert [batch.read for batch in batches] == [4]
    stream(pipeline(tmp_path / "c", tmp_path / "t"), is_endless=False, on_batch=batches.append)
    assert [(batch.changed, batch.read) for batch in batches] == [(True, 4), (False, 0)]  # that nothing was new is said


def test_while_it_runs_nobody_else_writes(pipeline, tmp_path):
    (tmp_path / "c").mkdir()

    def wait(_):
        with pytest.raises(TablesError, match="stream by process"):
            pipeline(tmp_path / "c", tmp_path / "t").run()
        return True

    stream(pipeline(tmp_path / "c", tmp_path / "t"), on_batch=lambda _: None, wait=wait)
