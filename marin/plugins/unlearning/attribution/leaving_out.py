"""One training after the other without some documents, from the state before their first use: what a worker does.

The programs are compiled once, for every group of documents. A document is left out as an excluded one is: its tokens are
blank (:mod:`marin.training.blank`), everything else stays where it was. So what comes out is, in every bit, what
`marin train exclude=[...]` gives, as long as the tokenizer without the documents is the same one.
"""

from __future__ import annotations

import math
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ledger import LedgerError, StateManifest, Store, open_storage
from marin.errors import DataError
from marin.pipeline.tokenizer import trained
from marin.process.arithmetic import apply
from marin.recipe.schema import Execution, Recipe, as_recorded, from_plain
from marin.record.events import Json
from marin.runners.jobs import parts_of
from marin.work.placed import Worker

if TYPE_CHECKING:
    from marin.evaluation.scoring import Scorer
    from marin.training.data import Batch
    from marin.training.loop import Training
    from marin.training.state import TrainState


class LeavingOutSetup(msgspec.Struct, frozen=True):
    """What a worker needs for all groups. ``recipe``: the run's. ``leaving``: some document that is left out. ``corpus``,
    ``tokens`` and ``tokenizer`` are folders on this machine; ``sets`` are stored JSON lines by name, their texts are
    scored in this order. ``keep_tokenizer``: that of the run is taken as given."""

    root: str
    recipe: Json
    leaving: str
    corpus: str
    tokens: str
    tokenizer: str
    sets: dict[str, str]
    devices: int
    keep_tokenizer: bool


class Task(msgspec.Struct, frozen=True):
    """One group. ``checkpoint``: the artifact of ``state``, before train step ``step``; None: the recipe's initial one."""

    documents: tuple[str, ...]
    spans: tuple[tuple[str, int, int], ...]
    step: int
    state: str
    checkpoint: str | None


class TrainedWithout(msgspec.Struct, frozen=True):
    """What came out. ``sums``: by set, the negative log-likelihood of every document; ``losses``: the mean over tokens.
    ``error``: why it did not (:func:`marin.runners.jobs.parts_of`)."""

    end_state: str = ""
    same_tokenizer: bool | None = None
    sums: dict[str, list[float]] = {}
    losses: dict[str, str] = {}
    error: list[str] | None = None


class LeavingOut:
    """Trains without one group after the other, and measures what comes of it."""

    def __init__(self, setup: LeavingOutSetup) -> None:
        self._setup = setup
        recipe = from_plain(setup.recipe, where="recipe of the run")
        # A recipe that excludes something has the program for batches with blanks; which documents is not part of it.
        self._recipe: Recipe = msgspec.structs.replace(recipe, exclude=(*(recipe.exclude or ()), setup.leaving))
        self._execution = Execution(devices=setup.devices)
        apply(recipe.arithmetic, self._execution)  # before jax starts in this process
        self._store = Store(open_storage(setup.root, readonly=True))
        self._texts = {name: self._store.read(digest) for name, digest in setup.sets.items()}
        self._documents: dict[str, list[list[int]]] = {}
        self._batches: dict[int, Batch] = {}
        self._training: tuple[Training, Scorer] | None = None
        self._held: tuple[str, TrainState, StateManifest] | None = None

    def __call__(self, task: Task) -> TrainedWithout:
        """What came of one group."""
        try:
            return self._answer(task)
        except LedgerError as error:
            return TrainedWithout(error=parts_of(error))

    def _answer(self, task: Task) -> TrainedWithout:
        from marin.plugins.evaluation.heldout.measuring import score

        training, scorer = self._programs()
        before, manifest = self._state(task)
        state, last = training.step.place(before), self._recipe.last_step
        if task.step < last:
            with closing(training.without(task.spans, self._batches)) as without:
                state, record = without.segment(state, manifest, task.step, last)
            manifest = record.end_state
        scorer = scorer.holding(training.step.collect(state).model)
        sums, losses = {}, {}
        for name, documents in self._documents.items():
            scored = score(scorer, documents)
            rows = [scored[number] for number in range(len(documents))]
            sums[name] = [-_sum(row) for row in rows]
            losses[name] = (-_sum([value for row in rows for value in row]) / sum(map(len, rows)) + 0.0).hex()
        return TrainedWithout(manifest.digest, self._same_tokenizer(task.documents), sums, losses)

    def _programs(self) -> tuple[Training, Scorer]:
        """Made at the first group, so that a machine that cannot honour the contract is an answer."""
        if self._training is None:
            from marin.data.tokenizer import load_tokenizer
            from marin.evaluation.scoring import Scorer
            from marin.plugins.evaluation.heldout.measuring import encode_texts, texts_of
            from marin.process.cache import compilation_cache
            from marin.training.initial import initial_state
            from marin.training.loop import Training
            from marin.training.model import vocabulary_size
            from marin.training.runtime.compilation import use_compilation_cache

            use_compilation_cache(compilation_cache())
            folder = Path(self._setup.tokenizer)
            vocabulary = vocabulary_size(folder, self._recipe.model)
            training = Training(self._recipe, Path(self._setup.tokens) / "train", vocabulary, self._execution)
            scorer = Scorer(initial_state(self._recipe, vocabulary).model, self._recipe, devices=self._setup.devices)
            tokenizer = load_tokenizer(folder, as_recorded=as_recorded(self._recipe))
            self._documents = {
                name: encode_texts(tokenizer, texts_of(data, name)) for name, data in self._texts.items()
            }
            self._training = training, scorer
        return self._training

    def _state(self, task: Task) -> tuple[TrainState, StateManifest]:
        """The state that a group's training goes on from; the last one is kept, since groups come in their order."""
        from marin.training.checkpoints.whole import load
        from marin.training.initial import initial_state
        from marin.training.state import manifest_of

        if self._held is None or self._held[0] != task.state:
            training, _ = self._programs()
            if task.checkpoint is None:
                state = initial_state(self._recipe, training.vocab_size)
                manifest = manifest_of(state)
            else:
                with TemporaryDirectory(prefix="marin-attribute-") as base:
                    self._store.checkout(task.checkpoint, Path(base) / "state")
                    state, manifest = load(
                        Path(base) / "state",
                        self._recipe,
                        training.vocab_size,
                        task.state,
                        where=f"training checkpoint of train step {task.step}",
                    )
            self._held = task.state, state, manifest
        return self._held[1:]

    def _same_tokenizer(self, documents: tuple[str, ...]) -> bool | None:
        if self._setup.keep_tokenizer:
            return None
        if self._recipe.tokenizer.artifact is not None:
            return True  # it was made elsewhere
        recipe = msgspec.structs.replace(self._recipe, exclude=(*(self._recipe.exclude or ())[:-1], *documents) or None)
        try:
            made = trained(Path(self._setup.corpus), recipe)
        except DataError:  # too little text without them
            return False
        return made == (Path(self._setup.tokenizer) / "tokenizer.json").read_bytes()


WORKER = Worker(f"{__name__}:WORKER", LeavingOutSetup, Task, TrainedWithout, LeavingOut)


def _sum(values: list[float] | tuple[float, ...]) -> float:
    """Rounded once: no order of summation."""
    return math.fsum(values)


def encode_sums(sums: list[float]) -> bytes:
    """float64, little-endian."""
    return np.asarray(sums, dtype="<f8").tobytes()
