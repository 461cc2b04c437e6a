"""`marin train` on a root where `dvc repro` was: what is known is taken over, the rest is executed, and a number leads
back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

pytestmark = pytest.mark.e2e


def train(project: Project, *arguments: str) -> list[dict[str, Any]]:
    done = project.marin("-q", "train", "--config-json", "params.yaml", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.long
def test_the_pipelines_results_are_hits_and_a_sweep_executes_only_what_differs(project: Project) -> None:
    (before,) = json.loads(project.marin("ls", "--json").stdout)
    (dry,) = train(project, "--dry-run")
    assert [step["action"] for step in dry["steps"]] == ["hit"] * 6 and dry["total"]["seconds"] == 0
    (phase,) = train(project, "--continue", before["run"], "trainer.num_steps=2", "--dry-run")
    why = {step["step"]: step["why"] for step in phase["steps"]}
    assert why["tokenizer"].startswith(f"against run {before['run']}, config changed: kept nothing -> sha256:")
    assert why["train"].startswith(f"after tokens, tokenizer; against run {before['run']}, config changed: ")
    assert why["evaluate"] == "after train, tokens, tokenizer"
    (same,) = train(project)
    assert set(same["steps"].values()) == {"cached"} and same["run"] == before["run"]
    assert len(json.loads(project.marin("ls", "--json").stdout)) == 1, "nothing was to do, and nothing was recorded"

    first, second = train(project, "-m", "evaluation.max_sequences=4,8")
    assert first["overrides"] == ["evaluation.max_sequences=4"] and first["failed"] is None
    assert {name for name, action in first["steps"].items() if action == "executed"} == {"evaluate"}
    assert second["run"] == before["run"] and set(second["steps"].values()) == {"cached"}

    perplexity = first["metrics"]["evaluate.perplexity"]
    (found,) = json.loads(project.marin("show", "metric", f"eval/perplexity={perplexity!r}", "--json").stdout)
    assert [item["run"] for item in found["runs"]] == [first["run"]] and found["exact"]
    tree = json.loads(project.marin("lineage", f"{first['run']}/evaluate", "--json").stdout)
    assert {item["step"]: item["run"] for item in tree if item["step"] != "evaluate"} == dict.fromkeys(
        ("corpus", "tokenizer", "tokens", "train"), before["run"]
    )


@pytest.mark.long(seconds=15)
def test_training_whose_inputs_another_root_made_makes_them_first(trained: Project, tmp_path: Path) -> None:
    """A root without any result, of which a stage in the middle is asked first."""
    fresh = trained.copy(tmp_path)
    shutil.rmtree(fresh.root)
    shutil.rmtree(fresh.folder / "artifacts")
    assert fresh.marin("init", "--here").returncode == 0
    done = fresh.marin("stage", "train", "--json", apart=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("made first") == 3
    before = json.loads((trained.folder / "artifacts" / "train.json").read_text())
    assert json.loads(done.stdout.splitlines()[-1])["digest"] == before["digest"]
