"""A scripted node of the reference network: sockets 1 and 2 of protocol.md 3.2, behaving as sections 2 and 3 say.

    frontend    ROUTER, bound, named by the node    1   messages of other nodes; checked, then routed
    backend     ROUTER, connecting, mandatory       2   messages to other nodes, addressed by their node identity
    3, 4        member.py
    5, 6, 7     health.py

It keeps the reference's habits, the bad ones too: a TTL is never looked at, the first message to a peer waits, a broadcast
counts its peers as hops, v5 turns lists round, every message is signed anew, an exception is padded with zeros.
Identities, ports and keys are new in every run. Where a real node would lose its listener thread, this one stops listening.
"""

import time
from collections.abc import Sequence
from concurrent.futures import Future

import msgspec
import zmq

from hopline.errors import PayloadError
from hopline.identity import EXCEPTION, RECEIPT
from hopline.payload.bson import find_document, read_texts
from hopline.payload.service import Ping, is_service
from hopline.wire import TRACE_ROUTING, Distribution, Message, MessageType, RoutingEntry
from tests.reference.actors import ActorError, ReferenceActor, exception_body
from tests.reference.domains import NotAllowedError, NullDomains
from tests.reference.member import ROUTING_CONTROL, SLOW_S, Member, Times
from tests.reference.rendezvous import Endpoint
from tests.reference.routes import Peer
from tests.reference.station import LOOPBACK, NO_CORRELATION, PATIENCE_S, Format, Stamp, new_identity

replace = msgspec.structs.replace


class ReferenceNode(Member):
    """A node that joins the rendezvous from the moment it is made; with actors it serves, with a hub it asks.

    >>> from tests.reference.actors import captured_actors, text_body
    >>> from tests.reference.rendezvous import ReferenceRendezvous
    >>> with (
    ...     ReferenceRendezvous() as rendezvous,
    ...     ReferenceNode([rendezvous.endpoint], actors=captured_actors()) as server,
    ...     ReferenceNode([rendezvous.endpoint], hub=True) as client,
    ... ):
    ...     client.wait_for_route(b"HELLO")
    ...     server.wait_for_node(client.identity)
    ...     client.ask(b"HELLO", text_body("you"), b"EHHLO").body
    b'\\n\\x03you'
    """

    def __init__(
        self,
        rendezvous: Sequence[Endpoint],
        *,
        actors: Sequence[ReferenceActor] = (),
        hub: bool = False,
        format: Format = "v6",
        stamp: Stamp = "int32",
        domains: NullDomains | None = None,
        times: Times | None = None,
    ) -> None:
        super().__init__(rendezvous, actors, hub, format, stamp, domains, times)
        self.handled: list[Message] = []
        self.late: list[Message] = []
        """Replies that came when the first one had already been taken; the reference drops them."""
        self._keys = 0
        self._pending: dict[int, tuple[tuple[MessageType, ...], Future[Message]]] = {}
        self._start()

    # --- for tests ----------------------------------------------------------------------------------------------------

    def wait_for_route(self, *identities: bytes, node: bytes | None = None) -> None:
        """Until somebody else (or one certain node) is known to handle these; before that the reference drops them."""

        def is_known(identity: bytes) -> bool:
            nodes = self.routes.remote.get(MessageType(identity, 1), [])
            return node in nodes if node else bool(nodes)

        self.wait_for(lambda: all(map(is_known, identities)))

    def wait_for_node(self, node: bytes) -> None:
        self.wait_for(lambda: node in self.routes.peers)

    def ask(
        self, identity: bytes, body: bytes, callback: bytes, *, trace: bool = False, node: bytes = b"", actor: bytes = b""
    ) -> Message:
        """Send and wait for the callback; raises ActorError if an exception comes back."""
        return self._wait(self.send_with_callback(identity, body, callback, trace=trace, node=node, actor=actor))

    def deliver(self, identity: bytes, body: bytes) -> Message:
        """Send, and wait for the receipt of the node that got it."""
        return self._wait(self.send_with_callback(identity, body, RECEIPT.identity))

    def check_health(self) -> None:
        """Beat, and look for dead and stale peers, now and not when it is time to."""
        self._call(self.health.check).result(PATIENCE_S)

    def publish(self, identity: bytes, body: bytes) -> None:
        """Broadcast to all that handle it."""
        plain = Message(identity=identity, version=1, body=body, correlation_id=NO_CORRELATION)
        self._tell(replace(plain, distribution=Distribution.BROADCAST))

    def tell(self, identity: bytes, body: bytes) -> None:
        """Send without a callback."""
        self._tell(Message(identity=identity, version=1, body=body, correlation_id=new_identity()))

    def send_with_callback(
        self, identity: bytes, body: bytes, callback: bytes, *, trace: bool = False, node: bytes = b"", actor: bytes = b""
    ) -> "Future[Message]":
        """What `ask` does, without the wait."""
        promise: Future[Message] = Future()
        message = Message(
            identity=identity,
            version=1,
            body=body,
            correlation_id=new_identity(),
            trace_options=TRACE_ROUTING if trace else 0,
            receiver_node_identity=node,
            receiver_identity=actor,
        )

        def send() -> None:
            self._keys += 1
            points = tuple(dict.fromkeys((MessageType(callback, 1), EXCEPTION)))
            self._pending[self._keys] = (points, promise)
            asking = replace(message, domain=self.domains.domain_of(identity))
            self._route(_with_callback(asking, self.identity, self.hub, points, self._keys))

        assert self.hub, "a node without a hub cannot ask"
        self._call(send).result(PATIENCE_S)
        return promise

    def _tell(self, message: Message) -> None:
        self._call(lambda: self._route(replace(message, domain=self.domains.domain_of(message.identity)))).result(PATIENCE_S)

    def _wait(self, promise: "Future[Message]") -> Message:
        self.wait_for(promise.done)
        return promise.result()

    # --- other nodes --------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self._frontend = self.open_socket(zmq.ROUTER, bind=LOOPBACK, identity=self.identity, reader=self._on_frontend)
        self.uri = self._frontend.last_endpoint.decode()
        self._backend = self.open_socket(zmq.ROUTER, reader=lambda frames: self.on_deaf("backend", frames))
        super()._open()

    def _on_frontend(self, frames: list[bytes]) -> None:
        message = self.read("frontend", frames, fatal=self._dies_of_errors)
        if message is None:
            self._report(None, ActorError("unreadable"))
            return
        try:
            self.domains.check(message)
        except NotAllowedError as error:
            kind = "signature" if self.domains.is_allowed(message.domain) else "domain"
            self.complain(kind, f"{message.identity!r}: {error}", frames, fatal=self._dies_of_errors)
            self._report(message, ActorError(str(error)))
            return
        if is_service(message.identity, message.version, message.partition) and (
            message.identity == Ping.identity or message.identity in {body.identity for body in ROUTING_CONTROL}
        ):
            body = self.read_body(message)
            if isinstance(body, ROUTING_CONTROL):
                self.control(message, body)
            return
        if not message.hops:
            self.complain("hops", "without a hop it would be taken for our own", frames)
        if not self.domains.has(message.identity, message.domain):
            self.complain("domain", f"{message.identity!r} is not of domain {message.domain!r}", frames)
        if RECEIPT in message.callback_points:
            self._confirm(message)
            points = tuple(point for point in message.callback_points if point != RECEIPT)
            message = replace(message, callback_points=points)
        self._route(message)

    @property
    def _dies_of_errors(self) -> bool:
        """The listener reports an error with KINO.EXCEPTION; if that is in no domain, the report fails and it ends."""
        try:
            self.domains.domain_of(EXCEPTION.identity)
        except NotAllowedError:
            return True
        return False

    def _report(self, message: Message | None, error: ActorError) -> None:
        if self._dies_of_errors:
            self._unwatch(self._frontend)
        else:
            self._route(self._output(message or Message(), self._exception(error)))

    def _confirm(self, message: Message) -> None:
        receipt = self._plain(RECEIPT.identity, b"")
        self._route(self._output(replace(message, callback_points=(RECEIPT,)), receipt))

    def _send_away(self, message: Message, peers: Sequence[Peer]) -> None:
        for peer in peers:  # one message object for all: hops and trail grow from peer to peer
            if not peer.is_connected:
                self._backend.connect(peer.uri)
                peer.is_connected = True
                time.sleep(self.times.settle_s)
                self.health.start(peer)
            entry = RoutingEntry(self.uri, self.identity)
            message = replace(message, hops=message.hops + 1, routing=(*message.routing, entry))
            try:
                self.send_to(self._backend, "backend", peer.identity, self.signed(message), SLOW_S)
            except zmq.Again:
                self.health.suspect(peer.identity)
            except zmq.ZMQError as error:
                self.complain("unreachable", f"nobody is called {peer.identity!r} at {peer.uri}: {error}", [])
                self.on_unreachable(peer.identity, "unreachable")

    def send_to(self, socket: "zmq.Socket[bytes]", name: str, peer: bytes, message: Message, patience_s: float) -> None:
        """Send to the peer of a ROUTER that bears this name; it must be connected, or become so in a moment."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                self.send(name, socket, replace(message, socket_identity=peer))
            except zmq.ZMQError as error:
                if error.errno != zmq.EHOSTUNREACH or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
            else:
                return

    def disconnect(self, peer: Peer) -> None:
        self._backend.disconnect(peer.uri)

    # --- the router ---------------------------------------------------------------------------------------------------

    def _route(self, message: Message) -> None:
        node, found = message.receiver_node_identity, False
        if node and node != self.identity:
            if node in self.routes.peers:
                self._send_away(message, [self.routes.peers[node]])
                found = True
        elif message.receiver_identity == self.hub and self.hub:
            self._on_reply(message)
            found = True
        elif node or message.distribution == Distribution.BROADCAST:
            actors = self.routes.find_local(message)
            peers = self.routes.find_remote(message) if not node and not message.hops else []
            for actor in actors:
                self._act(actor, message)
            self._send_away(message, peers)
            found = bool(actors or peers)
        else:
            found = self._route_to_one(message)
        if not found:
            if message.hops or node:
                self.complain("unroutable", f"nobody here takes {message}", self.write(message))
            self.miss(message)

    def _route_to_one(self, message: Message) -> bool:
        actors, peers = self.routes.find_local(message), self.routes.find_remote(message)
        if actors and peers and not message.hops and not self.routes.is_turn_of(actors[0].identity, peers[0].identity):
            actors = []
        if actors:
            self._act(actors[0], message)
        else:
            self._send_away(message, peers)
        return bool(actors or peers)

    # --- actors and hub -----------------------------------------------------------------------------------------------

    def _act(self, actor: ReferenceActor, message: Message) -> None:
        self.note(lambda: self.handled.append(message))
        try:
            outputs = [self._plain(out.identity, out.body, out.distribution) for out in actor.handle(message)]
        except Exception as error:  # noqa: BLE001 - whatever an actor raises goes to who asked
            outputs = [self._exception(error if isinstance(error, ActorError) else ActorError(str(error)))]
        for output in outputs:
            self._route(self._output(message, output))

    def _plain(self, identity: bytes, body: bytes, distribution: Distribution = Distribution.UNICAST) -> Message:
        domain = self.domains.domain_of(identity)
        return Message(identity=identity, version=1, body=body, distribution=distribution, domain=domain)

    def _exception(self, error: ActorError) -> Message:
        return self._plain(EXCEPTION.identity, exception_body(error, released=self._is_released))

    @property
    def _is_released(self) -> bool:
        return self.format == "v5" and self.stamp == "int32"

    def _output(self, source: Message, output: Message) -> Message:
        """What an output takes over from the message that it answers (protocol.md 2.4)."""
        output = replace(
            output,
            correlation_id=source.correlation_id or NO_CORRELATION,
            routing=source.routing,
            trace_options=output.trace_options | source.trace_options,
        )
        if output.distribution == Distribution.BROADCAST:
            return output
        node, hub = source.callback_receiver_node_identity, source.callback_receiver_identity
        return _with_callback(output, node, hub, source.callback_points, source.callback_key)

    def _on_reply(self, message: Message) -> None:
        if message.callback_key not in self._pending:
            self.note(lambda: self.late.append(message))
            if not 0 < message.callback_key <= self._keys:
                self.complain("reply", f"nobody asked with key {message.callback_key}", self.write(message))
            return
        points, promise = self._pending.pop(message.callback_key)
        if message.type not in points:
            self.complain("reply", f"{message.type} was not asked for: the promise hangs", self.write(message))
        elif message.type == EXCEPTION:
            error = self._read_exception(message)
            self.note(lambda: promise.set_exception(error))
        else:
            self.note(lambda: promise.set_result(message))

    def _read_exception(self, message: Message) -> ActorError:
        """A release reads the document under `Exception`, a later node the texts beside it."""
        names = (
            ("Message", "ClassName", "StackTraceString") if self._is_released else ("Message", "ExceptionType", "StackTrace")
        )
        try:
            body = (find_document(message.body, "Exception") or b"") if self._is_released else message.body
            texts = read_texts(body, names)
        except PayloadError as error:
            self.complain("body", f"the exception is not BSON: {error}", self.write(message))
            texts = {}
        if texts.get("Message") is None:
            self.complain("body", "an exception without a text", self.write(message))
        return ActorError(*(texts.get(name) or "" for name in names))


def _with_callback(message: Message, node: bytes, hub: bytes, points: tuple[MessageType, ...], key: int) -> Message:
    """Register callback points; a message that is one of them goes to who waits for it (protocol.md 2.3)."""
    message = replace(
        message,
        callback_points=points,
        callback_receiver_node_identity=node,
        callback_receiver_identity=hub,
        callback_key=key,
    )
    if message.type in points:
        return replace(message, receiver_node_identity=node, receiver_identity=hub)
    return message
