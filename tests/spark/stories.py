"""What happens in the network: asks and their ends, chains, broadcasts, receipts, losses, forgeries, announcements.

Each story moves messages through `generator.Network` and notes what a capture must show of it: the request and what came of
it, the cause of an effect, the life of a message with a TTL, the time of a route. Everything that can be chosen is drawn
from the network's own random numbers, so a seed is a whole world.
"""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from hopline.flow import inherit_flow, record_hop, register_callbacks
from hopline.identity import EXCEPTION, RECEIPT, MessageType
from hopline.payload.service import ExceptionMessage, HeartBeat, ServicePayload
from hopline.wire import TICKS_PER_MS, TRACE_ROUTING, Distribution, Message, encode
from tests.spark.generator import Network, Node, Parcel, Sighting

ZEROS = b"00000000-0000-0000-0000-000000000000"
DONE = MessageType(b"ORDER.DONE", 1)


@dataclass
class Asked:
    """A request, or an answer without one, and what came of it. `first` is the request's sighting that counts."""

    asker: Node
    first: Sighting | None
    answers: list[Sighting]
    outcome: str
    key: int
    error: tuple[str | None, str | None] = (None, None)


@dataclass
class Life:
    """A message with a TTL: its first and its last sighting, and its fate."""

    first: Sighting
    last: Sighting
    fate: str | None


@dataclass
class Effect:
    """A message that was sent because another one had come."""

    cause: Sighting | None
    sent: Sighting


@dataclass
class World:
    """A network, and what happened in it."""

    network: Network
    asked: list[Asked] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    routes: list[dict[str, Any]] = field(default_factory=list)
    keys: int = 0

    # Making, moving and finding messages.

    def message(self, identity: bytes, *, ttl_ms: float = 0, **fields: object) -> Message:
        rng = self.network.rng
        fields = {"body": rng.randbytes(rng.randrange(1, 60)), "correlation_id": rng.randbytes(8).hex().encode()} | fields
        ticks = int(ttl_ms * TICKS_PER_MS)
        return Message(identity=identity, version=1, trace_options=TRACE_ROUTING, ttl_ticks=ticks, **fields)

    def request(self, hub: Node, points=(DONE, EXCEPTION), *, ttl_ms: float = 0) -> Message:
        self.keys += 1
        message = self.message(b"ORDER", ttl_ms=ttl_ms)
        return register_callbacks(message, points, receiver=hub.hub, node=hub.identity, key=self.keys)

    def travel(self, parcel: Parcel, path: list[Node], *, is_lost=False, slow_ms=0.0, domain="") -> Parcel | None:
        """Send a message along a path; it may be slow or lost on the last stretch."""
        for node in path:
            is_last = node is path[-1]
            ms = slow_ms if slow_ms and is_last else None
            moved = self.network.send(parcel, node, is_lost=is_lost and is_last, ms=ms, domain=domain)
            if moved is None:
                return None
            parcel = moved
        return parcel

    def output(self, parcel: Parcel, identity: bytes, *, body: bytes | None = None) -> Parcel:
        """What an actor makes of what it was given."""
        self.network.pause()
        made = Message(identity=identity, version=1, body=self.network.rng.randbytes(20) if body is None else body)
        return self.network.make(parcel.at, inherit_flow(made, parcel.message), tap="actor_out", way=parcel.way)

    def seen(self, like: Message) -> list[Sighting]:
        """All sightings of a message, also where an old format has dropped some of it."""
        want = (like.correlation_id, like.identity, like.body)
        found = self.network.sightings
        return [each for each in found if (each.message.correlation_id, each.message.identity, each.message.body) == want]

    def _note(self, hub: Node, request: Message, answers: list[Message], outcome: str, error=(None, None)) -> None:
        """Note a request. Its answers have come at the hub, at its node, or, if that is not captured, where it was seen."""
        first = self.seen(request)[0]
        came = []
        for answer in answers:
            mine = self.seen(answer)
            there = [each for each in mine if each.node is hub and each.tap in ("hub_in", "wire_in")]
            came += (there or [each for each in mine if hub.kind == "stranger" and each.node is first.node])[:1]
        key = 0 if hub.format in ("v3", "v4") else request.callback_key
        self.asked.append(Asked(hub, first, came, outcome, key, error))

    # Asking.

    def ask(self, path: list[Node], *, outcome="ok", ttl_ms=0.0, domain="", answers=1, lose="") -> None:
        """Ask an actor at the end of a path that begins at the hub, and may end there too.

        Outcomes are those of `callbacks`; "slow" is a request that comes after its TTL, and is answered all the same.
        """
        hub = path[0]
        request = self.request(hub, ttl_ms=ttl_ms)
        parcel: Parcel | None = self.network.make(hub, request)
        if len(path) > 1:
            slow_ms = ttl_ms * 1.5 if outcome == "slow" else 0.0
            parcel = self.travel(parcel, path[1:], is_lost=lose == "request", slow_ms=slow_ms, domain=domain)
        if parcel is not None:
            self.network.give(parcel)
        if ttl_ms:
            self._note_life(request, outcome, has_come=parcel is not None)
        made: list[Message] = []
        error: tuple[str | None, str | None] = (None, None)
        for _ in range(answers if parcel is not None and outcome not in ("pending", "expired") else 0):
            if outcome == "exception":
                error = ("KeyError", f"no order {self.network.rng.randrange(100)}")
                answer = self.output(parcel, EXCEPTION.identity, body=ExceptionMessage(error[1], error[0]).write())
            else:
                answer = self.output(parcel, DONE.identity)
            made.append(answer.message)
            self.network.wait(ttl_ms * 2 if outcome == "late" else 0)
            back = self.travel(answer, path[-2::-1] if len(path) > 1 else [], is_lost=lose == "answer", domain=domain)
            if back is not None:
                self.network.give(back, "hub_in")
        self.network.wait(ttl_ms * 2 if outcome == "expired" else 0)
        self._note(hub, request, made, {"slow": "late"}.get(outcome, outcome), error)

    def _note_life(self, request: Message, outcome: str, *, has_come: bool) -> None:
        mine = self.seen(request)
        # A request that an old format was sent has another fingerprint there, and that one counts.
        mine = [each for each in mine if each.uid == mine[-1].uid]
        fate = "late" if outcome == "slow" else "in_time"
        if not has_come:
            fate = "expired_in_flight" if outcome == "expired" else None
        self.lives.append(Life(mine[0], mine[-1], fate))

    def chain(self, hub: Node, steps: list[Node], *, domain="") -> None:
        """A request that is worked on at several nodes: each sends another message on, the last one answers."""
        request = self.request(hub)
        parcel = self.network.make(hub, request)
        cause = None
        for number, node in enumerate(steps):
            moved = self.travel(parcel, [node], domain=domain)
            sent = self.network.moves[-1].sent
            if number and sent is not None:
                self.effects.append(Effect(cause, sent))
            cause = moved.last
            self.network.give(moved)
            is_last = number == len(steps) - 1
            parcel = self.output(moved, DONE.identity if is_last else f"STEP.{number}".encode())
        answer = parcel.message
        self.network.give(self.travel(parcel, [hub], domain=domain), "hub_in")
        self._note(hub, request, [answer], "ok")

    def receipt(self, hub: Node, target: Node) -> None:
        """A sender wants to know that its message arrived: the receiving node answers, and no actor does."""
        request = self.request(hub, (RECEIPT, EXCEPTION))
        moved = self.travel(self.network.make(hub, request), [target])
        arrived = msgspec.structs.replace(moved.message, callback_points=request.callback_points)
        answer = inherit_flow(Message(identity=RECEIPT.identity, version=1), arrived)
        self.network.give(moved)
        back = self.travel(Parcel(answer, moved.way, target, self.network.now_ns), [hub])
        self.network.give(back, "hub_in")
        self._note(hub, request, [answer], "ok")

    def orphan(self, hub: Node, actor: Node, stranger: Node) -> None:
        """An answer to a request that went where nobody looked."""
        request = self.request(hub)
        began = record_hop(request, hub.entry).message
        came = Parcel(record_hop(began, stranger.entry).message, (hub.entry, stranger.entry), actor, self.network.now_ns)
        answer = self.output(came, DONE.identity)
        self.network.give(self.travel(answer, [hub]), "hub_in")
        (came_in,) = [each for each in self.seen(answer.message) if each.tap == "hub_in"]
        self.asked.append(Asked(hub, None, [came_in], "orphan", request.callback_key))

    # Without an answer.

    def tell(self, path: list[Node], *, ttl_ms=0.0, fate: str | None = None, lose=False, slow=False) -> None:
        """A message that nobody answers; with a TTL it has a fate."""
        message = self.message(b"NEWS", ttl_ms=ttl_ms)
        parcel = self.network.make(path[0], message)
        moved = self.travel(parcel, path[1:], is_lost=lose, slow_ms=ttl_ms * 1.5 if slow else 0.0)
        if moved is not None and len(path) > 1:
            self.network.give(moved)
        self.network.wait(ttl_ms * 2)
        if ttl_ms:
            mine = self.seen(message)
            self.lives.append(Life(mine[0], mine[-1], fate))

    def publish(self, source: Node, targets: list[Node], *, actors: int = 2) -> None:
        """A broadcast: one message for all nodes, and in each for several actors."""
        message = self.message(b"PRICE", distribution=Distribution.BROADCAST)
        parcel = self.network.make(source, message)
        if source.kind == "live":
            for _ in range(actors):
                self.network.give(parcel)
        for target in targets:
            moved = self.travel(parcel, [target])
            if source.kind == "reference":  # it is one object, and each peer sees one hop and one entry more
                sent, _ = record_hop(parcel.message, source.entry)
                parcel = Parcel(sent, (*parcel.way, source.entry), source, self.network.now_ns)
            for _ in range(actors):
                self.network.give(moved)

    def repeat(self, source: Node, target: Node, times: int) -> None:
        """Equal messages, which only their number tells apart."""
        message = self.message(b"TICK", body=b"tick", correlation_id=ZEROS)
        for _ in range(times):
            moved = self.travel(self.network.make(source, message), [target])
            self.network.give(moved)
            self.network.pause()

    def say(self, source: Node, payload: ServicePayload, targets: list[Node], domain="", *, is_forged=False) -> Sighting:
        """Control traffic: no trail, no hops; answers where its source saw it leave."""
        message = Message(identity=payload.identity, version=1, body=payload.write(), correlation_id=ZEROS, domain=domain)
        if domain:
            ring = self.network.forged if is_forged else self.network.good
            message = ring.sign(message, now_ns=self.network.now_ns, nonce=self.network.rng.randbytes(16))
        verdict = "unsigned" if not domain else "invalid" if is_forged else "valid"
        first = len(self.network.sightings)
        for target in targets:
            named = msgspec.structs.replace(message, socket_identity=target.identity)
            self.network.put(Parcel(named, (), source, self.network.now_ns), target, verdict=verdict)
        return self.network.sightings[first]

    def beat(self, source: Node, targets: list[Node]) -> None:
        """A heart beat as reference nodes publish it: sent once, to nobody in particular, and heard by many."""
        body = HeartBeat(heart_beat_interval_ticks=50_000_000, socket_identity=source.identity).write()
        message = Message(identity=HeartBeat.identity, version=1, body=body, correlation_id=ZEROS)
        parcel = Parcel(message, (), source, self.network.now_ns)
        layout = {"format": source.format, "variant": "int32-stamp", "verdict": "unsigned"}
        frames = encode(message, source.format, "int32-stamp")
        sent = self.network.see(source, "scaleout_out", parcel, frames=frames, **layout)
        for target in targets:
            self.network.wait(0.2)
            self.network.arrive(parcel, target, frames, sent, socket=b"", **layout)

    # Forged.

    def attack(self, target: Node, source: Node, how: str, *, socket: bytes | None = None) -> None:
        """A message that somebody made who may not: forged, without a signature, of no domain; or an old one again."""
        message = self.message(b"ORDER")
        if how == "unknown-domain":
            signed = msgspec.structs.replace(message, domain="nobody's", signature=b"trust me")
            named = msgspec.structs.replace(record_hop(signed, source.entry).message, socket_identity=target.identity)
            self.network.put(Parcel(named, (source.entry,), source, self.network.now_ns), target, verdict=how)
            return
        signer = self.network.forged if how == "invalid" else self.network.good
        parcel = Parcel(message, (), source, self.network.now_ns)
        moved = self.network.send(parcel, target, domain="" if how == "unsigned" else "full", signer=signer)
        if how == "replayed":
            self.network.pause()
            again = Parcel(moved.last.message, moved.way, source, self.network.now_ns)
            self.network.arrive(again, target, moved.last.frames, socket=socket, format="v6", variant="", verdict=how)
