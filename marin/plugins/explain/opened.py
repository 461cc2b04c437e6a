"""The programs of one recipe under this process's settings, opened at a recorded state: what ``--explain`` asks of any
profile. How a train step is taken apart is each profile's own (:mod:`marin.plugins.explain.stepwise`,
:mod:`marin.plugins.explain.exactly`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np

from ledger import tensor_digest
from marin.process.cache import compilation_cache
from marin.recipe.schema import Recipe
from marin.record.events import Json
from marin.training.checkpoints.whole import load
from marin.training.data import Batch, Batches
from marin.training.initial import initial_state
from marin.training.loop import fingerprint_of, step_of
from marin.training.model import vocabulary_size
from marin.training.runtime.compilation import use_compilation_cache
from marin.training.state import leaves
from marin.training.state import local as local_bytes
from marin.training.step.contract import Step, mesh_of
from marin.training.step.slices import SlicedState
from marin.verify.segments.explanation import Record

INITIAL = "initial state"


class Question(msgspec.Struct, frozen=True):
    """``do``: open (make the programs and the state before ``step``), fingerprints, programs, operations, count,
    prefix; and reference, of one ``operation`` of :meth:`Opened.operations`."""

    do: str
    recipe: Json = {}
    tokens: str = ""
    tokenizer: str = ""
    checkpoint: str = ""
    state: str = ""
    devices: int = 1
    start: int = 0
    step: int = 0
    end: int = 0
    program: str = ""
    operation: str = ""
    number: int = 0
    count: int = 0


class Opened(ABC):
    """The programs of one recipe, and a state to start from."""

    def __init__(self, recipe: Recipe, question: Question) -> None:
        use_compilation_cache(compilation_cache())
        self.recipe = recipe
        vocab = vocabulary_size(Path(question.tokenizer), self.recipe.model)
        self._first = initial_state(self.recipe, vocab)
        self._vocab = vocab
        self._tokens = Path(question.tokens) / "train"
        self.mesh = mesh_of(question.devices)
        self._step = step_of(self.recipe, self.mesh, self._first)
        self._start, self._base = question.start, self._first
        if question.checkpoint:
            self._base, _ = load(
                Path(question.checkpoint),
                self.recipe,
                vocab,
                question.state,
                where=f"training checkpoint before train step {question.start}",
            )
        self._arguments: dict[str, list[Any]] = {}
        self._blank = False

    @property
    def step(self) -> Step:
        """The compiled train step."""
        return self._step

    def fingerprints(self, end: int) -> list[str]:
        """Of every train step from the start up to ``end``."""
        state, found = self.step.place(self._base), []
        for batch in self._batches(end):
            state, outcome = self.step.run(state, batch.tokens, batch.weights, blank=batch.blank)
            found.append(fingerprint_of(outcome))
        return found

    def _batches(self, end: int) -> Sequence[Batch]:
        with Batches(self.recipe, self._tokens, self.mesh, self._start) as stream:
            return [next(stream) for _ in range(end - self._start)]

    def _before(self, number: int) -> tuple[SlicedState, Batch]:
        state = self.step.place(self._base)
        *earlier, last = self._batches(number + 1)
        for batch in earlier:
            state, _ = self.step.run(state, batch.tokens, batch.weights, blank=batch.blank)
        self._blank = last.blank
        return state, last

    def _initial(self) -> Record:
        """The initial state as a program without inputs."""
        self._arguments[INITIAL] = []
        named = leaves(self._first)
        return record(INITIAL, [], [local_bytes(value) for _, value in named], [name for name, _ in named])

    @abstractmethod
    def programs(self, number: int) -> list[Record]:
        """Train step ``number``, program by program; keeps what went into each."""

    @abstractmethod
    def operations(self, program: str) -> list[Record]:
        """Every operation of one program, executed alone."""

    @abstractmethod
    def prefix(self, program: str, count: int) -> tuple[Record, int]:
        """The last operation of the first ``count`` of a program compiled as one; and how many there are."""

    @abstractmethod
    def count(self, program: str) -> int:
        """How many operations a program has at its top."""

    def reference(self, program: str, operation: str) -> list[Record]:
        """What one operation gives by definition, if its profile defines that; nothing otherwise."""
        return []


def record(name: str, inputs: Sequence[Any], outputs: Sequence[Any], names: Sequence[str] = ()) -> Record:
    """The digests of what went in and came out; ``names``: of what came out."""
    return Record(name, [digest_of(x) for x in inputs], [digest_of(x) for x in outputs], tensors=list(names))


def digest_of(value: Any) -> str:
    """Of one tensor; a key is its words, and what has no bytes is its dtype and shape."""
    is_key = isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)
    array = np.asarray(jax.random.key_data(value) if is_key else value)
    return f"{array.dtype}{list(array.shape)}" if array.dtype.itemsize == 0 else tensor_digest(array)
