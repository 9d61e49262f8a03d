"""The fast path for repeated shapes: the v6 codec with a memory.

Theory of operation. The messages of a flow repeat their shape: the same type to the same kind of receiver over the same
nodes. Of a metaframe only four things then change from message to message: callback key, signature, correlation id and
TTL. The rest are runs of bytes that come again and again:

    head      number ... callback node      what, to whom
    keys      domain, length of signature   in whose name
    trail     routing lanes and entries     over whom
    tail      callback points ... length of correlation id    back to whom

Reading: a dictionary over (length, first bytes) of the metaframe proposes where these runs lie; one prepared Struct cuts
there; each run is looked up, by all of its bytes, among runs that the plain codec has read before. Every run says by its own
lengths where it ends and how long what follows it is, so if each is known to the byte, and the lengths agree with the cut,
the plain codec would read the same; on any miss it does, and is remembered. Writing: the same runs are looked up by the
values they were made from.

So an answer of this file is always an answer of `v6.py`, only sooner. It holds at most `limit` shapes and as many runs of
each kind, then forgets all and starts again: a stranger who sends ever new shapes costs us time, not memory.
"""

import struct
from struct import Struct
from typing import Any, Final

from msgspec.structs import replace

from hopline.identity import MessageType
from hopline.wire import v6
from hopline.wire.decoded import Decoded
from hopline.wire.formats import decode, encode
from hopline.wire.message import Distribution, Message, RoutingEntry
from hopline.wire.v3 import TtlUnit

_PREFIX: Final = 12
"""Bytes of a metaframe that, with its length, propose a shape: they reach just over the lengths of an ordinary head."""

_LONGEST: Final = 4096
"""Bytes of a metaframe worth remembering: ten times an ordinary one. With the limit it bounds what a stranger can fill."""

_KEY: Final = Struct("<q")
_TTL: Final = Struct("<q")
_ONE_BODY_FRAME: Final = struct.pack("<4H", 2, 1, 0, 0)


_Head = tuple[bytes, int | bytes, bytes, bytes, bytes, Distribution, int, bytes]
"""Identity, version, partition, receiver, receiver node, distribution, trace options, callback node."""


class Templates:
    """Encodes and decodes like `wire.encode` and `wire.decode`, and faster what it has met before.

    One instance serves one thread, such as the event loop of a node.

    >>> from hopline.wire import Message
    >>> templates = Templates()
    >>> frames = templates.encode(Message(identity=b"HELLO", version=1))
    >>> templates.decode(frames).message.identity
    b'HELLO'
    """

    def __init__(self, limit: int = 1024) -> None:
        self._limit = limit
        self._shapes: dict[tuple[int, bytes], Struct] = {}
        # Read: run of bytes -> values.
        self._heads: dict[bytes, _Head] = {}
        self._keys: dict[bytes, tuple[str, int]] = {}
        self._trails: dict[bytes, tuple[int, tuple[RoutingEntry, ...]]] = {}
        self._tails: dict[bytes, tuple[tuple[MessageType, ...], bytes, int]] = {}
        # Write: values -> run of bytes. Tuples of entries are found by who they are, not by what they hold: hashing them
        # would cost more than it saves, and the tuple kept beside the run keeps its identity from being given away.
        self._head_runs: dict[tuple[object, ...], bytes] = {}
        self._key_runs: dict[tuple[str, int], bytes] = {}
        self._trail_runs: dict[tuple[int, int], tuple[tuple[RoutingEntry, ...], bytes]] = {}
        self._tail_runs: dict[tuple[int, bytes, int], tuple[tuple[MessageType, ...], bytes]] = {}

    def decode(self, frames: list[bytes], *, v3_ttl: TtlUnit = "ms") -> Decoded:
        """Decode a frame list of any format; the answer is that of `wire.decode`, and so are the errors."""
        if len(frames) == v6.FEWEST and not frames[1]:
            meta = frames[3]
            shape = self._shapes.get((len(meta), meta[:_PREFIX]))
            if shape is not None:
                head_run, key, keys_run, signature, trail_run, tail_run, correlation_id, ttl, body = shape.unpack(meta)
                head = self._heads.get(head_run)
                keys = self._keys.get(keys_run)
                trail = self._trails.get(trail_run)
                tail = self._tails.get(tail_run)
                # Two runs end in the length of what follows them; the shape must have cut just that much.
                if (
                    head
                    and keys
                    and trail
                    and tail
                    and keys[1] == len(signature)
                    and tail[2] == len(correlation_id)
                    and body == _ONE_BODY_FRAME
                ):
                    message = Message(
                        frames[0],
                        head[0],
                        head[1],
                        head[2],
                        frames[2],
                        correlation_id,
                        head[3],
                        head[4],
                        head[5],
                        head[6],
                        tail[0],
                        key,
                        tail[1],
                        head[7],
                        keys[0],
                        signature,
                        ttl,
                        trail[0],
                        trail[1],
                    )
                    return Decoded("v6", "", 6, message)
        decoded = decode(frames, v3_ttl=v3_ttl)
        if decoded.format == v6.NAME and not decoded.variant and decoded.extra is None and len(frames[-1]) <= _LONGEST:
            self._remember(frames[-1], decoded.message)
        return decoded

    def _remember(self, meta: bytes, message: Message) -> None:
        """Keep the shape and the runs of an ordinary metaframe."""
        self._make_room(self._shapes, self._heads, self._keys, self._trails, self._tails)
        head, keys = v6.write_head(message), v6.write_keys(message.domain, len(message.signature))
        trail, tail = v6.write_trail(message), v6.write_tail(message)
        sizes = len(head), len(keys), len(message.signature), len(trail), len(tail), len(message.correlation_id)
        self._shapes[len(meta), meta[:_PREFIX]] = Struct("<{}sq{}s{}s{}s{}s{}sq8s".format(*sizes))
        self._heads[head] = _head(message)
        self._keys[keys] = message.domain, len(message.signature)
        self._trails[trail] = message.hops, message.routing
        self._tails[tail] = message.callback_points, message.callback_receiver_identity, len(message.correlation_id)

    def encode(self, message: Message) -> list[bytes]:
        """Encode a message as v6; the answer is that of `wire.encode`, and so are the errors."""
        return self.encode_hop(
            message,
            message.socket_identity,
            message.body,
            message.domain,
            message.signature,
            message.ttl_ticks,
            message.hops,
            message.routing,
        )

    def encode_hop(
        self,
        message: Message,
        socket_identity: bytes,
        body: bytes,
        domain: str,
        signature: bytes,
        ttl_ticks: int,
        hops: int,
        routing: tuple[RoutingEntry, ...],
    ) -> list[bytes]:
        """Encode a message as v6 with other values for what a node changes when it sends it.

        The answer is that of `encode` for the message with these values: a copy that nobody would look at is not made.
        """
        correlation_id, points = message.correlation_id, message.callback_points
        hub = message.callback_receiver_identity
        values = _head(message)
        try:
            head = self._head_runs.get(values)
            if head is None:
                self._make_room(self._head_runs)
                head = self._head_runs[values] = v6.write_head(message)
            keys = self._key_runs.get((domain, len(signature)))
            if keys is None:
                self._make_room(self._key_runs)
                keys = self._key_runs[domain, len(signature)] = v6.write_keys(domain, len(signature))
            trail = self._trail_runs.get((id(routing), hops))
            if trail is None:
                self._make_room(self._trail_runs)
                hopped = replace(message, hops=hops, routing=routing)
                trail = self._trail_runs[id(routing), hops] = routing, v6.write_trail(hopped)
            tail = self._tail_runs.get((id(points), hub, len(correlation_id)))
            if tail is None:
                self._make_room(self._tail_runs)
                tail = self._tail_runs[id(points), hub, len(correlation_id)] = points, v6.write_tail(message)
            meta = b"".join(
                (
                    head,
                    _KEY.pack(message.callback_key),
                    keys,
                    signature,
                    trail[1],
                    tail[1],
                    correlation_id,
                    _TTL.pack(ttl_ticks),
                    _ONE_BODY_FRAME,
                )
            )
        except (struct.error, UnicodeEncodeError):
            # The plain codec says which value does not fit.
            return encode(
                replace(
                    message,
                    socket_identity=socket_identity,
                    body=body,
                    domain=domain,
                    signature=signature,
                    ttl_ticks=ttl_ticks,
                    hops=hops,
                    routing=routing,
                )
            )
        return [socket_identity, b"", body, meta]

    def _make_room(self, *memories: dict[Any, Any]) -> None:
        if any(len(memory) >= self._limit for memory in memories):
            for memory in memories:
                memory.clear()


def _head(message: Message) -> _Head:
    return (
        message.identity,
        message.version,
        message.partition,
        message.receiver_identity,
        message.receiver_node_identity,
        message.distribution,
        message.trace_options,
        message.callback_receiver_node_identity,
    )
