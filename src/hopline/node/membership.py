"""A node's place in a cluster, as the node sees it: a Membership is given to it as an object, like a tap.

The node tells its membership what has changed here, and the membership tells the node what it hears of others. Which
sockets and which rendezvous are behind it, the node does not know (`hopline.cluster` does).
"""

from collections.abc import Iterable
from typing import Protocol

from hopline.identity import MessageType
from hopline.node.announcements import Announcements
from hopline.node.clock import Clock
from hopline.payload.service import Health
from hopline.wire import Decoded, FormatName, Message


class Member(Protocol):
    """A node as its membership sees it."""

    identity: bytes
    clock: Clock
    announcements: Announcements

    def came(self, frames: list[bytes]) -> None:
        """Note that a message about routes, or one that cannot be decoded, came through the cluster: `hear` follows."""

    def hear(self, frames: list[bytes], decoded: Decoded | None) -> None:
        """Take a message about routes that came through the cluster, or count one that could not be decoded."""

    def saying(self) -> None:
        """Note that a message of this node is about to go to the cluster."""

    def said(self, message: Message, frames: list[bytes]) -> None:
        """Note that a message of this node went to the cluster."""

    def forget(self, node: bytes) -> str:
        """Another node is gone: its routes, its link, and the hope of those who wait for it. Returns where it was."""

    def check(self, node: bytes) -> None:
        """See whether another node can still be reached; forget it if not."""


class Membership(Protocol):
    """A place in a cluster."""

    @property
    def is_joined(self) -> bool:
        """Whether the cluster hears us and we it."""

    async def start(self, member: Member) -> None:
        """Join; the member is bound and can be reached."""

    def announce(self, only: MessageType | bytes | None = None) -> None:
        """Tell the cluster what this node can take: all, the actors of one type, or one hub."""

    def withdraw(self, actor: bytes, types: Iterable[MessageType]) -> None:
        """Tell the cluster what an actor of this node no longer takes."""

    def look_for(self, message: Message) -> None:
        """Ask the cluster who can take a message: we know nobody."""

    def asked(self, domain: str) -> None:
        """Another node asks everybody for their routes in a domain: tell ours."""

    def met(self, node: bytes, uri: str, health: Health | None, format: FormatName) -> None:
        """Another node told about itself."""

    def uses(self, node: bytes) -> None:
        """This node begins to send to another one: it wants to know at once if that one dies."""

    def lost(self, node: bytes, uri: str) -> None:
        """Another node could not be reached any more and was forgotten; it may only seem so."""

    def left(self, node: bytes) -> None:
        """Another node said goodbye."""

    def say_goodbye(self) -> None:
        """Tell the cluster that this node leaves."""

    async def close(self) -> None:
        """Leave."""
