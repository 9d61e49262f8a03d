"""`python -m bench.node`: request and reply between two processes, and in one.

The rules of the peer comparison: a 100-byte payload echoed whole, signed (`kino`) and traced, the responder in another
process on loopback; `seq` has one request outstanding, `pipe` a thousand. CPU is user and system time of both processes,
the figure to trust on a shared machine. Beside it stands raw pyzmq with the same four frames, measured in the same run, and
what the prototypes and peers took on such machines is in docs/benchmarks.md.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import zmq

from hopline import Actor, Domain, Domains, Node, Payload, message

KEY = b"0123456789abcdef"


@message("BENCH.ECHO")
class Echo(Payload):
    data: bytes


@message("BENCH.ECHOED")
class Echoed(Payload):
    data: bytes


class Echoer(Actor):
    concurrency = 2000

    async def echo(self, echo: Echo) -> Echoed:
        return Echoed(echo.data)


def domains() -> Domains:
    identities = frozenset({b"BENCH.ECHO", b"BENCH.ECHOED"})
    return Domains([Domain("bench", keys=(KEY,), scheme="kino", identities=identities)])


async def serve() -> None:
    async with Node([Echoer()], bind="tcp://127.0.0.1:0", domains=domains()) as node:
        print(node.address, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def serve_raw() -> None:
    context = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.set_hwm(0)  # a ROUTER drops what is above it, and the other end would wait for ever
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    print(f"tcp://127.0.0.1:{port}", flush=True)
    while True:
        frames = socket.recv_multipart()
        if frames[-1] == b"end":
            return
        socket.send_multipart(frames)


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Round:
    """One measurement: round trips a second, CPU of both sides, and percentiles of the wait."""

    def __init__(self, count: int, wall: float, cpu: float, waits: list[float]) -> None:
        self.rate = count / wall
        self.cpu_us = cpu / count * 1e6
        ordered = sorted(waits)
        self.p50_us = ordered[len(ordered) // 2] * 1e6
        self.p99_us = ordered[int(len(ordered) * 0.99)] * 1e6


async def measure(
    ask: Callable[[], Awaitable[object]],
    window: int,
    count: int,
    pid: int | None,
    and_then: Callable[[], Awaitable[object]] | None = None,
) -> Round:
    """Ask so many times, so many at once; `and_then` is the last of what is measured."""
    waits: list[float] = []

    async def worker(times: int) -> None:
        for _ in range(times):
            start = time.perf_counter()
            await ask()
            waits.append(time.perf_counter() - start)

    cpu = time.process_time() + (cpu_of(pid) if pid else 0)
    wall = time.perf_counter()
    await asyncio.gather(*(worker(count // window) for _ in range(window)))
    if and_then is not None:
        await and_then()
    wall = time.perf_counter() - wall
    cpu = time.process_time() + (cpu_of(pid) if pid else 0) - cpu
    return Round(count, wall, cpu, waits)


def raw(address: str, window: int, count: int, pid: int) -> Round:
    """The floor: a DEALER and four frames, no event loop, nothing read or checked."""
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.set_hwm(0)
    socket.connect(address)
    frames = [b"", b"x" * 100, b"m" * 250]
    waits = []
    cpu, wall = time.process_time() + cpu_of(pid), time.perf_counter()
    sent = 0
    while sent < window:
        socket.send_multipart(frames)
        sent += 1
    for _ in range(count):
        start = time.perf_counter()
        socket.recv_multipart()
        waits.append(time.perf_counter() - start)
        if sent < count:
            socket.send_multipart(frames)
            sent += 1
    wall, cpu = time.perf_counter() - wall, time.process_time() + cpu_of(pid) - cpu
    socket.send_multipart([b"", b"end"])
    socket.close(1000)
    context.term()
    return Round(count, wall, cpu, waits)


async def run(rounds: int) -> dict[str, list[Round]]:
    results: dict[str, list[Round]] = {}
    echo = Echo(b"x" * 100)
    with subprocess.Popen(
        [sys.executable, "-m", "bench.node", "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout
        assert server.stdin
        address = server.stdout.readline().strip()
        async with Node(peers=[address], domains=domains()) as node, Node([Echoer()]) as alone:
            ask = partial(node.ask, echo, Echoed)
            ask_alone = partial(alone.ask, echo, Echoed)

            await measure(ask, 100, 2000, server.pid)
            for _ in range(rounds):
                results.setdefault("two processes, one at a time", []).append(await measure(ask, 1, 1000, server.pid))
                results.setdefault("two processes, 1000 in flight", []).append(await measure(ask, 1000, 10_000, server.pid))
                results.setdefault("one process, 1000 in flight", []).append(await measure(ask_alone, 1000, 100_000, None))
                for window, count in ((1, 1000), (1000, 10_000)):
                    with subprocess.Popen(
                        [sys.executable, "-m", "bench.node", "--serve-raw"], stdout=subprocess.PIPE, text=True
                    ) as floor:
                        assert floor.stdout
                        where = floor.stdout.readline().strip()
                        name = "one at a time" if window == 1 else "1000 in flight"
                        results.setdefault(f"raw pyzmq, 4 frames, {name}", []).append(raw(where, window, count, floor.pid))
        server.stdin.close()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--serve-raw", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve_raw:
        serve_raw()
        return
    if options.serve:
        asyncio.run(serve())
        return
    print("| signed request and reply, 100 bytes | a second | CPU us | quietest CPU us | p50 us | p99 us |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, found in asyncio.run(run(options.rounds)).items():
        middle = [
            statistics.median(values)
            for values in zip(*((r.rate, r.cpu_us, r.p50_us, r.p99_us) for r in found), strict=True)
        ]
        best = min(r.cpu_us for r in found)
        print(f"| {name} | {middle[0]:.0f} | {middle[1]:.0f} | {best:.0f} | {middle[2]:.0f} | {middle[3]:.0f} |")


if __name__ == "__main__":
    main()
