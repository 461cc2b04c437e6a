"""Optimizers that look across the numbers of a tensor, as configurations of Levanter's (the entry point ``across`` of the group
``marin.profiles``).

Every field that decides bits is passed explicitly, so that a changed default of Levanter changes nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import haliax as hax
import jax
import jax.numpy as jnp
import optax
from levanter.optim.adam_mini import MiniConfig
from levanter.optim.adamh import AdamHConfig
from levanter.optim.cautious import CautiousConfig
from levanter.optim.config import OptimizerConfig
from levanter.optim.muon import MuonConfig
from levanter.optim.muonh import MuonHConfig
from levanter.optim.scion import ScionConfig, scale_with_scion

from marin.errors import UsageError
from marin.recipe.form.optimizer import Optimizer
from marin.training.optimizers.rule import FromStep, from_step


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


def groups(name: str, config: OptimizerConfig, parameters: Any) -> Mapping[str, list[int]]:
    """Which tensors are moved by which rule, as :func:`marin.training.optimizers.rule.groups` says.

    Raises:
        UsageError: no tensor is a matrix for the rule that the optimizer is called after.
    """
    mask = getattr(config, "create_mask", None)
    named = jax.tree.leaves(parameters, is_leaf=lambda x: isinstance(x, hax.NamedArray))
    labels = jax.tree.leaves(mask(parameters)) if mask is not None else [name] * len(named)
    found: dict[str, list[int]] = {}
    for number, (label, _) in enumerate(zip(labels, named, strict=True)):
        found.setdefault(label, []).append(number)
    if name not in found and name != "mini":  # whose groups are called after what is in them
        raise UsageError(
            "an optimizer of matrices, and the model has none",
            where="optimizer.name",
            expected=f"a matrix that {name} moves",
            found=f"{len(named)} tensors that {' and '.join(sorted(found)) or 'nothing'} would move",
            cure="choose optimizer=adamw",
        )
    return found


def configured(config: Optimizer, common: Mapping[str, Any], betas: Mapping[str, Any]) -> OptimizerConfig:
    """Levanter's configuration of ``config``, of which ``common`` are the fields that all optimizers have."""
    orthogonal: dict[str, Any] = {
        "momentum": config.momentum,
        "backend_steps": config.backend_steps,
        "coefficient_type": config.coefficient_type,
    }
    muon: dict[str, Any] = {"adam_lr": config.adam_lr, "nesterov": config.nesterov, "muon_epsilon": config.muon_epsilon}
    match config.name:
        case "muon":
            return from_step(MuonConfig)(
                **common,
                **betas,
                **orthogonal,
                **muon,
                use_kimi_scaling=config.use_kimi_scaling,
                adam_weight_decay=config.adam_weight_decay,
            )
        case "muonh":
            return from_step(MuonHConfig)(**common, **betas, **orthogonal, **muon)
        case "adamh":
            return from_step(AdamHConfig)(**common, **betas, adam_lr=config.adam_lr)
        case "scion":
            return _Scion(
                **common,
                **orthogonal,
                beta1=config.beta1,
                scion_to_signum_lr=config.scion_to_signum_lr,
                scion_epsilon=config.scion_epsilon,
            )
        case "cautious":
            return from_step(CautiousConfig)(**common, **betas, adamc_weight_decay=False)
        case "mini":
            return from_step(MiniConfig)(**common, **betas)
        case _:
            factored: dict[str, Any] = {
                "min_dim_size_to_factor": config.min_dim_size_to_factor,
                "decay_rate": config.decay_rate,
                "clipping_threshold": config.clipping_threshold,
                "multiply_by_parameter_scale": config.multiply_by_parameter_scale,
                "factored_epsilon": config.factored_epsilon,
            }
            return _Adafactor(**common, **factored)
