"""Nothing to show: the page says why, and the reason is the true one."""

import pytest

from hopline.report.making import make_report
from tests.report.page import text_of
from tests.report.tables import Shop, shop, write_tables

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


# --- only some tables -------------------------------------------------------------------------------------------------

ALWAYS = ("messages", "rejects")


def test_charts_of_tables_that_were_not_made(said):
    found = said(shop(orders=1), made=[*ALWAYS, "flows", "edges"])["flows"]
    assert "What was on its way is not drawn: the table hops was not made; `hopline pipeline run` without" in found
    assert "Who waited is not drawn: the table callbacks was not made; `hopline pipeline run` without" in found
    assert "None of its messages was seen to move" not in found
    assert "nobody waited" not in found
    assert "Nothing to show" not in found


@pytest.mark.parametrize(
    ("made", "sentence"),
    [("hops", "None of its messages was seen to move."), ("callbacks", "Nobody waited for an answer.")],
)
def test_of_what_one_table_lacks_the_other_says_nothing(said, made, sentence):
    rows = Shop()
    rows.tell(0.0, 1.0, 2.0)
    rows.rows["hops"] = []
    found = said(rows.rows, made=[*ALWAYS, "flows", made])["flows"]
    assert f"Nothing to show. {sentence}" in found
    assert found.count("is not drawn") == 1


def test_all_was_made_and_nothing_is_drawn(said):
    rows = Shop()
    rows.tell(0.0, 1.0, 2.0)
    rows.rows["hops"] = []
    found = said(rows.rows)
    assert "None of its messages was seen to move, and nobody waited for an answer." in found["flows"]
    assert "is not drawn" not in found["flows"]
    assert "There is nothing to tell but the traffic itself. See traffic" in found["found"]


def test_an_arrow_is_not_in_doubt_because_nobody_looked(said, tmp_path):
    for made, dashed in (([*ALWAYS, "edges"], 0), ([*ALWAYS, "edges", "hops"], 1)):
        rows = Shop()
        rows.move(0.0, None, "shop", "store", "ORDER", "flow", b"1")
        said(rows.rows, made=made)
        assert (tmp_path / "r.html").read_text().count('class="arrow ink half"') == dashed
