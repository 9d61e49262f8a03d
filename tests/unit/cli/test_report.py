"""hopline report: what it says, and how it ends."""

import subprocess
import sys
from io import StringIO

import pytest
from rich.console import Console

from hopline.cli.report import show_made
from tests.report.tables import shop, write_tables


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return str(write_tables(tmp_path_factory.mktemp("tables"), shop()))


def test_a_report(here, tables, tmp_path):
    path = tmp_path / "r.html"
    result = here("report", tables, "-o", str(path), "--title", "Orders & prices", "--top", "3")
    assert (result.code, result.errors) == (0, "")
    (made,) = result.lines
    assert (made["ok"], made["report"], made["flows"], made["empty"]) == (True, str(path), 63, {})
    assert made["found"][0]["text"].startswith("7 requests of 63 failed")
    text = path.read_text(encoding="utf-8")
    assert "<h1>Orders &amp; prices</h1>" in text
    assert text.count('class="flow"') == 3
    assert list(tmp_path.iterdir()) == [path], "nothing is left beside it"


def test_it_replaces_an_older_one(here, tables, tmp_path):
    path = tmp_path / "r.html"
    path.write_text("old")
    assert here("report", tables, "-o", str(path)).code == 0
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_where_it_is_if_nothing_is_said(here, tables, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert here("report", tables).code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_some_time(here, tables, tmp_path):
    (made,) = here("report", tables, "-o", str(tmp_path / "r"), "--since", "2026-11-15T09:00:30Z").lines
    assert 0 < made["flows"] < 63
    (made,) = here("report", tables, "-o", str(tmp_path / "r"), "--until", "2026-11-15T09:00:00Z").lines
    assert made["flows"] == 0
    assert "time that was asked for" in made["empty"]["flows"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--top", "0"], "0 is not in the range"),
        (["--top", "1000"], "1000 is not in the range"),
        (["--since", "yesterday"], "--since must be a time"),
        (["-o", "."], "-o must be a file"),
    ],
)
def test_wrong_usage(here, tables, options, complaint):
    result = here("report", tables, *options)
    assert result.code == 2
    assert complaint in " ".join(result.errors.split())


def test_no_tables(here, tmp_path):
    result = here("report", str(tmp_path / "nothing"), "-o", str(tmp_path / "r.html"))
    assert (result.code, result.lines) == (2, [])
    assert result.errors.startswith("hopline: TABLES_NOT_FOUND: ")
    assert "hopline pipeline run" in result.errors
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written(here, tables, tmp_path):
    result = here("report", tables, "-o", str(tmp_path / "no" / "such" / "r.html"))
    assert result.code == 1
    assert "cannot write" in result.errors


def test_neither_spark_nor_java_nor_pandas_is_needed(tables, tmp_path):
    """They are not there, and nobody misses them."""
    script = """
import sys
class Missing:
    def find_spec(self, name, *_):
        if name.startswith(("pyspark", "py4j", "pandas", "duckdb", "hopline.spark")):
            raise ModuleNotFoundError(name=name)
sys.meta_path.insert(0, Missing())
from hopline.cli import app
app(["report", *sys.argv[1:]])
"""
    done = subprocess.run(
        [sys.executable, "-c", script, tables, "-o", str(tmp_path / "r.html")],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        env={"PATH": "", "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r.html").exists()


def test_to_a_person():
    console = Console(file=StringIO(), width=80, highlight=False)
    found = [{"grade": "bad", "text": "[b]3 requests failed."}, {"grade": "good", "text": "All signatures are valid."}]
    show_made(console, {"found": found, "report": "out/r.html"})
    assert console.file.getvalue() == "✕ [b]3 requests failed.\n✓ All signatures are valid.\n\nout/r.html\n"
