"""The lease: how several rendezvous agree on one leader, and why there are never two.

Theory. One rendezvous at a time owns a lease that ends at a stated time. To get or renew it, a member reads the lease from a
majority and writes it to a majority, under one ballot (`register.py`). It writes a lease of its own only if it found none,
its own, or one that is over; a lease of somebody else that still runs it writes back unchanged. It counts once a majority
has accepted it under one ballot. All messages go to all members, so every member counts for itself, and knows the leader
without asking.

         quiet ---> idle ---- time ----> reading -- quorum --> writing -- quorum --> idle: renew, or wait for the end
                      ^                     |                      |
                      +--- back off --------+---- nacks, time -----+

The rules beside the register's two; `docs/lease.md` says what goes wrong without each:

- **Drift.** The owner and those who follow it trust a lease until its end by their own clock. Somebody else takes it only
  `clock_drift` later by his. Any two clocks differ by at most that much, so by then it is over for all.
- **Quiet.** A member that starts has forgotten what it promised and accepted. It neither answers nor proposes until all that
  can be over: the longest lease, one response time (the reference dates a lease by its write, not by its ballot), and the
  drift twice (the ballot may be dated that much ahead, and the lease is honoured that much longer). A single member need
  not: nobody else can hold what it forgot.
- **Age.** A lease is dated by its ballot, so a slow round makes a short lease, never a long one.
- **Bounds.** A ballot from the future or a lease that is too long is no honest member's: it would lock the register. Ignored
  and counted in `refused`.
- **One at a time.** The members may change by one: majorities of neighbouring configurations share a member.

This file does no I/O, reads no clock and draws no randomness: time is an argument, in ticks of UTC as the messages have it,
and what to send is returned. The bus names no sender, so a message is known by what it says; that only members reach the bus
is for its owner to see to.
"""

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Final, Literal, TypeGuard

import msgspec

from hopline.cluster.register import NULL, Rank, Register, ballot_of, rank_of
from hopline.errors import InputError
from hopline.payload import ServicePayload
from hopline.payload.service import (
    AckReadLease,
    AckWriteLease,
    Ballot,
    Lease,
    NackReadLease,
    NackWriteLease,
    ReadLease,
    WriteLease,
)

TICKS_PER_SECOND: Final = 10_000_000
MAX_IDENTITY: Final = 256
"""Bytes of an identity that we hold on to; members use 36, the text of a GUID."""
MAX_PAYLOAD: Final = 4096
"""Bytes of an owner's payload that we hold on to; three addresses take about 100."""

_UTC_1970_TICKS: Final = 621_355_968_000_000_000
_REQUESTS: Final = (ReadLease, WriteLease)
_ABOUT_LEASE: Final = (AckReadLease, AckWriteLease, NackReadLease, NackWriteLease, ReadLease, WriteLease)


def utc_ticks(wall_ns: int) -> int:
    """Nanoseconds since 1970 as ticks of UTC since the year 1, the time of ballots and leases.

    >>> utc_ticks(1_794_765_985_633_269_200)
    639303627856332692
    """
    return wall_ns // 100 + _UTC_1970_TICKS


class LeaseTimes(msgspec.Struct, frozen=True):
    """How long things take; all members must have the same. The defaults are those of the reference's samples.

    `clock_drift_ticks` is the most by which any two members' clocks may differ: the promise on which all the others rest.

    >>> LeaseTimes(max_lease_ticks=1)
    Traceback (most recent call last):
    hopline.errors.InputError: a lease must last longer than two round trips and the clock drift
    """

    max_lease_ticks: int = 3 * TICKS_PER_SECOND
    clock_drift_ticks: int = TICKS_PER_SECOND // 10
    roundtrip_ticks: int = 4 * TICKS_PER_SECOND // 10
    response_timeout_ticks: int = 2 * TICKS_PER_SECOND // 10

    def __post_init__(self) -> None:
        if min(self.clock_drift_ticks, self.response_timeout_ticks) < 1:
            raise InputError("INPUT_BAD_CONFIG", "clock drift and response timeout of a lease must be above 0")
        if 2 * self.response_timeout_ticks > self.roundtrip_ticks:
            raise InputError("INPUT_BAD_CONFIG", "the round trip of a lease must allow for two response timeouts")
        if self.max_lease_ticks <= 2 * self.roundtrip_ticks + self.clock_drift_ticks:
            raise InputError("INPUT_BAD_CONFIG", "a lease must last longer than two round trips and the clock drift")

    @property
    def longest_ticks(self) -> int:
        """The longest time from a ballot to the end of its lease: the reference dates a lease when it begins to write."""
        return self.max_lease_ticks + self.response_timeout_ticks

    @property
    def quiet_ticks(self) -> int:
        """How long a member keeps quiet after its start."""
        return self.longest_ticks + 2 * self.clock_drift_ticks


class LeaseMember:
    """One of the rendezvous that share a lease.

    `uri` is the address by which the members know this one. `identity` is new for every start of the process: a lease from
    before belongs to somebody who is gone. `payload` tells where the leader can be reached. `random` gives numbers from 0 to
    1: members that keep each other from winning end it by waiting for different times.

    Call `on_time` whenever `deadline_ticks` has come, publish what it and `on_message` return, and hand over what the others
    publish. Own messages that come back are ignored.

    >>> alone = LeaseMember("tcp://a", ["tcp://a"], identity=b"A1", payload=b"", now_ticks=10**9, random=lambda: 0.5)
    >>> [type(message).__name__ for message in alone.on_time(alone.deadline_ticks)]
    ['ReadLease', 'AckReadLease', 'WriteLease', 'AckWriteLease']
    >>> alone.is_leader(alone.deadline_ticks)
    True
    """

    def __init__(
        self,
        uri: str,
        members: Iterable[str],
        *,
        identity: bytes,
        payload: bytes,
        now_ticks: int,
        random: Callable[[], float],
        times: LeaseTimes | None = None,
    ) -> None:
        self.uri = uri
        self.members = frozenset(members)
        self.identity = identity
        self.times = times or LeaseTimes()
        self.refused = 0
        """Messages that no honest member sends."""
        self._payload = payload
        self._random = random
        self._message_number = 0
        self._deadline: int
        self.forget(now_ticks)

    # --- what is known ------------------------------------------------------------------------------------------------

    @property
    def deadline_ticks(self) -> int:
        """When `on_time` has something to do next."""
        return self._deadline

    @property
    def quorum(self) -> int:
        """How many members make a majority."""
        return len(self.members) // 2 + 1

    def leader(self, now_ticks: int) -> Lease | None:
        """The lease that runs now, whosever it is.

        No two members ever name two owners at one time.
        """
        lease = self._leader
        # A clock that went back is held where it was; if it went back by more than the drift, it cannot be trusted.
        if lease is None or now_ticks < self._now - self.times.clock_drift_ticks:
            return None
        return lease if max(now_ticks, self._now) < lease.expires_at_ticks else None

    def is_leader(self, now_ticks: int) -> bool:
        """Whether the lease that runs now is this member's own."""
        lease = self.leader(now_ticks)
        return lease is not None and lease.identity == self.identity

    def is_silent(self, now_ticks: int) -> bool:
        """Whether this member only listens: it has just started, or is no member any more."""
        return now_ticks < self._quiet_until or self.uri not in self.members

    def must_honour(self, now_ticks: int, lease: Lease) -> bool:
        """Whether a lease keeps this member from taking it: it is another's, and may still run by its owner's clock.

        >>> member = LeaseMember("tcp://a", ["tcp://a"], identity=b"A1", payload=b"", now_ticks=0, random=lambda: 0.5)
        >>> [member.must_honour(now, Lease(b"B1", 60)) for now in (60, 1_000_059, 1_000_060)]
        [True, True, False]
        """
        return lease.identity != self.identity and now_ticks < lease.expires_at_ticks + self.times.clock_drift_ticks

    # --- what happens to it -------------------------------------------------------------------------------------------

    def on_time(self, now_ticks: int) -> list[ServicePayload]:
        """Do what is due, if something is; tells what to publish."""
        out: list[ServicePayload] = []
        now = self._advance(now_ticks)
        if now < self._deadline:
            return out
        if self._phase != "idle":
            self._back_off(now)
        elif self.is_silent(now):
            self._deadline = self._quiet_until if now < self._quiet_until else now + self.times.max_lease_ticks
        else:
            self._propose(now, out)
        return out

    def on_message(self, now_ticks: int, message: ServicePayload) -> list[ServicePayload]:
        """Take a message from the bus; tells what to publish. What is not about the lease is ignored."""
        out: list[ServicePayload] = []
        now = self._advance(now_ticks)
        if not isinstance(message, _ABOUT_LEASE):
            return out
        ballot = message.ballot
        if ballot is None or not self._is_sound(now, ballot):
            self.refused += 1
        elif isinstance(message, _REQUESTS):
            if ballot.identity != self.identity:  # one of our own was answered when it was made
                if isinstance(message, ReadLease):
                    self._answer_read(now, ballot, out)
                elif self._is_lawful(message.lease, ballot):
                    self._answer_write(now, ballot, message.lease, out)
        # An answer of our own was counted when it was made, or is from before our start. One of a stranger does not count.
        elif message.sender_uri is not None and message.sender_uri != self.uri and message.sender_uri in self.members:
            self._count(now, ballot, message.sender_uri, message, out)
        return out

    def reconfigure(self, now_ticks: int, members: Iterable[str]) -> None:
        """Change who the members are, by one that comes or one that goes; raises InputError if it is more than that.

        The others must have taken this change before the next one is made. One that comes is a member that starts; one that
        goes falls silent here.
        """
        members = frozenset(members)
        if not members or len(members ^ self.members) > 1:
            raise InputError("INPUT_BAD_CONFIG", "the rendezvous may change by one at a time: majorities must overlap")
        now = self._advance(now_ticks)
        if members != self.members:
            self.members = members
            self._acks.clear()  # counted for another majority
            if self._phase != "idle" or self.is_leader(now):
                self._back_off(now)

    def forget(self, now_ticks: int) -> None:
        """Begin anew, as after a restart: to be called when the clock was set, as what it measured before means nothing now.

        A clock that goes back by more than the drift between two calls is noticed here; a smaller jump, or one that the time
        between the calls hides, only whoever has a steady clock beside it can see.
        """
        self._now = now_ticks
        self._quiet_until = now_ticks + (self.times.quiet_ticks if len(self.members) > 1 else 0)
        self._deadline = self._quiet_until + self._some(self.times.roundtrip_ticks)
        self.register = Register()
        self._leader: Lease | None = None
        self._failures = 0
        # The round: an attempt of our own.
        self._phase: Literal["idle", "reading", "writing"] = "idle"
        self._round: Rank = NULL
        self._began = now_ticks
        self._found: dict[str, tuple[Rank, Lease | None]] = {}
        self._nacks: set[str] = set()
        # The newest write that was seen, and who accepted it.
        self._seen: Rank = NULL
        self._seen_lease: Lease | None = None
        self._acks: set[str] = set()
        self._is_counted = False

    # --- time ---------------------------------------------------------------------------------------------------------

    def _advance(self, now: int) -> int:
        if now < self._now:
            if now >= self._now - self.times.clock_drift_ticks:
                return self._now
            self.forget(now)
        self._now = now
        return now

    def _some(self, ticks: int) -> int:
        return int(ticks * self._random())

    def _back_off(self, now: int) -> None:
        """End the round and try again later: soon if the lease is ours and runs, else later with each failure."""
        self._phase = "idle"
        window = self.times.response_timeout_ticks
        if not self.is_leader(now):
            self._failures += 1
            window = min(window << min(self._failures, 16), self.times.max_lease_ticks)
        self._deadline = now + 1 + self._some(window)

    def _plan(self, now: int, lease: Lease) -> None:
        """End the round and come back when this lease needs it: before its end if it is ours, after it if it is not."""
        self._phase = "idle"
        times = self.times
        if lease.identity == self.identity:
            when = lease.expires_at_ticks - 2 * times.roundtrip_ticks - times.clock_drift_ticks
        else:
            when = lease.expires_at_ticks + times.clock_drift_ticks + self._some(times.roundtrip_ticks)
        self._deadline = max(when, now + 1)

    # --- what a member answers ----------------------------------------------------------------------------------------

    def _is_sound(self, now: int, ballot: Ballot) -> bool:
        """Whether a ballot can be an honest member's: a message comes later than it was dated, give or take the drift."""
        return 0 < len(ballot.identity or b"") <= MAX_IDENTITY and (
            ballot.timestamp_ticks <= now + self.times.clock_drift_ticks
        )

    def _is_lawful(self, lease: Lease | None, ballot: Ballot) -> TypeGuard[Lease]:
        """Whether a lease can be an honest member's; counts it if not."""
        is_lawful = (
            lease is not None
            and 0 < len(lease.identity or b"") <= MAX_IDENTITY
            and len(lease.owner_payload or b"") <= MAX_PAYLOAD
            and lease.expires_at_ticks <= ballot.timestamp_ticks + self.times.longest_ticks
        )
        self.refused += not is_lawful
        return is_lawful

    def _answer_read(self, now: int, ballot: Ballot, out: list[ServicePayload]) -> None:
        if self.is_silent(now):
            return
        answer: AckReadLease | NackReadLease
        if self.register.promise(rank_of(ballot)):
            answer = AckReadLease(ballot, ballot_of(self.register.written), self.register.lease, self.uri)
        else:
            answer = NackReadLease(ballot, self.uri)
        out.append(answer)
        self._count(now, ballot, self.uri, answer, out)

    def _answer_write(self, now: int, ballot: Ballot, lease: Lease, out: list[ServicePayload]) -> None:
        rank = rank_of(ballot)
        self._see(now, rank, lease=lease)  # silent members, too, want to know who leads
        if self.is_silent(now):
            return
        answer = (AckWriteLease if self.register.accept(rank, lease) else NackWriteLease)(ballot, self.uri)
        out.append(answer)
        self._count(now, ballot, self.uri, answer, out)

    # --- rounds of our own --------------------------------------------------------------------------------------------

    def _propose(self, now: int, out: list[ServicePayload]) -> None:
        self._message_number += 1
        # Above all that we promised, or a member whose clock is behind would never win.
        timestamp_ticks = max(now, self.register.promised[0] + 1)
        ballot = Ballot(timestamp_ticks, self.identity, self._message_number)
        self._began = now
        self._round = rank_of(ballot)
        self._phase = "reading"
        self._found = {}
        self._nacks = set()
        self._deadline = now + self.times.response_timeout_ticks
        out.append(ReadLease(ballot))
        self._answer_read(now, ballot, out)

    def _count(self, now: int, ballot: Ballot, sender: str, answer: ServicePayload, out: list[ServicePayload]) -> None:
        rank = rank_of(ballot)
        if isinstance(answer, AckWriteLease):  # whosever ballot it is
            self._see(now, rank, sender=sender)
        elif rank != self._round or self._phase != ("writing" if isinstance(answer, NackWriteLease) else "reading"):
            return
        elif isinstance(answer, AckReadLease):
            written = ballot_of(NULL) if answer.known_write_ballot is None else answer.known_write_ballot
            if answer.lease is None or self._is_lawful(answer.lease, written):
                self._found[sender] = rank_of(written), answer.lease
                if len(self._found) == self.quorum:
                    self._write(now, ballot, out)
        else:
            self._nacks.add(sender)
            if len(self._nacks) > len(self.members) - self.quorum:
                self._back_off(now)

    def _write(self, now: int, ballot: Ballot, out: list[ServicePayload]) -> None:
        _, found = max(self._found.values(), key=itemgetter(0))  # the newest; under the null ballot there is none
        if found is None or not self.must_honour(now, found):
            lease = Lease(self.identity, self._began + self.times.max_lease_ticks, self._payload)
        elif now < found.expires_at_ticks:
            lease = found
        else:  # over by our clock, but maybe not by its owner's
            self._plan(now, found)
            return
        self._phase = "writing"
        self._nacks = set()
        self._deadline = now + self.times.response_timeout_ticks
        out.append(WriteLease(ballot, lease))
        self._answer_write(now, ballot, lease, out)

    # --- who leads ----------------------------------------------------------------------------------------------------

    def _see(self, now: int, rank: Rank, *, lease: Lease | None = None, sender: str | None = None) -> None:
        """Note a write, or that a member accepted it; in any order. With a majority it counts, even if it comes late."""
        if rank < self._seen:
            return
        if rank > self._seen:
            self._seen, self._seen_lease, self._acks, self._is_counted = rank, None, set(), False
        if lease is not None:
            self._seen_lease = lease
        if sender is not None:
            self._acks.add(sender)
        if not self._is_counted and self._seen_lease is not None and len(self._acks) >= self.quorum:
            self._is_counted = True
            self._leader = self._seen_lease
            self._failures = 0
            if self._phase == "idle" or rank >= self._round:
                self._plan(now, self._leader)
