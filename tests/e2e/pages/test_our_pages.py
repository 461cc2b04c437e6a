"""Our own pages in a browser, as files that somebody mailed: the verification, the report, the data browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ui import NAMED, Served, pages_in, story

from marin.plugins.mlflow.folding.fold import Fold
from marin.plugins.sharing.pages.site import pages
from marin.reporting.lineage.graph import graph_of
from marin.reporting.lineage.page import graph_page
from marin.reporting.lineage.samples import Inspector


@pytest.mark.browser
@pytest.mark.parametrize(("scheme", "width"), [("light", 1400), ("dark", 390)])
def test_a_stranger_reads_first_that_the_run_was_reproduced(
    served: Served, page: Any, shots: Path, scheme: str, width: int
):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 850})
    page.goto(pages_in(served)["verification"])
    seal = page.locator(".seal.good")
    assert seal.locator("h1").inner_text() == "Reproduced, bit for bit"
    assert seal.bounding_box()["y"] < 100, "in sight without scrolling"
    assert "By bob on 2026-11-2" in seal.inner_text() and "marin verify abcd2345" in seal.inner_text()
    assert seal.locator("li").all_inner_texts() == [
        f"{name} PASS" for name in ("ledger", "artifacts", "data", "training", "model")
    ]
    boxes = page.locator(".chain .name").all_text_contents()
    assert boxes == ["corpus", "tokenizer", "tokens", "train", "evaluate", "export"]
    rows = page.locator(".timeline .name").all_text_contents()
    assert rows == ["recorded", "bob"], "what was recorded, and each reproducer in a row and a colour of its own"
    assert page.locator(".timeline .bar.who0").count() == page.locator(".timeline .bar.good").count() == 4
    assert page.locator(".found-over polyline.found").count() == 1, "what was found lies over what was recorded"
    told = page.evaluate(
        "[...document.querySelectorAll('meta[property]')].map(m => [m.getAttribute('property'), m.content])"
    )
    assert dict(told)["og:title"].startswith("Reproduced, bit for bit: llama-4x128-seed0 · abcd2345")
    wanted = page.locator(".bases h3").all_inner_texts()
    assert "established by execution" in wanted and "claimed by this log, and established by nobody here" in wanted
    page.screenshot(path=shots / f"seal-{scheme}-{width}.png", full_page=True)
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1400, "height": 900})


@pytest.mark.browser
def test_a_report_begins_with_what_somebody_asks_first_and_digests_are_copied_by_keyboard(
    served: Served, page: Any, shots: Path
):
    page.goto(pages_in(served)["report"])
    cards = dict(
        zip(page.locator(".cards dt").all_inner_texts(), page.locator(".cards dd").all_inner_texts(), strict=True)
    )
    assert cards["verified"] == "PASS" and cards["loss"] == "2.25" and cards["perplexity"] == "9.5"
    assert cards["model"] == "llama-4x128" and cards["data"] == "grammar" and cards["seed"] == "0"
    assert page.locator(".cards").bounding_box()["y"] < 300, "in sight without scrolling"
    digest = page.locator("code.digest").first
    whole = digest.get_attribute("title")
    assert whole.startswith("sha256:") and len(whole) == 71
    assert digest.inner_text().replace("\n", "") == whole, "all of it is there to be found and selected"
    assert digest.bounding_box()["width"] < 140, "twelve digits of it are seen"
    button = page.locator("button.copy").first
    assert button.get_attribute("aria-label") == f"copy {whole[:19]}"
    button.focus()
    page.keyboard.press("Enter")
    page.locator("button.copy.done").first.wait_for()
    page.evaluate("document.body.append(document.createElement('textarea'))")
    page.locator("textarea").focus()
    page.keyboard.press("Control+V")
    assert page.locator("textarea").input_value() == whole
    page.screenshot(path=shots / "report-copied.png")


def until_open(page: Any, name: str) -> None:
    """A click changes the address, and a browser tells the page of it a moment later: wait for this panel, and no other."""
    page.wait_for_function(
        """name => { const open = [...document.querySelectorAll('section h2')].filter(h2 => h2.checkVisibility());
            return open.length === 1 && open[0].textContent === name; }""",
        arg=name,
    )


@pytest.mark.browser
def test_the_data_browser_fits_and_opens_on_what_was_asked_for(served: Served, page: Any, shots: Path):
    page.set_viewport_size({"width": 1400, "height": 900})
    page.goto(pages_in(served)["lineage"])
    names = [label.split(",")[0] for label in page.locator("a.node").evaluate_all("all => all.map(a => a.ariaLabel)")]
    assert names == ["corpus", "tokenizer", "tokens", "train", "evaluate", "export"], (
        "each step once, with what it made"
    )
    inside = """() => { const frame = document.querySelector('.graph').getBoundingClientRect();
        return [...document.querySelectorAll('a.node')].every(node => { const box = node.getBoundingClientRect();
            return box.left >= frame.left && box.right <= frame.right && box.top >= frame.top
                && box.bottom <= frame.bottom; }); }"""
    assert page.evaluate(inside), "all of it is in sight"
    assert page.locator("section:visible h2").all_inner_texts() == ["export"]
    assert page.locator("a.node.chosen").get_attribute("aria-label").startswith("export")
    page.locator("a.node[aria-label^='tokens']").click()
    until_open(page, "tokens")
    there = page.url
    page.goto("about:blank")
    page.goto(there)
    assert page.locator("section:visible h2").all_inner_texts() == ["tokens"], "an address leads to a node"
    page.get_by_label("find", exact=True).fill("corpus")
    assert "corpus" in page.locator(".found a").first.inner_text()
    page.locator(".found a").first.click()
    until_open(page, "corpus")
    page.screenshot(path=shots / "lineage-found.png")


@pytest.mark.browser
def test_the_data_browser_leads_from_the_model_to_a_raw_document_by_keyboard(served: Served, page: Any, shots: Path):
    asked: list[str] = []
    wrong: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(pages_in(served)["lineage"])
    page.screenshot(path=shots / "lineage.png")
    assert page.locator("section:visible h2").all_inner_texts() == ["export"], "what was asked for is open"
    page.get_by_label("find", exact=True).fill("export")
    page.get_by_label("find", exact=True).press("Enter")
    walked = [page.evaluate("document.activeElement.getAttribute('aria-label')")]
    while not walked[-1].startswith("corpus") and len(walked) < 20:
        page.keyboard.press("ArrowLeft")
        walked.append(page.evaluate("document.activeElement.getAttribute('aria-label')"))
    assert walked[0].startswith("export")
    assert walked[-1].startswith("corpus"), walked
    page.keyboard.press("Enter")
    page.get_by_label("find", exact=True).fill("")
    page.locator("section:visible").get_by_text("The cat number 0 sleeps.").first.wait_for()
    assert page.title() == "Lineage of run abcd2345"
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert wrong == []


@pytest.mark.browser
def test_the_data_browser_leads_from_the_model_to_a_raw_document_by_clicks(served: Served, page: Any):
    page.goto(pages_in(served)["lineage"])
    model = page.locator("a.node[aria-label^='export']")
    model.focus()  # comes into sight, wherever it stands
    model.click()
    way = [page.locator("section:visible h2").text_content()]
    while "corpus" not in way[-1] and len(way) < 20:
        made_of = page.locator("section:visible tr", has=page.locator("th", has_text="made of")).locator("a")
        made_of.last.click()
        page.wait_for_function(
            "there => [...document.querySelectorAll('section h2')].some(h2 => h2.checkVisibility() && h2.textContent !== there)",
            arg=way[-1],
        )
        way.append(page.locator("section:visible h2").text_content())
    assert way[0] == "export" and "train" in way and way[-1] == "corpus", way
    page.locator("section:visible").get_by_text("The cat number 0 sleeps.").first.wait_for()


@pytest.mark.browser
def test_on_a_narrow_screen_the_graph_goes_from_top_to_bottom_and_is_readable(served: Served, page: Any, shots: Path):
    page.set_viewport_size({"width": 390, "height": 850})
    page.goto(pages_in(served)["lineage"])
    frame = page.locator(".graph").bounding_box()
    boxes = page.locator("a.node").evaluate_all(
        "all => all.map(a => { const b = a.querySelector('rect').getBoundingClientRect();"
        " return [a.ariaLabel.split(',')[0], b.left, b.right, b.top]; })"
    )
    assert min(box[1] for box in boxes) >= frame["x"] and max(box[2] for box in boxes) <= frame["x"] + frame["width"]
    assert boxes[0][2] - boxes[0][1] > 90, "large enough to be read"
    tops = {name: top for name, _, _, top in boxes}
    assert tops["corpus"] < tops["tokenizer"] < tops["tokens"] < tops["train"] < min(tops["evaluate"], tops["export"])
    page.screenshot(path=shots / "lineage-narrow.png")
    page.set_viewport_size({"width": 1400, "height": 900})


@pytest.mark.browser
def test_the_graph_is_moved_and_scaled_by_mouse_wheel_keys_and_buttons(served: Served, page: Any):
    page.set_viewport_size({"width": 1000, "height": 800})
    page.goto(pages_in(served)["lineage"])

    def seen() -> list[float]:
        found = page.evaluate(
            "(() => { const m = document.querySelector('g.view').getCTM(); return [m.e, m.f, m.a]; })()"
        )
        assert isinstance(found, list)
        return found

    frame = page.locator(".graph")
    box, first = frame.bounding_box(), seen()
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] - 180, box["y"] + 20, steps=4)
    page.mouse.up()
    dragged = seen()
    assert dragged[0] < first[0] and dragged[2] == first[2]
    page.mouse.move(box["x"] + 200, box["y"] + 60)
    page.mouse.wheel(0, 60)
    assert seen() == dragged, "the wheel alone scrolls the page"
    page.evaluate("window.scrollTo(0, 0)")
    page.keyboard.down("Control")
    page.mouse.wheel(0, -60)
    page.keyboard.up("Control")
    page.wait_for_function(f"document.querySelector('g.view').getCTM().a > {dragged[2]}")
    page.get_by_label("show everything").click()
    whole = seen()
    assert page.evaluate("""[...document.querySelectorAll('a.node')].every(node => {
        const box = node.getBoundingClientRect(), frame = document.querySelector('.graph').getBoundingClientRect();
        return box.left >= frame.left && box.right <= frame.right && box.top >= frame.top && box.bottom <= frame.bottom; })""")
    page.get_by_label("larger").click()
    assert seen()[2] > whole[2]
    frame.focus()
    page.keyboard.press("0")
    assert seen()[2] == pytest.approx(whole[2])
    page.locator("a.node[aria-label^='export']").focus()
    page.set_viewport_size({"width": 1400, "height": 900})


@pytest.mark.browser
def test_a_graph_of_two_thousand_nodes_is_walked_filtered_and_moved(page: Any, tmp_path: Path, shots: Path):
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    fold = Fold(story.ORIGIN)
    log = story.Log()
    for number in range(400):
        run = "".join("abcdefghij"[int(digit)] for digit in f"{number:08}")
        story.whole_run(log, run, steps=30, artifacts={"corpus": story.digest(f"corpus {number % 5}")})
    list(fold.apply_all(log.events()))
    graph = graph_of(projected.run for projected in fold.runs.values())
    assert len(graph.nodes) > 2000
    target = tmp_path / "many.html"
    target.write_bytes(graph_page("many", graph, {name: projected.run for name, projected in fold.runs.items()}, {}))
    page.goto(target.as_uri())
    assert page.locator("a.node").count() == len(graph.nodes)
    page.get_by_label("show everything").click()
    inside = """() => { const frame = document.querySelector('.graph').getBoundingClientRect();
        return [...document.querySelectorAll('a.node')].filter(node => { const box = node.getBoundingClientRect();
            return box.left >= frame.left && box.right <= frame.right && box.top >= frame.top && box.bottom <= frame.bottom;
        }).length; }"""
    assert page.evaluate(inside) == len(graph.nodes)
    page.screenshot(path=shots / "many.png")
    model = next(node for node in graph.nodes.values() if node.step == "export")
    page.get_by_label("find", exact=True).fill(dict(model.facts)["content"])
    page.locator("output").get_by_text("1 found", exact=True).wait_for()
    page.get_by_label("larger").click(click_count=4)
    page.get_by_label("find", exact=True).press("Enter")
    focused = page.evaluate("""() => { const box = document.activeElement.getBoundingClientRect(),
        frame = document.querySelector('.graph').getBoundingClientRect();
        return [document.activeElement.ariaLabel, box.left < frame.right && box.right > frame.left && box.top < frame.bottom
                && box.bottom > frame.top]; }""")
    assert focused[0].startswith("export") and focused[1], "what has the focus is in sight"
    assert wrong == []


@pytest.mark.browser
def test_on_a_telephone_the_index_of_a_site_shows_name_loss_and_verdict(served: Served, page: Any, shots: Path):
    with Inspector() as inspector:
        *_, index = pages(served.root, "", inspector)
    file = shots / "site.html"
    file.write_bytes(index.draw())
    page.set_viewport_size({"width": 390, "height": 850})
    page.goto(file.as_uri())
    row = page.locator("tr").filter(has_text="abcd2345").first
    for text in (f"{NAMED}abcd2345", "2.25", "PASS 2026-11-2", "verification"):
        box = row.get_by_text(text, exact=False).first.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390 and box["height"] < 40, (text, box)
    for digest in page.locator("td:has(.digest)").all():
        assert digest.bounding_box()["height"] < 40, "its button stands beside it"
    page.screenshot(path=shots / "site-390.png")
    page.set_viewport_size({"width": 1400, "height": 900})


@pytest.mark.browser
@pytest.mark.parametrize("name", ["report", "verification"])
def test_on_a_telephone_what_a_row_says_stands_below_its_name(served: Served, page: Any, shots: Path, name: str):
    """Beside five other cells it had a hundred pixels out of sight, and rows were tall and empty."""
    page.set_viewport_size({"width": 390, "height": 850})
    page.goto(pages_in(served)[name])
    rows = [row for row in page.locator(".stacked tr").all() if row.bounding_box()]
    assert len(rows) >= 5
    for row in rows:
        cells = [box for cell in row.locator("td").all() if (box := cell.bounding_box())]
        assert all(box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in cells), row.inner_text()
        assert row.bounding_box()["height"] < 140, row.inner_text()
        if row.locator("td").last.inner_text():
            assert cells[-1]["width"] > 340 and cells[-1]["y"] >= cells[0]["y"] + cells[0]["height"] - 1
    page.screenshot(path=shots / f"{name}-rows-390.png", full_page=True)
    page.set_viewport_size({"width": 1400, "height": 900})
    odd = page.evaluate(
        "[...document.querySelectorAll('.wide')].filter(e => e.getBoundingClientRect().width % 1).length"
    )
    assert odd == 0, "a fraction of a pixel leaves a line beside the table"


@pytest.mark.browser
@pytest.mark.parametrize(("scheme", "width"), [("light", 1400), ("dark", 1400), ("light", 390), ("dark", 390)])
def test_our_pages_have_no_serious_finding_of_axe(served: Served, page: Any, shots: Path, scheme: str, width: int):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 850})
    for name, address in pages_in(served).items():
        page.goto(address)
        found = axe.run(page).response["violations"]
        serious = [
            (item["id"], [node["html"][:200] for node in item["nodes"][:3]])
            for item in found
            if item["impact"] in ("serious", "critical")
        ]
        assert serious == [], (name, scheme, width)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), (name, width)
        page.screenshot(path=shots / f"{name}-{scheme}-{width}.png")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1400, "height": 900})
