"""Channels over ZeroMQ: see `hopline.transport.channels`.

Theory of operation. As in the transport the event loop owns every socket; context.py sets them up, reader.py reads them.

    push           DEALER, connecting    libzmq holds what waits, also while there is no connection
    pull           ROUTER, bound         mandatory, so that it says who cannot be answered
    publisher      XPUB, bound           a PUB that says who comes to listen
    subscription   SUB, connecting       one socket for each address

One socket for each address, because the monitor of a shared one names resolved addresses, which need not be those that we
know, and because then nothing arrives after `disconnect`. The price is 4 descriptors an address instead of 1.

What waits is libzmq's: 256 messages for the other end of a push, 1000 for each subscriber. It throws them away if the other
end breaks the protocol. A stranger may subscribe to as many topics as it likes, which costs memory: CURVE keeps it out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import zmq

from hopline.errors import TransportError
from hopline.transport.base import DEFAULT_LIMITS, NOT_ASKED_FOR, Limits
from hopline.transport.channels import OnConnected, OnFrames, OnRefused, OnSubscriber, ignore
from hopline.transport.context import UNASKED, Context, explained
from hopline.transport.curve import Curve
from hopline.transport.reader import Reader
from hopline.transport.sockets import NOW, Inlet, Socket, bare_send, hand_over, news

_TO_A_SUBSCRIBER: Final = 1000
"""Messages that libzmq holds for a subscriber before it misses some: announcements of a cluster come in bursts."""


@dataclass(frozen=True, slots=True)
class _Taker:
    """Takes what a reader reads."""

    on_message: OnFrames
    on_refused: OnRefused

    def on_received(self, messages: list[list[bytes]]) -> None:
        """Each is taken at once."""


_SUBSCRIBERS_A_TURN: Final = 64
"""Who come and go that we look at in one turn of the event loop: strangers may come and go as they like."""


class _Channel:
    """A socket that the event loop looks at, from the start until it is closed."""

    def __init__(self, socket: Socket, inlet: Inlet, closed: Callable[["_Channel"], object]) -> None:
        self._socket = socket
        self._inlet = inlet
        self._closed = closed
        self._is_closed = False
        inlet.open()

    def close(self) -> None:
        """Close it, at once."""
        self.shut(0)

    def shut(self, linger_ms: int) -> None:
        """Close it, and give libzmq so long to send what it has taken."""
        if not self._is_closed:
            self._is_closed = True
            self._inlet.close()
            self._socket.close(linger_ms)
            self._closed(self)


class ZmqPush(_Channel):
    """Sends to one address: see `hopline.transport.channels.Push`."""

    def __init__(
        self,
        address: str,
        context: Context,
        socket: Socket,
        reader: Reader,
        limits: Limits,
        closed: Callable[[_Channel], None],
    ) -> None:
        self.address = address
        self._send = bare_send(socket)
        self._is_connected = False
        context.attend(socket, address, self._hear)
        super().__init__(socket, Inlet(context.loop, socket, reader.take, limits.drain), closed)

    @property
    def is_connected(self) -> bool:
        """Whether the address can be reached right now."""
        return self._is_connected

    def send(self, frames: list[bytes]) -> bool:
        """Take a message; False if libzmq holds as many as it may or the push is closed."""
        if self._is_closed:
            return False
        *heads, last = frames
        try:
            hand_over(self._send, heads, last)
        except zmq.Again:
            if not news(self._socket) & zmq.POLLOUT:  # it may have room and have had no time to find out
                return False
            hand_over(self._send, heads, last)
        finally:
            self._inlet.again()
        return True

    def shut(self, linger_ms: int) -> None:
        """Close it. There is nobody to wait for without a connection."""
        super().shut(linger_ms if self._is_connected else 0)
        self._is_connected = False

    def _hear(self, is_connected: bool) -> None:  # noqa: FBT001 - its only argument
        self._is_connected = is_connected and not self._is_closed


class ZmqPull(_Channel):
    """Takes what pushes send: see `hopline.transport.channels.Pull`."""

    def __init__(
        self,
        address: str,
        context: Context,
        socket: Socket,
        reader: Reader,
        limits: Limits,
        closed: Callable[[_Channel], None],
    ) -> None:
        super().__init__(socket, Inlet(context.loop, socket, reader.take, limits.drain), closed)
        self.address = address
        self._send = bare_send(socket)

    def reply(self, source: bytes, frames: list[bytes]) -> bool:
        """Send an answer to where a message came from; False if that one is gone or full."""
        if self._is_closed:
            return False
        *heads, last = frames
        try:
            hand_over(self._send, [source, *heads], last)
        except zmq.ZMQError as error:
            if error.errno not in {zmq.EAGAIN, zmq.EHOSTUNREACH}:
                raise
            return False
        finally:
            self._inlet.again()
        return True


class ZmqPublisher(_Channel):
    """Tells everybody who listens: see `hopline.transport.channels.Publisher`."""

    def __init__(
        self,
        address: str,
        context: Context,
        socket: Socket,
        on_subscriber: OnSubscriber | None,
        closed: Callable[[_Channel], None],
    ) -> None:
        super().__init__(socket, Inlet(context.loop, socket, self._look, limit=_SUBSCRIBERS_A_TURN), closed)
        self.address = address
        self._send = bare_send(socket)
        self._on_subscriber = on_subscriber

    def publish(self, frames: list[bytes]) -> None:
        """Tell all subscribers; libzmq drops what does not fit their queues, and does not say so."""
        if not self._is_closed:
            *heads, last = frames
            hand_over(self._send, heads, last)
            self._inlet.again()

    def _look(self) -> bool:
        """See who comes and goes; True if there may be more of them."""
        try:
            said = self._socket.recv(NOW)
        except zmq.Again:
            return False
        # Anything may come, but all that is meant for us is who subscribes, and to everything: that is how we subscribe.
        if said == b"\x01" and self._on_subscriber is not None:
            self._on_subscriber()
        return True


class ZmqSubscription:
    """Listens to publishers: see `hopline.transport.channels.Subscription`."""

    def __init__(
        self,
        context: Context,
        limits: Limits,
        on_frames: OnFrames,
        on_connected: OnConnected | None,
        on_refused: OnRefused,
        closed: Callable[["ZmqSubscription"], None],
    ) -> None:
        self._context = context
        self._limits = limits
        self._taker = _Taker(on_frames, on_refused)
        self._on_connected = on_connected
        self._closed = closed
        self._is_closed = False
        self._ears: dict[str, _Channel] = {}

    @property
    def addresses(self) -> frozenset[str]:
        """The publishers that it listens to, or tries to."""
        return frozenset(self._ears)

    def connect(self, address: str) -> None:
        """Listen to one more."""
        if self._is_closed:
            raise TransportError("TRANSPORT_CLOSED", f"Cannot connect to {address}: the subscription is closed")
        if address in self._ears:
            return
        context = self._context
        socket = context.connecting(zmq.SUB, address)
        try:
            socket.subscribe(b"")
            context.attend(socket, address, lambda is_connected: self._hear(address, ear, is_connected))
            socket.connect(address)
        except zmq.ZMQError as error:
            socket.close()
            raise explained("connect to", address, error) from error
        reader = Reader(socket, self._limits, self._taker)
        inlet = Inlet(context.loop, socket, reader.take, self._limits.drain)
        ear = self._ears[address] = _Channel(socket, inlet, lambda _: self._ears.pop(address))

    def disconnect(self, address: str) -> None:
        """Listen to one less; nothing more arrives from there."""
        if address in self._ears:
            self._ears[address].close()

    def close(self) -> None:
        """Listen to nobody any more."""
        self.shut(0)

    def shut(self, linger_ms: int) -> None:
        """Close it: there is nothing to wait for."""
        self._is_closed = True
        for ear in list(self._ears.values()):
            ear.shut(linger_ms)
        self._closed(self)

    def _hear(self, address: str, ear: _Channel, is_connected: bool) -> None:  # noqa: FBT001
        if is_connected and self._on_connected is not None and self._ears.get(address) is ear:
            self._on_connected(address)


class ZmqChannels:
    """Makes channels over ZeroMQ: see `hopline.transport.channels.Channels`.

    Args:
        limits: what is taken from outside at most; of the queues libzmq has its own.
        curve: our keys; without them nothing is encrypted and everybody may connect.
        server_keys: with `curve`, the public key behind each address. Looked at for each connection, so it may grow.
        heartbeat_s: how often both ends of a connection show that they are alive; three times that without a sign, and the
            connection is lost. 0: never.
        on_refused: hears of what broke a limit and of connections that were refused.
    """

    def __init__(
        self,
        *,
        limits: Limits = DEFAULT_LIMITS,
        curve: Curve | None = None,
        server_keys: Mapping[str, bytes] | None = None,
        heartbeat_s: float = 10.0,
        on_refused: OnRefused | None = None,
    ) -> None:
        self._limits = limits
        self._curve = curve
        self._server_keys = server_keys if server_keys is not None else {}
        self._heartbeat_s = heartbeat_s
        self._on_refused = on_refused if on_refused is not None else ignore
        self._context: Context | None = None
        self._open: dict[_Channel | ZmqSubscription, None] = {}
        self._is_closed = False

    def push(self, address: str, on_reply: OnFrames | None = None) -> ZmqPush:
        """Begin to connect to a pull."""
        context = self._running()
        socket = context.connecting(zmq.DEALER, address, is_answered=on_reply is not None)
        taker = _Taker(on_reply if on_reply is not None else self._refuse, self._on_refused)
        reader = Reader(socket, self._limits, taker)
        push: ZmqPush | None = None
        try:
            push = ZmqPush(address, context, socket, reader, self._limits, self._forget)
            socket.connect(address)
        except zmq.ZMQError as error:
            if push is not None:
                push.close()
            else:
                socket.close()
            raise explained("connect to", address, error) from error
        self._open[push] = None
        return push

    def pull(self, bind: str, on_frames: OnFrames) -> ZmqPull:
        """Bind and begin to read."""
        context = self._running()
        socket, address = context.bound(zmq.ROUTER, bind, _prepare_pull)
        reader = Reader(socket, self._limits, _Taker(on_frames, self._on_refused))
        pull = ZmqPull(address, context, socket, reader, self._limits, self._forget)
        self._open[pull] = None
        return pull

    def publish(self, bind: str, on_subscriber: OnSubscriber | None = None) -> ZmqPublisher:
        """Bind a publisher."""
        context = self._running()
        socket, address = context.bound(zmq.XPUB, bind, _prepare_publisher)
        publisher = ZmqPublisher(address, context, socket, on_subscriber, self._forget)
        self._open[publisher] = None
        return publisher

    def subscribe(self, on_frames: OnFrames, on_connected: OnConnected | None = None) -> ZmqSubscription:
        """A subscription that listens to nobody yet."""
        subscription = ZmqSubscription(
            self._running(), self._limits, on_frames, on_connected, self._on_refused, self._forget
        )
        self._open[subscription] = None
        return subscription

    async def close(self, linger: float = 0.0) -> None:
        """Close everything. For up to `linger` seconds libzmq sends what it has taken to those that are connected."""
        self._is_closed = True
        context, self._context = self._context, None
        if context is None:
            return
        linger_ms = int(linger * 1000)
        try:
            for channel in list(self._open):
                channel.shut(linger_ms)
            await context.gone(linger_ms)
        finally:
            context.close()

    def _running(self) -> Context:
        if self._is_closed:
            raise TransportError("TRANSPORT_CLOSED", "These channels are closed: make new ones")
        if self._context is None:
            self._context = Context(self._limits, self._curve, self._server_keys, self._heartbeat_s, self._on_refused)
        return self._context

    def _forget(self, channel: _Channel | ZmqSubscription) -> None:
        self._open.pop(channel, None)

    def _refuse(self, frames: list[bytes]) -> None:
        self._on_refused(NOT_ASKED_FOR, sum(map(len, frames)))


def _prepare_pull(socket: Socket) -> None:
    socket.router_handover = True
    socket.router_mandatory = True


def _prepare_publisher(socket: Socket) -> None:
    socket.sndhwm = _TO_A_SUBSCRIBER
    socket.xpub_verbose = True  # all who come, not only the first
    _, socket.maxmsgsize = UNASKED  # of what comes: subscriptions
