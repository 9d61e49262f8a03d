"""`python -m bench.tap`: what recording costs a node.

Request and reply between two processes, signed, 1000 in flight, as in `bench.node`; both nodes record nothing, the scale-out
points (bytes as they are), or all points (messages inside a node are encoded for it). The same two processes do all three
in turn, again and again, and the ratio is formed within a turn: two processes that do the same differ by more than what is
measured here. Then two others are started, and so on. A turn ends when all that was seen is written; CPU holds both
processes with the threads that compress and write.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from bench.node import Echo, Echoed, Echoer, Round, domains, measure
from hopline import Node
from hopline.capture.tap import CaptureTap

VARIANTS: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "scale-out points": ("scaleout_out", "scaleout_in"),
    "all points": ("hub_out", "router_in", "scaleout_out", "scaleout_in", "actor_in", "actor_out", "hub_in"),
}
WARM_UP = 5000


@contextmanager
def taps(folder: str, owner: bytes) -> Iterator[dict[str, CaptureTap]]:
    """A tap for each variant that records something, that waits to be put to use."""
    made = {variant: CaptureTap(folder, owner=owner, points=points) for variant, points in VARIANTS.items() if points}
    for tap in made.values():
        tap.start()
    yield made
    for tap in made.values():
        assert not tap.close().lost


async def written(tap: CaptureTap | None) -> None:
    if tap is not None:
        assert await asyncio.to_thread(tap.flush)


def use(node: Node, tap: CaptureTap | None, before: CaptureTap | None) -> None:
    """Let a node record with one tap instead of another."""
    if before is not None:
        node.remove_tap(before)
    if tap is not None:
        node.add_tap(tap)


async def serve(folder: str) -> None:
    """Answer. A line on the standard input names a variant to use from now on; an empty one: write what waits."""
    with taps(folder, b"server") as made:
        async with Node([Echoer()], bind="tcp://127.0.0.1:0", domains=domains()) as node:
            print(node.address, flush=True)
            used = None
            while line := await asyncio.to_thread(sys.stdin.readline):
                if variant := line.strip():
                    before, used = used, made.get(variant)
                    use(node, used, before)
                else:
                    await written(used)
                print(flush=True)


class Pair:
    """A node that asks, and a process that answers."""

    def __init__(self, node: Node, made: Mapping[str, CaptureTap], server: "subprocess.Popen[str]") -> None:
        self._node = node
        self._taps = made
        self._server = server

    def _say(self, line: str) -> None:
        assert self._server.stdin
        assert self._server.stdout
        print(line, file=self._server.stdin, flush=True)
        self._server.stdout.readline()

    async def play(self, variant: str, count: int) -> Round:
        """Ask so many times, with one variant at both ends."""
        ask = partial(self._node.ask, Echo(b"x" * 100), Echoed)
        tap = self._taps.get(variant)

        async def all_written() -> None:
            await asyncio.gather(written(tap), asyncio.to_thread(self._say, ""))

        await asyncio.to_thread(self._say, variant)
        use(self._node, tap, None)
        found = await measure(ask, 1000, count, self._server.pid, all_written)
        use(self._node, None, tap)
        return found


def in_turn(turn: int) -> list[str]:
    """All variants, each first in one of three turns: the machine grows faster and slower while they run."""
    first = turn % len(VARIANTS)
    return [*VARIANTS][first:] + [*VARIANTS][:first]


async def start(rounds: int, count: int) -> dict[str, list[Round]]:
    """All variants in turn, so many times, in two new processes."""
    command = [sys.executable, "-m", "bench.tap", "--serve"]
    with tempfile.TemporaryDirectory() as folder, taps(folder, b"client") as made:
        command.append(folder)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout
            async with Node(peers=[server.stdout.readline().strip()], domains=domains()) as node:
                pair = Pair(node, made, server)
                for variant in VARIANTS:
                    await pair.play(variant, WARM_UP)
                played = [{variant: await pair.play(variant, count) for variant in in_turn(turn)} for turn in range(rounds)]
            assert server.stdin
            server.stdin.close()
            server.wait()
    return {variant: [one[variant] for one in played] for variant in VARIANTS}


def ratios(found: list[Round], base: list[Round], of: str) -> list[float]:
    return [getattr(one, of) / getattr(zero, of) for one, zero in zip(found, base, strict=True)]


async def run(starts: int, rounds: int, count: int) -> None:
    results: dict[str, list[Round]] = {variant: [] for variant in VARIANTS}
    for _ in range(starts):
        played = await start(rounds, count)
        said = []
        for variant, found in played.items():
            results[variant] += found
            said.append(f"{statistics.median(ratios(found, played['nothing'], 'rate')):.2f} ({variant})")
        print("of the rate:", ", ".join(said[1:]), file=sys.stderr, flush=True)
    print("| recorded at both nodes | asks a second | of nothing | CPU us | of nothing |")
    print("|---|---:|---:|---:|---:|")
    base = results["nothing"]
    for variant, found in results.items():
        rate, cpu = (statistics.median(getattr(one, of) for one in found) for of in ("rate", "cpu_us"))
        slower, dearer = (statistics.median(ratios(found, base, of)) for of in ("rate", "cpu_us"))
        print(f"| {variant} | {rate:.0f} | {slower:.2f} | {cpu:.0f} | {dearer:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=5, help="how often two new processes are started")
    parser.add_argument("--rounds", type=int, default=7, help="turns of all variants in each of them")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--serve", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.serve))
    else:
        asyncio.run(run(options.starts, options.rounds, options.messages))


if __name__ == "__main__":
    main()
