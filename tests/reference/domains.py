"""Who may say what in a reference network: no security at all, or domains that share a key (protocol.md 4).

Written from the protocol alone, with Python's own HMAC: it must not know `hopline.security`, which is what it tests.
"""

import hashlib
import hmac
import uuid
from collections.abc import Collection, Mapping

import msgspec

from hopline.wire import Message


class NotAllowedError(Exception):
    """What a reference node calls a security exception."""


class NullDomains:
    """The null provider: one domain without a name, everything is allowed, nothing is signed."""

    names: tuple[str, ...] = ("",)

    def domain_of(self, identity: bytes) -> str:
        return ""

    def is_allowed(self, domain: str) -> bool:
        return True

    def has(self, identity: bytes, domain: str) -> bool:
        return True

    def sign(self, message: Message) -> Message:
        return message

    def check(self, message: Message) -> None:
        pass


class KeyedDomains(NullDomains):
    """Domains with an HMAC-MD5 key each; every identity belongs to exactly one.

    `random` makes the two of the captures: one for the application, one for the network's own operational messages.
    """

    def __init__(self, keys: Mapping[str, bytes], identities: Mapping[str, Collection[bytes]]) -> None:
        self.keys, self.identities = dict(keys), {name: frozenset(known) for name, known in identities.items()}
        self.names = tuple(keys)

    @classmethod
    def random(cls, application: Collection[bytes]) -> "KeyedDomains":
        app, own = f"app-{uuid.uuid4()}", f"kino-{uuid.uuid4()}"
        service = (b"KINO.EXCEPTION", b"KINO.RCPTCONFIRM", b"KINO.PING")
        return cls({app: uuid.uuid4().bytes, own: uuid.uuid4().bytes}, {app: application, own: service})

    def domain_of(self, identity: bytes) -> str:
        for name, known in self.identities.items():
            if identity in known:
                return name
        raise NotAllowedError(f"{identity!r} is in no domain: message not supported")

    def is_allowed(self, domain: str) -> bool:
        return domain in self.keys

    def has(self, identity: bytes, domain: str) -> bool:
        return identity in self.identities.get(domain, ())

    def sign(self, message: Message) -> Message:
        return msgspec.structs.replace(message, signature=self._mac(message))

    def check(self, message: Message) -> None:
        if message.signature != self._mac(message):
            raise NotAllowedError("the signature is wrong")

    def _mac(self, message: Message) -> bytes:
        if message.domain not in self.keys:
            raise NotAllowedError(f"domain {message.domain!r} is not allowed")
        parts = (
            message.identity,
            int(message.version).to_bytes(2, "little"),
            message.partition,
            message.body,
            message.callback_receiver_identity,
        )
        return hmac.new(self.keys[message.domain], b"".join(parts), hashlib.md5).digest()
