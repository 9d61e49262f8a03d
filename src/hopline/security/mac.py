"""Message authentication codes: what is covered by a signature, and how it is computed.

Two schemes:

`kino`, for networks with reference nodes. HMAC-MD5 (or SHA-256, if both sides agree) over five fields, one after the
other without lengths:

    Identity, Version as on the wire (2 bytes, or text in old v4), Partition, Body, CallbackReceiverIdentity

Everything else can be changed by who carries the message, and an old message can be sent again. The signature field is the
bare code: 16 or 32 bytes.

`full`, between Hopline nodes. HMAC-SHA-256 by the origin, once, over every field that no hop changes, each with its length,
and over the moment of signing. The signature field is 57 bytes:

    offset  size  field
    0       1     scheme: 1
    1       8     time of signing, int64, nanoseconds since 1970
    9       16    nonce, random
    25      32    HMAC-SHA-256 over
                      "hopline full 1", a zero byte
                      the 25 bytes above
                      Domain, ReceiverNodeIdentity: each an int32 length and the bytes
                      the stable form of the message (`flow/fingerprint.py`)

Formats v3 and v4 drop fields that `full` covers, so it needs v5 or v6. Not covered, because hops change them: socket
identity, hops, trail, TTL, and the receipt callback point.

No object here shows its key. Time and randomness come in as arguments.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from hmac import compare_digest
from struct import Struct
from typing import Final, Literal, NamedTuple

from hopline.flow.fingerprint import length_prefixed, stable_form
from hopline.wire import Message
from hopline.wire.primitives import write_number_version, write_version

try:
    from _md5 import md5  # type: ignore[import-not-found]  # it has no stubs
except ImportError:  # pragma: no cover - a Python that was built without it
    from hashlib import md5

Algorithm = Literal["md5", "sha256"]
Scheme = Literal["kino", "full"]

ALGORITHM_BY_SIZE: Final[dict[int, Algorithm]] = {16: "md5", 32: "sha256"}
"""Nothing on the wire names the algorithm; the size of the code gives it away."""

_HASHES: Final[Mapping[Algorithm, Callable[[bytes], "hashlib._Hash"]]] = {"md5": md5, "sha256": hashlib.sha256}
"""Python's own MD5, where there is one: it copies its state in a third of the time that OpenSSL takes, and a code over some
hundred bytes takes two thirds. Of SHA-256 the one of OpenSSL is the faster by far."""

NONCE_SIZE: Final = 16

_HEADER = Struct("<Bq16s")
_FULL_SCHEME: Final = 1
_TAG_SIZE: Final = 32
_LABEL: Final = b"hopline full 1\0"
_BLOCK: Final = 64
_INNER_PAD: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER_PAD: Final = bytes(byte ^ 0x5C for byte in range(256))


class Mac:
    """HMAC with one key, its two inner states prepared once: a third of the time of a new object per message.

    >>> Mac(b"key", "md5").digest(b"hello").hex()
    '04130747afca4d79e32e87cf2104f087'
    """

    __slots__ = ("_algorithm", "_inner", "_outer")

    def __init__(self, key: bytes, algorithm: Algorithm) -> None:
        self._algorithm = algorithm
        new = _HASHES[algorithm]
        if len(key) > _BLOCK:
            key = new(key).digest()
        key = key.ljust(_BLOCK, b"\0")
        # RFC 2104; MD5 is what reference nodes speak, and HMAC does not rest on its collision resistance.
        self._inner = new(key.translate(_INNER_PAD))
        self._outer = new(key.translate(_OUTER_PAD))

    def digest(self, data: bytes) -> bytes:
        """Compute the code of some bytes."""
        inner = self._inner.copy()
        inner.update(data)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.digest()

    def digests(self, data: Iterable[bytes | memoryview]) -> list[bytes]:
        """Compute the codes of many: without a call for each, a quarter faster.

        >>> mac = Mac(b"key", "md5")
        >>> mac.digests([b"a", b"b"]) == [mac.digest(b"a"), mac.digest(b"b")]
        True
        """
        new_inner, new_outer = self._inner.copy, self._outer.copy
        codes = []
        for each in data:
            inner = new_inner()
            inner.update(each)
            outer = new_outer()
            outer.update(inner.digest())
            codes.append(outer.digest())
        return codes

    def accepts(self, data: bytes, code: bytes) -> bool:
        """Whether `code` is the code of `data`, compared in constant time."""
        return compare_digest(self.digest(data), code)

    def __repr__(self) -> str:
        """Show the algorithm, never the key."""
        return f"Mac({self._algorithm})"


def kino_input(message: Message, *, body: bytes | None = None, text_version: bool = False) -> bytes:
    r"""The bytes under a `kino` signature, with another body than the message's own if one is given.

    >>> kino_input(Message(identity=b"HELLO", version=1, body=b"hi", callback_receiver_identity=b"H1"))
    b'HELLO\x01\x00hiH1'
    """
    version = write_version(message.version) if text_version else write_number_version(message.version)
    body = message.body if body is None else body
    return b"".join((message.identity, version, message.partition, body, message.callback_receiver_identity))


class FullSignature(NamedTuple):
    """What a `full` signature field says: when and with which nonce it was made, and the code."""

    signed_ns: int
    nonce: bytes
    tag: bytes


def full_input(message: Message, signed_ns: int, nonce: bytes) -> bytes:
    """The bytes under a `full` signature."""
    return b"".join(
        (
            _LABEL,
            _HEADER.pack(_FULL_SCHEME, signed_ns, nonce),
            length_prefixed(message.domain.encode()),
            length_prefixed(message.receiver_node_identity),
            stable_form(message),
        )
    )


def write_full(signature: FullSignature) -> bytes:
    """Write a `full` signature field."""
    return _HEADER.pack(_FULL_SCHEME, signature.signed_ns, signature.nonce) + signature.tag


def read_full(raw: bytes) -> FullSignature | None:
    """Read a `full` signature field, or None if it is something else.

    >>> read_full(b"16 bytes of code") is None
    True
    """
    if len(raw) != _HEADER.size + _TAG_SIZE or raw[0] != _FULL_SCHEME:
        return None
    _, signed_ns, nonce = _HEADER.unpack_from(raw)
    return FullSignature(signed_ns, nonce, raw[_HEADER.size :])
