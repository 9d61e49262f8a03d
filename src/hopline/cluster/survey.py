"""A survey: every rendezvous of a cluster is asked what it knows.

For those who come for a moment: who leads, which others are there, who does not answer?

A rendezvous of the reference repeats what it is sent to all its nodes, so it is not asked. If we do not know whose they are
only those are asked whose addresses are given without that of the broadcast, as nobody does with one of the reference.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hopline.cluster.endpoints import MOST_ENDPOINTS, Endpoint
from hopline.cluster.messages import HowAreYou, RendezvousReport, control_frames, read_control
from hopline.errors import HoplineError, WireError
from hopline.transport.channels import Channels, Push
from hopline.wire import decode


@dataclass(slots=True)
class Asked:
    """A rendezvous that was asked: whether it can be reached, and what it said, if anything."""

    endpoint: Endpoint
    is_reached: bool = False
    report: RendezvousReport | None = None

    @property
    def name(self) -> str:
        """What it calls itself; what we call it, if it does not say."""
        node = self.report.node if self.report is not None else None
        return (node.unicast_uri if node is not None else None) or self.endpoint.unicast

    @property
    def leads(self) -> bool:
        """Whether it says that it leads itself."""
        report = self.report
        return report is not None and report.node is not None and report.leader == report.node


class Survey:
    """Asks rendezvous, and those that they name in turn.

    Args:
        channels: the sockets; closed in the end.
        are_ours: whether they are Hopline's; None if we do not know.
        may_connect: asked before we turn to one that another one named.
    """

    def __init__(
        self, channels: Channels, *, are_ours: bool | None = None, may_connect: Callable[[str], bool] = lambda _: True
    ) -> None:
        self._channels = channels
        self._are_ours = are_ours
        self._may_connect = may_connect
        self._asked: dict[str, tuple[Asked, Push | None]] = {}
        self._news = asyncio.Event()

    async def ask(self, endpoints: Iterable[Endpoint], seconds: float) -> list[Asked]:
        """Ask until all have answered, or the time is over."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    for endpoint in endpoints:
                        self._ask(endpoint)
                    while not all(asked.report or push is None for asked, push in self._asked.values()):
                        self._news.clear()
                        await self._news.wait()
            for asked, push in self._asked.values():
                asked.is_reached = asked.report is not None or (push is not None and push.is_connected)
        finally:
            await self._channels.close()
        # The same one may have been asked by several names.
        return list({asked.name: asked for asked, _ in reversed(self._asked.values())}.values())[::-1]

    def _ask(self, endpoint: Endpoint) -> None:
        if endpoint.unicast in self._asked or len(self._asked) >= MOST_ENDPOINTS:
            return
        asked, push = Asked(endpoint), None
        with contextlib.suppress(HoplineError):  # no key for it, or no address
            push = self._channels.push(endpoint.unicast, lambda frames: self._answered(asked, frames))
            if self._are_ours or (self._are_ours is None and not endpoint.broadcast):
                push.send(control_frames(HowAreYou()))
        self._asked[endpoint.unicast] = asked, push

    def _answered(self, asked: Asked, frames: list[bytes]) -> None:
        try:
            payload = read_control(decode(frames))
        except WireError:
            return
        if not isinstance(payload, RendezvousReport) or payload.node is None:
            return
        asked.report = payload
        self._news.set()
        for node in (*payload.nodes, *([payload.leader] if payload.leader is not None else ())):
            # Whom one of ours names is one of ours.
            if node.unicast_uri and self._may_connect(node.unicast_uri):
                self._ask(Endpoint(node.unicast_uri))
