"""Words of the page: each says one thing, and none says the contrary of another."""

import re

import pytest

from hopline.report.making import make_report
from tests.report.page import text_of
from tests.report.tables import START, Shop, shop, with_ids, write_tables


@pytest.fixture
def said(tmp_path):
    """What each section says of some rows."""

    def said(rows, **more):
        make_report(write_tables(tmp_path / "tables", rows, **more), tmp_path / "r.html", title="Orders", top=3)
        return text_of(tmp_path / "r.html")

    return said


def test_requests_without_an_answer_are_not_called_answered(said):
    made = Shop()
    for number in range(17):
        made.ask(number * 10.0, 5.0, outcome="expired", node=None)
    made.ask(900.0, 5.0, request="PRICE.GET", outcome="pending")
    made.ask(950.0, 5.0, request="STOCK.GET", response="STOCK", outcome="late")
    found = said(made.rows)["services"]
    assert "cause → effect times failures answered too late example flow" in found
    assert "ORDER.PLACE → no answer, time is over 17 0 0 flow-0001" in found
    assert "PRICE.GET → no answer yet 1 0 0 flow-0018" in found
    assert "STOCK.GET → STOCK 1 0 1 flow-0019" in found


def test_a_wait_that_only_others_saw_is_counted_and_not_measured(said):
    made = Shop()
    for number in range(6):
        made.ask(number * 10.0, 10.0)
    for number in range(3):
        made.ask(100.0 + number, 35.0, asker_captured=False)
    made.ask(200.0, 1.0, request="PRICE.GET", response="PRICE", asker_captured=False)
    found = said(made.rows)
    assert (
        "A wait needs the node that asked: 6 of 10 answers came to one that was captured. 4 went to nodes"
        in found["latency"]
    )
    assert "p99 0 to 10 ms measured asker not captured ORDER.PLACE → ORDER.PLACED 10 ms 10 ms 10 ms" in found["latency"]
    assert "1 kind of answers only to nodes that were not captured: no wait" in found["latency"]
    assert "PRICE.GET → PRICE 1" in found["latency"]
    assert "asked ORDER.PLACE as others saw it, not who asked ok 35 ms" in found["flows"]


def test_no_asker_was_captured(said):
    made = Shop()
    made.ask(0.0, 35.0, asker_captured=False)
    found = said(made.rows)["latency"]
    assert "0 of 1 answer came to one that was captured. 1 went to a node that nobody captured" in found
    assert "Nothing to show. No node that asked was captured." in found
    assert "no request was answered" not in found.lower()


def test_where_all_askers_were_captured_nothing_is_said_of_it(said):
    made = Shop()
    made.ask(0.0, 35.0)
    found = said(made.rows)
    assert "A wait needs" not in found["latency"]
    assert "asker not captured" not in found["latency"]
    assert "as others saw it" not in found["flows"]


def test_the_whole_id_of_a_flow_is_text(said):
    rows = with_ids(shop())
    flows = {row["correlation_key"] for row in rows["flows"]}
    found = said(rows)
    for name in ("services", "answers", "losses", "flows"):
        shown = re.findall(r"[0-9a-f]{8}-[0-9a-f]{4}-\S*", found[name])
        assert shown, name
        assert set(shown) <= flows, name


ZEROS = "00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize("none", [ZEROS, ""], ids=["zeros", "empty"])
def test_what_belongs_to_no_flow_has_no_example(said, none):
    """`hopline trace` could not show it."""
    made = Shop()
    made.move(0.0, None, "shop", "store", "NEWS", none, b"1", lost=True)
    made.ask(10.0, 5.0, outcome="exception", error=("ValueError", "no such order"))
    made.ask(20.0, 5.0, request="PRICE.GET", outcome="pending")
    for row in (*made.rows["hops"], *made.rows["callbacks"]):
        row["correlation_key"] = none
    found = said(made.rows)
    assert ZEROS not in found["losses"] + found["answers"]
    assert "shop → store NEWS 1 shop → store PRICE.GET 1" in f"{found['losses']} "
    assert "not known" not in found["losses"]


def test_an_example_is_one_that_can_be_looked_at(said):
    made = Shop()
    for flow in (ZEROS, "", "flow"):
        made.move(0.0, None, "shop", "store", "NEWS", flow, b"1", lost=True)
        made.ask(10.0, 5.0, outcome="exception", error=("ValueError", "no such order"))
        made.rows["callbacks"][-1]["correlation_key"] = flow
    found = said(made.rows)
    assert "shop → store NEWS 3 flow" in found["losses"]
    assert "no such order flow" in found["answers"]


@pytest.mark.parametrize("unseen", [0, 1])
def test_of_what_was_not_seen_to_arrive_no_more_is_said(said, unseen):
    """It may never have left: then nobody failed to capture where it went."""
    times = {"hour": START, "identity_key": "PRICE.GET", "ttl_ms": 3000.0, "sent": 3 + unseen, "in_time": 3}
    found = said({"expiries": [times]})["expiries"]
    assert f"never arrived 0 (0 %) not seen to arrive {unseen} (" in found
    assert ("nothing was captured, or nothing after its time was over." in found) == bool(unseen)


def test_too_late_on_one_way_is_not_too_late_in_all(said):
    """It took 2 ms of its 200 from node to node, after 504 in the shop: `expiries` has it as late, and `edges` has not."""
    made = Shop()
    made.tell(0.0, 504.0, 2.0)
    made.rows["expiries"] = [{"hour": START, "identity_key": "STOCK.COUNT", "ttl_ms": 200.0, "sent": 1, "late": 1}]
    found = said(made.rows)
    assert "Of 1 message with a time to live, 1 arrived too late." in found["found"]
    assert "too late on that way alone (time to live counts from the first sighting)." in found["services"]


# --- small words ------------------------------------------------------------------------------------------------------


def test_nothing_is_said_of_what_there_is_none(said):
    made = Shop()
    made.ask(0.0, 5.0)
    found = said(made.rows)
    assert "2 of 2 moves were seen where they began and where they ended. Latency between nodes" in found["latency"]
    assert not re.search(r"\b0 (were|should|only)", found["latency"])
    assert "something failed" not in found["flows"]
    assert "not all was seen" not in found["flows"]


def test_one_end_of_one_move(said):
    made = Shop()
    made.move(0.0, 5.0, "shop", "store", "ORDER", "flow", b"1")
    made.move(0.0, None, "shop", "till", "ORDER", "flow", b"2")
    made.move(0.0, None, "shop", "store", "ORDER", "flow", b"3", lost=True)
    found = said(made.rows)["latency"]
    assert "1 of 3 moves was seen where it began and where it ended." in found
    assert "1 was seen only where it was sent, as the receiver was not captured, or not all of it; 1 should" in found
    assert "arrived" not in found


def test_a_sentence_ends_once(said, tmp_path):
    tables = write_tables(tmp_path / "tables", shop(orders=1))
    for name in ("messages", "hops"):
        next((tables / name).rglob("*.parquet")).write_bytes(b"no parquet, but as long as one would be at least")
    make_report(tables, tmp_path / "r.html", title="Orders", top=3)
    found = text_of(tmp_path / "r.html")
    assert "What it would tell is missing here." in found["header"]
    for name, text in found.items():
        assert ".." not in text, name


def test_the_footer(said):
    made = Shop()
    made.ask(0.0, 5.0)
    footer = said(made.rows)["footer"]
    assert "Made of the tables in the folder tables, which are of 2026-11-15, brought up to date by run 2026" in footer
    assert "which have no day yet" in said({}, made=[])["footer"]


# --- keys that may be wrong -------------------------------------------------------------------------------------------


def verdicts(*rows):
    names = ("domain", "node_key", "status", "messages")
    return {"signatures": [{"hour": START} | dict(zip(names, row, strict=True)) for row in rows]}


def test_if_nothing_is_valid_the_key_may_be_wrong(said):
    found = said(verdicts(("orders", "shop", "invalid", 5), ("orders", "bank", "invalid", 2), ("", "shop", "unsigned", 9)))
    doubt = "or the key that was given is wrong"
    assert (
        f"7 sightings with a signature that is not of its domain's key: forged, or changed on the way; {doubt}"
        in (found["found"])
    )
    assert f"forged or changed {doubt}: none of this domain is valid there orders shop 5" in found["signatures"]


def test_if_something_is_valid_the_key_is_right(said):
    found = said(verdicts(("orders", "shop", "invalid", 5), ("orders", "shop", "valid", 1)))
    assert "key that was given" not in found["found"] + found["signatures"]


def test_at_one_node_of_two(said):
    rows = verdicts(("orders", "shop", "invalid", 5), ("orders", "shop", "valid", 1), ("orders", "bank", "invalid", 2))
    found = said(rows)
    assert "forged, or changed on the way. See" in found["found"]
    assert "No signature of domain orders at node bank is valid: the key that was given may be wrong." in found["found"]
    assert found["signatures"].count("or the key that was given is wrong") == 1
