from pathlib import Path

import pytest

from tests.transport.harness import KINDS, World


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A world of each kind of transport."""
    return World(request.param, tmp_path)


@pytest.fixture
def tcp(tmp_path: Path) -> World:
    return World("tcp", tmp_path)


@pytest.fixture
def memory(tmp_path: Path) -> World:
    return World("memory", tmp_path)


@pytest.fixture(params=["tcp", "tcp-uvloop"])
def loops(request: pytest.FixtureRequest, tmp_path) -> World:
    """Both event loops, for what depends on how they watch descriptors."""
    return World(request.param, tmp_path)
