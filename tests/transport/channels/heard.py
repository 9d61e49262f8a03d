"""What channels bring, and ways to wait for it."""

import asyncio
import contextlib
from collections.abc import Callable

from hopline.transport import Channels
from tests.transport.harness import SECONDS


class Heard(list[list[bytes]]):
    """What was heard, and a way to wait for it: an OnFrames, an OnConnected and an OnRefused."""

    def __init__(self) -> None:
        super().__init__()
        self._news = asyncio.Event()

    def __call__(self, *what) -> None:
        self.append(what[0] if len(what) == 1 else what)
        self._news.set()

    async def until(self, is_so: Callable[[], object]) -> None:
        async with asyncio.timeout(SECONDS):
            while not is_so():
                self._news.clear()
                await self._news.wait()

    async def got(self, count: int) -> None:
        await self.until(lambda: len(self) >= count)

    async def hears_after(self, do: Callable[[], object]) -> None:
        """Do something again and again until it is heard: for those of whom nobody tells that they listen."""
        before = len(self)
        async with asyncio.timeout(SECONDS):
            while len(self) == before:
                do()
                self._news.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), 0.01)


async def until(is_so: Callable[[], object]) -> None:
    """Wait for what no callback tells."""
    async with asyncio.timeout(SECONDS):
        while not is_so():
            await asyncio.sleep(0)


async def listening(publisher, heard: Heard) -> None:
    """Wait until what is published is heard, and forget the tries."""
    await heard.hears_after(lambda: publisher.publish([b"does anybody listen?"]))
    publisher.publish([b"good"])
    await heard.until(lambda: [b"good"] in heard)
    heard.clear()


def numbered(count: int) -> list[list[bytes]]:
    return [[b"", b"", b"%d" % number] for number in range(count)]


def every_bind(channels: Channels) -> list[Callable[[str], object]]:
    return [lambda bind: channels.pull(bind, Heard()), channels.publish]
