"""docs/data.md, executed (tests/e2e/pages/page.py): from a folder of WARCs to a trained model with five PASS."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.pages.page import blocks, played

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.mark.long(seconds=35)
@pytest.mark.e2e
def test_a_newcomer_comes_from_a_folder_of_warcs_to_a_verified_model(project: Any, tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to(REPOSITORY / "data")
    page = (REPOSITORY / "docs" / "data.md").read_text("utf-8")
    (values,) = (block for language, block in blocks(page) if language == "json")
    (project.folder / "web.json").write_text(values, encoding="utf-8")
    happened, different = played(project, page)
    (tmp_path / "data.md").write_text(happened, encoding="utf-8")
    assert different == [], json.dumps(different, indent=1)
    shown = "\n".join(block for language, block in blocks(page) if language == "console")
    assert len(re.findall(r"^\w+ +PASS ", shown, re.M)) == 6
    assert "collection: sha256:" in shown and "made again from its sources" in shown
