"""The lease of a reference rendezvous: who leads, by a register that all members read and write (protocol.md 3.8).

A round is four messages on the members' bus, each heard by every member, the sender too: READLEASE, ACKREADLEASE,
WRITELEASE, ACKWRITELEASE. This file knows ballots and leases; sending and timers are the rendezvous's.
"""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from hopline.payload.service import (
    AckReadLease,
    AckWriteLease,
    Ballot,
    Lease,
    NackReadLease,
    NackWriteLease,
    ReadLease,
    ServicePayload,
    WriteLease,
)

_EPOCH_TICKS = 10_000_000 * int((datetime(1970, 1, 1, tzinfo=UTC) - datetime(1, 1, 1, tzinfo=UTC)).total_seconds())


def utc_ticks() -> int:
    """UTC as .NET counts it: 100 ns since the year 1."""
    return _EPOCH_TICKS + time.time_ns() // 100


def order(ballot: Ballot | None) -> tuple[int, int, bytes]:
    """Ballots are compared by time, number and identity."""
    return (ballot.timestamp_ticks, ballot.message_number, ballot.identity or b"") if ballot else (0, 0, b"")


class LeaseBook:
    """A member's two halves: the acceptor that promises and remembers, and the proposer that wants the lease."""

    def __init__(
        self, identity: bytes, uri: str, payload: bytes, lease_s: float, publish: Callable[[ServicePayload], None]
    ) -> None:
        self.identity, self.uri, self.payload, self.lease_s = identity, uri, payload, lease_s
        self.members: Sequence[str] = (uri,)
        self.held: Lease | None = None  # the lease as this member last read or wrote it
        self._publish = publish
        self._number = 0
        self._ballot: Ballot | None = None  # of the round under way
        self._acks: dict[str, AckReadLease | AckWriteLease] = {}
        self._read = self._written = Ballot(identity=b"")
        self._stored: Lease | None = None
        self._wanted: Lease | None = None

    @property
    def leads(self) -> bool:
        return self.known is not None and self.known.identity == self.identity

    @property
    def known(self) -> Lease | None:
        """The lease, if there is one that has not expired."""
        return self.held if self.held is not None and self.held.expires_at_ticks > utc_ticks() else None

    def propose(self) -> None:
        """Begin a round, with a ballot above all that were there."""
        self._number += 1
        self._ballot = Ballot(utc_ticks(), self.identity, self._number)
        self._acks, self._wanted = {}, None
        self._publish(ReadLease(self._ballot))

    def hear(self, body: ServicePayload) -> None:
        """Take in what a member has said; nacks only let a round fail, and it fails by itself."""
        if isinstance(body, ReadLease):
            if max(order(self._written), order(self._read)) >= order(body.ballot):
                self._publish(NackReadLease(body.ballot, self.uri))
                return
            self._read = body.ballot or self._read
            self._publish(AckReadLease(body.ballot, self._written, self._stored, self.uri))
        elif isinstance(body, WriteLease):
            if max(order(self._written), order(self._read)) > order(body.ballot):
                self._publish(NackWriteLease(body.ballot, self.uri))
                return
            self._written, self._stored = body.ballot or self._written, body.lease
            self._publish(AckWriteLease(body.ballot, self.uri))
        elif isinstance(body, AckReadLease) and self._counts(body) and self._wanted is None:
            self._on_read()
        elif isinstance(body, AckWriteLease) and self._counts(body) and self._wanted is not None:
            self.held, self._ballot = self._wanted, None

    def _counts(self, ack: AckReadLease | AckWriteLease) -> bool:
        """Whether with this one there is a quorum for the round under way."""
        if self._ballot is None or ack.ballot != self._ballot or ack.sender_uri not in self.members:
            return False
        self._acks[ack.sender_uri] = ack
        same = [known for known in self._acks.values() if type(known) is type(ack)]
        return len(same) > len(self.members) // 2

    def _on_read(self) -> None:
        reads = [ack for ack in self._acks.values() if isinstance(ack, AckReadLease)]
        latest = max(reads, key=lambda ack: order(ack.known_write_ballot)).lease
        now = utc_ticks()
        if latest is None or latest.identity == self.identity or latest.expires_at_ticks <= now:
            latest = Lease(self.identity, now + int(self.lease_s * 10_000_000), self.payload)
        self._wanted, self._acks = latest, {}
        self._publish(WriteLease(self._ballot, latest))
