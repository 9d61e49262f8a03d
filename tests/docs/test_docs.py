"""Documentation is executed: docstrings, README, pages, generated pages, the demo."""

import doctest
import importlib
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hopline
from hopline.errors import CODES

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULES = sorted(
    module.name for module in pkgutil.walk_packages(hopline.__path__, "hopline.") if "__main__" not in module.name
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "spark.md"], ids=lambda page: page.name)
def test_python_examples_in_pages(page):  # that of Spark is executed where its session is: tests/spark
    text = "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE))
    # As a person would type it; without a name classes would seem to be builtins.
    test = doctest.DocTestParser().get_doctest(text, {"__name__": "__main__"}, page.name, str(page), 0)
    assert doctest.DocTestRunner().run(test).failed == 0


@pytest.mark.slow  # an interpreter for each line
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_console_examples_in_pages(page):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for block in re.findall(r"^```console\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        for command, expected in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", block, re.MULTILINE):
            done = subprocess.run(
                command, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=50, check=False
            )
            assert done.stdout.strip() == expected.strip(), f"{command}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_generated_pages_are_up_to_date():
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_code_in_the_source_is_documented_and_used():
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    found = set(re.findall(r'"((?:WIRE|INPUT|SECURITY|PAYLOAD|TRANSPORT|CAPTURE|SPARK|REPLAY)_[A-Z_]+)"', source))
    variables = {"SPARK_CONF_DIR", "SPARK_HOME", "SPARK_LOCAL_IP", "SPARK_SUBMIT_OPTS"}  # of the environment
    assert found - variables <= set(CODES)
    assert {code for code in CODES if source.count(f'"{code}"') < 2} == set()  # once is its own entry


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.timeout(300)
def test_the_demo_tells_the_whole_story(tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=290,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    happened = ("180 placed, 20 REMOTE_ERROR", "20 of 20 orders answered, in v5", "NO_ROUTE", "and starts again")
    found = ("failed", "got no answer", "30 arrived too late", "forged", "1 record of")
    for words in (*happened, *found):
        assert words in done.stdout, done.stdout
    page = (tmp_path / "build" / "demo" / "report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "ORDER.PLACE" in page
