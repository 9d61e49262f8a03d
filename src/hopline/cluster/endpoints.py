"""Where rendezvous are: their addresses, and which of them a node turns to.

A rendezvous is reached at two addresses: nodes send to the unicast one and hear from the broadcast one. Whoever knows only
the first can ask there for the second. This file is pure: it knows no sockets.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from hopline.errors import InputError
from hopline.payload.service import RendezvousNode

MOST_ENDPOINTS: Final = 64
"""Rendezvous of one cluster at most: their list may come from outside."""

SAMPLE_STEP: Final = 10
"""Between the two ports in the reference's sample configuration: 8011 and 8001."""

_BOTH: Final = re.compile(r"(tcp://\S+:)([0-9]{1,5})\+([0-9]{1,5})")
_ONE: Final = re.compile(r"(tcp://\S+:)([0-9]{1,5})")


class Endpoint(NamedTuple):
    """Where a rendezvous takes what nodes send, and where it is heard; the latter is empty if we must ask for it."""

    unicast: str
    broadcast: str = ""

    @classmethod
    def of(cls, node: RendezvousNode) -> "Endpoint | None":
        """The endpoint that a message names; None if it names none."""
        return cls(node.unicast_uri, node.broadcast_uri or "") if node.unicast_uri else None

    @property
    def by_sample(self) -> str:
        """The broadcast address by the rule of the sample configuration; empty if there is none.

        >>> Endpoint("tcp://10.0.0.1:8011").by_sample
        'tcp://10.0.0.1:8001'
        """
        found = _ONE.fullmatch(self.unicast)
        port = int(found[2]) - SAMPLE_STEP if found else 0
        return f"{found[1]}{port}" if found and port > 0 else ""

    @property
    def text(self) -> str:
        """As people write it; without the broadcast address if that is on another host, or no port.

        >>> Endpoint("tcp://10.0.0.1:8011", "tcp://10.0.0.1:8001").text
        'tcp://10.0.0.1:8011+8001'
        """
        host, _, _ = self.unicast.rpartition(":")
        heard, _, port = self.broadcast.rpartition(":")
        return f"{self.unicast}+{port}" if heard == host and _ONE.fullmatch(self.unicast) else self.unicast


def read_endpoint(text: str) -> Endpoint:
    """An endpoint as people write it: the unicast address, and if need be the port of the broadcast one.

    >>> read_endpoint("tcp://10.0.0.1:8011+8001")
    Endpoint(unicast='tcp://10.0.0.1:8011', broadcast='tcp://10.0.0.1:8001')
    >>> read_endpoint("ipc:///tmp/rendezvous")
    Endpoint(unicast='ipc:///tmp/rendezvous', broadcast='')

    Raises InputError if it is none.
    """
    both = _BOTH.fullmatch(text)
    if both:
        return Endpoint(both[1] + both[2], both[1] + both[3])
    if not (_ONE.fullmatch(text) or re.fullmatch(r"(ipc|memory)://\S+", text)):
        raise InputError("INPUT_BAD_CONFIG", f"{text!r} is no rendezvous; write tcp://HOST:PORT or tcp://HOST:PORT+PORT")
    return Endpoint(text)


class Endpoints:
    """The rendezvous of a cluster, and the current one.

    >>> known = Endpoints([Endpoint("tcp://a:1"), Endpoint("tcp://b:1")])
    >>> known.turn(), known.current.unicast
    (True, 'tcp://b:1')
    """

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._all = list(dict.fromkeys(endpoints))[:MOST_ENDPOINTS]
        self._at = 0
        self._names: dict[str, str] = {}  # by which others know those that we know by another

    @property
    def current(self) -> Endpoint:
        """The one to turn to."""
        return self._all[self._at]

    @property
    def all(self) -> tuple[Endpoint, ...]:
        """All of them, in the order they were given."""
        return tuple(self._all)

    def turn(self) -> bool:
        """Go on to the next one; False if there is no other."""
        self._at = (self._at + 1) % len(self._all)
        return len(self._all) > 1

    def turn_to(self, unicast: str) -> bool:
        """Go to a certain one; False if it is none of ours, or the current one."""
        ours = self._names.get(unicast, unicast)
        for place, endpoint in enumerate(self._all):
            if endpoint.unicast == ours and place != self._at:
                self._at = place
                return True
        return False

    def learn(self, endpoint: Endpoint) -> None:
        """The current one said where it is heard, and how it calls itself: that may be another name than ours."""
        self._all[self._at] = self.current._replace(broadcast=endpoint.broadcast)
        self._names = {name: ours for name, ours in self._names.items() if ours != self.current.unicast}
        self._names[endpoint.unicast] = self.current.unicast

    def replace(self, endpoints: Iterable[Endpoint]) -> bool:
        """Others have taken their place; stays with the current one if it is still there. False if nothing changed."""
        new = list(dict.fromkeys(endpoints))[:MOST_ENDPOINTS]
        if not new or set(new) == set(self._all):
            return False
        current = {self.current.unicast} | {name for name, ours in self._names.items() if ours == self.current.unicast}
        self._all = new
        self._at = next((place for place, endpoint in enumerate(new) if endpoint.unicast in current), 0)
        return True
