"""A mixture of experts by command line: killed in the middle of its training by a signal and gone on, verified, asked, made
again without a document; what it cannot have is refused by name, and a forged series of its router is found.

One run of two devices is made for all tests of this file.
"""

# Taken by their commands: marin.plugins.serve, marin.plugins.unlearning, marin.plugins.evaluation.

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sessions import made_once, new_cache
from warm import Warm

from bench.forgeries.workshop import Base, Shop
from marin.history.runs import run_ids
from marin.record import events as kinds
from tests.e2e.conftest import MARIN, Project
from tests.e2e.models.test_evaluation import PAIR
from tests.e2e.models.test_serving import served

pytestmark = pytest.mark.long(together="mixtures", seconds=60)

PARAMS = {
    "seed": 3,
    "dataset": {"kind": "grammar", "train_bytes": 60_000, "validation_bytes": 10_000, "minimal_pairs": 8},
    "tokenizer": {"vocab_size": 262},
    "trainer": {"num_steps": 6, "batch_size": 8, "steps_per_segment": 2},
    "evaluation": {"max_sequences": 8, "minimal_pairs": 8},
}
SPARSE = (
    *("model=moe-nano", "model.hidden_dim=16", "model.intermediate_dim=16", "model.num_layers=1", "optimizer=muonh"),
    *("profile=exact", "arithmetic.microbatch_size=8"),
)
COMMAND = ("-q", "train", "--config-json", "params.json", *SPARSE, "--json")


def train(project: Project) -> None:
    """Killed as soon as it has recorded a segment, and said again."""
    project.folder.mkdir()
    new_cache(project.home / "cache")
    (project.folder / "params.json").write_text(json.dumps(PARAMS), encoding="utf-8")
    assert project.marin("init", apart=True).returncode == 0
    command = [sys.executable, "-c", MARIN, *COMMAND[1:], "--devices", "2"]
    with subprocess.Popen(
        command,
        cwd=project.folder,
        env=project.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stderr is not None
        seen = ""
        for line in running.stderr:
            seen += line
            if "train steps 0 to 1 recorded" in line:
                running.send_signal(signal.SIGKILL)
        assert running.wait() == -signal.SIGKILL, seen
    done = project.marin(*COMMAND, "--devices", "2", apart=True)
    assert done.returncode == 0 and json.loads(done.stdout)["failed"] is None, done.stderr


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory, warm: Callable[[], Warm]) -> Project:
    """The run; nobody may change it."""

    def make(base: Path) -> None:
        train(Project(base / "project", base / "home", warm))

    base = made_once(tmp_path_factory, "mixture", make)
    return Project(base / "project", base / "home", warm)


def said(project: Project, *arguments: str) -> Any:
    done = project.marin(*arguments, "--json", apart=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def judged(project: Project, *more: str) -> tuple[int, dict[str, Any]]:
    return project.verify("--no-record", "--devices", "1", *more, apart=True)


def test_killed_and_gone_on_with_it_is_that_of_a_training_that_nobody_stopped(mixture: Project) -> None:
    """The replay goes through on one device, from the initial state to the last."""
    events = [json.loads(line) for line in mixture.marin("log", "--json").stdout.splitlines()]
    starts = [event["body"]["first_step"] for event in events if event["type"] == "train.started/v1"]
    assert len(starts) == 2 and starts[0] == 0 < starts[1], starts
    status, report = judged(mixture)
    outcomes = {name: outcome for name, outcome in report["verdicts"].items() if name != "evaluation"}
    assert (status, set(outcomes.values())) == (0, {"PASS"}), report


def _less_even(values: list[str]) -> list[str]:
    return [*values[:-1], (float.fromhex(values[-1]) * 0.5).hex()]


def _a_unit_away(values: list[str]) -> list[str]:
    return [*values[:-1], (float.fromhex(values[-1]) + 2.0**-30).hex()]


def _one_more(values: list[str]) -> list[str]:
    return [*values[:-1], (float.fromhex(values[-1]) + 1.0).hex()]


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("router/entropy", _less_even),
        ("router/entropy", _a_unit_away),
        ("router/largest_share", _a_unit_away),
        ("router/idle_experts", _one_more),
    ],
)
def test_a_forged_series_of_the_router_is_replayed_and_refused(
    mixture: Project, tmp_path: Path, key: str, change: Callable[[list[str]], list[str]]
) -> None:
    """By the operator, who has the key: only a replay of the train steps shows it."""
    shop = shop_of(mixture, tmp_path)
    changed = [
        series
        for event in shop.all(kinds.METRICS_RECORDED, "train")
        for series in event.body["series"]
        if series["key"] == key
    ]
    changed[-1]["values"] = change(changed[-1]["values"])
    shop.sign()
    status, report = refused(mixture, shop)
    assert (status, report["verdicts"]["training"]) == (1, "FAIL"), report["details"]
    assert key in "\n".join(report["details"]["training"])


def test_a_series_of_the_router_that_was_left_out(mixture: Project, tmp_path: Path) -> None:
    shop = shop_of(mixture, tmp_path)
    for event in shop.all(kinds.METRICS_RECORDED, "train"):
        event.body["series"] = [one for one in event.body["series"] if one["key"] != "router/idle_experts"]
    shop.sign()
    status, report = refused(mixture, shop)
    assert status != 0 and report["verdicts"]["training"] != "PASS", report["details"]


def shop_of(mixture: Project, folder: Path) -> Shop:
    (key,) = (mixture.home / "config" / "marin").rglob("*.key")
    base = Base(folder, mixture.root, key, "")
    (run,) = run_ids(base.root.history())
    return Shop(Base(folder, mixture.root, key, run), run, folder)


def refused(mixture: Project, shop: Shop) -> tuple[int, dict[str, Any]]:
    """What a stranger says of the forged root."""
    vkey = (mixture.root / "vkey").read_text().strip()
    published = Project(shop.path.parent, shop.folder / "home", mixture.warm)
    return judged(published, "--only", "training", "--vkey", vkey)


def test_what_it_says_is_said_again(mixture: Project, tmp_path: Path) -> None:
    """By `generate`, `sample`, and `serve`, whose answer is generated again."""
    asked = ("--prompt", "The dog", "--max-tokens", "6")
    first = said(mixture, "generate", "latest", *asked)
    assert first == said(mixture, "generate", "latest", *asked) and len(first["tokens"]) <= 6
    text = [mixture.marin("sample", "latest", "The dog", "--tokens", "6", apart=True).stdout for _ in range(2)]
    assert text[0] == text[1] and text[0].startswith("The dog")
    content, _ = served(mixture, "latest")
    saved = tmp_path / "answer.json"
    saved.write_bytes(content)
    assert said(mixture, "generate", "latest", "--replay", str(saved))["equal"]


def test_it_is_made_again_without_a_document_and_what_that_document_did_is_measured(
    mixture: Project, tmp_path: Path
) -> None:
    project = mixture.copy(tmp_path)
    lines = project.marin("data", "list", "latest", "--json").stdout.splitlines()
    document = json.loads(lines[0])["id"]
    (project.folder / "documents").write_text(f"{document}\n", encoding="utf-8")
    measured = said(project, "attribute", "latest", "--documents", "documents")
    made = said(project, "unlearn", "latest", "--document", document, "--reason", "a test")
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
    assert said(project, "eval", "latest", "--tasks", "pairs")["requests"] == 6
    status, report = judged(project, "--only", "ledger,evaluation")
    assert (status, report["verdicts"]["evaluation"]) == (0, "PASS"), report


REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "adapters of a mixture": (
        (*SPARSE[:-1], "optimizer=adamw", "lora.rank=4"),
        "model.architecture: expected a dense one, where lora is trained",
    ),
    "adapters moved by Muon": (
        ("model=nano", "optimizer=muon", "profile=exact", "lora.rank=4"),
        "optimizer.name: expected adamw or lion, where lora is trained",
    ),
    "more experts for a token than there are": (
        (*SPARSE, "model.num_experts_per_tok=5"),
        "model.num_experts_per_tok: expected at most model.num_experts (4), found 5",
    ),
    "experts that do not divide over devices": (
        (*SPARSE, "--devices", "8", "--expert-parallel", "8"),
        "--expert-parallel: expected ",
    ),
    "experts of a dense model over devices": (
        ("model=nano", "profile=exact", "--devices", "2", "--expert-parallel", "2"),
        "--expert-parallel: expected ",
    ),
    "no such rule": (("model=nano", "profile=exact", "optimizer.name=muonn"), "optimizer.name"),
    "no such group": (("model=nano", "profile=exact", "optimizer=muonn"), "optimizer"),
    "a rule of LAPACK": (("model=nano", "profile=exact", "optimizer=soap"), "SOAP takes eigenvectors"),
    "a mixture under portable-cpu": (("model=moe-nano",), "model.architecture: expected a dense one"),
    "Muon under portable-cpu": (("model=nano", "optimizer=muon"), "optimizer.name: expected adamw or lion"),
}


@pytest.mark.parametrize("asked", REFUSED)
def test_what_cannot_be_is_one_line_and_nothing_begins(mixture: Project, tmp_path: Path, asked: str) -> None:
    project = mixture.copy(tmp_path)
    before = project.marin("log", "--json").stdout
    arguments, words = REFUSED[asked]
    done = project.marin("train", "--config-json", "params.json", *arguments, apart=True)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("marin: ")]
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert words in line, line
    assert project.marin("log", "--json").stdout == before
