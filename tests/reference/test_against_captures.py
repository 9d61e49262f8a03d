"""The check of the equipment: a scripted network says what the captured one said, message by message and byte for byte.

Identities, addresses, keys and times differ in every run, so a capture is first retold: decoded, every name in it replaced
by the name that plays the same role here (the server's node identity, the client's third correlation id, ...), signed with
our keys and encoded again. Then the frames must be equal. Of the captures it takes the first round of the client's requests;
what repeats (heart beats, leases, questions for routes) counts once, and clients other than the captured one are left out.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from hopline.payload.service import (
    AckWriteLease,
    ExceptionMessage,
    HeartBeat,
    RegisterExternalRoute,
    RendezvousNode,
    ServicePayload,
    WriteLease,
    is_service,
    read_service,
)
from hopline.wire import Decoded, Message, decode, encode
from tests.reference.actors import APPLICATION, ActorError, captured_actors, text_body
from tests.reference.domains import KeyedDomains, NullDomains
from tests.reference.node import ReferenceNode
from tests.reference.rendezvous import ReferenceRendezvous
from tests.reference.station import NO_CORRELATION, PATIENCE_S, Station

CAPTURES = Path(__file__).resolve().parents[3] / "shared" / "captures"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CAPTURES.is_dir(), reason="the reference captures are not part of the project"),
]

ROUND_OUT, ROUND_IN = 6, 5
"""Messages of the client's first round, and of the answers: nothing answers the broadcast."""

Story = dict[str, list["Seen"]]
"""By station (client, server, rv): what it saw, in order."""

Cast = dict[str, Any]
"""By role: who plays it."""


class Seen(NamedTuple):
    direction: str
    frames: list[bytes]
    decoded: Decoded
    body: ServicePayload | None

    @property
    def message(self) -> Message:
        return self.decoded.message

    @property
    def channel(self) -> str:
        """Which sockets it was seen on; the captures do not say."""
        if self.body is None or self.message.identity in {b"KINO.EXCEPTION", b"KINO.RCPTCONFIRM"}:
            return "flow"
        if self.message.identity.endswith(b"LEASE"):
            return "synod"
        if self.message.identity[5:9] in {b"ADDP", b"STAR", b"DELE", b"CHCK"}:
            return "intercom"
        return "beat" if isinstance(self.body, HeartBeat) and self.body.socket_identity else "rendezvous"


def see(direction: str, frames: list[bytes]) -> Seen:
    decoded = decode(frames)
    message = decoded.message
    is_ours = is_service(message.identity, message.version, message.partition)
    return Seen(direction, frames, decoded, read_service(message.identity, message.body) if is_ours else None)


def captured(name: str) -> Story:
    def lines(station: str) -> Iterator[Seen]:
        with (CAPTURES / f"{name}_{station}.jsonl").open(encoding="utf-8") as file:
            for line in file:
                item = json.loads(line)
                yield see(item["direction"], [bytes.fromhex(frame) for frame in item["frames"]])

    return {station: list(lines(station)) for station in ("client", "server", "rv")}


def recorded(**stations: Station) -> Story:
    return {name: [see(item.direction, item.frames) for item in one.traffic] for name, one in stations.items()}


# --- who is who -------------------------------------------------------------------------------------------------------


def cast_of(story: Story) -> Cast:
    """Find out who plays which role."""
    cast: Cast = {}
    for name in ("server", "client"):
        own = [seen for seen in story[name] if seen.direction == "out"]
        registrations = [seen.body for seen in own if isinstance(seen.body, RegisterExternalRoute)]
        first = registrations[0]
        cast |= {f"{name} id": first.node_identity, f"{name} uri": first.uri, f"{name} health": first.health.uri}
        for route in (route for body in registrations for route in body.routes):
            kind = route.message_contracts[0].identity.decode() if route.message_contracts else "hub"
            cast[f"{name} {kind}"] = route.receiver_identity
        domains = dict.fromkeys(seen.message.domain for seen in own if seen.message.identity == b"KINO.REQCLUSTROUTES")
        cast |= {f"domain {number}": domain for number, domain in enumerate(domains)}
    for seen in story["rv"]:
        if isinstance(seen.body, WriteLease):
            node = RendezvousNode.read(seen.body.lease.owner_payload)
            cast |= {"rv id": seen.body.lease.identity, "rv node": seen.body.lease.owner_payload}
            cast |= {
                "rv broadcast": node.broadcast_uri,
                "rv unicast": node.unicast_uri,
                "rv partner": node.partner_broadcast_uri,
            }
        elif isinstance(seen.body, AckWriteLease):
            cast["rv synod"] = seen.body.sender_uri
        elif seen.direction == "in" and isinstance(seen.body, HeartBeat):
            cast["dealer of rv"] = seen.frames[0]
        elif seen.direction == "in" and isinstance(seen.body, RegisterExternalRoute):
            for name in ("server", "client"):
                if seen.body.node_identity == cast[f"{name} id"]:
                    cast[f"dealer of {name}"] = seen.frames[0]
    cast["backend of server"] = flow(story, "client", "in")[0].frames[0]
    cast["backend of client"] = flow(story, "server", "in")[0].frames[0]
    questions = [seen for seen in flow(story, "client", "out") if seen.message.correlation_id != NO_CORRELATION]
    return cast | {f"correlation {number}": seen.message.correlation_id for number, seen in enumerate(questions)}


def flow(story: Story, station: str, direction: str) -> list[Seen]:
    """The first round of requests, as one station saw it."""
    asks = (station, direction) in {("client", "out"), ("server", "in")}
    whole = [seen for seen in story[station] if seen.channel == "flow" and seen.direction == direction]
    return whole[: ROUND_OUT if asks else ROUND_IN]


# --- retelling --------------------------------------------------------------------------------------------------------


def renamed(value: object, names: dict[Any, Any]) -> object:
    """Replace names, at any depth."""
    if isinstance(value, bytes | str):
        return names.get(value, value)
    if isinstance(value, tuple):
        return tuple(renamed(item, names) for item in value)
    if isinstance(value, msgspec.Struct):
        return type(value)(*(renamed(getattr(value, name), names) for name in value.__struct_fields__))
    return value


def timeless(value: object) -> object:
    """Replace the times of leases and ballots by one that is as long."""
    if not isinstance(value, msgspec.Struct):
        return value
    fields = {name: timeless(getattr(value, name)) for name in value.__struct_fields__}
    moments = {name: 600_000_000_000_000_000 for name in fields if name in {"timestamp_ticks", "expires_at_ticks"}}
    return type(value)(**fields | {name: moment for name, moment in moments.items() if fields[name]})


class Telling(NamedTuple):
    """How to say of a captured message what our network should have said."""

    names: dict[Any, Any]
    domains: NullDomains

    def retell(self, seen: Seen) -> list[bytes]:
        body = seen.message.body
        if seen.body is not None and not isinstance(seen.body, ExceptionMessage):
            body = timeless(renamed(seen.body, self.names)).write()
        message = renamed(msgspec.structs.replace(seen.message, body=b""), self.names)
        message = msgspec.structs.replace(message, body=body)
        if message.signature and self.names:
            message = self.domains.sign(message)
        return encode(message, seen.decoded.format, seen.decoded.variant, seen.decoded.extra)

    def all(self, story: Iterable[Seen]) -> list[str]:
        """As text, so that a difference can be read."""
        return [show(self.retell(seen)) for seen in story]


def show(frames: list[bytes]) -> str:
    return " | ".join(frame.decode("ascii") if frame.isascii() and frame.isalnum() else frame.hex() for frame in frames)


class Comparison(NamedTuple):
    """The captured network and ours, both told in our names."""

    capture: Story
    ours: Story
    names: Telling
    as_is: Telling

    def lists(self, pick: Callable[[Story], Iterable[Seen]]) -> tuple[list[str], list[str]]:
        return self.names.all(pick(self.capture)), self.as_is.all(pick(self.ours))

    def sets(self, pick: Callable[[Story], Iterable[Seen]]) -> tuple[list[str], list[str]]:
        """What repeats counts once, in the order of the first time."""
        capture, ours = self.lists(pick)
        return list(dict.fromkeys(capture)), list(dict.fromkeys(ours))


# --- our network, doing what the captured one did ---------------------------------------------------------------------


@pytest.fixture(scope="module", params=["v6_nullsec", "v6_hmac", "v5_nullsec"])
def comparison(request: pytest.FixtureRequest) -> Comparison:
    capture = captured(request.param)
    failures = (seen.body for seen in capture["client"] if isinstance(seen.body, ExceptionMessage))
    trace = next(failures).stack_trace
    format, _, security = request.param.partition("_")
    domains = KeyedDomains.random(APPLICATION) if security == "hmac" else NullDomains()
    common = {"format": format, "stamp": "uint16"}
    with ExitStack() as stack:
        rv = stack.enter_context(ReferenceRendezvous(**common))
        rv.wait_for(lambda: rv.leads)
        server = ReferenceNode([rv.endpoint], actors=captured_actors(trace), domains=domains, **common)
        stack.enter_context(server)
        asked = len(domains.names)
        server.wait_for(lambda: len(server.seen(b"KINO.REQCLUSTROUTES", socket="listener")) == asked)
        client = stack.enter_context(ReferenceNode([rv.endpoint], hub=True, domains=domains, **common))
        client.wait_for_route(b"HELLO", b"EHHLO", b"THROW", b"NOTIFY")
        server.wait_for_node(client.identity)
        one_round(client)
        server.wait_for(lambda: server.seen(b"KINO.DISCOVMSGROUTE", socket="listener"))
        rv.beat()
        for node in (client, server):
            node.wait_for(lambda node=node: node.seen(b"KINO.HEARTBEAT", socket="listener"))
        hear_beats(client, server)
        client.close()
        server.wait_for(lambda: len(server.seen(b"KINO.DELETEPEER", socket="health")) == asked)
        server.close()
        rv.wait_for(lambda: len(rv.seen(socket="synod")) >= 16)  # two leases
        # Of both nodes, and each twice: they do not wait for ever until it has come round.
        rv.wait_for(lambda: len(rv.seen(b"KINO.UNREGNODE", direction="out")) == 4 * asked)
        assert [client.complaints, server.complaints, rv.complaints] == [[], [], []]
        ours = recorded(client=client, server=server, rv=rv)
    captured_cast, cast = cast_of(capture), cast_of(ours)
    assert captured_cast.keys() == cast.keys()
    names = {captured_cast[role]: cast[role] for role in cast if captured_cast[role]}
    return Comparison(capture, ours, Telling(names, domains), Telling({}, domains))


def one_round(client: ReferenceNode) -> None:
    client.ask(b"HELLO", text_body("hello #0"), b"EHHLO")
    client.ask(b"HELLO", text_body("traced #0"), b"EHHLO", trace=True)
    client.ask(b"EHHLO", text_body("aabbbc 0"), b"GRPCHARSRESP")
    with pytest.raises(ActorError, match="boom: t0"):
        client.ask(b"THROW", text_body("t0"), b"EHHLO")
    for _ in range(2):  # the captured client used two keys for messages that never left it
        client.ask(b"HELLO", text_body("to myself"), b"HELLO")
    client.deliver(b"HELLO", text_body("receipt #0"))
    client.publish(b"NOTIFY", text_body("n0"))


def hear_beats(*nodes: ReferenceNode) -> None:
    """Until every one has heard another's heart; a subscription takes its time, so beat until it is heard."""
    deadline = time.monotonic() + PATIENCE_S
    while not all(node.seen(b"KINO.HEARTBEAT", socket="health") for node in nodes):
        assert time.monotonic() < deadline
        for node in nodes:
            node.check_health()
            node.rest()


# --- what must be equal -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("station", "direction"), [(s, d) for s in ("client", "server") for d in ("out", "in")])
def test_requests_and_answers(comparison: Comparison, station: str, direction: str) -> None:
    capture, ours = comparison.lists(lambda story: flow(story, station, direction))
    assert len(capture) in {ROUND_IN, ROUND_OUT}
    assert ours == capture


@pytest.mark.parametrize("station", ["client", "server"])
def test_what_a_node_tells_the_rendezvous_in_this_order(comparison: Comparison, station: str) -> None:
    def told(story: Story) -> Iterator[Seen]:
        return (seen for seen in story[station] if (seen.channel, seen.direction) == ("rendezvous", "out"))

    capture, ours = comparison.sets(told)
    assert ours == capture


@pytest.mark.parametrize("station", ["client", "server"])
@pytest.mark.parametrize("channel", ["rendezvous", "beat", "intercom"])
def test_what_a_node_hears(comparison: Comparison, station: str, channel: str) -> None:
    def heard(story: Story) -> Iterator[Seen]:
        return (
            seen
            for seen in ours_only(story, cast_of(story))
            if (seen.channel, seen.direction) == (channel, "in") and seen.message.identity != b"KINO.CHCKSTALEPEERS"
        )

    def ours_only(story: Story, cast: Cast) -> Iterator[Seen]:
        return (seen for seen in story[station] if is_about(seen, cast))

    capture, ours = comparison.sets(heard)
    assert capture
    assert sorted(ours) == sorted(capture)


def is_about(seen: Seen, cast: Cast) -> bool:
    """Not about another client than the captured one."""
    names = [name for name in (getattr(seen.body, "__struct_fields__", ())) if name.endswith("node_identity")]
    names += ["socket_identity"] if seen.channel in {"beat", "intercom"} and hasattr(seen.body, "socket_identity") else []
    return all(getattr(seen.body, name) in {None, cast["server id"], cast["client id"]} for name in names)


def test_what_the_rendezvous_hears(comparison: Comparison) -> None:
    def heard(story: Story) -> Iterator[Seen]:
        cast = cast_of(story)
        return (s for s in story["rv"] if (s.channel, s.direction) == ("rendezvous", "in") and is_about(s, cast))

    capture, ours = comparison.sets(heard)
    assert sorted(ours) == sorted(capture)


def test_the_rendezvous_relays_what_it_hears_twice_and_changes_frame_0(comparison: Comparison) -> None:
    for story in (comparison.capture, comparison.ours):
        traffic = [seen for seen in story["rv"] if seen.channel == "rendezvous"]
        expected: Counter[tuple[bytes, ...]] = Counter()
        for seen in traffic:
            if seen.direction == "in":
                first = seen.frames[0] if seen.decoded.format == "v6" else b""
                assert seen.frames[1:3] == [b"", b""]
                expected[first, *seen.frames[2:]] += 2
                if isinstance(seen.body, HeartBeat):  # its own, seen on its way out, too
                    expected[tuple(seen.frames[1:])] += 1
        assert Counter(tuple(seen.frames) for seen in traffic if seen.direction == "out") == expected


def test_two_rounds_of_the_lease(comparison: Comparison) -> None:
    capture, ours = comparison.lists(lambda story: [s for s in story["rv"] if s.channel == "synod"][:16])
    assert len(capture) == 16
    assert ours == capture


@pytest.mark.parametrize("station", ["client", "server"])
def test_the_captured_signatures_are_right_by_our_reckoning(station: str) -> None:
    names = ("A" * 30, "B" * 30)
    domains = KeyedDomains({name: name[:16].encode() for name in names}, dict.fromkeys(names, ()))
    signed = [seen.message for seen in captured("v6_hmac")[station] if seen.message.signature]
    assert len(signed) > 30
    for message in signed:
        domains.check(message)


def test_routing_ids_are_those_of_sockets_without_a_name(comparison: Comparison) -> None:
    cast = cast_of(comparison.ours)
    ids = [cast[f"{socket} of {name}"] for socket in ("dealer", "backend") for name in ("server", "client")]
    assert all(len(routing_id) == 5 and routing_id[0] == 0 for routing_id in ids)
