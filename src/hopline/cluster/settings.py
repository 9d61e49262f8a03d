"""How often a cluster does things, and how long it waits: one table for nodes, one for rendezvous."""

import math
from typing import Literal

import msgspec

from hopline.cluster.endpoints import MOST_ENDPOINTS, read_endpoint
from hopline.cluster.lease import TICKS_PER_SECOND, LeaseTimes
from hopline.errors import InputError
from hopline.wire import FormatName


class ClusterSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Times of a node in a cluster, in seconds.

    Attributes:
        heartbeat_s: between two heart beats of this node.
        most_missed: heart beats that a node we send to may miss.
        stale_after_s: without a sign of life of a node that we do not send to, until we see whether it is there.
        silence_s: without a sign of life of the rendezvous, until we turn to the next. One that says how often its heart
            beats is given three times that, if it is longer.
        discovery_s: between two questions for all routes of the cluster.
        format: what the rendezvous speaks, if that is known; else a node listens before it says anything.
    """

    heartbeat_s: float = 2.0
    most_missed: int = 3
    stale_after_s: float = 60.0
    silence_s: float = 3.0
    discovery_s: float = 60.0
    format: FormatName | Literal[""] = ""

    def __post_init__(self) -> None:
        """Refuse what could not work."""
        times = (self.heartbeat_s, self.stale_after_s, self.silence_s, self.discovery_s)
        if not all(0 < seconds < math.inf for seconds in times) or self.most_missed < 1:
            raise InputError("INPUT_BAD_CONFIG", "the times of a cluster must be above 0, and at least 1 beat be missed")


class RendezvousSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [rendezvous] of a configuration.

    Attributes:
        bind: where nodes send to: tcp://HOST:PORT, or tcp://HOST:PORT+PORT with the port where they listen.
        partner_bind: where partner clusters listen; nowhere if empty.
        partners: where partner clusters are heard: the `partner_bind` of each of their rendezvous. What is said there about
            routes is repeated to nodes here.
        partner_domains: the domains in which partners may say something; "*" is any, also none.
        synod: the address at which this rendezvous speaks with the others; needed if there are any.
        members: the synod addresses of all rendezvous, this one included.
        nodes: all rendezvous as nodes are told of them, this one included if it stays; nodes that know one address learn
            the others.
        formats: what nodes of the reference here read, such as ["v5"]; else that is learned from what they send.
        heartbeat_s: between two heart beats.
        lease_s: how long a leader leads without renewing.
        clock_drift_s: the most by which the clocks of two rendezvous may differ.
        response_s: how long the members may take to answer.
    """

    bind: str = "tcp://127.0.0.1:8011"
    partner_bind: str = ""
    partners: tuple[str, ...] = ()
    partner_domains: tuple[str, ...] = ("*",)
    synod: str = ""
    members: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    formats: tuple[FormatName, ...] = ()
    heartbeat_s: float = 1.0
    lease_s: float = 3.0
    clock_drift_s: float = 0.1
    response_s: float = 0.2

    def __post_init__(self) -> None:
        """Refuse what could not work."""
        if not 0 < self.heartbeat_s < math.inf:
            raise InputError("INPUT_BAD_CONFIG", "the heart beat of a rendezvous must be above 0 seconds")
        if self.members and self.synod not in self.members:
            raise InputError("INPUT_BAD_CONFIG", "the synod address of a rendezvous must be one of the members")
        if max(map(len, (self.nodes, self.members, self.partners))) > MOST_ENDPOINTS:
            raise InputError(
                "INPUT_BAD_CONFIG", f"a cluster has {MOST_ENDPOINTS} rendezvous at most, and so have its partners"
            )
        if not all(map(math.isfinite, (self.lease_s, self.clock_drift_s, self.response_s))):
            raise InputError("INPUT_BAD_CONFIG", "the times of a lease must be numbers of seconds")
        for text in (self.bind, *self.nodes):
            read_endpoint(text)
        self.times  # noqa: B018 - it refuses what could not work

    @property
    def bind_addresses(self) -> tuple[str, str]:
        """Where to bind the unicast and the broadcast side.

        >>> RendezvousSettings(bind="tcp://127.0.0.1:8011").bind_addresses
        ('tcp://127.0.0.1:8011', 'tcp://127.0.0.1:8001')
        """
        endpoint = read_endpoint(self.bind)
        host, _, _ = endpoint.unicast.rpartition(":")
        # What has no port to count down from is heard at a free one: who asks is told.
        free = f"{host}:0" if endpoint.unicast.startswith("tcp:") else f"{endpoint.unicast}.broadcast"
        return endpoint.unicast, endpoint.broadcast or endpoint.by_sample or free

    @property
    def times(self) -> LeaseTimes:
        """The times of the lease."""
        return LeaseTimes(
            max_lease_ticks=int(self.lease_s * TICKS_PER_SECOND),
            clock_drift_ticks=int(self.clock_drift_s * TICKS_PER_SECOND),
            roundtrip_ticks=int(2 * self.response_s * TICKS_PER_SECOND),
            response_timeout_ticks=int(self.response_s * TICKS_PER_SECOND),
        )
