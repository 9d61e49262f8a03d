"""The pure rules of a cluster: how several rendezvous agree on one leader. No I/O, no clock, no randomness."""

from hopline.cluster.lease import LeaseMember, LeaseTimes, utc_ticks
from hopline.cluster.register import Rank, Register, ballot_of, rank_of

__all__ = ["LeaseMember", "LeaseTimes", "Rank", "Register", "ballot_of", "rank_of", "utc_ticks"]
