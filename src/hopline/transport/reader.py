"""Reads messages from strangers off a ZeroMQ socket, and refuses those that break a limit.

A message with too many frames is thrown away piece by piece and never held as a whole; one with a frame that is too big does
not cost the next message. The reader does not know when there is something to read: see `Inlet`.
"""

from collections import deque
from typing import Final, Protocol

import zmq

from hopline.transport.base import FRAME_TOO_BIG, TOO_MANY_FRAMES, Limits
from hopline.transport.bundle import BIGGEST, MARK, Refused, unpack
from hopline.transport.sockets import NOW, Socket, bare_receive

_SKIPPED_A_TAKE: Final = 32


class Taker(Protocol):
    """Who takes the messages: a part of `Listener`."""

    def on_message(self, frames: list[bytes], /) -> None:
        """Take a message from outside."""

    def on_received(self, messages: list[list[bytes]], /) -> None:
        """Hear that messages have come, before any of them is taken."""

    def on_refused(self, reason: str, size: int, /) -> None:
        """Hear of a message that broke a limit and was dropped."""


class Reader:
    """Takes messages from a socket, one by one.

    Args:
        socket: where they come from. A ROUTER puts the name of the source before each message.
        limits: what is taken at most; the name of the source counts as a frame.
        taker: is given each message, and the reason and the bytes of each that breaks a limit.
        takes_bundles: whether a bundle is taken apart, or is a message like any other.
    """

    def __init__(self, socket: Socket, limits: Limits, taker: Taker, *, takes_bundles: bool = False) -> None:
        self._receive = bare_receive(socket)
        self._limits = limits
        self._taker = taker
        self._has_source = socket.type == zmq.ROUTER
        self._takes_bundles = takes_bundles
        self._unpacked: deque[list[bytes]] = deque()
        self._skipped: int | None = None  # bytes so far of a message with too many frames that we are still skipping

    def take(self) -> bool:
        """Take one message from outside; False if there is none."""
        if self._unpacked:
            self._taker.on_message(self._unpacked.popleft())
            return True
        if self._skipped is not None:
            return self._skip(self._skipped)
        receive = self._receive
        frames: list[bytes] = []
        most, is_too_big = self._limits.message_frames, False
        biggest = self._limits.message_bytes
        try:
            if self._has_source:
                frames.append(receive(NOW))  # it never is the last
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
        except zmq.Again:
            return False
        if self._takes_bundles and len(frames) == 2 and frames[1].startswith(MARK) and len(frames[1]) <= BIGGEST:
            self._unpack(*frames)
        elif is_too_big:
            self._taker.on_refused(FRAME_TOO_BIG, sum(map(len, frames)))
        else:
            self._taker.on_received([frames])
            self._taker.on_message(frames)
        return True

    def _unpack(self, source: bytes, bundle: bytes) -> None:
        """Take a bundle apart; its messages are then taken one by one, as if they had come so."""
        messages = []
        for found in unpack(bundle, self._limits):
            if type(found) is Refused:
                self._taker.on_refused(found.reason, len(source) + found.size)
            else:
                messages.append([source, *found])
        if messages:
            self._unpacked.extend(messages)
            self._taker.on_received(messages)

    def _skip(self, size: int) -> bool:
        """Throw away the rest of a message with too many frames, some at a time."""
        self._skipped = size
        for _ in range(_SKIPPED_A_TAKE):
            part = self._receive(NOW, False)  # noqa: FBT003
            self._skipped += len(part)
            if not part.more:
                size, self._skipped = self._skipped, None
                self._taker.on_refused(TOO_MANY_FRAMES, size)
                break
        return True
