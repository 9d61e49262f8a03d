"""nats-py: request and respond through a nats-server of our own, so three processes."""

import asyncio
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import nats  # type: ignore[import-not-found]
from nats.aio.msg import Msg  # type: ignore[import-not-found]

from bench.peers.processes import program, responder
from bench.peers.rules import PAYLOAD, Figures, Options, await_one_at_a_time, coroutines, play, ready, run


@contextmanager
def server() -> Iterator[str]:
    command = [str(program("nats-server")), "--addr", "127.0.0.1", "--port", "-1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        try:
            for line in process.stderr:
                if found := re.search(r"client connections on (\S+)", line):
                    yield f"nats://{found[1]}"
                    return
            raise RuntimeError("nats-server did not start")
        finally:
            process.terminate()


async def answer(address: str) -> None:
    connection = await nats.connect(address)

    async def respond(request: Msg) -> None:
        await request.respond(request.data)

    await connection.subscribe("echo", cb=respond)
    await connection.flush()
    ready()
    await asyncio.Event().wait()


async def ask(address: str, seconds: float) -> Figures:
    connection = await nats.connect(address)

    async def call() -> bytes:
        reply: Msg = await connection.request("echo", PAYLOAD, timeout=30)
        return bytes(reply.data)

    try:
        return Figures(*await await_one_at_a_time(call, seconds), *await coroutines(call, seconds))
    finally:
        await connection.close()


def measure(options: Options) -> Figures:
    with server() as address, responder(address):
        return run(ask(address, options.seconds), options.loop)


if __name__ == "__main__":
    play(measure, lambda options: run(answer(str(options.serve)), options.loop))
