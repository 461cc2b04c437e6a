"""The cells that a root has: runs by training and change, their steps, their stored tensors, and whether they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import marin
from ledger import StateManifest
from marin.history.run import Run
from marin.history.runs import load, load_all
from marin.record.events import LOOP
from marin.record.root import Root

WITHOUT_EXECUTION = ("ledger", "artifacts")


@dataclass(frozen=True)
class Step:
    """A train step as its run has it; the loss in hexadecimal, so that it is exact."""

    number: int
    loss: str
    batch: str
    state: str
    manifest: str


@dataclass(frozen=True)
class Recorded:
    """A run of the census."""

    run: str
    training: str
    change: str
    key: str
    status: str
    failure: str
    versions: Mapping[str, str]
    steps: tuple[Step, ...]
    tensors: str  # digest of the stored folder

    def digests(self, root: Root, step: Step) -> dict[str, str]:
        """The digest of each tensor after a step."""
        manifest = StateManifest.parse(root.store().read(step.manifest))
        return {tensor.path: tensor.digest for tensor in manifest.tensors}

    def arrays(self, root: Root, name: str) -> dict[str, Any] | None:
        """The tensors after a step, or the values of the evaluation; None where they were not stored."""
        store = root.store()
        if not self.tensors or name not in {entry.path for entry in store.manifest(self.tensors)}:
            return None
        with store.open_file(self.tensors, name) as file:
            return dict(np.load(file, allow_pickle=False))


type Cells = dict[tuple[str, str, str], Recorded]


def recorded_of(run: Run) -> Recorded | None:
    """A run as a cell; None where it is not one."""
    told = run.started.body.recipe
    loop = told.get(LOOP)
    tags = loop.get("tags", {}) if isinstance(loop, Mapping) else {}
    if not {"training", "change", "key"} <= tags.keys():
        return None
    steps = [
        Step(fact.body.start + place, loss, batch, fact.body.state, fact.body.manifest)
        for fact in run.loop
        for place, (loss, batch) in enumerate(zip(fact.body.losses, fact.body.batches, strict=True))
    ]
    stored = run.steps.get("tensors")
    return Recorded(
        run=run.run,
        training=tags["training"],
        change=tags["change"],
        key=tags["key"],
        status=run.status,
        failure=run.failures[-1].body.error if run.failures else "",
        versions=told.get("versions", {}),
        steps=tuple(steps),
        tensors="" if stored is None else stored.output.artifact,
    )


def recorded(root: Root, run: str) -> Recorded:
    """The cell that a run is."""
    found = recorded_of(load(root.history(), run))
    assert found is not None
    return found


def all_recorded(root: Root) -> Cells:
    """The newest run of each training, change and key that is complete; where none is, the newest that failed."""
    found: Cells = {}
    for run in load_all(root.history()):
        one = recorded_of(run)
        if one is None or one.status not in ("completed", "failed"):
            continue
        cell = (one.training, one.change, one.key)
        if one.status == "completed" or cell not in found or found[cell].status == "failed":
            found[cell] = one
    return found


def verify(root: Root, cell: Recorded) -> str:
    """Judge the record and the artifacts of a cell, whose verdicts the root then has; empty where both hold, else what is
    wrong. A training is executed by its change "repeated" alone, so no verdict is asked for that would execute it."""
    report = marin.open(root.location).run(cell.run).verify(only=WITHOUT_EXECUTION)
    return "; ".join(f"{name} {report.verdicts[name]}" for name in WITHOUT_EXECUTION if report.verdicts[name] != "PASS")


def is_verified(root: Root, cell: Recorded) -> bool:
    """Whether the root has both verdicts of :func:`verify` already, and both are PASS."""
    verdict = load(root.history(), cell.run).verdict
    return all(verdict.get(name) == "PASS" for name in WITHOUT_EXECUTION)
