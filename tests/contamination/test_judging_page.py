"""The judging page in a real browser: keys, progress, coming back after closing, the file it saves."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

from cairn.contamination.judging_page import page_picture, write_judging_page
from cairn.contamination.sampling import Sample, SampleItem, read_judgements, report_judgements
from tests.browser import ARGUMENTS, chromium, expect, playwright

COLOURS = {"q1": (200, 120, 40), "q2": (40, 160, 90)}


def picture(name: str) -> bytes:
    pixels = np.zeros((300, 400, 3), np.uint8)
    pixels[:] = COLOURS.get(name, (90, 90, 160))
    pixels[100:220, 120:280] = len(name) * 12 + sum(map(ord, name)) % 90
    return page_picture(pixels)


def small_sample() -> Sample:
    items = tuple(
        SampleItem(
            f"{k:04d}", f"image<{k}>", "q1" if k % 2 else "q2", 7, "unique:a", "unique, confirmed", k < 4
        )
        for k in range(1, 6)
    )
    return Sample(items, {"unique, confirmed": 9}, 0)


@pytest.fixture
def page_file(tmp_path: Path) -> Path:
    write_judging_page(tmp_path / "judge.html", small_sample(), picture, picture, "Toytown & <others>")
    return tmp_path / "judge.html"


def test_page_is_self_contained_and_hides_what_would_sway(page_file: Path) -> None:
    text = page_file.read_text("utf-8")
    assert not re.search(r"(?:src|href)\s*=\s*[\"']?http|@import|url\(", text)
    assert "<others>" not in text and "&lt;others&gt;" in text
    for hidden in ("unique", "detector", "image<1>", "image\\u003c1"):
        assert hidden not in text
    first = page_file.read_bytes()
    write_judging_page(page_file, small_sample(), picture, picture, "Toytown & <others>")
    assert page_file.read_bytes() == first


def test_large_pictures_are_reduced() -> None:
    import cv2

    data = page_picture(np.zeros((900, 3000, 3), np.uint8))
    assert cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR).shape == (192, 640, 3)


@pytest.fixture
def browser(tmp_path: Path):
    """Opens the browser on one profile, so that closing and opening it again is what a judge does."""
    path = chromium()
    with playwright.sync_playwright() as driver:
        yield lambda scheme="light": driver.chromium.launch_persistent_context(
            str(tmp_path / "profile"),
            executable_path=path,
            args=ARGUMENTS,
            color_scheme=scheme,
            accept_downloads=True,
            viewport={"width": 1200, "height": 850},
        )


@pytest.mark.browser
@pytest.mark.timeout(180)
def test_judge_close_come_back_and_save(page_file: Path, tmp_path: Path, browser) -> None:
    context = browser()
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(page_file.as_uri())
    expect(page.locator("#position")).to_have_text("Pair 1 of 5")
    expect(page.locator("#done")).to_have_text("0 of 5 judged")
    assert page.eval_on_selector_all(
        "img", "all => all.every(one => one.complete && one.naturalWidth === 400)"
    )
    query = page.get_attribute("#query", "src")
    page.keyboard.press("1")
    expect(page.locator("#position")).to_have_text("Pair 2 of 5")
    expect(page.locator("#query")).not_to_have_attribute("src", query or "")
    page.click("[data-verdict='2']")
    page.fill("#judge", "Ann 123")
    # Digits in the name are no verdicts.
    page.locator("#judge").press("3")
    expect(page.locator("#done")).to_have_text("2 of 5 judged")
    if os.environ.get("CAIRN_SCREENSHOTS"):
        page.screenshot(path=f"{os.environ['CAIRN_SCREENSHOTS']}/judging-light.png")
    context.close()

    context = browser("dark")
    page = context.new_page()
    page.goto(page_file.as_uri())
    expect(page.locator("#position")).to_have_text("Pair 3 of 5")
    expect(page.locator("#done")).to_have_text("2 of 5 judged")
    expect(page.locator("#judge")).to_have_value("Ann 1233")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("[data-verdict='2']")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("1")  # thinks again
    page.keyboard.press("3")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("1")  # pair 5, leaving 4 out
    expect(page.locator("#note")).to_contain_text("1 not judged yet")
    page.click("#open")
    expect(page.locator("#position")).to_have_text("Pair 4 of 5")
    page.keyboard.press("2")
    expect(page.locator("#done")).to_have_text("5 of 5 judged")
    expect(page.locator("#note")).to_contain_text("All judged")
    expect(page.locator("#progress")).to_have_js_property("value", 5)
    if os.environ.get("CAIRN_SCREENSHOTS"):
        page.screenshot(path=f"{os.environ['CAIRN_SCREENSHOTS']}/judging-dark.png")
    with page.expect_download() as download:
        page.click("#save")
    saved = tmp_path / download.value.suggested_filename
    download.value.save_as(saved)
    context.close()

    sample = small_sample()
    assert saved.name == f"verdicts-{sample.digest}-Ann-1233.json"
    judgements = read_judgements(saved, sample)
    assert judgements.judge == "Ann 1233"
    assert judgements.verdicts == {"0001": 1, "0002": 1, "0003": 3, "0004": 2, "0005": 1}
    report = report_judgements(sample, judgements)
    assert (report.precision.part, report.precision.whole, report.unsure) == (3, 4, 1)
    assert not problems
    assert all(url.startswith(("file:", "data:", "blob:")) for url in requests)


@pytest.mark.browser
@pytest.mark.timeout(180)
def test_page_can_be_used_without_a_mouse_and_is_legible(page_file: Path, browser) -> None:
    for scheme in ("light", "dark"):
        context = browser(scheme)
        page = context.new_page()
        page.goto(page_file.as_uri())
        names = page.eval_on_selector_all(
            "button, input, img, progress",
            "all => all.map(e => e.getAttribute('aria-label') || e.alt || e.innerText || e.labels[0].innerText)",
        )
        assert all(names)
        page.focus("[data-verdict='1']")
        page.keyboard.press("Enter")
        expect(page.locator("#done")).to_have_text("1 of 5 judged")
        ratio = page.evaluate(
            """() => {
              const light = (text) => text.match(/[0-9.]+/g).slice(0, 3).map(Number).map((v) => v / 255)
                .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
                .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
              const back = light(getComputedStyle(document.body).backgroundColor);
              return Math.min(...[...document.querySelectorAll("p, figcaption, label, h1")].map((e) => {
                const front = light(getComputedStyle(e).color);
                return (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
              }));
            }"""
        )
        assert ratio >= 4.5  # WCAG 2.1, contrast (minimum)
        page.evaluate("localStorage.clear()")
        context.close()
    page_width = 390
    context = browser()
    page = context.new_page()
    page.set_viewport_size({"width": page_width, "height": 800})
    page.goto(page_file.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= page_width
    context.close()
