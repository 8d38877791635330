"""The page in a real browser: every sort, filter, link, plot and lineage click; nothing from the network."""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairn.card.standing import percent
from cairn.lineage.graph import load_numbers
from cairn.lineage.tracing import trace
from cairn.report.page import write_report
from cairn.results.show import format_value
from tests.browser import ARGUMENTS, chromium, expect, playwright
from tests.report.project import HOSTILE, build

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
PHONE, DESKTOP = {"width": 390, "height": 800}, {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def browser():
    path = chromium()
    with playwright.sync_playwright() as driver:
        one = driver.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield one
        one.close()


class Tab:
    """An open page that remembers what went wrong and what it asked for."""

    def __init__(
        self, browser, path: Path, viewport: dict, scheme: str = "light", fragment: str = ""
    ) -> None:
        self.context = browser.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
        self.tab = self.context.new_page()
        self.tab.set_default_timeout(10_000)
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.tab.on("console", lambda message: self.problems.append(message.text))
        self.tab.on("pageerror", lambda error: self.problems.append(str(error)))
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.goto(path.as_uri() + fragment)

    def drawn(self) -> None:
        """Wait until every plot is drawn."""
        for _ in range(200):
            if self.tab.locator("[data-plot]").count() == self.tab.locator("[data-drawn]").count():
                return
            self.tab.wait_for_timeout(100)
        raise AssertionError(f"plots are missing: {self.problems}")

    def show_all(self, numbers: int) -> None:
        """Open the table of all numbers and wait until its rows are there: it is filled when it is opened."""
        self.tab.locator("#all > summary").click()
        expect(self.tab.locator("#all-table tbody tr")).to_have_count(numbers)


@pytest.fixture
def opened(browser, page: Path) -> Iterator[Tab]:
    """The page on a desktop; afterwards: nothing on the console, nothing fetched but the file and its data."""
    one = Tab(browser, page, DESKTOP)
    yield one
    assert one.problems == []
    assert [url for url in one.requests if not url.startswith("data:")] == [page.as_uri()]
    one.context.close()


def test_every_plot_is_drawn_with_a_table_behind_it(opened: Tab):
    opened.drawn()
    tab = opened.tab
    kinds = {
        name.split("-")[0]
        for name in tab.evaluate("[...document.querySelectorAll('[data-plot]')].map(n => n.dataset.plot)")
    }
    assert kinds == {"slices", "precision", "thresholds", "gallery", "tail", "seeds", "gains"}
    for figure in tab.locator("figure").all():
        assert figure.locator("svg path, svg line").count() > 3
        assert "undefined" not in figure.inner_text()
        figure.locator("summary").click()
        figure.locator("tbody tr").first.wait_for(state="attached")  # the table is filled when it is opened
        rows = figure.locator("tbody tr").count()
        assert rows > 0 and f"{rows:,}" in figure.locator("summary").inner_text()
        assert figure.locator("[role=img]").get_attribute("aria-label")


def test_columns_sort_both_ways_and_say_so(opened: Tab):
    tab = opened.tab
    table = tab.locator("table.board:visible").first
    for header in table.locator("thead th").all():
        column = header.evaluate("node => [...node.parentNode.children].indexOf(node)")
        seen = set()
        for _ in range(2):
            before = header.get_attribute("aria-sort") or "none"
            header.locator("button").click()
            expect(header).not_to_have_attribute("aria-sort", before)
            way = header.get_attribute("aria-sort")
            seen.add(way)
            if column:
                values = [
                    float(cell.get_attribute("data-s"))
                    for cell in table.locator(f"tbody tr td:nth-child({column + 1})[data-s]").all()
                ]
                assert values == sorted(values, reverse=way == "descending")
            expect(table.locator("[aria-sort=ascending], [aria-sort=descending]")).to_have_count(1)
        assert seen == {"ascending", "descending"}


def test_filters_of_the_leaderboard(opened: Tab):
    tab = opened.tab
    rows = tab.locator("table.board:visible tbody tr:visible")
    published, seeds = tab.locator("tr.published:visible"), tab.locator("tr.seed:visible")
    everything = rows.count()
    assert published.count() and not seeds.count()
    tab.locator("#f-published").uncheck()
    expect(published).to_have_count(0)
    tab.locator("#f-published").check()
    tab.locator("#f-seeds").check()
    expect(seeds).to_have_count(12)
    tab.locator("#f-seeds").uncheck()
    expect(rows).to_have_count(everything)
    tab.locator("#f-stage").select_option("1")
    expect(rows).not_to_have_count(everything)
    assert 0 < rows.count() < everything
    tab.locator("#f-stage").select_option("")
    tab.locator("#f-text").fill("dinov2-l mean")
    expect(rows).to_have_count(4)
    expect(tab.locator("#f-count")).to_have_text(re.compile("^4 of "))
    tab.locator("#f-text").fill("")
    for button in tab.locator("[data-shows]").all():
        button.click()
        expect(button).to_have_attribute("aria-pressed", "true")
        expect(tab.locator(f"[id='{button.get_attribute('data-shows')}']")).to_be_visible()


def test_all_numbers_can_be_filtered_and_sorted(opened: Tab, project: Path):
    numbers = load_numbers(project)
    tab = opened.tab
    opened.show_all(len(numbers))
    rows = tab.locator("#all-table tbody tr")
    tab.locator("#a-benchmark").select_option("town")
    tab.locator("#a-metric").select_option("map")
    wanted = [row for row in numbers if row.name.benchmark == "town" and row.name.metric == "map"]
    expect(rows).to_have_count(len(wanted))
    tab.locator("#all-table thead button", has_text="value").click()
    expect(tab.locator("#all-table th", has_text="value")).to_have_attribute("aria-sort", "descending")
    shown = [float(text) for text in tab.locator("#all-table tbody .n").all_inner_texts()]
    assert shown == sorted((float(f"{100 * row.value:.1f}") for row in wanted), reverse=True)
    tab.locator("#a-text").fill("nothing is called this")
    expect(tab.locator("#a-count")).to_have_text(f"0 of {len(numbers)} numbers")


def test_links_lead_somewhere(opened: Tab):
    tab = opened.tab
    for link in tab.locator("a[href^='#']").all():
        assert tab.locator(f"[id='{(link.get_attribute('href') or '')[1:]}']").count() == 1
    outside = [link.get_attribute("href") for link in tab.locator("a:not([href^='#'])").all()]
    assert outside == []  # links to sources stand in the lineage alone


def test_every_number_opens_its_lineage_with_its_hash(opened: Tab, project: Path):
    """Every button is that of its number; the first of each run and stage, and every mean, is clicked."""
    numbers = load_numbers(project)
    opened.show_all(len(numbers))
    buttons = opened.tab.evaluate(
        "[...document.querySelectorAll('button.n[data-n]')].map(b => [b.dataset.n, b.textContent, b.ariaLabel])"
    )
    assert {int(places) for places, _, _ in buttons if "," not in places} == set(range(len(numbers)))
    for places, text, label in buttons:
        row = numbers[int(places.split(",")[0])]
        assert "show where it comes from" in label
        if "," not in places:
            assert text in (format_value(row), str(percent(row.value))) and label.startswith(text)
            assert row.name.benchmark in label and row.name.metric in label
    first: dict[tuple[str, ...], int] = {}
    for place, row in enumerate(numbers):
        first.setdefault((row.name.benchmark, row.name.system, row.name.stage), place)
    means = sorted({places for places, _, _ in buttons if "," in places})[:2]
    for places in [*map(str, first.values()), *means]:
        said = opened.tab.evaluate(OPEN, places)
        row = numbers[int(places.split(",")[0])]
        assert said["open"] and said["nodes"] >= 3
        for place in places.split(","):
            assert f"cairn trace {numbers[int(place)].name}" in said["detail"]
        assert row.source_md5 in said["detail"]
        if "," not in places:
            assert (said["name"], said["value"]) == (str(row.name), format_value(row))


def test_the_graph_draws_what_trace_follows(opened: Tab, project: Path):
    """A number of the first stage rests on no re-ranking; a mean rests on what its numbers rest on."""
    numbers = load_numbers(project)
    kinds = {
        (row.name.benchmark, row.name.system, row.name.stage): place for place, row in enumerate(numbers)
    }
    opened.show_all(len(numbers))
    sizes = set()
    for place in kinds.values():
        found = trace(project, str(numbers[place].name))
        wanted = {
            f"{artifact.stage.split('@')[0]} {(artifact.md5 or '')[:10]}"
            for artifact in found.artifacts.values()
        }
        drawn = opened.tab.evaluate(DRAWN, str(place))
        assert set(drawn["artifacts"]) == wanted, numbers[place].name
        assert drawn["sources"] == len({(source.name, source.location) for source in found.sources})
        assert drawn["width"] <= drawn["pane"] and drawn["scrolled"] <= drawn["pane"] + 1
        sizes.add(("reranking" in " ".join(drawn["artifacts"]), numbers[place].name.stage == "global"))
    assert (True, False) in sizes and (False, True) in sizes


DRAWN = """(places) => {
  document.querySelector(`#all-table button[data-n="${places}"]`).click();
  const nodes = [...document.querySelectorAll('#graph .node')], graph = document.getElementById('graph');
  const words = (node) => [...node.querySelectorAll('text')].map(text => text.textContent).join(' ');
  const said = {
    artifacts: nodes.filter(node => node.matches('.artifact')).map(words),
    sources: nodes.filter(node => node.matches('.source')).length,
    width: graph.querySelector('svg').getBoundingClientRect().width,
    pane: graph.clientWidth,
    scrolled: graph.scrollWidth,
  };
  document.getElementById('way').close();
  return said;
}"""


OPEN = """(places) => {
  document.querySelector(`#all-table button[data-n="${places}"], [data-board] button[data-n="${places}"]`).click();
  const said = {
    name: document.getElementById('way-title').textContent,
    value: document.querySelector('#way-head .value').textContent,
    detail: document.getElementById('detail').textContent,
    nodes: document.querySelectorAll('#graph .node').length,
    open: document.getElementById('way').open,
  };
  document.getElementById('way').close();
  return said;
}"""


def test_the_graph_by_keyboard_down_to_a_source(opened: Tab):
    tab = opened.tab
    tab.locator("[data-board=town] button.n").first.focus()
    tab.keyboard.press("Enter")
    expect(tab.locator("#way")).to_be_visible()
    tab.locator("#graph .node.number").focus()
    for _ in range(8):
        tab.keyboard.press("ArrowDown")
    assert tab.evaluate("document.activeElement.classList.contains('source')")
    tab.keyboard.press("Enter")
    expect(tab.locator("#detail")).to_contain_text("CC0-1.0")
    detail = tab.locator("#detail").inner_text()
    assert re.search(r"sha256 [0-9a-f]{64}", detail)
    assert tab.locator("#detail a").get_attribute("href") == "https://example.org/t"
    tab.locator("#graph .node", has_text="scores").click()
    expect(tab.locator("#detail")).to_contain_text("revisitop")
    tab.locator("#detail details summary", has_text="modules").click()
    expect(tab.locator("#detail details li")).to_have_count(3)
    tab.locator("#detail .copy").first.click()
    tab.locator("#detail .copy", has_text="copied").first.wait_for()
    tab.locator("#detail .go").first.click()
    expect(tab.locator(".node[aria-pressed=true]")).to_have_count(1)
    tab.keyboard.press("Escape")
    expect(tab.locator("#way")).not_to_be_visible()
    expect(tab.locator("[data-board=town] button.n").first).to_be_focused()


def test_an_unpinned_source_is_said_to_be_one(opened: Tab):
    expect(opened.tab.locator(".intro .warn[role=note]")).to_contain_text("Not pinned")
    opened.tab.locator("[data-board=flat] button.n").first.click()
    opened.tab.locator("#graph .node.bad").click()
    expect(opened.tab.locator("#detail .warn")).to_contain_text("Not pinned")


def test_a_published_number_says_where_it_was_printed(opened: Tab):
    opened.tab.locator("button.pub").first.click()
    expect(opened.tab.locator("#way-head")).to_contain_text("arXiv")
    opened.tab.locator("#way-close").click()


def test_an_address_opens_a_number(browser, page: Path):
    one = Tab(browser, page, DESKTOP, fragment="#n=town/second/-/-/global/hard/map")
    expect(one.tab.locator("#way-title")).to_have_text("town/second/-/-/global/hard/map")
    one.context.close()


def test_queries_have_pictures_and_words(opened: Tab):
    tab = opened.tab
    tab.evaluate("document.querySelectorAll('details.gallery:not([open]) > summary').forEach(s => s.click())")
    expect(tab.locator("details.gallery:not([open])")).to_have_count(0)
    tab.wait_for_function("[...document.images].every(image => image.complete)")
    reasons = " ".join(tab.locator(".query h4").all_inner_texts()).lower()
    for reason in (
        "Worst failure",
        "Gains most",
        "Loses most",
        "False match that scores highest",
        "Positive found last",
    ):
        assert reason.lower() in reasons
    broken = tab.evaluate("[...document.images].filter(i => !i.complete || !i.naturalWidth || !i.alt).length")
    assert broken == 0 and tab.locator("img").count() > 50


def test_text_from_outside_stays_text(opened: Tab):
    assert HOSTILE in opened.tab.locator("#b-kinds .asked p").first.text_content()
    assert HOSTILE in opened.tab.locator("#b-town .audit table").nth(0).text_content()
    assert opened.tab.evaluate("document.scripts.length") == 3


CONTRAST = Path(__file__).with_name("contrast.js").read_text("utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_and_everything_has_a_name(browser, page: Path, project: Path, scheme: str):
    """WCAG 2.2 AA contrast of every visible text, names of controls, one h1, no level skipped, language, focus."""
    one = Tab(browser, page, DESKTOP, scheme)
    one.drawn()
    tab = one.tab
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "skip"
    tab.keyboard.press("Tab")
    assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    one.show_all(len(load_numbers(project)))
    assert tab.evaluate(CONTRAST) == []
    tab.locator("[data-board] button.n").first.click()
    expect(tab.locator("#way")).to_be_visible()
    assert tab.evaluate(CONTRAST) == []
    tab.keyboard.press("Escape")
    expect(tab.locator("#way")).not_to_be_visible()
    unnamed = tab.evaluate(
        """() => [...document.querySelectorAll('button, a, input, select, [role=img], [role=region], dialog')]
          .filter((n) => !(n.ariaLabel || n.ariaLabelledByElements || n.textContent.trim()
            || n.labels?.length)).length"""
    )
    assert unnamed == 0
    levels = tab.evaluate(
        "[...document.querySelectorAll('main h1, main h2, main h3, main h4')].map(n => Number(n.tagName[1]))"
    )
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert tab.evaluate("document.documentElement.lang") == "en"
    duplicates = tab.evaluate(
        "(ids => ids.length - new Set(ids).size)([...document.querySelectorAll('[id]')].map(node => node.id))"
    )
    assert duplicates == 0
    before = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    tab.locator("#theme").click()
    tab.locator("#theme").click() if scheme == "dark" else None
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") != before
    one.context.close()


def test_a_phone_needs_no_sideways_scrolling(browser, page: Path):
    one = Tab(browser, page, PHONE)
    one.drawn()
    assert one.tab.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    for link in one.tab.locator(".top nav a").all():  # none is cut off
        place = link.bounding_box()
        assert place is not None and place["x"] >= 0 and place["x"] + place["width"] <= PHONE["width"]
    one.tab.locator("[data-board] button.n").first.click()
    expect(one.tab.locator("#way")).to_be_visible()
    box = one.tab.locator("#way").bounding_box()
    assert box is not None and box["width"] <= PHONE["width"]
    one.context.close()


def test_it_prints_light_and_whole(browser, page: Path):
    one = Tab(browser, page, DESKTOP, "dark")
    one.drawn()
    one.tab.emulate_media(media="print", color_scheme="dark")
    assert one.tab.evaluate("getComputedStyle(document.body).color") == "rgb(28, 34, 38)"
    assert (
        not one.tab.locator("#board-tools").is_visible() and one.tab.locator("figure svg").first.is_visible()
    )
    assert len(one.tab.pdf(format="A4")) > 20_000
    one.context.close()


def test_two_thousand_numbers_weigh_less_than_ten_megabytes(browser, tmp_path: Path):
    root = build(tmp_path, many=2000)
    text = write_report(root, tmp_path / "report.html")
    assert len(load_numbers(root)) >= 2000
    assert len(text.encode()) < 10_000_000
    one = Tab(browser, tmp_path / "report.html", DESKTOP)
    timing = one.tab.evaluate("performance.getEntriesByType('navigation')[0].toJSON()")
    print(
        json.dumps({"load_ms": round(timing["loadEventEnd"]), "bytes": len(text.encode())})
    )  # measured, not asserted
    one.show_all(len(load_numbers(root)))
    assert one.problems == []
    one.context.close()
