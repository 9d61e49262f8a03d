"""The rules that are the same for every peer, and the measuring that keeps them.

- The payload is 100 bytes and comes back whole; that is checked while warming up.
- One at a time: the next request goes out when the answer to the last one is here.
- 1000 in flight: a thousand coroutines that each ask one at a time; or, where an answer needs no correlation or is a
  future that can be kept, a window of a thousand that is refilled answer by answer.
- CPU is user and system time of all processes of the peer, by round trips: on a shared machine steadier than rates, but
  not free of its neighbours. On one core of two, a round trip of Hopline took 20 to 45 % less of it, and one of raw pyzmq
  one at a time half or less. So `Others` says how much was taken, and the least CPU may be that of the busiest round.

A peer is a module with a `measure` and, if it answers from another process, a `serve`; `play` is its command line.
"""

import argparse
import asyncio
import json
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import asdict, dataclass
from typing import TypeVar

from bench.peers.processes import adopt_orphans, cpu_seconds

PAYLOAD = b"x" * 100
WINDOW = 1000
WARM_UP = 200  # round trips before the first that counts
WARM_UP_SECONDS = 0.5  # of a thousand in flight, until the window is full and the code paths are warm
ROOMY = 100_000  # high-water mark of bare sockets: no window ever meets it
RESULT = "RESULT "

_T = TypeVar("_T")


@dataclass(frozen=True)
class Figures:
    """What one run of a peer gave: `one_` at a time, and `many_` in flight."""

    one_rate: float
    one_p50_us: float
    one_p99_us: float
    one_cpu_us: float
    many_rate: float
    many_cpu_us: float


class Stretch:
    """A stretch of round trips: time on the wall and CPU of the family, from now on."""

    def __init__(self) -> None:
        self._cpu = cpu_seconds()
        self._wall = time.perf_counter()

    def end(self, count: int) -> tuple[float, float]:
        """Round trips a second, and CPU microseconds of one."""
        wall, cpu = time.perf_counter() - self._wall, cpu_seconds() - self._cpu
        return count / wall, cpu / count * 1e6


class Waits:
    """The waits of one request after the other, for some seconds."""

    def __init__(self, seconds: float) -> None:
        self._waits: list[float] = []
        self._stretch = Stretch()
        self._deadline = time.perf_counter() + seconds

    def add(self, start: float) -> bool:
        """Note an answer that came just now; whether there is time for another request."""
        now = time.perf_counter()
        self._waits.append(now - start)
        return now < self._deadline

    def end(self) -> tuple[float, float, float, float]:
        """The four `one_` figures, in their order."""
        rate, cpu_us = self._stretch.end(len(self._waits))
        ordered = sorted(self._waits)
        p50, p99 = (ordered[int(len(ordered) * share)] * 1e6 for share in (0.5, 0.99))
        return rate, p50, p99, cpu_us


def one_at_a_time(ask: Callable[[], object], seconds: float) -> tuple[float, float, float, float]:
    for _ in range(WARM_UP):
        assert ask() == PAYLOAD
    waits = Waits(seconds)
    while True:
        start = time.perf_counter()
        ask()
        if not waits.add(start):
            return waits.end()


async def await_one_at_a_time(ask: Callable[[], Awaitable[object]], seconds: float) -> tuple[float, float, float, float]:
    for _ in range(WARM_UP):
        assert await ask() == PAYLOAD
    waits = Waits(seconds)
    while True:
        start = time.perf_counter()
        await ask()
        if not waits.add(start):
            return waits.end()


def window(send: Callable[[], object], receive: Callable[[], object], seconds: float) -> tuple[float, float]:
    """A thousand requests on their way, and a new one for every answer."""
    for _ in range(WINDOW):
        send()
    for _ in range(WINDOW):
        assert receive() == PAYLOAD
        send()
    stretch, deadline, count = Stretch(), time.perf_counter() + seconds, 0
    while time.perf_counter() < deadline:
        for _ in range(50):  # a look at the clock is no part of a round trip
            receive()
            send()
        count += 50
    figures = stretch.end(count)
    for _ in range(WINDOW):
        receive()
    return figures


async def coroutines(ask: Callable[[], Awaitable[object]], seconds: float) -> tuple[float, float]:
    """A thousand coroutines that ask one at a time: how a request API is used in life.

    Each looks at the clock itself. A timer would never fire beside a peer that answers without a turn of the event loop, as
    a Hopline node does for its own actors.
    """

    async def worker(deadline: float) -> int:
        count = 0
        while time.perf_counter() < deadline:
            await ask()
            count += 1
        return count

    async def all_until(deadline: float) -> int:
        return sum(await asyncio.gather(*(worker(deadline) for _ in range(WINDOW))))

    await all_until(time.perf_counter() + WARM_UP_SECONDS)
    stretch = Stretch()
    return stretch.end(await all_until(time.perf_counter() + seconds))


class Options(argparse.Namespace):
    seconds: float
    loop: str
    variant: str
    serve: str | None


def play(measure: Callable[[Options], Figures], serve: Callable[[Options], None] | None = None) -> None:
    """The command line of a peer: measure and print the figures, or be its responder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--loop", choices=["asyncio", "uvloop"], default="asyncio")
    parser.add_argument("--variant", default="")
    if serve:
        parser.add_argument("--serve", metavar="ADDRESS")
    options = parser.parse_args(namespace=Options(serve=None))
    if serve and options.serve is not None:
        serve(options)
        return
    adopt_orphans()
    print(RESULT + json.dumps(asdict(measure(options))), flush=True)


def ready() -> None:
    """Tell the client that it may begin."""
    print("ready", flush=True)


def run(main: Coroutine[object, object, _T], loop: str) -> _T:
    """Run on the event loop that was asked for."""
    if loop == "uvloop":
        import uvloop  # noqa: PLC0415 - only who asks for it needs it

        factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    else:
        factory = asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"127.0.0.1:{probe.getsockname()[1]}"
