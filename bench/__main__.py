"""`make bench`: measure everything, print the table, and with --write put it into docs/benchmarks.md."""

import argparse
import platform
import sys
from pathlib import Path

from bench import columnar, wire
from bench.timing import Case, measure, ratio

PAGE = Path("docs/benchmarks.md")
START, END = "<!-- measured: start -->", "<!-- measured: end -->"


def main() -> int:
    """Measure and report; 1 if a target was missed in the quietest round."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="interleaved repeats (default 9)")
    parser.add_argument("--seconds", type=float, default=0.2, help="CPU seconds a case and round (default 0.2)")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE}")
    options = parser.parse_args()
    rows, batches = wire.cases(), columnar.cases()
    print(f"measuring {len(rows) + len(batches)} cases, {options.rounds} rounds ...", file=sys.stderr)
    measure(rows, rounds=options.rounds, seconds=options.seconds)
    measure(batches, rounds=options.rounds, seconds=options.seconds)
    report = "\n".join([machine(options.rounds), "", *row_table(rows), "", *batch_table(batches)])
    print(report)
    if options.write:
        before, _, rest = PAGE.read_text().partition(START)
        PAGE.write_text(f"{before}{START}\n\n{report}\n\n{END}{rest.partition(END)[2]}")
    missed = [case for case in rows + batches if case.target_us is not None and case.best_us > case.target_us]
    for case in missed:
        print(f"missed: {case.group} {case.name}: {case.best_us:.2f} us, target {case.target_us} us", file=sys.stderr)
    return 1 if missed else 0


def machine(rounds: int) -> str:
    """Name the machine the figures come from."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    cpu = f"{names[0]}, {len(names)} cores" if names else platform.processor() or "unknown processor"
    return (
        f"{cpu}; {platform.system()}, {platform.python_implementation()} {platform.python_version()}; "
        f"CPU time, median and quietest of {rounds} interleaved rounds."
    )


def row_table(cases: list[Case]) -> list[str]:
    """One row a case, with its ratio to msgspec's msgpack where there is one."""
    yardsticks = {case.name: case for case in cases if case.group == "msgpack"}
    lines = ["| | what | us a message | quietest | times msgpack | target |", "|---|---|---:|---:|---:|---:|"]
    for case in cases:
        times = f"{ratio(case, yardsticks[case.yardstick]):.1f}" if case.yardstick else ""
        lines.append(_line(case, times))
    return lines


def batch_table(cases: list[Case]) -> list[str]:
    """One row a case, with its ratio to copying the same batch."""
    by_name = {case.name: case for case in cases}
    lines = ["| | what | us a message | quietest | times copying | target |", "|---|---|---:|---:|---:|---:|"]
    for case in cases:
        times = f"{ratio(case, by_name[case.yardstick]):.1f}" if case.yardstick else ""
        lines.append(_line(case, times))
    return lines


def _line(case: Case, times: str) -> str:
    target = "" if case.target_us is None else f"{case.target_us:g}"
    return f"| {case.group} | {case.name} | {case.us:.2f} | {case.best_us:.2f} | {times} | {target} |"


if __name__ == "__main__":
    sys.exit(main())
