"""Never two leaders, in a short simulation; the long one is `make simulate`. And: a broken rule is found."""

import subprocess
import sys

import pytest

from hopline.cluster import LeaseMember
from tests.simulation.broken import BROKEN
from tests.simulation.world import NoLeaderError, TwoLeadersError, World

SEEDS = range(30)
STEPS = 40_000
"""Most broken rules are found in one world of that size, the subtlest in one of two."""


@pytest.mark.parametrize("members", [3, 4, 5])
def test_never_two_leaders(members):
    world = World(seed=members, members=members).run(100_000)
    everything = {"calms", "configurations", "crashes", "doubled", "late", "leaders", "leases", "lost"}
    assert world.counts.keys() == everything, "else it shows nothing"


def test_the_same_seed_gives_the_same_world():
    one, other = (World(seed=1).run(5_000) for _ in range(2))
    assert (one.now, one.counts) == (other.now, other.counts)
    assert World(seed=2).run(5_000).now != one.now


@pytest.mark.slow
@pytest.mark.parametrize(("world_type", "member_type"), BROKEN, ids=lambda kind: kind.__name__)
def test_a_broken_rule_is_found(world_type, member_type):
    """If this fails, the simulation has become too tame, or the rule is not needed: look before you change either."""
    for seed in SEEDS:
        try:
            world_type(seed, members=(3, 5)[seed % 2], member_type=member_type).run(STEPS)
        except TwoLeadersError:
            return
        except NoLeaderError:
            continue  # bad enough, but not what is looked for
    pytest.fail(f"{member_type.__name__}: no two leaders in {len(SEEDS)} worlds")


class NeverProposes(LeaseMember):
    def on_time(self, now_ticks):
        self._deadline = now_ticks + self.times.max_lease_ticks
        return []


def test_calm_without_a_leader_is_found():
    with pytest.raises(NoLeaderError, match=r"seed 0, step .*: calm, and no leader"):
        World(0, member_type=NeverProposes).run(STEPS)


def test_the_runner_tells_what_it_did():
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seeds", "2", "--steps", "2000"],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("seed 0: 3 members")
    assert "never two leaders" in done.stdout
