"""Domains: who may say what, and in whose name.

A domain is a name with keys. Each message identity (any version, any partition) belongs to exactly one domain, and is signed
with that domain's key. Some identities, or a whole domain, may be sent unsigned by agreement. Messages by which nodes tell
each other about routes are signed in the domain they announce for, so they are at home in every domain.

This file decides; it computes no codes (`mac.py`, `keyring.py`) and reads no files.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from hopline.errors import SecurityError
from hopline.security.mac import Algorithm, Scheme

ROUTING_CONTROL: Final = frozenset(
    b"KINO." + name
    for name in (
        b"REGEXTROUTE",
        b"UNREGMSGROUTE",
        b"UNREGNODE",
        b"REQCLUSTROUTES",
        b"REQNODEROUTES",
        b"DISCOVMSGROUTE",
        b"PING",
    )
)
"""Signed in the domain they announce for, whichever that is."""


@dataclass(frozen=True, slots=True)
class Domain:
    """One security domain. The first key signs, any of them is accepted: that is how keys are changed without a gap.

    `algorithm` None means the scheme's own: md5 for `kino`, sha256 for `full`.

    >>> Domain("orders", keys=(b"secret",), identities=frozenset({b"ORDER.PLACE"})).needs_signature(b"ORDER.PLACE")
    True
    """

    name: str
    keys: tuple[bytes, ...] = field(default=(), repr=False)
    scheme: Scheme = "full"
    algorithm: Algorithm | None = None
    identities: frozenset[bytes] = frozenset()
    unsigned: frozenset[bytes] = frozenset()
    is_unsigned: bool = False

    def __post_init__(self) -> None:
        """Refuse what could not work, at the start and not at the first message."""
        if not self.keys and not self.is_unsigned:
            raise SecurityError("SECURITY_BAD_DOMAIN", f"domain {self.name!r} has no key and is not unsigned")
        if not all(self.keys):
            raise SecurityError("SECURITY_BAD_DOMAIN", f"domain {self.name!r} has an empty key")
        if self.scheme not in ("kino", "full"):
            raise SecurityError("SECURITY_BAD_DOMAIN", f"domain {self.name!r} has the unknown scheme {self.scheme!r}")
        if self.algorithm not in (None, "md5", "sha256"):
            reason = f"domain {self.name!r} has the unknown algorithm {self.algorithm!r}"
            raise SecurityError("SECURITY_BAD_DOMAIN", reason)
        if self.scheme == "full" and self.algorithm == "md5":
            raise SecurityError("SECURITY_BAD_DOMAIN", f"domain {self.name!r}: the scheme full is sha256, not md5")

    def needs_signature(self, identity: bytes) -> bool:
        """Whether a message of this identity must be signed in this domain."""
        return not (self.is_unsigned or identity in self.unsigned)


class Domains:
    """All domains of a node.

    >>> domains = Domains([Domain("orders", keys=(b"secret",), identities=frozenset({b"ORDER.PLACE"}))])
    >>> domains.of(b"ORDER.PLACE").name, domains.may_say("orders", b"OTHER")
    ('orders', False)
    """

    def __init__(self, domains: Iterable[Domain] = ()) -> None:
        self._by_name: dict[str, Domain] = {}
        self._by_identity: dict[bytes, Domain] = {}
        for domain in domains:
            if domain.name in self._by_name:
                raise SecurityError("SECURITY_BAD_DOMAIN", f"domain {domain.name!r} is configured twice")
            self._by_name[domain.name] = domain
            for identity in domain.identities:
                if identity in self._by_identity:
                    names = f"{self._by_identity[identity].name!r} and {domain.name!r}"
                    reason = f"identity {identity!r} is in the domains {names}; it belongs to exactly one"
                    raise SecurityError("SECURITY_BAD_DOMAIN", reason)
                self._by_identity[identity] = domain

    def __iter__(self) -> Iterator[Domain]:
        """Every domain, in the order given."""
        return iter(self._by_name.values())

    def __len__(self) -> int:
        """How many domains there are."""
        return len(self._by_name)

    def named(self, name: str) -> Domain | None:
        """The domain of this name, if it is one of ours."""
        return self._by_name.get(name)

    def of(self, identity: bytes) -> Domain:
        """The domain that an identity belongs to; raises SecurityError if it belongs to none."""
        domain = self._by_identity.get(identity)
        if domain is None:
            raise SecurityError("SECURITY_UNKNOWN_IDENTITY", f"identity {identity!r} belongs to no domain")
        return domain

    def has(self, identity: bytes) -> bool:
        """Whether an identity belongs to one of our domains."""
        return identity in self._by_identity

    def may_say(self, name: str, identity: bytes) -> bool:
        """Whether a message of this identity may come in the name of that domain."""
        domain = self._by_name.get(name)
        if domain is None:
            return False
        return identity in ROUTING_CONTROL or self._by_identity.get(identity) is domain
