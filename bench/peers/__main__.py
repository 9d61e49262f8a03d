"""`python -m bench.peers`: Hopline beside what else one could take, on the rules of `rules.py`.

The peers are no dependencies of Hopline, so they have a venv of their own, outside of the project:

    python3.11 -m venv ../peers
    ../peers/bin/pip install --editable . --requirement bench/peers/requirements.txt
    apt install nats-server
    ../peers/bin/python -m bench.peers [--reps 7] [--secs 2] [--only hopline,ray] [--write]

A peer that is not installed is named in the table with what to install. Peers take turns in every round, each in a
session of its own, and what one leaves running is ended before the next starts. `--write` puts the table into
docs/benchmarks.md. Ratios are formed within a round, as in `timing.py`; the machine may be busy, so read those first.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.peers.processes import Others, adopt_orphans, end_family, program
from bench.peers.rules import RESULT, Figures

PAGE = Path("docs/benchmarks.md")
START, END = "<!-- peers: start -->", "<!-- peers: end -->"
FLOOR = "raw pyzmq, 4 frames"
START_SECONDS = 90.0  # for a peer to start, warm up and end; Ray takes ten on a quiet machine


@dataclass
class Peer:
    name: str
    module: str
    packages: tuple[str, ...]
    variant: str = ""
    loop: str = "asyncio"
    programs: tuple[str, ...] = ()
    rounds: list[Figures | None] = field(default_factory=list)
    failure: str = ""

    def missing(self) -> str:
        """What to install for it, as commands; empty if all is there."""
        packages = [name for name in self.packages if version(name) is None]
        programs = [name for name in self.programs if program(name) is None]
        commands = [f"pip install {' '.join(packages)}"] * bool(packages) + [f"apt install {name}" for name in programs]
        return ", ".join(commands)

    def run(self, seconds: float) -> None:
        """One round: its processes start, measure and end."""
        command = [sys.executable, "-m", f"bench.peers.{self.module}", "--seconds", str(seconds)]
        command += ["--loop", self.loop, "--variant", self.variant]
        limit = 2 * seconds + START_SECONDS
        # Files and not pipes: a daemon that keeps a pipe open would keep us waiting.
        with tempfile.TemporaryDirectory(prefix="p", ignore_cleanup_errors=True) as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            try:
                with out.open("w") as stdout, err.open("w") as stderr:
                    subprocess.run(
                        command,
                        stdout=stdout,
                        stderr=stderr,
                        env=os.environ | {"TMPDIR": folder},
                        timeout=limit,
                        start_new_session=True,
                        check=True,
                    )
                line = next(line for line in out.read_text().splitlines() if line.startswith(RESULT))
                self.rounds.append(Figures(**json.loads(line.removeprefix(RESULT))))
            except (subprocess.SubprocessError, StopIteration) as error:
                reason = f"no result after {limit:.0f} s" if isinstance(error, subprocess.TimeoutExpired) else repr(error)
                self.failure = (err.read_text().strip().splitlines() or [reason])[-1].replace("|", "/")
                self.rounds.append(None)
            finally:
                end_family()

    def median(self, figure: Callable[[Figures], float]) -> float:
        return median(figure(found) for found in self.rounds if found)

    def least(self, figure: Callable[[Figures], float]) -> float:
        return min(figure(found) for found in self.rounds if found)

    def row(self, floor: "Peer") -> str:
        if not any(self.rounds):
            why = f"not installed: `{self.missing()}`" if self.missing() else f"failed: {self.failure}"
            return f"| {self.name} | {why} |" + " |" * 8
        pairs = [(mine, theirs) for mine, theirs in zip(self.rounds, floor.rounds, strict=False) if mine and theirs]
        cells = [
            self.name,
            number(self.median(lambda found: found.one_rate)),
            number(self.median(lambda found: found.one_p50_us)),
            number(self.median(lambda found: found.one_p99_us)),
            number(self.median(lambda found: found.one_cpu_us)),
            number(self.least(lambda found: found.one_cpu_us)),
            number(self.median(lambda found: found.many_rate)),
            number(self.median(lambda found: found.many_cpu_us)),
            number(self.least(lambda found: found.many_cpu_us)),
            f"{median(mine.many_cpu_us / theirs.many_cpu_us for mine, theirs in pairs):.1f}" if pairs else "",
        ]
        return f"| {' | '.join(cells)} |"


def on_loops(
    name: str, module: str, packages: tuple[str, ...], variant: str = "", programs: tuple[str, ...] = ()
) -> list[Peer]:
    """The same peer on asyncio's own event loop and on uvloop."""
    return [
        Peer(name, module, packages, variant, programs=programs),
        Peer(f"{name}, uvloop", module, (*packages, "uvloop"), variant, "uvloop", programs),
    ]


def peers() -> list[Peer]:
    return [
        *on_loops("Hopline, signed", "hopline_ask", ("hopline",)),
        *on_loops("Hopline, unsigned", "hopline_ask", ("hopline",), "unsigned"),
        Peer(FLOOR, "pyzmq_raw", ("pyzmq",), "4"),
        Peer("raw pyzmq, 1 frame", "pyzmq_raw", ("pyzmq",), "1"),
        *on_loops("pyzmq asyncio", "pyzmq_asyncio", ("pyzmq",)),
        *on_loops("nats-py and nats-server", "nats_request", ("nats-py",), programs=("nats-server",)),
        Peer("Ray", "ray_actor", ("ray",)),
        Peer("Ray, async actor", "ray_actor", ("ray",), "async"),
        Peer("zerorpc", "zerorpc_call", ("zerorpc",)),
        Peer("Thespian", "thespian_ask", ("thespian",)),
        *on_loops("in one process: Hopline", "hopline_ask", ("hopline",), "alone"),
        Peer("in one process: Pykka", "pykka_ask", ("pykka",)),
    ]


def main() -> int:
    """Measure and report; 1 if a peer that is installed failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__.partition("\n")[0])
    parser.add_argument("--reps", type=int, default=7, help="interleaved rounds (default 7)")
    parser.add_argument("--secs", type=float, default=2.0, help="seconds of each of the two measurements (default 2)")
    parser.add_argument("--only", default="", help="parts of names, with commas: measure those peers only")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE}")
    options = parser.parse_args()
    if options.only and options.write:
        parser.error("--write needs all peers: leave out --only")
    parts = options.only.lower().split(",")
    chosen = [peer for peer in peers() if any(part in peer.name.lower() for part in parts)]
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what runs is ended on our way out
    taken = []
    for turn in range(options.reps):
        for peer in chosen:
            if not peer.missing():
                print(f"round {turn + 1} of {options.reps}: {peer.name}", file=sys.stderr)
                others = Others()
                peer.run(options.secs)
                taken.append(others.cores())
    report = "\n".join(
        [machine(chosen), "", *table(chosen), "", conditions(options.reps, options.secs, taken), *failures(chosen)]
    )
    print(report)
    if options.write:
        before, _, rest = PAGE.read_text().partition(START)
        PAGE.write_text(f"{before}{START}\n\n## Peers\n\n{report}\n\n{END}{rest.partition(END)[2]}")
    return 1 if any(peer.failure for peer in chosen) else 0


def table(chosen: list[Peer]) -> list[str]:
    floor = next((peer for peer in chosen if peer.name == FLOOR), Peer(FLOOR, "", ()))
    columns = ["100 bytes echoed", "one at a time, a second", "p50 us", "p99 us", "CPU us", "quietest"]
    columns += ["1000 in flight, a second", "CPU us", "quietest", "times raw pyzmq"]
    return [f"| {' | '.join(columns)} |", "|---" + "|---:" * 9 + "|", *(peer.row(floor) for peer in chosen)]


def machine(chosen: list[Peer]) -> str:
    """Name the machine and the versions the figures come from."""
    info = Path("/proc/cpuinfo")
    models = [line.partition(": ")[2] for line in info.read_text().splitlines() if line.startswith("model name")]
    packages = sorted({name for peer in chosen for name in peer.packages})
    versions = [f"{name} {version(name)}" for name in packages if version(name)]
    for name in sorted({name for peer in chosen for name in peer.programs}):
        if path := program(name):
            said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
            versions.append(f"{name} {said.split()[-1].removeprefix('v')}" if said else name)
    return (
        f"{models[0] if models else 'unknown processor'}, {os.cpu_count()} cores; {platform.system()}, "
        f"{platform.python_implementation()} {platform.python_version()}; {', '.join(versions)}."
    )


def conditions(reps: int, seconds: float, taken: list[float]) -> str:
    others = f"{median(taken):.1f} (at most {max(taken):.1f}) of {os.cpu_count()} cores" if taken else "nothing measured"
    return (
        f"Median and quietest of {reps} interleaved rounds, {seconds:g} s each way. CPU is that of all processes of a peer, "
        f"by round trips. The ratio is of CPU with 1000 in flight, to {FLOOR}, within a round. "
        f"Taken by others meanwhile: {others}; while they hold a core, CPU figures get lower, not higher."
    )


def failures(chosen: list[Peer]) -> list[str]:
    return [
        f"{peer.name}: {peer.rounds.count(None)} of {len(peer.rounds)} rounds failed: {peer.failure}."
        for peer in chosen
        if peer.failure
    ]


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def number(value: float) -> str:
    """With thin air between thousands, as elsewhere on the page."""
    return f"{value:,.0f}".replace(",", " ")


if __name__ == "__main__":
    sys.exit(main())
