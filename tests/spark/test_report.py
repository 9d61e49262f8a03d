"""The report of tables that the pipeline wrote: layout and meaning are the same on both sides."""

from pathlib import Path

import pytest

from hopline.capture.jsonl import Import
from hopline.report.making import make_report
from hopline.report.read.facts import read_facts
from hopline.spark.run import Asked, Pipeline
from tests.spark.lake import rows_of

NOTHING = "the capture has no segments: was anything recorded or imported?"
EXAMPLE = Path(__file__).parents[2] / "examples" / "flow.jsonl"


def test_it_reads_what_the_pipeline_writes(spark, tmp_path):
    captures, tables = tmp_path / "captures", tmp_path / "tables"
    with Import(str(captures)) as target:
        target.add(EXAMPLE)
    Pipeline(str(captures), str(tables), Asked(), session=lambda _: spark).run()
    facts = read_facts(tables, top=5)
    assert facts.seen.sightings == len(rows_of(tables, "messages"))
    assert sum(facts.moves.ends.total()) == sum(row["kind"] == "network" for row in rows_of(tables, "hops"))
    waits = {row["outcome"] for row in rows_of(tables, "callbacks")}
    assert {key[0] for key, _ in facts.answers.outcomes.ordered()} == waits == {"ok", "exception", "pending"}
    assert {flow.key for flow in facts.slowest} == {row["correlation_key"] for row in rows_of(tables, "flows")}
    assert sum(link.messages for link in facts.links.between("node")) == sum(facts.moves.ends.total())
    assert facts.empty["rejects"] == "every record is a message", "the reason is the one of the run"
    made = make_report(tables, tmp_path / "report.html", title="Orders", top=5)
    assert "ValueError" in " ".join(finding.text for finding in made.found)


@pytest.mark.parametrize("name", ["", "notes.txt"], ids=["an empty folder", "a folder of something else"])
def test_a_folder_that_holds_no_capture(spark, tmp_path, name):
    captures, tables = tmp_path / "captures", tmp_path / "tables"
    captures.mkdir()
    if name:
        (captures / name).write_text("no capture")
    Pipeline(str(captures), str(tables), Asked(), session=lambda _: spark).run()
    made = make_report(tables, tmp_path / "report.html", title="Orders", top=5)
    assert made.empty
    assert set(made.empty.values()) == {NOTHING}
