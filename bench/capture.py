"""`python -m bench.capture`: what it costs to write and to read a capture, by compression, and what a tap costs the node.

Messages are v6 as in life: signed, with two hops and two callback points, some 500 bytes, of which the body's are random,
so that they do not compress better than real ones. The writer is fed directly, in batches of a tap's size; reading gives
records with their frames, undecoded. CPU time, the system's included.
"""

import argparse
import random
import sys
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import msgspec

from bench.__main__ import machine
from bench.timing import Case, measure
from bench.wire import KINO, SAMPLE
from hopline.capture.record import Records
from hopline.capture.store import open_capture
from hopline.capture.stream import Compression
from hopline.capture.tap import CaptureTap
from hopline.capture.writer import CaptureWriter, Limits
from hopline.wire import Message, encode

BATCH = 2048
BATCHES = 8
WRITE_US, READ_US = 1e6 / 150_000, 1.0
"""Targets: 150 000 messages a second written by a core, a million read."""


def sightings() -> list[tuple[Message, list[bytes]]]:
    """Messages that differ in what differs in life."""
    chance = random.Random(1)
    found = []
    for i in range(BATCH * BATCHES):
        correlation_id = b"%08x-9418-426c-83e1-%012x" % (chance.getrandbits(32), chance.getrandbits(48))
        body = b'{"order":%d,"who":"somebody","key":"%s"}' % (i, chance.randbytes(24).hex().encode())
        message = KINO.sign(msgspec.structs.replace(SAMPLE, callback_key=i, correlation_id=correlation_id, body=body))
        found.append((message, encode(message)))
    return found


def write(writer: CaptureWriter, seqs: "count[int]", batches: list[list[list[bytes]]]) -> None:
    """Write all messages once."""
    taps = ("scaleout_in", "scaleout_out") * (BATCH // 2)
    for frames in batches:
        first = next(seqs) * BATCH
        numbers = range(first, first + BATCH)
        writer.write(Records(seen_ns=numbers, mono_ns=numbers, seq=numbers, tap=taps, frames=frames, node="node-1"))


def read(path: str, columns: list[str] | None) -> None:
    """Read a capture."""
    for _ in open_capture(path).batches(columns=columns):
        pass


def see(path: str, seen: list[tuple[Message, list[bytes]]], *, is_local: bool, is_started: bool) -> None:
    """Show all messages to a tap: with its thread, or without it, which is what it costs on the event loop."""
    tap = CaptureTap(path, owner=b"N1", limits=Limits(keep_bytes=0))
    if is_started:
        tap.start()
    for message, frames in seen:
        tap.on_message("hub_out", message, None if is_local else frames, None)
    if is_started:
        tap.close()


def cases(folder: Path) -> list[Case]:
    """All cases of a capture."""
    seen = sightings()
    batches = [[frames for _, frames in seen[start : start + BATCH]] for start in range(0, len(seen), BATCH)]
    found = []
    for compression in get_args(Compression):
        limits = Limits(keep_bytes=128 * 1024 * 1024)
        writer = CaptureWriter(str(folder / f"write-{compression}"), owner=b"N1", compression=compression, limits=limits)
        writer.start()
        target = WRITE_US if compression == "zstd" else None
        found.append(Case("write", compression, partial(write, writer, count(), batches), len(seen), target_us=target))
    for compression in get_args(Compression):
        path = folder / f"read-{compression}"
        writer = CaptureWriter(str(path), owner=b"N1", compression=compression)
        writer.start()
        write(writer, count(), batches)
        size = writer.close().size
        target = READ_US if compression == "zstd" else None
        name = f"{compression}, {size / len(seen):.0f} bytes a message"
        found.append(Case("read", name, partial(read, str(path), None), len(seen), target_us=target))
        if compression == "zstd":
            some = partial(read, str(path), ["tap", "seq"])
            found.append(Case("read", "zstd, two small columns", some, len(seen)))
    for is_local, name in ((False, "frames"), (True, "never encoded")):
        for is_started, where in ((False, "on the event loop"), (True, "and in the thread")):
            shown = partial(see, str(folder / "tap"), seen, is_local=is_local, is_started=is_started)
            found.append(Case("tap", f"{name}, {where}", shown, len(seen)))
    return found


def main() -> int:
    """Measure and report; 1 if a target was missed in the quietest round."""
    parser = argparse.ArgumentParser(prog="python -m bench.capture", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="interleaved repeats (default 7)")
    parser.add_argument("--seconds", type=float, default=0.2, help="CPU seconds a case and round (default 0.2)")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        measured = cases(Path(folder))
        measure(measured, rounds=options.rounds, seconds=options.seconds)
    print(machine(options.rounds))
    print()
    print("| | what | us a message | quietest | a second | target us |")
    print("|---|---|---:|---:|---:|---:|")
    for case in measured:
        target = "" if case.target_us is None else f"{case.target_us:.2g}"
        per_second = f"{1e6 / case.us:,.0f}".replace(",", " ")
        print(f"| {case.group} | {case.name} | {case.us:.2f} | {case.best_us:.2f} | {per_second} | {target} |")
    missed = [case for case in measured if case.target_us is not None and case.best_us > case.target_us]
    for case in missed:
        print(f"missed: {case.group} {case.name}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
