"""A short soak: the long one is `make soak`."""

import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_twenty_seconds_of_everything():
    done = subprocess.run(
        [sys.executable, "-m", "tests.e2e.soak", "--seconds", "20"], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "stuck 0" in done.stdout
