"""What the tests of all transports share: a listener that writes everything down, and a world that must be empty after."""

import asyncio
import gc
import itertools
import os
import socket
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from hopline.transport import Channels, Limits, Link, MemoryNetwork, MemoryTransport, Transport, ZmqChannels, ZmqTransport

KINDS = ["memory", "tcp", "ipc", "tcp-uvloop", "tcp-bundles"]
SECONDS = 10


class Recorder:
    """A listener that keeps what it hears, and lets one wait for it."""

    def __init__(self) -> None:
        self.messages: list[list[bytes]] = []
        self.received: list[list[list[bytes]]] = []
        self.sent: list[list[list[bytes]]] = []
        self.sending = 0
        self.refused: list[tuple[str, int]] = []
        self.connected: list[Any] = []
        self.lost: list[tuple[Any, list[list[bytes]]]] = []
        self.room: list[Any] = []
        self.transport: Any = None
        self.bundles = False
        self._heard = asyncio.Event()

    def on_message(self, frames):
        self.messages.append(frames)
        self._heard.set()

    def on_received(self, messages):
        self.received.append(messages)

    def on_sending(self):
        self.sending += 1

    def on_sent(self, messages):
        assert self.sending > len(self.sent), "it was said before"
        self.sent.append(messages)

    def on_refused(self, reason, size):
        self.refused.append((reason, size))
        self._heard.set()

    def on_connected(self, link):
        link.takes_bundles = self.bundles
        self.connected.append(link)
        self._heard.set()

    def on_lost(self, link, unsent):
        self.lost.append((link, unsent))
        self._heard.set()

    def on_room(self, link):
        self.room.append(link)
        self._heard.set()

    @property
    def bodies(self) -> list[bytes]:
        """What was sent with `message`."""
        return [frames[2] for frames in self.messages]

    @property
    def address(self) -> str:
        return self.transport.address

    def connect(self, to: "Recorder | str") -> Link:
        return self.transport.connect(to if isinstance(to, str) else to.address)

    async def link(self, to: "Recorder | str") -> Link:
        """A link that is connected."""
        link = self.connect(to)
        await self.until(lambda: link.is_connected)
        return link

    async def until(self, is_so: Callable[[], object]) -> None:
        """Wait for what is heard to be so."""
        async with asyncio.timeout(SECONDS):
            while not is_so():
                self._heard.clear()
                await self._heard.wait()

    async def got(self, count: int) -> None:
        """Wait for so many messages."""
        await self.until(lambda: len(self.messages) >= count)

    async def send_all(self, link: Link, messages: list[list[bytes]]) -> None:
        """Send them all, and wait whenever the link is full."""
        for frames in messages:
            while not link.send(frames):
                rooms = len(self.room)
                await self.until(lambda rooms=rooms: len(self.room) > rooms)


def message(number: int, size: int = 0) -> list[bytes]:
    """A message as the wire formats make them: identity, delimiter, body, meta."""
    return [b"whoever", b"", b"%d" % number + b"." * size, b"meta"]


def messages(count: int, size: int = 0) -> list[list[bytes]]:
    return [message(number, size) for number in range(count)]


def bodies(count: int, size: int = 0) -> list[bytes]:
    return [frames[2] for frames in messages(count, size)]


def fill(link: Link, size: int = 0) -> int:
    """Send until the link is full; returns how many it took."""
    return next(number for number in itertools.count() if not link.send(message(number, size)))


HEAVY = b"." * 20_000
MORE_THAN_A_NETWORK_HOLDS = Limits(queue_messages=5000, queue_bytes=2**40)
"""For heavy messages: libzmq holds 2000 of them between two nodes, and the system, with 36 MB of buffers, 1800."""


def heavy(number: int) -> list[bytes]:
    return [b"whoever", b"", b"%d" % number, HEAVY]


def fill_for_good(link: Link) -> int:
    """Send until the link is full, so that some must wait until the peer reads; returns how many it took."""
    return next(number for number in itertools.count() if not link.send(heavy(number)))


class CountingLoop(asyncio.SelectorEventLoop):
    """An event loop that knows who reads from it."""

    def __init__(self) -> None:
        self.readers: set[int] = set()
        super().__init__()

    def add_reader(self, fd, callback, *args):
        self.readers.add(fd)
        super().add_reader(fd, callback, *args)

    def remove_reader(self, fd):
        self.readers.discard(fd)
        return super().remove_reader(fd)


class World:
    """Makes transports of one kind, runs a scenario, and looks that nothing of it is left."""

    def __init__(self, kind: str, path: Path) -> None:
        self.kind = kind
        self.network = MemoryNetwork()
        self.is_real = kind != "memory"
        self.errors: list[dict[str, Any]] = []
        self._path = path
        self._numbers = itertools.count()
        self._transports: list[Transport | Channels] = []

    def address(self) -> str:
        """An address that is free."""
        if self.kind == "ipc":
            return f"ipc://{self._path}/{next(self._numbers)}"
        if self.kind == "memory":
            return f"memory://{next(self._numbers)}"
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", 0))
            return f"tcp://127.0.0.1:{probe.getsockname()[1]}"

    def make(self, bind: str, **options: object) -> Transport:
        transport = ZmqTransport(bind, **options) if self.is_real else MemoryTransport(self.network, bind, **options)
        self._transports.append(transport)
        return transport

    def channels(self, name: str = "", **options: object) -> Channels:
        """Channels; only those in memory have a name."""
        channels = ZmqChannels(**options) if self.is_real else self.network.channels(name, **options)
        self._transports.append(channels)
        return channels

    async def node(self, bind: str | None = None, *, listener: Recorder | None = None, **options: object) -> Recorder:
        """A started transport and its listener."""
        listener = listener or Recorder()
        listener.bundles = self.kind.endswith("bundles")
        listener.transport = self.make(self.address() if bind is None else bind, **options)
        await listener.transport.start(listener)
        return listener

    def run(self, scenario: Callable[[], Awaitable[None]]) -> None:
        """Run it; fails if it leaves a descriptor, a reader, a thread, a task or an error of the event loop behind."""
        factory = pytest.importorskip("uvloop").new_event_loop if self.kind.endswith("uvloop") else CountingLoop
        with asyncio.Runner(loop_factory=factory) as runner:
            loop = runner.get_loop()
            before = _open_things()
            runner.run(self._play(scenario))
            gc.collect()
            assert _open_things() == before
            assert not getattr(loop, "readers", None)
        assert self.errors == []

    async def _play(self, scenario: Callable[[], Awaitable[None]]) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self.errors.append(context))
        try:
            await scenario()
        finally:
            for transport in self._transports:
                await transport.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}


def _open_things() -> tuple[int, int, int]:
    """Descriptors, threads of Python and threads of anybody."""
    return len(os.listdir("/proc/self/fd")), threading.active_count(), len(os.listdir("/proc/self/task"))  # noqa: PTH208


LIMITS_OF_TEN = Limits(queue_messages=10)
