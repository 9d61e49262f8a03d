"""Repeated: which messages have passed a place more than once, found by Python workers in the parts that hold them.

Theory. Almost every message passes a place - node, tap, hop and peer, as `messages.py` has it - once, and to find out that
it does, all of them have to be compared. For that a passage is a number, made of the fingerprint and the place, and is put
in order with all others. Spark would make rows of them, move these and add them up: that took 1.7 us a message, and this
0.2 to 0.3, in different sessions.

    sift       a part -> its passages, in order
    stretch    of these, the ones in one of several stretches of the numbers
    repeated   passages -> fingerprints of those that occur twice

Where there are few passages, all of them are compared at once. Else each part is sifted by itself and kept, and then each
stretch is compared by itself, of all parts: so never more than some are held, however many there are.

A fingerprint stands for all messages that begin with the same 8 bytes, and two passages may have the same number by chance:
whoever asks gets a few too many, and never too few. This file runs on the executors; it starts no job.
"""

from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hopline.spark.nodes import AWAY, CAME

AT_ONCE: Final = 1024 * 1024
"""Passages that are compared at once: some 50 MB with all that is made of them."""

UID_BYTES: Final = 8
"""How much of a fingerprint is told."""

_PLACE: Final = ("node_key", "hops", "tap", "peer_key", "distribution", "origin_key")
_BATCH_ROWS: Final = 64 * 1024
_MOST_CODES: Final = 1 << 62

Passages = NDArray[np.uint64]
"""Two rows: the numbers of passages, and the beginning of the fingerprint of each."""


def sift(path: str) -> Passages:
    """The passages of a part, in order.

    Those whose message was thought to be a repeated one stand there twice, and none more often: a stranger who sends the
    same again and again must not fill the memory of who compares them.
    """
    found = [np.empty((2, 0), np.uint64)]
    with pq.ParquetFile(path, read_dictionary=[name for name in _PLACE if name != "hops"]) as file:
        columns = ["message_uid", "occurrence", *_PLACE]
        found += [_passages(batch) for batch in file.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False)]
    passages = _in_order(np.concatenate(found, axis=1))
    is_kept = np.ones(passages.shape[1], np.bool_)
    is_kept[2:] = passages[0][2:] != passages[0][:-2]
    return passages[:, is_kept]


def _in_order(passages: Passages) -> Passages:
    return passages[:, np.argsort(passages[0])]


def keep(passages: Passages, folder: str) -> str:
    """Keep passages in a file with a name that nobody else uses, which is told when it is whole."""
    path = Path(folder, f"{uuid4().hex}.npy")
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, passages)
    return str(path)


def stretch(path: str, number: int, count: int) -> Passages:
    """One of `count` stretches of the numbers, of what was kept."""
    passages: Passages = np.load(path, mmap_mode="r")
    bounds = [(1 << 64) * each // count for each in (number, number + 1)]
    first, last = (
        np.searchsorted(passages[0], np.uint64(bound)) if bound < 1 << 64 else passages.shape[1] for bound in bounds
    )
    return passages[:, first:last]


def repeated(parts: Iterable[Passages]) -> pa.Array:
    """Of the fingerprints that have passed a place twice, in any of the parts, how they begin."""
    passages = _in_order(np.concatenate([np.empty((2, 0), np.uint64), *parts], axis=1))
    uids = np.unique(passages[1][1:][passages[0][1:] == passages[0][:-1]])
    return pa.array([uid.tobytes() for uid in uids], pa.binary())


def _passages(batch: pa.RecordBatch) -> Passages:
    uids = _beginnings(batch["message_uid"])
    passages = np.stack([uids ^ _places(batch), uids])
    return np.concatenate([passages, passages[:, np.asarray(batch["occurrence"]) > 0]], axis=1)


def _beginnings(uids: pa.Array) -> NDArray[np.uint64]:
    """The first bytes of fingerprints: they are all of one size, so that these lie at equal distances."""
    whole = uids.cast(pa.binary(2 * UID_BYTES))
    return np.frombuffer(whole.buffers()[1], np.uint64)[2 * whole.offset :: 2][: len(whole)]


def _places(batch: pa.RecordBatch) -> NDArray[np.uint64]:
    """The places of rows, as numbers. There are few of them, and each is looked at once."""
    codes, size = np.zeros(len(batch), np.int64), 1
    coded = [_coded(batch[name]) for name in _PLACE]
    for column in coded:
        size *= len(column.dictionary)
        if size > _MOST_CODES:  # as many names as rows, in several columns: who sends that means no good
            codes = np.unique(codes, return_inverse=True)[1]
            size = len(batch) * len(column.dictionary)
        codes = codes * len(column.dictionary) + np.asarray(column.indices)
    _, first, where = np.unique(codes, return_index=True, return_inverse=True)
    known = zip(*(column.take(pa.array(first)).to_pylist() for column in coded), strict=True)
    return np.array(list(map(_place, known)), np.uint64)[where]


def _coded(values: pa.Array) -> pa.DictionaryArray:
    """Values by their numbers; nothing counts as one of them."""
    plain = values.dictionary_decode() if pa.types.is_dictionary(values.type) and values.null_count else values
    return plain if pa.types.is_dictionary(plain.type) else plain.dictionary_encode("encode")


def _place(of: tuple[object, ...]) -> int:
    """As in `messages.py`: all that a broadcast passes inside a node is one place, unless its trail says who sent it."""
    node, hops, tap, peer, distribution, origin = of
    if distribution != "broadcast" or tap in AWAY:
        name: tuple[object, ...] = (node, hops, tap, peer or "")
    elif tap in CAME and hops == 1 and origin is not None:
        name = (node, hops, tap, origin)
    else:
        name = (node, hops)
    return int.from_bytes(blake2b(repr(name).encode(), digest_size=8).digest(), "little")
