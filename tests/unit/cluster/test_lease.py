"""The lease of several rendezvous: protocol 3.8, rule by rule. Chance and chaos are in `tests/simulation`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopline.cluster import LeaseMember, LeaseTimes, utc_ticks
from hopline.cluster.lease import MAX_IDENTITY, MAX_PAYLOAD, TICKS_PER_SECOND
from hopline.errors import InputError
from hopline.payload.service import (
    AckReadLease,
    AckWriteLease,
    Ballot,
    HeartBeat,
    Lease,
    NackReadLease,
    NackWriteLease,
    ReadLease,
    WriteLease,
)

TIMES = LeaseTimes()
DRIFT = TIMES.clock_drift_ticks
T0 = 639_000_000_000_000_000
AWAKE = T0 + TIMES.quiet_ticks
"""When a member that started at T0 begins to answer."""
A, B, C, D, E = (f"tcp://10.0.0.{number}:7001" for number in range(1, 6))


def member(uri=A, members=(A, B, C), *, now=T0, random=lambda: 0.0, times=None):
    return LeaseMember(
        uri, members, identity=uri.encode(), payload=b"at " + uri.encode(), now_ticks=now, random=random, times=times
    )


def ballot(now, uri=B, number=1):
    return Ballot(now, uri.encode(), number)


def lease(uri, until):
    return Lease(uri.encode(), until, b"at " + uri.encode())


def kinds(messages):
    return [type(message).__name__ for message in messages]


class Bus:
    """All members hear all, at once, those that are cut off excepted. What was said is kept."""

    def __init__(self, *uris, now=T0):
        self.members = {uri: member(uri, uris, now=now) for uri in uris}
        self.cut = set()
        self.said = []

    def publish(self, now, sender, messages):
        waiting = [(sender, message) for message in messages]
        while waiting:
            sender, message = waiting.pop(0)
            self.said.append(message)
            for uri, other in self.members.items():
                if sender == uri or not {sender, uri} & self.cut:
                    waiting += [(uri, answer) for answer in other.on_message(now, message)]

    def time(self, now, uri):
        self.publish(now, uri, self.members[uri].on_time(now))

    def leaders(self, now):
        found = [other.leader(now) for other in self.members.values()]
        return [None if one is None else one.identity.decode() for one in found]


# --- times ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"clock_drift_ticks": 0},
        {"response_timeout_ticks": 0},
        {"response_timeout_ticks": 2_000_001},
        {"max_lease_ticks": 9_000_000},
    ],
    ids=str,
)
def test_times_that_cannot_work_are_refused(wrong):
    with pytest.raises(InputError) as caught:
        LeaseTimes(**wrong)
    assert caught.value.code == "INPUT_BAD_CONFIG"


def test_times_of_the_sample_configuration():
    assert (TIMES.max_lease_ticks, TIMES.longest_ticks, TIMES.quiet_ticks) == (30_000_000, 32_000_000, 34_000_000)
    assert LeaseTimes(max_lease_ticks=9_000_001).max_lease_ticks == 9_000_001


def test_ticks_count_from_the_year_one():
    assert utc_ticks(0) == 719_162 * 86_400 * TICKS_PER_SECOND  # days from 0001-01-01 to 1970-01-01


# --- a round ----------------------------------------------------------------------------------------------------------


def test_a_single_member_leads_at_once():
    alone = member(members=[A])
    assert alone.deadline_ticks == T0
    read, ack_read, write, ack_write = alone.on_time(T0)
    one = ballot(T0, A)
    assert read == ReadLease(one)
    assert ack_read == AckReadLease(one, Ballot(0, b"", 0), None, A)
    assert write == WriteLease(one, lease(A, T0 + TIMES.max_lease_ticks))
    assert ack_write == AckWriteLease(one, A)
    assert alone.leader(T0) == write.lease
    assert alone.is_leader(T0)


def test_three_members_agree_and_all_know():
    bus = Bus(A, B, C)
    bus.time(AWAKE, A)
    assert kinds(bus.said) == ["ReadLease"] + 3 * ["AckReadLease"] + ["WriteLease"] + 3 * ["AckWriteLease"]
    assert bus.leaders(AWAKE) == [A, A, A]
    assert [one.is_leader(AWAKE) for one in bus.members.values()] == [True, False, False]


def test_the_lease_ends_for_all_by_their_own_clock():
    bus = Bus(A, B, C)
    bus.time(AWAKE, A)
    end = AWAKE + TIMES.max_lease_ticks
    assert bus.leaders(end - 1) == [A, A, A]
    assert bus.leaders(end) == [None, None, None]


def test_the_owner_renews_before_the_end_and_the_others_wait_for_it():
    bus = Bus(A, B, C)
    bus.time(AWAKE, A)
    end = AWAKE + TIMES.max_lease_ticks
    renewal = bus.members[A].deadline_ticks
    assert renewal == end - 2 * TIMES.roundtrip_ticks - DRIFT
    assert bus.members[B].deadline_ticks == end + DRIFT
    assert bus.members[A].on_time(renewal - 1) == []
    bus.time(renewal, A)
    assert bus.leaders(end) == [A, A, A]


def test_a_lease_is_dated_by_the_beginning_of_its_round():
    one = member()
    one.on_time(AWAKE)
    (write, _) = one.on_message(AWAKE + 1000, AckReadLease(ballot(AWAKE, A), Ballot(0, b"", 0), None, B))
    assert write.lease.expires_at_ticks == AWAKE + TIMES.max_lease_ticks


def test_nothing_is_due_before_the_deadline():
    assert member().on_time(T0) == []


def test_a_round_without_answers_ends_and_comes_again_later_each_time():
    one = member(random=lambda: 0.5)
    now, waits = one.deadline_ticks, []
    for _ in range(6):
        assert kinds(one.on_time(now)) == ["ReadLease", "AckReadLease"]
        assert one.deadline_ticks == now + TIMES.response_timeout_ticks
        now = one.deadline_ticks
        assert one.on_time(now) == []
        waits.append(one.deadline_ticks - now - 1)
        now = one.deadline_ticks
    assert waits == [2_000_000, 4_000_000, 8_000_000, 15_000_000, 15_000_000, 15_000_000]


def test_an_owner_that_cannot_renew_tries_again_soon_and_gives_up_at_the_end():
    bus = Bus(A, B, C)
    bus.time(AWAKE, A)
    bus.cut = {A}
    owner, end = bus.members[A], AWAKE + TIMES.max_lease_ticks
    tries = 0
    while (now := owner.deadline_ticks) < end:
        tries += "ReadLease" in kinds(owner.on_time(now))
        assert owner.is_leader(now)
    assert tries == 5
    assert not owner.is_leader(end)


def test_another_takes_over_when_the_owner_is_gone():
    bus = Bus(A, B, C)
    bus.time(AWAKE, A)
    bus.cut = {A}
    now = bus.members[B].deadline_ticks
    bus.time(now, B)
    assert bus.leaders(now) == [None, B, B]
    bus.cut = set()
    now = bus.members[B].deadline_ticks
    bus.time(now, B)
    assert bus.leaders(now) == [B, B, B]


# --- quorum -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "quorum"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_a_majority_is_more_than_half(count, quorum):
    assert member(members=[A, B, C, D, E][:count]).quorum == quorum


def reading(members=(A, B, C, D, E)):
    """A member that has asked, and its ballot."""
    one = member(members=members)
    read, _ = one.on_time(AWAKE)
    return one, read.ballot


def test_answers_count_once_for_this_ballot_and_from_members():
    one, mine = reading()
    none = Ballot(0, b"", 0)
    for answer in [
        AckReadLease(mine, none, None, B),
        AckReadLease(mine, none, None, B),
        AckReadLease(mine, none, None, A),
        AckReadLease(mine, none, None, "tcp://stranger"),
        AckReadLease(mine, none, None, None),
        AckReadLease(ballot(AWAKE - 1, A, 0), none, None, C),
        NackReadLease(mine, D),
        NackWriteLease(mine, D),
        HeartBeat(1),
    ]:
        assert one.on_message(AWAKE, answer) == []
    assert kinds(one.on_message(AWAKE, AckReadLease(mine, None, None, C))) == ["WriteLease", "AckWriteLease"]


def test_a_late_answer_to_the_read_means_nothing_to_the_write():
    one, mine = reading(members=(A, B, C))
    one.on_message(AWAKE, AckReadLease(mine, None, None, B))
    assert one.on_message(AWAKE, AckReadLease(mine, None, None, C)) == []
    assert one.on_message(AWAKE, NackReadLease(mine, C)) == []
    assert one.leader(AWAKE) is None
    one.on_message(AWAKE, AckWriteLease(mine, C))
    assert one.is_leader(AWAKE)


def test_refusals_end_a_round_when_a_majority_is_out_of_reach():
    one, mine = reading()
    one.on_message(AWAKE, NackReadLease(mine, B))
    one.on_message(AWAKE, NackReadLease(mine, B))
    one.on_message(AWAKE, NackReadLease(mine, C))
    assert one.deadline_ticks == AWAKE + TIMES.response_timeout_ticks
    one.on_message(AWAKE, NackReadLease(mine, D))
    assert one.deadline_ticks == AWAKE + 1


def test_refusals_of_the_write_count_too():
    one, mine = reading(members=(A, B, C))
    one.on_message(AWAKE, AckReadLease(mine, None, None, B))
    one.on_message(AWAKE, NackWriteLease(mine, B))
    one.on_message(AWAKE, NackWriteLease(mine, C))
    assert one.deadline_ticks == AWAKE + 1
    assert one.leader(AWAKE) is None


def test_a_lease_that_is_accepted_late_counts_all_the_same():
    one, mine = reading(members=(A, B, C))
    one.on_message(AWAKE, AckReadLease(mine, None, None, B))
    late = AWAKE + TIMES.response_timeout_ticks
    one.on_time(late)
    one.on_message(late + 1, AckWriteLease(mine, B))
    assert one.is_leader(late + 1)
    assert not one.is_leader(AWAKE + TIMES.max_lease_ticks)


def test_acceptance_may_be_heard_before_what_was_accepted():
    one = member()
    theirs, granted = ballot(T0), lease(B, T0 + TIMES.max_lease_ticks)
    one.on_message(T0, AckWriteLease(theirs, C))
    one.on_message(T0, AckWriteLease(theirs, B))
    assert one.leader(T0) is None
    one.on_message(T0, WriteLease(theirs, granted))
    assert one.leader(T0) == granted


def test_acceptance_of_an_older_ballot_is_not_counted_for_a_newer_one():
    one = member()
    one.on_message(T0, WriteLease(ballot(T0 - 1), lease(B, T0 + 100)))
    one.on_message(T0, WriteLease(ballot(T0), lease(C, T0 + 100)))
    one.on_message(T0, AckWriteLease(ballot(T0 - 1), B))
    one.on_message(T0, AckWriteLease(ballot(T0 - 1), C))
    one.on_message(T0, AckWriteLease(ballot(T0), C))
    assert one.leader(T0) is None


def test_a_lease_that_others_agree_on_does_not_disturb_a_newer_round_of_ours():
    one = member(members=(A, B, C))
    one.on_message(AWAKE, WriteLease(ballot(AWAKE - 5), lease(B, AWAKE + 50)))
    one.on_time(AWAKE)
    deadline = one.deadline_ticks
    one.on_message(AWAKE, AckWriteLease(ballot(AWAKE - 5), B))
    assert one.leader(AWAKE).identity == B.encode()
    assert one.deadline_ticks == deadline


def test_a_newer_lease_of_others_ends_a_round_of_ours():
    one, _ = reading(members=(A, B, C))
    theirs = ballot(AWAKE + 1)
    one.on_message(AWAKE, WriteLease(theirs, lease(B, AWAKE + TIMES.max_lease_ticks)))
    one.on_message(AWAKE, AckWriteLease(theirs, B))
    assert one.deadline_ticks == AWAKE + TIMES.max_lease_ticks + DRIFT


# --- promise ----------------------------------------------------------------------------------------------------------


def test_a_promise_refuses_lower_reads_and_writes():
    one = member()
    later, earlier = ballot(AWAKE, C), ballot(AWAKE - 1, B)
    (ack,) = one.on_message(AWAKE, ReadLease(later))
    assert ack == AckReadLease(later, Ballot(0, b"", 0), None, A)
    assert one.on_message(AWAKE, ReadLease(earlier)) == [NackReadLease(earlier, A)]
    assert one.on_message(AWAKE, WriteLease(earlier, lease(B, AWAKE))) == [NackWriteLease(earlier, A)]
    assert one.on_message(AWAKE, WriteLease(later, lease(C, AWAKE))) == [AckWriteLease(later, A)]


def test_a_member_with_a_slow_clock_asks_above_what_it_promised():
    one = member()
    one.on_message(AWAKE, ReadLease(ballot(AWAKE + DRIFT)))
    read, _ = one.on_time(AWAKE)
    assert read.ballot.timestamp_ticks == AWAKE + DRIFT + 1


def test_own_requests_that_come_back_are_not_answered_again():
    one, mine = reading()
    assert one.on_message(AWAKE, ReadLease(mine)) == []
    assert one.on_message(AWAKE, WriteLease(mine, lease(A, AWAKE))) == []


# --- honour -----------------------------------------------------------------------------------------------------------


def found(known, now=AWAKE):
    """What a member does that finds this lease at another one."""
    one = member(now=now - TIMES.quiet_ticks)
    read, _ = one.on_time(now)
    return one, one.on_message(now, AckReadLease(read.ballot, ballot(now - 1), known, B))


def test_a_running_lease_of_another_is_written_back():
    theirs = lease(C, AWAKE + 1)
    one, (write, _) = found(theirs)
    assert write.lease == theirs
    assert one.leader(AWAKE) is None, "not before a majority has it"
    one.on_message(AWAKE, AckWriteLease(write.ballot, B))
    assert one.leader(AWAKE) == theirs


@pytest.mark.parametrize("ago", [0, DRIFT - 1])
def test_a_lease_that_has_just_ended_is_left_alone(ago):
    one, out = found(lease(C, AWAKE - ago))
    assert out == []
    assert one.deadline_ticks == AWAKE - ago + DRIFT


@pytest.mark.parametrize("known", [None, lease(C, AWAKE - DRIFT), lease(A, AWAKE + 5)], ids=["none", "over", "own"])
def test_otherwise_a_new_one_is_written(known):
    _, (write, _) = found(known)
    assert write.lease == lease(A, AWAKE + TIMES.max_lease_ticks)


def test_of_several_the_newest_counts():
    one, mine = reading()
    old, new = lease(C, AWAKE + 100), lease(D, AWAKE + 50)
    one.on_message(AWAKE, AckReadLease(mine, ballot(AWAKE - 2), new, B))
    write, _ = one.on_message(AWAKE, AckReadLease(mine, ballot(AWAKE - 3), old, C))
    assert write.lease == new


# --- quiet ------------------------------------------------------------------------------------------------------------


def test_a_member_that_starts_listens_only_and_still_learns_who_leads():
    one = member(random=lambda: 0.5)
    now = AWAKE - 1
    theirs, granted = ballot(now), lease(B, now + TIMES.max_lease_ticks)
    assert one.is_silent(now)
    assert one.on_message(now, ReadLease(theirs)) == []
    assert one.on_message(now, WriteLease(theirs, granted)) == []
    assert one.register.written == one.register.promised == (0, 0, b"")
    one.on_message(now, AckWriteLease(theirs, B))
    one.on_message(now, AckWriteLease(theirs, C))
    assert one.leader(now) == granted
    assert not one.is_silent(AWAKE)


def test_a_member_that_starts_proposes_only_afterwards():
    one = member(random=lambda: 0.5)
    assert one.deadline_ticks == AWAKE + TIMES.roundtrip_ticks // 2
    theirs = ballot(T0)
    for message in WriteLease(theirs, lease(B, T0)), AckWriteLease(theirs, B), AckWriteLease(theirs, C):
        one.on_message(T0, message)  # a lease that ends at once
    assert one.deadline_ticks < AWAKE
    assert one.on_time(one.deadline_ticks) == []
    assert one.deadline_ticks == AWAKE


def test_after_the_quiet_time_nothing_that_was_forgotten_can_still_run():
    """The last lease that it may have accepted: dated ahead by the drift, as long as can be, and honoured by the drift."""
    ahead = T0 + DRIFT
    assert ahead + TIMES.longest_ticks + DRIFT <= AWAKE


# --- bounds and clocks ------------------------------------------------------------------------------------------------

OK = lease(B, AWAKE)
UNSOUND = {
    "no ballot": ReadLease(None),
    "no identity": ReadLease(Ballot(AWAKE, None, 1)),
    "long identity": ReadLease(Ballot(AWAKE, b"x" * (MAX_IDENTITY + 1), 1)),
    "from the future": ReadLease(ballot(AWAKE + DRIFT + 1)),
    "answer from the future": AckWriteLease(ballot(AWAKE + DRIFT + 1), B),
    "no lease": WriteLease(ballot(AWAKE), None),
    "nobody's lease": WriteLease(ballot(AWAKE), Lease(b"", AWAKE)),
    "lease of a long name": WriteLease(ballot(AWAKE), Lease(b"x" * (MAX_IDENTITY + 1), AWAKE)),
    "lease with a long payload": WriteLease(ballot(AWAKE), Lease(b"B", AWAKE, b"x" * (MAX_PAYLOAD + 1))),
    "lease for too long": WriteLease(ballot(AWAKE), lease(B, AWAKE + TIMES.longest_ticks + 1)),
}


@pytest.mark.parametrize("name", UNSOUND)
def test_what_no_honest_member_says_is_counted_and_changes_nothing(name):
    one = member()
    assert one.on_message(AWAKE, UNSOUND[name]) == []
    assert one.refused == 1
    assert one.register.promised == (0, 0, b"")


def test_a_lease_in_an_answer_must_be_lawful_too():
    one, mine = reading(members=(A, B, C))
    assert one.on_message(AWAKE, AckReadLease(mine, None, OK, B)) == [], "written, but under no ballot"
    assert one.refused == 1


def test_the_longest_lawful_lease_is_accepted():
    one = member()
    longest = lease(B, AWAKE + DRIFT + TIMES.longest_ticks)
    assert kinds(one.on_message(AWAKE, WriteLease(ballot(AWAKE + DRIFT), longest))) == ["AckWriteLease"]


def test_a_clock_that_goes_back_a_little_is_held():
    bus = Bus(A, B, C)
    bus.time(AWAKE, A)
    owner = bus.members[A]
    end = AWAKE + TIMES.max_lease_ticks
    owner.on_message(end, HeartBeat(1))
    assert not owner.is_leader(end - 1)
    assert owner.on_message(end - DRIFT, ReadLease(ballot(end + DRIFT))) != [], "now is still the end"


def test_a_clock_that_goes_back_far_is_a_new_start():
    bus = Bus(A, B, C)
    bus.time(AWAKE, A)
    owner = bus.members[A]
    back = AWAKE - DRIFT - 1
    assert owner.leader(back) is None
    assert owner.on_message(back, ReadLease(ballot(back))) == []
    assert owner.is_silent(back)
    assert owner.leader(AWAKE) is None


def test_a_clock_that_was_set_is_a_new_start_if_somebody_says_so():
    bus = Bus(A, B, C)
    bus.time(AWAKE, A)
    bus.members[A].forget(AWAKE + 1)
    assert bus.leaders(AWAKE + 1) == [None, A, A]
    assert bus.members[A].is_silent(AWAKE + TIMES.quiet_ticks)
    assert not bus.members[A].is_silent(AWAKE + 1 + TIMES.quiet_ticks)


ballots = st.builds(
    Ballot, st.integers(AWAKE - 5, AWAKE + DRIFT + 5), st.sampled_from([None, A.encode(), B.encode()]), st.integers(0, 2)
)
leases = st.builds(Lease, st.sampled_from([None, A.encode(), B.encode()]), st.integers(AWAKE - 5, AWAKE + 5 * 10**7))
senders = st.sampled_from([None, A, B, C, "tcp://stranger"])
anything = st.one_of(
    st.builds(ReadLease, ballots | st.none()),
    st.builds(WriteLease, ballots, leases | st.none()),
    st.builds(AckReadLease, ballots, ballots | st.none(), leases | st.none(), senders),
    st.builds(NackReadLease, ballots, senders),
    st.builds(AckWriteLease, ballots, senders),
    st.builds(NackWriteLease, ballots, senders),
)


@given(st.lists(st.none() | anything, max_size=40))
def test_whatever_comes_the_member_goes_on(messages):
    """It never fails, always has something to do later, and its promises never fall."""
    one, now, promised = member(), AWAKE, (0, 0, b"")
    for message in messages:
        now += 1
        if message is None:
            now = max(now, one.deadline_ticks)
            one.on_time(now)
            assert one.deadline_ticks > now
        else:
            for answer in one.on_message(now, message):
                answer.write()
        assert one.register.promised >= promised
        promised = one.register.promised
        leading = one.leader(now)
        assert leading is None or now < leading.expires_at_ticks <= now + DRIFT + TIMES.longest_ticks


# --- configuration ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [(), (A,), (A, B, C, D, E), (A, B, D)], ids=["none", "two go", "two come", "exchange"])
def test_members_change_one_at_a_time(members):
    one = member()
    with pytest.raises(InputError) as caught:
        one.reconfigure(AWAKE, members)
    assert caught.value.code == "INPUT_BAD_CONFIG"
    assert one.members == {A, B, C}


def test_the_leader_renews_at_once_under_the_new_majority():
    bus = Bus(A, B, C)
    bus.time(AWAKE, A)
    bus.members[D] = member(D, (A, B, C, D), now=AWAKE)
    for uri in A, B, C:
        bus.members[uri].reconfigure(AWAKE, [A, B, C, D])
    owner = bus.members[A]
    assert (owner.quorum, owner.deadline_ticks) == (3, AWAKE + 1)
    assert bus.members[B].deadline_ticks > AWAKE + TIMES.max_lease_ticks, "who follows is not disturbed"
    bus.time(AWAKE + 1, A)
    assert bus.leaders(AWAKE + 1) == [A, A, A, A]


def test_a_round_begun_with_other_members_ends():
    one, _ = reading(members=(A, B, C))
    one.reconfigure(AWAKE, [A, B])
    assert one.deadline_ticks == AWAKE + 1


def test_the_same_members_again_change_nothing():
    one, _ = reading(members=(A, B, C))
    deadline = one.deadline_ticks
    one.reconfigure(AWAKE, [C, B, A])
    assert one.deadline_ticks == deadline


def test_acceptance_by_one_that_has_gone_no_longer_counts():
    one = member(members=(A, B, C, D))
    one.on_message(T0, WriteLease(ballot(T0), lease(B, T0 + 100)))
    one.on_message(T0, AckWriteLease(ballot(T0), D))
    one.reconfigure(T0, [A, B, C])
    one.on_message(T0, AckWriteLease(ballot(T0), B))
    assert one.leader(T0) is None
    one.on_message(T0, AckWriteLease(ballot(T0), C))
    assert one.leader(T0) is not None


def test_one_that_is_no_member_any_more_falls_silent():
    one = member()
    one.reconfigure(AWAKE, [B, C])
    assert one.is_silent(AWAKE)
    assert one.on_message(AWAKE, ReadLease(ballot(AWAKE))) == []
    assert one.on_time(AWAKE) == []
    assert one.deadline_ticks == AWAKE + TIMES.max_lease_ticks
