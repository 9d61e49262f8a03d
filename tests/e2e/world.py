"""Payloads and actors that the end-to-end tests share, and a process that serves them: `python -m tests.e2e.world`."""

import asyncio
import json
import sys
from dataclasses import asdict

from hopline.node.actor import Actor, Context
from hopline.node.node import Node
from hopline.payload.registry import Payload, message
from hopline.security import Domain, Domains
from hopline.transport.zmq import ZmqTransport


@message("HELLO")
class Hello(Payload):
    name: str


@message("EHHLO")
class Ehhlo(Payload):
    text: str
    node: str = ""


@message("NOTICE")
class Notice(Payload):
    text: str = ""


@message("WORK")
class Work(Payload):
    number: int
    seconds: float = 0.0


class Greeter(Actor):
    concurrency = 100

    async def greet(self, hello: Hello, context: Context) -> Ehhlo:
        if hello.name == "bad":
            raise ValueError("a bad name")
        if hello.name == "forever":
            await asyncio.get_running_loop().create_future()
        return Ehhlo(f"hi {hello.name}", context.node.identity.decode())


class Listener(Actor):
    def __init__(self):
        self.heard = []
        self.arrived = asyncio.Event()

    async def listen(self, notice: Notice) -> None:
        self.heard.append(notice.text)
        self.arrived.set()


class Worker(Actor):
    mailbox = 100

    def __init__(self):
        self.done = 0

    async def work(self, work: Work) -> None:
        await asyncio.sleep(work.seconds)
        self.done += 1


def domains(scheme="kino", key=b"0123456789abcdef"):
    identities = frozenset({b"HELLO", b"EHHLO", b"NOTICE", b"WORK"})
    return Domains([Domain("world", keys=(key,), scheme=scheme, identities=identities)])


def balanced(node):
    books = node.statistics()
    return books.taken == books.ended + books.in_flight and books.in_flight == 0


async def serve(bind, identity, *peers):
    """Serve until standard input ends, then print the books."""
    node = Node(
        actors=[Greeter(), Worker()],
        transport=ZmqTransport(bind, identity=identity.encode()),
        identity=identity.encode(),
        peers=peers,
        domains=domains(),
    )
    async with node:
        print(node.address, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    print(json.dumps(asdict(node.statistics()) | {"balanced": balanced(node)}), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
