"""Levanter's Mixtral and Qwen3-MoE, their parameters and losses, with the dispatch of this room in the place of their own.

Levanter sorts tokens by expert, where equal ones may stand in any order, and multiplies ragged groups; neither has an exact
form. What it counts over a batch (the load of experts, losses beside that of the tokens) is over a microbatch here.

What a training asks of this room is here, found by the entry point ``experts``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
import numpy as np
from haliax import Axis, NamedArray
from haliax.jax_utils import maybe_rng_split
from levanter.models import mixtral
from levanter.models.qwen3_moe import Qwen3MoeConfig, Qwen3MoeDecoderLayer, Qwen3MoeLMHeadModel, Qwen3MoeSparseMoeBlock

from marin.recipe.model import Model
from marin.training.experts.dispatch import chosen_experts, mixed, weights_of
from marin.training.experts.tensors import by_expert as by_expert
from marin.training.experts.tensors import together as together

BALANCE, ROUTER_Z, LOADS = "load_balancing_loss", "router_z_loss", "expert_loads"
"""As Levanter's models call the losses that a layer gives beside its numbers, and the tokens of each of its experts."""


class _Mixtral(mixtral.MixtralSparseMoeBlock):
    counted: NamedArray | None = None

    def __call__(self, x: NamedArray, *, key: Any = None) -> tuple[NamedArray, dict[str, NamedArray]]:
        config, experts = self.config, self.experts
        matrices = experts.w1.weight, experts.w3.weight, experts.w2.weight
        routed = _routed(x, self.gate, config, matrices, experts.act, self.counted)
        beside = {}
        if config.lbl_coef is not None:
            share = routed.loads * (config.n_routed_experts / (config.num_experts_per_tok**2 * routed.tokens))
            beside[BALANCE] = config.lbl_coef * jnp.sum(share * routed.mean(routed.probabilities))
        if config.rzl_coef is not None:
            beside[ROUTER_Z] = config.rzl_coef * routed.mean(jax.nn.logsumexp(routed.logits, axis=1) ** 2)
        named = {name: hax.named(value, ()) for name, value in beside.items()}
        return routed.out, named | {LOADS: hax.named(routed.loads, (config.Experts,))}


class _Qwen3(Qwen3MoeSparseMoeBlock):
    counted: NamedArray | None = None

    def __call__(self, x: NamedArray, *, key: Any = None) -> tuple[NamedArray, dict[str, NamedArray]]:
        config, experts = self.config, self.experts
        matrices = experts.gate_proj.weight, experts.up_proj.weight, experts.down_proj.weight
        routed = _routed(x, self.gate, config, matrices, experts.act, self.counted)
        beside = {LOADS: hax.named(routed.loads, (config.Experts,))}
        if config.router_aux_loss_coef is not None:
            share = routed.loads / routed.tokens
            balance = jnp.sum(share * routed.mean(routed.probabilities)) * config.num_experts
            beside[BALANCE] = hax.named(config.router_aux_loss_coef * balance, ())
        return routed.out, beside


@dataclass(frozen=True)
class _Routed:
    """What the experts make of a layer's tokens; the router's logits and probabilities, [tokens, experts]; of those that are no
    blank (``counted``: bool[tokens]; None: all of them) how many each expert has, float32[experts], and how many there are."""

    out: NamedArray
    logits: jax.Array
    probabilities: jax.Array
    loads: jax.Array
    tokens: Any
    counted: jax.Array | None

    def mean(self, values: jax.Array) -> jax.Array:
        """Over the tokens that are counted, which are the first axis."""
        if self.counted is None:
            return jnp.mean(values, axis=0)
        return jnp.sum(jnp.where(_along(self.counted, values), values, 0), axis=0) / self.tokens


def _along(counted: jax.Array, values: jax.Array) -> jax.Array:
    return counted.reshape(-1, *(1,) * (values.ndim - 1))


def _routed(
    x: NamedArray,
    gate: hax.nn.Linear,
    config: Any,
    matrices: tuple[NamedArray, ...],
    activation: Any,
    counted: NamedArray | None,
) -> _Routed:
    laid = x.rearrange((..., config.Embed))
    tokens = laid.array.reshape(-1, config.Embed.size)
    logits = gate(laid).rearrange((..., config.Experts)).array.reshape(-1, config.Experts.size)
    probabilities = jax.nn.softmax(logits, axis=1)
    chosen = chosen_experts(probabilities, config.num_experts_per_tok)
    parts = tuple(weight.rearrange((config.Experts, ...)).array for weight in matrices)
    found = mixed(tokens, weights_of(probabilities, chosen), chosen, parts, activation)
    out = hax.named(found.reshape(laid.array.shape), laid.axes).rearrange(x.axes)
    if counted is None:
        loads = jnp.sum(chosen.astype(jnp.int32), axis=0).astype(jnp.float32)
        return _Routed(out, logits, probabilities, loads, tokens.shape[0], None)
    flat = counted.rearrange(laid.axes[:-1]).array.reshape(-1)
    loads = jnp.sum((chosen & flat[:, None]).astype(jnp.int32), axis=0).astype(jnp.float32)
    some = jnp.maximum(jnp.sum(flat.astype(jnp.int32)), 1).astype(jnp.float32)
    return _Routed(out, logits, probabilities, loads, some, flat)


class _MixtralLayer(mixtral.MixtralDecoderLayer):
    """Levanter's, which says to the mixture which tokens are blank."""

    def __call__(self, x: NamedArray, mask: Any, *, key: Any = None) -> tuple[NamedArray, dict[str, NamedArray]]:
        block = replace(self.block_sparse_moe, counted=_counted(mask))
        found: tuple[NamedArray, dict[str, NamedArray]] = mixtral.MixtralDecoderLayer.__call__(
            replace(self, block_sparse_moe=block), x, mask, key=key
        )
        return found


class _Qwen3Layer(Qwen3MoeDecoderLayer):
    """Levanter's likewise."""

    def __call__(
        self, x: NamedArray, mask: Any, *, key: Any = None, pos_ids: NamedArray | None = None
    ) -> tuple[NamedArray, dict[str, NamedArray]]:
        block = replace(self.mlp, counted=_counted(mask))
        found: tuple[NamedArray, dict[str, NamedArray]] = Qwen3MoeDecoderLayer.__call__(
            replace(self, mlp=block), x, mask, key=key, pos_ids=pos_ids
        )
        return found


def _counted(mask: Any) -> NamedArray | None:
    """Which positions are not blank (:mod:`marin.training.blank`), whose segments are below 0; None: all, where there are no
    segments."""
    segments = getattr(mask, "segment_ids", None)
    return None if segments is None else segments[0] >= 0


class _Transformer(mixtral.MixtralTransformer):
    """Levanter's, without the statistics that it sends to a tracker from inside of a program."""

    def __call__(
        self, x: NamedArray, attn_mask: Any, *, key: Any, pos_ids: NamedArray | None = None
    ) -> tuple[NamedArray, dict[str, NamedArray]]:
        keys = maybe_rng_split(key, self.config.num_layers) if key is not None else None
        x, beside = self.layers.scan(x, mask=attn_mask, key=keys)
        summed = {name: hax.sum(value, axis=self.config.Layers) for name, value in beside.items() if name != LOADS}
        return self.norm(x), {**summed, LOADS: beside[LOADS]}


def activated(
    model: mixtral.MixtralLMHeadModel | Qwen3MoeLMHeadModel, tokens: NamedArray, mask: Any
) -> tuple[NamedArray, NamedArray | float, jax.Array]:
    """What the layers make of ``tokens``, their losses beside it, and how many tokens each expert got: float32[layers,
    experts]."""
    x, beside = model.transformer(model.embeddings.embed(tokens), attn_mask=mask, key=None)
    losses: list[NamedArray] = [beside[name] for name in (BALANCE, ROUTER_Z) if name in beside]
    return x, sum(losses[1:], start=losses[0]) if losses else 0.0, beside[LOADS].array


def routing_balance(loads: np.ndarray) -> Mapping[str, float]:
    """How evenly the tokens of a train step went to experts, of how many each one has, [layers, experts]: the entropy of their
    shares (1: even; the mean over layers), the largest share (1: that of an even one), and how many experts have none."""
    shares = loads.astype(np.float64) / np.maximum(loads.sum(axis=1, keepdims=True), 1)
    logs = np.log(np.where(shares > 0, shares, 1.0))
    return {
        "router/entropy": float(-(shares * logs).sum(axis=1).mean() / np.log(loads.shape[1])),
        "router/largest_share": float(shares.max() * loads.shape[1]),
        "router/idle_experts": float((loads == 0).sum()),
    }


@dataclass(frozen=True)
class MixtralExperts(mixtral.MixtralConfig):
    """A Mixtral whose tokens come to their experts by :mod:`marin.training.experts.dispatch`."""

    def build(self, Vocab: Axis, *, key: Any) -> mixtral.MixtralLMHeadModel:
        model = mixtral.MixtralLMHeadModel.init(Vocab, self, key=key)
        layer = model.transformer.layers.stacked
        own = layer.block_sparse_moe
        block = _Mixtral(own.config, own.gate, own.experts)
        model = _with_layer(model, _MixtralLayer(**_field_values(layer) | {"block_sparse_moe": block}))
        whole = model.transformer
        return eqx.tree_at(lambda m: m.transformer, model, _Transformer(whole.config, whole.layers, whole.norm))


@dataclass(frozen=True)
class Qwen3Experts(Qwen3MoeConfig):
    """A Qwen3-MoE likewise."""

    def build(self, Vocab: Axis, *, key: Any) -> Qwen3MoeLMHeadModel:
        model = Qwen3MoeLMHeadModel.init(Vocab, self, key=key)
        layer = model.transformer.layers.stacked
        block = _Qwen3(layer.mlp.config, layer.mlp.gate, layer.mlp.experts)
        return _with_layer(model, _Qwen3Layer(**_field_values(layer) | {"mlp": block}))


def configured(model: Model, same: Mapping[str, Any]) -> MixtralExperts | Qwen3Experts:
    """Levanter's configuration of ``model``; ``same``: the fields that it has of a Llama."""
    if model.architecture == "mixtral":
        return MixtralExperts(
            **same,
            n_routed_experts=model.num_experts,
            num_experts_per_tok=model.num_experts_per_tok,
            n_shared_experts=0,
            lbl_coef=model.router_aux_loss_coef,
            rzl_coef=model.router_z_loss_coef,
            dense_router_gradient=False,
        )
    return Qwen3Experts(
        **{**same, "use_qk_norm": True},
        num_experts=model.num_experts,
        num_experts_per_tok=model.num_experts_per_tok,
        moe_intermediate_dim=model.intermediate_dim,
        norm_topk_prob=True,
        router_aux_loss_coef=model.router_aux_loss_coef,
        decoder_sparse_step=1,
        mlp_only_layers=(),
        use_sliding_window=False,
        dense_router_gradient=False,
    )


def _field_values(module: Any) -> dict[str, Any]:
    return {field.name: getattr(module, field.name) for field in fields(module)}


def _with_layer(model: Any, layer: Any) -> Any:
    return eqx.tree_at(lambda m: m.transformer.layers.stacked, model, layer)
