"""A user's prompts and reward, on their way into a recipe: their files in the store, and the form of conversations."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from ledger import Store
from marin.data.borrowed.chats import chat_template
from marin.errors import UsageError
from marin.plugins.rl.own_reward import read_reward
from marin.plugins.rl.prompts import encode_questions, read_file
from marin.recipe.schema import Recipe, chats, check


def with_own(store: Store, recipe: Recipe, prompts: Path | None, reward: str | None) -> Recipe:
    """As :meth:`marin.training.runtime.objective.ObjectivePlugin.with_own`. Conversations are written by the template of the
    recipe's data set, else by that which comes with its tokenizer.

    Raises:
        UsageError: the recipe has no objective, or the reward cannot be taken.
        DataError: the file has no prompts.
    """
    objective = recipe.objective
    if objective is None:
        raise UsageError(
            "prompts or a reward without an objective",
            where="--prompts" if prompts is not None else "--reward",
            expected="an objective that draws completions",
            found="none",
            cure="+objective=grpo",
        )
    if reward is not None:
        own, content = read_reward(reward)
        store.put_bytes(content)
        objective = msgspec.structs.replace(objective, reward=own)
    if prompts is not None:
        found = read_file(prompts, objective.reward)
        template = objective.chat_template
        if template is None and not all(isinstance(one.prompt, str) for one in found):
            template = _template(store, recipe)
        kept = store.put_bytes(encode_questions(found)).digest
        objective = msgspec.structs.replace(objective, prompts="own", questions=kept, chat_template=template)
    recipe = msgspec.structs.replace(recipe, objective=objective)
    check(recipe, where="objective")
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
