"""A Python worker of Spark puts aside what is loaded, once, before it reads."""

import gc
import weakref

import pytest
from pyspark import TaskContext

from hopline.spark.options import Options
from hopline.spark.source import CaptureReader
from hopline.spark.worker import settle
from tests.unit.capture.world import make_segment, records


@pytest.fixture(autouse=True)
def fresh():
    """A process that has put nothing aside, before and after."""
    settle.cache_clear()
    gc.unfreeze()
    yield
    settle.cache_clear()
    gc.unfreeze()


class Thing:
    """Something that can point at itself."""


@pytest.fixture
def _in_a_worker(monkeypatch):
    monkeypatch.setattr(TaskContext, "get", lambda: "some task")


@pytest.mark.usefixtures("_in_a_worker")
def test_a_task_that_reads_a_capture_begins_with_it(tmp_path):
    make_segment(tmp_path, [records(1, 2)])
    options = Options(str(tmp_path))
    reader = CaptureReader(options, options.schema)
    (share,) = reader.partitions()
    assert gc.get_freeze_count() == 0  # to plan is no task
    next(reader.read(share))
    assert gc.get_freeze_count() > 0


def test_other_processes_are_left_alone():
    settle()
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("_in_a_worker")
def test_what_comes_later_is_collected():
    settle()
    settle()
    thing = Thing()
    thing.itself = thing
    last = weakref.ref(thing)
    settle()
    del thing
    gc.collect()
    assert last() is None
