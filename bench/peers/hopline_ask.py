"""Hopline: `ask` on one node, an actor on another; or with `--variant alone` both on the same node, in one process.

Traced, as every request is; signed (`kino`) unless `--variant unsigned`. In one process there is nothing to sign.
"""

import asyncio

from bench.node import Echo, Echoed, Echoer, domains
from bench.peers.processes import responder
from bench.peers.rules import PAYLOAD, Figures, Options, await_one_at_a_time, coroutines, free_address, play, ready, run
from hopline import Node


async def answer(options: Options) -> None:
    async with Node([Echoer()], bind=options.serve, domains=None if options.variant == "unsigned" else domains()):
        ready()
        await asyncio.Event().wait()


async def ask(node: Node, seconds: float) -> Figures:
    echo = Echo(PAYLOAD)

    async def call() -> bytes:
        return (await node.ask(echo, Echoed)).data

    async with node:
        return Figures(*await await_one_at_a_time(call, seconds), *await coroutines(call, seconds))


def measure(options: Options) -> Figures:
    if options.variant == "alone":
        return run(ask(Node([Echoer()]), options.seconds), options.loop)
    with responder(f"tcp://{free_address()}") as address:
        node = Node(peers=[address], domains=None if options.variant == "unsigned" else domains())
        return run(ask(node, options.seconds), options.loop)


if __name__ == "__main__":
    play(measure, lambda options: run(answer(options), options.loop))
