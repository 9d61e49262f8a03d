"""Taps: what a node lets others see of its messages. A capture is a tap; the node does not know it."""

import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Literal, Protocol, get_args

from hopline.wire import Message

logger = logging.getLogger("hopline.node")

Point = Literal["hub_out", "router_in", "scaleout_out", "scaleout_in", "actor_in", "actor_out", "hub_in"]

POINTS: frozenset[Point] = frozenset(get_args(Point))
"""Every place where a message can be seen: leaving and reaching hubs, actors and the network, and entering the router."""

NETWORK: frozenset[Point] = frozenset({"scaleout_out", "scaleout_in"})
"""Where messages leave for other nodes, and where they come from them."""

See = Callable[[Message, list[bytes] | None, object], None]
"""What sees a message pass one point: the arguments of `on_message` but the first."""

SeeBytes = Callable[[list[list[bytes]]], None]
"""What sees messages pass together: the frames of each."""

Mark = Callable[[], None]
"""What is told of a moment."""


class Tap(Protocol):
    """Sees messages at the points it asks for, and every end. Called on the event loop: it must not block or raise.

    Derive from it and write what you need: by default it looks everywhere and does nothing.
    """

    points: Collection[str] = POINTS
    """Where it wants to look. Asked once, when the node is made."""
    sees_ends: bool = True
    """Whether it wants to see ends."""

    def on_message(self, point: Point, message: Message, frames: list[bytes] | None, payload: object) -> None:  # noqa: ARG002
        """See a message pass a point.

        `frames` are its bytes, where it has any. Inside a node `message.body` is empty and `payload` is the object, which
        its owner may change later; None if the body is there.
        """
        return

    def at(self, point: Point) -> See:
        """What a node calls at a point, asked for once: `on_message`. A tap in a hurry may give something quicker."""
        return partial(self.on_message, point)

    def at_network(self, point: Point) -> SeeBytes | None:  # noqa: ARG002
        """What a node calls instead at `scaleout_out` or `scaleout_in`, if anything, with all that passes there as bytes.

        That is before anybody knows what came, and when the network has taken what leaves; many messages at a time if many
        travel together. Asked for once.
        """
        return None

    def at_moment(self, point: Point) -> Mark | None:  # noqa: ARG002
        """What a node calls at `scaleout_out` or `scaleout_in` to say that this is the moment, if anything.

        That is right before it gives messages to the network, and right after it has taken messages from there. They are
        seen later: what leaves once the network has taken it, and by then it may have come; what came when its turn comes,
        if single messages are looked at. So this is when to look at a clock. Asked for once.
        """
        return None

    def on_broken(self, frames: list[bytes]) -> None:  # noqa: ARG002
        """See something come over the network (at `scaleout_in`) that is no message."""
        return

    def on_end(self, end: str, message: Message | None, reason: str) -> None:  # noqa: ARG002
        """See a message end: handled, failed (its handler did), answered, forwarded, served, or the code of a bad end."""
        return


class Taps:
    """What to call at each point, for all taps of a node: None where nobody looks, which costs one glance."""

    def __init__(self, taps: Iterable[Tap] = ()) -> None:
        self.use(taps)

    def use(self, taps: Iterable[Tap]) -> None:
        """Let these look from now on, and nobody else."""
        self.all = tuple(taps)
        self.hub_out = self._at("hub_out")
        self.router_in = self._at("router_in")
        self.sent, self.scaleout_out = self._at_network("scaleout_out"), self._at("scaleout_out")
        self.received, self.scaleout_in = self._at_network("scaleout_in"), self._at("scaleout_in")
        self.sending, self.leaving = self._at_moment("scaleout_out", of_bytes=True), self._at_moment("scaleout_out")
        self.coming = self._at_moment("scaleout_in")
        self.actor_in = self._at("actor_in")
        self.actor_out = self._at("actor_out")
        self.hub_in = self._at("hub_in")
        self.broken = tuple(tap for tap in self.all if "scaleout_in" in tap.points)
        self.ends = tuple(tap for tap in self.all if tap.sees_ends)

    def _at(self, point: Point) -> See | None:
        there = [tap for tap in self.all if point in tap.points]
        looking = [tap.at(point) for tap in there if point not in NETWORK or tap.at_network(point) is None]
        return _all_of(looking) if len(looking) > 1 else next(iter(looking), None)

    def _at_network(self, point: Point) -> SeeBytes | None:
        asked = [tap.at_network(point) for tap in self.all if point in tap.points]
        looking = [see for see in asked if see is not None]
        return _each_of(looking) if looking else None

    def _at_moment(self, point: Point, *, of_bytes: bool = False) -> Mark | None:
        """What tells those who look at bytes there, or those who look at messages: to each the moment is another one."""
        there = [tap for tap in self.all if point in tap.points and (tap.at_network(point) is not None) == of_bytes]
        told = [mark for tap in there if (mark := tap.at_moment(point)) is not None]
        return _all_told(told) if told else None


def _all_of(looking: list[See]) -> See:
    def see(message: Message, frames: list[bytes] | None, payload: object) -> None:
        for each in looking:
            each(message, frames, payload)

    return see


def _each_of(looking: list[SeeBytes]) -> SeeBytes:
    def see(messages: list[list[bytes]]) -> None:
        for each in looking:
            try:
                each(messages)
            except Exception:
                # They have been sent, or are still to be taken: a tap that raises must not change that.
                logger.exception("a tap failed")

    return see


def _all_told(told: list[Mark]) -> Mark:
    def mark() -> None:
        for each in told:
            try:
                each()
            except Exception:
                # They are still to be sent, or to be taken: a tap that raises must not change that.
                logger.exception("a tap failed")

    return mark
