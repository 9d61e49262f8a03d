"""The one-way sockets that a cluster needs beside the links between nodes.

A link carries messages from node to node; who is there at all is told another way, and always in one direction:

    Push           connects to one address and sends there        DEALER
    Pull           is bound, takes what pushes send               ROUTER
    Publisher      is bound, tells everybody who listens          PUB
    Subscription   listens to any number of publishers            SUB, to everything

The one exception is `Pull.reply`: an answer to the push that a message came from.

Like a transport, channels move frame lists and know nothing of what they mean; they are driven by the event loop, nothing in
them blocks, sleeps or starts a thread, and what arrives is bounded by Limits. What breaks a limit is dropped and told to
`on_refused`, if the maker of the channels gave one. A callback that raises stops nothing: the event loop hears of the error.
"""

from collections.abc import Callable
from typing import Protocol

OnFrames = Callable[[list[bytes]], None]
"""What is called with each message that arrives."""

OnConnected = Callable[[str], None]
"""What is called with an address whenever it can be reached, for the first time or again."""

OnSubscriber = Callable[[], None]
"""What is called when somebody begins to listen."""

OnRefused = Callable[[str, int], None]
"""What is called with a reason (see `hopline.transport.base`) and the bytes of what was dropped, as far as known."""


class Push(Protocol):
    """Sends to one address. It connects again by itself when the connection is lost."""

    address: str

    @property
    def is_connected(self) -> bool:
        """Whether the address can be reached right now."""

    def send(self, frames: list[bytes]) -> bool:
        """Take a message; False if there is no room or the push is closed. Before there is a connection messages wait."""

    def close(self) -> None:
        """Close it. What waits is gone, as is what was sent and has not left yet."""


class Pull(Protocol):
    """Takes what pushes send to its address. What arrives begins with one frame more: the source, which `reply` takes."""

    address: str
    """Where it is bound; a port 0 or a range is the real port here."""

    def reply(self, source: bytes, frames: list[bytes]) -> bool:
        """Send an answer to where a message came from; False if that one is gone, or does not read."""

    def close(self) -> None:
        """Close it."""


class Publisher(Protocol):
    """Tells everybody who listens right now; who comes later has missed it."""

    address: str
    """Where it is bound; a port 0 or a range is the real port here."""

    def publish(self, frames: list[bytes]) -> None:
        """Tell all subscribers. It waits for none: one that does not read misses what does not fit its queue."""

    def close(self) -> None:
        """Close it."""


class Subscription(Protocol):
    """Listens to publishers, and connects again by itself when a connection is lost."""

    @property
    def addresses(self) -> frozenset[str]:
        """The publishers that it listens to, or tries to."""

    def connect(self, address: str) -> None:
        """Listen to one more; nothing if it does already. Raises TransportError if this is no address."""

    def disconnect(self, address: str) -> None:
        """Listen to one less; nothing if it does not."""

    def close(self) -> None:
        """Listen to nobody any more."""


class Channels(Protocol):
    """Makes channels, and closes them all at the end. Its calls need a running event loop."""

    def push(self, address: str, on_reply: OnFrames | None = None) -> Push:
        """Begin to connect to a pull; raises TransportError if this is no address. What is replied goes to `on_reply`."""

    def pull(self, bind: str, on_frames: OnFrames) -> Pull:
        """Bind and begin to read; raises TransportError with a sentence for people if the address is bad or taken."""

    def publish(self, bind: str, on_subscriber: OnSubscriber | None = None) -> Publisher:
        """Bind a publisher; raises as `pull` does. `on_subscriber` hears when somebody begins to listen."""

    def subscribe(self, on_frames: OnFrames, on_connected: OnConnected | None = None) -> Subscription:
        """A subscription that listens to nobody yet.

        `on_connected` tells that the connection stands. The publisher hears a moment later what we subscribe to, so what it
        publishes in between is missed: only a message that arrives shows that the subscription works.
        """

    async def close(self, linger: float = 0.0) -> None:
        """Close everything; waits up to `linger` seconds for what was handed to the network."""


def ignore(reason: str, size: int) -> None:
    """An `OnRefused` for those who do not want to hear of it."""
