"""The seam to the outside: moves frame lists between nodes and knows nothing of what they mean."""

from typing import TYPE_CHECKING

from hopline.transport.base import Limits, Link, Listener, Transport
from hopline.transport.channels import Channels
from hopline.transport.memory import MemoryNetwork, MemoryTransport

if TYPE_CHECKING:
    from hopline.transport.curve import Curve
    from hopline.transport.zmq import ZmqTransport
    from hopline.transport.zmq_channels import ZmqChannels

__all__ = [
    "Channels",
    "Curve",
    "Limits",
    "Link",
    "Listener",
    "MemoryNetwork",
    "MemoryTransport",
    "Transport",
    "ZmqChannels",
    "ZmqTransport",
]


def __getattr__(name: str) -> object:
    """Load ZeroMQ for those who need it, and only for them."""
    if name == "ZmqTransport":
        from hopline.transport.zmq import ZmqTransport  # noqa: PLC0415

        return ZmqTransport
    if name == "ZmqChannels":
        from hopline.transport.zmq_channels import ZmqChannels  # noqa: PLC0415

        return ZmqChannels
    if name == "Curve":
        from hopline.transport.curve import Curve  # noqa: PLC0415

        return Curve
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
