"""A mixture of experts by command line: killed in the middle of its training by a signal and gone on, verified, asked, made
again without a document. What it cannot have, tests/marin/cli/running/test_train.py refuses.

One run on two devices is made for all tests of this file.
"""

# Taken by their commands: marin.plugins.serve, marin.plugins.unlearning, marin.plugins.evaluation.

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Project
from tests.e2e.models.mixture import judged, mixture
from tests.e2e.models.test_evaluation import PAIR
from tests.e2e.models.test_serving import served

__all__ = ["mixture"]

pytestmark = pytest.mark.long(together="mixtures", seconds=100)


def answer_of(project: Project, *arguments: str) -> Any:
    done = project.marin(*arguments, "--json", apart=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_killed_and_gone_on_with_it_is_that_of_a_training_that_nobody_stopped(mixture: Project) -> None:
    """The replay goes through on one device, from the initial state to the last."""
    events = [json.loads(line) for line in mixture.marin("log", "--json").stdout.splitlines()]
    starts = [event["body"]["first_step"] for event in events if event["type"] == "train.started/v1"]
    assert len(starts) == 2 and starts[0] == 0 < starts[1], starts
    status, report = judged(mixture)
    outcomes = {name: outcome for name, outcome in report["verdicts"].items() if name != "evaluation"}
    assert (status, set(outcomes.values())) == (0, {"PASS"}), report


def test_what_it_says_is_said_again(mixture: Project, tmp_path: Path) -> None:
    """By ``generate``, ``sample`` and ``serve``, whose answer is generated again."""
    asked = ("--prompt", "The dog", "--max-tokens", "6")
    first = answer_of(mixture, "generate", "latest", *asked)
    assert first == answer_of(mixture, "generate", "latest", *asked) and len(first["tokens"]) <= 6
    text = [mixture.marin("sample", "latest", "The dog", "--tokens", "6", apart=True).stdout for _ in range(2)]
    assert text[0] == text[1] and text[0].startswith("The dog")
    content, _ = served(mixture, "latest")
    saved = tmp_path / "answer.json"
    saved.write_bytes(content)
    assert answer_of(mixture, "generate", "latest", "--replay", str(saved))["equal"]


def test_it_is_made_again_without_a_document_and_what_that_document_did_is_measured(
    mixture: Project, tmp_path: Path
) -> None:
    project = mixture.copy(tmp_path)
    lines = project.marin("data", "list", "latest", "--json").stdout.splitlines()
    document = json.loads(lines[0])["id"]
    (project.folder / "documents").write_text(f"{document}\n", encoding="utf-8")
    measured = answer_of(project, "attribute", "latest", "--documents", "documents")
    made = answer_of(project, "unlearn", "latest", "--document", document, "--reason", "a test")
    (group,) = measured["groups"]
    if group["same_tokenizer"]:
        shown = json.loads(project.marin("show", made["run"], "--json").stdout)
        assert shown["steps"]["train"]["output"]["digest"] == group["end_state"]
    status, report = judged(project, "--only", "data,training")
    assert (status, report["verdicts"]["training"]) == (0, "PASS"), report


@pytest.mark.evaluation
def test_numbers_of_a_harness_are_computed_again(mixture: Project, tmp_path: Path) -> None:
    project = mixture.copy(tmp_path)
    tasks = project.folder / "tasks"
    tasks.mkdir()
    (tasks / "pairs.yaml").write_text(PAIR, encoding="utf-8")
    rows = [{"good": f"the dog {word}s", "bad": f"the dog {word}"} for word in ("run", "sit", "wait")]
    (tasks / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert answer_of(project, "eval", "latest", "--tasks", "pairs")["requests"] == 6
    status, report = judged(project, "--only", "ledger,evaluation")
    assert (status, report["verdicts"]["evaluation"]) == (0, "PASS"), report
