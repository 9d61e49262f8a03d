"""`make chaos-cluster`: three rendezvous and ten nodes as processes, one of them killed every few seconds, under load.

    python -m tests.e2e.chaos_cluster --minutes 10 [--seed N]

Every node asks the others all the time. Now and then the leader of the rendezvous or some node gets SIGKILL, and comes back
a moment later, at its old address or at a new one. It passes if

    calls succeed, and those that fail were at a node that had just been killed: PEER_LOST, and nothing else
    after each kill and each start all living nodes know all living nodes, and nobody else, within seconds
    after each kill of a leader all nodes hear a new one within seconds
    in the end the books of all that live balance

`python -m tests.e2e.chaos_cluster node ...` is one of the nodes.
"""

import argparse
import asyncio
import contextlib
import json
import random
import socket
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from hopline.assembly import MemberSettings, Node, Settings, survey
from hopline.cluster.endpoints import read_endpoint
from hopline.errors import DeliveryError
from hopline.node.actor import Context
from tests.e2e.world import Ehhlo, Greeter, Hello, balanced, domains

NODES = 10
RENDEZVOUS = 3
CLIENTS = 6
SLOWEST_S = 0.4
"""What an answer may take. So there are always some on their way when a node is killed, and the machine is not busy with
asking alone."""

ASK_S = 20.0
"""Far more than an ask may take, so that a call that hangs is seen as such."""

CONVERGE_S = 15.0
"""Until all know all. A few seconds are enough where processes have a processor each."""

LATE_S = 8.0
"""After a kill, until who waits for an answer of the killed hears that none will come. A closed connection is noticed at
once; heart beats are missed for five seconds."""

MOST_LOST = 2 * CLIENTS
"""Asks that may fail for each kill, on average."""

LINK_DESCRIPTORS = 10
"""What a link to another node needs, about: sockets, their wake-ups, and the heart beat that is listened to."""

SPARE_DESCRIPTORS = 40
"""By which nodes may differ: some have a connection less than others, each way."""

TIMES = {"heartbeat_s": 0.5, "lease_s": 2.0, "clock_drift_s": 0.1, "response_s": 0.2}
MEMBER = MemberSettings(heartbeat_s=1.0, most_missed=5, silence_s=1.5, discovery_s=10.0, stale_after_s=20.0)


# --- a node -----------------------------------------------------------------------------------------------------------


class Slow(Greeter):
    """An actor that takes its time."""

    async def greet(self, hello: Hello, context: Context) -> Ehhlo:
        await asyncio.sleep(random.uniform(0, SLOWEST_S))
        return await super().greet(hello, context)


class Client:
    """A node that asks, and writes down what came of it."""

    def __init__(self, node):
        self.node = node
        self.is_asking = True
        self.asked = self.answered = 0
        self.seconds = []
        self.failed = []

    async def ask(self):
        while self.is_asking:
            began = time.monotonic()
            self.asked += 1
            try:
                await self.node.ask(Hello("x"), Ehhlo, timeout=ASK_S)
                self.answered += 1
                self.seconds.append(time.monotonic() - began)
            except DeliveryError as error:
                self.failed.append((time.time(), error.code, str(error)))

    def report(self):
        membership = self.node.membership
        return {
            "routes": sorted(identity.decode() for identity in self.node.routes()),
            "joined": membership.endpoints.current.unicast if self.node.is_joined else None,
            "asked": self.asked,
            "answered": self.answered,
            "failed": self.failed,
            "seconds": self.seconds[-2000:],
            "rejected": self.node.statistics().rejected,
            "watched": membership.watched,
            "links": self.node.statistics().links,
            "descriptors": len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").is_dir() else 0,
        }


async def serve(identity, bind, *rendezvous):
    """Be a node until standard input ends: tell what it is asked for, a line for a line."""
    node = Node(
        [Slow()],
        bind=bind,
        cluster=rendezvous,
        identity=identity.encode(),
        domains=domains("full"),
        config=Settings(cluster=MEMBER),
    )
    async with node:
        client = Client(node)
        print(json.dumps({"address": node.address}), flush=True)
        # Who has just come knows nobody; it asks when it can.
        while not node.routes():
            await asyncio.sleep(0.05)
        asking = [asyncio.create_task(client.ask()) for _ in range(CLIENTS)]
        lines = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        while line := await lines.readline():
            if line == b"quiet\n":
                client.is_asking = False
                await asyncio.gather(*asking)
            print(json.dumps(client.report()), flush=True)
        client.is_asking = False
        await asyncio.gather(*asking)
    print(json.dumps(client.report() | {"books": asdict(node.statistics()), "balanced": balanced(node)}), flush=True)


# --- the processes ----------------------------------------------------------------------------------------------------


class Process:
    """A process that may be killed."""

    def __init__(self, name, logs):
        self.name = name
        self._log = logs / f"{name}.log" if logs is not None else None
        self.address = ""
        self.said = None

    async def start(self, *arguments):
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._log.open("ab") if self._log is not None else asyncio.subprocess.DEVNULL,
            limit=2**24,
        )
        ready = json.loads(await asyncio.wait_for(self._process.stdout.readline(), 30))
        self.address = ready.get("address", "")
        return self

    async def ask(self, line="status"):
        """Ask a node; None if it has nothing to say, such as that it is not there."""
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self.said = json.loads(await asyncio.wait_for(self._process.stdout.readline(), 30))
        except (TimeoutError, ValueError, ConnectionError):
            return None
        return self.said

    async def kill(self):
        self._process.kill()
        await self._process.wait()
        self._process.stdin.close()

    async def stop(self):
        """End its input, and hear its last words."""
        self._process.stdin.close()
        rest = await asyncio.wait_for(self._process.stdout.read(), 40)
        await asyncio.wait_for(self._process.wait(), 20)
        return json.loads(rest.splitlines()[-1])


def free_ports(count):
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]


class Chaos:
    """Starts, kills, starts again, and looks."""

    def __init__(self, seconds, seed, folder, logs=None):
        self.seconds = seconds
        self.logs = logs
        self.random = random.Random(seed)
        self.folder = folder
        ports = free_ports(3 * RENDEZVOUS)
        places = list(zip(ports[::3], ports[1::3], ports[2::3], strict=True))
        self.synods = [f"tcp://127.0.0.1:{synod}" for _, _, synod in places]
        self.endpoints = [f"tcp://127.0.0.1:{unicast}+{broadcast}" for unicast, broadcast, _ in places]
        self.unicasts = [f"tcp://127.0.0.1:{unicast}" for unicast, _, _ in places]
        self.rendezvous = {}
        self.nodes = {}
        self.lives = Counter()
        self.kills = []
        self.leader_kills = 0
        self.converged = []
        self.led = []
        self.books = []
        self.faults = []
        self.asked = self.answered = 0
        self.took = []
        self.failed = []
        self.most_rejected = 0
        self.held = {}

    # Who is there.

    async def start_rendezvous(self, place):
        config = self.folder / f"rendezvous{place}.toml"
        values = {
            "bind": self.endpoints[place],
            "synod": self.synods[place],
            "members": self.synods,
            "nodes": self.endpoints,
        }
        lines = [f"{key} = {json.dumps(value)}" for key, value in (values | TIMES).items()]
        config.write_text("[rendezvous]\n" + "\n".join(lines) + "\n")
        self.rendezvous[place] = await Process(f"r{place}", self.logs).start(
            "hopline", "rendezvous", "--config", str(config), "--json"
        )

    async def start_node(self, name, bind="tcp://127.0.0.1:0"):
        self.lives[name] += 1
        identity = f"{name}.{self.lives[name]}"
        some = self.random.sample(self.endpoints, 2)  # the third is learned
        self.nodes[name] = await Process(identity, self.logs).start("tests.e2e.chaos_cluster", "node", identity, bind, *some)

    async def leader(self):
        """The place of the rendezvous that leads; None if nobody does."""
        asked = await survey(Settings(), map(read_endpoint, self.unicasts), 1.0)
        named = {one.report.leader.unicast_uri for one in asked if one.report is not None and one.report.leader is not None}
        places = [place for place in self.rendezvous if self.unicasts[place] in named]
        return places[0] if len(named) == 1 and places else None

    # What should come about.

    async def converge(self, what, is_so):
        """Wait until something is so of what all nodes say; how long did that take?"""
        began = time.monotonic()
        while True:
            said = await asyncio.gather(*(node.ask() for node in self.nodes.values()))
            took = time.monotonic() - began
            if None not in said and is_so(said):
                return took
            if took > CONVERGE_S:
                known = {
                    node.name: one and (one["joined"], one["routes"])
                    for node, one in zip(self.nodes.values(), said, strict=True)
                }
                self.faults.append(f"{what}: not within {CONVERGE_S:.0f} s: {known}")
                return took
            await asyncio.sleep(0.1)

    async def all_know_all(self, what):
        names = {node.name for node in self.nodes.values()}

        def is_so(said):
            return all(
                set(one["routes"]) == names - {node.name} for one, node in zip(said, self.nodes.values(), strict=True)
            )

        self.converged.append(await self.converge(what, is_so))

    async def all_hear(self, what):
        began = time.monotonic()
        while (leader := await self.leader()) is None and time.monotonic() - began < CONVERGE_S:
            await asyncio.sleep(0.1)
        where = self.unicasts[leader] if leader is not None else ""
        await self.converge(what, lambda said: all(one["joined"] == where for one in said))
        self.led.append(time.monotonic() - began)

    # What happens.

    async def run(self):
        await asyncio.gather(*(self.start_rendezvous(place) for place in range(RENDEZVOUS)))
        await asyncio.gather(*(self.start_node(f"n{i}") for i in range(NODES)))
        await self.all_hear("start")
        await self.all_know_all("start")
        until = time.monotonic() + self.seconds
        while time.monotonic() < until and not self.faults:
            await asyncio.sleep(self.random.uniform(0.2, 1.5))
            kind = self.random.random()
            if kind < 0.3:
                await self.kill_rendezvous()
            elif kind < 0.85:
                await self.kill_nodes()
            else:
                await self.kill_nodes(and_leader=True)
        await self.end()

    async def kill_rendezvous(self):
        """Kill the leader, or now and then another one, which nobody should notice."""
        leader = await self.leader()
        place = self.random.choice([leader, leader, leader, *self.rendezvous])
        if place is None:
            return
        await self.rendezvous.pop(place).kill()
        self.leader_kills += place == leader
        await self.all_hear(f"after rendezvous {place} was killed")
        await self.all_know_all(f"after rendezvous {place} was killed")
        await self.start_rendezvous(place)

    async def kill_nodes(self, *, and_leader=False):
        leader = await self.leader() if and_leader else None
        if leader is not None:
            await self.rendezvous.pop(leader).kill()
            self.leader_kills += 1
        names = self.random.sample(sorted(self.nodes), self.random.choice([1, 1, 2]))
        for name in names:
            killed = self.nodes.pop(name)
            await killed.ask()
            self.count(killed.said)
            self.kills.append(time.time())
            await killed.kill()
            self.kills.append(time.time())
            names[names.index(name)] = name, killed.address
        if self.random.random() < 0.5:
            await self.all_know_all(f"after {names} were killed")
        for name, address in names:
            await self.start_node(name, address if self.random.random() < 0.5 else "tcp://127.0.0.1:0")
        await self.all_know_all(f"after {names} came back")
        if leader is not None:
            await self.start_rendezvous(leader)

    async def end(self):
        """Let all asks end, then stop all nodes at once and look at their books."""
        last = await asyncio.gather(*(node.ask("quiet") for node in self.nodes.values()))
        if None in last:
            self.faults.append("a node does not answer in the end")
        # Who has seen many come and go holds no more than who has just come.
        said = [one for one in last if one is not None]
        self.held = {name: [one[name] for one in said] for name in ("links", "watched", "descriptors")}
        if max(self.held["links"] + self.held["watched"]) > NODES - 1:
            self.faults.append(f"links or heart beats of nodes that are gone: {self.held}")
        # One that came a moment ago has talked with few: what its links need does not count.
        others = [one["descriptors"] - LINK_DESCRIPTORS * one["links"] for one in said]
        if max(others) > min(others) + SPARE_DESCRIPTORS:
            self.faults.append(f"descriptors are left: {self.held}")
        for report in await asyncio.gather(*(node.stop() for node in self.nodes.values())):
            self.books.append(report["books"])
            self.count(report)
            if not report["balanced"]:
                self.faults.append(f"books do not balance: {report['books']}")
            if report["asked"] != report["answered"] + len(report["failed"]):
                self.faults.append(f"asks that never ended: {report}")
        for process in self.rendezvous.values():
            await process.kill()
        for at, code, text in self.failed:
            if code != "PEER_LOST":
                self.faults.append(f"an ask failed with {code}: {text}")
            elif not any(0 <= at - kill <= LATE_S for kill in self.kills):
                self.faults.append("an ask failed with PEER_LOST, and nobody was killed")
        # Kills come so close that the time alone says little. About as many asks as a node has clients are at each node.
        if len(self.failed) > MOST_LOST * (len(self.kills) // 2):
            self.faults.append(
                f"{len(self.failed)} asks failed, of {len(self.kills) // 2} kills: more than were at those nodes"
            )
        if not self.answered:
            self.faults.append("no ask was answered")

    def count(self, report):
        """Note what a node did in its life."""
        if report is not None:
            self.asked += report["asked"]
            self.answered += report["answered"]
            self.failed += report["failed"]
            self.took += report["seconds"]
            self.most_rejected = max(self.most_rejected, report["rejected"])

    async def give_up(self):
        for process in (*self.nodes.values(), *self.rendezvous.values()):
            with contextlib.suppress(ProcessLookupError):
                await process.kill()

    def report(self):
        took = sorted(self.took) or [0.0]
        lives = sum(self.lives.values())
        yield f"killed {len(self.kills) // 2} nodes and {self.leader_kills} leaders; {lives} lives of {NODES} nodes"
        codes = dict(Counter(code for _, code, _ in self.failed))
        yield f"nodes asked {self.asked} times, were answered {self.answered} times, failed {codes or 'never'}"
        slowest = took[int(len(took) * 0.99)]
        middle = statistics.median(took)
        yield f"an answer took {middle * 1000:.1f} ms in the middle, {slowest * 1000:.1f} ms for the slowest of 100"
        for name, seconds in (("routes were right", self.converged), ("a new leader was heard", self.led)):
            if seconds:
                yield f"{name} after {statistics.median(seconds):.1f} s in the middle, {max(seconds):.1f} s at most"
        for name, counts in self.held.items():
            yield f"in the end a node had {min(counts)} to {max(counts)} {name}"
        yield f"the books of {len(self.books)} nodes were looked at; a node rejected {self.most_rejected} messages at most"


async def chaos(seconds, seed, logs=None):
    """Run it; returns what it saw."""
    with tempfile.TemporaryDirectory() as folder:
        found = Chaos(seconds, seed, Path(folder), logs)
        try:
            await found.run()
        finally:
            await found.give_up()
        return found


def main():
    if sys.argv[1:2] == ["node"]:
        return asyncio.run(serve(*sys.argv[2:]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--logs", type=Path, metavar="DIR", help="keep what the processes complain about in this folder")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    found = asyncio.run(chaos(options.minutes * 60, options.seed, options.logs))
    print("\n".join(found.report()))
    for fault in found.faults:
        print(f"FAILED: {fault}")
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
