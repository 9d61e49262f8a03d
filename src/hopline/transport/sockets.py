"""ZeroMQ sockets on an event loop: how they are read without ever standing still, and what their monitors say.

Theory of operation. The descriptor of a ZeroMQ socket does not say that the socket can be read or written. It says that the
socket has news, and any call on the socket may take the news away with it: whoever then waits for the descriptor waits for
ever. Two rules keep us clear of that:

- a socket is read until it says that nothing is left (libzmq has looked at its news once more before it says so), or the
  next turn is on its way already;
- a socket of the hot path is either read or sends, so no send can take away the news of a message; one that does both is
  looked at again after each send.
"""

import asyncio
import itertools
import struct
from collections.abc import Callable
from typing import Any, Final

import zmq

NOW: Final = int(zmq.NOBLOCK)
NOW_MORE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)
"""Plain integers: `|` on the flags of pyzmq costs as much as sending a frame."""

_EVENT: Final = struct.Struct("=Hi")
_EVENTS_A_TURN: Final = 64
_monitor_numbers: Final = itertools.count()

Socket = zmq.Socket[bytes]


def bare_send(socket: Socket) -> Callable[[bytes, int], object]:
    """The C function below `socket.send`: what pyzmq checks on top costs five times as much (1.2 us a message, not 6.2)."""
    send: Callable[[bytes, int], object] = super(zmq.Socket, socket).send
    return send


def bare_receive(socket: Socket) -> Callable[..., Any]:
    """The C function below `socket.recv`."""
    receive: Callable[..., Any] = super(zmq.Socket, socket).recv
    return receive


def hand_over(send: Callable[[bytes, int], object], heads: list[bytes], last: bytes) -> None:
    """Give libzmq a message, with the function that `bare_send` gave; zmq.Again if it takes no more."""
    try:
        for frame in heads:
            send(frame, NOW_MORE)
        send(last, NOW)
    except TypeError:
        # A frame that is no bytes. End the message here, or the next one becomes a part of it.
        send(b"", NOW)
        raise


def news(socket: Socket) -> int:
    """What can be done with the socket now, POLLIN and POLLOUT; with that its news are taken."""
    return int(socket.get(zmq.EVENTS))


class Inlet:
    """Reads a socket from the event loop, some messages a turn.

    `take` takes one message and deals with it; it returns False when nothing was left. If it raises, the loop hears of the
    error and reading goes on.
    """

    __slots__ = ("_fd", "_is_open", "_limit", "_loop", "_next", "_take")

    def __init__(self, loop: asyncio.AbstractEventLoop, socket: Socket, take: Callable[[], bool], limit: int) -> None:
        self._loop = loop
        self._fd = socket.FD
        self._take = take
        self._limit = limit
        self._is_open = False
        self._next: asyncio.Handle | None = None

    def open(self) -> None:
        """Begin to read, or go on."""
        if not self._is_open:
            self._is_open = True
            self._loop.add_reader(self._fd, self._wake)
            self.again()  # the news of what came before now may be gone

    def close(self) -> None:
        """Stop reading, at once: also if `take` calls this, nothing is taken after."""
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._fd)
            if self._next is not None:
                self._next.cancel()
                self._next = None

    def again(self) -> None:
        """Look once more, soon."""
        if self._is_open and self._next is None:
            self._next = self._loop.call_soon(self._turn)

    def _wake(self) -> None:
        if self._next is None:
            self._turn()

    def _turn(self) -> None:
        self._next = None
        is_drained = False
        try:
            for _ in range(self._limit):
                if not self._is_open:
                    return
                if not self._take():
                    is_drained = True
                    return
        finally:
            if not is_drained:
                self.again()


class Monitor:
    """Hears what happens to the connections of a socket, until the socket is gone.

    After `socket.close` libzmq still sends what it has taken. The monitor lives until that is over and then calls `ended`:
    so one can wait for it without a thread.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        socket: Socket,
        events: int,
        hear: Callable[[int], None],
        ended: Callable[["Monitor"], None],
    ) -> None:
        self._hear = hear
        self._ended = ended
        name = f"inproc://monitor-{next(_monitor_numbers)}"
        self._pair: Socket = socket.context.socket(zmq.PAIR)
        self._pair.linger = 0
        self._pair.connect(name)  # first: a monitor that nobody hears would wait for us for ever
        try:
            socket.monitor(name, events | zmq.EVENT_MONITOR_STOPPED)
        except zmq.ZMQError:
            self._pair.close()
            raise
        self._inlet = Inlet(loop, self._pair, self._take, _EVENTS_A_TURN)
        self._inlet.open()

    def close(self) -> None:
        """Hear no more. Before the end only if the context is about to go: libzmq waits for us to take its events."""
        self._inlet.close()
        if not self._pair.closed:
            self._pair.close()
            self._ended(self)

    def _take(self) -> bool:
        try:
            head = self._pair.recv(NOW)
        except zmq.Again:
            return False
        self._pair.recv(NOW)  # the address, which may be resolved or not: who hears us knows it better
        event = _EVENT.unpack(head)[0]
        if event == zmq.EVENT_MONITOR_STOPPED:
            self.close()
            return False
        self._hear(event)
        return True
