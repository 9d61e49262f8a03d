"""Nothing to show: the page says why, and the reason is the true one."""

import pytest

from hopline.report.making import make_report
from tests.report.page import text_of
from tests.report.tables import shop, write_tables

NO_SEGMENTS = "the capture has no segments: was anything recorded or imported?"
TABLES = ("messages", "rejects", "hops", "callbacks", "flows", "edges", "expiries", "signatures")
SECTIONS = ("traffic", "services", "latency", "flows", "answers", "losses", "expiries", "signatures", "formats", "clocks")


@pytest.fixture
def said(tmp_path):
    """What each section says of some tables."""

    def said(rows, **more):
        make_report(write_tables(tmp_path / "tables", rows, **more), tmp_path / "r.html", title="Orders", top=3)
        return text_of(tmp_path / "r.html")

    return said


def test_a_capture_without_anything(said):
    found = said({}, made=[], reasons=dict.fromkeys(TABLES, NO_SEGMENTS))
    for name in (*SECTIONS, "rejects"):
        assert "Nothing to show. The capture has no segments: was anything recorded or imported?" in found[name], name
    assert "There is nothing to tell: the capture has no segments" in found["found"]
    assert "was not made" not in " ".join(found.values())


def test_a_table_that_was_left_out(said):
    found = said(shop(orders=1), made=["messages", "rejects"], reasons={"flows": "it was left out by --only"})
    for name in ("flows", "signatures"):
        assert f"The table {name} was not made; `hopline pipeline run` without --only makes it." in found[name]
