"""`python -m bench.flood`: a million one-way messages to an actor that is slower than their sender.

The sender must be slowed, nothing may be lost, and memory must stay flat: it is printed as it goes. Two processes.
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


class Slow(Actor):
    """Handles one message a turn of the event loop, so a sender that does not wait would be far ahead of it."""

    handled = 0

    async def take(self, drop: Drop) -> None:
        if drop.number % 10 == 0:
            await asyncio.sleep(0)
        Slow.handled += 1


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
            for i in range(count):
                await node.tell(Drop(i))
                if i % (count // 10) == 0:
                    handled = (await node.ask(Count(), Counted, timeout=60)).handled
                    sizes = f"sender {rss_mib():.0f} MiB, receiver {rss_mib(server.pid):.0f} MiB"
                    print(f"sent {i + 1}, handled {handled}: {sizes}", flush=True)
            while (handled := (await node.ask(Count(), Counted, timeout=60)).handled) < count:  # noqa: ASYNC110 - over there
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
