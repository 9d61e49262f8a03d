"""The table `expiries`: what became of messages that had to come in time."""

import pytest

from hopline.spark import expiries
from hopline.spark.tables import EXPIRIES
from tests.spark.made import assert_same, made, reference_tables


@pytest.mark.parametrize("seed", [1, 2])
def test_every_message_of_a_world_that_has_a_ttl_is_counted(spark, seed):
    world = made(spark, seed)
    found = expiries.expiries(world.fates)
    assert found.columns == list(EXPIRIES.names)
    assert_same(found, world.truth.expiries())


def test_the_world_has_every_fate(spark):
    found = {row.fate for row in made(spark).fates.select("fate").distinct().collect()}
    assert found == {"in_time", "late", "expired_in_flight", None}


def test_each_message_has_its_own_fate(spark):
    world = made(spark)
    have = {(bytes(row.message_uid), row.occurrence): row.fate for row in world.fates.collect()}
    true = {(life.first.uid, life.first.occurrence): life.fate for life in world.truth.world.lives}
    assert have == true


def test_reference_nodes_set_no_ttl(spark, reference):
    tables = reference_tables(spark, reference)
    assert tables.fates.count() == 0
    assert expiries.expiries(tables.fates).count() == 0
