"""A real node that takes what Spark sends, in a thread of the tests, over real sockets."""

import asyncio
import contextlib
import threading
from concurrent.futures import Future

from hopline.assembly import Node
from hopline.identity import MessageType
from hopline.node.actor import Actor, Context
from hopline.payload.registry import Payload, declare, message


@message("SINK.ORDER")
class Order(Payload):
    number: int


class Orders(Actor):
    """Notes the orders, and can be told to fail at some of them."""

    concurrency = 50

    def __init__(self, fails_at=()):
        self.taken = []
        self.messages = []
        self.fails_at = set(fails_at)

    async def take(self, order: Order, context: Context) -> None:
        if order.number in self.fails_at:
            raise ValueError(f"no order {order.number}")
        self.taken.append(order.number)
        self.messages.append(context.message)


class Once(Orders):
    """The same, but what came before is not taken again."""

    drop_copies_seconds = 3600.0


class Anything:
    """A body of any shape: orders as others write them."""

    def __init__(self, body):
        self.body = body


declare(Anything, MessageType(b"ORDER.PLACE", 1), lambda order: order.body, Anything)


class Shop(Actor):
    """Takes orders as others write them, each once."""

    drop_copies_seconds = 3600.0

    def __init__(self):
        self.taken = []

    async def place(self, order: Anything) -> None:
        self.taken.append(order.body)


class Receiver:
    """A node in a thread, from `start` to `stop`."""

    def __init__(self, *actors, **settings):
        self.actors = actors
        self._settings = {"bind": "tcp://127.0.0.1:0"} | settings
        self._is_up: Future[Node] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    async def _run(self):
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        try:
            async with Node(self.actors, **self._settings) as node:
                self._is_up.set_result(node)
                await self._end.wait()
        except BaseException as error:
            if not self._is_up.done():
                self._is_up.set_exception(error)
            raise

    def start(self):
        self._thread.start()
        self.node = self._is_up.result(30)
        return self

    def stop(self):
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join(30)

    @property
    def address(self):
        return self.node.address

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()
