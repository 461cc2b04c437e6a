"""A training by rewards from the command line: recorded, stopped, moved to other devices, verified by a stranger's process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ledger import digest_bytes
from marin.plugins.rl.record import read_record
from tests.e2e.conftest import Project, trained, warm

__all__ = ["trained", "warm"]
pytestmark = pytest.mark.long(together="rewarded", seconds=150)
ASKED = {
    "objective": {"num_generations": 4, "max_completion_length": 8, "num_iterations": 2, "beta": 0.02},
    "trainer": {"num_steps": 8, "steps_per_segment": 4, "batch_size": 8},
    "evaluation": {"max_sequences": 8},
}
COMMAND = ("-q", "train", "--json", "+objective=grpo", "--config-json", "asked.json")


def asked(trained: Project, folder: Path) -> Project:
    """A copy of the finished run's project, whose corpus, tokenizer and tokens are taken over."""
    project = trained.copy(folder)
    (project.folder / "asked.json").write_text(json.dumps(ASKED), encoding="utf-8")
    return project


def told(project: Project, kind: str, run: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in project.marin("log", "--json").stdout.splitlines()]
    return [one["body"] for one in found if one["type"] == f"{kind}/v1" and one["body"].get("run") == run]


def test_a_training_by_rewards_is_stopped_moved_and_made_again(trained: Project, tmp_path: Path) -> None:
    project = asked(trained, tmp_path)
    within = project.marin(*COMMAND, "--pause-at", "3")
    assert within.returncode != 0 and "a pause within an update" in within.stderr
    paused = project.marin(*COMMAND, "--devices", "2", "--pause-at", "2", apart=True)
    assert "paused" in paused.stderr + paused.stdout, paused.stderr
    done = project.marin(*COMMAND, apart=True)
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)["run"]
    segments = told(project, "train.segment", run)
    assert [(one["start"], one["end"]) for one in segments] == [(0, 2), (2, 4), (4, 8)]
    batches = [batch for one in segments for batch in one["batches"]]
    assert batches[0::2] == batches[1::2] and len(set(batches)) == 4
    for number, digest in enumerate(batches[0::2]):
        data = project.marin("store", "get", digest).stdout.encode()
        record = read_record(data)
        assert digest_bytes(data) == digest and record is not None and record.update == number
        assert len(record.completions) == 8 and all(one.reference for one in record.completions)
    measured = {series["key"] for one in told(project, "metrics.recorded", run) for series in one["series"]}
    assert {"rl/reward", "rl/entropy", "rl/completion_length", "rl/reward_std"} < measured
    status, report = project.verify(apart=True)
    assert (status, set(report["verdicts"].values())) == (0, {"PASS"}), report
    shown = project.marin("show", run, "--data", "--step", "0")
    assert shown.returncode == 2 and "reads no sequences" in shown.stderr, shown.stderr
