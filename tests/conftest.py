"""What holds for all tests."""

import signal

from hypothesis import settings

# How long an example takes is the machine's affair, and no property of ours.
settings.register_profile("hopline", deadline=None)
settings.load_profile("hopline")


def pytest_configure() -> None:
    # Who starts us in the background may have Ctrl-C ignored, here and in all that we start; then no test of it could pass.
    signal.signal(signal.SIGINT, signal.default_int_handler)
