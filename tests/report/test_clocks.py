"""Clocks: what nobody can know of them is said beside the numbers that depend on it."""

import pytest

from hopline.report.making import make_report
from tests.report.page import text_of
from tests.report.tables import Shop, write_tables


@pytest.fixture
def said(tmp_path):
    """What each section says of some rows."""

    def said(rows):
        make_report(write_tables(tmp_path / "tables", rows), tmp_path / "r.html", title="Orders", top=3)
        return text_of(tmp_path / "r.html")

    return said


def test_pairs_whose_clocks_nothing_compares_are_named(said):
    made = Shop()
    made.move(0.0, 5.0, "shop", "store", "ORDER", "flow", b"1", skew_ms=None)
    made.move(0.0, 5.0, "store", "bank", "PAY", "flow", b"2", skew_ms=None)
    made.move(0.0, 5.0, "shop", "bank", "PAY", "flow", b"3")
    found = said(made.rows)["latency"]
    assert "as no messages of flows were seen to go both ways on one day." in found
    assert "and right if these agree: shop → store, store → bank." in found


def test_and_may_be_nonsense_if_other_clocks_differ(said):
    made = Shop()
    made.move(0.0, 5.0, "shop", "store", "ORDER", "flow", b"1", skew_ms=None)
    made.move(0.0, 905.0, "shop", "bank", "PAY", "flow", b"2", skew_ms=900.0)
    assert "may be nonsense, for clocks of nodes do differ here: shop → store." in said(made.rows)["latency"]


def test_many_of_them(said):
    made = Shop()
    for number in range(20):
        made.move(0.0, 5.0, "shop", f"store-{number:02}", "ORDER", "flow", b"1", skew_ms=None)
    assert "shop → store-07 and 12 more." in said(made.rows)["latency"]


def test_nothing_is_said_if_all_were_compared(said):
    made = Shop()
    made.ask(0.0, 5.0)
    assert "Nothing compares" not in said(made.rows)["latency"]


# --- latencies below zero ---------------------------------------------------------------------------------------------


def test_clocks_that_are_apart_by_more_than_the_latency(said):
    made = Shop()
    made.move(0.0, -1.31, "bank", "shop", "PAID", "flow", b"1", skew_ms=None)
    made.move(0.0, 5.0, "shop", "store", "ORDER", "flow", b"2", skew_ms=None)
    found = said(made.rows)
    why = "below 0: the clocks of the two are apart by more than the latency, or the times are too close to tell"
    assert f"bank → shop {why} -1.31 ms -1.31 ms -1.31 ms" in found["latency"]
    assert "shop → store 5 ms" in found["latency"]
    assert "bank → shop: 1 message, p50 -1.31 ms, p95 -1.31 ms (below 0: see how long it took)" in found["services"]
    assert "1 · -1.31 ms" not in found["services"], "no room for a word there"


def test_clocks_that_were_compared(said):
    made = Shop()
    made.move(0.0, 899.0, "bank", "shop", "PAID", "flow", b"1", skew_ms=900.0)
    why = "below 0, though the clocks were compared: the times are too close to tell"
    assert f"bank → shop {why} -1 ms" in said(made.rows)["latency"]


def test_only_some_of_them(said):
    made = Shop()
    for took_ms in (-2.0, -1.0, 7.0):
        made.move(0.0, took_ms, "bank", "shop", "PAID", "flow", b"1", skew_ms=None)
    found = said(made.rows)
    assert "too close to tell -1 ms 7 ms 7 ms" in found["latency"]
    assert "3 · 7 ms" in found["services"]


def test_a_wait_below_zero(said):
    made = Shop()
    made.ask(0.0, 5.0)
    made.rows["callbacks"][0]["wait_ms"] = -3.0
    assert "ORDER.PLACE → ORDER.PLACED below 0: seen by two clocks" in said(made.rows)["latency"]
