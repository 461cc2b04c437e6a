"""Which tokens each train step sees: a pure function of the recipe and of the token cache.

The token stream of the cache is cut into sequences of ``seq_len``, as by Levanter's ``TokenSeqDataset``. Sequence number n
of the run is sequence ``permutation_e(n mod N)`` of epoch ``e = n div N``, where each epoch has its own permutation, keyed
by the run's seed, of the kind that the recipe names (:mod:`marin.training.permutation`). Batch k holds sequences
``k * batch_size ...``; Levanter's data loader places them on the devices, each host its own rows. So a step's batch can be
found again without replaying the steps before it.

A mixture has one stream and one such order for each part, and :mod:`marin.data.mixture` says which part each sequence
comes from. A phase counts steps and sequences from its own beginning, and goes on in each part where the phases before
it ended.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import accumulate
from typing import cast

import jax
import numpy as np
from jax.sharding import Mesh
from levanter.data.dataset import AsyncDataset
from levanter.data.loader import DataLoader
from levanter.models.lm_model import LmExample

from marin.data.mixture import Interleave
from marin.errors import DataError, UsageError
from marin.provenance.plugins import load_plugin
from marin.recipe.model import BLANKS
from marin.recipe.schema import Recipe, parts
from marin.recipe.section import Order
from marin.training.permutation import Epochs, LevanterFeistel, SwapOrNot
from marin.training.runtime import hosts
from marin.training.state import batch_axes, named_key
from marin.training.tokens.cache import Cache, open_cache
from marin.training.tokens.masks import open_mask
from marin.training.tokens.sequences import Sequences

logging.getLogger("levanter.data.loader").setLevel(logging.ERROR)  # it warns of every half second on a busy machine

BATCHES_AHEAD = 16
"""How many batches are loaded before they are asked for."""
Span = tuple[str, int, int]
"""Tokens of a part's stream ("" for a single data set): the first, and the one after the last."""


@dataclass(frozen=True)
class Batch:
    """One train step's input. ``indices``: int64[batch], numbers of the sequences in the token stream. ``tokens``:
    int32[batch, seq_len] and ``weights``: float32[batch, seq_len], sharded over the batch axis. ``digest``:
    ``sha256:`` over indices (little-endian int64) and tokens (little-endian int32), where this process leads. ``blank``: a
    position of it is blank (:mod:`marin.training.blank`)."""

    step: int
    indices: np.ndarray
    tokens: jax.Array
    weights: jax.Array
    digest: str
    blank: bool = False


class EpochOrder:
    """Sequence number of a run -> number of the sequence in the token stream, for any number of epochs. Sequences are
    shuffled in groups of ``together`` neighbours."""

    def __init__(
        self, length: int, seed: int, purpose: str = "data", together: int = 1, order: Order | None = None
    ) -> None:
        self.length, self.together = length // together, together
        key = named_key(seed, purpose)
        self._of: Epochs = (
            LevanterFeistel(self.length, key) if order is None else SwapOrNot(self.length, np.asarray(key))
        )

    def __call__(self, numbers: Sequence[int] | np.ndarray) -> np.ndarray:
        """int64 positions in ``[0, length)`` for run-wide sequence numbers."""
        groups, within = np.divmod(np.asarray(numbers, dtype=np.int64), self.together)
        return self._of(groups) * self.together + within


class DataOrder:
    """The sequences of one recipe's phase, in the order in which they are trained on: a number that is counted from the
    phase's first sequence -> the number of the sequence in the token stream (in those of a mixture's parts, one after
    another in order of name). ``lengths``: sequences of each part, in that order.

    Raises:
        UsageError: the recipe has an objective.
    """

    def __init__(self, recipe: Recipe, lengths: Mapping[str, int]) -> None:
        if recipe.objective is not None:
            raise UsageError(
                "a training that learns from completions reads no sequences",
                where="objective",
                expected="null",
                found=recipe.objective.name,
                cure="the batch of its train step is a file in the store: marin store get (docs/rl.md)",
            )
        self.starts = dict(zip(lengths, accumulate(lengths.values(), initial=0), strict=False))
        consumed = recipe.phase.consumed if recipe.phase is not None else {}
        seed, mixture = recipe.seed or 0, recipe.mixture
        purposes = {name: "data" if mixture is None else f"data/{name}" for name in lengths}
        self._orders = {
            name: EpochOrder(length, seed, purposes[name], recipe.together, recipe.order)
            for name, length in lengths.items()
        }
        self._consumed = {name: consumed.get(name, 0) for name in lengths}
        self._interleave = Interleave(mixture.weights, mixture.block_size) if mixture is not None else None

    def __call__(self, numbers: Sequence[int]) -> np.ndarray:
        """int64 numbers in the token streams."""
        wanted = np.asarray(numbers, dtype=np.int64)
        if self._interleave is None:
            ((name, order),) = self._orders.items()
            return order(wanted + self._consumed[name])
        part, rank = (
            np.asarray([self._interleave(number) for number in wanted.tolist()], dtype=np.int64).reshape(-1, 2).T
        )
        result = np.empty_like(wanted)
        for position, name in enumerate(self._interleave.parts):
            chosen = part == position
            if chosen.any():
                result[chosen] = self._orders[name](rank[chosen] + self._consumed[name]) + self.starts[name]
        return result


class OrderedDataset(AsyncDataset[LmExample]):
    """Finite datasets, one after another, read in an order that has no end."""

    def __init__(
        self,
        datasets: Sequence[AsyncDataset[LmExample]],
        starts: Sequence[int],
        order: Callable[[Sequence[int]], np.ndarray],
    ) -> None:
        self.datasets = datasets
        self.order = order
        self._starts = np.asarray(starts, dtype=np.int64)

    async def async_len(self) -> int:
        raise ValueError("the training data has no end")

    def is_finite(self) -> bool:
        return False

    async def get_batch(self, indices: Sequence[int]) -> Sequence[LmExample]:
        wanted = self.order(indices)
        owner = np.searchsorted(self._starts, wanted, side="right") - 1
        found: dict[int, LmExample] = {}
        for number in np.unique(owner).tolist():
            places = np.flatnonzero(owner == number).tolist()
            items = await self.datasets[number].get_batch([int(wanted[i] - self._starts[number]) for i in places])
            found |= dict(zip(places, items, strict=True))
        return [found[i] for i in range(len(wanted))]


def token_dataset(cache: Cache, seq_len: int) -> tuple[AsyncDataset[LmExample], int]:
    """The causal language-modelling examples of the cache, and how many there are.

    Raises:
        DataError: the cache holds fewer tokens than one sequence needs.
    """
    sequences = Sequences(open_cache(cache), open_mask(cache), seq_len)
    if not len(sequences):
        raise DataError(
            "not enough tokens for one sequence",
            where=f"token cache {cache.name}",
            expected=f"at least model.seq_len = {seq_len} tokens",
            found="fewer",
            cure="use more text or a smaller model.seq_len",
        )
    return sequences, len(sequences)


def streams[C: Cache](recipe: Recipe, cache: C) -> dict[str, C]:
    """The token caches that a recipe trains on, by part in order of name."""
    names = sorted(parts(recipe.dataset))
    return {name: cast("C", cache / name) if recipe.mixture is not None else cache for name in names}


class Batches(Iterator[Batch], AbstractContextManager["Batches"]):
    """The batches of train steps ``first_step``, ``first_step + 1``, ... placed on ``mesh``; never ends. Read ahead by a
    thread, which :meth:`close` ends. Anyone who opens a stream closes it: it has no finaliser, for that would wait for a
    thread wherever the collector happens to run, also in the middle of the start of another thread, where Python holds
    the lock that the waiting needs.

    Raises:
        DataError: from ``next``: excluded documents leave nothing of a batch. No batch comes after an error.
    """

    def __init__(self, recipe: Recipe, cache: Cache, mesh: Mesh, first_step: int) -> None:
        opened = {name: token_dataset(path, recipe.model.seq_len) for name, path in streams(recipe, cache).items()}
        self._recipe = recipe
        self._order = DataOrder(recipe, {name: length for name, (_, length) in opened.items()})
        self._dataset = OrderedDataset(
            [part for part, _ in opened.values()], list(self._order.starts.values()), self._order
        )
        self._number = first_step - recipe.first_step
        # The loader's own buffer is filled by a daemon thread, which hears only within a second that it is to end, and
        # aborts the process when it is inside jax while the interpreter ends. So batches are asked for ahead by a thread
        # that is waited for.
        loader = DataLoader(
            self._dataset,
            recipe.trainer.batch_size,
            mesh=mesh,
            axis_resources={"batch": batch_axes(mesh)},
            max_buffered_batches=0,
            fetch_batch_size=8,
        )
        self._examples = loader.iter_from_step(self._number)
        atexit.register(self._examples.close)  # for anyone who leaves a stream open; comes after that thread
        self._loading = ThreadPoolExecutor(1, thread_name_prefix="loader")
        self._ahead: deque[Future[LmExample]] = deque(
            self._loading.submit(_loaded, self._examples) for _ in range(BATCHES_AHEAD)
        )

    def __exit__(self, *error: object) -> None:
        self.close()

    def __next__(self) -> Batch:
        if not self._ahead:
            raise StopIteration  # closed
        try:
            return self._taken()
        except BaseException:
            self.close()  # what came after it would stand under the wrong number
            raise

    def _taken(self) -> Batch:
        recipe, number, size = self._recipe, self._number, self._recipe.trainer.batch_size
        example = self._ahead.popleft().result()
        self._ahead.append(self._loading.submit(_loaded, self._examples))
        indices = self._order(range(number * size, (number + 1) * size))
        tokens, weights = example.tokens.array, example.loss_weight.array
        read = hosts.whole(tokens)  # what all hosts train on, and nothing that is read for this alone
        if blank := bool((read < 0).any()):
            load_plugin(*BLANKS, "exclude").check_learned(
                recipe, recipe.first_step + number, read, hosts.whole(weights)
            )
        digest = batch_digest(indices, read) if hosts.leader() else ""
        self._number += 1
        return Batch(recipe.first_step + number, indices, tokens, weights, digest, blank)

    def close(self) -> None:
        """End the threads that read ahead. No batch comes after it; a second call does nothing."""
        if not self._ahead:
            return
        self._ahead.clear()
        self._loading.shutdown(cancel_futures=True)
        atexit.unregister(self._examples.close)
        self._examples.close()


def _loaded(examples: Iterator[LmExample]) -> LmExample:
    """The next one; what failed in the loader as it is, which an unbuffered one hides behind the end of the data."""
    try:
        return next(examples)
    except StopIteration as end:
        raise end.__context__ or DataError(
            "the training data ended",
            where="data loader",
            expected="batches without an end",
            found="none",
            cure="report this",
        ) from None


def batch_digest(indices: np.ndarray, tokens: jax.Array | np.ndarray) -> str:
    """``sha256:`` over a batch's sequence numbers and token ids."""
    hasher = hashlib.sha256(np.ascontiguousarray(indices, dtype="<i8").tobytes())
    hasher.update(np.ascontiguousarray(tokens, dtype="<i4").tobytes())
    return "sha256:" + hasher.hexdigest()
