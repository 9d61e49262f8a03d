"""The link of a ZeroMQ transport: one DEALER that only sends, and what waits in front of it.

A message goes straight into the socket if the peer is connected and nothing waits; otherwise it waits in the backlog. What
libzmq has taken is out of our hands: after a loss it sends the rest of it to whoever is at the address next, and what was
on its way is gone. `on_lost` hands back the backlog only.

To a peer that takes bundles only the first message of a turn of the event loop goes straight: one that is alone loses no
time. Those that follow gather in the backlog, and at the end of the turn they leave together.
"""

import asyncio
from collections.abc import Callable

import zmq

from hopline.transport.backlog import Backlog
from hopline.transport.base import NOT_ASKED_FOR, Limits, Listener
from hopline.transport.bundle import MOST_BYTES, MOST_MESSAGES, pack
from hopline.transport.context import LINGER_MS, Context
from hopline.transport.sockets import NOW, Inlet, Socket, bare_send, hand_over, news


class ZmqLink:
    """A connection to one peer: see `hopline.transport.base.Link`."""

    def __init__(
        self,
        address: str,
        socket: Socket,
        listener: Listener,
        limits: Limits,
        context: Context,
        changed: Callable[["ZmqLink"], None],
    ) -> None:
        self.address = address
        self.route: bytes = socket.get(zmq.ROUTING_ID)  # type: ignore[assignment]  # of this option it is bytes
        self._socket = socket
        self._listener = listener
        self._changed = changed
        self.takes_bundles = False
        self._limit = limits.drain
        self._loop = asyncio.get_running_loop()
        self._is_gathering = False
        self._backlog = Backlog(limits)
        self._send = bare_send(socket)
        self._is_connected = False
        self._is_ready = False  # connected and nothing waits: a message may go straight into the socket
        self._is_closed = False
        context.attend(socket, address, self._hear)
        self._inlet = Inlet(self._loop, socket, self._look, limit=1)
        self._inlet.open()

    @property
    def is_connected(self) -> bool:
        """Whether the peer can be reached right now."""
        return self._is_connected

    @property
    def is_closed(self) -> bool:
        """Whether the link has been closed."""
        return self._is_closed

    @property
    def pending(self) -> int:
        """Messages that libzmq has not taken yet."""
        return len(self._backlog)

    def send(self, frames: list[bytes]) -> bool:
        """Take a message for the peer; False if the link is full or closed. Frame 0 does not travel."""
        if self._is_ready and not self._is_gathering:
            try:
                self._push(frames)
            except zmq.Again:
                self._is_ready = False
            else:
                if self.takes_bundles:
                    self._is_gathering = True
                    self._loop.call_soon(self._gathered)
                return True
        return not self._is_closed and self._backlog.put(frames)

    def _gathered(self) -> None:
        self._is_gathering = False
        if self._backlog and self._is_ready and self._flush():
            self._inlet.again()

    def close(self) -> list[list[bytes]]:
        """Close the connection; returns what waited. What libzmq has taken still goes out if the peer reads."""
        return self.shut(LINGER_MS if self._is_connected else 0)

    def shut(self, linger_ms: int) -> list[list[bytes]]:
        """Close the connection and give libzmq so long to send what it has taken."""
        if self._is_closed:
            return []
        self._is_closed = True
        self._is_connected = self._is_ready = False
        self._inlet.close()
        self._socket.close(linger_ms)
        self._changed(self)
        return self._backlog.clear()

    def _push(self, frames: list[bytes]) -> None:
        """Hand a message to libzmq; zmq.Again if it takes no more."""
        _, *heads, last = frames
        self._listener.on_sending()
        hand_over(self._send, heads, last)
        self._listener.on_sent([frames])

    def _look(self) -> bool:
        """See what is new with the socket: True if there may be more to do at once."""
        has_mail = bool(news(self._socket) & zmq.POLLIN)
        if has_mail:  # nobody should send here: one frame a turn is enough, and left unread it would stop heartbeats
            frame = self._socket.recv(NOW, copy=False)
            if not frame.more:
                self._listener.on_refused(NOT_ASKED_FOR, len(frame))
        is_unfinished = self._is_connected and bool(self._backlog) and self._flush()
        return has_mail or is_unfinished

    def _flush(self) -> bool:
        """Hand over what waits, some messages a turn; True if libzmq would take more."""
        backlog = self._backlog
        is_taken = True
        most = MOST_MESSAGES if self.takes_bundles else 1
        try:
            for _ in range(self._limit):
                if not backlog:
                    break
                entries = backlog.take_some(most, MOST_BYTES)
                try:
                    if len(entries) == 1:
                        self._push(entries[0][0])
                    else:
                        messages = [frames for frames, _ in entries]
                        bundle = pack(messages)
                        self._listener.on_sending()
                        self._send(bundle, NOW)
                        self._listener.on_sent(messages)
                except zmq.Again:
                    for entry in reversed(entries):
                        backlog.put_back(entry)
                    is_taken = False
                    break
        finally:
            self._is_ready = is_taken and not backlog
            self._tell_room()
        return is_taken and bool(backlog)

    def _tell_room(self) -> None:
        if not self._backlog:
            self._changed(self)
        if self._backlog.has_room_again():
            self._listener.on_room(self)

    def _hear(self, is_connected: bool) -> None:  # noqa: FBT001 - its only argument
        if self._is_closed:
            return
        if is_connected:
            self._is_connected = True
            try:
                self._listener.on_connected(self)
            finally:
                self._is_ready = self._is_connected and not self._backlog  # the listener may have closed us
                self._inlet.again()
        else:
            self._is_connected = self._is_ready = self.takes_bundles = False
            try:
                self._listener.on_lost(self, self._backlog.clear())
            finally:
                self._tell_room()
