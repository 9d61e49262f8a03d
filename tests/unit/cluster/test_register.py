"""The register: protocol 3.8, what a member answers to reads and writes of the lease."""

from hypothesis import given
from hypothesis import strategies as st

from hopline.cluster import Register, ballot_of, rank_of
from hopline.cluster.register import NULL
from hopline.payload.service import Ballot, Lease

ranks = st.tuples(st.integers(0, 4), st.integers(0, 2), st.sampled_from([b"", b"A", b"B", b"BB"]))


def test_ballots_compare_by_time_then_number_then_identity():
    ballots = [
        None,
        Ballot(0, b"A", 0),
        Ballot(1, b"B", 1),
        Ballot(1, b"A", 2),
        Ballot(1, b"AA", 2),
        Ballot(1, b"B", 2),
        Ballot(2, None, 0),
    ]
    assert sorted(ballots, key=rank_of, reverse=True) == ballots[::-1]


@given(ranks)
def test_a_ballot_survives_its_rank(rank):
    assert rank_of(ballot_of(rank)) == rank


def test_nothing_is_written_at_first():
    register = Register()
    assert (register.promised, register.written, register.lease) == (NULL, NULL, None)


@given(st.lists(st.tuples(st.booleans(), ranks), max_size=30))
def test_answers_follow_the_rules_of_the_reference(requests):
    """Against the rules as the protocol states them: with two ballots, for reads and for writes."""
    register = Register()
    read_ballot = write_ballot = NULL
    lease = None
    for is_read, rank in requests:
        if is_read:
            refused = write_ballot >= rank or read_ballot >= rank
            read_ballot = read_ballot if refused else rank
            assert register.promise(rank) is not refused
        else:
            refused = write_ballot > rank or read_ballot > rank
            if not refused:
                write_ballot, lease = rank, Lease(rank[2], rank[0])
            assert register.accept(rank, Lease(rank[2], rank[0])) is not refused
        assert (register.written, register.lease) == (write_ballot, lease)
        assert register.promised == max(read_ballot, write_ballot)
