"""A window: its parts hold what `finish` makes of the same sightings, and those in which nothing changes stay."""

import pytest

from hopline.spark import messages
from hopline.spark.disk import Disk
from hopline.spark.news import find_news
from hopline.spark.parts import Span
from hopline.spark.shelves import days_on, read
from hopline.spark.tables import MESSAGES
from hopline.spark.window import Window, stage
from tests.spark.made import assert_same, made, rows_of

EVER = Span(0, 2**62)


@pytest.fixture
def staged(spark, tmp_path):
    """A disk with a shelf of what a world has left, in several parts; and the world."""
    world, disk = made(spark), Disk(tmp_path / "x[1] {a}")  # a pattern, to who takes it for one
    stage(find_news(world.path, share_bytes=16 * 1024), spark, disk, "new", "r1", bodies=True)
    return disk, world


def inodes(disk, shelf):
    return {path.stat().st_ino for path in disk.path_of(shelf).rglob("*.parquet")}


def made_of(spark, disk, shelf):
    return read(spark, disk, shelf, MESSAGES.schema, days_on(disk, shelf)).select(*MESSAGES.names)


def make(spark, disk, target, within=EVER, shelves=("new",), small=0):
    days = sorted({day for shelf in shelves for day in days_on(disk, shelf)})
    Window(spark, disk, shelves, days, within, bodies=True, small=small).make(target, "r2")


@pytest.mark.parametrize("small", [0, 10**6], ids=["each for itself", "bound together"])
def test_a_window_is_what_finish_makes(spark, staged, small):
    disk, world = staged
    make(spark, disk, "made", small=small)
    assert_same(made_of(spark, disk, "made").drop("seen_at"), rows_of(world.messages.drop("seen_at")))
    count = len(disk.files("made", ".parquet"))
    assert count == (len(days_on(disk, "made")) if small else len(disk.files("new", ".parquet")))


def test_parts_in_which_nothing_changes_are_not_written_again(spark, staged):
    disk, _ = staged
    make(spark, disk, "made")
    before, after = inodes(disk, "new"), inodes(disk, "made")
    assert before & after
    assert after - before
    make(spark, disk, "again", shelves=("made",))
    assert inodes(disk, "again") == after


def test_numbers_and_trails_that_stood_in_the_table_are_put_right(spark, staged):
    disk, world = staged
    middle = world.messages.selectExpr("cast(percentile(seen_ns, 0.5) as bigint)").head()[0]
    make(spark, disk, "early", Span(0, middle - 1))
    make(spark, disk, "late", Span(middle, 2**62))
    for half, rows in (("early", f"seen_ns < {middle}"), ("late", f"seen_ns >= {middle}")):
        whole = messages.finish(world.sightings.where(rows)).drop("seen_at")
        assert_same(made_of(spark, disk, half).drop("seen_at"), rows_of(whole))
    disk.move("late", "table")
    for path in disk.path_of("table").rglob("*.parquet"):
        path.rename(path.with_name(path.name.replace("r2", "r0")))
    make(spark, disk, "made", shelves=("table", "early"))
    assert_same(made_of(spark, disk, "made").drop("seen_at"), rows_of(world.messages.drop("seen_at")))


def test_a_window_without_sightings_has_no_parts(spark, staged):
    disk, _ = staged
    make(spark, disk, "made", Span(0, 1))
    assert disk.files("made") == []
