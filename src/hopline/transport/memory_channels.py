"""Channels in memory: see `hopline.transport.channels`. They live on the network of memory.py and share its faults.

    push           a link; what is replied comes back on a road of its own
    pull           an inbox that knows the pushes that are connected to it
    publisher      knows the ears that listen to it: memory_publisher.py
    subscription   an ear for each address: a road and an inbox

Faults know who connects by the name of its channels, and what is bound by its address.
"""

import asyncio
import contextlib
from dataclasses import replace
from typing import Final

from hopline.errors import TransportError
from hopline.transport.base import DEFAULT_LIMITS, NOT_ASKED_FOR, Limits, Link
from hopline.transport.bundle import GREETING
from hopline.transport.channels import OnConnected, OnFrames, OnRefused, OnSubscriber, ignore
from hopline.transport.memory import MemoryNetwork, check
from hopline.transport.memory_link import MemoryLink
from hopline.transport.memory_publisher import MemoryPublisher, MemorySubscription
from hopline.transport.road import Inbox, Road, nothing

_HELD: Final = 256
"""Messages that wait in a push for its address; as many as libzmq holds for one."""


class MemoryPush:
    """Sends to one address: see `hopline.transport.channels.Push`."""

    def __init__(self, channels: "MemoryChannels", address: str, on_reply: OnFrames | None) -> None:
        self.address = address
        self._channels = channels
        self._network = channels.network
        self._inbox = Inbox(
            channels.network, channels.limits, on_reply if on_reply is not None else self._refuse, channels.on_refused
        )
        self._road = Road(channels.network, channels.network.clock, lambda reply: self._inbox.put(reply, nothing))
        self._door: _Door | None = None
        self._link = MemoryLink(channels.network, channels, address, self, GREETING)
        self._network.follow(self._link)

    @property
    def is_connected(self) -> bool:
        """Whether the address can be reached right now."""
        return self._link.is_connected

    @property
    def pending(self) -> int:
        """Messages that the network has not taken yet."""
        return self._link.pending

    @property
    def name(self) -> str:
        """What faults call it."""
        return self._channels.name

    def send(self, frames: list[bytes]) -> bool:
        """Take a message; False if there is no room or the push is closed."""
        return self._link.send([b"", *frames])

    def close(self) -> None:
        """Close it; what is on the road still arrives."""
        self._link.close()
        self._hang_up()
        self._network.dropped += self._inbox.lose()
        self._channels.release(self)

    # What its link and the pull tell it.

    def on_connected(self, link: Link) -> None:  # noqa: ARG002 - its only one
        """Let the pull know whom to reply to."""
        found = self._network.find(self.name, self.address)
        if isinstance(found, _Door):
            self._door = found
            found.pushes[self._link.route] = self

    def on_lost(self, link: Link, unsent: list[list[bytes]]) -> None:
        """Wait for the address to come back: what was not sent waits on."""
        self._hang_up()
        for frames in unsent:
            link.send(frames)

    def on_room(self, link: Link) -> None:
        """Nobody waits for room."""

    def on_sending(self) -> None:
        """Who pushes knows when."""

    def on_sent(self, messages: list[list[bytes]]) -> None:
        """Who pushes knows what."""

    def hear(self, frames: list[bytes]) -> bool:
        """Take a reply; False if too many are under way."""
        network = self._network
        if len(self._road) + len(self._inbox) >= network.capacity:
            return False
        if network.drops(self.address, self.name, frames):
            network.dropped += 1
        else:
            self._road.carry(frames)
        return True

    def die(self) -> None:
        """Forget everything."""
        self._link.die()
        self._hang_up()
        self._network.dropped += self._inbox.lose()

    def _hang_up(self) -> None:
        self._network.dropped += self._road.clear()
        if self._door is not None:
            self._door.pushes.pop(self._link.route, None)
            self._door = None

    def _refuse(self, frames: list[bytes]) -> None:
        self._channels.on_refused(NOT_ASKED_FOR, sum(map(len, frames)))


class _Door(Inbox):
    """The inbox of a pull: knows the pushes that are connected to it, by what their messages begin with."""

    def __init__(self, channels: "MemoryChannels", on_frames: OnFrames) -> None:
        super().__init__(channels.network, channels.limits, on_frames, channels.on_refused)
        self.pushes: dict[bytes, MemoryPush] = {}


class MemoryPull:
    """Takes what pushes send: see `hopline.transport.channels.Pull`."""

    def __init__(self, channels: "MemoryChannels", bind: str, on_frames: OnFrames) -> None:
        self.end = _Door(channels, on_frames)
        self.address = channels.network.bind(bind, self.end)
        self._channels = channels
        self._network = channels.network

    def reply(self, source: bytes, frames: list[bytes]) -> bool:
        """Send an answer to where a message came from; False if that one is gone or full."""
        *heads, last = frames
        push = self.end.pushes.get(source)
        if push is None or self._network.find(push.name, self.address) is not self.end:
            return False
        return push.hear([*heads, last])

    def close(self) -> None:
        """Close it."""
        self._network.unbind(self.address, self.end)
        self.die()
        self._channels.release(self)

    def die(self) -> None:
        """Forget everything."""
        self._network.dropped += self.end.lose()
        self.end.pushes.clear()


class MemoryChannels:
    """Makes channels in memory: see `hopline.transport.channels.Channels`. `MemoryNetwork.channels` makes one.

    Args:
        network: what connects these to others.
        name: what faults call whatever connects; a name of its own if it has none.
        limits: what is taken from outside at most.
        on_refused: hears of what broke a limit.

    Attributes:
        is_alive: whether they are not closed, and were not killed.
    """

    def __init__(
        self,
        network: MemoryNetwork,
        name: str = "",
        *,
        limits: Limits = DEFAULT_LIMITS,
        on_refused: OnRefused | None = None,
    ) -> None:
        self.network = network
        self.name = name or f"memory://nowhere-{network.number()}"
        self.limits = replace(limits, queue_messages=min(_HELD, limits.queue_messages))
        self.on_refused = on_refused if on_refused is not None else ignore
        self.is_alive = True
        self.flushed = asyncio.Event()
        self._is_closed = False
        self._open: dict[MemoryPush | MemoryPull | MemoryPublisher | MemorySubscription, None] = {}
        network.join(self)

    @property
    def places(self) -> dict[str, object]:
        """What is bound, by address."""
        return {channel.address: channel.end for channel in self._open if isinstance(channel, MemoryPull | MemoryPublisher)}

    def push(self, address: str, on_reply: OnFrames | None = None) -> MemoryPush:
        """Begin to connect to a pull."""
        self._check_running()
        check(address)
        push = MemoryPush(self, address, on_reply)
        self._open[push] = None
        return push

    def pull(self, bind: str, on_frames: OnFrames) -> MemoryPull:
        """Bind and begin to read."""
        self._check_running()
        pull = MemoryPull(self, bind, on_frames)
        self._open[pull] = None
        return pull

    def publish(self, bind: str, on_subscriber: OnSubscriber | None = None) -> MemoryPublisher:
        """Bind a publisher."""
        self._check_running()
        publisher = MemoryPublisher(self, bind, on_subscriber)
        self._open[publisher] = None
        return publisher

    def subscribe(self, on_frames: OnFrames, on_connected: OnConnected | None = None) -> MemorySubscription:
        """A subscription that listens to nobody yet."""
        self._check_running()
        subscription = MemorySubscription(self, on_frames, on_connected)
        self._open[subscription] = None
        return subscription

    async def close(self, linger: float = 0.0) -> None:
        """Close everything; for up to `linger` seconds those that are connected are given what waits for them."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(linger):
                    while self.is_alive and self._has_unsent():
                        self.flushed.clear()
                        await self.flushed.wait()
        finally:
            for channel in list(self._open):
                channel.close()
            self.is_alive = False
            self.network.leave(self)

    # What the network and channels ask.

    def release(self, channel: MemoryPush | MemoryPull | MemoryPublisher | MemorySubscription) -> None:
        """A channel was closed."""
        self._open.pop(channel, None)

    def forget(self, link: MemoryLink) -> None:
        """A link was closed: its push has told us."""

    def die(self) -> None:
        """Be gone, as a process that is killed."""
        self.is_alive = False
        for channel in self._open:
            channel.die()

    def revive(self) -> None:
        """Be there again, with nothing in the queues."""
        self.is_alive = True

    def _check_running(self) -> None:
        if self._is_closed or not self.is_alive:
            raise TransportError("TRANSPORT_CLOSED", "These channels are closed: make new ones")

    def _has_unsent(self) -> bool:
        return any(
            (isinstance(channel, MemoryPush) and channel.is_connected and channel.pending)
            or (isinstance(channel, MemoryPublisher) and not channel.is_heard)
            for channel in self._open
        )
