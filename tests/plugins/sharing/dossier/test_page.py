"""The dossier's page in a browser (``pytest -m browser``): what it says, that everybody can read it, and that it prints."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recorded import RUN

from marin.history.runs import load
from marin.plugins.sharing.dossier.write import write_dossier
from marin.record.root import Root

CARD = "provider.name: <b>An Example Laboratory</b>\nmodel.name: Nano 1\n"


@pytest.fixture
def dossier(root: Root, tmp_path: Path) -> Path:
    (tmp_path / "card.yaml").write_text(CARD)
    write_dossier(root, load(root.history(), RUN), tmp_path / "dossier", card=tmp_path / "card.yaml")
    return tmp_path / "dossier"


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    page = chromium.new_page()
    yield page
    page.close()


@pytest.mark.browser
def test_the_page_is_read_by_everybody_and_prints(dossier: Path, page: Any, tmp_path: Path) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    shots = Path(os.environ.get("MARIN_SCREENSHOTS", tmp_path))
    shots.mkdir(parents=True, exist_ok=True)
    for scheme, width in (("light", 1400), ("dark", 1400), ("light", 390), ("dark", 390)):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 850})
        page.goto((dossier / "index.html").as_uri())
        found = axe.run(page).response["violations"]
        assert [item["id"] for item in found if item["impact"] in ("serious", "critical")] == [], (scheme, width)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), width
        page.screenshot(path=shots / f"dossier-{scheme}-{width}.png")
    headings = page.locator("h2").all_inner_texts()
    assert headings[:5] == ["Who", "From what", "How", "How well", "At what cost"]
    assert "<b>An Example Laboratory</b>" in page.locator("main").inner_text(), "what a provider states is text"
    links = page.locator("a").evaluate_all("all => [...new Set(all.map(one => one.getAttribute('href')))]")
    assert len(links) > 10
    assert all((dossier / link).is_file() for link in links), "every proof and every document is there"
    page.pdf(path=shots / "dossier.pdf", format="A4")
    assert (shots / "dossier.pdf").read_bytes().startswith(b"%PDF-")
