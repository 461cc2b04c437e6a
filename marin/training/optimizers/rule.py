"""The optimizer of a recipe, the rates of its updates, and which tensors it moves by which rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import haliax as hax
import jax
import optax
from levanter.optim.config import OptimizerConfig

from marin.errors import UsageError
from marin.recipe.form.schedule import decay_steps, whole
from marin.recipe.schema import Recipe
from marin.training.adapters import only_adapters
from marin.training.optimizers.rules import configured


def optimizer(recipe: Recipe) -> optax.GradientTransformation:
    """Levanter's optimizer for ``recipe``: its moments, masks and scheduled rates.

    One that moves each number by itself is without clipping: the gradient's global norm is a sum across tensors and
    devices, whose order the train step fixes (``step.slice_update``). With ``recipe.lora`` it moves adapters alone.
    """
    config, steps = _configured(recipe)
    built = config.build(steps)
    return built if recipe.lora is None else only_adapters(built)


def learning_rates(recipe: Recipe, first: int, end: int) -> list[float]:
    """The rates of the optimizer's updates number ``first`` to ``end - 1``, counted from 0."""
    config, steps = _configured(recipe)
    schedule = config.lr_scheduler(steps)
    return [float(schedule(number)) for number in range(first, end)]


def groups(recipe: Recipe, parameters: Any) -> Mapping[str, list[int]]:
    """Which tensors an optimizer that looks across them moves by which of its rules: numbers of the leaves of a tree of
    named arrays, by Levanter's own mask, which goes by a model's layers and the axes of their matrices.

    Raises:
        UsageError: no tensor is a matrix for the rule that the optimizer is called after.
    """
    name = recipe.optimizer.name
    config, _ = _configured(recipe)
    mask = getattr(config, "create_mask", None)
    named = jax.tree.leaves(parameters, is_leaf=lambda x: isinstance(x, hax.NamedArray))
    labels = jax.tree.leaves(mask(parameters)) if mask is not None else [name] * len(named)
    found: dict[str, list[int]] = {}
    for number, (label, _) in enumerate(zip(labels, named, strict=True)):
        found.setdefault(label, []).append(number)
    if name not in found:
        raise UsageError(
            "an optimizer of matrices, and the model has none",
            where="optimizer.name",
            expected=f"a matrix that {name} moves",
            found=f"{len(named)} tensors that {' and '.join(sorted(found)) or 'nothing'} would move",
            cure="choose optimizer=adamw",
        )
    return found


def _configured(recipe: Recipe) -> tuple[OptimizerConfig, int]:
    """Levanter's configuration, and the length of its schedule in train steps."""
    phase, steps = recipe.phase, whole(recipe)
    begin = phase.first_step if phase is not None and phase.schedule == "restart" else 0
    decay: float | None = recipe.optimizer.decay
    if recipe.optimizer.rounding == "nearest" and (asked := decay_steps(recipe)) is not None:
        decay = _steps(asked, steps)
    return configured(recipe.optimizer, _steps(recipe.optimizer.warmup_steps, steps), decay, begin), steps


def _steps(steps: int, num_steps: int) -> float:
    """Levanter takes 1 for the fraction 1.0, the whole run; one step is said as a fraction that rounds to it."""
    return steps if steps != 1 else min(1.0, 1.5 / num_steps)
