"""Signatures over Arrow columns: the verdicts of `Keyring.verify` for many messages at once.

What comes in is a batch of `hopline.wire.columnar.decode_batch` with the columns VERDICT_COLUMNS, and the frames it was
decoded from. What lies under each signature is put together for all messages at once; the codes themselves are computed one
by one, as nothing in Arrow can. The rules stand in `mac.py` and `keyring.py`; the tests hold the two against each other.

A batch does not tell of every v4 message whether it writes its version as text, which `kino` signs as it is written. The few
that leave it open are decoded again, and the keyring judges them.

This file does no I/O and reads no clock. No object here shows a key. It needs numpy and pyarrow.
"""

from collections.abc import Iterable, Iterator
from hmac import compare_digest
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hopline.flow.columnar import (
    UID_COLUMNS,
    _fixed,  # the parts of the fingerprint, which `full` covers too
    _join,
    _prefixed,
    stable_forms,
)
from hopline.security.domains import Domain
from hopline.security.keyring import Keyring, Verdict
from hopline.security.mac import ALGORITHM_BY_SIZE, Algorithm, Mac, Scheme
from hopline.wire import decode
from hopline.wire.v4 import VARIANTS as V4_VARIANTS

_ALWAYS: Final = ("row", "format", "variant", "domain", "signature", "has_extra")
_KINO: Final = ("identity", "version", "version_bytes", "partition", "body", "callback_receiver_identity")
VERDICT_COLUMNS: Final = (*dict.fromkeys((*_ALWAYS, *_KINO, *UID_COLUMNS, "receiver_node_identity")),)
"""What `Judge.verdicts` looks at, if there are domains of both schemes."""

_FULL_LABEL: Final = b"hopline full 1\0"
_FULL_HEAD: Final = 25
_FULL_SIZE: Final = 57
"""The layout of a `full` signature: see `mac.py`."""

_VERDICTS: Final = pa.array([verdict.value for verdict in Verdict])
_PLACES: Final = {verdict: place for place, verdict in enumerate(Verdict)}
"""Verdicts are numbers until the last step: NumPy and Arrow are slow with texts that are Python objects."""

_Rows = NDArray[np.int64]


class Judge:
    """Judges signatures in bulk, with the keys of all domains prepared.

    >>> from hopline.security import Domain, Keyring
    >>> from hopline.wire import Message, encode
    >>> from hopline.wire.columnar import decode_batch
    >>> domains = [Domain("dom", keys=(b"key",), scheme="kino")]
    >>> signed = Keyring(domains).sign(Message(identity=b"HELLO", version=1, domain="dom"))
    >>> frames = pa.array([encode(signed), encode(Message(identity=b"HELLO", version=1))])
    >>> Judge(domains).verdicts(decode_batch(frames).messages, frames).to_pylist()
    ['valid', 'unsigned']
    """

    def __init__(self, domains: Iterable[Domain]) -> None:
        self._domains = {domain.name: domain for domain in domains}
        self._keyring = Keyring(self._domains.values())

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of messages that `verdicts` looks at: fewer, if no domain has the scheme `full`."""
        is_any_full = any(domain.scheme == "full" for domain in self._domains.values())
        return VERDICT_COLUMNS if is_any_full else (*_ALWAYS, *_KINO)

    def verdicts(self, messages: pa.RecordBatch, frames: pa.Array) -> pa.Array:
        """What each signature is worth, as `Keyring.verify` says it.

        Args:
            messages: decoded, with `columns`.
            frames: list<binary>, what they were decoded from: `row` says which is whose.
        """
        found = np.full(len(messages), _PLACES[Verdict.UNKNOWN_DOMAIN])
        is_signed = np.asarray(pc.greater(pc.binary_length(messages["signature"]), 0))
        found[~is_signed] = _PLACES[Verdict.UNSIGNED]
        names = messages["domain"].dictionary_encode()
        codes = np.asarray(names.indices)
        for code, name in enumerate(names.dictionary.to_pylist()):
            domain = self._domains.get(name)
            if domain is not None and domain.keys:
                rows = np.flatnonzero(is_signed & (codes == code))
                are_valid = self._judge(domain, _taken(messages, rows), frames)
                found[rows] = np.where(are_valid, _PLACES[Verdict.VALID], _PLACES[Verdict.INVALID])
        return _VERDICTS.take(pa.array(found))

    def _judge(self, domain: Domain, messages: pa.RecordBatch, frames: pa.Array) -> NDArray[np.bool_]:
        """Whether each of some messages has a valid signature of their one domain."""
        found = np.zeros(len(messages), np.bool_)
        if domain.scheme == "full":
            self._accept(found, _full_work(messages), domain)
            return found
        is_open = pc.and_(pc.equal(messages["format"], "v4"), messages["has_extra"])
        for row in np.flatnonzero(np.asarray(is_open)):
            decoded = decode(frames[messages["row"][int(row)].as_py()].as_py())
            found[row] = self._keyring.verify(decoded) is Verdict.VALID
        clear = np.flatnonzero(~np.asarray(is_open))
        for work in _kino_work(_taken(messages, clear), domain.algorithm):
            self._accept(found, work._replace(rows=clear[work.rows]), domain)
        return found

    @staticmethod
    def _accept(found: NDArray[np.bool_], work: "_Work", domain: Domain) -> None:
        data, codes = work.data.to_pylist(), work.codes.to_pylist()
        are_valid = np.zeros(len(codes), np.bool_)
        # All keys, whatever the first one says: as in the keyring, their number must not show in the time.
        for key in domain.keys:
            computed = Mac(key, work.algorithm).digests(data)
            are_valid |= np.fromiter(map(compare_digest, computed, codes), np.bool_, len(codes))
        found[work.rows] = are_valid

    def __repr__(self) -> str:
        """Show the domains, never a key."""
        return f"Judge({', '.join(self._domains)})"


def schemes(messages: pa.RecordBatch, domains: Iterable[Domain] = ()) -> pa.Array:
    """Which scheme each signature is of: that of its domain, else as it looks; empty if there is none or it is not known.

    >>> from hopline.wire import Message, encode
    >>> from hopline.wire.columnar import decode_batch
    >>> rows = decode_batch(pa.array([encode(Message(signature=bytes(size))) for size in (0, 16, 57)])).messages
    >>> schemes(rows).to_pylist()
    ['', 'kino', '']
    """
    configured: dict[str, Scheme] = {domain.name: domain.scheme for domain in domains}
    names = messages["domain"].dictionary_encode()
    known = pa.array([configured.get(name) for name in names.dictionary.to_pylist()], pa.string()).take(names.indices)
    signature = messages["signature"]
    sizes = pc.binary_length(signature)
    looks_full = pc.and_(pc.equal(sizes, _FULL_SIZE), pc.starts_with(signature, b"\1"))
    looks_kino = pc.is_in(sizes, pa.array(list(ALGORITHM_BY_SIZE), sizes.type))
    guess = pc.if_else(looks_full, "full", pc.if_else(looks_kino, "kino", ""))
    return pc.if_else(pc.equal(sizes, 0), "", pc.coalesce(known, guess))


def _taken(messages: pa.RecordBatch, rows: _Rows) -> pa.RecordBatch:
    """Some rows of messages, in their order. All of them are not copied: bodies may be large."""
    return messages if rows.size == len(messages) else messages.take(pa.array(rows))


class _Work(NamedTuple):
    """Codes to be checked with one algorithm: of which rows, over what, and the codes that they carry."""

    rows: _Rows
    algorithm: Algorithm
    data: pa.Array
    codes: pa.Array


def _kino_work(messages: pa.RecordBatch, algorithm: Algorithm | None) -> Iterator[_Work]:
    """The bytes under `kino` signatures: five fields, one after the other. Without an algorithm the size of a code tells."""
    fields = (messages["identity"], _written_versions(messages), messages["partition"], messages["body"])
    data = _join([*fields, messages["callback_receiver_identity"]])
    codes = messages["signature"]
    if algorithm is not None:
        yield _Work(np.arange(len(messages)), algorithm, data, codes)
        return
    sizes = np.asarray(pc.binary_length(codes))
    signed = pa.RecordBatch.from_arrays([data, codes], names=["data", "codes"])
    for size, its_algorithm in ALGORITHM_BY_SIZE.items():
        rows = np.flatnonzero(sizes == size)
        yield _Work(rows, its_algorithm, *_taken(signed, rows))


def _full_work(messages: pa.RecordBatch) -> _Work:
    """The bytes under those signatures that are `full` ones."""
    signature = messages["signature"]
    looks_full = pc.and_(pc.equal(pc.binary_length(signature), _FULL_SIZE), pc.starts_with(signature, b"\1"))
    rows = np.flatnonzero(np.asarray(looks_full))
    messages = messages.take(pa.array(rows))
    signature = messages["signature"]
    data = _join(
        [
            pa.repeat(pa.scalar(_FULL_LABEL), len(messages)),
            pc.binary_slice(signature, 0, _FULL_HEAD),
            *_prefixed(messages["domain"].cast(pa.binary())),
            *_prefixed(messages["receiver_node_identity"]),
            stable_forms(messages),
        ]
    )
    return _Work(rows, "sha256", data, pc.binary_slice(signature, _FULL_HEAD, _FULL_SIZE))


def _written_versions(messages: pa.RecordBatch) -> pa.Array:
    """Versions as they stand on the wire: a number in two bytes, or text."""
    versions = messages["version"].fill_null(0)
    numbers = _fixed(np.asarray(versions).astype("<u2"))
    text_variants = pa.array([variant for variant, (_, is_text) in V4_VARIANTS.items() if is_text])
    is_text = pc.or_(
        pc.equal(messages["format"], "v3"),
        pc.and_(pc.equal(messages["format"], "v4"), pc.is_in(messages["variant"], text_variants)),
    )
    if not pc.any(is_text, min_count=0).as_py():
        return numbers
    texts = pc.binary_join_element_wise(versions.cast(pa.string()), ".0", "").cast(pa.binary())
    texts = pc.if_else(messages["version"].is_valid(), texts, messages["version_bytes"])
    return pc.if_else(is_text, texts, numbers)
