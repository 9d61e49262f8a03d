"""The report in a real browser: quiet, harmless, readable on any screen. Pictures of it are left in build/report/."""

from itertools import pairwise
from pathlib import Path

import duckdb
import pytest
from typer.testing import CliRunner

from hopline.cli import app
from hopline.report.making import make_report
from tests.report.chromium import Chromium, find_chromium
from tests.report.tables import EVIL, crowd, is_system, shop, with_ids, write_tables

PICTURES = Path(__file__).parents[2] / "build" / "report"
MISSING = "no Chromium: `apt-get install chromium` on Debian, or put chromium or google-chrome on the PATH"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.xdist_group("chromium"),
    pytest.mark.skipif(find_chromium() is None, reason=MISSING),
]
SCREENS = {"light": (1200, False), "dark": (1200, True), "narrow": (400, False), "narrow-dark": (400, True)}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    chromium = Chromium(find_chromium(), tmp_path_factory.mktemp("profile"))
    yield chromium
    chromium.close()


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return write_tables(tmp_path_factory.mktemp("tables"), shop())


@pytest.fixture(scope="module")
def report(tables, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    done = CliRunner().invoke(app, ["report", str(tables), "-o", str(path), "--title", f"Last night {EVIL}"])
    assert done.exit_code == 0, done.output
    return path.as_uri()


@pytest.fixture
def opened(browser, report):
    browser.screen(1200)
    browser.open(report)
    return browser


def test_it_is_quiet_and_asks_for_nothing(opened, report):
    for method in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
        assert opened.named(method) == []
    asked = [event["request"]["url"] for event in opened.named("Network.requestWillBeSent")]
    assert [url for url in asked if not url.startswith("data:")] == [report]


def test_names_run_nothing(opened):
    assert opened.run("[typeof window.hacked, document.scripts.length, document.images.length]") == ["undefined", 0, 0]
    assert opened.run("document.body.innerText").count("<script>window.hack") > 5, "they are there, as text"


def test_even_what_got_in_could_do_nothing(opened):
    """If a name ever became an element, the policy of the page would still stop it."""
    opened.run(
        """const script = document.createElement('script'); script.textContent = 'window.hacked = 3';
        document.body.append(script);
        document.body.insertAdjacentHTML('beforeend', '<img src="http://127.0.0.1:9/x.png" onerror="window.hacked=4">');
        document.body.insertAdjacentHTML('beforeend', '<style>body { display: none }</style>');
        new Promise(done => setTimeout(done, 50))"""
    )  # what was forbidden would have begun by then
    assert opened.run("[typeof window.hacked, getComputedStyle(document.body).display]") == ["undefined", "block"]
    said = " ".join(entry["entry"]["text"] for entry in opened.named("Log.entryAdded"))
    for rule in ("script-src", "img-src", "style-src"):
        assert rule in said or "default-src" in said, said
    blocked = [event for event in opened.named("Network.loadingFailed") if event.get("blockedReason") == "csp"]
    assert [event for event in opened.named("Network.responseReceived") if "127.0.0.1" in event["response"]["url"]] == []
    assert blocked or "127.0.0.1:9" in said


# --- what it says -----------------------------------------------------------------------------------------------------


def test_the_numbers_are_those_of_the_tables(opened, tables):
    def ask(sql):
        names = ("messages", "flows", "callbacks", "rejects", "hops", "signatures")
        places = {name: f"read_parquet('{tables}/{name}/*/*.parquet')" for name in names}
        return duckdb.sql(sql.format(**places)).fetchall()[0]

    root, request = (f"not {is_system(name)}" for name in ("root_identity_key", "request_identity_key"))
    figures = "[...document.querySelectorAll('.figures data')].map(each => [each.id, Number(each.value)])"
    assert dict(opened.run(figures)) == {
        "figure-sightings": ask("select count(*) from {messages}")[0],
        "figure-flows": ask(f"select count(*) from {{flows}} where {root}")[0],
        "figure-requests": ask(
            f"select count(*) from {{callbacks}} where outcome not in ('orphan', 'duplicate') and {request}"
        )[0],
        "figure-types": ask("select count(distinct identity_key) from {messages}")[0],
        "figure-nodes": ask("select count(distinct node_key) from {messages}")[0],
        "figure-rejects": ask("select count(*) from {rejects}")[0],
    }
    assert (
        opened.run("Number(document.querySelector('#lost-total').value)") == ask("select count(*) from {hops} where lost")[0]
    )
    parts = "[...document.querySelectorAll('#{} .legend data')].reduce((sum, each) => sum + Number(each.value), 0)"
    assert opened.run(parts.format("signatures")) == ask("select sum(messages) from {signatures}")[0]
    assert opened.run(parts.format("answers")) == ask(f"select count(*) from {{callbacks}} where {request}")[0]
    left_out = ask(f"select count(*) from {{messages}} where {is_system('identity_key')}")[0]
    assert opened.run("Number(document.querySelector('#system-sightings').value)") == left_out > 0
    where = opened.run("document.querySelector('#system-where').innerText")
    assert ask(f"select count(*) from {{messages}} where {where}")[0] == left_out, "the hint leads to what was counted"
    assert ask("select count(*) from {messages} where is_system")[0] > left_out, "and the column alone does not"
    between = "[...document.querySelectorAll('#services details:first-of-type td data')].map(each => Number(each.value))"
    moved = ask(f"select count(*) from {{hops}} where kind = 'network' and not {is_system('identity_key')}")[0]
    assert sum(opened.run(between)) == moved


def test_bars_are_as_long_as_their_numbers(opened):
    """The parts of a divided bar, as drawn, are in proportion to the numbers beside it."""
    found = opened.run(
        """['answers', 'expiries', 'signatures'].map(id => ({
            drawn: [...document.querySelectorAll(`#${id} > svg rect`)].map(each => each.getBBox().width),
            said: [...document.querySelectorAll(`#${id} > .legend data`)].map(each => Number(each.value)).filter(n => n),
        }))"""
    )
    for bar in found:
        whole, drawn = sum(bar["said"]), sum(bar["drawn"])
        assert [width / drawn for width in bar["drawn"]] == pytest.approx([part / whole for part in bar["said"]], abs=0.002)


def test_words_do_not_stick_together(opened):
    assert "limit of 5000 (numbers in it differ)" in opened.run("document.querySelector('#answers').innerText")


def test_every_section_is_there_and_the_contents_lead_to_it(opened):
    titles = opened.run(
        "[...document.querySelectorAll('section')].map(each => [each.id, each.querySelector('h2').innerText])"
    )
    assert len(titles) == 12
    for id_ in opened.run("[...document.querySelectorAll('nav a')].map(each => each.getAttribute('href').slice(1))"):
        assert id_ in dict(titles)


# --- how it looks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCREENS)
def test_on_a_screen(browser, report, name):
    width, is_dark = SCREENS[name]
    browser.screen(width, is_dark=is_dark)
    browser.open(report)
    PICTURES.mkdir(parents=True, exist_ok=True)
    browser.screenshot(PICTURES / f"{name}.png")
    assert browser.run("document.documentElement.scrollWidth") == width, "nothing sticks out"
    browser.run(OPEN_ALL)
    assert browser.run("document.documentElement.scrollWidth") == width, "nothing sticks out of what was closed"
    assert browser.run(OVERLAPS) == []
    assert browser.run(TOO_PALE) == []


@pytest.mark.parametrize(("width", "media"), [(1400, "screen"), (400, "screen"), (718, "print")])
def test_ids_can_be_read_and_used(browser, tmp_path, width, media):
    """All of an id is text, in at most two lines, and inside of its cell: nobody sees titles on a phone or on paper."""
    path, rows = tmp_path / "report.html", with_ids(shop())
    flows = {row["correlation_key"] for row in rows["flows"]}
    make_report(write_tables(tmp_path / "tables", rows), path, title="Ids", top=10)
    browser.screen(width, media=media)
    browser.open(path.as_uri())
    if media == "screen":  # what is closed is not printed
        browser.run(OPEN_ALL)
    browser.screenshot(PICTURES / f"ids-{width}.png")
    shown = browser.run(
        """[...document.querySelectorAll('#services td, #answers td, #losses td, article .unit')].flatMap(cell =>
            [...cell.querySelectorAll('.id')].map(id => {
                const [inner, outer] = [id.getBoundingClientRect(), cell.getBoundingClientRect()];
                const text = getComputedStyle(id), lines = inner.height / parseFloat(text.lineHeight);
                return [id.innerText, inner.left >= outer.left && inner.right <= outer.right + 1, lines];
            }))"""
    )
    assert len(shown) > 10
    assert {text for text, _, _ in shown} <= flows
    assert [text for text, fits, lines in shown if not fits or lines > 2.1] == []
    assert browser.run("document.documentElement.scrollWidth") == width


OPEN_ALL = "document.querySelectorAll('details').forEach(each => each.open = true)"

OVERLAPS = """
// Texts of a picture that cover each other, or leave it.
[...document.querySelectorAll('svg')].filter(each => each.getClientRects().length).flatMap(svg => {
    const texts = [...svg.querySelectorAll('text')].filter(each => each.getClientRects().length)
        .map(each => [each.textContent, each.getBoundingClientRect()]);
    const cover = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
    const covered = texts.flatMap(([one, a], place) =>
        texts.slice(place + 1).filter(([_, b]) => cover(a, b)).map(([other]) => `${one} | ${other}`));
    const frame = (svg.matches('.graph') ? svg : svg.closest('section') || svg).getBoundingClientRect();
    const out = texts.filter(([_, a]) => a.left < frame.left || a.right > frame.right ||
        a.top < frame.top || a.bottom > frame.bottom + 1);
    return [...covered, ...out.map(([text]) => `out: ${text}`)];
})"""

TOO_PALE = """
// Texts whose contrast to what is behind them is less than 4.5 to 1.
(() => {
    const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
        .reduce((sum, v, place) => sum + v * [.2126, .7152, .0722][place], 0);
    const behind = element => {
        for (; element; element = element.parentElement) {
            const found = numbers(getComputedStyle(element).backgroundColor);
            if (found.length < 4 || found[3] > 0) return found;
        }
        return [255, 255, 255];
    };
    const pale = [];
    for (const element of document.querySelectorAll('body *')) {
        const own = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
        if (!own || !element.getClientRects().length || element.closest('title')) continue;
        const style = getComputedStyle(element);
        const [a, b] = [light(numbers(element.closest('svg') ? style.fill : style.color)), light(behind(element))];
        const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
        if (ratio < 4.5) pale.push(`${element.getAttribute('class')}: ${element.textContent.slice(0, 30)}, ${ratio}`);
    }
    return [...new Set(pale)];
})()"""


@pytest.mark.parametrize("nodes", [1, 2, 5, 13, 25])
def test_a_graph_of_any_size_can_be_read(browser, tmp_path, nodes):
    path = tmp_path / "report.html"
    rows = crowd(nodes=nodes) if nodes > 1 else shop(orders=0)
    make_report(write_tables(tmp_path / "tables", rows), path, title=f"{nodes} nodes", top=10)
    browser.screen(1200)
    browser.open(path.as_uri())
    browser.screenshot(PICTURES / f"graph-{nodes}.png")
    browser.run(OPEN_ALL)
    assert browser.run(OVERLAPS) == []


def test_on_paper(browser, report):
    browser.screen(718, media="print")  # A4 with the usual margins
    browser.open(report)
    browser.screenshot(PICTURES / "print.png")
    assert browser.run("document.documentElement.scrollWidth") == 718, "nothing is cut off"
    assert browser.run("[...document.querySelectorAll('nav, details')].filter(each => each.offsetHeight).length") == 0
    browser.pdf(PICTURES / "report.pdf")
    assert (PICTURES / "report.pdf").read_bytes().startswith(b"%PDF-")


# --- without a mouse, and without eyes --------------------------------------------------------------------------------


def press_tab(browser):
    for kind in ("rawKeyDown", "keyUp"):
        browser.ask("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)


def test_with_the_keyboard(opened):
    wanted = opened.run("document.querySelectorAll('a[href], summary, [tabindex]').length")
    reached = []
    for _ in range(wanted + 5):
        press_tab(opened)
        here = opened.run(
            """(() => { const at = document.activeElement, style = getComputedStyle(at);
            return [at.tagName, at.innerText.slice(0, 20), style.outlineStyle, at.getBoundingClientRect().left >= 0]; })()"""
        )
        if here[0] == "BODY":
            break
        reached.append(here)
    assert reached[0][:2] == ["A", "Skip to what was fou"]
    assert {"A", "SUMMARY", "DIV"} <= {tag for tag, *_ in reached}
    assert [here for here in reached if here[2] == "none" or not here[3]] == [], "it can be seen where one is"
    hidden = opened.run(
        "[...document.querySelectorAll('a[href], summary, [tabindex]')].filter(each => !each.checkVisibility()).length"
    )
    assert len(reached) == wanted - hidden


def test_for_who_does_not_see_it(opened):
    nodes = opened.ask("Accessibility.getFullAXTree")["nodes"]
    shown = [node for node in nodes if not node.get("ignored")]
    named = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in shown]
    for role in ("image", "img", "table", "region", "link", "navigation"):
        assert [name for each, name in named if each == role and not name.strip()] == [], role
    assert {"main", "navigation", "heading", "table", "rowheader", "columnheader"} <= {role for role, _ in named}
    levels = opened.run("[...document.querySelectorAll('h1, h2, h3, h4')].map(each => Number(each.tagName[1]))")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels)), "no heading skips a level"
    assert opened.run("[document.documentElement.lang, document.title.startsWith('Last night <script>')]") == ["en", True]
