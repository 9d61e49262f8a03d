"""The transport in memory: the same contract as ZeroMQ in one process, and a network that fails when it is told to.

Everything happens on the running event loop, in the order in which it was asked for; what is random is drawn from one seed.
So a test that failed once fails again.

    MemoryNetwork     who is where, who can reach whom, and the faults
    MemoryLink        a backlog, and up to `capacity` messages under way: memory_link.py
    MemoryTransport   one a node; reads its inbox, `Limits.drain` messages a turn of the loop
    Road, Inbox       how messages travel: road.py
    MemoryChannels    the one-way sockets of a cluster, on the same network: memory_channels.py

What is on the road when a connection ends is dropped; what is in an inbox has arrived.
"""

import asyncio
import contextlib
import itertools
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from hopline.errors import TransportError
from hopline.transport.address import places, taken
from hopline.transport.base import DEFAULT_LIMITS, Limits, Listener
from hopline.transport.faults import Faults
from hopline.transport.memory_link import MemoryLink
from hopline.transport.road import Clock, Inbox

if TYPE_CHECKING:
    from hopline.transport.channels import OnRefused
    from hopline.transport.memory_channels import MemoryChannels

_ADDRESS: Final = re.compile(r"[a-z]+://[^\s*]+")
_FIRST_PORT: Final = 49_152


class Resident(Protocol):
    """Who lives on a network, and can be killed: a transport, or the channels of a node."""

    name: str
    is_alive: bool

    @property
    def places(self) -> Mapping[str, object]:
        """What it has bound, by address."""

    def die(self) -> None:
        """Be gone, as a process that is killed."""

    def revive(self) -> None:
        """Be there again, with nothing in its queues."""


class Follower(Protocol):
    """Who wants to be connected to somebody."""

    def refresh_soon(self) -> None:
        """See, in the next turn of the loop, whether that one has come or gone."""


class _LoopClock:
    def now_ns(self) -> int:
        return int(asyncio.get_running_loop().time() * 1e9)

    def call_at(self, when_ns: int, callback: Callable[[], None]) -> object:
        return asyncio.get_running_loop().call_at(when_ns / 1e9, callback)


class MemoryNetwork(Faults):
    """The network between memory transports. It fails as it is told: see also `Faults`.

    Args:
        seed: what all random faults are drawn from.
        clock: where delays take their time from; the event loop if there is none.
        capacity: messages that a link may have under way; the next ones wait in its backlog.

    Attributes:
        dropped: messages that were handed to the network and will not arrive.
    """

    def __init__(self, *, seed: int = 0, clock: Clock | None = None, capacity: int = 1000) -> None:
        super().__init__(seed)
        self.clock: Clock = clock if clock is not None else _LoopClock()
        self.capacity = capacity
        self.dropped = 0
        self._numbers = itertools.count(1)
        self._ports = itertools.count(_FIRST_PORT)
        self._bound: dict[str, object] = {}
        self._residents: dict[Resident, None] = {}  # a set would not keep the order
        self._followers: dict[Follower, None] = {}
        self._cuts: dict[frozenset[str], bool] = {}

    def partition(self, a: str, b: str, *, is_noticed: bool = True) -> None:
        """Cut the network between two addresses: links are lost; or, unnoticed, all that they carry is dropped."""
        self._cuts[frozenset((a, b))] = is_noticed
        self._refresh()

    def heal(self, a: str = "", b: str = "") -> None:
        """Mend the cut between two addresses, all cuts of one address, or all."""
        ends = {a, b} - {""}
        self._cuts = {cut: is_noticed for cut, is_noticed in self._cuts.items() if not ends <= cut}
        self._refresh()

    def kill(self, address: str) -> None:
        """Let a transport be gone without a goodbye: it hears and sends nothing more, and its peers lose it.

        The channels of the same name are gone with it; channels alone are found by their name or by any of their addresses.
        """
        name = self._name_of(address, is_alive=True)
        for resident in self._those(name, is_alive=True):
            self._clear(resident)
            resident.die()
        self._refresh()

    def restart(self, address: str) -> None:
        """Let a transport come back where it was, with empty queues; if it is not dead, kill it before."""
        try:
            name = self._name_of(address, is_alive=False)
        except KeyError:
            name = self._name_of(address, is_alive=True)
            self.kill(address)
        dead = self._those(name, is_alive=False)
        for resident in dead:
            for place in resident.places:
                if place in self._bound:
                    raise taken(place)
        for resident in dead:
            self._bound.update(resident.places)
            resident.revive()
        self._refresh()

    def channels(
        self, name: str = "", *, limits: Limits = DEFAULT_LIMITS, on_refused: "OnRefused | None" = None
    ) -> "MemoryChannels":
        """The one-way sockets of a node: see `hopline.transport.channels`.

        `name` is what faults call whatever connects or is killed, best the address of the node's transport.
        """
        from hopline.transport.memory_channels import MemoryChannels  # noqa: PLC0415 - it needs this file

        return MemoryChannels(self, name, limits=limits, on_refused=on_refused)

    # What transports and links ask.

    def number(self) -> int:
        """A number that nobody else was given."""
        return next(self._numbers)

    def join(self, resident: Resident) -> None:
        """Let somebody live here, and be killed."""
        self._residents[resident] = None

    def leave(self, resident: Resident) -> None:
        """Make somebody unreachable, for good."""
        if self._residents.pop(resident, self) is None:
            self._clear(resident)
            self._refresh()

    def bind(self, address: str, end: object) -> str:
        """Make something reachable; returns its address, with a port if that was 0 or a range."""
        check(address)
        if address.endswith(":0"):
            address = f"{address[:-1]}{next(self._ports)}"
        for place in places(address):
            if place not in self._bound:
                self._bound[place] = end
                self._refresh()
                return place
        raise taken(address)

    def unbind(self, address: str, end: object) -> None:
        """Make something unreachable."""
        if self._bound.get(address) is end:
            del self._bound[address]
            self._refresh()

    def follow(self, follower: Follower) -> None:
        """Look after a link: let it know whenever somebody comes or goes."""
        self._followers[follower] = None
        follower.refresh_soon()

    def unfollow(self, follower: Follower) -> None:
        """Look after a link no more."""
        self._followers.pop(follower, None)

    def find(self, source: str, target: str) -> object:
        """What is bound at an address, if it can be reached."""
        return None if self._cuts.get(frozenset((source, target))) else self._bound.get(target)

    def drops(self, source: str, target: str, frames: list[bytes]) -> bool:
        """Whether the next message is dropped; always if there is a cut in between."""
        return frozenset((source, target)) in self._cuts or super().drops(source, target, frames)

    def _refresh(self) -> None:
        for follower in self._followers:
            follower.refresh_soon()

    def _clear(self, resident: Resident) -> None:
        for place, end in resident.places.items():
            if self._bound.get(place) is end:
                del self._bound[place]

    def _those(self, name: str, *, is_alive: bool) -> list[Resident]:
        return [resident for resident in self._residents if resident.name == name and resident.is_alive == is_alive]

    def _name_of(self, address: str, *, is_alive: bool) -> str:
        """The name of who is, or was, at an address; KeyError if that is nobody."""
        for resident in self._residents:
            if resident.is_alive == is_alive and (address == resident.name or address in resident.places):
                return resident.name
        raise KeyError(address)


class MemoryTransport:
    """Moves frame lists in memory: see `hopline.transport.base.Transport`.

    Args:
        network: what connects this one to others.
        bind: where others reach us, such as `tcp://node-1:5000` or `memory://a`; port 0 takes a free one, a range of ports
            its first free one. Empty: nowhere.
        limits: what is held and taken at most.

    Attributes:
        name: what faults call this transport; its address, or a name of its own if it has none.
        is_alive: whether it runs, and was not killed.
    """

    def __init__(self, network: MemoryNetwork, bind: str = "", *, limits: Limits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self.name = ""
        self.is_alive = False
        self.flushed = asyncio.Event()
        self._network = network
        self._bind_address = bind
        self._address = ""
        self._listener: Listener
        self._links: dict[str, MemoryLink] = {}
        self._inbox: Inbox | None = None
        self._is_started = self._is_closed = False

    @property
    def address(self) -> str:
        """Where we are bound; empty before `start` or if nothing is."""
        return self._address

    @property
    def places(self) -> dict[str, Inbox]:
        """What we have bound: our inbox, if anything."""
        return {self._address: self._inbox} if self._address and self._inbox is not None else {}

    async def start(self, listener: Listener) -> None:
        """Bind and begin to read."""
        if self._is_started or self._is_closed:
            raise TransportError("TRANSPORT_CLOSED", "A transport starts once: make a new one")
        inbox = Inbox(self._network, self.limits, partial(_tell, listener), listener.on_refused)
        if self._bind_address:
            self._address = self._network.bind(self._bind_address, inbox)
        self._inbox = inbox
        self.name = self._address or f"memory://nowhere-{self._network.number()}"
        self._listener = listener
        self._is_started = self.is_alive = True
        self._network.join(self)

    def connect(self, address: str) -> MemoryLink:
        """Begin to connect; the link that is there already, if there is one."""
        if not self.is_alive:
            raise TransportError("TRANSPORT_CLOSED", f"Cannot connect to {address}: the transport is not running")
        link = self._links.get(address)
        if link is None:
            check(address)
            link = self._links[address] = MemoryLink(self._network, self, address, self._listener)
            self._network.follow(link)
        return link

    def takes_bundles(self, source: bytes) -> bool:  # noqa: ARG002 - a Transport
        """Nothing is saved by bundles where nothing is copied."""
        return False

    def pause(self) -> None:
        """Stop reading; messages stay in the inbox and the links to us fill up."""
        if self._inbox is not None:
            self._inbox.pause()

    def resume(self) -> None:
        """Read again."""
        if self._inbox is not None:
            self._inbox.resume()

    async def close(self, linger: float = 0.0) -> None:
        """Close everything; for up to `linger` seconds connected peers are given what waits for them.

        What then still waits is handed back with `on_lost`.
        """
        if not self.is_alive:
            self._is_closed = True
            self._network.leave(self)
            return
        self._is_closed = True
        self.pause()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(linger):
                    while any(link.is_connected and link.pending for link in self._links.values()):
                        self.flushed.clear()
                        await self.flushed.wait()
        finally:
            self.is_alive = False
            self._network.leave(self)
            self._lose()
            for link in list(self._links.values()):
                if unsent := link.close():
                    self._listener.on_lost(link, unsent)

    # What the network and links ask.

    def forget(self, link: MemoryLink) -> None:
        """A link was closed."""
        if self._links.get(link.address) is link:
            del self._links[link.address]

    def die(self) -> None:
        """Be gone, as a process that is killed."""
        self.is_alive = False
        self._lose()
        for link in self._links.values():
            link.die()

    def revive(self) -> None:
        """Be there again."""
        self.is_alive = True
        self.resume()

    def _lose(self) -> None:
        if self._inbox is not None:
            self._network.dropped += self._inbox.lose()


def _tell(listener: Listener, frames: list[bytes]) -> None:
    listener.on_received([frames])
    listener.on_message(frames)


def check(address: str) -> None:
    """Raise TransportError unless this is an address."""
    if not _ADDRESS.fullmatch(address):
        raise TransportError("TRANSPORT_BAD_ADDRESS", f"{address!r} is no address: write tcp://HOST:PORT or memory://NAME")
