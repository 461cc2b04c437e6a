"""The data browser on a real run, in a real browser: for a train step the very documents that it saw."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


def test_a_train_step_shows_the_documents_that_it_saw(
    project: Project, chromium: Any, shots: Path, tmp_path: Path
) -> None:
    target = tmp_path / "lineage.html"
    done = project.marin("lineage", "latest", "--html", str(target), "--train-steps", "0,4")
    assert done.returncode == 0, done.stderr
    (corpus,) = [
        item["artifact"]
        for item in json.loads(project.marin("lineage", "latest", "--json").stdout)
        if item["step"] == "corpus"
    ]
    raw = tmp_path / "corpus"
    assert project.marin("store", "get", corpus, str(raw)).returncode == 0
    documents = [json.loads(line)["text"] for line in (raw / "train.jsonl").read_text("utf-8").splitlines()]
    asked: list[str] = []
    page = chromium.new_page(viewport={"width": 390, "height": 800})
    page.on("request", lambda request: asked.append(request.url))
    page.goto(target.as_uri())
    step = page.locator("a.node[aria-label^='train']")
    step.focus()
    page.keyboard.press("Enter")
    panel = page.locator("section:visible")
    for number in (0, 4):
        shown = panel.locator("details", has=page.locator("summary", has_text=f"What train step {number} saw")).first
        shown.locator("summary").first.click()
        shown.get_by_text("found again: PASS").first.wait_for()
        sequences = shown.locator(":scope > div")
        assert sequences.count() == 4
        for place in range(4):
            sequence = sequences.nth(place)
            named = (
                sequence.locator("p")
                .first.inner_text()
                .removesuffix(".")
                .split("document")[1]
                .removeprefix("s")
                .split()
            )
            first, last = int(named[0]), int(named[-1])
            pieces = "".join(sequence.locator(".token").all_text_contents())
            sequence.get_by_text("The documents themselves").click()
            whole = sequence.locator("details pre").all_text_contents()
            # The oracle is the corpus itself: the documents of these numbers, and the sequence is a piece of them.
            assert whole == [text[:600] for text in documents[first : last + 1]]
            words = [word for part in pieces.replace("<|endoftext|>", "\n").split() for word in [part]]
            told = " ".join(documents[first : last + 1])
            assert all(word in told for word in words[1:-1]), (first, last, pieces)
    page.screenshot(path=shots / "seen.png")
    page.close()
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
