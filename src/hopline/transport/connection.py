"""The connection of a ZeroMQ socket to one address: whether it stands, and that it comes back.

After a loss libzmq connects again by itself. But once the other end has broken the protocol - somebody else listens there
for a while, or a frame is larger than `maxmsgsize` - libzmq gives up for good, and says so by doing nothing. We do not.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import zmq

from hopline.transport.sockets import Socket

_TRIES: Final = zmq.EVENT_CONNECTED | zmq.EVENT_CONNECT_DELAYED | zmq.EVENT_CONNECT_RETRIED
EVENTS: Final = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | _TRIES
"""What `Connection.hear` must be told."""

_PAUSE_S: Final = 1.0
"""Before we try somebody again who broke the protocol. If libzmq tries itself it says so at once."""


class Connection:
    """Hears what happens to the connection of a socket; calls `changed` when it stands and when it is lost."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, socket: Socket, address: str, changed: Callable[[bool], None]
    ) -> None:
        self._loop = loop
        self._socket = socket
        self._address = address
        self._changed = changed
        self._is_up = False
        self._again: asyncio.TimerHandle | None = None

    def hear(self, event: int) -> None:
        """Hear of one of `EVENTS`."""
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._is_up = True
            self._changed(True)  # noqa: FBT003 - its only argument
        elif event == zmq.EVENT_DISCONNECTED:
            was_up, self._is_up = self._is_up, False
            self._again = self._loop.call_later(_PAUSE_S, self._connect)
            if was_up:
                self._changed(False)  # noqa: FBT003

    def _connect(self) -> None:
        self._again = None
        if self._socket.closed:
            return
        try:
            with contextlib.suppress(zmq.ZMQError):
                self._socket.disconnect(self._address)  # libzmq takes no address twice, also of the dead
            self._socket.connect(self._address)
        except zmq.ZMQError:
            self._again = self._loop.call_later(_PAUSE_S, self._connect)
