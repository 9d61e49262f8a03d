"""Callbacks: how a later message of a flow finds the way back to who asked for it.

Theory. Who sends a request may name callback points: message types, together with the hub (receiver and node) that waits for
them and the key under which it waits. These travel with every message of the flow. As soon as any actor sends a message
whose type (identity, version and partition, all three) equals one of the points, that message is no longer routed by its
type: it goes to that hub. Points are a set; their order means nothing. They stay on the message, so a later one can
match again.

Matching is done where a message is made (hub, actor host), never in a router. This file knows no promises and no routes.
"""

from collections.abc import Iterable

import msgspec

from hopline.identity import MessageType
from hopline.wire import Message


def matching_point(message: Message) -> MessageType | None:
    """The callback point that this message answers, if it answers one.

    >>> request = Message(identity=b"HELLO", version=1, callback_points=(MessageType(b"EHHLO", 1),))
    >>> matching_point(request) is None
    True
    """
    own = message.type
    return own if own in message.callback_points else None


def register_callbacks(
    message: Message, points: Iterable[MessageType], *, receiver: bytes, node: bytes, key: int
) -> Message:
    r"""Make a message carry callback points, and address it to their hub at once if it answers one itself.

    A match overrules a receiver that was set before: the one who waits is more specific than any address.

    >>> sent = register_callbacks(Message(identity=b"HI"), [MessageType(b"YO", 1)], receiver=b"\x00hub", node=b"n1", key=7)
    >>> sent.callback_key, sent.receiver_identity
    (7, b'')
    """
    points = tuple(points)
    address = {"receiver_identity": receiver, "receiver_node_identity": node} if message.type in points else {}
    return msgspec.structs.replace(
        message,
        callback_points=points,
        callback_receiver_identity=receiver,
        callback_receiver_node_identity=node,
        callback_key=key,
        **address,
    )


def is_answer(message: Message, request: Message) -> bool:
    """Whether `message` is a callback that `request` waits for.

    By key where there is one. Formats v3 and v4 have no callback key and no callback node on the wire: there it is the
    correlation id and the type.

    >>> point = MessageType(b"EHHLO", 1)
    >>> request = Message(identity=b"HELLO", version=1, correlation_id=b"c1", callback_points=(point,))
    >>> is_answer(Message(identity=b"EHHLO", version=1, correlation_id=b"c1"), request)
    True
    """
    if message.type not in request.callback_points:
        return False
    if not (message.callback_key and request.callback_key):
        return message.correlation_id == request.correlation_id
    # v4 had the key a month before it had the node.
    node, waiting = message.callback_receiver_node_identity, request.callback_receiver_node_identity
    return (
        message.callback_key == request.callback_key
        and message.callback_receiver_identity == request.callback_receiver_identity
        and (not node or not waiting or node == waiting)
    )
