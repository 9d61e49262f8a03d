"""A message inside a node: the message, its payload as an object, and since when it is here."""

from hopline.wire import Message


class Envelope:
    """What moves inside a node. Local messages are never encoded: `payload` is the object and `message.body` is empty.

    `since_ns` is when the message came in; it matters only if it has a time to live. `is_from_outside` tells whether
    another node sent it; its signature has been checked then.
    """

    __slots__ = ("is_from_outside", "message", "payload", "since_ns")

    def __init__(
        self, message: Message, payload: object = None, since_ns: int = 0, *, is_from_outside: bool = False
    ) -> None:
        self.message = message
        self.payload = payload
        self.since_ns = since_ns
        self.is_from_outside = is_from_outside

    def with_message(self, message: Message) -> "Envelope":
        """The same content under another message: a copy for one of several receivers."""
        return Envelope(message, self.payload, self.since_ns, is_from_outside=self.is_from_outside)
