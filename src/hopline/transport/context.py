"""The ZeroMQ sockets of a transport or of channels: how they are set up, watched, and all closed in the end.

One context of libzmq, and with CURVE one doorkeeper for all that is bound in it. It knows who may connect and what libzmq
holds, and nothing of what is sent.

Heartbeats. Both ends of a connection send them, but only the one that connected gives up when they stay away. A bound
socket that does not read, because its node is full, does not read heartbeats either; were it to give up on the peers it has
stopped, or they on it, what is in the buffers between them would be lost. As it goes on sending its own, they know that it
is alive.
"""

import asyncio
import contextlib
import errno
import os
import resource
from collections.abc import Callable, Mapping
from typing import Final

import zmq

from hopline.errors import TransportError
from hopline.transport.address import check_free, check_to_bind, check_to_connect, places, taken
from hopline.transport.base import BAD_HANDSHAKE, UNKNOWN_KEY, Limits
from hopline.transport.bundle import BIGGEST, GREETING
from hopline.transport.connection import EVENTS, Connection
from hopline.transport.curve import BAD_KEY, Curve, Doorkeeper, check_key
from hopline.transport.sockets import Monitor, Socket

EXHAUSTED: Final = "TRANSPORT_EXHAUSTED"

LINGER_MS: Final = 1000
"""For what a link had handed over when it is closed. A peer that reads needs a few milliseconds."""

_TO_A_PEER: Final = 256
"""Messages or bundles that libzmq holds for a peer: what a loss can cost, as we cannot take them back.

A choice, not an optimum: with bundles the CPU of a round trip with 1000 in flight does not differ between 256 and 1000.
"""

_FROM_A_PEER: Final = 1000
"""Messages or bundles that libzmq holds from a peer. What it cannot hold when a peer closes its connection is lost, though
the peer had sent it in time: under load ipc lost up to a third of 900 messages with 256."""

UNASKED: Final = 10, 8192
"""Messages, and bytes of a frame, that libzmq takes where nothing but handshake and heartbeats should come."""

_RECONNECT_MS: Final = 50, 2000
"""First and longest pause between two tries to connect; libzmq doubles in between."""

_HANDSHAKE_MS: Final = 10_000

_KEEPALIVE: Final = {
    # Finds a peer whose machine is gone while nothing is under way, in a minute, also one that has no heartbeats.
    zmq.TCP_KEEPALIVE: 1,
    zmq.TCP_KEEPALIVE_IDLE: 30,
    zmq.TCP_KEEPALIVE_INTVL: 10,
    zmq.TCP_KEEPALIVE_CNT: 3,
}

_HANDSHAKE_FAILED: Final = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
"""A key that the doorkeeper refuses is a third event; it has been counted by then."""


class Context:
    """Makes sockets on the running event loop.

    Args:
        limits: what is taken from outside at most.
        curve: our keys; without them nothing is encrypted and everybody may connect.
        server_keys: with `curve`, the public key behind each address. Looked at for each connection, so it may grow.
        heartbeat_s: see `hopline.transport.zmq.ZmqTransport`.
        on_refused: hears of connections that were refused.
    """

    def __init__(
        self,
        limits: Limits,
        curve: Curve | None,
        server_keys: Mapping[str, bytes],
        heartbeat_s: float,
        on_refused: Callable[[str, int], None],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._limits = limits
        self._curve = curve
        self._server_keys = server_keys
        self._heartbeat_ms = int(heartbeat_s * 1000)
        self._on_refused = on_refused
        self._changed = asyncio.Event()
        self._monitors: set[Monitor] = set()
        self._doorkeeper: Doorkeeper | None = None
        self._context: zmq.Context[Socket] = zmq.Context()
        # A link needs 3 sockets and 4 descriptors: stop well before the process runs out of them.
        self._context.set(zmq.MAX_SOCKETS, max(64, min(65_535, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)))

    def connecting(self, kind: int, address: str, *, is_answered: bool = True) -> Socket:
        """A socket that may be connected to this address. Nothing should come there unless it `is_answered`."""
        check_to_connect(address)
        server_key = self._server_keys.get(address)
        if self._curve is not None:
            if server_key is None:
                raise TransportError(BAD_KEY, f"No server key is known for {address}: add it to server_keys")
            check_key(f"The server key for {address}", server_key)
        socket: Socket | None = None
        try:
            socket = self._socket(kind, address)
            if kind == zmq.DEALER:
                socket.routing_id = GREETING + os.urandom(16)
            if not is_answered:
                socket.rcvhwm, socket.maxmsgsize = UNASKED
            socket.reconnect_ivl, socket.reconnect_ivl_max = _RECONNECT_MS
            socket.heartbeat_timeout = socket.heartbeat_ttl = 3 * self._heartbeat_ms
            if self._curve is not None and server_key is not None:
                self._curve.join(socket, server_key)
        except zmq.ZMQError as error:
            if socket is not None:
                socket.close()
            raise explained("connect to", address, error) from error
        return socket

    def bound(self, kind: int, address: str, prepare: Callable[[Socket], None]) -> tuple[Socket, str]:
        """A socket that is bound, and where: a port 0 is the real one there, and a range the first port that was free."""
        check_to_bind(address)
        check_free(address)
        if self._curve is not None and self._doorkeeper is None:
            self._doorkeeper = Doorkeeper(self.loop, self._context, self._curve, lambda: self._on_refused(UNKNOWN_KEY, 0))
        socket: Socket | None = None
        try:
            socket = self._socket(kind, address)
            socket.heartbeat_timeout = 0  # never give up: see above
            prepare(socket)
            if self._curve is not None:
                self._curve.serve(socket)
            self._watch(socket, _HANDSHAKE_FAILED, lambda _: self._on_refused(BAD_HANDSHAKE, 0))
            _bind(socket, places(address))
        except zmq.ZMQError as error:
            if socket is not None:
                socket.close()
            raise explained("bind", address, error) from error
        return socket, socket.get_string(zmq.LAST_ENDPOINT)

    def attend(self, socket: Socket, address: str, changed: Callable[[bool], None]) -> None:
        """Call `changed` whenever the connection of a socket stands or is lost, and keep libzmq from giving it up."""
        self._watch(socket, EVENTS, Connection(self.loop, socket, address, changed).hear)

    def changed(self) -> None:
        """Tell `until` to look again."""
        self._changed.set()

    async def until(self, is_done: Callable[[], bool], deadline: float) -> None:
        """Wait until something is so, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                while not is_done():
                    self._changed.clear()
                    await self._changed.wait()

    async def gone(self, linger_ms: int) -> None:
        """Wait until libzmq is done with the sockets that were closed and are watched, with so much time to linger."""
        await self.until(lambda: not self._monitors, self.loop.time() + (linger_ms + 2 * LINGER_MS) / 1000)

    def close(self) -> None:
        """Close all that is left, at once."""
        if self._doorkeeper is not None:
            self._doorkeeper.close()
        for monitor in list(self._monitors):
            monitor.close()
        self._context.destroy(0)

    def _socket(self, kind: int, address: str) -> Socket:
        socket = self._context.socket(kind)
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
        self._monitors.add(Monitor(self.loop, socket, events, hear, self._monitor_ended))

    def _monitor_ended(self, monitor: Monitor) -> None:
        self._monitors.discard(monitor)
        self._changed.set()


def _bind(socket: Socket, candidates: list[str]) -> None:
    """Bind to the first that is free."""
    *others, last = candidates
    for address in others:
        try:
            socket.bind(address)
        except zmq.ZMQError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return
    socket.bind(last)


def explained(doing: str, address: str, error: zmq.ZMQError) -> TransportError:
    """What to say of an address that libzmq does not take."""
    if error.errno == errno.EADDRINUSE:
        return taken(address)
    if error.errno == errno.EMFILE:
        return TransportError(EXHAUSTED, f"Cannot {doing} {address}: there are no more sockets, see ulimit -n")
    return TransportError("TRANSPORT_BAD_ADDRESS", f"Cannot {doing} {address}: {zmq.strerror(error.errno or 0)}")
