"""`python -m bench.tap`: what recording costs a node.

Request and reply between two processes, signed, 1000 in flight, as in `bench.node`; both nodes record nothing, the scale-out
points (bytes as they are), or all points (messages inside a node are encoded for it). The three take turns, and the ratio is
formed within a round. CPU holds both processes with the threads that compress and write.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile

from bench.node import Echo, Echoed, Echoer, Round, domains, measure
from hopline import Node
from hopline.assembly import CaptureSettings

VARIANTS: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "scale-out points": ("scaleout_out", "scaleout_in"),
    "all points": ("all",),
}


def node_of(variant: str, folder: str, **settings: object) -> Node:
    points = VARIANTS[variant]
    capture = CaptureSettings(folder, points=points) if points else None
    return Node(domains=domains(), capture=capture, **settings)  # type: ignore[arg-type]


async def serve(variant: str, folder: str) -> None:
    async with node_of(variant, folder, actors=[Echoer()], bind="tcp://127.0.0.1:0") as node:
        print(node.address, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        print(node.capture_report(), flush=True)


def responder(variant: str, folder: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "bench.tap", "--serve", variant, folder]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


async def play(variant: str, count: int) -> tuple[Round, int]:
    """One round of one variant; returns what it took and how many records were lost."""
    with tempfile.TemporaryDirectory() as folder, responder(variant, folder) as server:
        assert server.stdout
        assert server.stdin
        echo = Echo(b"x" * 100)
        async with node_of(variant, folder, peers=[server.stdout.readline().strip()]) as node:

            async def ask() -> object:
                return await node.ask(echo, Echoed)

            await measure(ask, 100, 2000, server.pid)
            found = await measure(ask, 1000, count, server.pid)
            report = node.capture_report() or {"lost": {}}
        server.stdin.close()
        server.stdout.read()
    return found, sum(report["lost"].values())


async def run(rounds: int, count: int) -> None:
    results: dict[str, list[Round]] = {variant: [] for variant in VARIANTS}
    lost = dict.fromkeys(VARIANTS, 0)
    for _ in range(rounds):
        for variant in VARIANTS:
            played, gone = await play(variant, count)
            results[variant].append(played)
            lost[variant] += gone
    print("| recorded at both nodes | asks a second | of nothing | CPU us | of nothing | lost records |")
    print("|---|---:|---:|---:|---:|---:|")
    base = results["nothing"]
    for variant, found in results.items():
        rate = statistics.median(one.rate for one in found)
        cpu = statistics.median(one.cpu_us for one in found)
        slower = statistics.median(one.rate / zero.rate for one, zero in zip(found, base, strict=True))
        dearer = statistics.median(one.cpu_us / zero.cpu_us for one, zero in zip(found, base, strict=True))
        print(f"| {variant} | {rate:.0f} | {slower:.2f} | {cpu:.0f} | {dearer:.2f} | {lost[variant]} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--messages", type=int, default=40_000)
    parser.add_argument("--serve", nargs=2, metavar=("VARIANT", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(*options.serve))
    else:
        asyncio.run(run(options.rounds, options.messages))


if __name__ == "__main__":
    main()
