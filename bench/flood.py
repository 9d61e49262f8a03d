"""`python -m bench.flood`: a million one-way messages to an actor that is ten times slower than their sender.

First the sender's own pace is measured, with an actor that keeps up; then the actor is told to take ten times as long. The
sender must be slowed, nothing may be lost, and memory must stay flat: it is printed as it goes. Two processes.
"""

import argparse
import asyncio
import resource
import subprocess
import sys
import time
from pathlib import Path

from hopline import Actor, Node, Payload, message


@message("BENCH.DROP")
class Drop(Payload):
    number: int


@message("BENCH.COUNT")
class Count(Payload):
    pass


@message("BENCH.COUNTED")
class Counted(Payload):
    handled: int


@message("BENCH.PACE")
class Pace(Payload):
    seconds: float


REST_EVERY = 100
"""Messages after which the actor rests for all of them: the timers of an event loop are too coarse for one."""


class Slow(Actor):
    """Takes as long as it was told, on average."""

    handled = 0
    pace = 0.0

    async def take(self, drop: Drop) -> None:
        Slow.handled += 1
        if self.pace and drop.number % REST_EVERY == 0:
            await asyncio.sleep(self.pace * REST_EVERY)

    async def slow_down(self, pace: Pace) -> None:
        self.pace = pace.seconds


class Counter(Actor):
    async def count(self, _: Count) -> Counted:
        return Counted(Slow.handled)


async def serve() -> None:
    async with Node([Slow(), Counter()], bind="tcp://127.0.0.1:0") as node:
        print(node.address, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def rss_mib(pid: int | str = "self") -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


async def run(count: int) -> int:
    with subprocess.Popen(
        [sys.executable, "-m", "bench.flood", "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout
        assert server.stdin
        async with Node(peers=[server.stdout.readline().strip()]) as node:
            await node.ask(Count(), Counted)
            start = time.monotonic()
            for i in range(10_000):
                await node.tell(Drop(i))
            own = (time.monotonic() - start) / 10_000
            while (warm := (await node.ask(Count(), Counted, timeout=60)).handled) < 10_000:  # noqa: ASYNC110 - over there
                await asyncio.sleep(0.05)
            await node.deliver(Pace(10 * own), until="handled")
            print(f"the sender takes {own * 1e6:.0f} us a message, the actor {own * 1e7:.0f}", flush=True)
            start = time.monotonic()
            for i in range(count):
                await node.tell(Drop(i))
                if i % (count // 10) == 0:
                    handled = (await node.ask(Count(), Counted, timeout=60)).handled - warm
                    sizes = f"sender {rss_mib():.0f} MiB, receiver {rss_mib(server.pid):.0f} MiB"
                    print(f"sent {i + 1}, handled {handled}: {sizes}", flush=True)
            while (handled := (await node.ask(Count(), Counted, timeout=60)).handled - warm) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            seconds = time.monotonic() - start
        server.stdin.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{handled} of {count} handled in {seconds:.0f} s, {count / seconds:.0f} a second; sender's peak {peak:.0f} MiB")
    return 0 if handled == count else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
        return 0
    return asyncio.run(run(options.messages))


if __name__ == "__main__":
    sys.exit(main())
