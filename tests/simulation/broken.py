"""Members that break one safety rule each. A simulation that does not find two leaders among them would prove nothing.

A rule is switched off here, by overriding the one method that holds it; the product has no such switches.
"""

import itertools

import msgspec

from hopline.cluster import LeaseMember, Register, ballot_of
from hopline.payload.service import AckReadLease, AckWriteLease
from tests.simulation.world import World


class HalfIsEnough(LeaseMember):
    """Quorum: a majority is more than half."""

    @property
    def quorum(self):
        return len(self.members) // 2


class OneMemberManyVotes(LeaseMember):
    """Quorum: of different members; a message that comes twice is one vote."""

    _votes = itertools.count()

    def _count(self, now, ballot, sender, answer, out):
        super()._count(now, ballot, f"{sender}/{next(self._votes)}", answer, out)


class AnyBallotWillDo(LeaseMember):
    """Quorum: of answers to this very ballot, not to another that was asked at the same time."""

    def _count(self, now, ballot, sender, answer, out):
        is_yes = isinstance(answer, AckReadLease | AckWriteLease) and self._phase != "idle"
        super()._count(now, ballot_of(self._round) if is_yes else ballot, sender, answer, out)


class PromisesAnything(Register):
    def promise(self, rank):
        self.promised = rank
        return True


class AcceptsAnything(Register):
    def accept(self, rank, lease):
        self.written, self.lease = rank, lease
        return True


class PromisesBackwards(LeaseMember):
    """Promise: a lower ballot than one that was answered is refused."""

    def forget(self, now_ticks):
        super().forget(now_ticks)
        self.register = PromisesAnything()


class BreaksPromises(LeaseMember):
    """Promise: after a promise, writes of lower ballots are refused."""

    def forget(self, now_ticks):
        super().forget(now_ticks)
        self.register = AcceptsAnything()


class TakesWhatItWants(LeaseMember):
    """Honour: a lease that was read and still runs is not replaced."""

    def must_honour(self, now_ticks, lease):
        return False


class TakesTheOldest(LeaseMember):
    """Honour: of what was read, the lease of the highest ballot counts."""

    def _write(self, now, ballot, out):
        self._found = {"oldest": min(self._found.values(), key=lambda found: found[0])}
        super()._write(now, ballot, out)


class BelievesWhatItReads(LeaseMember):
    """Write-back: a lease that was read counts only when a majority has it under this ballot."""

    def _write(self, now, ballot, out):
        _, found = max(self._found.values(), key=lambda found: found[0])
        if found is not None and self.must_honour(now, found) and now < found.expires_at_ticks:
            self._leader = found
            self._plan(now, found)
        else:
            super()._write(now, ballot, out)


class TrustsItsClock(LeaseMember):
    """Drift: another's lease is over only when it is over by every clock."""

    def must_honour(self, now_ticks, lease):
        return super().must_honour(now_ticks + self.times.clock_drift_ticks, lease)

    def _plan(self, now, lease):
        super()._plan(now, lease)
        if lease.identity != self.identity:
            self._deadline = max(now + 1, self._deadline - self.times.clock_drift_ticks)


class NeverEnds(LeaseMember):
    """End: a lease that is over is nobody's, whether the owner could renew it or not."""

    def leader(self, now_ticks):
        return self._leader


class CountsFromTheEnd(LeaseMember):
    """Age: a lease runs from its ballot, not from when its owner heard that it has it."""

    def _see(self, now, rank, *, lease=None, sender=None):
        before = self._leader
        super()._see(now, rank, lease=lease, sender=sender)
        if self._leader is not before and self._leader.identity == self.identity:
            self._leader = msgspec.structs.replace(self._leader, expires_at_ticks=now + self.times.max_lease_ticks)


class SpeaksAtOnce(LeaseMember):
    """Quiet: a member that has forgotten its promises keeps silent until they no longer matter."""

    def is_silent(self, now_ticks):
        return self.uri not in self.members


class SpeaksTooSoon(LeaseMember):
    """Quiet: and that is the whole length of a lease."""

    def is_silent(self, now_ticks):
        return super().is_silent(now_ticks + 3 * self.times.quiet_ticks // 4)


class LeapingMember(LeaseMember):
    """One at a time: the members change by one."""

    def reconfigure(self, now_ticks, members):
        for uri in self.members ^ frozenset(members):
            super().reconfigure(now_ticks, self.members ^ {uri})


class LeapingWorld(World):
    """A world in which the members change by several at once."""

    def _next_members(self):
        return tuple(self.rng.sample([place.uri for place in self.places], 3))


BROKEN = [
    (World, HalfIsEnough),
    (World, OneMemberManyVotes),
    (World, AnyBallotWillDo),
    (World, PromisesBackwards),
    (World, BreaksPromises),
    (World, TakesWhatItWants),
    (World, TakesTheOldest),
    (World, BelievesWhatItReads),
    (World, TrustsItsClock),
    (World, NeverEnds),
    (World, CountsFromTheEnd),
    (World, SpeaksAtOnce),
    (World, SpeaksTooSoon),
    (LeapingWorld, LeapingMember),
]
