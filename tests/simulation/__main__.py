"""`make simulate`: many worlds, a million steps each.

It passes if no world ever has two leaders and every calm has one. What went wrong is told with its seed, which gives the
same world again; `--first SEED --seeds 1 --trace 40` shows the last steps of it, too.
"""

import argparse
import sys
import time
from collections import Counter

from tests.simulation.world import CALM_BOUND, START, TICKS_PER_SECOND, World


def main():
    parser = argparse.ArgumentParser(description="Look for two leaders.")
    parser.add_argument("--seeds", type=int, default=20, help="how many worlds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--steps", type=int, default=1_000_000, help="how long each lives")
    parser.add_argument("--trace", type=int, default=0, help="how many of the last steps to show if something is found")
    options = parser.parse_args()

    began = time.perf_counter()
    total, days, slowest = Counter(), 0.0, 0
    for seed in range(options.first, options.first + options.seeds):
        members = (3, 5)[seed % 2]
        world = World(seed, members=members, trace=options.trace)
        since = time.perf_counter()
        try:
            world.run(options.steps)
        except AssertionError as found:
            print(*world.told(), f"FOUND with {members} members: {type(found).__name__}: {found}", sep="\n")
            return 1
        hours = (world.now - START) / TICKS_PER_SECOND / 3600
        rate = options.steps / (time.perf_counter() - since)
        counts = " ".join(f"{name} {count}" for name, count in sorted(world.counts.items()))
        print(f"seed {seed}: {members} members, {hours:.1f} h, {rate:,.0f} steps/s, {counts}", flush=True)
        total["steps"] += options.steps
        total += world.counts
        days += hours / 24
        slowest = max(slowest, world.slowest_calm)
    took = time.perf_counter() - began
    print(
        f"{options.seeds} worlds, {days:.1f} days, {total['steps'] / took:,.0f} steps/s, in all:",
        dict(sorted(total.items())),
    )
    print(
        f"never two leaders; in calm one was there after {slowest / TICKS_PER_SECOND:.2f} s at the latest "
        f"(allowed {CALM_BOUND / TICKS_PER_SECOND:.2f} s), and stayed"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
