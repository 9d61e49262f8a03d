"""Jobs that Spark does for a measurement: they take turns, and the CPU time of the JVM and its Python workers counts.

The yardstick is an identity `mapInArrow`: what it costs to show each message to Python once and to take it back, whatever is
done with it. A ratio is formed inside one round, so that a machine that gets slower for a while slows both. This file knows
no capture and no table.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

_LOOK_S: Final = 0.2
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Use(NamedTuple):
    """CPU seconds: of the JVM, and of all other processes together, which are Python."""

    jvm_s: float
    python_s: float

    @property
    def all_s(self) -> float:
        """All of it."""
        return self.jvm_s + self.python_s

    def since(self, before: "Use") -> "Use":
        """What was used after another look."""
        return Use(self.jvm_s - before.jvm_s, self.python_s - before.python_s)


@dataclass
class _Process:
    """What was last seen of a process."""

    is_jvm: bool
    ticks: int = 0
    peak_kib: int = 0


class Meter:
    """CPU time and memory of all processes that descend from this one: the JVM and the Python workers, not this one itself.

    Spark kills workers that have been idle for a minute, and their parent ignores that, so the kernel forgets what they
    took: a sum over those that live would go down. So all are looked at now and then, and the last that was seen of each
    counts.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[int, str], _Process] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self.use()
            time.sleep(_LOOK_S)

    def use(self) -> Use:
        """CPU seconds so far; they never go down."""
        with self._lock:
            self._look()
            ticks = [0, 0]
            for process in self._seen.values():
                ticks[process.is_jvm] += process.ticks
            return Use(ticks[True] / _TICKS, ticks[False] / _TICKS)

    def peaks(self) -> tuple[int, int]:
        """The most bytes of memory that a JVM has had, and that a Python process has had, since they were last forgotten."""
        with self._lock:
            self._look()
            peaks = [0, 0]
            for process in self._seen.values():
                peaks[process.is_jvm] = max(peaks[process.is_jvm], process.peak_kib * 1024)
            return peaks[True], peaks[False]

    def forget_peaks(self) -> None:
        """Forget the memory of all processes that were seen so far; of those that live it will be seen again."""
        with self._lock:
            for process in self._seen.values():
                process.peak_kib = 0

    def _look(self) -> None:
        stats: dict[int, list[str]] = {}
        children: dict[int, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with contextlib.suppress(OSError):  # it ended
                    stat = (entry / "stat").read_text().rpartition(") ")[2].split()
                    stats[int(entry.name)] = stat
                    children.setdefault(int(stat[1]), []).append(int(entry.name))
        left = list(children.get(os.getpid(), []))
        while left:
            number = left.pop()
            with contextlib.suppress(OSError):
                self._note(number, stats[number])
            left += children.get(number, [])

    def _note(self, number: int, stat: list[str]) -> None:
        key = number, stat[19]  # with its start: a number may be given again
        place = Path("/proc", str(number))
        process = self._seen.setdefault(key, _Process(is_jvm=False))
        process.ticks = max(process.ticks, int(stat[11]) + int(stat[12]))
        # By its program, not by its name: a copy of the JVM that is to become Python has the name of a thread of it.
        is_jvm = (place / "exe").readlink().name == "java"
        if is_jvm != process.is_jvm:  # it was a shell before, or such a copy
            process.is_jvm, process.peak_kib = is_jvm, 0
        for line in (place / "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                process.peak_kib = max(process.peak_kib, int(line.split()[1]))


METER: Final = Meter()


@dataclass
class Job:
    """Something that Spark does, and what it took, a round each; `target` is how many times the yardstick it may take."""

    name: str
    run: Callable[[], None]
    target: float | None = None
    uses: list[Use] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)

    def measure(self) -> None:
        """Run it once, and note what it took."""
        before, start = METER.use(), time.perf_counter()
        self.run()
        self.wall_s.append(time.perf_counter() - start)
        self.uses.append(METER.use().since(before))

    def forget(self) -> None:
        """Forget all rounds."""
        self.uses.clear()
        self.wall_s.clear()

    def times(self, yardstick: "Job") -> list[float]:
        """How many times the yardstick it took, a round each."""
        return [mine.all_s / its.all_s for mine, its in zip(self.uses, yardstick.uses, strict=True)]

    def is_missed(self, yardstick: "Job") -> bool:
        """Whether it has a target and misses it in the median."""
        return self.target is not None and median(self.times(yardstick)) > self.target


def read_only(frame: Callable[[], DataFrame]) -> Callable[[], None]:
    """What computes all rows of a frame, and throws them away."""
    return lambda: frame().write.format("noop").mode("overwrite").save()


def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def yardstick(spark: SparkSession, frames: Path) -> Job:
    """The identity over frames in Parquet."""

    def frame() -> DataFrame:
        rows = spark.read.parquet(str(frames))
        return rows.mapInArrow(identity, rows.schema)

    return Job("identity", read_only(frame))


def take_turns(jobs: Iterable[Job], rounds: int) -> None:
    """Run all jobs in turn, so many times; and once before, which does not count: the JVM compiles."""
    several = list(jobs)
    for number in range(rounds + 1):
        for job in several:
            job.measure()
            if not number:
                job.forget()


HEADER: Final = (
    "| | CPU us a message | of it Python | us on the clock | times identity | from - to | target |",
    "|---|---:|---:|---:|---:|---:|---:|",
)


def line(job: Job, by: Job, messages: int) -> str:
    """A line of a table: medians over rounds, as microseconds a message, and the ratio."""
    us = 1e6 / messages
    cpu = us * median(use.all_s for use in job.uses)
    python = us * median(use.python_s for use in job.uses)
    times = job.times(by)
    found = f"{median(times):.2f}"
    target = "" if job.target is None else f"{job.target:g}{': **missed**' if job.is_missed(by) else ': met'}"
    wall = us * median(job.wall_s)
    return (
        f"| {job.name} | {cpu:.2f} | {python:.2f} | {wall:.2f} | {found} | {min(times):.2f} - {max(times):.2f} | {target} |"
    )
