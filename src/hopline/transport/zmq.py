"""The transport over ZeroMQ: one bound socket to read from, one socket for each peer to send with.

Theory of operation. The event loop owns every socket and no thread of ours exists; libzmq has its own, which run no Python.

    frontend     ROUTER, bound, routing id = our node identity   only read, `Limits.drain` messages a turn; reader.py
    link         DEALER, connecting, one for each peer           only sends; link.py
    monitor      PAIR, beside each of these                      connected, lost, and gone for good; sockets.py
    doorkeeper   REP, with CURVE only                            may this key come in? curve.py

How all of them are set up, and why a frontend never gives up on a peer, is in context.py.

On the wire a link is what the documents call the backend, a connecting ROUTER: the peer reads the same frames. A DEALER for
each peer was no slower than one ROUTER for all (about 2.0 and 2.8 us a message to each of 200 peers), and simpler to get
right: a full peer cannot hide behind another, no message has to tell libzmq its peer, and a lost connection is that of this
link - the monitor of a shared socket names the resolved address, which two links can have in common. The price is 4
descriptors a peer instead of 1.

Frames are copied into and out of libzmq. Not copying would have pyzmq start a thread that collects what was sent.
"""

from collections.abc import Mapping

import zmq

from hopline.errors import TransportError
from hopline.transport.address import check_to_bind
from hopline.transport.base import DEFAULT_LIMITS, Limits, Listener
from hopline.transport.bundle import GREETING
from hopline.transport.context import Context, explained
from hopline.transport.curve import Curve
from hopline.transport.link import ZmqLink
from hopline.transport.reader import Reader
from hopline.transport.sockets import Inlet, Socket


class ZmqTransport:
    """Moves frame lists over ZeroMQ: see `hopline.transport.base.Transport`.

    Args:
        bind: where other nodes reach us, `tcp://HOST:PORT` or `ipc://PATH`; port 0 takes a free one, a range of ports such
            as `tcp://*:5101-5130` its first free one. Empty: nowhere.
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
        self._heartbeat_s = heartbeat_s
        self._address = ""
        self._is_closed = False
        self._context: Context | None = None
        self._listener: Listener
        self._links: dict[str, ZmqLink] = {}
        self._frontend: Socket | None = None
        self._inlet: Inlet | None = None

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
        self._listener = listener
        self._context = Context(self._limits, self._curve, self._server_keys, self._heartbeat_s, listener.on_refused)
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
        socket = self._context.connecting(zmq.DEALER, address, is_answered=False)
        try:
            link = ZmqLink(address, socket, self._listener, self._limits, self._context, self._link_changed)
            socket.connect(address)
        except zmq.ZMQError as error:
            if link is not None:
                link.close()
            else:
                socket.close()
            raise explained("connect to", address, error) from error
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
        context = self._context
        if context is None or self._is_closed:
            self._is_closed = True
            return
        self._is_closed = True
        deadline = context.loop.time() + linger
        try:
            self.pause()
            await context.until(
                lambda: not any(link.is_connected and link.pending for link in self._links.values()), deadline
            )
            rest_ms = max(0, int((deadline - context.loop.time()) * 1000))
            for link in list(self._links.values()):
                unsent = link.shut(rest_ms if link.is_connected else 0)
                if unsent:
                    self._listener.on_lost(link, unsent)
            if self._frontend is not None:
                self._frontend.close(0)
            await context.gone(rest_ms)
        finally:
            # All of it again, for the case that we were cancelled or the listener failed.
            for link in list(self._links.values()):
                link.shut(0)
            context.close()

    def _link_changed(self, link: ZmqLink) -> None:
        if link.is_closed:
            self._links.pop(link.address, None)
        if self._context is not None:
            self._context.changed()

    def _bind(self, context: Context, address: str) -> None:
        self._frontend, self._address = context.bound(zmq.ROUTER, address, self._prepare)
        reader = Reader(self._frontend, self._limits, self._listener, takes_bundles=True)
        self._inlet = Inlet(context.loop, self._frontend, reader.take, self._limits.drain)
        self._inlet.open()

    def _prepare(self, frontend: Socket) -> None:
        frontend.router_handover = True
        if self._identity:
            frontend.routing_id = self._identity
