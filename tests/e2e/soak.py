"""`make soak`: ten nodes on loopback, every actor talks to every other, with faults, for minutes. `--seconds N` for less.

Random traffic: asks that answer at once, late, with a failure or never; one-way messages; broadcasts; receipts. Faults: a
node stops and another takes its address; a stranger sends garbage to a socket. It passes if no promise is stuck, the books
of all nodes balance, and memory, threads and file descriptors are what they were after the warm-up.
"""

import argparse
import asyncio
import gc
import random
import resource
import sys
import threading
import time
from pathlib import Path

import zmq

from hopline.errors import DeliveryError
from hopline.node.node import Node
from hopline.transport.zmq import ZmqTransport
from tests.e2e.world import Ehhlo, Greeter, Hello, Listener, Notice, Work, Worker, balanced, domains

NODES = 10
CLIENTS_PER_NODE = 4
LONGEST_WAIT = 1.0
GROWTH_MIB = 40
"""What the process may grow after the warm-up: allocator noise of ten nodes that come and go. A leak of 100 bytes a message
would be ten times that in a long run."""


class Soak:
    def __init__(self, seconds, seed):
        self.until = time.monotonic() + seconds
        self.random = random.Random(seed)
        self.nodes = {}
        self.ended = {}
        self.asked = self.answered = self.failed = 0
        self.stuck = []
        self.unbalanced = []

    async def start(self, name, bind="tcp://127.0.0.1:0"):
        others = [node.address for node in self.nodes.values()]
        node = Node(
            actors=[Greeter(), Listener(), Worker()],
            transport=ZmqTransport(bind, identity=name.encode(), heartbeat_s=1.0),
            identity=name.encode(),
            peers=others,
            domains=domains(),
            hold_seconds=0.5,
        )
        await node.start()
        self.nodes[name] = node

    async def client(self, name):
        """One user of one node: does something, again and again."""
        while time.monotonic() < self.until:
            node = self.nodes.get(name)
            if node is None:
                await asyncio.sleep(0.01)
                continue
            try:
                await asyncio.wait_for(self.act(node), LONGEST_WAIT + 5)
            except DeliveryError:
                self.failed += 1
            except TimeoutError:
                self.stuck.append(name)

    async def act(self, node):
        kind = self.random.random()
        if kind < 0.6:
            self.asked += 1
            hello = "bad" if kind < 0.03 else "forever" if kind < 0.04 else "x"
            await node.ask(Hello(hello), Ehhlo, timeout=0.2 if hello == "forever" else LONGEST_WAIT)
            self.answered += 1
        elif kind < 0.75:
            await node.tell(Work(1), ttl=1.0)
        elif kind < 0.8:
            await node.publish(Notice("all"), ttl=1.0)
        elif kind < 0.95:
            await node.deliver(Notice("sure"), until=self.random.choice(["node", "handled"]), timeout=LONGEST_WAIT)
        else:
            await asyncio.sleep(0.005)

    async def faults(self):
        """Now and then a node stops and its successor starts, and a stranger sends garbage."""
        context = zmq.Context()
        while time.monotonic() < self.until - 2:
            await asyncio.sleep(1.0)
            name = self.random.choice(list(self.nodes))
            stranger = context.socket(zmq.DEALER)
            stranger.connect(self.nodes[name].address)
            for size in (0, 1, 100, 10_000):
                stranger.send_multipart([b"", self.random.randbytes(size), self.random.randbytes(size)])
            await asyncio.sleep(0.2)
            stranger.close(0)
            node = self.nodes.pop(name)
            await node.stop(0.2)
            self.check(node)
            await self.start(name, node.address)
        context.term()

    def check(self, node):
        if not balanced(node):
            self.unbalanced.append((node.identity, node.statistics()))

    async def run(self):
        for i in range(NODES):
            await self.start(f"node-{i}")
        clients = [asyncio.create_task(self.client(name)) for name in list(self.nodes) for _ in range(CLIENTS_PER_NODE)]
        faults = asyncio.create_task(self.faults())
        half = (self.until - time.monotonic()) / 2
        await asyncio.sleep(half)
        warm = usage()
        await asyncio.gather(*clients, faults)
        gc.collect()
        late = usage()
        for node in list(self.nodes.values()):
            await node.stop(2)
            self.check(node)
        return warm, late


def usage():
    folder = Path("/proc/self/fd")
    return {
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "threads": threading.active_count(),
        "descriptors": len(list(folder.iterdir())) if folder.is_dir() else 0,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    before = usage()
    soak = Soak(options.seconds, options.seed)
    warm, late = asyncio.run(soak.run())
    after = usage()
    print(f"asked {soak.asked}, answered {soak.answered}, failed with a reason {soak.failed}, stuck {len(soak.stuck)}")
    print(f"before {before}\nwarm   {warm}\nlate   {late}\nafter  {after}")
    faults = []
    if soak.stuck:
        faults.append(f"{len(soak.stuck)} promises were stuck")
    if soak.unbalanced:
        faults.append(f"books do not balance: {soak.unbalanced[:3]}")
    if late["rss_mib"] - warm["rss_mib"] > GROWTH_MIB:
        faults.append("memory grows")
    if after["threads"] != before["threads"] or after["descriptors"] > before["descriptors"] + 4:
        faults.append("threads or descriptors are left")
    if soak.answered < soak.asked / 2:
        faults.append("most asks failed")
    for fault in faults:
        print(f"FAILED: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
