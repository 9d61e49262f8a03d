"""The books of a node: how many messages came in, and how each of them ended.

Every message that a node takes, from its own hubs and actors or from other nodes, comes to exactly one end here:

    handled       a local actor's handler has run to its end, good or bad; or it had, for a copy of this message (`repeated`)
    answered      it reached the hub that waited for it
    forwarded     it was handed to the network for another node (a broadcast: once for each node it was copied to)
    served        it was for the node itself: routes, receipts, control
    expired, rejected, dead_lettered     it came to a bad end, and is in `Node.dead_letters`

So at any moment `taken` is the sum of all ends and `in_flight`. A copy of a broadcast is a message of its own.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Statistics:
    """A snapshot of the books. `sent_locally` + `received` + `copies` = `taken`."""

    sent_locally: int
    received: int
    copies: int
    handled: int
    answered: int
    forwarded: int
    served: int
    expired: int
    rejected: int
    dead_lettered: int
    in_flight: int
    failures: int
    repeated: int
    trail_entries_dropped: int
    promises_pending: int
    links: int

    @property
    def taken(self) -> int:
        """All messages that came in."""
        return self.sent_locally + self.received + self.copies

    @property
    def ended(self) -> int:
        """All messages that came to an end."""
        good = self.handled + self.answered + self.forwarded + self.served
        return good + self.expired + self.rejected + self.dead_lettered


class Books:
    """The counters behind Statistics; each is raised in one place."""

    __slots__ = (
        "answered",
        "copies",
        "dead_lettered",
        "expired",
        "failures",
        "forwarded",
        "handled",
        "received",
        "rejected",
        "repeated",
        "sent_locally",
        "served",
        "trail_entries_dropped",
    )

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0)

    sent_locally: int
    received: int
    copies: int
    handled: int
    answered: int
    forwarded: int
    served: int
    expired: int
    rejected: int
    dead_lettered: int
    failures: int
    repeated: int
    trail_entries_dropped: int

    @property
    def in_flight(self) -> int:
        """What was taken and has not ended: waiting in a mailbox, in a handler, or held for a route."""
        taken = self.sent_locally + self.received + self.copies
        ends = self.handled + self.answered + self.forwarded + self.served
        return taken - ends - self.expired - self.rejected - self.dead_lettered

    def snapshot(self, *, promises_pending: int, links: int) -> Statistics:
        """Freeze the counters."""
        counters = {name: getattr(self, name) for name in self.__slots__}
        return Statistics(**counters, in_flight=self.in_flight, promises_pending=promises_pending, links=links)
