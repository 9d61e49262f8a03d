"""System traffic: what nodes and tools tell each other, told apart from what actors do.

Nodes register with everybody through a rendezvous, byte for byte alike, and a tool that watches asks and waits. Times of
such messages say nothing of the network's work, so graph, latencies, requests and flows leave them out. A failure and a
receipt are of the network by their names alone: they answer an actor's request, belong to its flow, and stay. This file
knows no table.
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

PREFIXES: Final = ("KINO.", "HOPLINE.")
"""How the identities of system traffic begin."""

EXCEPTION: Final = "KINO.EXCEPTION"
"""The answer of a handler that failed."""

RECEIPTS: Final = ("KINO.RCPTCONFIRM", "HOPLINE.HANDLED")
"""The answers of a node that has got what was sent, and of one whose actor has handled it."""

ANSWERS: Final = (EXCEPTION, *RECEIPTS)
"""All that a node itself answers to messages of actors: begins as system traffic does, and is none."""


def is_system(identity: str | None) -> bool:
    """Whether a message type is of nodes or tools.

    >>> [is_system(name) for name in ("KINO.PING", "HOPLINE.WATCH", "ORDER.PLACE", None)]
    [True, True, False, False]
    >>> [is_system(name) for name in ("KINO.EXCEPTION", "KINO.RCPTCONFIRM", "HOPLINE.HANDLED")]
    [False, False, False]
    """
    return identity is not None and identity.startswith(PREFIXES) and identity not in ANSWERS


def are_system(identities: pa.Array) -> pa.Array:
    """The same of many, without a null.

    >>> are_system(pa.array(["KINO.PING", "KINO.EXCEPTION", "KINO.RCPTCONFIRM", None])).to_pylist()
    [True, False, False, False]
    """
    begins = pc.or_(*(pc.starts_with(identities, prefix) for prefix in PREFIXES))
    is_answer = pc.is_in(identities, pa.array(ANSWERS, pa.string()))
    return pc.fill_null(pc.and_(begins, pc.invert(is_answer)), fill_value=False)


def without_system(batch: pa.RecordBatch, identity: str) -> pa.RecordBatch:
    """The rows whose type, in the column of this name, is not of nodes or tools."""
    return batch.filter(pc.invert(are_system(batch[identity])))
