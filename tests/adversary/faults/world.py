"""One small honest run, executed once, and copies of its root for a fault to be put into.

Everything happens in this process, so that jax is imported and the programs are compiled once for all faults. Copies
are hard links: anyone who damages a file replaces it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jax

from ledger import Draft, Log, StateManifest, Store
from marin.execution.executor import run_stage
from marin.history.run import Run
from marin.history.runs import load, resolve
from marin.pipeline.stages import PIPELINE
from marin.recipe.schema import Recipe
from marin.record.creation import create_root
from marin.record.root import Root, open_root
from marin.record.trust.evidence import NOBODY
from marin.training.checkpoints.whole import load as load_state
from marin.training.model import vocabulary_size
from marin.training.state import TrainState
from marin.verify.jax.replay import prepared
from marin.verify.verdict import Report
from marin.verify.verification import Options, Verification
from tests.adversary.faults.params import EXECUTION, recipe


@dataclass
class World:
    """The honest run in ``folder``: its root, its outputs checked out, its events as drafts, its states by train
    step."""

    folder: Path
    recipe: Recipe
    run: str
    drafts: Sequence[Draft]
    outputs: Mapping[str, Path]
    copies: int = 0
    _states: dict[int, TrainState] = field(default_factory=dict)

    @classmethod
    def make(cls, folder: Path) -> World:
        """Execute the pipeline in ``folder``, or take the run that lies there already."""
        honest = recipe()
        project = folder / "honest"
        project.mkdir(parents=True, exist_ok=True)
        os.environ["MARIN_KEY"] = str(folder / "operator.key")
        root = create_root(str(project / ".marin"), origin="marin.local/fault-bench")
        for step in PIPELINE.steps:
            run_stage(step.name, plan=PIPELINE, recipe=honest, root=root, project=project, execution=EXECUTION)
        return cls.of(folder)

    @classmethod
    def of(cls, folder: Path) -> World:
        """The newest run that lies below ``folder/honest``, of whatever recipe it is, as far as it went."""
        root = open_root(str(folder / "honest" / ".marin"))
        history = root.history()
        name = resolve(history, "latest")
        drafts = [
            Draft(event.type, event.stream, dict(event.body), id=event.id, actor=event.actor, time=event.time)
            for _, event in root.reader().events()
        ]
        view, store, outputs = load(history, name), root.store(), folder / "outputs"
        if outputs.exists():
            shutil.rmtree(outputs)
        outputs.mkdir()
        for step in view.steps:
            store.checkout(view.output(step).artifact, outputs / step)
        return cls(folder, view.recipe, name, drafts, {step: outputs / step for step in view.steps})

    @property
    def root(self) -> Root:
        """The honest root."""
        return open_root(str(self.folder / "honest" / ".marin"))

    def view(self, root: Root | None = None) -> Run:
        """The run as a root has it."""
        return load((root or self.root).history(), self.run)

    def state(self, number: int) -> TrainState:
        """The honest state before train step ``number``, which is the first of a segment (or after the last)."""
        if number not in self._states:
            vocab = vocabulary_size(self.outputs["tokenizer"], self.recipe.model)
            if number == 0:
                training = prepared(self.recipe, self.outputs["tokens"], self.outputs["tokenizer"], EXECUTION)
                self._states[0] = training.step.collect(training.start()[0])
            else:
                saved = next(f.body for f in self.view().checkpoints if f.body.step == number)
                target = self.folder / f"state-{number}"
                shutil.rmtree(target, ignore_errors=True)
                self.root.store().checkout(saved.artifact, target)
                self._states[number], _ = load_state(target, self.recipe, vocab, saved.state, where="honest state")
        return self._states[number]

    def fork(self) -> Root:
        """A copy of the honest root, to be damaged."""
        target = self.folder / "forks" / str(self.copies) / ".marin"
        self.copies += 1
        shutil.rmtree(target.parent, ignore_errors=True)
        shutil.copytree(
            self.root.location, target, copy_function=os.link, ignore=shutil.ignore_patterns("projections", "work")
        )
        return open_root(str(target))

    def publish(self, root: Root, drafts: Sequence[Draft]) -> None:
        """Replace the log of ``root`` by one of ``drafts``, signed by the operator's own key as if it had always been
        so."""
        signer = root.signer()
        shutil.rmtree(Path(root.location) / "log")
        shutil.rmtree(Path(root.location) / "projections", ignore_errors=True)
        Log.create(root.storage, signer)
        with Log.open(root.storage, signer) as log:
            log.append(list(drafts))

    def verify(self, root: Root) -> Report:
        """Full verification by somebody who sees this log for the first time."""
        return Verification(open_root(root.location), self.run, Options(execution=EXECUTION, sources=NOBODY)).report()

    def discard(self, root: Root) -> None:
        """Remove a copy, and what was compiled for it: jax keeps that, and after a hundred verifications in one process
        the system allows it no further mapping of memory (vm.max_map_count)."""
        jax.clear_caches()
        for path in [root.local, *root.local.rglob("*")]:
            if path.is_dir():
                path.chmod(0o700)
        shutil.rmtree(root.local.parent)


def manifest_blob(store: Store, manifest: StateManifest) -> str:
    """The stored list of a state's tensors."""
    return store.put_bytes(manifest.encode()).digest
