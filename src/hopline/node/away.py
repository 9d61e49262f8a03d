"""What a router needs of the way to other nodes: to know them, to ask them, to hand messages over.

It must not know how they are reached; `peers.py` does.
"""

from collections.abc import Callable
from typing import Protocol

from hopline.wire import Decoded, FormatName, Message


class Peer(Protocol):
    """One other node, connected or connecting."""

    format: FormatName
    variant: str | None

    def send(self, frames: list[bytes]) -> bool:
        """Hand over a message; False if the way is full."""

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call back once there is room."""


class Away(Protocol):
    """The way to other nodes; a node without a transport has none."""

    def peer(self, node: bytes) -> Peer | None:
        """The connection to a node, made if need be; None if we do not know where it is."""

    def serve(self, decoded: Decoded) -> bool:
        """Take a message about routes; False if it is none."""

    @property
    def may_learn(self) -> bool:
        """Whether routes that we do not have may still come."""

    @property
    def is_joining(self) -> bool:
        """Whether nobody could be asked yet: what is held waits on."""

    def look_for(self, message: Message) -> None:
        """Ask who can take a message: nobody we know can."""
