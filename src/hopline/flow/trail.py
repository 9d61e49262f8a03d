"""The trail: over which nodes a flow came here, who sent this message, and what a message inherits from its parent.

Theory. Two things grow while a message travels, and they count differently:

    hops      sends of *this* message to another node; an output of an actor starts at 0 again
    routing   one entry per send of the *whole flow*; an output inherits its parent's entries

So the first `len(routing) - hops` entries are the parent's trail at the time the message was made, and the entry after them
is the node that sent this message: a causal parent, from one message alone. That holds if every hop left an entry.
Reference nodes do so since 2017; older ones only if asked by TraceOptions, and a reference broadcast counts one hop too
many for each further peer. So there may be fewer entries than hops; then nothing was inherited as far as we can tell.

This file knows no nodes and no sockets; the entry to record comes in as an argument.
"""

from typing import Final, NamedTuple

import msgspec

from hopline.identity import MessageType
from hopline.wire import TRACE_ROUTING, Distribution, Message, RoutingEntry

MAX_TRAIL: Final = 256
"""Entries a trail may have: the reference lets it grow for ever, and a flow that circles would fill its own messages."""

MAX_HOPS: Final = 0xFFFF
"""What the hop lane of v4 to v6 can say."""

_UNICAST: Final = Distribution.UNICAST  # once: to ask an enum for a member costs more than all else it is needed for


def inherited_trail(message: Message) -> tuple[RoutingEntry, ...]:
    """The part of the trail that was there before this message was made: its parent's.

    >>> a, b = RoutingEntry("tcp://a:1", b"a"), RoutingEntry("tcp://b:1", b"b")
    >>> inherited_trail(Message(hops=1, routing=(a, b))) == (a,)
    True
    """
    return message.routing[: _inherited(message)]


def sender(message: Message) -> RoutingEntry | None:
    """The node that first sent this message, or None if it has not left its node or left no trace.

    >>> a, b = RoutingEntry("tcp://a:1", b"a"), RoutingEntry("tcp://b:1", b"b")
    >>> sender(Message(hops=1, routing=(a, b))).identity
    b'b'
    """
    own = message.routing[_inherited(message) :]
    return own[0] if own else None


def _inherited(message: Message) -> int:
    size = len(message.routing)
    return size if message.hops <= 0 else max(size - message.hops, 0)


def is_recorded(message: Message) -> bool:
    """Whether a router must add its entry: the sender asked for it, or the trail has begun and must not break off."""
    return bool(message.trace_options & TRACE_ROUTING or message.routing)


class Sent(NamedTuple):
    """A message ready for another node, and how many of the oldest entries had to go for it."""

    message: Message
    dropped: int


def record_hop(message: Message, entry: RoutingEntry, *, limit: int = MAX_TRAIL) -> Sent:
    """What one router does to the copy of a message that it sends to one peer: a hop, and its entry if asked for.

    >>> sent, dropped = record_hop(Message(trace_options=TRACE_ROUTING), RoutingEntry("tcp://a:1", b"a"))
    >>> sent.hops, len(sent.routing), dropped
    (1, 1, 0)
    """
    hops = min(message.hops + 1, MAX_HOPS)
    if not is_recorded(message):
        return Sent(msgspec.structs.replace(message, hops=hops), 0)
    routing = (*message.routing, entry)
    dropped = max(len(routing) - limit, 0)
    return Sent(msgspec.structs.replace(message, hops=hops, routing=routing[dropped:]), dropped)


def inherit_flow(output: Message, parent: Message) -> Message:
    """What an actor's output takes over from the message it answers.

    Taken over: correlation id, callback points with their receiver and key (and the match is made), the trail; trace options
    are joined. Not taken over: hops (a new message), TTL, distribution, receivers, domain, signature. Unlike in the
    reference a broadcast output keeps the callbacks too.

    >>> output = inherit_flow(Message(identity=b"EHHLO"), Message(identity=b"HELLO", correlation_id=b"c1", hops=2))
    >>> output.correlation_id, output.hops
    (b'c1', 0)
    """
    points, hub, hub_node = (
        parent.callback_points,
        parent.callback_receiver_identity,
        parent.callback_receiver_node_identity,
    )
    receiver, node = output.receiver_identity, output.receiver_node_identity
    if points and output.type in points:
        receiver, node = hub, hub_node
    # In one go, by position: every answer of every actor comes through here.
    return Message(
        output.socket_identity,
        output.identity,
        output.version,
        output.partition,
        output.body,
        parent.correlation_id,
        receiver,
        node,
        output.distribution,
        output.trace_options | parent.trace_options,
        points,
        parent.callback_key,
        hub,
        hub_node,
        output.domain,
        output.signature,
        output.ttl_ticks,
        output.hops,
        parent.routing,
    )


def output_of(kind: MessageType, parent: Message) -> Message:
    """What `inherit_flow` makes of an empty message of a type: the plain answer of an actor, in half the time.

    >>> request = Message(identity=b"HELLO", version=1, correlation_id=b"c1", callback_key=7)
    >>> output_of(MessageType(b"EHHLO", 1), request) == inherit_flow(Message(identity=b"EHHLO", version=1), request)
    True
    """
    points, hub, hub_node = (
        parent.callback_points,
        parent.callback_receiver_identity,
        parent.callback_receiver_node_identity,
    )
    is_answer = points and kind in points
    return Message(
        b"",
        kind.identity,
        kind.version,
        kind.partition,
        b"",
        parent.correlation_id,
        hub if is_answer else b"",
        hub_node if is_answer else b"",
        _UNICAST,
        parent.trace_options,
        points,
        parent.callback_key,
        hub,
        hub_node,
        "",
        b"",
        0,
        0,
        parent.routing,
    )
