"""The tracks of a site in a browser: read without scripts, walked by keyboard, and by everybody."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ledger import Draft
from marin.kinds.families.experiment import EXPERIMENT_REGISTERED
from marin.plugins.lab.speedrun import submit, track
from marin.plugins.sharing.pages.site import write_site
from marin.preregistration.registration import Metric, Registration, Track, registered
from marin.recipe.schema import Optimizer
from marin.record import events
from marin.record.creation import create_root
from tests.plugins.lab.test_speedrun import BASE, LIMIT, SMALL, SOME, record, verify

pytestmark = pytest.mark.browser
ENTRIES = (
    ("wide", replace(BASE, seed=1, optimizer=Optimizer(learning_rate=0.01)), 3.25, 1.5),
    ("slow", replace(BASE, seed=1), 3.5, 1.75),
    ("cheap", replace(BASE, seed=2, model=SMALL), 3.75, 0.5),
)
"""Run, recipe, score and hours, the best first."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A site with a track of two limits and three entries."""
    folder = tmp_path_factory.mktemp("speedruns")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARIN_KEY", str(folder / "key.pem"))
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        root = create_root(str(folder / "root"), origin="keeper.example/log")
        stated = Registration(
            name="exp9_lowest",
            question="How low does the loss go?",
            hypothesis="Below 3.",
            primary=Metric(name="evaluate.loss"),
            arms={"base": BASE},
            baseline="base",
            seeds=(1,),
            test="welch",
            track=Track(flops=LIMIT, hours=2.0),
        )
        root.store().put_bytes(stated.document())
        body = events.write(registered(stated, file="exp9_lowest.py", file_digest=SOME))
        root.append([Draft(EXPERIMENT_REGISTERED, "experiment/exp9_lowest", body)])
        rules = track(root.history(), root.store(), "exp9")
        for run, recipe, score, hours in ENTRIES:
            record(root, run, recipe, score)
            verify(run, root.reader(), root, hours=hours)
            submit(root, rules, root, run)
        write_site(root, folder / "site")
        yield folder / "site"


FOCUSED = """() => { const one = document.activeElement;
    return one === document.body ? null : [one.tagName, one.textContent.trim(), one.getAttribute('href')]; }"""


def focused_by_tab(page: Any) -> Iterator[list[str]]:
    """What has the focus, Tab by Tab, until the page's end."""
    for _ in range(50):
        page.keyboard.press("Tab")
        found = page.evaluate(FOCUSED)
        if found is None:
            return
        yield found
    raise AssertionError("Tab comes to no end")


def follow_by_keyboard(page: Any, link: str) -> None:
    """Tab until the link has the focus, then Enter."""
    assert link in (found[2] for found in focused_by_tab(page)), link
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(f"/[^/]*{re.escape(link)}$"))


def test_without_scripts_it_reads_whole_and_a_keyboard_leads_to_every_entry(
    chromium: Any, site: Path, shots: Path
) -> None:
    context = chromium.new_context(java_script_enabled=False, viewport={"width": 1200, "height": 900})
    page, asked = context.new_page(), list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "index.html").as_uri())
    follow_by_keyboard(page, "speedruns/index.html")
    row = page.locator("tr:has(td)").inner_text()
    assert "How low does the loss go?" in row and "3.25" in row
    follow_by_keyboard(page, "exp9_lowest.html")

    words = page.locator("main").inner_text()
    assert "How low does the loss go?" in words and "hours to replay its training at most 2" in words
    curves = page.locator("img")
    assert curves.evaluate_all("all => all.map(one => one.complete && one.naturalWidth > 300)") == [True, True]
    assert [alt.partition(": ")[0] for alt in curves.evaluate_all("all => all.map(one => one.alt)")] == [
        "best evaluate.loss over training FLOPs",
        "best evaluate.loss over hours to replay its training",
    ]
    assert curves.last.get_attribute("alt").endswith(": 3.75 at 0.5, 3.25 at 1.5"), "the slow one beats no cheaper one"
    assert page.locator("h2").all_inner_texts() == ["1. wide: 3.25", "2. slow: 3.5", "3. cheap: 3.75"]
    assert page.locator("tr", has_text="optimizer.learning_rate").first.is_visible(), "what the best changed"
    page.screenshot(path=shots / "speedrun-no-scripts.png", full_page=True)

    stops = list(focused_by_tab(page))
    assert stops[0][2] == "index.html"
    assert [stop[2] for stop in stops if stop[0] == "A"][1:] == ["#wide", "#slow", "#cheap"]
    commands = [stop[1] for stop in stops if stop[0] == "PRE"]
    assert [command.split()[4] for command in commands] == [run for run, *_ in ENTRIES], "it is scrolled by keyboard"
    page.goto(page.url)
    follow_by_keyboard(page, "#cheap")
    box = page.locator("h2#cheap").bounding_box()
    assert 0 <= box["y"] < 900, "in sight"
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    context.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1400), ("dark", 390)])
def test_it_has_no_serious_finding_of_axe(chromium: Any, site: Path, shots: Path, scheme: str, width: int) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    context = chromium.new_context(color_scheme=scheme, viewport={"width": width, "height": 850})
    page = context.new_page()
    for name in ("speedruns/index", "speedruns/exp9_lowest", "experiments/exp9_lowest"):
        page.goto((site / f"{name}.html").as_uri())
        found = [item for item in axe.run(page).response["violations"] if item["impact"] in ("serious", "critical")]
        assert found == [], (name, [(item["id"], item["nodes"][0]["html"][:200]) for item in found])
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), name
        page.screenshot(path=shots / f"{name.replace('/', '-')}-{scheme}-{width}.png")
    context.close()
