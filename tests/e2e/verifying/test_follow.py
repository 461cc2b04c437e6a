"""A training in a process of its own, and a follower in another: what the follower refutes ends the training, or sends it back;
what becomes of the follower is nothing to it.

The training waits after each segment until the follower has said something of it in the log, so that no clock decides.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from subprocess import CompletedProcess
from typing import TYPE_CHECKING, Any

import pytest

from ledger import Event

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

TRAIN = """
import sys, time
from dataclasses import replace
from pathlib import Path
import numpy as np
from marin.process.arithmetic import apply
from marin.execution.executor import run_stage
from marin.recipe.params import load_params
from marin.pipeline.stages import PIPELINE
from marin.recipe.schema import Execution
from marin.record import events
from marin.record.root import Root, open_root
fault, answered, names = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(",")
recipe, execution = load_params(Path("params.yaml")), Execution(devices=1)
apply(recipe.arithmetic, execution)
from tests.adversary.faults import operator
from marin.training.loop import Training
from marin.training.step.contract import StepOutcome
from marin.training.step.shards import TrainStep

at, done, honest_batch, honest_run, honest_append = [0], [], Training._batch, TrainStep.run, Root.append

def batch(self, number):
    at[0] = number
    return honest_batch(self, number)

def run(self, state, *given, **named):
    after, outcome = honest_run(self, state, *given, **named)
    if at[0] != fault or done:
        return after, outcome
    done.append(fault)
    other = operator.edited(self.collect(after), "model/transformer/layers/stacked/mlp/down_proj/weight", 5, 3)
    return self.place(other), StepOutcome(outcome.loss, outcome.grad_norm, operator.prints_of(other))

def append(self, drafts):
    receipts = honest_append(self, drafts)
    for draft in drafts:
        if draft.type == events.TRAIN_SEGMENT and draft.body["end"] <= answered:
            while not any(
                event.type == events.STOP_REQUESTED
                or (event.type == events.REPLAY_SEGMENT and event.body["end"] >= draft.body["end"])
                for _, event in self.reader().events(receipts[0].index)
            ):
                time.sleep(0.05)
    return receipts

Training._batch, TrainStep.run, Root.append = batch, run, append
for name in names:
    run_stage(name, plan=PIPELINE, recipe=recipe, root=open_root(), project=Path.cwd(), execution=execution)
"""

KILLED = """
import os, signal
from marin.record.root import open_root
from marin.record.trust.evidence import NOBODY
from marin.recipe.schema import Execution
from marin.plugins.follow.follower import follow
from marin.verify.verification import Options

def say(line):
    if "same bits" in line:
        os.kill(os.getpid(), signal.SIGKILL)

root = open_root()
options = Options(execution=Execution(devices=1), own=root, sources=NOBODY)
follow(root, "latest", options, only=("training",), asking=None, say=say)
"""


@pytest.fixture
def begun(project: Project) -> Project:
    """A run of four segments, up to its tokens."""
    params = json.loads((project.folder / "params.yaml").read_text("utf-8"))
    params["trainer"] |= {"num_steps": 12, "steps_per_segment": 3}
    (project.folder / "params.yaml").write_text(json.dumps(params), encoding="utf-8")
    for name in ("corpus", "tokenizer", "tokens"):
        assert project.marin("stage", name).returncode == 0
    return project


def both(
    project: Project, training: Sequence[str], following: Sequence[str]
) -> tuple[CompletedProcess[str], CompletedProcess[str]]:
    with ThreadPoolExecutor(2) as together:
        follows = together.submit(project.marin, "verify", "latest", "--json", "--follow", *following)
        trains = together.submit(project.forked, TRAIN, *training, check=False)
        return trains.result(), follows.result()


def log(project: Project) -> list[Event]:
    done = project.marin("log", "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def bodies(project: Project, kind: str, run: str) -> list[Any]:
    return [event["body"] for event in log(project) if event["type"] == kind and event["body"].get("run") == run]  # type: ignore[index]


@pytest.mark.long(seconds=60)
def test_a_wrong_bit_stops_the_training_and_the_same_command_goes_on_before_it(begun: Project) -> None:
    trained, followed = both(begun, ("4", "12", "train"), ("--stop", "--only", "ledger,artifacts,data,training"))
    assert trained.returncode != 0 and "training was asked to stop" in trained.stderr, trained.stderr
    assert followed.returncode == 1, followed.stderr
    report = json.loads(followed.stdout)
    run = report["run"]
    assert report["verdicts"]["training"] == "FAIL"
    assert report["first_divergence"]["step"] == 4
    assert [body["start"] for body in bodies(begun, "train.segment/v1", run)] == [0, 3]
    (asked,) = bodies(begun, "stop.requested/v1", run)
    assert (asked["step"], asked.get("back", False)) == (3, False)
    again = begun.marin("stage", "train")
    assert again.returncode == 0, again.stderr
    assert [body["start"] for body in bodies(begun, "train.segment/v1", run)] == [0, 3, 3, 6, 9]
    status, verified = begun.verify("--only", "ledger,artifacts,training")
    assert (status, verified["run"]) == (0, run), verified


@pytest.mark.long(seconds=60)
def test_a_training_that_is_sent_back_ends_with_the_bits_of_an_honest_one(begun: Project) -> None:
    trained, followed = both(begun, ("7", "12", "train,evaluate,export"), ("--back",))
    assert trained.returncode == 0, trained.stderr
    assert followed.returncode == 0, followed.stderr
    run = json.loads(followed.stdout)["run"]
    assert [body["step"] for body in bodies(begun, "train.withdrawn/v1", run)] == [6]
    assert "every recorded state is verified" in begun.marin("show", run).stdout
    status, verified = begun.verify("--fresh")
    assert status == 0, verified


@pytest.mark.long(seconds=60)
def test_a_follower_that_is_killed_costs_the_training_nothing(begun: Project) -> None:
    with ThreadPoolExecutor(2) as together:
        follows = together.submit(begun.forked, KILLED, check=False)
        trains = together.submit(begun.forked, TRAIN, "99", "3", "train", check=False)
        assert follows.result().returncode == -9, follows.result().stderr
        assert trains.result().returncode == 0, trains.result().stderr
    assert "no state older than 9 train steps is unverified" in begun.marin("show", "latest").stdout
    status, verified = begun.verify("--only", "ledger,artifacts,training", "--fresh")
    assert status == 0, verified
