"""The table `signatures`: what the signatures of an hour, a domain and a node are worth, and what they covered.

Theory of operation. A signature is judged from the bytes, so this works on records - frames, as the capture holds them - and
not on `messages`, which keep printable names. The work is done in Python workers, batch by batch and in bulk
(`hopline.security.columnar`), and next to nothing comes back: one row for all sightings of a batch that agree in hour, node,
domain, verdict and scheme. Rows of their own have what must be known one by one: an invalid signature (its flow),
and a valid one of the scheme `full` that came from outside (its nonce, as the same one twice at a node is a replay).

    unsigned          there is no signature
    unchecked         there is one, and no keys were given; or the capture did not keep the body, which is covered
    unknown-domain    the domain that it names has no key
    valid, invalid    as the keyring says; not by age or right
    replayed          valid, and this node has got the same signature before. The scheme `kino` has nothing to tell by

Keys travel to the workers inside the pickled function. They are in no plan, log or page: those show the function's name.
It is handed to Spark `with keys_unlogged()`, as Python's end of the way to the JVM logs all that it sends, if asked to.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.window import Window

from hopline.capture.messages import keys_of
from hopline.security import Domain
from hopline.security.columnar import Judge, schemes
from hopline.spark.hops import timestamp_of
from hopline.spark.nodes import CAME
from hopline.spark.tables import SIGNATURES, conform
from hopline.wire.columnar import decode_batch

RECORD_COLUMNS: Final = ("event_id", "seen_ns", "node", "tap", "encoded", "body_kept", "frames")
"""What is needed of records: columns of `hopline.capture.record`, and the event id."""

COVERED: Final = {
    "kino": ("identity", "version", "partition", "body", "callback_receiver"),
    "full": (
        "identity",
        "version",
        "partition",
        "body",
        "correlation_id",
        "receiver",
        "receiver_node",
        "distribution",
        "trace_options",
        "callback_points",
        "callback_key",
        "callback_receiver",
        "callback_receiver_node",
        "domain",
    ),
}
"""The fields under a signature of each scheme. Of callback points `full` leaves out the receipt, which a hop takes away."""

FIELDS: Final = (*COVERED["full"], "ttl", "hops", "trail", "socket_identity")
"""All fields of a message but the signature itself."""

VERDICTS: Final = pa.schema(
    [
        ("hour_ns", pa.int64()),
        ("node_key", pa.string()),
        ("domain", pa.string()),
        ("status", pa.string()),
        ("scheme", pa.string()),
        ("correlation_key", pa.string()),
        ("nonce", pa.binary()),
        ("messages", pa.int64()),
        ("first_ns", pa.int64()),
        ("first_event_id", pa.string()),
        ("last_ns", pa.int64()),
        ("last_event_id", pa.string()),
    ]
)
"""Verdicts, each of one or more sightings. `correlation_key` and `nonce` are there only for those that stand alone."""

_NS_PER_HOUR: Final = 3_600_000_000_000
_FIRST_NS: Final = -(2**63)
_FIRST_HOUR_NS: Final = -(2**63 // _NS_PER_HOUR) * _NS_PER_HOUR
"""The first time that there is, and the first hour that begins after it: the one before has no beginning in 64 bits."""

_NONCE: Final = slice(1, 25)
"""Time and nonce of a `full` signature: what makes it one of its kind."""


def judge(records: DataFrame, domains: Iterable[Domain] | None = None) -> DataFrame:
    """Judge the signatures of records: rows of VERDICTS.

    They cost far more to make than to keep: whoever looks at them twice should persist them.

    Args:
        records: with RECORD_COLUMNS.
        domains: the keys; without them nothing can be checked.
    """
    known = None if domains is None else tuple(domains)

    def judge_records(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return judge_batches(batches, known)

    with keys_unlogged():
        return records.select(*RECORD_COLUMNS).mapInArrow(judge_records, _spark_schema())


@contextmanager
def keys_unlogged() -> Iterator[None]:
    """Have nothing logged of what goes to the JVM meanwhile: a function that is handed to Spark here holds keys."""
    # By name, as the level of one may be set apart from that of `py4j`; and one thread at a time, as it is of all of them.
    with _unlogged:
        before = {name: logging.getLogger(name).level for name in _SENDERS}
        try:
            for name in _SENDERS:
                logging.getLogger(name).setLevel(max(logging.getLogger(name).getEffectiveLevel(), logging.INFO))
            yield
        finally:
            for name, level in before.items():
                logging.getLogger(name).setLevel(level)


_unlogged: Final = Lock()
_SENDERS: Final = ("py4j.clientserver", "py4j.java_gateway")
"""Who logs each command at the level DEBUG."""


def signatures(verdicts: DataFrame) -> DataFrame:
    """The table `signatures`, of verdicts."""
    rows = _with_replays(verdicts)
    keys = ("hour_ns", "domain", "node_key", "status", "scheme")
    first, last = sf.struct("first_ns", "first_event_id"), sf.struct("last_ns", "last_event_id")
    found = rows.groupBy(*keys).agg(
        sf.sum("messages").alias("messages"),
        sf.array_distinct(sf.array(sf.min(first)["first_event_id"], sf.max(last)["last_event_id"])).alias("exemplars"),
    )
    hour = sf.date_trunc("hour", timestamp_of(sf.col("hour_ns")))
    found = found.withColumns({"hour": hour, "covered": _names(COVERED)})
    uncovered = sf.array_except(sf.array(*map(sf.lit, FIELDS)), sf.col("covered"))
    return conform(found.withColumns({"uncovered": uncovered, "date": sf.col("hour").cast("date")}), SIGNATURES)


def _with_replays(verdicts: DataFrame) -> DataFrame:
    """What has come to a node before is replayed; of equal ones the first is not."""
    # What has no nonce is a partition by itself, so that none of them gets large.
    which = sf.coalesce("nonce", sf.col("first_event_id").cast("binary"))
    order = Window.partitionBy("node_key", which).orderBy("first_ns", "first_event_id")
    is_replayed = sf.col("nonce").isNotNull() & (sf.row_number().over(order) > 1)
    return verdicts.withColumn("status", sf.when(is_replayed, "replayed").otherwise(sf.col("status")))


def _names(by_scheme: dict[str, tuple[str, ...]]) -> Column:
    names = sf.array().cast("array<string>")
    for scheme, fields in by_scheme.items():
        names = sf.when(sf.col("scheme") == scheme, sf.array(*map(sf.lit, fields))).otherwise(names)
    return names


def _spark_schema() -> str:
    kinds = {pa.int64(): "bigint", pa.string(): "string", pa.binary(): "binary"}
    return ", ".join(f"{field.name} {kinds[field.type]}" for field in VERDICTS)


# --- in the workers ---------------------------------------------------------------------------------------------------


def judge_batches(batches: Iterable[pa.RecordBatch], domains: tuple[Domain, ...] | None) -> Iterator[pa.RecordBatch]:
    """Judge batches of records with RECORD_COLUMNS; for Python workers, and for readers of captures."""
    bench = None if domains is None else Judge(domains)
    for batch in batches:
        records = pa.RecordBatch.from_arrays([batch.column(name) for name in RECORD_COLUMNS], names=list(RECORD_COLUMNS))
        if records["encoded"].true_count < len(records):  # else there is nothing to leave out, and nothing to copy
            records = records.filter(records["encoded"])
        if len(records):
            yield _judged(records, bench, domains or ())


def _judged(records: pa.RecordBatch, bench: Judge | None, domains: tuple[Domain, ...]) -> pa.RecordBatch:
    looked_at = {"correlation_id", *(("row", "domain", "signature") if bench is None else bench.columns)}
    messages = decode_batch(records, columns=sorted(looked_at)).messages
    status = _statuses(messages, records, bench)
    if len(messages) < len(records):  # some are no messages
        records = records.take(messages["row"])
    scheme = schemes(messages, domains)
    seen_ns, tap = records["seen_ns"], records["tap"]
    may_repeat = pc.and_(pc.equal(status, "valid"), pc.and_(pc.equal(scheme, "full"), pc.is_in(tap, pa.array(CAME))))
    stands_alone = pc.equal(status, "invalid")
    keys: dict[str, pa.Array] = {
        "hour_ns": _hours(seen_ns),
        "node_key": records["node"],
        "domain": messages["domain"],
        "status": status,
        "scheme": scheme,
    }
    group = _numbers(keys.values(), pc.or_(stands_alone, may_repeat))
    rows = _in_time(records)
    grouped = pa.table({"group": group.take(rows), "row": rows}).group_by("group", use_threads=False)
    found = grouped.aggregate([("row", "count"), ("row", "first"), ("row", "last")])
    first, last = found["row_first"].combine_chunks(), found["row_last"].combine_chunks()
    flows = keys_of(messages["correlation_id"].take(first))
    nonces = pc.binary_slice(messages["signature"].take(first), _NONCE.start, _NONCE.stop)
    verdicts = pa.RecordBatch.from_arrays(
        [
            *(key.take(first) for key in keys.values()),
            pc.if_else(stands_alone.take(first), flows, None),
            pc.if_else(may_repeat.take(first), nonces, None),
            found["row_count"].combine_chunks(),
            seen_ns.take(first),
            records["event_id"].take(first),
            seen_ns.take(last),
            records["event_id"].take(last),
        ],
        names=VERDICTS.names,
    )
    return verdicts.cast(VERDICTS)


def _hours(seen_ns: pa.Array) -> pa.Array:
    """The hours in which something was seen, each by its beginning; of the first one, by the beginning of time."""
    seen = np.asarray(seen_ns)
    return pa.array(np.where(seen < _FIRST_HOUR_NS, _FIRST_NS, seen // _NS_PER_HOUR * _NS_PER_HOUR))


def _numbers(keys: Iterable[pa.Array], is_alone: pa.Array) -> pa.Array:
    """A number for each row: the same if all keys are the same and neither stands alone. Arrow compares one key faster."""
    numbers = np.zeros(len(is_alone), np.int64)
    for key in keys:
        found = key.dictionary_encode("encode")
        numbers = numbers * len(found.dictionary) + np.asarray(found.indices)
    alone = np.asarray(is_alone)
    numbers[alone] = -1 - np.flatnonzero(alone)
    return pa.array(numbers)


def _in_time(records: pa.RecordBatch) -> pa.Array:
    """The rows in the order in which they were seen."""
    if (np.diff(np.asarray(records["seen_ns"])) > 0).all():
        return pa.array(np.arange(len(records)))
    return pc.sort_indices(records.select(["seen_ns", "event_id"]), [("seen_ns", "ascending"), ("event_id", "ascending")])


def _statuses(messages: pa.RecordBatch, records: pa.RecordBatch, bench: Judge | None) -> pa.Array:
    if bench is None:
        is_signed = pc.greater(pc.binary_length(messages["signature"]), 0)
        return pc.if_else(is_signed, "unchecked", "unsigned")
    verdicts = bench.verdicts(messages, records["frames"])
    is_whole = pc.equal(records["body_kept"].take(messages["row"]), "whole")
    was_checked = pc.is_in(verdicts, pa.array(["valid", "invalid"]))
    return pc.if_else(pc.and_(was_checked, pc.invert(is_whole)), "unchecked", verdicts)
