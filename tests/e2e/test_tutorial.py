"""docs/tutorial.md, executed (tests/e2e/pages/page.py).

The folder is a copy of the session's trained run, whose recipe is that of the page; so the first training is a hit, and
the page's second one executes an evaluation alone. The page as it came out is in the test's folder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from marin.recipe.composition import compose
from marin.recipe.params import load_params
from tests.e2e.pages.page import blocks, played

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"


@pytest.mark.e2e
def test_every_command_of_the_tutorial_prints_what_it_says(project: Any, tmp_path: Path) -> None:
    page = PAGE.read_text("utf-8")
    for language, block in blocks(page):
        if language == "json":
            (project.folder / "small.json").write_text(block, encoding="utf-8")
            composed = compose(["model=nano", "trainer=smoke"], config_json=block).recipe
            assert composed == load_params(project.folder / "params.yaml"), "the session's run is the page's"
    happened, different = played(project, page)
    (tmp_path / "tutorial.md").write_text(happened, encoding="utf-8")
    assert different == [], json.dumps(different, indent=1)
