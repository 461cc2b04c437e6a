"""The optimizer of a recipe, the rates of its updates, and which tensors it moves by which rule: as configurations of Levanter's,
whose schedule may begin at a later train step.

Every field that decides bits is passed explicitly, so that a changed default of Levanter changes nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import optax
from levanter.optim.config import AdamConfig, LionConfig, OptimizerConfig

from marin.recipe.form.optimizer import Optimizer
from marin.recipe.form.schedule import decay_steps, whole
from marin.recipe.schema import Recipe
from marin.training.runtime.parts import across_tensors, adapters


@dataclass(frozen=True)
class FromStep:
    """Mixed into an optimizer's configuration: its schedule begins with train step ``begin``."""

    begin: int = 0

    def lr_scheduler(self, num_train_steps: int, override_lr: float | None = None) -> Callable[[jax.Array], jax.Array]:
        schedule: Callable[[jax.Array], jax.Array] = super().lr_scheduler(num_train_steps, override_lr)  # type: ignore[misc]
        return schedule if not self.begin else lambda count: schedule(count - self.begin)


def from_step(config: type[OptimizerConfig]) -> Callable[..., OptimizerConfig]:
    """A configuration of Levanter's, and when its schedule begins."""
    return dataclass(frozen=True)(type(config.__name__, (FromStep, config), {}))


def optimizer(recipe: Recipe) -> optax.GradientTransformation:
    """Levanter's optimizer for ``recipe``: its moments, masks and scheduled rates.

    One that moves each number by itself is without clipping: the gradient's global norm is a sum across tensors and
    devices, whose order the train step fixes (``step.slice_update``). With ``recipe.lora`` it moves adapters alone.
    """
    config, steps = configuration(recipe)
    built = config.build(steps)
    return built if recipe.lora is None else adapters().only_adapters(built)


def groups(recipe: Recipe, parameters: Any) -> Mapping[str, list[int]]:
    """Which tensors an optimizer that looks across them moves by which of its rules: numbers of the leaves of a tree of
    named arrays, by Levanter's own mask, which goes by a model's layers and the axes of their matrices."""
    found: Mapping[str, list[int]] = across_tensors().groups(
        recipe.optimizer.name, configuration(recipe)[0], parameters
    )
    return found


def configuration(recipe: Recipe) -> tuple[OptimizerConfig, int]:
    """Levanter's configuration, and the length of its schedule in train steps."""
    phase, steps = recipe.phase, whole(recipe)
    begin = phase.first_step if phase is not None and phase.schedule == "restart" else 0
    decay: float | None = recipe.optimizer.decay
    if recipe.optimizer.rounding == "nearest" and (asked := decay_steps(recipe)) is not None:
        decay = _steps(asked, steps)
    return _of_levanter(recipe.optimizer, _steps(recipe.optimizer.warmup_steps, steps), decay, begin), steps


def _of_levanter(config: Optimizer, warmup: float, decay: float | None, begin: int) -> OptimizerConfig:
    """Levanter's configuration of ``config``. Of optimizers that move each number by itself the train step clips; the others
    clip as Levanter has it."""
    common: dict[str, Any] = {
        "begin": begin,
        "learning_rate": config.learning_rate,
        "weight_decay": config.weight_decay,
        "min_lr_ratio": config.min_lr_ratio,
        "warmup": warmup,
        "decay": decay,
        "lr_schedule": config.schedule,
        "max_grad_norm": None if config.elementwise else config.max_grad_norm,
    }
    betas: dict[str, Any] = {"beta1": config.beta1, "beta2": config.beta2, "epsilon": config.epsilon}
    match config.name:
        case "adamw":
            return from_step(AdamConfig)(**common, **betas, nesterov=False)
        case "lion":
            return from_step(LionConfig)(**common, **betas)
        case _:
            across: OptimizerConfig = across_tensors().configured(config, common, betas)
            return across


def _steps(steps: int, num_steps: int) -> float:
    """Levanter takes 1 for the fraction 1.0, the whole run; one step is said as a fraction that rounds to it."""
    return steps if steps != 1 else min(1.0, 1.5 / num_steps)
