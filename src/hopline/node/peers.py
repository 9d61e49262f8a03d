"""The way to other nodes: links, and which node is behind which.

An address is enough to be a peer. When a link to such an address connects we send what we can take (KINO.REGEXTROUTE, once
in each domain) and ask for the other's (KINO.REQCLUSTROUTES); whoever hears of a node that way connects back. So two nodes
of which one knows the other's address find each other, and a node that comes back is used again.

Nodes that we hear of through a cluster tell us their routes there. A link to one of them is made when there is something to
send, as 200 nodes need not all be connected to each other; if it does not come about soon, the node is taken for lost.

What a peer speaks is learned from what it sends: it is answered in its own format. What messages about routes do to our
tables is in `service.py`.
"""

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from hopline.errors import TransportError
from hopline.identity import MessageType
from hopline.node.announcements import Announcements, Said
from hopline.node.clock import Clock
from hopline.node.membership import Membership
from hopline.node.service import ServiceHandlers, format_of
from hopline.node.taps import Taps
from hopline.payload.service import Ping, RequestClusterRoutes
from hopline.security import Domains
from hopline.transport.base import Link, Transport
from hopline.wire import Decoded, FormatName, Message, encode

if TYPE_CHECKING:
    from hopline.node.router import MessageRouter

logger = logging.getLogger("hopline.node")

MOST_PEERS: Final = 10_000
"""Nodes we connect to at most: their number comes from outside."""

MOST_NODES_PER_ADDRESS: Final = 4

CONNECT_SECONDS: Final = 3.0
"""How long a node that we heard of may take to be reached. One that announced itself was bound before."""


class Spoken(NamedTuple):
    """What a node speaks: a format, and whether it takes bundles."""

    format: FormatName = "v6"
    variant: str | None = None
    takes_bundles: bool = False


class LinkedPeer:
    """A link, the nodes found behind it, and what they speak."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.is_direct = False
        """Whether it has told us its routes or asked for ours itself, and not through a cluster."""
        self.nodes: set[bytes] = set()
        self.format: FormatName = "v6"
        self.variant: str | None = None
        self._room: list[Callable[[], None]] = []

    def speaks(self, spoken: Spoken) -> None:
        """Speak so with this peer from now on."""
        self.format, self.variant = spoken.format, spoken.variant
        self.link.takes_bundles = spoken.takes_bundles

    def send(self, frames: list[bytes]) -> bool:
        """Hand over a message; False if the link is full."""
        return self.link.send(frames)

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call back once the link has room."""
        self._room.append(callback)

    def has_room(self) -> None:
        """Let in those who wait; who does not fit waits again."""
        waiting, self._room = self._room, []
        for callback in waiting:
            callback()


class Peers:
    """All other nodes this one knows. It listens to the transport, and is the Member that a membership knows."""

    def __init__(
        self,
        router: "MessageRouter",
        transport: Transport,
        taps: Taps,
        *,
        clock: Clock,
        addresses: tuple[str, ...] = (),
        domains: Domains | None = None,
        may_connect: Callable[[str], bool] = lambda _: True,
        membership: Membership | None = None,
    ) -> None:
        self.identity = router.table.node
        self.clock = clock
        self.membership = membership
        self.announcements = Announcements(router.table, domains, router.guard)
        self._router = router
        self._transport = transport
        self._taps = taps
        self._addresses = addresses
        self._may_connect = may_connect
        self._service = ServiceHandlers(self, router)
        self._links: dict[str, LinkedPeer] = {}
        self._nodes: dict[bytes, LinkedPeer] = {}
        self._spoken: dict[bytes, Spoken] = {}
        self._stalled = 0

    async def start(self) -> None:
        """Bind, connect to the addresses we were given, and join the cluster."""
        await self._transport.start(self)
        self.announcements.address = self._transport.address
        self._router.own_entry = msgspec.structs.replace(self._router.own_entry, uri=self._transport.address)
        for address in self._addresses:
            self.connect(address)
        if self.membership is not None:
            await self.membership.start(self)

    def say_goodbye(self) -> None:
        """Tell everybody that we leave, so that nobody sends us more."""
        for peer in self._told:
            self._tell(peer, self.announcements.goodbyes())
        if self.membership is not None:
            self.membership.say_goodbye()

    async def close(self, linger: float) -> None:
        """Close; what still waits in a queue ends here."""
        for peer in self._links.values():
            for frames in peer.link.close():
                self._router.take_back(frames)
            peer.has_room()
        if self.membership is not None:
            await self.membership.close()
        await self._transport.close(linger)

    @property
    def count(self) -> int:
        """How many links there are."""
        return len(self._links)

    @property
    def may_learn(self) -> bool:
        """Routes may always come: whoever knows our address can announce some."""
        return True

    @property
    def is_joining(self) -> bool:
        """Whether there is a cluster that does not hear us yet."""
        return self.membership is not None and not self.membership.is_joined

    @property
    def _told(self) -> list[LinkedPeer]:
        """Who is told about our routes directly: all that are connected, unless the cluster tells them."""
        return [peer for peer in self._links.values() if peer.link.is_connected and self._is_told(peer)]

    def _is_told(self, peer: LinkedPeer) -> bool:
        return self.membership is None or peer.is_direct or peer.link.address in self._addresses

    # For the router.

    def peer(self, node: bytes) -> LinkedPeer | None:
        """The connection to a node, made if need be."""
        peer = self._nodes.get(node)
        if peer is None:
            uri = self._router.table.uri_of(node)
            peer = self.connect(uri) if uri else None
            if peer is None:
                self.leave(node)
                return None
            self.attach(node, peer)
            if self.membership is not None:
                # What we announced to the cluster it may have missed, and then it could not answer us.
                self.announce_to(peer)
                self.membership.uses(node)
        return peer

    def speaks(self, node: bytes) -> Spoken | None:
        """What a node speaks, if it has told about itself."""
        return self._spoken.get(node)

    def serve(self, decoded: Decoded) -> bool:
        """Take a message about routes; False if it is none."""
        return self._service.serve(decoded)

    def look_for(self, message: Message) -> None:
        """Ask who can take a message: nobody we know can."""
        if self.membership is not None:
            self.membership.look_for(message)

    def announce(self) -> None:
        """Tell everybody what we can take: it has changed."""
        for peer in self._told:
            self.announce_to(peer)
        if self.membership is not None:
            self.membership.announce()

    def withdraw(self, actor: bytes, types: Iterable[MessageType]) -> None:
        """Tell everybody what one of our actors no longer takes."""
        gone = list(types)
        for peer in self._told:
            self._tell(peer, self.announcements.withdrawals(actor, gone, peer.format))
        if self.membership is not None:
            self.membership.withdraw(actor, gone)

    # For the membership.

    def came(self, frames: list[bytes]) -> None:
        """Show a message that came through the cluster, before it has any effect."""
        self.on_received([frames])

    def hear(self, frames: list[bytes], decoded: Decoded | None) -> None:
        """Take a message about routes that came through the cluster, or count one that could not be decoded."""
        if decoded is None:
            self._router.refuse_unread("a message of the cluster cannot be read")
        else:
            self._router.take_service(frames, decoded, self._service.serve_cluster)

    def saying(self) -> None:
        """Note that a message of ours is about to go to the cluster."""
        self.on_sending()
        self._router.sending()

    def said(self, message: Message, frames: list[bytes]) -> None:
        """Note that a message of ours went to the cluster."""
        self.on_sent([frames])
        self._count(message, frames)

    def _count(self, message: Message, frames: list[bytes]) -> None:
        """Note that a message of the node itself is on its way."""
        self._router.books.sent_locally += 1
        self._router.sent(message, frames)

    def forget(self, node: bytes) -> str:
        """A node is gone: its routes, its link if nobody else is behind it, and the hope of those who wait for it."""
        peer = self._nodes.pop(node, None)
        self._spoken.pop(node, None)
        self._service.forget(node)
        uri = self._router.table.uri_of(node) or ""
        self._router.table.remove_node(node)
        if peer is not None:
            peer.nodes.discard(node)
            self._drop(peer)
        self._router.hub.node_lost(node)  # not before what has not left takes another way
        return uri

    def leave(self, node: bytes) -> None:
        """Have nothing to do with a node any more, here and in the cluster."""
        self.forget(node)
        if self.membership is not None:
            self.membership.left(node)

    def check(self, node: bytes) -> None:
        """Connect to a node and say something: that it is there shows in the connection."""
        peer = self.peer(node)
        if peer is not None:
            self._tell(peer, [next(iter(self.announcements.everywhere(Ping())))])

    # From the transport.

    def on_received(self, messages: list[list[bytes]]) -> None:
        """Show messages that have come, before any of them is looked at."""
        mark = self._taps.coming
        if mark is not None:
            mark()
        see = self._taps.received
        if see is not None:
            see(messages)

    def on_sending(self) -> None:
        """Say that messages are about to leave: what the network has may be somewhere else before we go on."""
        mark = self._taps.sending
        if mark is not None:
            mark()

    def on_sent(self, messages: list[list[bytes]]) -> None:
        """Show messages that the network has taken."""
        see = self._taps.sent
        if see is not None:
            see(messages)

    def on_message(self, frames: list[bytes]) -> None:
        """Take a message; if it finds somebody full, read no more until there is room."""
        stalled = self._router.take_frames(frames)
        if stalled is not None:
            envelope, full = stalled
            self._stalled += 1
            self._transport.pause()
            self._router.route_when_room(full, envelope, self._go_on)

    def _go_on(self) -> None:
        self._stalled -= 1
        if not self._stalled:
            self._transport.resume()

    def on_refused(self, reason: str, size: int) -> None:
        """Count what the transport refused."""
        self._router.refuse_unread(f"{reason} ({size} bytes)")

    def on_connected(self, link: Link) -> None:
        """A peer can be reached: exchange routes, unless the cluster does that."""
        peer = self._links.get(link.address)
        if peer is not None and self._is_told(peer):
            self.announce_to(peer)
            self._tell(peer, self.announcements.everywhere(RequestClusterRoutes(self._transport.address, self.identity)))

    def on_lost(self, link: Link, unsent: list[list[bytes]]) -> None:
        """A peer is gone: who waits for it alone is told, and what was not sent looks for another way."""
        peer = self._links.get(link.address)
        if peer is not None:
            self._lose(peer, unsent)

    def _lose(self, peer: LinkedPeer, unsent: list[list[bytes]]) -> None:
        table = self._router.table
        uris = {node: table.uri_of(node) or "" for node in peer.nodes}
        for node in uris:
            table.remove_node(node)
        for frames in unsent:
            self._router.take_back(frames)
        for node, uri in uris.items():
            self.forget(node)
            if self.membership is not None:
                self.membership.lost(node, uri)
        peer.has_room()
        self._drop(peer)

    def on_room(self, link: Link) -> None:
        """A link has room again."""
        peer = self._links.get(link.address)
        if peer is not None:
            peer.has_room()

    # Links.

    def connect(self, address: str) -> LinkedPeer | None:
        """The link to an address, made if need be; None if it may not be or cannot be made."""
        peer = self._links.get(address)
        if peer is None:
            if len(self._links) >= MOST_PEERS or not self._may_connect(address):
                logger.warning("will not connect to %s", address)
                return None
            try:
                link = self._transport.connect(address)
            except TransportError as error:
                logger.warning("cannot connect to %s: %s", address, error)
                return None
            peer = self._links[address] = LinkedPeer(link)
            if address not in self._addresses:
                self.clock.call_later(CONNECT_SECONDS, lambda: self._give_up(address, peer))
        return peer

    def _give_up(self, address: str, peer: LinkedPeer) -> None:
        """A node that we heard of cannot be reached."""
        if self._links.get(address) is peer and not peer.link.is_connected:
            del self._links[address]
            unsent = peer.link.close()
            self._lose(peer, unsent)

    def attach(self, node: bytes, peer: LinkedPeer) -> None:
        """A node is behind a link."""
        peer.nodes.add(node)
        while len(peer.nodes) > MOST_NODES_PER_ADDRESS:
            # One address is one node, or the last few that lived there; whoever invents more forgets its own.
            self.leave(next(name for name in peer.nodes if name != node))
        self._nodes[node] = peer
        spoken = self._spoken.get(node)
        if spoken is not None:
            peer.speaks(spoken)

    def learn(self, node: bytes, decoded: Decoded) -> None:
        """A node has told about itself: speak with it as it does."""
        takes_bundles = self._transport.takes_bundles(decoded.message.socket_identity)
        # A Hopline node may have to speak to its cluster as the oldest one there does.
        spoken = Spoken(takes_bundles=True) if takes_bundles else Spoken(format_of(decoded), decoded.variant or None)
        self._spoken[node] = spoken
        peer = self._nodes.get(node)
        if peer is not None:
            peer.speaks(spoken)

    def announce_to(self, peer: LinkedPeer) -> None:
        """Tell one peer what we can take."""
        self._tell(peer, self.announcements.registrations(peer.format))

    def _drop(self, peer: LinkedPeer) -> None:
        """Close a link with nobody behind it, unless we were told to keep it: who comes back connects to us."""
        address = peer.link.address
        if peer.nodes or address in self._addresses or self._links.get(address) is not peer:
            return
        del self._links[address]
        for frames in peer.link.close():
            self._router.take_back(frames)
        peer.has_room()

    def _tell(self, peer: LinkedPeer, said: Iterable[Said]) -> None:
        for domain, payload in said:
            message = self.announcements.message(domain, payload)
            # Who is there we may not know yet. The name of our socket, which does not travel in a frame, is what the peer
            # knows us by: so whoever looks at both captures can tell what was said to whom.
            message = msgspec.structs.replace(message, socket_identity=peer.link.route)
            frames = encode(message, peer.format, peer.variant)
            self._router.sending()
            if peer.send(frames):
                self._count(message, frames)
