"""The keyring: signs messages and judges signatures, with the keys of all domains prepared.

Judged here is the code alone. Whether an identity may come in that domain's name is for `domains.py`, whether a signature is
fresh for `replay.py`. This file reads no files: `read_keys` takes the text of one.
"""

import tomllib
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final, cast

import msgspec

from hopline.errors import InputError, SecurityError
from hopline.security.domains import Domain
from hopline.security.mac import (
    ALGORITHM_BY_SIZE,
    NONCE_SIZE,
    Algorithm,
    FullSignature,
    Mac,
    Scheme,
    full_input,
    kino_input,
    read_full,
    write_full,
)
from hopline.wire import Decoded, Message, writes_text_version


class Verdict(StrEnum):
    """What a signature is worth."""

    VALID = "valid"
    INVALID = "invalid"
    UNSIGNED = "unsigned"
    UNKNOWN_DOMAIN = "unknown-domain"


class Keyring:
    """The keys of all domains, ready to use.

    >>> from hopline.security import Domain, Keyring
    >>> from hopline.wire import Message, decode, encode
    >>> keyring = Keyring([Domain("dom", keys=(b"key",), scheme="kino")])
    >>> message = keyring.sign(Message(identity=b"HELLO", version=1, domain="dom"))
    >>> keyring.verify(decode(encode(message))).value
    'valid'
    """

    def __init__(self, domains: Iterable[Domain] = ()) -> None:
        self._domains: dict[str, Domain] = {domain.name: domain for domain in domains}
        self._macs: dict[tuple[str, Algorithm], tuple[Mac, ...]] = {}

    def sign(self, message: Message, *, now_ns: int = 0, nonce: bytes = b"", text_version: bool = False) -> Message:
        """Sign a message in the domain it names: see `signature`."""
        signature = self.signature(message, now_ns=now_ns, nonce=nonce, text_version=text_version)
        return msgspec.structs.replace(message, signature=signature)

    def signature(
        self,
        message: Message,
        *,
        domain: str | None = None,
        body: bytes | None = None,
        now_ns: int = 0,
        nonce: bytes = b"",
        text_version: bool = False,
    ) -> bytes:
        """The signature of a message with its domain's first key; another domain or body than its own may be given.

        `now_ns` and `nonce` (16 random bytes, new for each message) are needed by the scheme `full`; `text_version` by
        `kino` for old v4 peers, whose versions are text on the wire.
        """
        name = message.domain if domain is None else domain
        found = self._domains.get(name)
        if found is None or not found.keys:
            raise SecurityError("SECURITY_UNKNOWN_DOMAIN", f"no key to sign in the domain {name!r}")
        if found.scheme == "kino":
            mac = self._prepared(found, found.algorithm or "md5")[0]
            return mac.digest(kino_input(message, body=body, text_version=text_version))
        if len(nonce) != NONCE_SIZE or now_ns <= 0:
            raise ValueError(f"the scheme full needs the time and a nonce of {NONCE_SIZE} bytes")
        mac = self._prepared(found, "sha256")[0]
        signed = msgspec.structs.replace(message, domain=name, body=message.body if body is None else body)
        return write_full(FullSignature(now_ns, nonce, mac.digest(full_input(signed, now_ns, nonce))))

    def verify(self, decoded: Decoded, *, scheme: Scheme | None = None, algorithm: Algorithm | None = None) -> Verdict:
        """Judge the signature of a message by the keys, not by age or right. Options overrule those of the domain."""
        message = decoded.message
        signature = message.signature
        if not signature:
            return Verdict.UNSIGNED
        domain = self._domains.get(message.domain)
        if domain is None or not domain.keys:
            return Verdict.UNKNOWN_DOMAIN
        if (scheme or domain.scheme) == "full":
            full = read_full(signature)
            if full is None:
                return Verdict.INVALID
            data, code, algorithm = full_input(message, full.signed_ns, full.nonce), full.tag, "sha256"
        else:
            algorithm = algorithm or domain.algorithm or ALGORITHM_BY_SIZE.get(len(signature))
            if algorithm is None:
                return Verdict.INVALID
            data, code = kino_input(message, text_version=writes_text_version(decoded)), signature
        # No early exit: how many keys were tried must not show in the time it takes.
        good = [mac.accepts(data, code) for mac in self._prepared(domain, algorithm)]
        return Verdict.VALID if any(good) else Verdict.INVALID

    def _prepared(self, domain: Domain, algorithm: Algorithm) -> tuple[Mac, ...]:
        macs = self._macs.get((domain.name, algorithm))
        if macs is None:
            macs = self._macs[domain.name, algorithm] = tuple(Mac(key, algorithm) for key in domain.keys)
        return macs


DOMAIN_SETTINGS: Final = ("keys", "scheme", "algorithm", "identities", "unsigned")
"""What the table of a domain may hold."""


def read_keys(text: str) -> list[Domain]:
    r"""Read the domains of a key file (TOML); raises InputError that names the domain, never a key.

    >>> [domain.name for domain in read_keys('[domains.orders]\nkeys = ["6b6579"]')]
    ['orders']
    """
    try:
        tables = tomllib.loads(text).get("domains")
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError("INPUT_BAD_KEY", f"the key file is not TOML: {error}") from None
    if not isinstance(tables, dict):
        raise InputError("INPUT_BAD_KEY", "the key file has no table [domains.NAME]")
    return [_read_domain(name, table) for name, table in tables.items()]


def _read_domain(name: str, table: object) -> Domain:
    if not isinstance(table, dict):
        raise InputError("INPUT_BAD_KEY", f"domain {name!r} is not a table")
    if unknown := table.keys() - set(DOMAIN_SETTINGS):
        # Their names are not shown: one of them may be a key in the wrong place.
        raise InputError(
            "INPUT_BAD_KEY", f"domain {name!r} has {len(unknown)} unknown settings; known are {', '.join(DOMAIN_SETTINGS)}"
        )
    unsigned = table.get("unsigned", False)
    return Domain(
        name,
        keys=tuple(read_key(name, key) for key in _texts(name, table, "keys")),
        scheme=cast(Scheme, table.get("scheme", "full")),
        algorithm=cast("Algorithm | None", table.get("algorithm")),
        identities=frozenset(identity.encode() for identity in _texts(name, table, "identities")),
        unsigned=frozenset(i.encode() for i in _texts(name, table, "unsigned"))
        if unsigned not in (True, False)
        else frozenset(),
        is_unsigned=unsigned is True,
    )


def _texts(name: str, table: dict[str, Any], setting: str) -> list[str]:
    values = table.get(setting, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise InputError("INPUT_BAD_KEY", f"domain {name!r}: {setting} must be a list of texts")
    return values


def read_key(name: str, text: str) -> bytes:
    """Read a key in hex; the error names the domain, never the key."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise InputError("INPUT_BAD_KEY", f"a key of domain {name!r} is not hexadecimal") from None
