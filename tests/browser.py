"""The browser of the tests: where Chromium is, how it starts, and assertions that wait for what a click sets off.

A browser tells some events after the click that caused them has been answered (`toggle`, `close`), so what
follows from a click is waited for with `expect`, never read at once.
"""

import shutil

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = playwright.expect
expect.set_options(timeout=20_000)

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def chromium() -> str:
    """Path of the browser; skips the test where there is none."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    return CHROMIUM
