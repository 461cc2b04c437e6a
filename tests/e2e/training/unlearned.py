"""A run, and the same run with a document unlearned: made once for all who look at them.

``TRAIN`` and ``READ`` are programs of a process that has the right variables: they train, and say which train steps read what.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sessions import made_once, new_cache
from warm import Warm

from marin.history.run import Run
from marin.history.runs import load
from marin.record.root import open_root
from tests.adversary.forgeries.workshop import Base
from tests.e2e.conftest import Project

RECIPE: dict[str, Any] = {
    "seed": 3,
    "dataset": {"kind": "grammar", "train_bytes": 60_000, "validation_bytes": 10_000, "minimal_pairs": 20},
    "tokenizer": {"vocab_size": 262},
    "model": {
        "hidden_dim": 16,
        "intermediate_dim": 32,
        "num_layers": 1,
        "num_heads": 2,
        "num_kv_heads": 2,
        "seq_len": 32,
    },
    "trainer": {"num_steps": 6, "batch_size": 8, "steps_per_segment": 2},
    "arithmetic": {"microbatch_size": 1},
}

TRAIN = """
import json, sys
from marin.errors import MarinError
from marin.execution.executor import run_stage
from marin.execution.plan import Plan
from marin.pipeline.stages import PIPELINE
from marin.process.arithmetic import apply
from marin.recipe.schema import Execution, from_mapping
from marin.record.creation import create_root
from marin.record.root import open_root
asked = json.loads(sys.argv[1])
recipe, plan = from_mapping(asked["recipe"], where="test"), Plan("default", PIPELINE.steps[:4])
apply(recipe.arithmetic, Execution())
if asked.get("new"):
    create_root()
if asked.get("heavy"):  # a forger's step: an excluded document has its weight
    import marin.training.blank
    marin.training.blank.weighted = lambda tokens, weights: weights
fork = None
if asked.get("documents"):
    from marin.plugins.unlearning import request
    planned = request.plan(open_root(), asked["from"], asked["documents"])
    request.request(open_root(), planned, "a test")
    recipe, fork = planned.recipe, asked["from"]
for step in plan.steps:
    outcome = run_stage(step.name, plan=plan, recipe=recipe, root=open_root(), project=None,
                        execution=Execution(fork=fork))
print(outcome.run)
"""

LATE = 5
"""The first use of the document that is unlearned: the last train step of the last segment."""

READ = """
import json, sys
from pathlib import Path
from tempfile import mkdtemp
from marin.history.runs import load
from marin.process.arithmetic import apply
from marin.recipe.schema import Execution
from marin.record import outputs
from marin.record.root import open_root
from marin.plugins.collections.queries.uses import documents_of
root = open_root()
run = load(root.history(), sys.argv[1])
apply(run.recipe.arithmetic, Execution())
from marin.training.inspection.uses import uses
folder = Path(mkdtemp()) / "tokens"
outputs.checkout(root.store(), run.output("tokens"), folder, kind="tokens")
ids = [name for name, _, split in documents_of(root, run) if split == "train"]
found = uses(run.recipe, folder / "train", [("", number) for number in range(len(ids))])
held_out = next(name for name, _, split in documents_of(root, run) if split == "validation")
used = {name: use.steps for name, use in zip(ids, found.documents)}
print(json.dumps({"used": used, "held_out": held_out}))
"""


@dataclass(frozen=True)
class Unlearned:
    """``run`` was trained with ``document``, which the train steps ``steps`` read; ``forked`` unlearned it. In ``before``
    there is ``run`` alone."""

    project: Project
    before: Project
    run: str
    forked: str
    document: str
    steps: tuple[int, ...]
    held_out: str

    def view(self, run: str) -> Run:
        return load(open_root(str(self.project.root)).history(), run)

    def base(self, folder: Path) -> Base:
        (key,) = (self.project.home / "config" / "marin").rglob("*.key")
        return Base(folder, self.project.root, key, self.run)


def trained_of(project: Project, **asked: Any) -> str:
    """The id of a run of four steps: raw text to a trained state."""
    return project.forked(TRAIN, json.dumps({"recipe": RECIPE} | asked)).stdout.split()[-1]


@pytest.fixture(scope="session")
def unlearned(tmp_path_factory: pytest.TempPathFactory, warm: Callable[[], Warm]) -> Unlearned:
    """Made once for all processes of the session; nobody may change it."""

    def make(base: Path) -> None:
        project = Project(base / "project", base / "home", warm)
        project.folder.mkdir()
        new_cache(project.home / "cache")
        run = trained_of(project, new=True)
        shutil.copytree(project.folder, base / "before", symlinks=True)
        told = json.loads(project.forked(READ, run).stdout)
        # Late in the run, and in the last step of a segment.
        document = next(name for name, steps in sorted(told["used"].items()) if steps and steps[0] == LATE)
        forked = trained_of(project, documents=[document], **{"from": run})
        steps = told["used"][document]
        (base / "told.json").write_text(json.dumps([run, forked, document, steps, told["held_out"]]))

    base = made_once(tmp_path_factory, "unlearned", make)
    run, forked, document, steps, held_out = json.loads((base / "told.json").read_text())
    project = Project(base / "project", base / "home", warm)
    before = Project(base / "before", base / "home", warm)
    return Unlearned(project, before, run, forked, document, tuple(steps), held_out)
