"""The page as text: nothing gets out of its place, whatever names say, and no section is silent."""

import re
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopline.report.findings import findings
from hopline.report.read.facts import read_facts
from hopline.report.show.charts import Colours, Layer, Mark, stack
from hopline.report.show.graph import MOST_ARROWS, MOST_NODES, Arrow, chosen, draw
from hopline.report.show.html import Html, joined, key, tag
from hopline.report.show.page import page
from hopline.report.show.words import clean, duration, moment, short
from tests.report.tables import EVIL, START, Shop, at, write_tables

SECTIONS = ("found", "traffic", "services", "latency", "flows", "answers", "losses", "expiries", "signatures", "formats")
SECTIONS = (*SECTIONS, "rejects", "clocks")
VOID = {"meta", "link", "br", "col"}
NOW = datetime(2026, 11, 16, tzinfo=UTC)


class Page(HTMLParser):
    """What a page is made of; it complains of elements that are not closed as they should be."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.ids, self.open = [], [], [], []
        self.sections, self.texts = {}, []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, name, attributes):
        self.tags.append(name)
        self.attributes += attributes
        self.ids += [value for given, value in attributes if given == "id"]
        if name not in VOID:
            self.open.append((name, dict(attributes).get("id")))

    def handle_endtag(self, name):
        assert self.open.pop()[0] == name

    def handle_data(self, text):
        self.texts.append(text)
        for name, id_ in self.open:
            if name == "section":
                self.sections[id_] = f"{self.sections.get(id_, '')}{text} "


def shown(tables, top=10, **asked):
    facts = read_facts(tables, top=top, **asked)
    return page(facts, findings(facts), "A title", top, NOW)


@pytest.fixture(scope="module")
def text(tables):
    return shown(tables)


def test_every_section_is_there_once(text):
    made = Page(text)
    assert tuple(made.sections) == SECTIONS
    assert len(made.ids) == len(set(made.ids))
    assert {value[1:] for name, value in made.attributes if name == "href" and value[0] == "#"} <= set(made.ids)


def test_names_are_text(text):
    made = Page(text)
    assert "script" not in made.tags
    assert "img" not in made.tags
    assert not [name for name, _ in made.attributes if name.startswith("on") or name == "style"]
    assert EVIL[:30] in "".join(made.texts), "and they are shown"


def test_nothing_is_asked_of_anybody(text):
    made = Page(text)
    links = [value for name, value in made.attributes if name in ("href", "src", "action", "content")]
    assert not [value for value in links if re.search(r"//|url\(|javascript", value)]
    assert not re.search(r"url\((?!#)|@import|@font-face", text)
    assert [value for _, value in made.attributes if value and value.startswith("default-src 'none'; style-src 'sha256-")]


def test_the_same_tables_give_the_same_page(tables, text):
    assert shown(tables) == text


def test_no_tables_at_all(tmp_path):
    said = Page(
        shown(write_tables(tmp_path, {}, reasons={"messages": "the capture has no segments: was anything recorded?"}))
    )
    assert tuple(said.sections) == SECTIONS
    assert "There is nothing to tell: the capture has no segments" in said.sections["found"]
    for name in SECTIONS[1:]:
        assert "Nothing to show." in said.sections[name], name


def test_tables_that_were_not_made(tmp_path, rows):
    said = Page(shown(write_tables(tmp_path, rows, made=["messages", "rejects"])))
    assert "Nothing to show." not in said.sections["traffic"]
    for name in ("services", "latency", "flows", "answers", "losses", "expiries", "signatures", "clocks"):
        assert "was not made" in said.sections[name], name


def test_a_time_in_which_nothing_happened(tables):
    said = Page(shown(tables, since=datetime(2027, 1, 1, tzinfo=UTC)))
    assert "no rows of the time that was asked for" in said.sections["traffic"]


def test_a_single_message(tmp_path):
    message = {"seen_at": START, "identity_key": "A", "format": "v6", "variant": "", "encoded": True, "node_key": "n"}
    assert "1 (100 %)" in " ".join(Page(shown(write_tables(tmp_path, {"messages": [message]}))).sections["traffic"].split())


def test_a_type_with_the_name_of_a_group(tmp_path):
    types = ["other types", "system (KINO.*, HOPLINE.*)", "KINO.PING", *(f"T{number}" for number in range(9))]
    messages = [{"seen_at": START, "identity_key": name} for number, name in enumerate(types, 1) for _ in range(number)]
    said = " ".join(Page(shown(write_tables(tmp_path, {"messages": messages}))).sections["traffic"].split())
    assert "system (KINO.*, HOPLINE.*) 3 (" in said, "system traffic alone"
    assert "other types 18 (" in said, "what has no colour: 1 + 2 + 4 + 5 + 6"


def test_system_traffic_is_one_band(tmp_path):
    types = ["KINO.PING", "HOPLINE.WATCH", "KINO.EXCEPTION", "ORDER.PLACE"]
    made = Page(shown(write_tables(tmp_path, {"messages": [{"seen_at": START, "identity_key": name} for name in types]})))
    said = " ".join(made.sections["traffic"].split())
    assert "system (KINO.*, HOPLINE.*) 2 (50 %) KINO.EXCEPTION 1 (25 %) ORDER.PLACE 1 (25 %)" in said
    assert "2 of the sightings are system traffic" in "".join(made.texts)


def test_system_traffic_is_nowhere_else(text):
    sections = Page(text).sections
    for name in ("services", "latency", "flows", "answers"):
        assert not re.search(r"HOPLINE\.(?!HANDLED)|KINO\.(?!EXCEPTION|RCPTCONFIRM)", sections[name]), name
    assert "4 in all, 1 of them system traffic." in " ".join(sections["losses"].split()), "what is lost is lost"


def test_nothing_but_system_traffic(tmp_path):
    made = Shop()
    made.ask(0.0, 50.0, request="HOPLINE.WATCH", response="HOPLINE.SEEN")
    sections = Page(shown(write_tables(tmp_path, made.rows))).sections
    for name in ("services", "latency", "flows", "answers"):
        assert "system traffic" in sections[name].split("Nothing to show.")[1], name


def test_a_time_to_live_is_one_row(text):
    said = " ".join(Page(text).sections["expiries"].split())
    assert said.count("PRICE.GET") == 1
    assert "PRICE.GET within 4.97 s 3 3 0 0 40 %" in said
    assert "arrived in time 40 (" in said


def test_one_is_not_many(tmp_path):
    made = Shop()
    made.see(0.0, "alone", "hub_out", "A", "flow")
    made.rows["flows"].append({"correlation_key": "flow", "started_at": START, "duration_ms": 1.0, "messages": 1})
    texts = Page(shown(write_tables(tmp_path, made.rows))).texts
    assert {"sighting", "flow", "requests", "message type", "node captured"} <= set(texts)
    assert not re.search(r"\b1 (nodes|flows|messages|sightings)\b", "".join(texts))


def test_nulls_everywhere(tmp_path):
    rows = {
        "messages": [{"seen_at": START}, {"identity_key": "A"}, {}],
        "hops": [{"kind": "network"}, {}, {"kind": "network", "sent_at": START, "lost": True}, {"latency_ms": 1.0}],
        "callbacks": [{"outcome": "exception"}, {"outcome": "pending"}, {}, {"outcome": "orphan"}, {"outcome": "new"}],
        "flows": [{"correlation_key": "a", "started_at": START}, {}, {"duration_ms": 5.0}],
        "edges": [{"level": "node", "messages": 1}, {}, {"level": "new"}],
        "expiries": [{}, {"sent": 1}],
        "signatures": [{}, {"status": "valid", "messages": 1}, {"status": "invalid"}],
        "rejects": [{}],
    }
    assert tuple(Page(shown(write_tables(tmp_path, rows))).sections) == SECTIONS


@pytest.mark.parametrize("ms", [float("nan"), float("inf"), -1e300, 1e300])
def test_numbers_that_are_none(tmp_path, ms):
    rows = {
        "hops": [
            {
                "kind": "network",
                "sent_at": at(0),
                "received_at": at(1),
                "latency_ms": ms,
                "skew_ms": ms,
                "correlation_key": "a",
            }
            | {"from_node_key": "a", "to_node_key": "b"}
        ],
        "callbacks": [{"outcome": "ok", "wait_ms": ms, "requested_at": at(0), "correlation_key": "a"}],
        "flows": [{"correlation_key": "a", "started_at": START, "duration_ms": ms, "root_node_key": "a"}],
        "expiries": [{"identity_key": "A", "ttl_ms": ms, "sent": 1, "budget_used_p95": ms}],
    }
    assert tuple(Page(shown(write_tables(tmp_path, rows))).sections) == SECTIONS


# --- pieces -----------------------------------------------------------------------------------------------------------


@given(st.text(), st.text())
def test_text_stays_text(name, more):
    class Texts(HTMLParser):
        def handle_starttag(self, tag, attributes):
            assert tag == "span"
            assert {given for given, _ in attributes} <= {"title", "class"}

    Texts().feed(tag("span", name, key(more), title=more))


def test_only_html_is_not_escaped():
    assert joined("<b>", Html("<b>"), 1, 2.5, None, ["&"]) == "&lt;b&gt;<b>12.5&amp;"


@given(st.text())
def test_what_is_shown_is_visible_and_bounded(text):
    assert clean(text, 50).isprintable()
    assert len(clean(text, 50)) <= 50
    assert 0 < len(short(text, 12)) <= 12


@given(st.floats(allow_nan=True))
def test_any_duration_has_words(ms):
    assert duration(ms)


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_any_moment_has_words(us):
    assert moment(us)


def test_the_same_type_has_the_same_colour():
    types = [f"T{number}" for number in range(9)]
    colours = Colours(["KINO.PING", *types])
    assert [colours.of(name) for name in types[:6]] == ["c1", "c2", "c3", "c4", "c5", "c6"]
    assert {colours.of(name) for name in types[6:]} == {"other"}
    assert colours.of("KINO.EXCEPTION") == "bad"


def test_bars_begin_at_zero_and_add_up():
    made = stack([Layer("c1", "a", [1, 0]), Layer("c2", "b", [3, 4])], ["x", "y"], [Mark(0, "x", "day")], "bars")
    rects = re.findall(r"<rect [^>]*>", made)
    boxes = [tuple(float(re.search(rf' {name}="([\d.]+)"', each)[1]) for name in ("y", "height")) for each in rects]
    (first_y, first), (second_y, second), (third_y, third) = boxes
    assert first_y + first == pytest.approx(third_y + third), "both stand on the axis"
    assert second_y + second == pytest.approx(first_y)
    assert (second / first, third / first) == (pytest.approx(3), pytest.approx(4))


def test_the_worst_arrows_are_drawn_too():
    arrows = [Arrow("a", f"{number}", 1000 - number, int(number > 90), "", "") for number in range(100)]
    drawn = chosen(arrows)
    assert (len(drawn), len(set(drawn))) == (MOST_ARROWS, MOST_ARROWS)
    assert set(arrows[91:]) | set(arrows[:30]) <= set(drawn)


@pytest.mark.parametrize("count", [1, 2, 3, 7, MOST_NODES])
def test_nodes_of_a_graph_do_not_touch(count):
    names = [f"node {number}" for number in range(count)]
    arrows = [Arrow(one, other, 5, 0, "5", "five") for one in names for other in names]
    made = draw(names, arrows, "a graph")
    places = [(float(x), float(y)) for x, y in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', made)]
    assert len(places) == count
    for place, (x, y) in enumerate(places):
        assert all((x - other_x) ** 2 + (y - other_y) ** 2 > 40**2 for other_x, other_y in places[:place])
    assert made.count('class="arrow') == count**2
