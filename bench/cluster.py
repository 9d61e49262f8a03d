"""`python -m bench.cluster`: what a cluster says against how many nodes it has, in memory, with a clock moved by hand.

    start    all nodes come at once, until each knows all others
    join     one more comes, until it knows all and all know it
    idle     two minutes in which nothing happens
    stop     all nodes go at once

Relayed is what the rendezvous took and repeated; each node hears all of it. So what is heard grows with the square of the
number of nodes at least: each tells all others. It must not grow faster, which it would if each asked each and all answered.
"""

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from hopline.cluster.endpoints import Endpoint
from hopline.cluster.membership import Membership
from hopline.cluster.rendezvous import Rendezvous
from hopline.cluster.settings import ClusterSettings, RendezvousSettings
from hopline.node.actor import Actor
from hopline.node.node import Node
from hopline.payload.registry import Payload, message
from hopline.testing import ManualClock, MemoryNetwork, MemoryTransport

SIZES = (20, 50, 100, 200)
STEP_S = 0.05
IDLE_S = 120.0
CAPACITY = 100_000
"""Messages that a subscriber may have under way here: nothing is lost, so that all of it is counted."""


@message("BENCH.CLUSTER.WORK")
class Work(Payload):
    number: int = 0


class Worker(Actor):
    async def work(self, work: Work) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class Phase:
    """What one phase cost: `took_s` by the clock of the cluster, `cpu_s` of this machine."""

    name: str
    nodes: int
    took_s: float
    cpu_s: float
    relayed: int
    relayed_bytes: int

    @property
    def heard(self) -> int:
        return self.relayed * self.nodes

    @property
    def heard_bytes(self) -> int:
        return self.relayed_bytes * self.nodes


class Crowd:
    """A rendezvous and nodes on one network with one clock."""

    def __init__(self, seed: int = 1) -> None:
        self.clock = ManualClock()
        self.random = random.Random(seed)
        self.network = MemoryNetwork(seed=seed, clock=self.clock, capacity=CAPACITY)
        self.nodes: list[Node] = []
        self.phases: list[Phase] = []
        self.rendezvous = Rendezvous(
            RendezvousSettings(bind="tcp://rendezvous:8011"),
            self.network.channels("tcp://rendezvous:8011"),
            clock=self.clock,
            random=self.random.random,
        )

    def make(self) -> Node:
        name = f"node{len(self.nodes)}"
        address = f"tcp://{name}:5000"
        node = Node(
            actors=[Worker()],
            transport=MemoryTransport(self.network, address),
            identity=name.encode(),
            clock=self.clock,
            membership=Membership(
                [Endpoint("tcp://rendezvous:8011")],
                self.network.channels(address),
                health_bind=f"tcp://{name}:5001",
                settings=ClusterSettings(),
                random=random.Random(self.random.random()).random,
            ),
        )
        self.nodes.append(node)
        return node

    @property
    def knows_itself(self) -> bool:
        return all(len(node.routes()) == len(self.nodes) - 1 for node in self.nodes)

    async def phase(self, name: str, until: Callable[[], bool], most_s: float) -> Phase:
        """Let time pass until something holds, and count what is said meanwhile."""
        books = self.rendezvous.books
        since_ns, since_cpu = self.clock.now_ns(), time.process_time()
        relayed, relayed_bytes, nodes = books.relayed, books.relayed_bytes, len(self.nodes)
        while not until():
            if self.clock.now_ns() - since_ns > most_s * 1e9:
                raise TimeoutError(f"{name}: not within {most_s} s")
            await self.step()
        took_s, cpu_s = (self.clock.now_ns() - since_ns) / 1e9, time.process_time() - since_cpu
        for _ in range(40):  # what is under way is said too
            await self.step()
        found = Phase(name, nodes, took_s, cpu_s, books.relayed - relayed, books.relayed_bytes - relayed_bytes)
        self.phases.append(found)
        return found

    async def step(self) -> None:
        self.clock.advance(STEP_S)
        for _ in range(8):
            await asyncio.sleep(0)


async def crowd(count: int, *, idle_s: float = IDLE_S) -> list[Phase]:
    """Let so many nodes come, be, and go."""
    cluster = Crowd()
    await cluster.rendezvous.start()
    nodes = [cluster.make() for _ in range(count)]
    await asyncio.gather(*(node.start() for node in nodes))
    await cluster.phase("start", lambda: cluster.knows_itself, 60)
    await cluster.make().start()
    await cluster.phase("join", lambda: cluster.knows_itself, 60)
    end_ns = cluster.clock.now_ns() + int(idle_s * 1e9)
    await cluster.phase("idle", lambda: cluster.clock.now_ns() >= end_ns, idle_s + 1)
    last, *others = cluster.nodes
    stopping = asyncio.gather(*(node.stop() for node in others))
    await cluster.phase("stop", lambda: stopping.done() and not last.routes(), 60)
    ending = asyncio.ensure_future(last.stop())
    while not ending.done():
        await cluster.step()
    await cluster.rendezvous.close()
    return cluster.phases


def table(phases: list[Phase]) -> list[str]:
    head = [
        "| phase | nodes | seconds | relayed | relayed KiB | a node | heard | heard MiB | heard / nodes² | CPU s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    in_order = sorted(phases, key=lambda phase: ("start", "join", "idle", "stop").index(phase.name))
    return head + [
        (
            f"| {phase.name} | {phase.nodes} | {phase.took_s:.1f} | {phase.relayed} | {phase.relayed_bytes / 1024:.0f} "
            f"| {phase.relayed / phase.nodes:.1f} | {phase.heard} | {phase.heard_bytes / 2**20:.1f} "
            f"| {phase.heard / phase.nodes**2:.1f} | {phase.cpu_s:.1f} |"
        )
        for phase in in_order
    ]


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=SIZES, help="how many nodes (default 20 50 100 200)")
    parser.add_argument("--idle", type=float, default=IDLE_S, help="seconds of the idle phase (default 120)")
    options = parser.parse_args()
    phases = [phase for count in options.nodes for phase in asyncio.run(crowd(count, idle_s=options.idle))]
    print("\n".join(table(phases)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
