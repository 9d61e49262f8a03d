"""Hopline beside nodes of the reference system, which are scripted from what is known of them: see `station.py`.

Each run has new identities, ports and keys. A reference station writes down whatever a real one would stumble over; none of
them may have anything to complain about.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from typing import TypeVar

import pytest

from hopline import Actor, Domain, Domains, Node
from hopline.assembly import Settings, make_rendezvous
from hopline.cluster.rendezvous import Rendezvous
from hopline.cluster.settings import RendezvousSettings
from hopline.errors import DeliveryError, RemoteError
from hopline.identity import MessageType
from hopline.payload.proto import ProtoMessage
from hopline.payload.registry import declare
from tests.reference.actors import APPLICATION, ActorError, captured_actors, text_body
from tests.reference.domains import KeyedDomains, NullDomains
from tests.reference.node import ReferenceNode
from tests.reference.rendezvous import Endpoint, ReferenceRendezvous
from tests.reference.station import Format, Stamp, Station

_T = TypeVar("_T")
VARIANTS = [
    pytest.param("v6", "int32", False, id="v6"),
    pytest.param("v6", "int32", True, id="v6 signed"),
    pytest.param("v5", "int32", False, id="v5"),
    pytest.param("v5", "uint16", True, id="v5 signed, as captured"),
]


class Hello(ProtoMessage, frozen=True):
    text: str | None = None


class Ehhlo(ProtoMessage, frozen=True):
    text: str | None = None


class Throw(ProtoMessage, frozen=True):
    text: str | None = None


class Notify(ProtoMessage, frozen=True):
    text: str | None = None


for kind in (Hello, Ehhlo, Throw, Notify):
    declare(kind, MessageType(kind.__name__.upper().encode(), 1), kind.write, kind.read)


class Greeter(Actor):
    """What the captured server does, here."""

    def __init__(self) -> None:
        self.notes: asyncio.Queue[str | None] = asyncio.Queue()

    async def greet(self, hello: Hello) -> Ehhlo:
        return Ehhlo(hello.text)

    async def fail(self, throw: Throw) -> Ehhlo:
        raise ValueError(f"thrown: {throw.text}")

    async def note(self, notify: Notify) -> None:
        self.notes.put_nowait(notify.text)


async def apart(call: Callable[..., _T], *arguments: object, **options: object) -> _T:
    """Call what blocks, while our event loop goes on."""
    return await asyncio.to_thread(functools.partial(call, *arguments, **options))


def our_domains(theirs: NullDomains) -> Domains | None:
    if not isinstance(theirs, KeyedDomains):
        return None
    return Domains(Domain(name, (theirs.keys[name],), "kino", "md5", theirs.identities[name]) for name in theirs.names)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@asynccontextmanager
async def our_rendezvous(*formats: Format) -> AsyncIterator[Rendezvous]:
    settings = RendezvousSettings(bind="tcp://127.0.0.1:0", formats=formats)
    rendezvous = make_rendezvous(Settings(rendezvous=settings))
    await rendezvous.start()
    try:
        yield rendezvous
    finally:
        await rendezvous.close()


def content(stations: list[Station]) -> None:
    for station in stations:
        assert not station.complaints, [(c.kind, c.why, c.fatal) for c in station.complaints][:5]


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.parametrize(("format", "stamp", "is_signed"), VARIANTS)
def test_a_node_joins_a_reference_network(format, stamp, is_signed, stack):
    asyncio.run(_join_reference(format, stamp, stack, KeyedDomains.random(APPLICATION) if is_signed else NullDomains()))


async def _join_reference(format: Format, stamp: Stamp, stack: ExitStack, domains: NullDomains) -> None:
    how = {"format": format, "stamp": stamp, "domains": domains}
    rendezvous = await apart(ReferenceRendezvous, format=format, stamp=stamp)
    stack.callback(rendezvous.close)
    server = await apart(ReferenceNode, [rendezvous.endpoint], actors=captured_actors(), **how)
    stack.callback(server.close)
    client = await apart(ReferenceNode, [rendezvous.endpoint], hub=True, **how)
    stack.callback(client.close)
    unicast, broadcast = rendezvous.endpoint
    greeter = Greeter()
    where = f"{unicast}+{broadcast.rpartition(':')[2]}"
    async with Node([greeter], bind="tcp://127.0.0.1:0", cluster=where, domains=our_domains(domains)) as node:
        await apart(client.wait_for_route, b"HELLO", b"THROW", b"NOTIFY", node=node.identity)
        # It is served by us.
        asked = await apart(client.ask, b"HELLO", text_body("x"), b"EHHLO", node=node.identity)
        assert asked.body == text_body("x")
        with pytest.raises(ActorError, match="thrown: y") as raised:
            await apart(client.ask, b"THROW", text_body("y"), b"EHHLO", node=node.identity)
        assert "ValueError" in raised.value.type_name
        await apart(client.publish, b"NOTIFY", text_body("n"))
        assert await asyncio.wait_for(greeter.notes.get(), 10) == "n"
        for _ in range(2):  # in turn, so one of them comes to us
            await apart(client.deliver, b"HELLO", text_body("r"))
        # We call its actors.
        assert await node.ask(Hello("a"), Ehhlo, node=server.identity, timeout=10) == Ehhlo("a")
        with pytest.raises(RemoteError, match="b"):
            await node.ask(Throw("b"), Ehhlo, node=server.identity, timeout=10)
        receipt = await node.deliver(Hello("c"), node=server.identity, timeout=10)
        assert (receipt.reached, receipt.node) == ("node", server.identity)
        await node.publish(Notify("d"))
        await apart(server.wait_for, lambda: any(m.body == text_body("d") for m in server.handled))
        # It hears our heart beat, as it sends to us.
        await apart(client.wait_for, lambda: _beats_of(client, node.identity))
    await apart(client.wait_for, lambda: node.identity not in client.routes.peers)
    content([rendezvous, server, client])
    books = node.statistics()
    assert books.in_flight == 0
    assert books.rejected == 0


def _beats_of(station: ReferenceNode, identity: bytes) -> bool:
    return any(identity in beat.body for beat in station.seen(b"KINO.HEARTBEAT", socket="health"))


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.parametrize(("format", "stamp", "is_signed"), VARIANTS)
def test_reference_nodes_join_our_rendezvous(format, stamp, is_signed, stack):
    asyncio.run(_join_ours(format, stamp, stack, KeyedDomains.random(APPLICATION) if is_signed else NullDomains()))


async def _join_ours(format: Format, stamp: Stamp, stack: ExitStack, domains: NullDomains) -> None:
    how = {"format": format, "stamp": stamp, "domains": domains}
    async with our_rendezvous(format) as rendezvous:
        endpoint = Endpoint(*rendezvous.endpoint)
        server = await apart(ReferenceNode, [endpoint], actors=captured_actors(), **how)
        stack.callback(server.close)
        client = await apart(ReferenceNode, [endpoint], hub=True, **how)
        stack.callback(client.close)
        await apart(client.wait_for_route, b"HELLO", b"THROW")
        await apart(server.wait_for_node, client.identity)
        answer = await apart(client.ask, b"HELLO", text_body("x"), b"EHHLO")
        assert answer.body == text_body("x")
        await apart(client.wait_for, lambda: client.seen(b"KINO.HEARTBEAT", socket="listener"))
        # And a node of ours among them, which finds everything with one address.
        where = rendezvous.endpoint.unicast
        async with Node([Greeter()], bind="tcp://127.0.0.1:0", cluster=where, domains=our_domains(domains)) as node:
            assert await node.ask(Hello("a"), Ehhlo, node=server.identity, timeout=10) == Ehhlo("a")
            await apart(client.wait_for_route, b"HELLO", node=node.identity)
            answer = await apart(client.ask, b"HELLO", text_body("z"), b"EHHLO", node=node.identity)
            assert answer.body == text_body("z")
        await apart(client.close)
        await apart(server.wait_for, lambda: not server.routes.peers)
        await apart(server.close)
        content([server, client])
        assert rendezvous.books.refused == 0


async def _ask_until_it_fails(node: Node) -> None:
    for _ in range(10_000):
        await node.ask(Hello("b"), Ehhlo, timeout=10)


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.parametrize("format", ["v5", "v6"])
def test_a_killed_reference_node_is_given_up(format, stack):
    asyncio.run(_kill(format, stack))


async def _kill(format: Format, stack: ExitStack) -> None:
    rendezvous = await apart(ReferenceRendezvous, format=format)
    stack.callback(rendezvous.close)
    server = await apart(ReferenceNode, [rendezvous.endpoint], actors=captured_actors(), format=format)
    stack.callback(server.close)
    unicast, broadcast = rendezvous.endpoint
    where = f"{unicast}+{broadcast.rpartition(':')[2]}"
    async with Node(bind="tcp://127.0.0.1:0", cluster=where, hold_seconds=2.0) as node:
        assert await node.ask(Hello("a"), Ehhlo, timeout=10) == Ehhlo("a")
        await apart(server.kill)
        with pytest.raises(DeliveryError) as raised:
            await _ask_until_it_fails(node)
        assert raised.value.code in ("PEER_LOST", "NO_ROUTE")
        assert server.identity not in node.routes()
    content([rendezvous])
