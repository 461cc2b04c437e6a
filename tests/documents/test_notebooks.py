"""The notebooks are executed in an empty folder, and find what their text says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.site
PROJECT = Path(__file__).resolve().parents[2]
NOTEBOOKS = PROJECT / "docs" / "notebooks"


@pytest.fixture(scope="module")
def tool() -> Any:
    pytest.importorskip("nbclient", reason="requirements-docs.lock is not installed (make site)")
    spec = importlib.util.spec_from_file_location("notebooks", PROJECT / "docs" / "site" / "notebooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def told(cells: Any) -> str:
    """All text that these cells show."""
    found = []
    for cell in cells:
        for output in cell.get("outputs", ()):
            found.append(output.get("text", ""))
            found.append(output.get("data", {}).get("text/plain", ""))
    return "\n".join("".join(text) for text in found)


def pictures(notebook: Any) -> int:
    return sum("image/png" in output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", ()))


def same_on_every_machine(text: str) -> list[str]:
    """The losses that a notebook shows."""
    return re.findall(r"loss +(\d\.\d{4}) at the first train step, (\d\.\d{4}) at the last", text)


def test_the_first_hour(tool: Any, tmp_path: Path) -> None:
    import nbformat

    kept = nbformat.read(NOTEBOOKS / "first-hour.ipynb", as_version=4)
    done = tool.execute(NOTEBOOKS / "first-hour.ipynb", tmp_path)
    text = told(done.cells)
    assert "<PASS: run" in text and "training PASS" in text
    assert "The farmer" in text and "idea=slow" in text and "least squares" in text
    assert pictures(done) == pictures(kept) == 3, "two curves, and the picture of the verification"
    assert same_on_every_machine(text) == same_on_every_machine(told(kept.cells)) != []
    for page in ("report.html", "verification.html", "lineage.html"):
        (made,) = tmp_path.glob(f"first-hour-*/{page}")
        assert made.stat().st_size > 10_000
        assert page != "verification.html" or re.search(
            r"<p>By marin\.local/\w+ on 20[^<]+ UTC, on ", made.read_text("utf-8")
        )


def test_from_a_claim_to_a_verified_claim(tool: Any, tmp_path: Path) -> None:
    import nbformat

    done = tool.execute(NOTEBOOKS / "claim.ipynb", tmp_path)
    assert pictures(done) == pictures(nbformat.read(NOTEBOOKS / "claim.ipynb", as_version=4)) == 1, "the seal"
    text = told(done.cells)
    verdicts = re.findall(r"^(ledger|artifacts|data|training|model) +(PASS|FAIL)", text, re.MULTILINE)
    assert verdicts[:5] == [(name, "PASS") for name in ("ledger", "artifacts", "data", "training", "model")]
    assert ("artifacts", "FAIL") in verdicts[5:], "a changed bit of the model"
    assert verdicts[-1] == ("ledger", "FAIL"), "a changed digit of a loss"
    assert "claimed: " in text and "replay.completed/v1" in text
    (page,) = tmp_path.glob("claim-*/verification.html")
    assert re.search(r"<p>By me\.example/log on 20[^<]+ UTC, on ", page.read_text("utf-8"))


def test_the_kept_notebooks_were_executed_whole() -> None:
    import json

    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        cells = [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
        counts = [cell["execution_count"] for cell in cells]
        assert counts == list(range(1, len(cells) + 1)), f"{path.name}: make notebooks"
        assert not [output for cell in cells for output in cell["outputs"] if output["output_type"] == "error"], (
            path.name
        )
