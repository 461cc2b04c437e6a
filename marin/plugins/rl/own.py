"""A user's prompts and reward, on their way into a recipe: their files in the store, and the form of conversations."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from ledger import Store
from marin.data.borrowed.chats import chat_template
from marin.errors import UsageError
from marin.execution.phases import last_checkpoint
from marin.history import runs
from marin.plugins.rl.own_reward import named
from marin.plugins.rl.prompts import read_file, written
from marin.recipe.objective import Judge
from marin.recipe.schema import Recipe, chats, check
from marin.record.root import Root


def with_own(
    store: Store, recipe: Recipe, prompts: Path | None, reward: str | None, root: Root | None = None
) -> Recipe:
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
    if reward is not None and root is not None and reward.startswith("run:"):
        objective = msgspec.structs.replace(objective, reward="judge", judge=_judge(root, recipe, reward))
    elif reward is not None:
        own, content = named(reward)
        store.put_bytes(content)
        objective = msgspec.structs.replace(objective, reward=own)
    if prompts is not None:
        found = read_file(prompts, objective.reward)
        template = objective.chat_template
        if template is None and not all(isinstance(one.prompt, str) for one in found):
            template = _template(store, recipe)
        kept = store.put_bytes(written(found)).digest
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


def _judge(root: Root, recipe: Recipe, reward: str) -> Judge:
    """The last state of the run that ``run:RUN`` names, which has to know the same tokens."""
    history = root.history()
    view = runs.load(history, runs.resolve(history, reward.removeprefix("run:")))
    theirs, phase = view.recipe, recipe.phase
    if phase is not None and phase.tokenizer is not None:
        same = phase.tokenizer == view.output("tokenizer").digest
    else:
        same = (theirs.dataset, theirs.tokenizer) == (recipe.dataset, recipe.tokenizer)
    if not same or theirs.model != recipe.model:
        raise UsageError(
            "a judge that reads other tokens, or has another shape",
            where=f"--reward {reward}",
            expected="a run with this recipe's model and tokenizer",
            found=f"run {view.run}",
            cure="name a run that this one continues, or one of its beginning",
        )
    saved = last_checkpoint(view, root.store())
    return Judge(state=saved.state, artifact=saved.artifact)
