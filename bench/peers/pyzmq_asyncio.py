"""pyzmq's asyncio sockets: what one would write by hand. A thousand in flight find their answer by a correlation id."""

import asyncio
import itertools

import zmq
import zmq.asyncio

from bench.peers.processes import responder
from bench.peers.rules import (
    PAYLOAD,
    ROOMY,
    Figures,
    Options,
    await_one_at_a_time,
    coroutines,
    free_address,
    play,
    ready,
    run,
)


async def answer(address: str) -> None:
    socket = zmq.asyncio.Context().socket(zmq.ROUTER)
    socket.set_hwm(ROOMY)
    socket.bind(address)
    ready()
    while True:
        await socket.send_multipart(await socket.recv_multipart())


async def ask(address: str, seconds: float) -> Figures:
    waiting: dict[bytes, asyncio.Future[bytes]] = {}
    numbers = itertools.count()
    loop = asyncio.get_running_loop()
    with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.set_hwm(ROOMY)
        socket.connect(address)

        async def call_alone() -> bytes:
            await socket.send(PAYLOAD)
            return await socket.recv()

        async def call() -> bytes:
            key = next(numbers).to_bytes(8, "little")
            future: asyncio.Future[bytes] = loop.create_future()
            waiting[key] = future
            await socket.send_multipart([key, PAYLOAD])
            return await future

        async def read() -> None:
            while True:
                key, payload = await socket.recv_multipart()
                waiting.pop(key).set_result(payload)

        one = await await_one_at_a_time(call_alone, seconds)
        reader = asyncio.create_task(read())
        many = await coroutines(call, seconds)
        reader.cancel()
        return Figures(*one, *many)


def measure(options: Options) -> Figures:
    with responder(f"tcp://{free_address()}") as address:
        return run(ask(address, options.seconds), options.loop)


if __name__ == "__main__":
    play(measure, lambda options: run(answer(str(options.serve)), options.loop))
