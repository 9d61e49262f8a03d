"""A message inside a node: the message, its payload as an object, and since when it is here."""

import msgspec

from hopline.wire import Message


class Envelope(msgspec.Struct, eq=False, gc=False):
    """What moves inside a node. Local messages are never encoded: `payload` is the object and `message.body` is empty.

    `since_ns` is when the message came in; it matters only if it has a time to live. `is_from_outside` tells whether
    another node sent it; its signature has been checked then. A Struct, because each message makes one;
    not for the garbage collector, because nothing in it leads back to it.
    """

    message: Message
    payload: object = None
    since_ns: int = 0
    is_from_outside: bool = False

    def with_message(self, message: Message) -> "Envelope":
        """The same content under another message: a copy for one of several receivers."""
        return Envelope(message, self.payload, self.since_ns, self.is_from_outside)
