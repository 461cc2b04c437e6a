"""A training that learns from rewards, killed where it could hurt: each time it goes on, on other devices, to the same bits."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from marin.recipe.arithmetic import EXACT
from marin.recipe.schema import plain, unplain
from tests.e2e.conftest import PARAMS

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

pytestmark = [pytest.mark.e2e, pytest.mark.determinism]
REWARDED = PARAMS | {
    "trainer": {"num_steps": 8, "batch_size": 8, "steps_per_segment": 2},
    "arithmetic": {**unplain(plain(EXACT)), "microbatch_size": 4},
    "objective": {"num_generations": 4, "num_iterations": 2, "max_completion_length": 4},
}
STEPS = """
import os, signal, sys
from pathlib import Path
from marin.process.arithmetic import apply
from marin.execution.executor import run_stage
from marin.recipe.params import load_params
from marin.pipeline.stages import PIPELINE
from marin.recipe.schema import Execution
from marin.record.root import open_root
devices, place = int(sys.argv[1]), sys.argv[2]
recipe, execution = load_params(Path("params.yaml")), Execution(devices=devices)
apply(recipe.arithmetic, execution)

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def at_call(number, owner, name):
    once, calls = getattr(owner, name), []
    def counted(*given, **named):
        calls.append(name)
        if len(calls) == number:
            die()
        return once(*given, **named)
    setattr(owner, name, counted)

if place == "a sampler, between drawing and saying so":
    from marin.plugins.rl.rollouts import DrawnRollouts
    at_call(2, DrawnRollouts, "_table")
elif place == "the trainer, between two train steps of an update":
    from marin.training import loop
    at_call(3, loop, "fingerprint_of")
elif place == "the recorder, when completions are stored and no event names them":
    from marin.training.run import Recorder
    at_call(2, Recorder, "checkpoint")
elif place == "the writer, in the middle of an event":
    from ledger.log.journal import JournalWriter
    once = JournalWriter.write
    def write(journal, record):
        data = record.encode()
        if b"train.segment/v1" in data:
            journal._storage.write_at(journal._name, journal._end, data[: len(data) // 2])
            die()
        once(journal, record)
    JournalWriter.write = write
for name in ("corpus", "tokenizer", "tokens", "train"):
    done = run_stage(name, plan=PIPELINE, recipe=recipe, root=open_root(), project=Path.cwd(), execution=execution)
print(done.result.output.digest)
"""
PLACES = (
    "a sampler, between drawing and saying so",
    "the trainer, between two train steps of an update",
    "the recorder, when completions are stored and no event names them",
    "the writer, in the middle of an event",
)


def rewarded(project: Project, devices: int, place: str = "nowhere") -> tuple[int, str]:
    done = project.python(STEPS, str(devices), place, check=False)  # so many devices only a new process has
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout.strip()


def test_killed_at_each_place_in_turn_it_goes_on_to_the_same_bits(
    trained: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    projects = [trained.copy(tmp_path_factory.mktemp(name)) for name in ("straight", "killed")]
    for project in projects:
        (project.folder / "params.yaml").write_text(json.dumps(REWARDED), "utf-8")
    straight, killed = projects
    status, expected = rewarded(straight, 1)
    assert (status, expected[:7]) == (0, "sha256:")
    for devices, place in zip((1, 2, 4, 1), PLACES, strict=True):
        assert rewarded(killed, devices, place)[0] == -signal.SIGKILL, place
    assert rewarded(killed, 2) == (0, expected)
    view = json.loads(killed.marin("show", "latest", "--json").stdout)
    assert [(one["start"], one["end"]) for one in view["segments"]] == [(0, 2), (2, 4), (4, 6), (6, 8)]
    assert killed.marin("ledger", "fsck").returncode == 0
    status, report = killed.verify("--only", "training", "--devices", "8", "--no-record", apart=True)
    assert (status, report["verdicts"]["training"]) == (0, "PASS"), report
