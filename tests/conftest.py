"""What holds for all tests."""

import signal
from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes is the machine's affair, and no property of ours.
settings.register_profile("hopline", deadline=None)
settings.load_profile("hopline")

HERE = Path(__file__).parent
LONG = [
    *(HERE / name for name in ("e2e", "reference", "transport", "cluster/test_sockets.py", "unit/cli/test_replay.py")),
    *(HERE / name for name in ("unit/spark", "unit/report/test_hostile.py", "unit/cli/test_dump.py")),
    *(HERE / name for name in ("simulation", "cluster/test_storm.py")),
]
"""Tests over real sockets and between processes, which wait, and of many rows or nodes: `make quick` leaves them out."""

A_PROCESS = "hopline"
"""The fixture that starts the command, as its users do: an interpreter each time, so these are left out too."""


def pytest_configure() -> None:
    # Who starts us in the background may have Ctrl-C ignored, here and in all that we start; then no test of it could pass.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if A_PROCESS in fixtures or any(place in (item.path, *item.path.parents) for place in LONG):
            item.add_marker(pytest.mark.slow)
