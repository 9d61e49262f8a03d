"""Tables made by somebody who wants to fill memory: any number of different names, and all of it still counted."""

import numpy as np
import pyarrow as pa
import pytest

from hopline.report.read.answers import Answers
from hopline.report.read.audits import Expiries, Rejects, Signatures
from hopline.report.read.counting import MOST_KEYS
from hopline.report.read.links import Links
from hopline.report.read.moves import MOST_EDGES, Moves
from hopline.report.read.seen import MANY, Seen
from hopline.report.show.latency import latency
from tests.report.tables import SCHEMAS, START

ROUNDS, ROWS = 4, MOST_KEYS


def batch(table, columns, **values):
    schema = pa.schema([SCHEMAS[table].field(name) for name in columns])
    given = {name: [value] * ROWS if not isinstance(value, list) else value for name, value in values.items()}
    return pa.record_batch([pa.array(given.get(name, [None] * ROWS), schema.field(name).type) for name in columns], columns)


def fed(collector, **values):
    """Give a collector many rows, all of whose names differ."""
    for number in range(ROUNDS):
        names = [f"{number}-{place}" for place in range(ROWS)]
        own = {name: names if value is ... else value for name, value in values.items()}
        collector.add(batch(collector.table, collector.columns, **own))
    return collector


def test_types_and_nodes():
    seen = fed(Seen(), seen_at=START, identity_key=..., node_key=..., format=...)
    assert seen.sightings == ROUNDS * ROWS
    for tally in (seen.types, seen.nodes, seen.formats):
        assert (len(tally) <= 2 * MOST_KEYS, tally.total()) == (True, [ROUNDS * ROWS])
    assert len(seen.timeline.names) <= 2 * MOST_KEYS + 1
    assert sum(sum(seen.timeline.of(name).values()) for name in seen.timeline.names) == ROUNDS * ROWS
    assert seen.timeline.of(MANY)


def test_pairs_of_nodes():
    moves = fed(
        Moves(),
        kind="network",
        from_node_key=...,
        to_node_key="b",
        sent_at=START,
        received_at=START,
        latency_ms=1.0,
        skew_ms=5.0,
        lost=False,
    )
    assert (len(moves.spreads), moves.is_cut, moves.ends.total()) == (MOST_EDGES, True, [ROUNDS * ROWS, 0, 0, 0])
    assert len(moves.skews) <= 10_000


def test_losses():
    moves = fed(Moves(), kind="network", from_node_key=..., identity_key=..., correlation_key=..., sent_at=START, lost=True)
    assert (len(moves.lost) <= 2 * MOST_KEYS, moves.lost.total()) == (True, [ROUNDS * ROWS])


def test_links():
    links = fed(
        Links(),
        level="node",
        source_key=...,
        target_key=...,
        messages=1,
        errors=1,
        lost=0,
        expired=0,
        exemplars=[["x"]] * ROWS,
    )
    assert len(links.between("node")) <= 2 * MOST_KEYS


@pytest.mark.parametrize("outcome", ["exception", "pending", "ok"])
def test_requests(outcome):
    names = {"request_identity_key": ..., "response_identity_key": ..., "error_type": ..., "error_message": ...}
    answers = fed(Answers(10), **names, correlation_key=..., outcome=outcome, requested_at=START, wait_ms=1.0)
    assert answers.count(outcome) == ROUNDS * ROWS
    assert max(len(answers.failures), len(answers.unanswered), len(answers.oldest) / 4, len(answers.waits)) <= 2 * MOST_KEYS
    assert answers.wait.count == (ROUNDS * ROWS if outcome in ("ok", "exception", "pending") else 0)


def test_the_rest():
    expiries = fed(
        Expiries(), identity_key=..., ttl_ms=1.0, sent=1, in_time=0, late=1, expired_in_flight=0, budget_used_p95=2.0
    )
    signatures = fed(Signatures(), domain=..., node_key=..., status="invalid", messages=1, exemplars=[["x"]] * ROWS)
    rejects = fed(Rejects(), code=..., reason=..., node_key=..., event_id=...)
    assert expiries.types.total() == [ROUNDS * ROWS, 0, ROUNDS * ROWS, 0]
    assert (signatures.count("invalid"), rejects.count) == (ROUNDS * ROWS, ROUNDS * ROWS)
    for tally in (expiries.types, signatures.domains, signatures.bad, rejects.codes, rejects.nodes):
        assert len(tally) <= 2 * MOST_KEYS
    assert len(expiries.used) <= 4 * MOST_KEYS


def test_a_page_of_it_stays_small():
    moves = fed(
        Moves(), kind="network", from_node_key=..., to_node_key="b", sent_at=START, received_at=START, latency_ms=1.0
    )
    assert not np.isnan(moves.worst_skew_ms)

    class Facts:
        empty = {"callbacks": "nobody asked"}

    Facts.moves = moves
    assert len(latency(Facts, 10)) < 100_000
