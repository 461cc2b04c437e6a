"""The browser that tests of pages open: one Chromium for a whole session, because one thread may drive one at a time.

Each test opens a page or a context of its own in it, and closes that.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--disable-sync",
    "--metrics-recording-only",
]
PATIENCE = 300_000
"""Milliseconds that a page may take to show something: on a busy machine it takes minutes."""


def missing() -> str:
    """Why nobody can open a page here; nothing if one can."""
    if find_spec("playwright") is None:
        return "playwright is not installed"
    return "" if CHROMIUM else "there is no chromium on the path"


def skip_without(items: list[pytest.Item]) -> None:
    """Tests that open pages, where nobody can: before what they show is made."""
    if reason := missing():
        for item in items:
            if "chromium" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Playwright's browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        browser.on("context", lambda context: context.set_default_timeout(PATIENCE))
        yield browser
        browser.close()
