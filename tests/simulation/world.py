"""A world of rendezvous in which everything goes wrong, from one seed: time, the network, the clocks and the weather.

Events happen one after the other in true time, which nobody in the world can see. A step is a message or a timer that
reaches a living member. The weather changes every few seconds: messages are lost, doubled, overtaken, or late by far more
than a lease; links are cut, one way or both, often around the leader; members crash, the leader most, and come back without
their memory; one comes to the configuration or leaves it; all begin at the same time. After some of that there is calm.

What must hold. At every step: all members that name a leader name the same one, each by its own clock. In calm: a leader is
there after `CALM_BOUND` at the latest, all name it, and it stays.
"""

import heapq
import random
from collections import Counter, deque

from hopline.cluster import LeaseMember, LeaseTimes
from hopline.cluster.lease import TICKS_PER_SECOND

TIMES = LeaseTimes()
START = 10**17
MS = TICKS_PER_SECOND // 1000
CALM_BOUND = TIMES.quiet_ticks + TIMES.max_lease_ticks + 2 * TIMES.clock_drift_ticks + 4 * TIMES.roundtrip_ticks
"""A quiet time, for those who just came back; what is left of a lease whose owner is gone, or a back-off; a few rounds."""
MOST_MEMBERS = 5


class TwoLeadersError(AssertionError):
    pass


class NoLeaderError(AssertionError):
    pass


class Clock:
    """Wanders about true time, slower or faster by up to half; any two differ by at most the drift. Never goes back."""

    def __init__(self, rng):
        self._rng = rng
        self._since = self._until = START
        self._from = self._to = 0
        self._turn()

    def _turn(self):
        rng, half = self._rng, TIMES.clock_drift_ticks // 2
        self._since, self._from = self._until, self._to
        self._until += rng.randrange(2 * TIMES.clock_drift_ticks, 100 * TIMES.clock_drift_ticks)
        # The ends are where the trouble is.
        self._to = rng.choice((-half, half)) if rng.random() < 0.8 else rng.randint(-half, half)

    def at(self, true):
        while true >= self._until:
            self._turn()
        return true + self._from + (self._to - self._from) * (true - self._since) // (self._until - self._since)


class Place:
    """Where a member runs: it has an address, a clock and a configuration file, which outlive the process."""

    def __init__(self, index, rng):
        self.index = index
        self.uri = f"tcp://10.0.0.{index + 1}:7001"
        self.clock = Clock(rng)
        self.members = ()
        self.member = None
        self.starts = 0
        self.belief = None
        self.deadline = self.wake = None


class World:
    def __init__(self, seed, *, members=3, member_type=LeaseMember, trace=0):
        self.seed = seed
        self.member_type = member_type
        self.rng = random.Random(seed)
        self.now = START
        self.steps = 0
        self.counts = Counter()
        self.slowest_calm = 0
        self.owner = None
        self._events = []
        self._order = 0
        self._trace = deque(maxlen=trace) if trace else None
        self._changing = 0
        self.places = [Place(index, self.rng) for index in range(MOST_MEMBERS)]
        self.members = tuple(place.uri for place in self.places[:members])
        self._haste = 1.0
        for place in self.places[:members]:
            place.members = self.members
            self._start(place)
        self._set_weather(0, 0, 0, 5 * MS)
        self._weathers_left = 5
        self._after(TICKS_PER_SECOND, self._change_weather)

    # --- events -------------------------------------------------------------------------------------------------------

    def run(self, steps):
        """Live for so many steps."""
        events, places, pop = self._events, self.places, heapq.heappop
        until = self.steps + steps
        while self.steps < until:
            now, _, index, what = pop(events)
            self.now = now
            if index < 0:
                what()
                continue
            place = places[index]
            member = place.member
            if member is None:
                continue
            if what is None:
                if place.wake != now:
                    continue
                local = place.clock.at(now)
                if local < member.deadline_ticks:  # its clock went slower than it did when this was set
                    self._schedule(place, local)
                    continue
                out = member.on_time(local)
            else:
                local = place.clock.at(now)
                out = member.on_message(local, what)
            self.steps += 1
            if self._trace is not None:
                self._trace.append((now - START, place.uri, local - now, what, out))
            if out:
                self._publish(index, now, out)
            lease = member.leader(local)
            if lease is not place.belief:
                self._believe(place, lease)
            if what is None or member.deadline_ticks != place.deadline:
                self._schedule(place, local)
        return self

    def _push(self, when, index, what):
        self._order += 1
        heapq.heappush(self._events, (when, self._order, index, what))

    def _after(self, ticks, call):
        self._push(self.now + max(1, int(ticks)), -1, call)

    def _schedule(self, place, local):
        place.deadline = place.member.deadline_ticks
        place.wake = self.now + max(1, place.deadline - local)
        self._push(place.wake, place.index, None)

    def _publish(self, sender, now, messages):
        chance, events, push = self.rng.random, self._events, heapq.heappush
        loss, double, late, spread = self._weather
        order = self._order
        for message in messages:
            for index in self._reach[sender]:
                luck = chance()
                if luck < loss:
                    self.counts["lost"] += 1
                    continue
                order += 1
                delay = 1 + int(spread * chance())
                if luck < late:
                    delay = int(8 * TICKS_PER_SECOND * chance())
                    self.counts["late"] += 1
                push(events, (now + delay, order, index, message))
                if luck > double:
                    order += 1
                    self.counts["doubled"] += 1
                    push(events, (now + 1 + int(10 * spread * chance()), order, index, message))
        self._order = order

    # --- what must hold -----------------------------------------------------------------------------------------------

    def _believe(self, place, lease):
        place.belief = lease
        if lease is None:
            return
        for other in self.places:
            named = other.member and other.member.leader(other.clock.at(self.now))
            if named and named.identity != lease.identity:
                raise TwoLeadersError(self._story(f"{place.uri} names {lease.identity}, {other.uri} names {named.identity}"))
        self.counts["leases"] += 1
        if lease.identity != self.owner:
            self.owner = lease.identity
            self.counts["leaders"] += 1

    def _common_leader(self):
        """Whom all members name, if it is one of them. They may also name one that has crashed: its lease runs on."""
        members = [place for place in self.places if place.uri in self.members]
        leases = [place.member and place.member.leader(place.clock.at(self.now)) for place in members]
        names = {lease.identity if lease else None for lease in leases}
        living = {place.member.identity for place in members if place.member is not None}
        return names.pop() if len(names) == 1 and names <= living else None

    def _story(self, what):
        seconds = (self.now - START) / TICKS_PER_SECOND
        return f"seed {self.seed}, step {self.steps}, {seconds:.3f} s: {what}"

    def told(self):
        """The last steps, if they are traced: time in seconds, who, by how many ms its clock is off, in, out."""
        return [
            f"{true / TICKS_PER_SECOND:.4f} {uri} {off / MS:+.1f} ms: {what or 'time'} -> {out}"
            for true, uri, off, what, out in self._trace or ()
        ]

    # --- members ------------------------------------------------------------------------------------------------------

    def _start(self, place):
        if place.member is not None or place.uri not in place.members:
            return
        place.starts += 1
        local = place.clock.at(self.now)
        place.member = self.member_type(
            place.uri,
            place.members,
            identity=f"{place.uri}#{place.starts}".encode(),
            payload=b"",
            now_ticks=local,
            random=self._jitter,
            times=TIMES,
        )
        self._schedule(place, local)

    def _jitter(self):
        return self._haste * self.rng.random()

    def _crash(self, place):
        place.member = place.belief = None
        self.counts["crashes"] += 1

    def _reconfigure(self):
        """The members change. Each hears of it at another time; the next change waits for all."""
        self.members = self._next_members()
        self.counts["configurations"] += 1
        self._changing = len(self.places)
        for place in self.places:
            delay = 5 * TICKS_PER_SECOND * self.rng.random()
            self._after(delay, lambda place=place: self._adopt(place, self.members))

    def _next_members(self):
        """One comes or goes."""
        others = [place.uri for place in self.places if place.uri not in self.members]
        if not others or (len(self.members) > 3 and self.rng.random() < 0.5):
            gone = self.rng.choice(self.members)
            return tuple(uri for uri in self.members if uri != gone)
        return (*self.members, self.rng.choice(others))

    def _adopt(self, place, members):
        self._changing -= 1
        place.members = members
        if place.member is not None:
            place.member.reconfigure(place.clock.at(self.now), members)
            self._schedule(place, place.clock.at(self.now))
        elif place.uri in members:
            self._start(place)

    # --- weather ------------------------------------------------------------------------------------------------------

    def _set_weather(self, loss, double, late, spread, cut=(), haste=1.0):
        # By one number a message is lost (from below), late (above that) or doubled (from above).
        self._weather = loss, 1 - double, loss + late, spread
        self._haste = haste
        everybody = range(len(self.places))
        echo = [[index] if double and self.rng.random() < 0.5 else [] for index in everybody]  # a bus may echo
        self._reach = [
            [there for there in everybody if there != here and (here, there) not in cut] + echo[here] for here in everybody
        ]

    def _change_weather(self):
        rng = self.rng
        self._weathers_left -= 1
        if self._weathers_left < 0:
            self._calm_down()
            return
        self._set_weather(
            rng.choice((0, 0, 0.05, 0.3)),
            rng.choice((0, 0, 0.1, 0.4)),
            rng.choice((0, 0.02, 0.1, 0.3)),
            rng.choice((2, 10, 60, 150)) * MS,
            self._draw_cut(),
            rng.choice((1.0, 1.0, 0.2)),  # when all draw nearly the same number, all begin at the same time
        )
        for place in self.places:
            is_leader = place.member is not None and place.member.identity == self.owner
            if place.member is not None and rng.random() < (0.3 if is_leader else 0.1):
                self._crash(place)
                down = rng.random() * TICKS_PER_SECOND * rng.choice((0.05, 0.5, 6))
                self._after(down, lambda place=place: self._start(place))
        if not self._changing and rng.random() < 0.05:
            self._reconfigure()
        self._after(rng.random() * TICKS_PER_SECOND * rng.choice((0.5, 2, 8)), self._change_weather)

    def _draw_cut(self):
        """Links that are cut: one member alone, a split, or any, one way."""
        rng = self.rng
        everybody = range(len(self.places))
        kind = rng.random()
        if kind < 0.4:
            return ()
        if kind < 0.65:
            alone = [place.index for place in self.places if self.owner and self.owner.startswith(place.uri.encode())]
            side = set(alone) if alone and rng.random() < 0.7 else {rng.choice(everybody)}
        elif kind < 0.85:
            side = {index for index in everybody if rng.random() < 0.5}
        else:
            return {(here, there) for here in everybody for there in everybody if rng.random() < 0.4}
        return {(here, there) for here in everybody for there in everybody if (here in side) != (there in side)}

    def _calm_down(self):
        self._set_weather(0, 0, 0, 10 * MS)
        for place in self.places:
            self._start(place)
        if self._changing:
            self._after(100 * MS, self._calm_down)
            return
        since = self.now
        self._after(1, lambda: self._look_for_leader(since))
        self._after(CALM_BOUND, self._expect_leader)

    def _look_for_leader(self, since):
        took = self.now - since
        if self._common_leader() is not None:
            self.slowest_calm = max(self.slowest_calm, took)
        elif took < CALM_BOUND:
            self._after(20 * MS, lambda: self._look_for_leader(since))

    def _expect_leader(self):
        leader = self._common_leader()
        if leader is None:
            raise NoLeaderError(self._story("calm, and no leader"))
        self._after(2 * TIMES.max_lease_ticks, lambda: self._expect_same(leader))

    def _expect_same(self, leader):
        if self._common_leader() != leader:
            raise NoLeaderError(self._story(f"calm, and {leader} did not stay"))
        self.counts["calms"] += 1
        self._weathers_left = self.rng.randrange(5, 80)
        self._change_weather()
