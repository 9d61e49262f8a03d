"""Ray: an actor in a worker process, asked by the driver; `--variant async` for an actor of coroutines.

A Ray of its own, on loopback and without dashboard; its daemons count as CPU. A thousand in flight are references that
are fetched one by one; fetching a whole list at once would be cheaper, and no answer to a request.
"""

import os
import secrets
import tempfile
from collections import deque

from bench.peers.rules import PAYLOAD, WINDOW, Figures, Options, one_at_a_time, play, window

# Read when ray is imported. Loopback only, as on a Mac; no report home; and authentication as Ray has it by default, but
# with a token for this run, so that none is written to ~/.ray.
os.environ |= {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
}
import ray  # type: ignore[import-not-found]


class Echo:
    def echo(self, payload: bytes) -> bytes:
        return payload


class AsyncEcho:
    async def echo(self, payload: bytes) -> bytes:
        return payload


def measure(options: Options) -> Figures:
    # A short name: the path of a Unix socket has 107 bytes, and Ray needs sixty of them.
    with tempfile.TemporaryDirectory(prefix="r", ignore_cleanup_errors=True) as folder:
        ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=folder)
        try:
            if options.variant == "async":
                actor = ray.remote(num_cpus=0, max_concurrency=WINDOW)(AsyncEcho).remote()
            else:
                actor = ray.remote(num_cpus=0)(Echo).remote()
            sent: deque[object] = deque()
            return Figures(
                *one_at_a_time(lambda: ray.get(actor.echo.remote(PAYLOAD)), options.seconds),
                *window(lambda: sent.append(actor.echo.remote(PAYLOAD)), lambda: ray.get(sent.popleft()), options.seconds),
            )
        finally:
            ray.shutdown()


if __name__ == "__main__":
    play(measure)
