"""Which tokens each train step sees: a pure function of the recipe and of the token cache.

The token stream of the cache is cut into sequences of ``seq_len`` (Levanter's ``TokenSeqDataset``). Sequence number n
of the run is sequence ``permutation_e(n mod N)`` of epoch ``e = n div N``, where each epoch has its own Feistel
permutation keyed by the run's seed. Batch k holds sequences ``k * batch_size ...``; Levanter's data loader places them
on the devices. So a step's batch can be found again without replaying the steps before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.random as jrandom
import numpy as np
from haliax import Axis
from jax.sharding import Mesh
from levanter.data._prp import Permutation
from levanter.data.dataset import AsyncDataset
from levanter.data.loader import DataLoader
from levanter.data.text.datasets import CausalLmDataset, NamedLmDataset, TokenSeqDataset
from levanter.models.lm_model import LmExample
from levanter.utils.jax_utils import local_cpu_mesh
from levanter.utils.thread_utils import blocking_wait

from marin.errors import DataError
from marin.recipe import Recipe
from marin.training.state import named_key
from marin.training.step import DATA
from marin.training.token_cache import document_of, open_cache, read_tokens


@dataclass(frozen=True)
class Batch:
    """One train step's input. ``indices``: int64[batch], numbers of the sequences in the token stream. ``tokens``:
    int32[batch, seq_len] and ``weights``: float32[batch, seq_len], sharded over the batch axis. ``digest``:
    ``sha256:`` over indices (little-endian int64) and tokens (little-endian int32)."""

    step: int
    indices: np.ndarray
    tokens: jax.Array
    weights: jax.Array
    digest: str


class EpochOrder:
    """Sequence number of a run -> number of the sequence in the token stream, for any number of epochs."""

    def __init__(self, length: int, seed: int) -> None:
        self.length = length
        self._key = named_key(seed, "data")
        self._by_epoch: dict[int, Permutation] = {}

    def __call__(self, numbers: Sequence[int]) -> np.ndarray:
        """int64 positions in ``[0, length)`` for run-wide sequence numbers."""
        wanted = np.asarray(numbers, dtype=np.int64)
        epochs, within = np.divmod(wanted, self.length)
        result = np.empty_like(wanted)
        for epoch in np.unique(epochs):
            chosen = epochs == epoch
            result[chosen] = np.asarray(self._permutation(int(epoch))(within[chosen]), dtype=np.int64)
        return result

    def _permutation(self, epoch: int) -> Permutation:
        if epoch not in self._by_epoch:
            with local_cpu_mesh():
                self._by_epoch = {epoch: Permutation.make("feistel", self.length, jrandom.fold_in(self._key, epoch))}
        return self._by_epoch[epoch]


class EndlessDataset(AsyncDataset[LmExample]):
    """A finite dataset read in :class:`EpochOrder`, without end."""

    def __init__(self, dataset: AsyncDataset[LmExample], order: EpochOrder) -> None:
        self.dataset = dataset
        self.order = order

    async def async_len(self) -> int:
        raise ValueError("the training data has no end")

    def is_finite(self) -> bool:
        return False

    async def get_batch(self, indices: Sequence[int]) -> Sequence[LmExample]:
        return await self.dataset.get_batch([int(i) for i in self.order(indices)])


def token_dataset(cache: Path, seq_len: int) -> tuple[AsyncDataset[LmExample], int]:
    """Levanter's causal language-modelling examples over the cache, and how many there are.

    Raises:
        DataError: the cache holds fewer tokens than one sequence needs.
    """
    Pos = Axis("position", seq_len)
    sequences = TokenSeqDataset(open_cache(cache), seq_len)
    length = int(blocking_wait(sequences.async_len()))
    if length == 0:
        raise DataError("not enough tokens for one sequence", where=f"token cache {cache.name}",
                        expected=f"at least model.seq_len = {seq_len} tokens", found="fewer",
                        cure="use more text or a smaller model.seq_len")
    return NamedLmDataset(CausalLmDataset(sequences, Pos, block_cross_document_attention=False), Pos), length


def batches(recipe: Recipe, cache: Path, mesh: Mesh, first_step: int) -> Iterator[Batch]:
    """The batches of train steps ``first_step``, ``first_step + 1``, ... placed on ``mesh``; never ends."""
    dataset, length = token_dataset(cache, recipe.model.seq_len)
    order = EpochOrder(length, recipe.seed or 0)
    size = recipe.trainer.batch_size
    loader = DataLoader(EndlessDataset(dataset, order), size, mesh=mesh, axis_resources={"batch": DATA},
                        max_buffered_batches=16, fetch_batch_size=8)
    step = first_step
    for example in loader.iter_from_step(first_step):
        indices = order(range(step * size, (step + 1) * size))
        tokens = example.tokens.array
        yield Batch(step, indices, tokens, example.loss_weight.array, batch_digest(indices, tokens))
        step += 1


@dataclass(frozen=True)
class SeenSequence:
    """One sequence of one step's batch: its number in the token stream, its token ids, and the documents it lies in."""

    index: int
    tokens: np.ndarray
    documents: range


def seen_at(recipe: Recipe, cache: Path, step: int) -> tuple[list[SeenSequence], str]:
    """What train step ``step`` sees, found from recipe and cache alone, and the batch's digest as it is recorded."""
    _, length = token_dataset(cache, recipe.model.seq_len)
    size, width = recipe.trainer.batch_size, recipe.model.seq_len
    indices = EpochOrder(length, recipe.seed or 0)(range(step * size, (step + 1) * size))
    stream, offsets = read_tokens(cache)
    seen = []
    for index in indices.tolist():
        start, end = index * width, (index + 1) * width
        documents = range(document_of(offsets, start), document_of(offsets, end - 1) + 1)
        seen.append(SeenSequence(index, stream[start:end], documents))
    return seen, batch_digest(indices, np.stack([sequence.tokens for sequence in seen]))


def batch_digest(indices: np.ndarray, tokens: jax.Array | np.ndarray) -> str:
    """``sha256:`` over a batch's sequence numbers and token ids."""
    hasher = hashlib.sha256(np.ascontiguousarray(indices, dtype="<i8").tobytes())
    hasher.update(np.ascontiguousarray(np.asarray(tokens), dtype="<i4").tobytes())
    return "sha256:" + hasher.hexdigest()
