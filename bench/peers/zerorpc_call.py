"""zerorpc: a call over ZeroMQ and MessagePack, on gevent; a thousand in flight are a thousand greenlets."""

import time

import gevent  # type: ignore[import-untyped]
import zerorpc  # type: ignore[import-not-found]

from bench.peers.processes import responder
from bench.peers.rules import (
    PAYLOAD,
    WARM_UP_SECONDS,
    WINDOW,
    Figures,
    Options,
    Stretch,
    free_address,
    one_at_a_time,
    play,
    ready,
)


class Echo:
    def echo(self, payload: bytes) -> bytes:
        return payload


def serve(options: Options) -> None:
    server = zerorpc.Server(Echo(), heartbeat=None, pool_size=2 * WINDOW)
    server.bind(options.serve)
    ready()
    server.run()


def greenlets(client: zerorpc.Client, seconds: float) -> tuple[float, float]:
    """The `coroutines` of the rules, in gevent's words."""

    def worker(deadline: float) -> int:
        count = 0
        while time.perf_counter() < deadline:
            client.echo(PAYLOAD)
            count += 1
        return count

    def all_until(deadline: float) -> int:
        workers = [gevent.spawn(worker, deadline) for _ in range(WINDOW)]
        return sum(found.value for found in gevent.joinall(workers, raise_error=True))

    all_until(time.perf_counter() + WARM_UP_SECONDS)
    stretch = Stretch()
    return stretch.end(all_until(time.perf_counter() + seconds))


def measure(options: Options) -> Figures:
    with responder(f"tcp://{free_address()}") as address:
        client = zerorpc.Client(address, heartbeat=None, timeout=30)
        one = one_at_a_time(lambda: client.echo(PAYLOAD), options.seconds)
        return Figures(*one, *greenlets(client, options.seconds))


if __name__ == "__main__":
    play(measure, serve)
