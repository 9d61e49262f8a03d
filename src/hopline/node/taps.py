"""Taps: what a node lets others see of its messages. A capture is a tap; the node does not know it."""

from typing import Literal, Protocol

from hopline.wire import Message

Point = Literal["hub_out", "router_in", "scaleout_out", "scaleout_in", "actor_in", "actor_out", "hub_in"]


class Tap(Protocol):
    """Sees every message at every point, and every end. Called on the event loop: it must not block and must not raise."""

    def on_message(self, point: Point, message: Message, frames: list[bytes] | None) -> None:
        """See a message pass a point; `frames` are the bytes where it has any."""

    def on_end(self, end: str, message: Message | None, reason: str) -> None:
        """See a message end: handled, failed (its handler did), answered, forwarded, served, or the code of a bad end."""
