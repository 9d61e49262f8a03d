"""The transport over ZeroMQ: one bound socket to read from, one socket for each peer to send with.

Theory of operation. The event loop owns every socket and no thread of ours exists; libzmq has its own, which run no Python.

    frontend     ROUTER, bound, routing id = our node identity   only read, `Limits.drain` messages a turn of the loop
    link         DEALER, connecting, one for each peer           only sends; link.py
    monitor      PAIR, beside each of these                      connected, lost, and gone for good; sockets.py
    doorkeeper   REP, with CURVE only                            may this key come in? curve.py

On the wire a link is what the documents call the backend, a connecting ROUTER: the peer reads the same frames. A DEALER for
each peer was no slower than one ROUTER for all (about 2.0 and 2.8 us a message to each of 200 peers), and simpler to get
right: a full peer cannot hide behind another, no message has to tell libzmq its peer, and a lost connection is that of this
link - the monitor of a shared socket names the resolved address, which two links can have in common. The price is 4
descriptors a peer instead of 1.

Heartbeats. Both ends send them, but only the link gives up when they stay away. A frontend that does not read, because its
node is full, does not read heartbeats either; were it to give up on the peers it has stopped, or they on it, what is in the
buffers between them would be lost. As it goes on sending its own, they know that it is alive.

Frames are copied into and out of libzmq. Not copying would have pyzmq start a thread that collects what was sent.
"""

import asyncio
import contextlib
import errno
import os
import resource
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import zmq

from hopline.errors import TransportError
from hopline.transport.address import check_free, check_to_bind, check_to_connect, taken
from hopline.transport.base import (
    BAD_HANDSHAKE,
    DEFAULT_LIMITS,
    FRAME_TOO_BIG,
    TOO_MANY_FRAMES,
    UNKNOWN_KEY,
    Limits,
    Listener,
)
from hopline.transport.bundle import BIGGEST, GREETING, MARK, Refused, unpack
from hopline.transport.curve import BAD_KEY, Curve, Doorkeeper, check_key
from hopline.transport.link import LINGER_MS, ZmqLink
from hopline.transport.sockets import NOW, Inlet, Monitor, Socket, bare_receive

EXHAUSTED: Final = "TRANSPORT_EXHAUSTED"

_TO_A_PEER: Final = 256
"""Messages or bundles that libzmq holds for a peer: what a loss can cost, as we cannot take them back.

A choice, not an optimum: with bundles the CPU of a round trip with 1000 in flight does not differ between 256 and 1000.
"""

_FROM_A_PEER: Final = 1000
"""Messages or bundles that libzmq holds from a peer. What it cannot hold when a peer closes its connection is lost, though
the peer had sent it in time: under load ipc lost up to a third of 900 messages with 256."""

_RECONNECT_MS: Final = 50, 2000
"""First and longest pause between two tries to connect; libzmq doubles in between."""

_FROM_SERVERS: Final = 10, 8192
"""Messages, and bytes of a frame, that libzmq takes on a link: nothing but handshake and heartbeats should come there."""

_HANDSHAKE_MS: Final = 10_000
_SKIPPED_A_TAKE: Final = 32

_KEEPALIVE: Final = {
    # Finds a peer whose machine is gone while nothing is under way, in a minute, also one that has no heartbeats.
    zmq.TCP_KEEPALIVE: 1,
    zmq.TCP_KEEPALIVE_IDLE: 30,
    zmq.TCP_KEEPALIVE_INTVL: 10,
    zmq.TCP_KEEPALIVE_CNT: 3,
}

_HANDSHAKE_FAILED: Final = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
"""A key that the doorkeeper refuses is a third event; it has been counted by then."""


class ZmqTransport:
    """Moves frame lists over ZeroMQ: see `hopline.transport.base.Transport`.

    Args:
        bind: where other nodes reach us, `tcp://HOST:PORT` or `ipc://PATH`; port 0 takes a free one. Empty: nowhere.
        identity: our node identity. Nodes of the reference address their messages by it.
        limits: what is held and taken at most.
        curve: our keys; without them nothing is encrypted and everybody may connect.
        server_keys: with `curve`, the public key behind each address. Looked at in `connect`, so it may grow.
        heartbeat_s: how often both ends of a connection show that they are alive; three times that without a sign, and the
            connection is lost. 0: never.
    """

    def __init__(
        self,
        bind: str = "",
        *,
        identity: bytes = b"",
        limits: Limits = DEFAULT_LIMITS,
        curve: Curve | None = None,
        server_keys: Mapping[str, bytes] | None = None,
        heartbeat_s: float = 10.0,
    ) -> None:
        self._bind_address = bind
        self._identity = identity
        self._limits = limits
        self._curve = curve
        self._server_keys = server_keys if server_keys is not None else {}
        self._heartbeat_ms = int(heartbeat_s * 1000)
        self._address = ""
        self._is_closed = False
        self._context: zmq.Context[Socket] | None = None
        self._listener: Listener
        self._loop: asyncio.AbstractEventLoop
        self._changed = asyncio.Event()
        self._links: dict[str, ZmqLink] = {}
        self._monitors: set[Monitor] = set()
        self._doorkeeper: Doorkeeper | None = None
        self._frontend: Socket | None = None
        self._inlet: Inlet | None = None
        self._receive: Callable[..., Any]
        self._unpacked: deque[list[bytes]] = deque()
        self._skipped: int | None = None  # bytes so far of a message with too many frames that we are still skipping

    @property
    def address(self) -> str:
        """Where we are bound; empty before `start` or if nothing is."""
        return self._address

    async def start(self, listener: Listener) -> None:
        """Bind and begin to read."""
        if self._context is not None or self._is_closed:
            raise TransportError("TRANSPORT_CLOSED", "A transport starts once: make a new one")
        if self._bind_address:
            check_to_bind(self._bind_address)
        if len(self._identity) > 255:
            raise TransportError("TRANSPORT_BAD_ADDRESS", "A node identity has at most 255 bytes, or no socket can bear it")
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._context = zmq.Context()
        # A link needs 3 sockets and 4 descriptors: stop well before the process runs out of them.
        self._context.set(zmq.MAX_SOCKETS, max(64, min(65_535, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)))
        if self._bind_address:
            try:
                self._bind(self._context, self._bind_address)
            except BaseException:
                await self.close()
                raise

    def connect(self, address: str) -> ZmqLink:
        """Begin to connect; the link that is there already, if there is one."""
        if self._context is None or self._is_closed:
            raise TransportError("TRANSPORT_CLOSED", f"Cannot connect to {address}: the transport is not running")
        link = self._links.get(address)
        if link is not None:
            return link
        check_to_connect(address)
        server_key = self._server_keys.get(address)
        if self._curve is not None:
            if server_key is None:
                raise TransportError(BAD_KEY, f"No server key is known for {address}: add it to server_keys")
            check_key(f"The server key for {address}", server_key)
        socket: Socket | None = None
        try:
            socket = self._socket(self._context, zmq.DEALER, address)
            socket.routing_id = GREETING + os.urandom(16)
            socket.rcvhwm, socket.maxmsgsize = _FROM_SERVERS
            socket.reconnect_ivl, socket.reconnect_ivl_max = _RECONNECT_MS
            socket.heartbeat_timeout = socket.heartbeat_ttl = 3 * self._heartbeat_ms
            if self._curve is not None and server_key is not None:
                self._curve.join(socket, server_key)
            link = ZmqLink(address, socket, self._listener, self._limits, self._watch, self._link_changed)
            socket.connect(address)
        except zmq.ZMQError as error:
            if link is not None:
                link.close()
            elif socket is not None:
                socket.close()
            raise _explained("connect to", address, error) from error
        self._links[address] = link
        return link

    def takes_bundles(self, source: bytes) -> bool:
        """Whether the peer that sent a message may be sent bundles: the name of its socket says so."""
        return source.startswith(GREETING)

    def pause(self) -> None:
        """Stop reading. libzmq reads on until its high-water mark, then TCP holds the senders back."""
        if self._inlet is not None:
            self._inlet.close()

    def resume(self) -> None:
        """Read again."""
        if self._inlet is not None and not self._is_closed:
            self._inlet.open()

    async def close(self, linger: float = 0.0) -> None:
        """Close everything, and leave nothing behind.

        For up to `linger` seconds connected peers are given what waits for them and what libzmq has taken. That reaches
        their machine; a peer that does not read just then may still lose it. What waits after that is handed back with
        `on_lost`. A link that was closed shortly before may take its own second.
        """
        if self._context is None or self._is_closed:
            self._is_closed = True
            return
        self._is_closed = True
        deadline = self._loop.time() + linger
        try:
            self.pause()
            await self._until(lambda: not any(link.is_connected and link.pending for link in self._links.values()), deadline)
            rest_ms = max(0, int((deadline - self._loop.time()) * 1000))
            for link in list(self._links.values()):
                unsent = link.shut(rest_ms if link.is_connected else 0)
                if unsent:
                    self._listener.on_lost(link, unsent)
            if self._frontend is not None:
                self._frontend.close(0)
            await self._until(lambda: not self._monitors, self._loop.time() + (rest_ms + 2 * LINGER_MS) / 1000)
        finally:
            # All of it again, for the case that we were cancelled or the listener failed.
            for link in list(self._links.values()):
                link.shut(0)
            if self._doorkeeper is not None:
                self._doorkeeper.close()
            for monitor in list(self._monitors):
                monitor.close()
            self._context.destroy(0)

    async def _until(self, is_done: Callable[[], bool], deadline: float) -> None:
        """Wait until something is so, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                while not is_done():
                    self._changed.clear()
                    await self._changed.wait()

    def _socket(self, context: "zmq.Context[Socket]", kind: int, address: str) -> Socket:
        socket = context.socket(kind)
        socket.linger = 0
        socket.sndhwm, socket.rcvhwm = _TO_A_PEER, _FROM_A_PEER
        # Twice: up to there we can refuse a frame by name and keep the connection. Beyond it libzmq hangs up.
        socket.maxmsgsize = 2 * max(self._limits.message_bytes, BIGGEST)
        socket.ipv6 = "[" in address  # else names would become IPv6 addresses that nobody listens on
        socket.handshake_ivl = _HANDSHAKE_MS
        socket.heartbeat_ivl = self._heartbeat_ms
        for option, value in _KEEPALIVE.items():
            socket.set(option, value)
        return socket

    def _watch(self, socket: Socket, events: int, hear: Callable[[int], None]) -> None:
        self._monitors.add(Monitor(self._loop, socket, events, hear, self._monitor_ended))

    def _monitor_ended(self, monitor: Monitor) -> None:
        self._monitors.discard(monitor)
        self._changed.set()

    def _link_changed(self, link: ZmqLink) -> None:
        if link.is_closed:
            self._links.pop(link.address, None)
        self._changed.set()

    # The frontend.

    def _bind(self, context: "zmq.Context[Socket]", address: str) -> None:
        check_free(address)
        if self._curve is not None:
            self._doorkeeper = Doorkeeper(
                self._loop, context, self._curve, lambda: self._listener.on_refused(UNKNOWN_KEY, 0)
            )
        socket = self._frontend = self._socket(context, zmq.ROUTER, address)
        socket.heartbeat_timeout = 0  # never give up: see above
        socket.router_handover = True
        self._watch(socket, _HANDSHAKE_FAILED, lambda _: self._listener.on_refused(BAD_HANDSHAKE, 0))
        if self._curve is not None:
            self._curve.serve(socket)
        try:
            if self._identity:
                socket.routing_id = self._identity
            socket.bind(address)
        except zmq.ZMQError as error:
            raise _explained("bind", address, error) from error
        self._address = socket.get_string(zmq.LAST_ENDPOINT)
        self._receive = bare_receive(socket)
        self._inlet = Inlet(self._loop, socket, self._take, self._limits.drain)
        self._inlet.open()

    def _take(self) -> bool:
        """Take one message from outside; False if there is none."""
        if self._unpacked:
            self._listener.on_message(self._unpacked.popleft())
            return True
        if self._skipped is not None:
            return self._skip(self._skipped)
        receive = self._receive
        try:
            frames = [receive(NOW)]  # the routing id, which never is the last
        except zmq.Again:
            return False
        most, is_too_big = self._limits.message_frames, False
        biggest = self._limits.message_bytes
        while True:
            # The frame knows whether another follows; asking the socket costs more than making the frame.
            part = receive(NOW, False)  # noqa: FBT003 - pyzmq's own order, by position for speed
            frame = part.bytes
            frames.append(frame)
            if len(frame) > biggest:
                is_too_big = True
            if not part.more:
                break
            if len(frames) >= most:
                return self._skip(sum(map(len, frames)))
        if len(frames) == 2 and frames[1].startswith(MARK) and len(frames[1]) <= BIGGEST:
            self._unpack(*frames)
        elif is_too_big:
            self._listener.on_refused(FRAME_TOO_BIG, sum(map(len, frames)))
        else:
            self._listener.on_message(frames)
        return True

    def _unpack(self, source: bytes, bundle: bytes) -> None:
        """Take a bundle apart; its messages are then taken one by one, as if they had come so."""
        for found in unpack(bundle, self._limits):
            if type(found) is Refused:
                self._listener.on_refused(found.reason, len(source) + found.size)
            else:
                self._unpacked.append([source, *found])

    def _skip(self, size: int) -> bool:
        """Throw away the rest of a message with too many frames, some at a time."""
        self._skipped = size
        for _ in range(_SKIPPED_A_TAKE):
            part = self._receive(NOW, False)  # noqa: FBT003
            self._skipped += len(part)
            if not part.more:
                size, self._skipped = self._skipped, None
                self._listener.on_refused(TOO_MANY_FRAMES, size)
                break
        return True


def _explained(doing: str, address: str, error: zmq.ZMQError) -> TransportError:
    if error.errno == errno.EADDRINUSE:
        return taken(address)
    if error.errno == errno.EMFILE:
        return TransportError(EXHAUSTED, f"Cannot {doing} {address}: there are no more sockets, see ulimit -n")
    return TransportError("TRANSPORT_BAD_ADDRESS", f"Cannot {doing} {address}: {zmq.strerror(error.errno or 0)}")
