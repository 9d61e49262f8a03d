"""What was found: plain sentences, the grave ones first, and none about what nobody knows."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hopline.report.findings import findings
from hopline.report.read.facts import read_facts
from hopline.report.show.page import SECTIONS, page
from hopline.report.show.words import count
from tests.report.tables import START, Shop, write_tables


def found(tmp_path, rows, **more):
    return findings(read_facts(write_tables(tmp_path, rows, **more), top=3))


def texts(found):
    return [finding.text for finding in found]


def test_trouble_comes_first(tables):
    grades = [finding.grade for finding in findings(read_facts(tables, top=3))]
    assert grades == sorted(grades, key=["bad", "note", "good"].index)
    assert set(grades) == {"bad", "note"}


def test_each_leads_to_a_section(tables):
    assert {finding.section for finding in findings(read_facts(tables, top=3))} <= set(SECTIONS)


def test_the_numbers(tables):
    said = texts(findings(read_facts(tables, top=3)))
    assert said[:6] == [
        "7 requests of 63 failed (11 %); most often ORDER.PLACE, with ValueError.",
        "4 requests of 63 got no answer (6.3 %).",
        "4 messages got lost between nodes (1 of them system traffic): sent, and never seen where they should be.",
        "Of 45 messages with a time to live, 1 arrived too late and 3 never arrived.",
        "5 sightings with a signature that is not of its domain's key: forged, or changed on the way.",
        "1 sighting of valid messages that were seen there before: replayed.",
    ]


def test_signatures_are_counted_as_what_they_are(tables):
    """The table has sightings, of which a message has two or more, and not all of them are on a network."""
    said = [finding.text for finding in findings(read_facts(tables, top=3)) if finding.section == "signatures"]
    assert "20 of 121 sightings of messages between nodes are not signed (17 %)." in said
    assert "3 sightings with a signature that could not be checked." in said


@pytest.mark.parametrize(
    ("orders", "sentence"),
    [(1, "The only request was answered without a failure."), (3, "All 3 requests were answered without a failure.")],
)
def test_all_is_well(tmp_path, orders, sentence):
    shop = Shop()
    for number in range(orders):
        shop.ask(number * 10.0, 5.0)
    verdict = {"status": "valid", "messages": 2, "domain": "orders", "node_key": "shop"}
    rows = shop.rows | {"expiries": [{"identity_key": "A", "ttl_ms": 9.0, "sent": 2, "in_time": 2}], "signatures": [verdict]}
    good = [finding.text for finding in found(tmp_path, rows) if finding.grade == "good"]
    assert good == [
        sentence,
        "No message was lost between nodes whose captures cover both ends.",
        "Of 2 messages with a time to live, none was seen to arrive too late, or not to arrive.",
        "All signatures that could be checked are valid, in 2 sightings.",
    ]


@pytest.mark.parametrize(
    ("to", "sentence"),
    [
        ([], None),
        (["bank"], "1 message was seen only where it was sent, from shop to bank: "),
        ([None], "1 message was seen only where it was sent, from shop to a node that is not known: "),
        (["bank", "bank", "post"], "3 messages were seen only where they were sent, 2 of them from shop to bank: "),
    ],
)
def test_what_came_or_not_is_no_good_news(tmp_path, to, sentence):
    shop = Shop()
    shop.ask(0.0, 5.0)
    for node in to:
        shop.move(10.0, None, "shop", node, "PAY", "flow", b"1")
    doubts = [text for text in texts(found(tmp_path, shop.rows)) if "seen only where" in text]
    they = "it" if len(to) == 1 else "they"
    rest = f"the receiver was not captured, or not all the time, and whether {they} arrived is not known."
    assert doubts == ([f"{sentence}{rest}"] if sentence else [])
    facts = read_facts(tmp_path, top=3)
    section = page(facts, findings(facts), "Orders", 3, START)
    unknown = f"; of {count(len(to), 'message')} it is not known, as only the sender was captured"
    assert f"Nothing was lost between nodes that were captured{unknown if to else ''}.<" in section


@pytest.mark.parametrize(
    ("others", "rest"),
    [
        (0, "."),
        (1, "; 1 to nodes that were not captured is left out."),
        (3, "; 3 to nodes that were not captured are left out."),
    ],
)
def test_how_long_answers_took_is_what_askers_saw(tmp_path, others, rest):
    shop = Shop()
    shop.ask(0.0, 5.0)
    for number in range(others):
        shop.ask(10.0 + number, 35.0, asker_captured=False)
    text = f"Half of all answers came within 5 ms, 95 % within 5 ms, the slowest after 5 ms{rest}"
    assert text in texts(found(tmp_path, shop.rows))


def test_of_what_no_asker_saw_nothing_is_said(tmp_path):
    shop = Shop()
    shop.ask(0.0, 5.0, asker_captured=False)
    assert not any("came within" in text for text in texts(found(tmp_path, shop.rows)))


@pytest.mark.parametrize(
    ("others", "rest"),
    [
        (0, "."),
        (1, "; 1 move between nodes whose clocks could not be compared is not corrected."),
        (9, "; 9 moves between nodes whose clocks could not be compared are not corrected."),
    ],
)
def test_clocks_differ_by_what_was_found_and_maybe_more(tmp_path, others, rest):
    """The bank is 2 s ahead of the shop, and the store 1.5 s behind: 3.5 s apart, which nothing shows."""
    shop = Shop()
    shop.move(0.0, 2005.0, "shop", "bank", "PAY", "flow", b"1", skew_ms=2000.0)
    shop.move(0.0, -1495.0, "shop", "store", "ORDER", "flow", b"2", skew_ms=-1500.0)
    for _ in range(others):
        shop.move(0.0, -3495.0, "bank", "store", "PAID", "flow", b"3", skew_ms=None)
    text = f"Clocks of nodes differ by up to 2 s where they could be compared, and latencies are corrected for it{rest}"
    assert text in texts(found(tmp_path, shop.rows))


def test_a_reason_of_a_time_that_cannot_be_is_none(tmp_path):
    tables = write_tables(tmp_path, {}, reasons={"messages": "nothing was seen"})
    (path,) = (tables / "runs").iterdir()
    runs = pq.read_table(path)
    never = pa.array([2**62], pa.timestamp("us", "UTC"))
    pq.write_table(runs.set_column(runs.schema.get_field_index("started_at"), "started_at", never), path)
    (said,) = texts(findings(read_facts(tables, top=3)))
    assert said.startswith("There is nothing to tell")
    assert "nothing was seen" not in said


def test_what_nobody_looked_at_is_not_praised(tmp_path, rows):
    said = texts(found(tmp_path, rows, made=["messages"]))
    assert said == ["There is nothing to tell but the traffic itself: no other table was made, or has rows."]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            ("flows", "edges"),
            [
                "In 7 flows of 63 something failed (11 %).",
                "4 requests got no answer.",
                "3 messages got lost between nodes, system traffic left out: sent, and never seen where they should be.",
                (
                    "The tables hops, callbacks, expiries and signatures were not made, or cannot be read: "
                    "what they would tell is missing here."
                ),
            ],
        ),
        (
            ("edges", "hops", "callbacks", "flows", "signatures"),
            ["The table expiries was not made, or cannot be read: what it would tell is missing here."],
        ),
        (
            ("edges", "expiries", "signatures"),
            ["7 messages between nodes are failures."],
        ),
    ],
)
def test_tables_of_which_some_were_not_made(tmp_path, rows, made, said):
    found = texts(findings(read_facts(write_tables(tmp_path, rows, made=["messages", "rejects", *made]), top=3)))
    assert set(said) <= set(found)
    assert not any("nothing to tell" in text for text in found)


@pytest.mark.parametrize(("made", "times"), [(("edges",), 1), (("edges", "expiries"), 0)])
def test_what_was_too_late_on_one_way_is_told_if_nothing_else_tells_of_it(tmp_path, made, times):
    shop = Shop()
    shop.tell(0.0, 1.0, 2.0)
    shop.rows["edges"][0]["expired"] = 1
    said = texts(found(tmp_path, shop.rows, made=["messages", *made]))
    assert said.count("1 message was longer on its way from one node to the next than its time to live.") == times


def test_of_edges_whole_minutes_are_told(tmp_path, rows):
    facts = read_facts(write_tables(tmp_path, rows, made=["messages", "edges"]), top=3, since=START)
    assert any(text.endswith("where they should be (of whole minutes).") for text in texts(findings(facts)))


def test_tables_that_say_nothing_of_interest(tmp_path):
    shop = Shop()
    shop.tell(0.0, 1.0, 2.0)
    shop.rows["hops"] = []
    assert texts(found(tmp_path, shop.rows)) == ["There is nothing to tell but the traffic itself."]


def test_nothing_at_all(tmp_path):
    assert texts(found(tmp_path, {}, reasons={"messages": "nothing was seen"})) == [
        "There is nothing to tell: nothing was seen."
    ]


def test_of_how_many_records_is_said_only_if_messages_can_be_read(tmp_path):
    shop = Shop()
    shop.ask(0.0, 5.0)
    path = write_tables(tmp_path, shop.rows | {"rejects": [{"code": "WIRE_TRUNCATED", "reason": "short"}]})
    sightings = len(shop.rows["messages"])
    assert f"1 record of {sightings + 1} is unreadable." in texts(findings(read_facts(path, top=3)))
    for part in (path / "messages").rglob("*.parquet"):
        part.write_bytes(b"no Parquet")
    assert "1 record is unreadable." in texts(findings(read_facts(path, top=3)))
