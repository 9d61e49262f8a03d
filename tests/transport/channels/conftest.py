from pathlib import Path

import pytest

from tests.transport.harness import World


@pytest.fixture(params=["memory", "tcp", "ipc", "tcp-uvloop"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A world of each kind that channels know: bundles are for links."""
    return World(request.param, tmp_path)
