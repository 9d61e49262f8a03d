"""Outputs: what handlers give back, and what becomes of the messages they were given.

A handler's answer inherits the flow of what it answers and goes to the router; a failure is counted and told to the caller.
Hosts know this room and not the router behind it.
"""

import asyncio
import logging
import traceback
from collections.abc import Callable

from hopline.errors import DeliveryError, clean
from hopline.flow import inherit_flow, output_of
from hopline.node.actor import Addressed
from hopline.node.clock import Clock
from hopline.node.envelope import Envelope
from hopline.node.host import ActorHost, Parked, Waits
from hopline.node.hub import TICKS_PER_SECOND
from hopline.node.router import MessageRouter
from hopline.node.taps import Taps
from hopline.payload.registry import type_of
from hopline.wire import Message

logger = logging.getLogger("hopline.node")


class _Parked:
    """An output that somebody full will take later."""

    def __init__(self, router: MessageRouter, full: Waits, envelope: Envelope) -> None:
        self._router = router
        self.behind = full
        self._envelope = envelope

    def when_taken(self, callback: Callable[[], None]) -> None:
        """Call back once the output was taken."""
        self._router.route_when_room(self.behind, self._envelope, callback)

    def give_up(self, reason: str) -> None:
        """Let the output come to a bad end."""
        self._router.end_badly(self._envelope, "OVERFLOW", reason)


class Outputs:
    """The way from the handlers of a node to its router: see `hopline.node.host.Surroundings`."""

    def __init__(self, router: MessageRouter, taps: Taps, clock: Clock, stopped: Callable[[ActorHost], None]) -> None:
        self._router = router
        self._books = router.books
        self._dispatch = router.dispatch
        self._taps = taps
        self._clock = clock
        # Straight through: a message more or less would show.
        self.handled = router.handled
        self.refused = router.end_badly
        self.is_in_time = router.is_in_time
        self.now_ns = clock.now_ns
        self.stopped = stopped

    def emit(self, output: object, parent: Envelope) -> Parked | None:
        """Send what a handler returned, in the flow of what it was given; if it waits, tells for what."""
        if type(output) is not Addressed:
            payload = output
            envelope = Envelope(output_of(type_of(payload), parent.message), payload)
        else:
            payload = output.payload
            since_ns = self._clock.now_ns() if output.ttl else 0
            envelope = Envelope(inherit_flow(_addressed(output), parent.message), payload, since_ns)
        self._books.sent_locally += 1
        see = self._taps.actor_out
        if see is not None:
            see(envelope.message, None, payload)
        full = self._dispatch(envelope)
        return None if full is None else _Parked(self._router, full, envelope)

    def repeated(self, envelope: Envelope) -> None:
        """A message was a copy of one that was handled: to its sender that is the same."""
        self._books.repeated += 1
        self._router.handled(envelope)

    def failed(self, envelope: Envelope, error: BaseException) -> None:
        """A handler has failed: its message has been handled all the same, and the caller is told."""
        self._books.failures += 1
        text = "cancelled" if isinstance(error, asyncio.CancelledError) else str(error)
        stack = "".join(traceback.format_exception(error))
        flow = envelope.message.correlation_id.decode(errors="replace")
        logger.warning(
            "handler of %s failed: %s: %s (flow %s)",
            clean(envelope.message.identity.decode(errors="replace")),
            type(error).__qualname__,
            clean(text),
            clean(flow),
            extra={"correlation_id": flow},
        )
        self._router.handled(envelope, f"{type(error).__qualname__}: {text}")
        self._router.report_failure(envelope, type(error).__qualname__, text, stack)


def _addressed(output: Addressed) -> Message:
    if output.node and output.distribution:
        raise DeliveryError("REJECTED", "a broadcast has no receiver node")
    kind = type_of(output.payload)
    return Message(
        identity=kind.identity,
        version=kind.version,
        partition=kind.partition,
        receiver_identity=output.receiver,
        receiver_node_identity=output.node,
        distribution=output.distribution,
        ttl_ticks=int(output.ttl * TICKS_PER_SECOND),
    )
