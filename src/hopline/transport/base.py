"""The seam to the outside: what a node needs of a transport, and what a transport tells a node.

A transport moves frame lists between nodes and knows nothing of what they mean: no formats, no routes, no signatures. It is
driven by the event loop of the node; nothing in it blocks, sleeps or starts a thread, and none of its calls waits.

    Transport   one per node: binds, connects, is told to stop and go on reading
    Link        one per peer that we connected to: sends, is bounded, can be full
    Listener    the node: hears of messages, connections and losses

What arrives comes from strangers: its size and its number of frames are bounded by Limits, and a peer that is slow fills its
own queue and nobody else's.
"""

from dataclasses import dataclass
from typing import Final, Protocol

# The reasons that `on_refused` is given: a handful, so that they can be counted by name.
TOO_MANY_FRAMES: Final = "too many frames"
FRAME_TOO_BIG: Final = "frame too big"
BAD_HANDSHAKE: Final = "handshake failed"
UNKNOWN_KEY: Final = "unknown key"
NOT_ASKED_FOR: Final = "message on an outgoing connection"
BAD_BUNDLE: Final = "bad bundle"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a transport holds and takes at most.

    Attributes:
        queue_messages: messages a link holds for its peer before it is full.
        queue_bytes: bytes a link holds for its peer before it is full.
        message_bytes: bytes of one frame that is taken from outside.
        message_frames: frames of one message that is taken from outside.
        drain: messages read at one look, so that reading cannot starve the rest. A turn of the event loop has one look,
            or two if the first found less because more was still on its way.
    """

    queue_messages: int = 10_000
    queue_bytes: int = 64 * 1024 * 1024
    message_bytes: int = 32 * 1024 * 1024
    message_frames: int = 4096
    drain: int = 128


DEFAULT_LIMITS: Final = Limits()


class Link(Protocol):
    """A connection to one peer, from `Transport.connect` until `close`. It connects again by itself when it is lost."""

    address: str
    route: bytes
    """The name of its socket: what comes by this link has it as frame 0 at the peer."""
    takes_bundles: bool
    """Whether the peer may be sent many messages at once. Whoever knows the peer says so; a connection lost unsays it."""

    @property
    def is_connected(self) -> bool:
        """Whether the peer can be reached right now."""

    @property
    def pending(self) -> int:
        """Messages that were accepted and have not been handed to the network."""

    def send(self, frames: list[bytes]) -> bool:
        """Take a message for the peer; False if the link is full or closed, and then nothing was taken.

        Before the peer is connected messages wait in the queue. Frame 0 is the peer's socket identity as encoded; the
        transport puts there whatever it needs to find the peer. A link that was full tells the listener when it has room.
        """

    def close(self) -> list[list[bytes]]:
        """Close the connection; returns what was accepted and not handed to the network, oldest first."""


class Listener(Protocol):
    """What a transport tells its node, on the event loop."""

    def on_message(self, frames: list[bytes]) -> None:
        """Take a message from outside; frame 0 identifies the socket it came from."""

    def on_received(self, messages: list[list[bytes]]) -> None:
        """Hear that messages have come together; each is handed over with `on_message` afterwards, when its turn comes."""

    def on_sending(self) -> None:
        """Hear that the network is about to be given messages; once it has taken them `on_sent` says which. It may not."""

    def on_sent(self, messages: list[list[bytes]]) -> None:
        """Hear that the network has taken messages, together; frame 0 of each is as it was given to the link."""

    def on_refused(self, reason: str, size: int) -> None:
        """Hear of a message from outside that broke a limit and was dropped; `size` in bytes as far as it is known."""

    def on_connected(self, link: Link) -> None:
        """Hear that the peer of a link can be reached, for the first time or again."""

    def on_lost(self, link: Link, unsent: list[list[bytes]]) -> None:
        """Hear that the peer of a link is gone. What still waited in our queue is handed back; the link tries again."""

    def on_room(self, link: Link) -> None:
        """Hear that a link that was full takes messages again."""


class Transport(Protocol):
    """What moves frame lists between nodes."""

    @property
    def address(self) -> str:
        """Where other nodes reach us; empty before `start` or if nothing was bound. A port 0 is the real one here."""

    async def start(self, listener: Listener) -> None:
        """Bind and begin to read; raises TransportError with a sentence for people if the address is bad or taken."""

    def connect(self, address: str) -> Link:
        """Begin to connect to a peer's address; raises TransportError if it is no address. One link per address."""

    def takes_bundles(self, source: bytes) -> bool:
        """Whether the peer that sent a message may be sent many at once; `source` is frame 0 of the message."""

    def pause(self) -> None:
        """Stop reading from outside: the node is full. Peers' queues fill up, then they are told."""

    def resume(self) -> None:
        """Read again."""

    async def close(self, linger: float = 0.0) -> None:
        """Close all links and the bound address; waits up to `linger` seconds for what was handed to the network."""
