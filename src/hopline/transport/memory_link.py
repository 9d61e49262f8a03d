"""The link of a transport in memory: a backlog, and messages under way to its peer.

Up to `capacity` messages of a link are under way, on the road or in the inbox of the peer; the next ones wait.
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Protocol

from hopline.transport.backlog import Backlog
from hopline.transport.base import Limits, Link
from hopline.transport.road import Inbox, Road

if TYPE_CHECKING:
    from hopline.transport.memory import MemoryNetwork


class LinkOwner(Protocol):
    """Whose link it is."""

    name: str
    limits: Limits
    is_alive: bool
    flushed: asyncio.Event

    def forget(self, link: "MemoryLink") -> None:
        """A link was closed."""


class LinkListener(Protocol):
    """What a link tells: a part of `Listener`."""

    def on_sending(self) -> None:
        """Hear that the network is about to be given messages."""

    def on_sent(self, messages: list[list[bytes]]) -> None:
        """Hear that the network has taken messages."""

    def on_connected(self, link: Link) -> None:
        """Hear that the peer can be reached."""

    def on_lost(self, link: Link, unsent: list[list[bytes]]) -> None:
        """Hear that the peer is gone."""

    def on_room(self, link: Link) -> None:
        """Hear that there is room again."""


class MemoryLink:
    """A connection to one peer: see `hopline.transport.base.Link`."""

    takes_bundles = False

    def __init__(
        self, network: "MemoryNetwork", owner: LinkOwner, address: str, listener: LinkListener, greeting: bytes = b"\0"
    ) -> None:
        self.address = address
        self.route = greeting + network.number().to_bytes(4, "big")  # without one as a ROUTER names who gave no name
        self._network = network
        self._owner = owner
        self._listener = listener
        self._backlog = Backlog(owner.limits)
        self._peer: tuple[Inbox, int] | None = None  # and which of its lives
        self._connection = 0
        self._road = Road(network, network.clock, self._arrive)
        self._under_way = 0
        self._is_closed = False

    @property
    def is_connected(self) -> bool:
        """Whether the peer can be reached right now."""
        return self._peer is not None

    @property
    def pending(self) -> int:
        """Messages that the network has not taken yet."""
        return len(self._backlog)

    def send(self, frames: list[bytes]) -> bool:
        """Take a message for the peer; False if the link is full or closed. Frame 0 does not travel."""
        if self._is_closed or not self._owner.is_alive:
            return False
        if self._peer is not None and not self._backlog and self._under_way < self._network.capacity:
            self._carry(frames)
            return True
        return self._backlog.put(frames)

    def close(self) -> list[list[bytes]]:
        """Close the connection; returns what waited. What is on the road still arrives."""
        self._is_closed = True
        self._peer = None
        self._network.unfollow(self)
        self._owner.forget(self)
        return self._backlog.clear()

    def refresh_soon(self) -> None:
        """See, in the next turn of the loop, whether the peer has come or gone."""
        asyncio.get_running_loop().call_soon(self._refresh)

    def taken(self, connection: int) -> None:
        """The peer has read a message."""
        if connection == self._connection:
            self._under_way -= 1
            if self._backlog:
                self._flush()

    def die(self) -> None:
        """Forget everything, as a process does that is killed."""
        self._backlog.clear()
        self._break()

    def _refresh(self) -> None:
        if self._is_closed or not self._owner.is_alive:
            return
        found = self._network.find(self._owner.name, self.address)
        peer = (found, found.life) if isinstance(found, Inbox) else None
        if self._peer is not None and self._peer != peer:
            self._break()
            self.refresh_soon()  # it may be there again already
            try:
                self._listener.on_lost(self, self._backlog.clear())
            finally:
                self._tell_room()
        elif self._peer is None and peer is not None:
            self._peer = peer
            try:
                self._listener.on_connected(self)
            finally:
                self._flush()

    def _break(self) -> None:
        self._network.dropped += self._road.clear()
        self._peer = None
        self._connection += 1
        self._under_way = 0

    def _flush(self) -> None:
        while self._peer is not None and self._backlog and self._under_way < self._network.capacity:
            self._carry(self._backlog.take()[0])
        self._tell_room()

    def _tell_room(self) -> None:
        if not self._backlog:
            self._owner.flushed.set()
        if self._backlog.has_room_again():
            self._listener.on_room(self)

    def _carry(self, frames: list[bytes]) -> None:
        _, *heads, last = frames
        self._listener.on_sending()
        self._listener.on_sent([frames])
        network = self._network
        if network.drops(self._owner.name, self.address, frames):
            network.dropped += 1
            return
        self._under_way += 1
        self._road.carry([self.route, *heads, last])

    def _arrive(self, message: list[bytes]) -> None:
        peer = self._network.find(self._owner.name, self.address)
        if not isinstance(peer, Inbox) or (self._peer is not None and self._peer != (peer, peer.life)):
            self._network.dropped += 1  # it has just gone, and we have not seen that yet
        else:
            peer.put(message, partial(self.taken, self._connection))
