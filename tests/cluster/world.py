"""A cluster in memory that the tests move by hand: no time passes unless a test lets it."""

import asyncio
import contextlib
import random

from hopline.cluster.embedded import Embedded
from hopline.cluster.endpoints import Endpoint, read_endpoint
from hopline.cluster.membership import Membership
from hopline.cluster.rendezvous import Rendezvous
from hopline.cluster.settings import ClusterSettings, RendezvousSettings
from hopline.node.node import Node
from hopline.testing import ManualClock, MemoryNetwork, MemoryTransport

STEP_S = 0.05
TURNS = 12
"""Turns of the event loop between two steps of the clock: what is said at one time is heard at that time."""


class JumpingClock(ManualClock):
    """One that can leave out some time, as it seems to a process that was stopped: what was due comes late."""

    def jump(self, seconds):
        self._now_ns += round(seconds * 1e9)


class Cluster:
    """Makes rendezvous and nodes on one network with one clock, and lets time pass."""

    def __init__(self, seed=1, capacity=20_000):
        self.clock = JumpingClock()
        self.network = MemoryNetwork(seed=seed, clock=self.clock, capacity=capacity)
        self.random = random.Random(seed)
        self.nodes = {}
        self.rendezvous = {}
        self._closing = []

    # Who is there.

    async def lead(self, name="r", *, others=(), **settings):
        """Start a rendezvous; with `others` it shares the lease with them."""
        synods = tuple(f"tcp://{one}:7001" for one in (name, *others)) if others else ()
        settings = {
            "bind": f"tcp://{name}:8011",
            "synod": f"tcp://{name}:7001" if others else "",
            "members": tuple(sorted(synods)),
            "nodes": tuple(f"tcp://{one}:8011" for one in sorted((name, *others))),
        } | settings
        rendezvous = Rendezvous(
            RendezvousSettings(**settings),
            self.network.channels(f"tcp://{name}:8011"),
            clock=self.clock,
            random=random.Random(self.random.random()).random,
        )
        await rendezvous.start()
        self.rendezvous[name] = rendezvous
        return rendezvous

    def make(self, name, *actors, at=("tcp://r:8011",), embed="", may_listen=None, settings=None, **more):
        """A node that is not started yet."""
        address = f"tcp://{name}:5000"
        embedded = None
        if embed:
            embedded = Embedded(lambda: self._embedded(name, embed))
        membership = Membership(
            [one if isinstance(one, Endpoint) else read_endpoint(one) for one in at],
            self.network.channels(address),
            health_bind=f"tcp://{name}:5001",
            settings=settings or ClusterSettings(),
            random=random.Random(self.random.random()).random,
            embedded=embedded,
            **({} if may_listen is None else {"may_connect": may_listen}),
        )
        more = {"identity": name.encode()} | more
        return Node(
            actors=actors,
            transport=MemoryTransport(self.network, address),
            clock=self.clock,
            membership=membership,
            **more,
        )

    async def node(self, name, *actors, **more):
        """Start a node."""
        node = self.nodes[name] = self.make(name, *actors, **more)
        await node.start()
        return node

    def _embedded(self, name, embed):
        return Rendezvous(
            RendezvousSettings(bind=embed),
            self.network.channels(f"tcp://{name}:5000"),
            clock=self.clock,
            random=self.random.random,
        )

    def kill(self, name):
        """A process is gone without a word."""
        address = f"tcp://{name}:8011" if name in self.rendezvous else f"tcp://{name}:5000"
        self.network.kill(address)
        if name in self.rendezvous:
            killed = self.rendezvous.pop(name)
            self._closing.append(asyncio.ensure_future(killed.close()))
        else:
            killed = self.nodes.pop(name)
            self._closing.append(asyncio.ensure_future(killed.stop(0)))
        return killed

    async def stop(self, name):
        """A node stops as it should."""
        node = self.nodes.pop(name)
        await self.wait(node.stop())
        return node

    @property
    def leaders(self):
        return [name for name, rendezvous in self.rendezvous.items() if rendezvous.is_leader]

    # Time.

    async def settle(self):
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def run(self, seconds):
        for _ in range(max(1, round(seconds / STEP_S))):
            self.clock.advance(STEP_S)
            await self.settle()

    async def until(self, condition, seconds=10.0):
        """Let time pass until something holds; returns how long that took."""
        await self.settle()
        since_ns = self.clock.now_ns()
        while not condition():
            if self.clock.now_ns() - since_ns > seconds * 1e9:
                raise AssertionError(f"did not come about within {seconds} s")
            await self.run(STEP_S)
        return (self.clock.now_ns() - since_ns) / 1e9

    async def wait(self, coroutine, seconds=40.0):
        """Let time pass until a coroutine is done; returns its result."""
        task = asyncio.ensure_future(coroutine)
        await self.until(task.done, seconds)
        return await task

    async def close(self):
        for name in list(self.nodes):
            await self.stop(name)
        for rendezvous in self.rendezvous.values():
            await rendezvous.close()
        await self.wait(asyncio.gather(*self._closing))


def play(test, **settings):
    """Run a test on a cluster of its own."""

    async def run():
        cluster = Cluster(**settings)
        raised = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: raised.append(context.get("exception") or context)
        )
        try:
            await test(cluster)
        finally:
            with contextlib.suppress(AssertionError):
                await cluster.close()
        if raised:
            raise ExceptionGroup("raised in callbacks", raised)

    asyncio.run(asyncio.wait_for(run(), 50))


def know_each_other(*nodes):
    """Whether each of these nodes knows all others."""
    return all(other.identity in node.routes() for node in nodes for other in nodes if other is not node)
