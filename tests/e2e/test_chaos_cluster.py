"""Half a minute of `make chaos-cluster`."""

import asyncio

import pytest

from tests.e2e.chaos_cluster import chaos


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.timeout(180)  # thirteen processes take their time to start and to stop
def test_a_cluster_lives_on_while_its_leaders_and_nodes_are_killed():
    found = asyncio.run(chaos(30, seed=7))
    assert found.faults == []
    assert found.kills
    assert len(found.books) == 10
