"""Each optimizer of a recipe as a configuration of Levanter's, whose schedule may begin at a later train step.

Every field that decides bits is passed explicitly, so that a changed default of Levanter changes nothing here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from levanter.optim.adamh import AdamHConfig
from levanter.optim.config import AdamConfig, LionConfig, OptimizerConfig
from levanter.optim.muon import MuonConfig
from levanter.optim.muonh import MuonHConfig
from levanter.optim.scion import ScionConfig, scale_with_scion

from marin.recipe.form.optimizer import Optimizer


@dataclass(frozen=True)
class FromStep:
    """Mixed into an optimizer's configuration: its schedule begins with train step ``begin``."""

    begin: int = 0

    def lr_scheduler(self, num_train_steps: int, override_lr: float | None = None) -> Callable[[jax.Array], jax.Array]:
        schedule: Callable[[jax.Array], jax.Array] = super().lr_scheduler(num_train_steps, override_lr)  # type: ignore[misc]
        return schedule if not self.begin else lambda count: schedule(count - self.begin)


@dataclass(frozen=True)
class _Adam(FromStep, AdamConfig):
    pass


@dataclass(frozen=True)
class _Lion(FromStep, LionConfig):
    pass


@dataclass(frozen=True)
class _Muon(FromStep, MuonConfig):
    pass


@dataclass(frozen=True)
class _MuonH(FromStep, MuonHConfig):
    pass


@dataclass(frozen=True)
class _AdamH(FromStep, AdamHConfig):
    pass


@dataclass(frozen=True)
class _Scion(FromStep, ScionConfig):
    """Levanter's, but for the sign of the momentum: its own calls ``jax.tree_map``, which the locked jax no longer has."""

    def build(self, num_train_steps: int) -> optax.GradientTransformation:
        def made(learning_rate: jax.Array) -> optax.GradientTransformation:
            decay = optax.add_decayed_weights(self.weight_decay, self.build_weight_decay_mask())
            decays = [decay] if self.weight_decay > 0 else []
            scaled = scale_with_scion(self.momentum, self.backend_steps, self.scion_epsilon, self.coefficient_type)
            clipped = optax.clip_by_global_norm(self.max_grad_norm)
            matrices = optax.chain(scaled, *decays, optax.scale(-learning_rate))
            slower = optax.scale(-learning_rate * self.scion_to_signum_lr)
            others = optax.chain(clipped, signs_of_momentum(self.beta1), *decays, slower)
            return optax.multi_transform({"scion": matrices, "signum": others}, self.create_mask)

        built: optax.GradientTransformation = optax.inject_hyperparams(made)(
            learning_rate=self.lr_scheduler(num_train_steps)
        )
        return built


def signs_of_momentum(momentum: float) -> optax.GradientTransformation:
    """Signum: the sign of the gradient's moving average."""

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        after = jax.tree.map(lambda m, g: momentum * m + (1 - momentum) * g, state.trace, updates)
        return jax.tree.map(jnp.sign, after), optax.TraceState(after)

    return optax.GradientTransformation(lambda params: optax.TraceState(jax.tree.map(jnp.zeros_like, params)), update)


@dataclass(frozen=True)
class _Adafactor(FromStep, OptimizerConfig):
    """optax's, of the tensors as Levanter stacks them, with Levanter's mask and a decay that follows the rate."""

    min_dim_size_to_factor: int = 128
    decay_rate: float = 0.8
    clipping_threshold: float = 1.0
    multiply_by_parameter_scale: bool = True
    factored_epsilon: float = 1e-30
    max_grad_norm: float = 1.0

    def build(self, num_train_steps: int) -> optax.GradientTransformation:
        def made(learning_rate: jax.Array) -> optax.GradientTransformation:
            return optax.chain(
                optax.clip_by_global_norm(self.max_grad_norm),
                optax.scale_by_factored_rms(
                    decay_rate=self.decay_rate,
                    min_dim_size_to_factor=self.min_dim_size_to_factor,
                    epsilon=self.factored_epsilon,
                ),
                optax.clip_by_block_rms(self.clipping_threshold),
                *([optax.scale_by_param_block_rms()] if self.multiply_by_parameter_scale else []),
                *(
                    [optax.add_decayed_weights(self.weight_decay, self.build_weight_decay_mask())]
                    if self.weight_decay > 0
                    else []
                ),
                optax.scale(-learning_rate),
            )

        built: optax.GradientTransformation = optax.inject_hyperparams(made)(
            learning_rate=self.lr_scheduler(num_train_steps)
        )
        return built


def configured(config: Optimizer, warmup: float, decay: float | None, begin: int) -> OptimizerConfig:
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
    orthogonal: dict[str, Any] = {
        "momentum": config.momentum,
        "backend_steps": config.backend_steps,
        "coefficient_type": config.coefficient_type,
    }
    muon: dict[str, Any] = {"adam_lr": config.adam_lr, "nesterov": config.nesterov, "muon_epsilon": config.muon_epsilon}
    match config.name:
        case "adamw":
            return _Adam(**common, **betas, nesterov=False)
        case "lion":
            return _Lion(**common, **betas)
        case "muon":
            return _Muon(
                **common,
                **betas,
                **orthogonal,
                **muon,
                use_kimi_scaling=config.use_kimi_scaling,
                adam_weight_decay=config.adam_weight_decay,
            )
        case "muonh":
            return _MuonH(**common, **betas, **orthogonal, **muon)
        case "adamh":
            return _AdamH(**common, **betas, adam_lr=config.adam_lr)
        case "scion":
            return _Scion(
                **common,
                **orthogonal,
                beta1=config.beta1,
                scion_to_signum_lr=config.scion_to_signum_lr,
                scion_epsilon=config.scion_epsilon,
            )
        case "adafactor":
            factored: dict[str, Any] = {
                "min_dim_size_to_factor": config.min_dim_size_to_factor,
                "decay_rate": config.decay_rate,
                "clipping_threshold": config.clipping_threshold,
                "multiply_by_parameter_scale": config.multiply_by_parameter_scale,
                "factored_epsilon": config.factored_epsilon,
            }
            return _Adafactor(**common, **factored)
