"""The register: what one rendezvous remembers of the lease, and the two rules by which it answers.

Theory. A ballot is one attempt of one rendezvous to read and then write the lease; ballots are ordered. A member that
acknowledges a read promises to refuse all writes of lower ballots. So when a majority has promised, what it told about the
lease can no longer be overtaken by somebody who began earlier: each two majorities share a member, and that one either
tells of the earlier write or refuses it.

    message      acknowledged if                     and then
    READLEASE    ballot >  every ballot answered     promised = ballot; tells the lease and the ballot that wrote it
    WRITELEASE   ballot >= every ballot answered     promised = written = ballot; holds the lease

`written` is never above `promised`, so one comparison does. All of it is memory: a restart forgets it, and `lease.py` says
what follows from that. This file knows no time, no quorum and no network.
"""

from typing import Final

from hopline.payload.service import Ballot, Lease

Rank = tuple[int, int, bytes]
"""A ballot as it is compared: time, message number, identity. Identities may differ in length, where the reference fails."""

NULL: Final[Rank] = (0, 0, b"")
"""Below all ballots: nothing was promised or written."""


def rank_of(ballot: Ballot | None) -> Rank:
    """How a ballot compares; one that is absent is the null ballot.

    >>> rank_of(Ballot(5, b"N", 1)) > rank_of(Ballot(5, b"M", 1)) > rank_of(None)
    True
    """
    return NULL if ballot is None else (ballot.timestamp_ticks, ballot.message_number, ballot.identity or b"")


def ballot_of(rank: Rank) -> Ballot:
    """The ballot as it travels.

    >>> ballot_of(NULL)
    Ballot(timestamp_ticks=0, identity=b'', message_number=0)
    """
    timestamp_ticks, message_number, identity = rank
    return Ballot(timestamp_ticks, identity, message_number)


class Register:
    """The memory of one member: the highest ballot it answered, the ballot of the last write, and the lease written.

    >>> register = Register()
    >>> register.promise((7, 1, b"A")), register.promise((6, 1, b"B")), register.promise((7, 1, b"A"))
    (True, False, False)
    >>> register.accept((6, 1, b"B"), Lease(b"B", 9)), register.accept((7, 1, b"A"), Lease(b"A", 9))
    (False, True)
    >>> register.lease.identity, register.written
    (b'A', (7, 1, b'A'))
    """

    __slots__ = ("lease", "promised", "written")

    def __init__(self) -> None:
        self.promised: Rank = NULL
        self.written: Rank = NULL
        self.lease: Lease | None = None

    def promise(self, rank: Rank) -> bool:
        """Answer a read: promise to refuse what is lower, unless as much was promised already."""
        if rank <= self.promised:
            return False
        self.promised = rank
        return True

    def accept(self, rank: Rank, lease: Lease) -> bool:
        """Answer a write: hold the lease, unless a higher ballot was promised."""
        if rank < self.promised:
            return False
        self.promised = self.written = rank
        self.lease = lease
        return True
