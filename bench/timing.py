"""Interleaved measuring: every case in every round, CPU time, ratios within a round.

On a shared machine the clock on the wall says little and one round may be slower than the next. So cases take turns, only
CPU time of this process counts, and a ratio is formed inside one round before the median is taken over rounds.
"""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median


@dataclass
class Case:
    """Something to measure: `run` does the work for `messages` messages at once."""

    group: str
    name: str
    run: Callable[[], object]
    messages: int = 1
    yardstick: str = ""
    target_us: float | None = None
    samples: list[float] = field(default_factory=list)

    @property
    def us(self) -> float:
        """Median microseconds of CPU a message."""
        return median(self.samples)

    @property
    def best_us(self) -> float:
        """The quietest round."""
        return min(self.samples)


def measure(cases: list[Case], *, rounds: int, seconds: float) -> None:
    """Run all cases in turn, `rounds` times, each for about `seconds` of CPU time a round."""
    loops = {id(case): _loops(case, seconds) for case in cases}
    gc.disable()
    try:
        for _ in range(rounds):
            for case in cases:
                case.samples.append(_time(case, loops[id(case)]))
            gc.collect()
    finally:
        gc.enable()


def ratio(case: Case, yardstick: Case) -> float:
    """How many times the yardstick, as the median over rounds."""
    return median(mine / theirs for mine, theirs in zip(case.samples, yardstick.samples, strict=True))


def _time(case: Case, loops: int) -> float:
    run = case.run
    start = time.process_time_ns()
    for _ in range(loops):
        run()
    return (time.process_time_ns() - start) / 1000 / loops / case.messages


def _loops(case: Case, seconds: float) -> int:
    loops = 1
    while True:
        spent = _time(case, loops) * loops * case.messages / 1e6
        if spent > seconds / 10:
            return max(1, round(loops * seconds / spent))
        loops *= 4
