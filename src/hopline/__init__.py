"""Hopline: an actor network in which every message carries its own itinerary, and the tools to read them.

The names here are the public ones; they are loaded when they are used, so that importing hopline costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from hopline.assembly import Node as Node
    from hopline.errors import DeliveryError as DeliveryError
    from hopline.errors import HoplineError as HoplineError
    from hopline.errors import RemoteError as RemoteError
    from hopline.node.actor import Actor as Actor
    from hopline.node.actor import Context as Context
    from hopline.node.actor import broadcast as broadcast
    from hopline.node.actor import to as to
    from hopline.node.node import Receipt as Receipt
    from hopline.node.statistics import Statistics as Statistics
    from hopline.node.sync import SyncNode as SyncNode
    from hopline.node.taps import Tap as Tap
    from hopline.payload.registry import Payload as Payload
    from hopline.payload.registry import message as message
    from hopline.security import Domain as Domain
    from hopline.security import Domains as Domains

_ROOMS = {
    "Node": "assembly",
    "DeliveryError": "errors",
    "HoplineError": "errors",
    "RemoteError": "errors",
    "Actor": "node.actor",
    "Context": "node.actor",
    "broadcast": "node.actor",
    "to": "node.actor",
    "Receipt": "node.node",
    "Statistics": "node.statistics",
    "SyncNode": "node.sync",
    "Tap": "node.taps",
    "Payload": "payload.registry",
    "message": "payload.registry",
    "Domain": "security",
    "Domains": "security",
}


def __getattr__(name: str) -> object:
    """Load a public name from its room."""
    room = _ROOMS.get(name)
    if room is None:
        raise AttributeError(f"module 'hopline' has no attribute {name!r}")
    return getattr(import_module(f"hopline.{room}"), name)


def __dir__() -> list[str]:
    """The public names."""
    return [*_ROOMS, "__version__"]
