"""`python -m bench.query`: a capture of a million messages, and how long the commands take that look at it.

The commands are started as a user starts them: a new process each, so that the figures hold the start of Python and all
imports. Flows of several kinds and formats are made from templates; three nodes, each with its own segments.
"""

import argparse
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hopline.capture.record import Records
from hopline.capture.writer import CaptureWriter
from hopline.identity import EXCEPTION, RECEIPT, MessageType
from hopline.payload.service import ExceptionMessage
from hopline.wire import FormatName, Message, RoutingEntry, encode

MESSAGES: Final = 1_000_000
START_NS: Final = 1_794_787_200_000_000_000
STEP_NS: Final = 50_000
NETWORK_NS: Final = 300_000
HANDLING_NS: Final = 100_000
BATCH: Final = 1000

FLOW: Final = b"00000000-flow-0000-0000-000000000000"
NO_FLOW: Final = b"00000000-0000-0000-0000-000000000000"
BODY: Final = b"x" * 80
SIGNATURE: Final = b"s" * 32
"""Stand in the templates where each flow has its own id, and each message its own body and signature."""

CLIENT, GATE, STORE = "client", "gate", "store"
HUB: Final = b"\0" + b"c" * 36


@dataclass(frozen=True)
class Step:
    """One message of a template: who sends it, who receives it, or nobody does; its frames."""

    sender: str
    receiver: str | None
    frames: list[bytes]


def step(message: Message, trail: list[str], receiver: str | None, format: FormatName = "v6") -> Step:
    """Make a step: the last of the trail sends it."""
    routing = tuple(RoutingEntry(f"tcp://10.0.0.1:{5101 + i}", name.encode()) for i, name in enumerate(trail))
    values = {name: getattr(message, name) for name in message.__struct_fields__}
    sent = Message(**values | {"hops": 1, "routing": routing, "trace_options": 1})
    return Step(trail[-1], receiver, encode(sent, format))


def request(identity: bytes, *points: MessageType, body: bytes = b"") -> Message:
    """A message of a flow that the client waits for."""
    return Message(
        identity=identity,
        version=1,
        body=body or BODY,
        correlation_id=FLOW,
        callback_points=(*points, EXCEPTION),
        callback_key=7,
        callback_receiver_identity=HUB,
        callback_receiver_node_identity=b"client",
        domain="orders",
        signature=SIGNATURE,
    )


def answer(identity: bytes, *points: MessageType, body: bytes = b"") -> Message:
    """A message that goes back to the client."""
    asked = request(identity, *points, body=body)
    values = {name: getattr(asked, name) for name in asked.__struct_fields__}
    return Message(**values | {"receiver_identity": HUB, "receiver_node_identity": b"client"})


def templates() -> list[tuple[int, list[Step]]]:
    """Kinds of flows, and how many of a hundred are of each kind."""
    hello, ordered = MessageType(b"EHHLO", 1), MessageType(b"ORDER.PLACED", 1)
    failed = ExceptionMessage("no such order", "KeyError", "at handle()\n" * 8).write()
    chain = [
        step(request(b"ORDER.PLACE", ordered), [CLIENT], GATE),
        step(request(b"STOCK.TAKE", ordered), [CLIENT, GATE], STORE),
        step(request(b"STOCK.TAKEN", ordered), [CLIENT, GATE, STORE], GATE),
        step(answer(b"ORDER.PLACED", ordered), [CLIENT, GATE, STORE, GATE], CLIENT),
    ]
    throw = [
        step(request(b"ORDER.PLACE", ordered), [CLIENT], GATE),
        step(answer(b"KINO.EXCEPTION", ordered, body=failed), [CLIENT, GATE], CLIENT),
    ]
    receipt = [
        step(request(b"NOTE", RECEIPT), [CLIENT], GATE),
        step(answer(b"KINO.RCPTCONFIRM", RECEIPT), [CLIENT, GATE], CLIENT),
    ]
    lost = [step(request(b"HELLO", hello), [CLIENT], None)]
    silent = [step(request(b"HELLO", hello), [CLIENT], GATE)]
    beat = [Step(GATE, CLIENT, encode(Message(identity=b"KINO.HEARTBEAT", version=1, correlation_id=NO_FLOW)))]

    def ask(format: FormatName) -> list[Step]:
        return [
            step(request(b"HELLO", hello), [CLIENT], GATE, format),
            step(answer(b"EHHLO", hello), [CLIENT, GATE], CLIENT, format),
        ]

    return [(40, ask("v6")), (15, ask("v5")), (20, chain), (5, throw), (8, receipt), (1, lost), (1, silent), (10, beat)]


@dataclass
class Lines:
    """What one node sees, until it is a batch."""

    writer: CaptureWriter
    seen_ns: list[int] = field(default_factory=list)
    seq: list[int] = field(default_factory=list)
    tap: list[str] = field(default_factory=list)
    frames: list[list[bytes]] = field(default_factory=list)
    count: int = 0

    def add(self, seen_ns: int, tap: str, frames: list[bytes]) -> None:
        """See a message."""
        self.count += 1
        self.seen_ns.append(seen_ns)
        self.seq.append(self.count)
        self.tap.append(tap)
        self.frames.append(frames)
        if len(self.seq) >= BATCH:
            self.flush()

    def flush(self) -> None:
        """Write what was seen."""
        self.writer.write(Records(self.seen_ns, self.seq, self.tap, self.frames, node=self.writer.owner))
        self.seen_ns, self.seq, self.tap, self.frames = [], [], [], []


def flow_id(number: int) -> bytes:
    """The correlation id of a flow: looks like those of life, and is the same each time."""
    digits = f"{random.Random(number).getrandbits(128):032x}"
    return "-".join([digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]]).encode()


def own_frame(frame: bytes, flow: bytes, new: bytes) -> bytes:
    """A frame of a template, with what is its own."""
    if frame == BODY:
        return new[: len(BODY)]
    return frame.replace(FLOW, flow).replace(SIGNATURE, new[len(BODY) :])


def kinds() -> Iterator[list[Step]]:
    """Flows without end, mixed."""
    weighted = [steps for weight, steps in templates() for _ in range(weight)]
    choose = random.Random(1)
    while True:
        yield choose.choice(weighted)


def make_capture(path: str, messages: int = MESSAGES) -> bytes:
    """Write a capture of so many sightings; the answer is the id of a flow in its middle that has four messages."""
    lines = {name: Lines(CaptureWriter(path, owner=name.encode())) for name in (CLIENT, GATE, STORE)}
    for each in lines.values():
        each.writer.start()
    now, seen, example, noise = START_NS, 0, b"", random.Random(2)
    for number, steps in enumerate(kinds()):
        own, at = flow_id(number), now
        now += STEP_NS
        for one in steps:
            new = noise.randbytes(len(BODY) + len(SIGNATURE))
            frames = [own_frame(frame, own, new) if len(frame) >= len(SIGNATURE) else frame for frame in one.frames]
            lines[one.sender].add(at, "scaleout_out", frames)
            seen += 1
            at += NETWORK_NS + number % 7 * 50_000
            if one.receiver is not None:
                lines[one.receiver].add(at, "scaleout_in", frames)
                seen += 1
            at += HANDLING_NS
        if len(steps) == 4 and seen < messages // 2:
            example = own
        if seen >= messages:
            break
    for each in lines.values():
        each.flush()
        each.writer.close()
    return example


def measure(words: list[str], repeats: int) -> list[tuple[float, float]]:
    """Wall and CPU seconds of a command, each time in a new process."""
    found = []
    for _ in range(repeats):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([sys.executable, "-m", "hopline", *words], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        found.append((time.perf_counter() - start, cpu))
    return found


def main() -> None:
    """Make the capture, run the commands and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.query", description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as path:
        start = time.perf_counter()
        flow = make_capture(path, options.messages).decode()
        size = sum(file.stat().st_size for file in Path(path).iterdir())
        print(f"{options.messages} sightings, {size / 2**20:.0f} MiB, made in {time.perf_counter() - start:.1f} s")
        commands = {
            "--help": ["--help"],
            "trace FLOW": ["trace", flow, path],
            "trace, by the first 8 characters": ["trace", flow[:8], path],
            "stats": ["stats", path],
            "flows": ["flows", path],
            "flows --show failed": ["flows", path, "--show", "failed"],
            "dump --limit 100": ["dump", path, "--limit", "100"],
            "dump 'identity == KINO.EXCEPTION'": ["dump", path, "identity == KINO.EXCEPTION"],
        }
        print("| command | seconds | CPU seconds |\n|---|---:|---:|")
        for name, words in commands.items():
            runs = measure(words, options.repeats)
            wall, cpu = (statistics.median(run[i] for run in runs) for i in (0, 1))
            print(f"| `hopline {name}` | {wall:.2f} | {cpu:.2f} |")


if __name__ == "__main__":
    main()
