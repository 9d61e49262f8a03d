"""Live: who asks a running node sees its messages as they pass, by messages like all others.

An actor like `control.py`, and reached in the same way: `node.add_actor(Live(node))`. Who watches asks again and again
(`Watch`) and gets what has passed since (`Seen`); the node holds it meanwhile, bounded, and counts what did not fit. Whoever
stops asking is forgotten after a while, and what nobody watches costs nothing. Bodies are left out unless asked for.

Only what is quick to decide is chosen here; a finer choice is made by who asks. The messages of watching itself are not
shown: they would be their own audience.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

import msgspec

from hopline.errors import DeliveryError, HoplineError
from hopline.node.actor import Actor
from hopline.node.clock import Timer
from hopline.node.router import MessageRouter
from hopline.node.taps import POINTS, Tap
from hopline.payload.registry import Payload, message
from hopline.wire import Message, decode, encode

if TYPE_CHECKING:
    from hopline.node.node import Node

IDENTITIES: Final = ("HOPLINE.WATCH", "HOPLINE.SEEN")
"""What a domain must hold for watching to work where there are domains."""

LEASE_SECONDS: Final = 15.0
"""How long a watcher that does not ask is remembered."""

LONGEST_WAIT: Final = 5.0
MOST_WATCHERS: Final = 8
MOST_HELD: Final = 10_000
MOST_BYTES: Final = 8 * 1024 * 1024
"""What is held for a watcher between two questions."""

_ANSWER_BYTES: Final = 1024 * 1024


@message("HOPLINE.WATCH")
class Watch(Payload):
    """What has passed since I asked last? The first question only begins to watch.

    Attributes:
        watcher: a name that the one who asks has made up, and nobody else knows.
        points: where to look.
        identities: patterns such as "ORDER.*"; empty for all.
        flow: a correlation id; empty for all.
        bodies: whether bodies are shown.
        wait: seconds to wait if there is nothing yet.
        most: messages in one answer.
    """

    watcher: str
    points: list[str]
    identities: tuple[str, ...] = ()
    flow: bytes = b""
    bodies: bool = False
    wait: float = 1.0
    most: int = 1000


class SeenMessage(Payload):
    """One message at one point. What never was bytes is written as unsigned v6, and `encoded` is false."""

    seen_ns: int
    point: str
    frames: list[bytes]
    encoded: bool
    body_size: int | None = None
    """The size of a body that is left out."""


@message("HOPLINE.SEEN")
class Seen(Payload):
    """What has passed, and how much more did not fit."""

    node: bytes
    messages: list[SeenMessage]
    lost: int


class _Watcher(Tap):
    """Holds what has passed for one who asks."""

    def __init__(self, watch: Watch, wall_ns: Callable[[], int]) -> None:
        self.points = POINTS.intersection(watch.points)
        self.watch = watch
        self.news = asyncio.Event()
        self.lease: Timer
        self._wall_ns = wall_ns
        self._moments: dict[str, int] = {}
        self._held: deque[tuple[SeenMessage, int]] = deque()
        self._bytes = 0
        self._lost = 0

    def at_moment(self, point: str) -> Callable[[], None]:
        """Remember when messages left or came."""
        self._moments.pop(point, None)

        def mark() -> None:
            self._moments[point] = self._wall_ns()

        return mark

    def on_message(self, point: str, message: Message, frames: list[bytes] | None, payload: object) -> None:
        """Hold a message that the watcher wants to see."""
        watch = self.watch
        identity = message.identity.decode(errors="replace")
        if identity in IDENTITIES or (watch.flow and watch.flow != message.correlation_id):
            return
        if watch.identities and not any(fnmatchcase(identity, pattern) for pattern in watch.identities):
            return
        if len(self._held) >= MOST_HELD or self._bytes >= MOST_BYTES:
            self._lost += 1
            return
        try:
            seen = self._see(point, message, frames, payload)
        except HoplineError:
            self._lost += 1  # a payload that cannot be written; sending it will say so
            return
        size = sum(map(len, seen.frames)) + 100
        self._held.append((seen, size))
        self._bytes += size
        self.news.set()

    def _see(self, point: str, message: Message, frames: list[bytes] | None, payload: object) -> SeenMessage:
        now, bodies = self._moments.get(point) or self._wall_ns(), self.watch.bodies
        if frames is None:
            body = MessageRouter.body_of(payload) if payload is not None else message.body
            shown = msgspec.structs.replace(message, body=body if bodies else b"", signature=b"")
            return SeenMessage(now, point, encode(shown), encoded=False, body_size=None if bodies else len(body))
        if bodies:
            return SeenMessage(now, point, frames, encoded=True)
        decoded = decode(frames)
        shown = msgspec.structs.replace(decoded.message, body=b"")
        bare = encode(shown, decoded.format, decoded.variant)  # type: ignore[arg-type]
        return SeenMessage(now, point, bare, encoded=True, body_size=len(decoded.message.body))

    def take(self, most: int) -> tuple[list[SeenMessage], int]:
        """What was held, oldest first, as much as fits into an answer; and how much was lost."""
        taken: list[SeenMessage] = []
        size = 0
        while self._held and len(taken) < most and size < _ANSWER_BYTES:
            seen, bytes_ = self._held.popleft()
            taken.append(seen)
            size += bytes_
        self._bytes -= size
        if not self._held:
            self.news.clear()
        lost, self._lost = self._lost, 0
        return taken, lost


class Live(Actor):
    """Shows the messages of the node it is given."""

    local_only = True
    concurrency = MOST_WATCHERS
    mailbox = MOST_WATCHERS
    when_full = "fail"

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._clock = node.clock
        self._watchers: dict[str, _Watcher] = {}

    async def watch(self, watch: Watch) -> Seen:
        """Show what has passed since the last question; at once if there is something, else after a while."""
        watcher = self._watchers.get(watch.watcher)
        if watcher is None:
            watcher = self._begin(watch)
        watcher.lease.cancel()
        watcher.lease = self._clock.call_later(LEASE_SECONDS, lambda: self._forget(watch.watcher))
        if not watcher.news.is_set() and watch.wait > 0:
            timer = self._clock.call_later(min(watch.wait, LONGEST_WAIT), watcher.news.set)
            await watcher.news.wait()
            timer.cancel()
        seen, lost = watcher.take(watch.most)
        return Seen(self._node.identity, seen, lost)

    def _begin(self, watch: Watch) -> _Watcher:
        if len(self._watchers) >= MOST_WATCHERS:
            raise DeliveryError("OVERFLOW", f"{MOST_WATCHERS} watch already")
        watcher = self._watchers[watch.watcher] = _Watcher(watch, self._clock.wall_ns)
        watcher.lease = self._clock.call_later(LEASE_SECONDS, lambda: self._forget(watch.watcher))
        self._node.add_tap(watcher)
        return watcher

    def _forget(self, name: str) -> None:
        self._node.remove_tap(self._watchers.pop(name))
