"""Properties are searched for, which takes time: `make quick` leaves them to `make test`."""

from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes is the machine's affair, and no property of ours.
settings.register_profile("hopline", deadline=None)
settings.load_profile("hopline")


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slow)
