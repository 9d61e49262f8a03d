"""What holds for all tests."""

import signal


def pytest_configure() -> None:
    # Who starts us in the background may have Ctrl-C ignored, here and in all that we start; then no test of it could pass.
    signal.signal(signal.SIGINT, signal.default_int_handler)
