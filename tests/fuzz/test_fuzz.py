"""The fuzzer itself: it runs clean, and it finds what is planted."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from hopline.wire import FORMATS, decode
from tests.fuzz import run, target

RUN = Path(run.__file__)

drivers = pytest.mark.parametrize(
    "driver",
    [
        pytest.param("atheris", marks=pytest.mark.skipif(not find_spec("atheris"), reason="atheris has no wheel here")),
        "random",
    ],
)


def fuzz(*arguments: str | Path, planted: bool = False) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop(target.PLANT, None)
    if planted:
        environment[target.PLANT] = "1"
    command = [sys.executable, str(RUN), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_the_corpus_holds_every_layout() -> None:
    layouts = {(name, variant) for name, module in FORMATS.items() for variant in module.VARIANTS}
    assert {(decoded.format, decoded.variant) for decoded in map(decode, target.CORPUS)} == layouts


@pytest.mark.parametrize("raw", [True, False])
def test_the_seeds_stand_for_the_corpus_and_break_no_rule(raw: bool) -> None:
    seeds = target.seeds(raw=raw)
    assert [target.frames_of(seed) for seed in seeds] == target.CORPUS
    assert max(map(len, seeds)) <= run.LONGEST_INPUT
    for seed in seeds:
        target.check(seed)


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0", b"\xff\xff", b"\0\0\xff\xff", b"\0\xff" * 200, bytes(3000)])
def test_any_bytes_stand_for_some_frames(data: bytes) -> None:
    target.check(data)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_short_run_is_clean(tmp_path: Path) -> None:
    done = fuzz("--short", "--artifacts", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"No rule was broken in [\d,]{5,} executions", done.stdout), done.stdout


@pytest.mark.slow
@pytest.mark.timeout(120)
@drivers
def test_a_planted_bug_is_found_kept_and_reproduced(driver: str, tmp_path: Path) -> None:
    done = fuzz("--seconds", "60", "--driver", driver, "--artifacts", tmp_path, planted=True)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "AssertionError: what was read is not written to the same bytes" in done.stdout
    named = re.search(r"kept in (.*)$", done.stdout, re.MULTILINE)
    assert named is not None
    kept = Path(named[1])
    assert kept.parent == tmp_path
    assert f"hex: {kept.read_bytes().hex()}\n" in done.stdout
    assert fuzz("--reproduce", kept, planted=True).returncode == 1
    assert fuzz("--reproduce", kept).returncode == 0


@pytest.mark.slow
@drivers
def test_so_many_runs_are_so_many_runs(driver: str, tmp_path: Path) -> None:
    done = fuzz("--runs", "3000", "--processes", "1", "--driver", driver, "--artifacts", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No rule was broken in 3,000 executions" in done.stdout


@pytest.mark.parametrize(
    ("peaks", "growth"),
    [
        pytest.param([], 0, id="nothing reported"),
        pytest.param([50], 0, id="one report"),
        pytest.param([20, 50, 50, 50], 0, id="grows in the warm-up alone"),
        pytest.param([20, 50, 60, 90], 40, id="grows after it"),
    ],
)
def test_memory_that_grows_after_the_warm_up_is_seen(peaks: list[int], growth: int) -> None:
    reports = [run.Report(1000 * (index + 1), index + 1.0, peak) for index, peak in enumerate(peaks)]
    assert run.growth_kib(reports, warm_up=0.5) == growth
