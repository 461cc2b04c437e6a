"""A user's prompts, on their way into a recipe: their file in the store, and the form of those that are conversations."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from ledger import Store
from marin.data.borrowed.chats import chat_template
from marin.errors import UsageError
from marin.plugins.rl.prompts import read_file, written
from marin.recipe.schema import Recipe, chats, check


def with_prompts(store: Store, path: Path, recipe: Recipe) -> Recipe:
    """As :meth:`marin.training.runtime.objective.ObjectivePlugin.with_prompts`. Conversations are written by the template of the
    recipe's data set, else by that which comes with its tokenizer."""
    objective = recipe.objective
    if objective is None:
        raise UsageError(
            "prompts without an objective",
            where="--prompts",
            expected="an objective that draws completions of them",
            found="none",
            cure="+objective=grpo",
        )
    found = read_file(path, objective.reward)
    template = objective.chat_template
    if template is None and not all(isinstance(one.prompt, str) for one in found):
        template = _template(store, recipe)
    taken = msgspec.structs.replace(
        objective, prompts="own", questions=store.put_bytes(written(found)).digest, chat_template=template
    )
    recipe = msgspec.structs.replace(recipe, objective=taken)
    check(recipe, where="--prompts")
    return recipe


def _template(store: Store, recipe: Recipe) -> str | None:
    named = {part.chat_template for part in chats(recipe.dataset)} - {None}
    if len(named) == 1:
        return named.pop()
    if recipe.kept_tokenizer is None:
        return None
    with TemporaryDirectory(prefix="marin-tokenizer-") as base:
        store.checkout(recipe.kept_tokenizer, Path(base) / "tokenizer")
        return chat_template(Path(base) / "tokenizer")
