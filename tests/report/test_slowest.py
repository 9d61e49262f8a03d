"""The slowest flows: what one burst made does not hide all others."""

import pytest

from hopline.report.making import make_report
from hopline.report.read.facts import read_facts
from tests.report.page import text_of
from tests.report.tables import START, Shop, at, write_tables


@pytest.fixture
def burst():
    """A hundred slow orders, one like the other, three that were fast, two slow prices, and one question of stock."""
    made = Shop()
    for number in range(100):
        made.ask(number * 1.0, 786.0 + number / 1000)
    for number in range(3):
        made.ask(2000.0 + number, 5.0)
    for took_ms in (60.0, 50.0, 40.0):
        made.ask(3000.0, took_ms, request="PRICE.GET", response="PRICE")
    made.ask(4000.0, 3.0, request="STOCK.GET", response="STOCK")
    return made.rows


def drawn(rows, tmp_path, top):
    return read_facts(write_tables(tmp_path / "tables", rows), top=top).drawn


def test_two_of_each_type_come_first(burst, tmp_path):
    found = [(flow.root_identity, flow.duration_ms) for flow in drawn(burst, tmp_path, 8)]
    assert found == [
        ("ORDER.PLACE", 786.099),
        ("ORDER.PLACE", 786.098),
        ("PRICE.GET", 60.0),
        ("PRICE.GET", 50.0),
        ("STOCK.GET", 3.0),
        ("ORDER.PLACE", 786.097),
        ("ORDER.PLACE", 786.096),
        ("ORDER.PLACE", 786.095),
    ]


def test_all_of_them_have_their_steps(burst, tmp_path):
    assert {len(flow.steps) for flow in drawn(burst, tmp_path, 8)} == {3}


def test_not_more_than_asked_for(burst, tmp_path):
    assert [flow.root_identity for flow in drawn(burst, tmp_path, 3)] == ["ORDER.PLACE", "ORDER.PLACE", "PRICE.GET"]


def test_one_type_alone(tmp_path):
    made = Shop()
    for number in range(9):
        made.ask(number * 10.0, 5.0 + number)
    found = drawn(made.rows, tmp_path, 5)
    assert [flow.duration_ms for flow in found] == [13.0, 12.0, 11.0, 10.0, 9.0]


def test_more_types_than_can_be_drawn(tmp_path):
    made = Shop()
    for number in range(1200):
        made.ask(number * 10.0, 5.0 + number % 1000, request=f"T{number:04}", response="DONE")
    found = drawn(made.rows, tmp_path, 3)
    assert [flow.root_identity for flow in found] == ["T0999", "T0998", "T0997"]


def test_it_is_said_how_many_were_alike(burst, tmp_path):
    make_report(write_tables(tmp_path / "tables", burst), tmp_path / "r.html", title="Orders", top=8)
    said = text_of(tmp_path / "r.html")["flows"]
    assert "The slowest two of each type come first" in said
    assert said.count("102 other flows began with it; 99 of them took about as long.") == 1
    assert "2 other flows began with it, and took less." in said
    assert said.count("began with it") == 2, "once for each type, and nothing of one that is alone"


def test_nothing_is_said_of_an_order_that_is_the_usual_one(tmp_path):
    made = Shop()
    made.ask(0.0, 5.0)
    make_report(write_tables(tmp_path / "tables", made.rows), tmp_path / "r.html", title="Orders", top=8)
    assert "come first" not in text_of(tmp_path / "r.html")["flows"]


def test_many_flows(tmp_path):
    """Beyond a few thousand values they are counted by size."""
    flow = {"root_identity_key": "A", "messages": 1}
    rows = [
        flow | {"correlation_key": f"f{number:05}", "started_at": START, "duration_ms": 100.0 if number < 5000 else 1.0}
        for number in range(6000)
    ]
    root = read_facts(write_tables(tmp_path / "tables", {"flows": rows}), top=3).flows.roots["A"]
    assert (root.duration.count, root.duration.count_from(90.0), root.duration.count_from(0.5)) == (6000, 5000, 6000)


@pytest.mark.parametrize(
    ("times", "sentence"),
    [
        ([100.0, 95.0], "1 other flow began with it, and took about as long."),
        ([100.0, 95.0, 90.0], "2 other flows began with it; all of them took about as long."),
        ([100.0, 95.0, 89.0], "2 other flows began with it; 1 of them took about as long."),
        ([100.0, 5.0], "1 other flow began with it, and took less."),
    ],
)
def test_how_it_is_said(tmp_path, times, sentence):
    made = Shop()
    for took_ms in times:
        made.ask(0.0, took_ms)
    make_report(write_tables(tmp_path / "tables", made.rows), tmp_path / "r.html", title="Orders", top=8)
    assert sentence in text_of(tmp_path / "r.html")["flows"]


# --- where a chart begins ---------------------------------------------------------------------------------------------


def times(flow):
    return [(step.source, step.target, step.begin_ms, step.end_ms) for step in flow.steps]


def test_a_message_is_drawn_when_it_left_and_before_that_inside(tmp_path):
    made = Shop()
    made.tell(100.0, 504.25, 2.5)
    (flow,) = drawn(made.rows, tmp_path, 3)
    assert times(flow) == [("shop", "shop", 0.0, 504.25), ("shop", "store", 504.25, 506.75)]
    assert (flow.duration_ms, flow.raw_ms) == (506.75, None)
    make_report(tmp_path / "tables", tmp_path / "r.html", title="Orders", top=3)
    said = text_of(tmp_path / "r.html")["flows"]
    assert "inside shop 0 ms to 504 ms 504 ms" in said
    assert "shop → store 504 ms to 507 ms 2.5 ms" in said


def test_a_message_that_left_at_once_was_not_inside_for_long(tmp_path):
    made = Shop()
    made.tell(0.0, 0.5, 99.5)
    (flow,) = drawn(made.rows, tmp_path, 3)
    assert times(flow) == [("shop", "store", 0.5, 100.0)]


def test_what_came_before_a_sending_that_nobody_saw_is_not_said(tmp_path):
    made = Shop()
    made.tell(0.0, 504.0, 2.0, sent_at=None, latency_ms=None)
    (flow,) = drawn(made.rows, tmp_path, 3)
    assert times(flow) == [("shop", "store", None, 506.0)]


@pytest.mark.parametrize("ahead_ms", [3_600_000.0, -100.0])
def test_it_begins_by_the_clock_of_who_began_it(tmp_path, ahead_ms):
    """The store's clock is an hour ahead, or behind by less than the message was in the shop."""
    made = Shop()
    made.tell(0.0, 504.0, 2.0, received_at=at(506.0 + ahead_ms), latency_ms=2.0 + ahead_ms, skew_ms=ahead_ms)
    made.rows["flows"][0]["duration_ms"] += ahead_ms
    (flow,) = drawn(made.rows, tmp_path, 3)
    assert times(flow) == [("shop", "shop", 0.0, 504.0), ("shop", "store", 504.0, 506.0)]
    assert flow.duration_ms == 506.0


def test_unless_another_clock_was_behind_that(tmp_path):
    """Then `started_at` is when the store got it, by its clock, and how long it was in the shop is in no row."""
    made = Shop()
    came = at(506.0 - 3_600_000.0)
    made.tell(0.0, 504.0, 2.0, received_at=came, latency_ms=2.0 - 3_600_000.0, skew_ms=-3_600_000.0)
    made.rows["flows"][0] |= {"started_at": came, "duration_ms": 3_600_000.0 - 2.0}
    (flow,) = drawn(made.rows, tmp_path, 3)
    assert times(flow) == [("shop", "store", 0.0, 2.0)]
    assert flow.duration_ms == 2.0
