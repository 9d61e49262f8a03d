"""Run the fuzzer: `python tests/fuzz/run.py [--long]`, or `--reproduce FILE` for what it found.

The parent starts the workers, adds up what they report, and judges; a worker is this same file. With atheris a worker is
guided by coverage; where atheris has no wheel it draws inputs at random, and says so. An execution is one message.

A run fails if a rule of `target.py` does not hold (the input is kept in a file and printed in hex), if a worker dies, hangs
or grows, that is: if its peak memory is not flat after the warm-up.
"""

import argparse
import hashlib
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

ROOT: Final = Path(__file__).resolve().parents[2]

LONG_RUN: Final = 10_000_000
"""Messages, over all workers."""

SHORT_RUN: Final = 20.0
"""Seconds: what a developer waits for in `make test`."""

MOST_RUNS: Final = 2**31 - 2
"""What libFuzzer can count: no limit, for a run that is limited by time."""

LONGEST_INPUT: Final = 1024
"""Bytes: the largest seed, with room to grow; larger inputs only make the search slower."""

RSS_LIMIT_MB: Final = 1024
HANG_SECONDS: Final = 20
REPORT_SECONDS: Final = 0.5

SLACK_KIB: Final = 32 * 1024
"""How much the peak of a worker may grow after the warm-up. libFuzzer keeps the inputs that found something new, a few
thousand of at most a kilobyte; a leak of ten bytes a message would take 50 MiB in a long run."""


class Report(NamedTuple):
    """What a worker has done so far."""

    messages: int
    seconds: float
    peak_kib: int


class Plan(NamedTuple):
    """How far one worker goes: so many messages or seconds, whichever comes first."""

    messages: int
    seconds: float
    seed: int
    artifacts: Path
    scratch: Path

    @property
    def raw(self) -> bool:
        """Whether to start from raw messages rather than from mutations. Of two neighbouring workers each does one: together
        the mutations, which are shorter and reach as far, would crowd the raw messages out."""
        return self.seed % 2 == 0


# --- worker -----------------------------------------------------------------------------------------------------------


class Worker:
    """Counts, reports and keeps the input that failed."""

    def __init__(self, check: Callable[[bytes], None], plan: Plan) -> None:
        self.check = check
        self.plan = plan
        self.messages = 0
        self.started = self.reported = time.monotonic()

    def one(self, data: bytes) -> None:
        """Check one input; ends the process when the plan is fulfilled."""
        try:
            self.check(data)
        except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
            self.keep(data)
            os._exit(1)
        self.messages += 1
        # The clock is read now and then only: reading it would cost as much as a small message.
        if self.messages % 64 and self.messages < self.plan.messages:
            return
        now = time.monotonic()
        done = self.messages >= self.plan.messages or now - self.started >= self.plan.seconds
        if done or now - self.reported >= REPORT_SECONDS:
            self.reported = now
            self.report(now)
        if done:
            # Not sys.exit: libFuzzer would take that for a crash, and the input for the cause.
            os._exit(0)

    def report(self, now: float) -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.say({"messages": self.messages, "seconds": now - self.started, "peak_kib": peak})

    def keep(self, data: bytes) -> None:
        path = self.plan.artifacts / f"crash-{hashlib.sha256(data).hexdigest()[:16]}"
        path.write_bytes(data)
        self.report(time.monotonic())
        self.say({"file": str(path), "hex": data.hex(), "error": traceback.format_exc()})

    @staticmethod
    def say(record: dict[str, object]) -> None:
        print(json.dumps(record), flush=True)


def work(plan: Plan, driver: str) -> NoReturn:
    """Be a worker: never returns."""
    sys.path.insert(0, str(ROOT))
    if driver == "atheris":
        work_guided(plan)
    from tests.fuzz import target  # noqa: PLC0415 - the guided worker imports it instrumented

    work_at_random(Worker(target.check, plan), target.seeds(raw=True), target.RAW)


def work_guided(plan: Plan) -> NoReturn:
    """Let libFuzzer choose the inputs by what they reach."""
    atheris: Any = import_module("atheris")
    with atheris.instrument_imports(include=["hopline"]):
        from tests.fuzz import target  # noqa: PLC0415

    plan.scratch.mkdir()
    for index, seed in enumerate(target.seeds(raw=plan.raw)):
        (plan.scratch / str(index)).write_bytes(seed)
    flags = [
        f"-runs={plan.messages + 1}",
        f"-max_total_time={int(plan.seconds) + 60}",
        f"-rss_limit_mb={RSS_LIMIT_MB}",
        f"-timeout={HANG_SECONDS}",
        f"-max_len={LONGEST_INPUT}",
        "-len_control=0",  # raw messages are long from the start
        "-reduce_inputs=0",  # and should stay whole
        f"-seed={plan.seed}",
        f"-artifact_prefix={plan.artifacts}/",
        "-print_final_stats=0",
        "-verbosity=0",
    ]
    atheris.Setup([sys.argv[0], *flags, str(plan.scratch)], Worker(target.check, plan).one)
    atheris.Fuzz()
    raise AssertionError("libFuzzer ends the process itself")


def work_at_random(worker: Worker, seeds: list[bytes], mutation: int) -> NoReturn:
    """Draw inputs at random: half of them mutations, half of them seeds with a few bytes changed."""
    draw = random.Random(worker.plan.seed)
    while True:
        if draw.random() < 0.5:
            data = bytes((draw.randrange(0x100), draw.randrange(mutation, 0x100))) + draw.randbytes(draw.randrange(2, 48))
        else:
            changed = bytearray(draw.choice(seeds))
            for _ in range(draw.randrange(8)):
                changed[draw.randrange(len(changed))] = draw.randrange(256)
            data = bytes(changed[: draw.randrange(len(changed) + 1)] if draw.random() < 0.1 else changed)
        worker.one(data)


# --- parent -----------------------------------------------------------------------------------------------------------


class Monitor:
    """One worker, seen from outside."""

    def __init__(self, number: int, command: list[str], log: Path) -> None:
        self.number = number
        self.reports: list[Report] = []
        self.failure: dict[str, str] | None = None
        self.log = log
        with log.open("wb") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.startswith("{"):
                continue
            record = json.loads(line)
            if "file" in record:
                self.failure = record
            else:
                self.reports.append(Report(**record))

    def last(self) -> Report:
        return self.reports[-1] if self.reports else Report(0, 0.0, 0)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.thread.join()


def growth_kib(reports: list[Report], warm_up: float) -> int:
    """How much the peak grew after the warm-up, the first part of the run."""
    if not reports:
        return 0
    last = reports[-1]
    warm = next(report for report in reports if report.messages >= warm_up * last.messages)
    return last.peak_kib - warm.peak_kib


def run(plans: list[Plan], driver: str, warm_up: float, progress_seconds: float) -> int:
    """Run all workers to their end and judge; returns the exit code."""
    monitors = [
        Monitor(
            number,
            [
                sys.executable,
                str(Path(__file__).resolve()),
                "--worker",
                driver,
                str(plan.messages),
                str(plan.seconds),
                str(plan.seed),
                str(plan.artifacts),
                str(plan.scratch),
            ],
            plan.artifacts / f"worker-{number}.log",
        )
        for number, plan in enumerate(plans)
    ]
    try:
        watch(monitors, progress_seconds)
    finally:
        for monitor in monitors:
            monitor.stop()
    return judge(monitors, warm_up)


def watch(monitors: list[Monitor], progress_seconds: float) -> None:
    """Print progress until all workers are done, or one has failed."""
    shown = time.monotonic()
    while any(monitor.thread.is_alive() for monitor in monitors):
        for monitor in monitors:
            monitor.thread.join(timeout=0.2)
        if any(not monitor.thread.is_alive() and monitor.process.wait() for monitor in monitors):
            return
        if time.monotonic() - shown >= progress_seconds:
            shown = time.monotonic()
            show(monitors)
    show(monitors)


def show(monitors: list[Monitor]) -> None:
    lasts = [monitor.last() for monitor in monitors]
    speed = sum(last.messages / last.seconds for last in lasts if last.seconds)
    peaks = " ".join(f"{last.peak_kib / 1024:.0f}" for last in lasts)
    messages = sum(last.messages for last in lasts)
    print(f"{messages:>12,} executions  {speed:>8,.0f} a second  peak memory {peaks} MiB", flush=True)


def judge(monitors: list[Monitor], warm_up: float) -> int:
    """Say how it ended."""
    for monitor in monitors:
        if monitor.failure:
            print(f"\n{monitor.failure['error']}")
            print(f"FAILED on an input of {len(monitor.failure['hex']) // 2} bytes, kept in {monitor.failure['file']}")
            print(f"hex: {monitor.failure['hex']}")
            print(f"Look at it with: python tests/fuzz/run.py --reproduce {monitor.failure['file']}")
            return 1
    for monitor in monitors:
        # A worker that was stopped because another one failed never gets here: that one has a failure.
        if code := monitor.process.returncode:
            print(f"\n{monitor.log.read_text(errors='replace')[-4000:]}")
            print(f"FAILED: worker {monitor.number} ended with {code}; what it said is above and in {monitor.log}")
            return 1
    growths = [growth_kib(monitor.reports, warm_up) for monitor in monitors]
    if max(growths) > SLACK_KIB:
        print(f"FAILED: peak memory grew by {growths} KiB after the warm-up, {SLACK_KIB} is the limit: something leaks")
        return 1
    total = sum(monitor.last().messages for monitor in monitors)
    grown = " and ".join(f"{growth / 1024:.1f}" for growth in growths)
    print(f"No rule was broken in {total:,} executions; peak memory grew by {grown} MiB after the warm-up.")
    return 0


def reproduce(path: Path) -> int:
    """Show what an input stands for, and check it again."""
    sys.path.insert(0, str(ROOT))
    from tests.fuzz import target  # noqa: PLC0415

    data = path.read_bytes()
    for index, frame in enumerate(target.frames_of(data)):
        print(f"frame {index:>3}  {frame.hex(' ') or '(empty)'}")
    try:
        target.check(data)
    except Exception:  # noqa: BLE001 - as above
        traceback.print_exc(file=sys.stdout)
        return 1
    print("No rule is broken.")
    return 0


def main(arguments: list[str]) -> int:
    """Read the command line."""
    if arguments[:1] == ["--worker"]:
        messages, seconds, seed, artifacts, scratch = arguments[2:]
        work(Plan(int(messages), float(seconds), int(seed), Path(artifacts), Path(scratch)), driver=arguments[1])
    parser = argparse.ArgumentParser(description="Fuzz the wire codec.")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--short", action="store_true", help=f"run for {SHORT_RUN:.0f} seconds; this is the default")
    length.add_argument("--long", action="store_true", help=f"run {LONG_RUN:,} executions")
    length.add_argument("--runs", type=int, help="run so many executions")
    length.add_argument("--seconds", type=float, help="run so many seconds")
    length.add_argument("--reproduce", type=Path, metavar="FILE", help="check one input again")
    parser.add_argument("--processes", type=int, default=2, help="workers (default: 2)")
    parser.add_argument("--driver", choices=["atheris", "random"], help="default: atheris if it is there")
    parser.add_argument("--seed", type=int, default=0, help="repeat the search of an earlier run (default: a new one)")
    parser.add_argument("--artifacts", type=Path, default=ROOT / "build" / "fuzz", help="where inputs that fail are kept")
    options = parser.parse_args(arguments)
    if options.reproduce:
        return reproduce(options.reproduce)

    driver = options.driver or ("atheris" if find_spec("atheris") else "random")
    runs: int = options.runs or (LONG_RUN if options.long else MOST_RUNS)
    limit: float = options.seconds or (24 * 3600.0 if runs < MOST_RUNS else SHORT_RUN)
    first_seed: int = options.seed or random.SystemRandom().randrange(1, 2**30)
    kept: Path = options.artifacts.resolve()
    kept.mkdir(parents=True, exist_ok=True)
    how = "guided by coverage (atheris)" if driver == "atheris" else "at random (atheris is not used)"
    print(f"Fuzzing {how} in {options.processes} processes, seed {first_seed}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        plans = [
            Plan(-(-runs // options.processes), limit, first_seed + number, kept, Path(scratch, str(number)))
            for number in range(options.processes)
        ]
        return run(plans, driver, warm_up=0.1 if options.long else 0.5, progress_seconds=10.0 if options.long else 2.0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
