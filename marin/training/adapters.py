"""Low-rank adapters (LoRA, arXiv:2106.09685): beside each matrix of a model's layers two small ones, and only they move.

Which matrices these are, how adapters are drawn and what a layer with them computes is Levanter's ``adaptor.lora``. The training
state holds the model that it began with beside its adapters, so every fingerprint says of both what they are; the optimizer
keeps moments of adapters alone. To everything after the training it is one plain model: base and adapters, merged.

They may learn preferences: by Levanter's own loss (``levanter.dpo``), of an adapted model against itself without its adapters.

What a training asks of this file is found by the entry point ``lora`` (:func:`marin.training.runtime.parts.adapters`).
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from haliax import Axis, NamedArray
from levanter.adaptor.lora import (
    LORA_R,
    LoraConfig,
    LoraLinear,
    filter_lora_params,
    lora_state_dict,
    loraize,
    to_hf_config,
    unwrap_lora_modules,
)
from levanter.dpo import dpo_loss_from_logps
from levanter.models.lm_model import LmExample, LmHeadModel
from safetensors.numpy import save_file

from marin.recipe.schema import Recipe
from marin.recipe.section import Lora
from marin.training.loss import token_losses
from marin.training.model import attention_mask


def adapted(lora: Lora, model: LmHeadModel, key: jax.Array) -> LmHeadModel:
    """``model`` with adapters that change nothing yet: one factor is drawn, the other zero. The head has none."""
    return loraize(model, _config(lora), key)


def _config(lora: Lora) -> LoraConfig:
    return LoraConfig(r=lora.rank, alpha=lora.alpha, dropout=0.0, zero_init_b=True, a_init_mode="random")


def adapters_of[T](tree: T) -> T:
    """A tree of parameters, gradients or the like of an adapted model, with None where it is not of an adapter."""
    return filter_lora_params(tree)


def only_adapters(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """``optimizer`` with moments of adapters alone; what it adds to other parameters is -0.0, which changes no number's bits."""

    def init(params: Any) -> Any:
        return optimizer.init(adapters_of(params))

    def update(grads: Any, state: Any, params: Any = None) -> Any:
        updates, after = optimizer.update(adapters_of(grads), state, adapters_of(params))
        return eqx.combine(updates, jax.tree.map(lambda x: jnp.full_like(x, -0.0), grads)), after

    return optax.GradientTransformation(init, update)


def merged(model: LmHeadModel) -> LmHeadModel:
    """A plain model: to each matrix the product of its adapter's factors is added. A model without adapters is itself.

    The product is a sum over the rank in its order, each operation by itself: the same bits on every processor.
    """
    return jax.tree.map(
        lambda x: _merged(x) if isinstance(x, LoraLinear) else x, model, is_leaf=lambda x: isinstance(x, LoraLinear)
    )


def _merged(linear: LoraLinear) -> hax.nn.Linear:
    first, second, weight = linear.lora.lora_A.weight, linear.lora.lora_B.weight, linear.wrapped.weight
    delta = hax.zeros(weight.axes)
    for number in range(first.resolve_axis(LORA_R).size):
        one, other = hax.broadcast_arrays(first[LORA_R, number], second[LORA_R, number], require_subset=False)
        delta = delta + (one * other).rearrange(weight.axes)
    return replace(linear.wrapped, weight=weight + delta * linear.lora.scale)


def preferred(recipe: Recipe, model: LmHeadModel, tokens: jax.Array, weights: jax.Array, beta: float) -> jax.Array:
    """The sum, float32, of the losses of pairs: -log sigmoid of ``beta`` times how much more than the reference the model
    prefers the chosen answer.

    ``tokens``: int32[sequences, seq_len], of which each chosen conversation is followed by the rejected one; ``weights``:
    float32 of the same shape, 1 where the token after a position is of an answer.
    """
    Pair, Pos = Axis("batch", tokens.shape[0] // 2), Axis("position", tokens.shape[1])

    def answers(first: int) -> LmExample:
        ids = hax.named(tokens[first::2], (Pair, Pos))
        counted = hax.named(weights[first::2], (Pair, Pos))
        return LmExample(tokens=ids, loss_weight=counted, attn_mask=attention_mask(recipe, ids))

    def margin(model: LmHeadModel) -> NamedArray:
        chosen, rejected = (-hax.sum(token_losses(model, answers(i)), axis=Pos) for i in range(2))
        return chosen - rejected

    reference = jax.lax.stop_gradient(margin(unwrap_lora_modules(model)))
    mean, _ = dpo_loss_from_logps(margin(model), reference, beta=beta)
    return mean * Pair.size


def write_adapters(folder: Path, model: LmHeadModel, lora: Lora, base: str) -> None:
    """The adapters of an adapted model as PEFT has them: ``adapter_config.json`` and ``adapter_model.safetensors``; ``base``
    says of which model they are."""
    folder.mkdir()
    tensors = {name: np.ascontiguousarray(value) for name, value in sorted(lora_state_dict(model).items())}
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    targets = sorted({name.split(".")[-3] for name in tensors})
    config = to_hf_config(_config(lora), base, targets)
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
