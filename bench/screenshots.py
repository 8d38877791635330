"""Takes the documentation's pictures of the report and of Dagster's page, in a real browser.

Run in a project whose graph has run (a minute): `python bench/screenshots.py`. It makes the report anew, starts
`cairn ui` on a free port, and writes small JPEGs to docs/figures/. Needs Chromium and the extra `dev`.
"""

import argparse
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

QUALITY = 72
DESKTOP, PHONE = {"width": 1180, "height": 900}, {"width": 390, "height": 780}
WIDE = {"width": 1400, "height": 900}
# The pictures show no path of the machine that took them.
_RELATIVE = """(root) => {
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walk.nextNode());) if (node.data.includes(root)) node.data = node.data.replaceAll(root, "");
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("docs/figures"))
    parser.add_argument("--number", default="toytown/rootsift-vlad/-/-/geometry-k100/hard/map")
    parser.add_argument("--skip-dagster", action="store_true", help="only the report")
    arguments = parser.parse_args()
    from playwright.sync_api import sync_playwright

    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        report(chromium, arguments.output, arguments.number)
        if not arguments.skip_dagster:
            dagster(chromium, arguments.output)
        chromium.close()


def report(chromium, output: Path, number: str) -> None:
    """report.jpg, report-dark.jpg (plots), report-lineage.jpg, report-phone.jpg."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        subprocess.run([sys.executable, "-m", "pipelines", "report", "-o", str(page)], check=True)
        tab = _tab(chromium, page.as_uri(), DESKTOP, "light")
        _drawn(tab)
        _take(tab, output / "report.jpg")
        tab.close()
        tab = _tab(chromium, page.as_uri(), DESKTOP, "dark")
        _drawn(tab)
        tab.evaluate("document.querySelector('.bench').scrollIntoView({behavior: 'instant'})")
        _take(tab, output / "report-dark.jpg")
        tab.close()
        tab = _tab(chromium, f"{page.as_uri()}#n={number}", DESKTOP, "light")
        tab.locator("#graph .node", has_text="ranking").last.click()
        _take(tab, output / "report-lineage.jpg")
        tab.close()
        tab = _tab(chromium, page.as_uri(), PHONE, "light")
        tab.evaluate("document.getElementById('leaderboard').scrollIntoView({behavior: 'instant'})")
        _take(tab, output / "report-phone.jpg")
        tab.close()


def dagster(chromium, output: Path) -> None:
    """dagster-graph.jpg, dagster-asset.jpg, dagster-checks.jpg."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-m", "pipelines", "ui", "--port", str(port)])
    url = f"http://127.0.0.1:{port}"
    try:
        _fresh(url)
        asset = "toytown/rootsift-vlad/scores"
        for name, address in {
            "dagster-graph.jpg": f"{url}/assets/{asset}?view=lineage",
            "dagster-asset.jpg": f"{url}/assets/{asset}",
            "dagster-checks.jpg": f"{url}/assets/{asset}?view=checks",
        }.items():
            tab = _tab(chromium, address, WIDE, "light")
            tab.wait_for_timeout(8000)  # its graph is laid out in a worker, without a sign when it is done
            tab.evaluate(_RELATIVE, f"{Path.cwd()}/")
            _take(tab, output / name)
            tab.close()
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)


def _fresh(url: str, seconds: float = 180) -> None:
    """Wait until every asset that DVC makes is shown as fresh."""
    body = json.dumps({"query": "{ assetNodes { staleStatus isMaterializable } }"}).encode()
    request = urllib.request.Request(f"{url}/graphql", body, {"Content-Type": "application/json"})
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                nodes = json.loads(answer.read())["data"]["assetNodes"]
            if nodes and all(node["staleStatus"] == "FRESH" for node in nodes if node["isMaterializable"]):
                return
        except OSError:
            pass
        time.sleep(1)
    raise SystemExit(f"after {seconds:.0f} s some assets are still not fresh: `cairn run` first")


def _tab(chromium, address: str, viewport: dict, scheme: str):
    context = chromium.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
    tab = context.new_page()
    tab.goto(address)
    return tab


def _drawn(tab) -> None:
    while tab.locator("[data-plot]").count() != tab.locator("[data-drawn]").count():
        tab.wait_for_timeout(200)


def _take(tab, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    tab.wait_for_timeout(300)
    tab.screenshot(path=str(path), type="jpeg", quality=QUALITY)
    print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
