"""Completions of a record as people read them."""

from __future__ import annotations

from collections.abc import Sequence

from ledger import Store
from marin.errors import DataError
from marin.plugins.rl.prompts import questions_of
from marin.plugins.rl.record import read_record
from marin.recipe.schema import Recipe

MOST, LONGEST = 8, 200
"""Prompts that are shown, and letters of each."""


def first_of_each(recipe: Recipe, store: Store, data: bytes) -> Sequence[tuple[str, str, str]]:
    """Prompt, first completion and its reward.

    Raises:
        DataError: it is no record of this recipe.
    """
    objective, record = recipe.objective, read_record(data)
    assert objective is not None
    asked, each = questions_of(objective, store), objective.num_generations
    try:
        if record is None:
            raise ValueError
        pairs = enumerate(record.prompts[:MOST])
        shown = [(asked[one.index].prompt, record.completions[each * place]) for place, one in pairs]
        return [(_text(prompt), one.text[:LONGEST], f"{float.fromhex(one.reward):g}") for prompt, one in shown]
    except (IndexError, ValueError, OverflowError):
        raise DataError("a record that is none of this recipe", where="completions", found="other bytes") from None


def _text(prompt: object) -> str:
    """A prompt, or the last message of a conversation."""
    if isinstance(prompt, list):
        prompt = prompt[-1].get("content", "")
    return str(prompt)[:LONGEST]
