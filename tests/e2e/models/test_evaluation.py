"""A trained state asked: what it says after a prompt, and harness numbers recorded here and checked by a stranger."""

# Taken by their commands: marin.plugins.serve.

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hub import hub_on_loopback
from warm import warmed

from ledger import describe_tree
from tests.e2e.conftest import MARIN, Project

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


OF_FEW_WORDS = """
from marin.history.runs import load, resolve
from marin.process.arithmetic import apply
from marin.recipe.schema import Execution
from marin.record.root import open_root
history = open_root().history()
apply(load(history, resolve(history, "latest")).recipe.arithmetic, Execution())
import marin.plugins.evaluation.babylm.submission
marin.plugins.evaluation.babylm.submission.MILLION = 100  # words
"""
"""Before a command: a checkpoint of BabyLM is one after so many hundred words."""


@pytest.fixture
def project(trained: Project, tmp_path: Path) -> Project:
    return trained.copy(tmp_path)


def said(project: Project, *arguments: str) -> Any:
    done = project.marin("generate", "latest", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.long(seconds=15)
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


@pytest.mark.evaluation
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


@pytest.mark.long
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
    words = ("--babylm-data", "evaluation_data", "--card", "--license", "mit")
    done = project.marin("export", "latest", "--babylm", str(tmp_path / "out"), *words)
    assert done.returncode == 0 and "never had so many words" in done.stderr, done.stderr
    revisions = json.loads((tmp_path / "out" / "checkpoints.json").read_text())
    model = tmp_path / "out" / "model" / "main"
    assert "\nlicense: mit\n" in (model / "README.md").read_text()
    assert revisions["main"]["folder"] == describe_tree(model).digest, "a push that goes on finds the card too"
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


@pytest.mark.long(seconds=20)
def test_a_submissions_checkpoints_are_branches_of_a_repository(trained: Project, tmp_path: Path) -> None:
    out = tmp_path / "out"
    asked = ("export", "latest", "--babylm", str(out), "--hub", "owner/model", "--json")

    def export(*arguments: str) -> tuple[int, list[Any], str]:
        done = connected.forked(OF_FEW_WORDS + MARIN, *arguments, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr

    with hub_on_loopback() as hub, pytest.MonkeyPatch.context() as patch, ExitStack() as beside:
        for name, value in {"HF_ENDPOINT": hub.address, "HF_TOKEN": "wrong", "HF_HUB_DISABLE_XET": "1"}.items():
            patch.setenv(name, value)
        # Forks of a process for this hub: where it is, its library reads once, when it is imported.
        server = beside.enter_context(warmed(trained.environment()))
        connected = replace(trained, warm=lambda: server)
        status, lines, why = export(*asked)
        assert (status, [line["export"] for line in lines]) == (2, ["babylm"]) and "the Hub refuses" in why, why
        patch.setenv("HF_TOKEN", hub.token)
        status, (_, *pushed), why = export(*asked)  # the folder is there, and the same call goes on
        names = [line["revision"] for line in pushed]
        assert status == 0 and names[:2] == ["chck_1M", "chck_2M"] and names[-1] == "main", why
        written = [*json.loads((out / "checkpoints.json").read_text())]
        assert names == [*written[1:], written[0]]
        for line in pushed:
            commit = hub.refs["owner/model", line["revision"]]
            assert line["path"] == f"hf:owner/model@{commit}"
            assert hub.commits["owner/model", commit] == {
                path.name: path.read_bytes() for path in (out / "model" / line["revision"]).iterdir()
            }
        before = dict(hub.refs)
        config = (out / "model" / "chck_1M" / "config.json").read_bytes()
        (out / "model" / "chck_1M" / "config.json").write_text("{}")
        status, _, why = export(*asked)
        assert (status, hub.refs) == (2, before) and "is not this submission" in why, why
        (out / "model" / "chck_1M" / "config.json").write_bytes(config)
        status, _, why = export(*asked, "--card")
        assert (status, hub.refs) == (2, before) and "expected a card, as --card writes it, found none" in why, why
    exported = tmp_path / "hf"
    assert trained.marin("export", "latest", "--hf", str(exported)).returncode == 0
    assert describe_tree(exported).digest == describe_tree(out / "model" / "main").digest
    for arguments, said in (
        (("--hf", "a", "--babylm", "b", "--hub", "owner/model"), "a push is of one thing"),
        (("--dvc", "a", "--hub", "owner/model"), "expected --hf or --babylm"),
        (("--babylm", "b", "--hub", "owner/model", "--hub-branch", "x"), "names of its checkpoints"),
    ):
        done = trained.marin("export", "latest", *arguments)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
