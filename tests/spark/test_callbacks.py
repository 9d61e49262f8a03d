"""The table `callbacks`: requests and what came of them."""

from collections import Counter

import pytest
from pyspark.sql import functions as sf

from hopline.spark import callbacks, messages
from hopline.spark.keeping import in_memory
from hopline.spark.tables import CALLBACKS
from tests.spark import reference as real
from tests.spark.generator import MS
from tests.spark.made import assert_same, made, reference_tables


@pytest.mark.parametrize("seed", [1, 2])
def test_every_request_of_a_world_has_its_outcome(spark, seed):
    world = made(spark, seed)
    found = callbacks.callbacks(world.answers)
    assert found.columns == list(CALLBACKS.names)
    assert_same(found, world.truth.callbacks())


def test_the_world_has_every_outcome(spark):
    found = {row.outcome for row in made(spark).answers.select("outcome").distinct().collect()}
    assert found == {"ok", "exception", "pending", "late", "orphan", "duplicate", "expired"}


def test_without_bodies_a_failure_says_nothing(spark):
    world = made(spark)
    found = callbacks.callbacks(callbacks.find_answers(world.messages)).where("outcome = 'exception'")
    assert found.count() == world.answers.where("outcome = 'exception'").count()
    assert found.where("error_type is not null or error_message is not null").count() == 0


def test_a_failure_that_cannot_be_read_is_null(spark):
    bodies = [(bytes([number]), "KINO.EXCEPTION", body) for number, body in enumerate([b"", b"junk", None, bytes(300)])]
    rows = spark.createDataFrame([*bodies, (b"x", "OTHER", b"y")], "message_uid binary, identity_key string, body binary")
    found = callbacks.read_errors(rows).collect()
    assert len(found) == len(bodies)
    assert all(row.error_type is None and row.error_message is None for row in found)


def test_requests_to_reference_nodes_are_answered_as_their_files_say(spark, reference):
    found = callbacks.callbacks(reference_tables(spark, reference).answers)
    have = {(row.hub_key, row.callback_key): row for row in found.collect()}
    requests = real.requests()
    assert len(have) == found.count() == len(requests)
    for (hub, key), request in requests.items():
        row = have[f"hub:{hub[1:].decode()}", key]
        first = min(real.answers(request), key=lambda line: line.seen_ns)
        assert row.request_identity_key == request.message.identity.decode()
        assert row.response_identity_key == first.message.identity.decode()
        assert row.correlation_key == request.flow
        assert row.wait_ms == pytest.approx((first.seen_ns - request.seen_ns) / MS)
        assert row.outcome == ("exception" if request.message.identity == b"THROW" else "ok")
        assert row.asker_captured == (request.direction == "out")


def test_a_request_whose_node_nobody_captured_says_so(spark, reference):
    """Its times are right, but they are not what the asker saw."""
    asked = Counter(row.asker_captured for row in reference_tables(spark, reference).answers.collect())
    true = Counter(request.direction == "out" for request in real.requests().values())
    assert asked == true
    assert set(asked) == {True, False}


def test_what_a_reference_actor_raised_is_told(spark, reference):
    found = callbacks.callbacks(reference_tables(spark, reference).answers)
    raised = found.where("outcome = 'exception'").collect()
    assert {row.request_identity_key for row in raised} == {"THROW"}
    assert {row.error_type for row in raised} == {"System.InvalidOperationException"}
    assert all(row.error_message.startswith("boom: t") for row in raised)
    answers = Counter((row.request_identity_key, row.response_identity_key) for row in found.collect())
    assert set(answers) == {
        ("HELLO", "EHHLO"),
        ("EHHLO", "GRPCHARSRESP"),
        ("HELLO", "KINO.RCPTCONFIRM"),
        ("THROW", "KINO.EXCEPTION"),
    }


def test_a_receipt_answers_only_who_asked_for_one(spark, reference):
    found = callbacks.callbacks(reference_tables(spark, reference).answers)
    confirmed = found.where("response_identity_key = 'KINO.RCPTCONFIRM'")
    asks = sf.array_contains("callback_points.identity_key", "KINO.RCPTCONFIRM")
    assert confirmed.count() == confirmed.where(asks).count() == found.where(asks).count() > 0


def test_messages_may_be_in_memory_as_well_as_what_is_kept(spark):
    """As those of a batch of a stream are, or those that somebody has checkpointed."""
    world = made(spark)
    rows = messages.finish(world.sightings).localCheckpoint()
    found = callbacks.find_answers(rows, callbacks.read_errors(world.sightings), in_memory)
    assert_same(callbacks.callbacks(found), world.truth.callbacks())
