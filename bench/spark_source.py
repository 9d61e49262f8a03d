"""`python -m bench.spark_source`: Spark reads a capture, against an identity `mapInArrow` over the same frames in Parquet.

Messages are made once, and written twice: as a capture, by a writer as a node has it, and as Parquet with one column
`frames`. Then both are read and thrown away, in turn, and the CPU time of the JVM and of all Python workers together counts.
A ratio is formed inside one round; the median over rounds is held against the target, for every choice of columns.

A job costs some tenths of a second before it reads anything, the yardstick more than the source: with few messages the
ratios are too low.

Each choice of columns is measured once more with a reader that decodes nothing: it hands Spark as many rows which it has
made before. That is what Spark takes to fetch such rows from any source in Python, and no decoder can go below it.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from bench.spark_jobs import HEADER, Job, line, read_only, take_turns, yardstick
from bench.wire import SAMPLE
from hopline.capture.record import Records, frame_lists
from hopline.capture.tables import DEFAULT_COLUMNS
from hopline.capture.writer import CaptureWriter
from hopline.spark.session import spark_session
from hopline.spark.source import CaptureReader, HoplineDataSource
from hopline.wire import FormatName, encode

MESSAGES: Final = 2_000_000
ROUNDS: Final = 5
CORES: Final = 2
BATCH: Final = 4096
"""Messages that are written at once: as many as a busy node does."""
ROW_GROUP: Final = 100_000

KINDS: Final[dict[str, tuple[FormatName, ...]]] = {"v6": ("v6",), "v5": ("v5",), "v5 and v6": ("v5", "v6")}
FLOW: Final = (
    "seen_ns,node_key,tap,direction,identity_key,correlation_key,receiver_key,callback_key,"
    "is_callback,hops,trail,ttl_ms,body_size"
)
"""The columns of a job that follows flows."""

PLAIN_FIELDS: Final = (
    "seen_ns,node_key,tap,format,wire_version,identity_key,version,partition_key,correlation_key,receiver_key,"
    "receiver_node_key,distribution,callback_key,callback_receiver_key,callback_receiver_node_key,trace_options,hops,ttl_ms,"
    "domain,signature,body_size"
)
"""Who saw it and when, and each field of the wire once, but for the two that are lists."""

VARIANTS: Final[dict[str, dict[str, str]]] = {
    "six plain columns": {"columns": "seen_ns,tap,identity_key,correlation_key,hops,ttl_ms"},
    "columns of flows": {"columns": FLOW},
    "fields but lists": {"columns": PLAIN_FIELDS},
    "all fields": {"columns": f"{PLAIN_FIELDS},callback_points,trail"},
    "all columns": {},
    "all but message_uid": {"columns": ",".join(name for name in DEFAULT_COLUMNS if name != "message_uid")},
}
TARGETS: Final = {"v6": 0.95, "v5": 1.5, "v5 and v6": 1.5}

_FLOW_ID: Final = b"00000000-flow-0000-0000-000000000000"
_BODY: Final = b"x" * 200
_SIGNATURE: Final = b"s" * 16
_START_NS: Final = 1_794_787_200_000_000_000


def frames_of(formats: tuple[FormatName, ...], messages: int) -> Iterator[list[list[bytes]]]:
    """Batches of frame lists of messages that differ in what differs in life: flow, body and signature."""
    sample = msgspec.structs.replace(SAMPLE, correlation_id=_FLOW_ID, body=_BODY, signature=_SIGNATURE)
    templates = [encode(sample, format) for format in formats]
    noise = random.Random(len(formats))
    size = len(_BODY) + len(_SIGNATURE)
    made = 0
    while made < messages:
        batch = []
        for number in range(made, min(made + BATCH, messages)):
            new, flow = noise.randbytes(size), noise.randbytes(18).hex().encode()
            template = templates[number % len(templates)]
            batch.append([_own(frame, flow, new) if len(frame) >= len(_SIGNATURE) else frame for frame in template])
        made += len(batch)
        yield batch


def _own(frame: bytes, flow: bytes, new: bytes) -> bytes:
    if frame == _BODY:
        return new[: len(_BODY)]
    return frame.replace(_FLOW_ID, flow).replace(_SIGNATURE, new[len(_BODY) :])


def make(folder: Path, formats: tuple[FormatName, ...], messages: int) -> None:
    """Write messages as a capture and as Parquet."""
    writer = CaptureWriter(str(folder / "capture"), owner=b"N1", compression="lz4")
    writer.start()
    schema = pa.schema([("frames", pa.list_(pa.binary()))])
    held: list[list[bytes]] = []
    made = 0
    with pq.ParquetWriter(folder / "frames.parquet", schema, compression="zstd") as parquet:
        for batch in frames_of(formats, messages):
            rows = range(made, made + len(batch))
            made += len(batch)
            writer.write(
                Records(
                    seen_ns=[_START_NS + 1000 * row for row in rows],
                    seq=[row + 1 for row in rows],
                    mono_ns=[1000 * row for row in rows],
                    tap=["scaleout_in"] * len(batch),
                    frames=batch,
                    node="N1",
                )
            )
            held += batch
            if len(held) >= ROW_GROUP or made == messages:
                parquet.write_table(pa.table([frame_lists(held)], schema=schema))
                held = []
    writer.close()


class PassingSource(HoplineDataSource):
    """The rows of the source without its work; the option `rows` says how many."""

    def __init__(self, options: dict[str, str]) -> None:
        self._rows = int(options.pop("rows"))
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Its name in `format(...)`."""
        return "passing"

    def reader(self, schema: StructType) -> "PassingReader":  # type: ignore[override]
        """A reader of rows like those that a capture begins with."""
        return PassingReader(super().reader(schema), self._rows)


class PassingReader(DataSourceReader):
    """Decodes one batch, and hands it out as often as it takes."""

    def __init__(self, capture: CaptureReader, rows: int) -> None:
        self._capture = capture
        self._rows = rows // CORES

    def partitions(self) -> list[InputPartition]:
        """A share for each core."""
        return [self._capture.partitions()[0]] * CORES

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The same rows again and again."""
        batch = next(self._capture.read(partition))
        for start in range(0, self._rows, len(batch)):
            yield batch.slice(0, self._rows - start)


def jobs(spark: SparkSession, folder: Path, messages: int, target: float) -> tuple[Job, list[Job]]:
    """The yardstick, and the ways to read a capture; each followed by what it takes without decoding."""

    def capture(source: str, options: dict[str, str]) -> Callable[[], DataFrame]:
        return lambda: spark.read.format(source).options(**options).load(str(folder / "capture"))

    ways = []
    for name, options in VARIANTS.items():
        ways.append(Job(name, read_only(capture("hopline", options)), target))
        ways.append(Job(f"{name}, nothing decoded", read_only(capture("passing", options | {"rows": str(messages)}))))
    return yardstick(spark, folder / "frames.parquet"), ways


def main() -> int:
    """Make the messages, run all jobs in turn and print a table; 1 if a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark_source", description=__doc__)
    parser.add_argument("messages", type=int, nargs="?", default=MESSAGES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--kinds", default=",".join(KINDS), help="of formats, with commas between (default: all)")
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    if unknown := set(kinds) - KINDS.keys():
        parser.error(f"no such kind: {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    folder = Path(tempfile.mkdtemp(prefix="hopline-bench-"))
    missed = False
    try:
        for kind in kinds:
            (folder / kind).mkdir()
            make(folder / kind, KINDS[kind], options.messages)
        spark = spark_session(f"local[{CORES}]", conf={"spark.driver.memory": "2g"})
        spark.dataSource.register(PassingSource)
        found = {kind: jobs(spark, folder / kind, options.messages, TARGETS[kind]) for kind in kinds}
        take_turns([job for by, others in found.values() for job in (by, *others)], options.rounds)
        print(f"{options.messages} messages, {options.rounds} interleaved rounds; CPU of the JVM and all Python workers")
        print(f"load average at the end: {os.getloadavg()[0]:.1f}")
        for kind, (by, others) in found.items():
            print("", kind, "", *HEADER, *(line(job, by, options.messages) for job in (by, *others)), sep="\n")
        missed = any(job.is_missed(by) for by, others in found.values() for job in others)
        spark.stop()
    finally:
        shutil.rmtree(folder)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
