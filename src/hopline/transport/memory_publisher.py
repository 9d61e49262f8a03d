"""Publishers in memory, and the subscriptions that listen to them: see `hopline.transport.channels`.

A message to a subscriber that has `capacity` messages under way is dropped and counted, as ZeroMQ does without counting.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from hopline.errors import TransportError
from hopline.transport.channels import OnConnected, OnFrames, OnSubscriber
from hopline.transport.memory import check
from hopline.transport.road import Inbox, Road, nothing

if TYPE_CHECKING:
    from hopline.transport.memory_channels import MemoryChannels


class MemoryPublisher:
    """Tells everybody who listens: see `hopline.transport.channels.Publisher`.

    Attributes:
        life: how many times it was killed.
    """

    def __init__(self, channels: "MemoryChannels", bind: str, on_subscriber: OnSubscriber | None) -> None:
        self.address = channels.network.bind(bind, self)
        self._on_subscriber = on_subscriber
        self.life = 0
        self._channels = channels
        self._network = channels.network
        self._ears: dict[_Ear, None] = {}
        self._is_closed = False

    @property
    def end(self) -> "MemoryPublisher":
        """What is bound."""
        return self

    @property
    def is_heard(self) -> bool:
        """Whether nothing is on the road."""
        return not any(ear.road for ear in self._ears)

    def publish(self, frames: list[bytes]) -> None:
        """Tell all subscribers; one that has too many messages under way misses it."""
        if self._is_closed or not self._channels.is_alive:
            return
        *heads, last = frames
        for ear in list(self._ears):
            ear.hear([*heads, last])

    def close(self) -> None:
        """Close it."""
        self._is_closed = True
        self._network.unbind(self.address, self)
        self._channels.release(self)

    # What ears and the network tell it.

    def welcome(self, ear: "_Ear") -> None:
        """Somebody listens."""
        self._ears[ear] = None
        if self._on_subscriber is not None:
            self._on_subscriber()

    def farewell(self, ear: "_Ear") -> None:
        """Somebody listens no more."""
        self._ears.pop(ear, None)

    def heard(self) -> None:
        """Something has arrived."""
        self._channels.flushed.set()

    def die(self) -> None:
        """Forget everybody."""
        self.life += 1
        self._ears.clear()


class _Ear:
    """Listens to one address."""

    def __init__(
        self, channels: "MemoryChannels", address: str, on_frames: OnFrames, on_connected: OnConnected | None
    ) -> None:
        self.road = Road(channels.network, channels.network.clock, self._arrive)
        self._channels = channels
        self._network = channels.network
        self._address = address
        self._on_connected = on_connected
        self._inbox = Inbox(channels.network, channels.limits, on_frames, channels.on_refused)
        self._publisher: tuple[MemoryPublisher, int] | None = None  # and which of its lives
        self._is_closed = False
        self._network.follow(self)

    def hear(self, frames: list[bytes]) -> None:
        """Take what is published."""
        network = self._network
        is_full = len(self.road) + len(self._inbox) >= network.capacity
        if is_full or network.drops(self._address, self._channels.name, frames):
            network.dropped += 1
        else:
            self.road.carry(frames)

    def refresh_soon(self) -> None:
        """See, in the next turn of the loop, whether the publisher has come or gone."""
        asyncio.get_running_loop().call_soon(self._refresh)

    def close(self) -> None:
        """Listen no more."""
        self._is_closed = True
        self._network.unfollow(self)
        self.die()

    def die(self) -> None:
        """Forget everything."""
        self._break()
        self._network.dropped += self._inbox.lose()

    def _refresh(self) -> None:
        if self._is_closed or not self._channels.is_alive:
            return
        found = self._network.find(self._channels.name, self._address)
        publisher = (found, found.life) if isinstance(found, MemoryPublisher) else None
        if self._publisher is not None and self._publisher != publisher:
            self._break()
            self.refresh_soon()  # it may be there again already
        elif self._publisher is None and publisher is not None:
            self._publisher = publisher
            publisher[0].welcome(self)
            if self._on_connected is not None:
                self._on_connected(self._address)

    def _break(self) -> None:
        self._network.dropped += self.road.clear()
        if self._publisher is not None:
            self._publisher[0].farewell(self)
            self._publisher = None

    def _arrive(self, frames: list[bytes]) -> None:
        if self._publisher is not None:
            self._inbox.put(frames, nothing)
            self._publisher[0].heard()


class MemorySubscription:
    """Listens to publishers: see `hopline.transport.channels.Subscription`."""

    def __init__(self, channels: "MemoryChannels", on_frames: OnFrames, on_connected: OnConnected | None) -> None:
        self._channels = channels
        self._make_ear: Callable[[str], _Ear] = lambda address: _Ear(channels, address, on_frames, on_connected)
        self._ears: dict[str, _Ear] = {}
        self._is_closed = False

    @property
    def addresses(self) -> frozenset[str]:
        """The publishers that it listens to, or tries to."""
        return frozenset(self._ears)

    def connect(self, address: str) -> None:
        """Listen to one more."""
        if self._is_closed:
            raise TransportError("TRANSPORT_CLOSED", f"Cannot connect to {address}: the subscription is closed")
        if address not in self._ears:
            check(address)
            self._ears[address] = self._make_ear(address)

    def disconnect(self, address: str) -> None:
        """Listen to one less; nothing more arrives from there."""
        if ear := self._ears.pop(address, None):
            ear.close()

    def close(self) -> None:
        """Listen to nobody any more."""
        self._is_closed = True
        for address in list(self._ears):
            self.disconnect(address)
        self._channels.release(self)

    def die(self) -> None:
        """Forget everything."""
        for ear in self._ears.values():
            ear.die()
