"""Control: how a running node is asked how it is, by messages like all others.

An actor that a node does not have unless it is given one: `node.add_actor(Control(node))`, as `hopline node` does. It is
not announced, so only who addresses exactly this node (`node=`) reaches it, and with domains only who has the key of the
domain that the identities below belong to. It answers and changes nothing; bodies and keys are in no answer.
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from hopline.identity import MessageType, is_actor
from hopline.node.actor import Actor
from hopline.payload.registry import Payload, message

if TYPE_CHECKING:
    from hopline.node.node import Node

IDENTITIES: Final = ("HOPLINE.STATUS", "HOPLINE.STATUSREPORT", "HOPLINE.ROUTES", "HOPLINE.ROUTESREPORT")
"""What a domain must hold for control to work where there are domains."""


@message("HOPLINE.STATUS")
class Status(Payload):
    """How are you?"""


@message("HOPLINE.STATUSREPORT")
class StatusReport(Payload):
    """The books of a node, and how many dead letters there were of each code."""

    node: str
    address: str
    statistics: dict[str, int]
    dead_letters: dict[str, int]
    capture: dict[str, Any] | None = None


@message("HOPLINE.ROUTES")
class Routes(Payload):
    """Who can take what?"""


class TypeRow(Payload):
    """A message type in text."""

    identity: str
    version: int | str
    partition: str = ""


class ActorRow(Payload):
    """An actor, without the first byte of its identity, and what it handles. Of other nodes the class is not known."""

    actor: str
    types: list[TypeRow]
    class_name: str = ""
    is_local_only: bool = False


class NodeRow(Payload):
    """Another node, as far as this one knows it."""

    node: str
    address: str
    actors: list[ActorRow]
    hubs: int


@message("HOPLINE.ROUTESREPORT")
class RoutesReport(Payload):
    """The actors of a node, and the nodes it knows."""

    node: str
    address: str
    actors: list[ActorRow]
    nodes: list[NodeRow]


class Control(Actor):
    """Answers for the node it is given."""

    local_only = True
    when_full = "fail"  # a node under load does not stop reading for the sake of those who ask how it is

    def __init__(self, node: "Node", capture_report: Callable[[], dict[str, Any] | None] = lambda: None) -> None:
        self._node = node
        self._capture_report = capture_report

    async def status(self, _: Status) -> StatusReport:
        """Report the books."""
        node = self._node
        books, letters = asdict(node.statistics()), node.dead_letters.counts
        return StatusReport(as_text(node.identity), node.address, books, letters, self._capture_report())

    async def routes(self, _: Routes) -> RoutesReport:
        """Report the routes."""
        node = self._node
        actors = [
            ActorRow(_actor(host.identity), type_rows(host.types), type(host.actor).__qualname__, host.actor.local_only)
            for host in node._hosts.values()  # noqa: SLF001 - our own
        ]
        nodes = [
            NodeRow(
                as_text(identity),
                known.uri,
                [ActorRow(_actor(actor), type_rows(known.actors[actor])) for actor in sorted(known.actors)],
                len(known.hubs),
            )
            for identity, known in node.routes().items()
        ]
        return RoutesReport(as_text(node.identity), node.address, actors, nodes)


def as_text(raw: bytes) -> str:
    r"""An identity as text; as hex if not all of it can be printed.

    >>> as_text(b"HELLO"), as_text(b"\x01H")
    ('HELLO', '0x0148')
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return "0x" + raw.hex()
    return text if text.isprintable() else "0x" + raw.hex()


def _actor(identity: bytes) -> str:
    """The first byte only says that it is an actor."""
    return as_text(identity[1:] if is_actor(identity) else identity)


def type_rows(types: "set[MessageType] | list[MessageType]") -> list[TypeRow]:
    """Message types in text, in the order of their names."""
    rows = [
        TypeRow(
            as_text(kind.identity),
            kind.version if isinstance(kind.version, int) else as_text(kind.version),
            as_text(kind.partition),
        )
        for kind in types
    ]
    return sorted(rows, key=lambda row: (row.identity, str(row.version), row.partition))
