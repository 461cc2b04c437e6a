"""A training on preferences, from lines to a model that others check: DPO by adapters, the model before it is the reference."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Project
from tests.e2e.training.test_from_folder import exported, shown

pytestmark = pytest.mark.long(together="preferences", seconds=135)

BEGUN = (
    "--config-json",
    "asked.json",
    "--from",
    "elsewhere",
    "dataset=preferences",
    "dataset.globs=[pairs.jsonl]",
    "dataset.validation_fraction=0.25",
)
ASKED = {
    "lora": {"rank": 2},
    "optimizer": {"learning_rate": 0.02, "warmup_steps": 0},
    "trainer": {"num_steps": 6, "steps_per_segment": 3, "batch_size": 16},
    "arithmetic": {"microbatch_size": 2},
    "evaluation": {"max_sequences": 8},
}


def said(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}


def paired(project: Project) -> None:
    """The model to begin with, and forty preferences: what was written, and the same words backwards."""
    exported(project)
    with (project.folder / "pairs.jsonl").open("w", encoding="utf-8") as out:
        for number in range(40):
            words = ["one", "or", "two", "is", str(number)]
            told = [said("assistant", " ".join(order)) for order in (words, words[::-1])]
            out.write(json.dumps({"chosen": told[:1], "rejected": told[1:]}) + "\n")
    (project.folder / "asked.json").write_text(json.dumps(ASKED), encoding="utf-8")


@dataclass(frozen=True)
class Preferred:
    """A training on preferences, and what `marin train` said of it."""

    project: Project
    told: dict[str, Any]


@pytest.fixture(scope="module")
def once(trained: Project, tmp_path_factory: pytest.TempPathFactory) -> Preferred:
    project = trained.copy(tmp_path_factory.mktemp("preferred"))
    paired(project)
    return Preferred(project, preferring(project))


@pytest.fixture
def preferred(once: Preferred, tmp_path: Path) -> Preferred:
    """A copy of the one training of this file, to be damaged."""
    return replace(once, project=once.project.copy(tmp_path))


def preferring(project: Project, *arguments: str) -> dict[str, Any]:
    done = project.marin("-q", "train", "--json", *BEGUN, *arguments)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def events(project: Project, kind: str, run: str) -> list[dict[str, Any]]:
    done = project.marin("log", "--json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return [one["body"] for one in found if one["type"] == f"{kind}/v1" and one["body"]["run"] == run]


def test_preferences_are_learned_recorded_and_verified(preferred: Preferred) -> None:
    project, told = preferred.project, preferred.told
    status, report = project.verify()
    assert (status, set(report["verdicts"].values())) == (0, {"PASS"}), report
    before = preferring(project, "trainer.num_steps=1", "optimizer.learning_rate=1e-9")
    losses = [float.fromhex(x) for one in events(project, "train.segment", told["run"]) for x in one["losses"]]
    assert len(losses) == 6 and losses[0] == pytest.approx(0.6931472, abs=1e-6) and losses[-1] < 0.6, losses
    metrics = [shown(project, run["run"])["metrics"] for run in (before, told)]
    assert [one["evaluate.pairs"] for one in metrics] == [metrics[0]["corpus.minimal_pairs"]] * 2
    assert metrics[0]["evaluate.pairs_won"] < metrics[1]["evaluate.pairs_won"] == 1.0, metrics
    done = project.marin("export", told["run"], "--hf", "tuned")
    assert done.returncode == 0, done.stderr
    assert (project.folder / "tuned" / "adapters" / "adapter_model.safetensors").is_file()
    (seen,) = [json.loads(project.marin("show", told["run"], "--data", "--step", "0", "--json").stdout)]
    chosen, rejected = seen["sequences"][:2]
    assert rejected["index"] == chosen["index"] + 1 and chosen["index"] % 2 == 0
    assert "one or two is" in chosen["text"] and "is two or one" in rejected["text"]


def test_on_two_devices_in_parallel_the_bits_are_the_same(
    preferred: Preferred, trained: Project, tmp_path: Path
) -> None:
    """Trained on one and on two; each replayed by two workers on the other number of devices."""
    project, one = preferred.project, preferred.told
    other = trained.copy(tmp_path / "other")
    shutil.copytree(project.folder / "elsewhere", other.folder / "elsewhere", dirs_exist_ok=True)
    for name in ("pairs.jsonl", "asked.json"):
        shutil.copy(project.folder / name, other.folder)
    two = preferring(other, "--devices", "2")
    states = [shown(place, told["run"])["outputs"]["train"] for place, told in ((project, one), (other, two))]
    assert states[0] == states[1]
    prints = [
        [one["fingerprints"] for one in events(place, "train.segment", told["run"])]
        for place, told in ((project, one), (other, two))
    ]
    assert prints[0] == prints[1] and len(prints[0]) == 2
    status, report = project.verify("--only", "training", "--devices", "2", "--workers", "2")
    assert (status, report["verdicts"]["training"], report["training"]["segments_replayed"]) == (0, "PASS", 2), report


def test_what_is_longer_than_a_sequence_is_named(preferred: Preferred) -> None:
    lines = preferred.project.folder / "pairs.jsonl"
    long = {
        "chosen": [said("user", "?"), said("assistant", "a long answer " * 40)],
        "rejected": [said("user", "?"), said("assistant", "no")],
    }
    lines.write_text(lines.read_text("utf-8") + json.dumps(long) + "\n", encoding="utf-8")
    done = preferred.project.marin("train", *BEGUN, "dataset.validation_fraction=1e-9")
    assert done.returncode == 1 and "longer than a sequence" in done.stderr, done.stderr


def test_the_reference_stays_what_it_was(preferred: Preferred) -> None:
    """A phase that goes on keeps beta and adapters; another would have another reference."""
    done = preferred.project.marin("train", "--continue", preferred.told["run"], "lora.dpo_beta=0.5")
    assert done.returncode == 2 and "a phase keeps this" in done.stderr, done.stderr
