"""A trained state asked: what it says after a prompt, and harness numbers recorded here and checked by a stranger."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Project

PAIR = """
task: pairs
dataset_path: json
dataset_kwargs: {data_files: {test: pairs.jsonl}}
output_type: multiple_choice
test_split: test
doc_to_text: ""
doc_to_target: 0
doc_to_choice: "{{[good, bad]}}"
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""


@pytest.fixture
def project(trained: Project, tmp_path: Path) -> Project:
    return trained.copy(tmp_path)


def said(project: Project, *arguments: str) -> Any:
    done = project.marin("generate", "latest", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_same_prompt_state_and_seed_say_the_same(trained: Project) -> None:
    asked = ("--prompt", "The dog", "--max-tokens", "6", "--temperature", "0.9")
    first, again, other = (said(trained, *asked, "--seed", seed) for seed in ("5", "5", "6"))
    assert first == again and first["tokens"] != other["tokens"]
    assert len(first["logprobs"]) == len(first["tokens"]) <= 6 and max(first["logprobs"]) <= 0
    early = said(trained, "--prompt", "The dog", "--max-tokens", "2", "--step", "3")
    assert early["step"] == 3 and early["state"] != first["state"]
    drawn = said(trained, "--prompt", "The dog", "--max-tokens", "2", "--step", "0")
    log = [json.loads(line) for line in trained.marin("log", "--json").stdout.splitlines()]
    (started,) = {one["body"]["state"] for one in log if one["type"] == "train.started/v1"}
    assert (drawn["step"], drawn["state"]) == (0, started), "the state that the training began with is made again"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--prompt", "a", "--step", "4"), "no state of this train step"),
        (("--prompt", "word " * 60), "no room for a token"),
    ],
)
def test_what_cannot_be_said_is_refused(trained: Project, arguments: tuple[str, ...], why: str) -> None:
    done = trained.marin("generate", "latest", *arguments)
    assert (done.returncode, why in done.stderr, "Traceback" in done.stderr) == (2, True, False), done.stderr


@pytest.mark.skipif(find_spec("lm_eval") is None, reason="the extra `evaluation` (make evaluation)")
def test_recorded_numbers_are_computed_again_by_their_owner_and_by_a_stranger(project: Project, tmp_path: Path) -> None:
    tasks = project.folder / "tasks"
    tasks.mkdir()
    (tasks / "pairs.yaml").write_text(PAIR, encoding="utf-8")
    rows = [{"good": f"the dog {word}s", "bad": f"the dog {word}"} for word in ("run", "sit", "wait")]
    (tasks / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    done = project.marin("eval", "latest", "--tasks", "pairs", "--json", "--output_path", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert set(told["results"]["pairs"]) >= {"acc,none", "acc_stderr,none"} and told["requests"] == 6
    assert json.loads((tmp_path / "out" / "results.json").read_text())["results"] == told["results"]
    again = project.marin(
        "eval", "latest", "--tasks", "pairs", "--json", "--no-record", "--devices", "2", "--batch-size", "7"
    )
    assert {name: json.loads(again.stdout)[name] for name in ("samples", "identity")} == {
        name: told[name] for name in ("samples", "identity")
    }
    status, report = project.verify("--only", "ledger,evaluation")
    assert (status, report["verdicts"]["evaluation"]) == (0, "PASS"), report
    assert report["evaluation"]["requests_answered"] == 6
    done = project.marin("eval", "latest", "--tasks", "pairs", "--limit", "2", "--json")
    assert done.returncode == 0, done.stderr
    _, report = project.verify("--only", "ledger,evaluation")
    claims = [claim["claim"] for claim in report["claims"] if claim["claim"].startswith("pairs on the state")]
    assert [claim.rpartition(", asked of ")[2] for claim in claims] == ["3 documents", "the first 2 documents"], claims
    key = (project.root / "vkey").read_text().strip()
    stranger = Project(project.folder, tmp_path / "stranger", project.warm)
    status, report = stranger.verify("--only", "ledger,evaluation", "--sample", "2", "--vkey", key, "--no-record")
    assert (status, report["verdicts"]["ledger"], report["verdicts"]["evaluation"]) == (4, "PASS", "PARTIAL"), report


def test_a_task_without_its_harness_or_its_file_is_said(project: Project) -> None:
    done = project.marin("eval", "latest", "--tasks", "nothing")
    assert done.returncode in (2, 3) and "Traceback" not in done.stderr, done.stderr


def test_babylms_tasks_are_recorded_once_and_their_submission_is_made_of_them(project: Project, tmp_path: Path) -> None:
    data = project.folder / "evaluation_data"
    rows = [{"sentence_good": f"the dog {word}s", "sentence_bad": f"the dog {word}"} for word in ("run", "sit", "wait")]
    for part in ("full_eval/supplement_filtered", "fast_eval/supplement_fast"):
        (data / part).mkdir(parents=True)
        (data / part / "agreement.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    done = project.marin("eval", "latest", "--babylm", "evaluation_data/full_eval", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert set(told["results"]["supplement_filtered"]) == {"acc,none", "acc_stderr,none"}
    assert (told["requests"], told["harness"]) == (6, "babylm-eval 2026")
    done = project.marin("export", "latest", "--babylm", str(tmp_path / "out"), "--babylm-data", "evaluation_data")
    assert done.returncode == 0 and "never had so many words" in done.stderr, done.stderr
    revisions = json.loads((tmp_path / "out" / "checkpoints.json").read_text())
    assert list(revisions) == ["main"] and revisions["main"]["events"] == {"supplement_filtered": told["event"]}
    collated = json.loads((tmp_path / "out/results/model/all_full_preds_and_fast_scores_causal.json").read_text())
    assert [one["id"] for one in collated["blimp_supplement"]["agreement"]["predictions"]] == [
        f"agreement_{number}" for number in range(3)
    ]
    status, report = project.verify("--only", "ledger,evaluation")
    assert (status, report["verdicts"]["evaluation"], report["evaluation"]["requests_answered"]) == (0, "PASS", 6), (
        report
    )
    done = project.marin("eval", "latest", "--babylm", "evaluation_data/full_eval", "--tasks", "supplement")
    assert (done.returncode, "supplement_filtered" in done.stderr, "Traceback" in done.stderr) == (2, True, False)
