"""The guard of a node: signs what leaves, and says why what comes in may not.

Domains say who may say what, the keyring computes, the replay window remembers; here they are put together in the order a
node needs them. This file knows no routes and no sockets; without domains a node has no guard.
"""

from typing import Final, NamedTuple

from hopline.identity import EXCEPTION, RECEIPT, MessageType
from hopline.node.clock import Clock
from hopline.node.ids import Ids
from hopline.security import Domains, Keyring, ReplayWindow, Verdict, read_full
from hopline.wire import Decoded, Message

HANDLED: Final = MessageType(b"HOPLINE.HANDLED", 1)
"""The callback point of a sender who wants to know that its message was handled, not only that it arrived."""

MOST_RIGHTS: Final = 4096
"""Pairs of domain and identity whose rights are remembered; both come from outside."""

_IN_ANY_DOMAIN: Final = frozenset({EXCEPTION.identity, RECEIPT.identity, HANDLED.identity})
"""What a node says itself about a message; in the name of that message's domain, unless configured otherwise."""


class _Rights(NamedTuple):
    """Why an identity may not come in the name of a domain, or None; whether it must be signed, and with which scheme."""

    fault: str | None
    signs: bool = False
    is_full: bool = False


class Guard:
    """Signs and checks for one node."""

    def __init__(self, domains: Domains, clock: Clock, ids: Ids) -> None:
        self._domains = domains
        self._clock = clock
        self._ids = ids
        self._keyring = Keyring(domains)
        self._replays = ReplayWindow()
        self._rights: dict[tuple[str, bytes], _Rights] = {}

    def domain_for(self, message: Message) -> str:
        """The domain that a message leaves in; raises SecurityError if its identity belongs to none."""
        if message.domain and message.identity in _IN_ANY_DOMAIN and not self._domains.has(message.identity):
            return message.domain
        return self._domains.of(message.identity).name

    def signature(self, message: Message, domain: str, body: bytes, *, text_version: bool = False) -> bytes:
        """The signature of a message that leaves in a domain with some body; empty if it needs none there."""
        rights = self._rights_of(domain, message.identity)
        if not rights.signs:
            return b""
        if not rights.is_full:
            return self._keyring.signature(message, domain=domain, body=body, text_version=text_version)
        now_ns, nonce = self._clock.wall_ns(), self._ids.random()
        return self._keyring.signature(message, domain=domain, body=body, now_ns=now_ns, nonce=nonce)

    def fault(self, decoded: Decoded) -> str | None:
        """Why a message from outside may not come in, or None if it may."""
        message = decoded.message
        rights = self._rights_of(message.domain, message.identity)
        if rights.fault or not rights.signs:
            return rights.fault
        verdict = self._keyring.verify(decoded)
        if verdict is not Verdict.VALID:
            return f"the signature is {verdict.value}"
        if rights.is_full:
            full = read_full(message.signature)
            # A relayed message is seen once at each node; the same one twice at one node is a repeat.
            if full is None or not self._replays.admit(full, self._clock.wall_ns()):
                return "the signature is too old, too new, or was seen before"
        return None

    def _rights_of(self, name: str, identity: bytes) -> _Rights:
        """What may be said in the name of a domain. Asked for every message, and the answer does not change."""
        rights = self._rights.get((name, identity))
        if rights is None:
            if len(self._rights) >= MOST_RIGHTS:
                self._rights.clear()
            rights = self._rights[name, identity] = self._judge(name, identity)
        return rights

    def _judge(self, name: str, identity: bytes) -> _Rights:
        domain = self._domains.named(name)
        if domain is None:
            return _Rights(f"the domain {name!r} is not one of ours")
        if not (self._domains.may_say(name, identity) or identity in _IN_ANY_DOMAIN):
            return _Rights(f"identity {identity!r} may not come in the name of domain {name!r}")
        return _Rights(None, domain.needs_signature(identity), domain.scheme == "full")
