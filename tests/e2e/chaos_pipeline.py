"""`make chaos-pipeline`: kill the pipeline again and again; the tables are as if nobody had. `--kills N` for fewer.

A capture grows while `hopline pipeline run` and `hopline pipeline stream` take turns at it: real processes, each with a JVM
and workers of its own. Each is killed with SIGKILL at a random point: after a part of the time that a run takes, when it has
so many files in its staging folder, or in the middle of its commit. Either all of its processes at once, or the driver
alone; then its JVM finds out by itself, and may write on for a while. After each kill the tables can be read. In the end one
more run takes what is left, and all tables must have the rows that one undisturbed run over everything gives them.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset as ds

from hopline.spark.news import find_news
from hopline.spark.warehouse import Warehouse
from tests.spark.lake import all_rows, copy_segments
from tests.spark.world import make_world

HOPLINE = (sys.executable, "-m", "hopline")
LOOK_S = 0.005
"""Between two looks at a process: a commit takes several times as long."""

LONGEST_S = 300.0
"""What a process may take before it counts as stuck."""

MOST_FILES = 32
"""Files in a staging folder to wait for at most: 39 were seen, and a stream that is to reach more may wait for ever."""


class Chaos:
    """One capture, whose segments appear one by one, and the tables that processes make of it until they are killed.

    Args:
        place: an empty folder for all of it.
        kills: how many there are to be.
        seed: of all choices. When the operating system does what, it cannot decide.
        say: is told what happens.
    """

    def __init__(self, place: Path, kills: int, seed: int, say: Callable[[str], None] = print) -> None:
        self.captures, self.tables = place / "captures", place / "tables"
        self._arriving, self._logs = place / "arriving", place / "logs"
        for folder in (self.captures, self._arriving, self._logs):
            folder.mkdir()
        self._random = random.Random(seed)
        self._say = say
        self._kills = kills
        self._drivers: list[int] = []
        # More than half of the kills come too late for what they were to prevent: then there must be something new again.
        for number in range(1 + kills // 4):
            make_world(seed + number, rounds=1).network.write(str(self._arriving))
        self._waiting = sorted(file.name for file in self._arriving.glob("*.arrows"))
        self._random.shuffle(self._waiting)

    @property
    def everything(self) -> Path:
        """The capture as it is when all has come."""
        return self._arriving

    def run(self, usual_s: float) -> None:
        """Kill as often as asked for, then let one run end well. `usual_s` is what an undisturbed one takes."""
        done = 0
        while done < self._kills:
            if not self._waiting:
                raise AssertionError(f"all has come and was taken after {done} kills")
            self._appear()
            done += self._attempt(done + 1, usual_s)
            self._check_readable()
        copy_segments(self._arriving, self.captures, self._waiting)
        self._wait_for_all_to_end()
        code = self._start("run").wait(LONGEST_S)
        if code:
            raise AssertionError(f"the last run failed:\n{self._last_words()}")

    def _appear(self) -> None:
        """A segment is sealed: it has its name at once, and whole."""
        name = self._waiting.pop()
        copy_segments(self._arriving, self._logs, [name])
        (self._logs / name).rename(self.captures / name)

    def _attempt(self, number: int, usual_s: float) -> bool:
        """Start a process and kill it; whether there was anything left to kill."""
        mode = self._random.choice(["run", "stream"])
        point, is_there = self._choose_point(usual_s)
        appears_s = self._random.uniform(0, usual_s)
        started = time.monotonic()
        process = self._start(mode)
        while not is_there():
            if mode == "stream" and not self._waiting_for(appears_s) and self._is_drained():
                point = f"rest, and not at {point}, which was not to come"
                break
            passed_s = time.monotonic() - started
            if passed_s > LONGEST_S:
                raise AssertionError(f"{mode} is stuck, waiting for {point}:\n{self._last_words()}")
            if self._waiting and passed_s > appears_s:
                self._appear()
                appears_s = float("inf")
            try:
                code = process.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                continue
            if code:
                raise AssertionError(f"{mode} failed by itself:\n{self._last_words()}")
            self._say(f"{mode} was done before {point}")
            return False
        who = self._random.choice(["driver", "all"])
        self._kill(process, everybody=who == "all")
        self._say(f"kill {number} of {self._kills}: {mode}, {who}, at {point}, after {time.monotonic() - started:.1f} s")
        return True

    def _waiting_for(self, appears_s: float) -> bool:
        """Whether something is still to come during this attempt."""
        return bool(self._waiting) and appears_s != float("inf")

    def _is_drained(self) -> bool:
        """Whether all that has come is in the tables: then a stream does nothing, and reaches no point any more."""
        own = self.tables / "_hopline"
        if (own / "journal.json").exists() or not (own / "state.json").exists():
            return False
        state = Warehouse(str(self.tables)).state()
        return state is not None and not find_news(str(self.captures), state.layers).work

    def _choose_point(self, usual_s: float) -> tuple[str, Callable[[], bool]]:
        own = self.tables / "_hopline"
        match self._random.choice(["time", "files", "commit", "commit"]):
            case "time":
                until_s = self._random.uniform(0, usual_s)
                end = time.monotonic() + until_s
                return f"{until_s:.1f} s", lambda: time.monotonic() >= end
            case "files":
                least = self._random.randrange(1, MOST_FILES)
                return f"{least} files", lambda: sum(path.is_file() for path in _below(own / "staging")) >= least
            case _:
                # A journal that is there already was left by the one before: its end is waited for first.
                left = (own / "journal.json").exists()
                return "its commit", lambda: (own / "journal.json").exists() != left

    def _start(self, mode: str) -> subprocess.Popen[bytes]:
        command = [*HOPLINE, "pipeline", mode, self.captures, self.tables, *(["--every", "0.2"] if mode == "stream" else [])]
        log = (self._logs / f"{len(self._drivers):03}.log").open("wb")
        with log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        self._drivers.append(process.pid)
        return process

    def _kill(self, process: subprocess.Popen[bytes], *, everybody: bool) -> None:
        process.kill()
        while everybody and (others := _session(process.pid)):
            for pid in others:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            process.poll()
        process.wait()

    def _wait_for_all_to_end(self) -> None:
        """JVMs whose driver was killed end by themselves."""
        end = time.monotonic() + LONGEST_S
        while left := [pid for driver in self._drivers for pid in _session(driver)]:
            if time.monotonic() > end:
                raise AssertionError(f"processes of killed drivers are left: {left}")
            time.sleep(LOOK_S)

    def _check_readable(self) -> None:
        for table in self.tables.glob("[a-z]*"):
            ds.dataset(table, format="parquet", partitioning="hive").to_table()

    def _last_words(self) -> str:
        return max(self._logs.glob("*.log")).read_text(errors="replace")[-2000:]


def _below(folder: Path) -> list[Path]:
    return [Path(path, name) for path, _, names in os.walk(folder) for name in names]


def _session(driver: int) -> list[int]:
    """The processes of the session that a driver has opened: itself, its JVM and their workers, as far as they live."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _parent, _group, session = stat.read_text().rpartition(") ")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(session) == driver and state != "Z":
            found.append(int(stat.parent.name))
    return found


def differences(tables: Path, undisturbed: Path) -> list[str]:
    """What is not as it should be in tables whose makers were killed."""
    have, want = all_rows(tables), all_rows(undisturbed)
    odd = [f"{name}: {len(have[name])} rows, {len(want[name])} expected" for name in want if have[name] != want[name]]
    return odd + [
        f"{path} is left" for path in (tables / "_hopline").iterdir() if path.name.startswith(("staging", "journal"))
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hopline-chaos-") as folder:
        place = Path(folder)
        chaos = Chaos(place, options.kills, options.seed, say=lambda text: print(text, flush=True))
        started = time.monotonic()
        command = [*HOPLINE, "pipeline", "run", chaos.everything, place / "undisturbed"]
        subprocess.run(command, check=True, capture_output=True, timeout=LONGEST_S)
        usual_s = time.monotonic() - started
        print(f"an undisturbed run takes {usual_s:.1f} s", flush=True)
        chaos.run(usual_s)
        odd = differences(chaos.tables, place / "undisturbed")
        for each in odd:
            print(f"FAILED: {each}")
        rows = {name: len(rows) for name, rows in all_rows(chaos.tables).items()}
        print(f"{options.kills} kills, {time.monotonic() - started:.0f} s; {'other' if odd else 'the same'} rows: {rows}")
    return 1 if odd else 0


if __name__ == "__main__":
    sys.exit(main())
