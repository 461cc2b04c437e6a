"""Whether a training on conversations can learn: a word before its first train step, where a step would otherwise fail."""

from __future__ import annotations

import numpy as np

from marin.errors import DataError, UsageError
from marin.recipe.schema import Recipe, chats
from marin.training.data import DataOrder, streams, token_dataset
from marin.training.tokens.cache import Cache, read_tokens
from marin.training.tokens.masks import open_mask

_AT_ONCE = 1 << 20
"""Sequences whose numbers are asked for at a time."""


def check_learning(recipe: Recipe, cache: Cache) -> None:
    """Refuse a training of which some batch has nothing to learn (its mean loss would be nothing over nothing), or whose packing
    would cut conversations.

    Raises:
        DataError: there are such batches; it says how many, and how many sequences have nothing to learn.
        UsageError: ``trainer.packing=isolated`` where a conversation has the end-of-text token within.
    """
    width, size = recipe.model.seq_len, recipe.trainer.batch_size
    paths = streams(recipe, cache)
    masks = {name: open_mask(path) for name, path in paths.items()}
    if not any(mask is not None for mask in masks.values()):
        return
    if recipe.trainer.packing == "isolated" and chats(recipe.dataset):
        for name, path in paths.items():
            if masks[name] is not None:
                _check_whole(recipe, path, name)
    if recipe.together > 1:
        return  # a preference weighs 1, whatever its tokens do
    lengths = {name: token_dataset(path, width)[1] for name, path in paths.items()}
    learned = [
        np.ones(length, dtype=bool)
        if (mask := masks[name]) is None
        else np.concatenate(
            [
                mask[first * width : min(first + 4096, length) * width].reshape(-1, width)[:, 1:].any(axis=1)
                for first in range(0, length, 4096)
            ]
        )
        for name, length in lengths.items()
    ]
    some, order = np.concatenate(learned), DataOrder(recipe, lengths)
    if some.all():
        return
    step, empty = max(1, _AT_ONCE // size), 0
    for first in range(0, recipe.trainer.num_steps, step):
        last = min(first + step, recipe.trainer.num_steps)
        empty += int((~some[order(range(first * size, last * size))].reshape(-1, size).any(axis=1)).sum())
    if empty:
        raise DataError(
            "batches of which nothing is learned",
            where=f"{recipe.trainer.num_steps} train steps of {size} sequences",
            expected="something that the assistant says in each",
            found=f"{empty} without; nothing is learned of {int((~some).sum())} of {len(some)} sequences",
            cure="raise trainer.batch_size or model.seq_len, or leave out conversations of which little is learned",
        )


def _check_whole(recipe: Recipe, cache: Cache, name: str) -> None:
    tokens, offsets = read_tokens(cache)
    within = np.flatnonzero((tokens[:-1] == recipe.tokens.end) & (tokens[1:] != recipe.tokens.end))
    cut = np.setdiff1d(within + 1, offsets)
    if cut.size:
        many = len(np.unique(np.searchsorted(offsets, cut, side="right")))
        raise UsageError(
            "packing that would cut conversations",
            where="trainer.packing",
            expected="null, where the chat template writes the end-of-text token within a conversation",
            found=f"isolated, by which documents end at that token; {many} conversations of {name} have it within",
            cure="leave trainer.packing out, or take a tokenizer whose eos_token the template does not write",
        )
