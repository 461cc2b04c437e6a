"""What a train step of a run saw: sequences, documents, tokens and text, found from its recipe and its tokens alone.

Nothing is replayed: the order of the data is a pure function of the recipe. The batch is digested as it was when the
step was recorded, and the two digests are compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from ledger import Store
from marin.errors import UsageError
from marin.history.run import Run
from marin.process.arithmetic import apply
from marin.recipe.schema import Execution, Recipe
from marin.record import outputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from marin.training.tokens.cache import Cache


@dataclass(frozen=True)
class Sequence:
    """One sequence of a batch. ``documents``: numbers of the first and the last document of the part that it
    touches. A token below 0 is blank (:mod:`marin.data.exclusion`), and no part of the text."""

    part: str
    index: int
    documents: tuple[int, int]
    tokens: tuple[int, ...]
    text: str


@dataclass(frozen=True)
class Batch:
    """What a train step saw. ``recorded``: the digest in the ledger, None where the step is not recorded (yet)."""

    step: int
    digest: str
    recorded: str | None
    sequences: tuple[Sequence, ...]

    def describe(self) -> dict[str, Any]:
        """As JSON shows it."""
        return {
            "step": self.step,
            "digest": self.digest,
            "recorded": self.recorded,
            "sequences": [
                {
                    "part": s.part,
                    "index": s.index,
                    "documents": list(s.documents),
                    "tokens": list(s.tokens),
                    "text": s.text,
                }
                for s in self.sequences
            ],
        }


def batch_of(view: Run, store: Store, step: int) -> Batch:
    """The batch of train step ``step`` of a run, whether that step was executed yet or not.

    Raises:
        UsageError: the run has no such train step.
        MissingEvidence: its tokens were not made.
        LedgerError: they are not in this root, or damaged.
    """
    recipe = view.recipe
    if not recipe.first_step <= step < recipe.last_step:
        raise UsageError(
            "no such train step",
            where=f"--step {step}",
            expected=f"from {recipe.first_step} to {recipe.last_step - 1}",
            found=str(step),
            cure="train steps are numbered through all phases, from 0",
        )
    apply(recipe.arithmetic, Execution())
    from marin.data.borrowed import trial
    from marin.data.tokenizer import FILE, load_tokenizer

    with TemporaryDirectory(prefix="marin-show-") as base:
        folders = {name: Path(base) / name for name in ("tokens", "tokenizer")}
        for name, folder in folders.items():
            outputs.checkout(store, view.output(name), folder, kind=name)
        seen, digest = batch_at(recipe, folders["tokens"] / "train", step)
        if (content := folders["tokenizer"] / FILE).is_file():
            trial.check(content.read_bytes(), where=f"tokenizer of run {view.run}")
        tokenizer = load_tokenizer(folders["tokenizer"])
        sequences = tuple(
            Sequence(
                item.part,
                item.index,
                (item.documents[0], item.documents[-1]),
                tuple(item.tokens.tolist()),
                tokenizer.decode([token for token in item.tokens.tolist() if token >= 0], skip_special_tokens=False),
            )
            for item in seen
        )
    recorded = (
        fact.body.batches[step - fact.body.start] for fact in view.segments if fact.body.start <= step < fact.body.end
    )
    return Batch(step, digest, next(recorded, None), sequences)


@dataclass(frozen=True)
class BatchSequence:
    """One sequence of one step's batch: its part, its number in that part's token stream, its token ids, and the
    documents of that part's train split in which it lies."""

    part: str
    index: int
    tokens: np.ndarray
    documents: range


def batch_at(recipe: Recipe, cache: Cache, step: int) -> tuple[list[BatchSequence], str]:
    """What train step ``step`` sees, found from recipe and cache alone, and the batch's digest as it is recorded."""
    # jax, after the contract is in force
    from marin.training.data import DataOrder, batch_digest, streams, token_dataset
    from marin.training.tokens.cache import read_tokens

    size, width = recipe.trainer.batch_size, recipe.model.seq_len
    paths = streams(recipe, cache)
    order = DataOrder(recipe, {name: token_dataset(path, width)[1] for name, path in paths.items()})
    first = (step - recipe.first_step) * size
    indices = order(range(first, first + size))
    read = {name: read_tokens(path) for name, path in paths.items()}
    seen = []
    for number in indices.tolist():
        part = max(order.starts, key=lambda name: (order.starts[name] <= number, order.starts[name]))
        index = number - order.starts[part]
        start, end = index * width, (index + 1) * width
        stream, offsets = read[part]
        documents = range(document_of(offsets, start), document_of(offsets, end - 1) + 1)
        seen.append(BatchSequence(part, index, stream[start:end], documents))
    return seen, batch_digest(indices, np.stack([sequence.tokens for sequence in seen]))


def document_of(offsets: NDArray[np.int64], position: int) -> int:
    """Which document the token at ``position`` of the stream belongs to.

    Raises:
        IndexError: the stream is shorter.
    """
    if not 0 <= position < int(offsets[-1]):
        raise IndexError(f"position {position} is outside of a stream of {int(offsets[-1])} tokens")
    return int(np.searchsorted(offsets, position, side="right")) - 1
