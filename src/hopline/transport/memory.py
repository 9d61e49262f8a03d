"""The transport in memory: the same contract as ZeroMQ in one process, and a network that fails when it is told to.

Everything happens on the running event loop, in the order in which it was asked for; what is random is drawn from one seed.
So a test that failed once fails again.

    MemoryNetwork     who is where, who can reach whom, and the faults
    MemoryLink        a backlog, and up to `capacity` messages under way: on the road, or in the inbox of the peer
    MemoryTransport   one a node; reads its inbox, `Limits.drain` messages a turn of the loop

What is on the road when a connection ends is dropped; what is in an inbox has arrived.
"""

import asyncio
import contextlib
import itertools
import re
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from hopline.errors import TransportError
from hopline.transport.address import taken
from hopline.transport.backlog import Backlog
from hopline.transport.base import DEFAULT_LIMITS, FRAME_TOO_BIG, TOO_MANY_FRAMES, Limits, Listener
from hopline.transport.faults import Faults

_ADDRESS: Final = re.compile(r"[a-z]+://[^\s*]+")
_FIRST_PORT: Final = 49_152


class Clock(Protocol):
    """Where delays take their time from, such as `hopline.testing.ManualClock`."""

    def now_ns(self) -> int:
        """Nanoseconds now."""

    def call_at(self, when_ns: int, callback: Callable[[], None]) -> object:
        """Call back at that time."""


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
        self._bound: dict[str, MemoryTransport] = {}
        self._killed: dict[str, MemoryTransport] = {}
        self._links: dict[MemoryLink, None] = {}  # a set would not keep the order
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
        """Let a transport be gone without a goodbye: it hears and sends nothing more, and its peers lose it."""
        transport = self._killed[address] = self._bound.pop(address)
        transport.die()
        self._refresh()

    def restart(self, address: str) -> None:
        """Let a transport come back where it was, with empty queues; if it is not dead, kill it before."""
        if address not in self._killed:
            self.kill(address)
        if address in self._bound:
            raise taken(address)
        transport = self._bound[address] = self._killed.pop(address)
        transport.revive()
        self._refresh()

    # What transports and links ask.

    def number(self) -> int:
        """A number that nobody else was given."""
        return next(self._numbers)

    def bind(self, transport: "MemoryTransport", address: str) -> str:
        """Make a transport reachable; returns its address, with a port if that was 0."""
        _check(address)
        if address.endswith(":0"):
            address = f"{address[:-1]}{next(self._ports)}"
        if address in self._bound:
            raise taken(address)
        self._bound[address] = transport
        self._refresh()
        return address

    def unbind(self, transport: "MemoryTransport") -> None:
        """Make a transport unreachable, for good."""
        self._killed = {address: dead for address, dead in self._killed.items() if dead is not transport}
        if self._bound.get(transport.address) is transport:
            del self._bound[transport.address]
            self._refresh()

    def add(self, link: "MemoryLink") -> None:
        """Look after a link: connect it whenever that is possible."""
        self._links[link] = None
        link.refresh_soon()

    def remove(self, link: "MemoryLink") -> None:
        """Look after a link no more."""
        self._links.pop(link, None)

    def find(self, source: str, target: str) -> "MemoryTransport | None":
        """Who is at an address, if it can be reached."""
        return None if self._cuts.get(frozenset((source, target))) else self._bound.get(target)

    def drops(self, source: str, target: str, frames: list[bytes]) -> bool:
        """Whether the next message is dropped; always if there is a cut in between."""
        return frozenset((source, target)) in self._cuts or super().drops(source, target, frames)

    def _refresh(self) -> None:
        for link in self._links:
            link.refresh_soon()


class MemoryLink:
    """A connection to one peer: see `hopline.transport.base.Link`."""

    takes_bundles = False

    def __init__(self, network: MemoryNetwork, transport: "MemoryTransport", address: str, listener: Listener) -> None:
        self.address = address
        self._network = network
        self._transport = transport
        self._listener = listener
        self._limits = transport.limits
        self._backlog = Backlog(transport.limits)
        self._route = b"\0" + network.number().to_bytes(4, "big")  # as a ROUTER names a peer that gave no name
        self._peer: tuple[MemoryTransport, int] | None = None  # and which of its lives
        self._connection = 0
        self._road: deque[list[bytes]] = deque()
        self._due_ns = 0
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
        if self._is_closed or not self._transport.is_alive:
            return False
        if self._peer is not None and not self._backlog and self._under_way < self._network.capacity:
            self._carry(frames)
            return True
        return self._backlog.put(frames)

    def close(self) -> list[list[bytes]]:
        """Close the connection; returns what waited. What is on the road still arrives."""
        self._is_closed = True
        self._peer = None
        self._network.remove(self)
        self._transport.forget(self)
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
        if self._is_closed or not self._transport.is_alive:
            return
        found = self._network.find(self._transport.name, self.address)
        peer = (found, found.life) if found is not None else None
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
        self._network.dropped += len(self._road)
        self._road.clear()
        self._peer = None
        self._connection += 1
        self._under_way = 0

    def _flush(self) -> None:
        while self._peer is not None and self._backlog and self._under_way < self._network.capacity:
            self._carry(self._backlog.take()[0])
        self._tell_room()

    def _tell_room(self) -> None:
        if not self._backlog:
            self._transport.flushed.set()
        if self._backlog.has_room_again():
            self._listener.on_room(self)

    def _carry(self, frames: list[bytes]) -> None:
        _, *heads, last = frames
        network = self._network
        if network.drops(self._transport.name, self.address, frames):
            network.dropped += 1
            return
        self._under_way += 1
        message = [self._route, *heads, last]
        delay_ns = network.delay_ns()
        if not delay_ns and not self._road:
            self._arrive(self._connection, message)
            return
        self._road.append(message)
        self._due_ns = max(self._due_ns, network.clock.now_ns() + delay_ns)
        network.clock.call_at(self._due_ns, partial(self._leave_road, self._connection))

    def _leave_road(self, connection: int) -> None:
        if connection == self._connection:
            self._arrive(connection, self._road.popleft())

    def _arrive(self, connection: int, message: list[bytes]) -> None:
        peer = self._network.find(self._transport.name, self.address)
        if peer is None or (self._peer is not None and self._peer != (peer, peer.life)):
            self._network.dropped += 1  # it has just gone, and we have not seen that yet
        else:
            peer.deliver(message, partial(self.taken, connection))


class MemoryTransport:
    """Moves frame lists in memory: see `hopline.transport.base.Transport`.

    Args:
        network: what connects this one to others.
        bind: where others reach us, such as `tcp://node-1:5000` or `memory://a`; port 0 takes a free one. Empty: nowhere.
        limits: what is held and taken at most.

    Attributes:
        name: what faults call this transport; its address, or a name of its own if it has none.
        life: how many times it was killed.
    """

    def __init__(self, network: MemoryNetwork, bind: str = "", *, limits: Limits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self.name = ""
        self.life = 0
        self.is_alive = False
        self.flushed = asyncio.Event()
        self._network = network
        self._bind_address = bind
        self._address = ""
        self._listener: Listener
        self._links: dict[str, MemoryLink] = {}
        self._inbox: deque[tuple[list[bytes], Callable[[], None]]] = deque()
        self._turn: asyncio.Handle | None = None
        self._is_started = self._is_closed = self._is_paused = False

    @property
    def address(self) -> str:
        """Where we are bound; empty before `start` or if nothing is."""
        return self._address

    async def start(self, listener: Listener) -> None:
        """Bind and begin to read."""
        if self._is_started or self._is_closed:
            raise TransportError("TRANSPORT_CLOSED", "A transport starts once: make a new one")
        if self._bind_address:
            self._address = self._network.bind(self, self._bind_address)
        self.name = self._address or f"memory://nowhere-{self._network.number()}"
        self._listener = listener
        self._is_started = self.is_alive = True

    def connect(self, address: str) -> MemoryLink:
        """Begin to connect; the link that is there already, if there is one."""
        if not self.is_alive:
            raise TransportError("TRANSPORT_CLOSED", f"Cannot connect to {address}: the transport is not running")
        link = self._links.get(address)
        if link is None:
            _check(address)
            link = self._links[address] = MemoryLink(self._network, self, address, self._listener)
            self._network.add(link)
        return link

    def takes_bundles(self, source: bytes) -> bool:  # noqa: ARG002 - a Transport
        """Nothing is saved by bundles where nothing is copied."""
        return False

    def pause(self) -> None:
        """Stop reading; messages stay in the inbox and the links to us fill up."""
        self._is_paused = True
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def resume(self) -> None:
        """Read again."""
        self._is_paused = False
        self._read_soon()

    async def close(self, linger: float = 0.0) -> None:
        """Close everything; for up to `linger` seconds connected peers are given what waits for them.

        What then still waits is handed back with `on_lost`.
        """
        if not self.is_alive:
            self._is_closed = True
            self._network.unbind(self)
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
            self._network.unbind(self)
            self._network.dropped += len(self._inbox)
            self._inbox.clear()
            for link in list(self._links.values()):
                if unsent := link.close():
                    self._listener.on_lost(link, unsent)

    # What the network and links ask.

    def deliver(self, message: list[bytes], taken: Callable[[], None]) -> None:
        """Take a message into the inbox; `taken` is called when it is read."""
        self._inbox.append((message, taken))
        self._read_soon()

    def forget(self, link: MemoryLink) -> None:
        """A link was closed."""
        if self._links.get(link.address) is link:
            del self._links[link.address]

    def die(self) -> None:
        """Be gone, as a process that is killed."""
        self.is_alive = False
        self.life += 1
        self._network.dropped += len(self._inbox)
        self._inbox.clear()
        for link in self._links.values():
            link.die()

    def revive(self) -> None:
        """Be there again."""
        self.is_alive = True
        self._is_paused = False

    def _read_soon(self) -> None:
        if self._inbox and self._turn is None and not self._is_paused:
            self._turn = asyncio.get_running_loop().call_soon(self._read)

    def _read(self) -> None:
        self._turn = None
        try:
            for _ in range(self.limits.drain):
                if self._is_paused or not self._inbox:
                    break
                self._take()
        finally:
            self._read_soon()

    def _take(self) -> None:
        self._inbox.rotate(-(index := self._network.pick(len(self._inbox))))
        message, taken = self._inbox.popleft()
        self._inbox.rotate(index)
        taken()
        if len(message) > self.limits.message_frames:
            self._listener.on_refused(TOO_MANY_FRAMES, sum(map(len, message)))
        elif max(map(len, message)) > self.limits.message_bytes:
            self._listener.on_refused(FRAME_TOO_BIG, sum(map(len, message)))
        else:
            self._listener.on_message(message)


def _check(address: str) -> None:
    if not _ADDRESS.fullmatch(address):
        raise TransportError("TRANSPORT_BAD_ADDRESS", f"{address!r} is no address: write tcp://HOST:PORT or memory://NAME")
