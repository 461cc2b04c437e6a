"""Levanter's Mixtral and Qwen3-MoE, their parameters and losses, with the dispatch of this room in the place of their own.

Levanter sorts tokens by expert, where equal ones may stand in any order, and multiplies ragged groups; neither has an exact
form. What it counts over a batch (the load of experts, losses beside that of the tokens) is over a microbatch here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
from haliax import Axis, NamedArray
from haliax.jax_utils import maybe_rng_split
from levanter.models.mixtral import MixtralConfig, MixtralLMHeadModel, MixtralSparseMoeBlock, MixtralTransformer
from levanter.models.qwen3_moe import Qwen3MoeConfig, Qwen3MoeLMHeadModel, Qwen3MoeSparseMoeBlock

from marin.training.experts.dispatch import chosen_experts, mixed, weights_of

BALANCE, ROUTER_Z, LOADS = "load_balancing_loss", "router_z_loss", "expert_loads"
"""As Levanter's models call the losses that a layer gives beside its numbers, and the tokens of each of its experts."""


class _Mixtral(MixtralSparseMoeBlock):
    def __call__(self, x: NamedArray, *, key: Any = None) -> tuple[NamedArray, dict[str, NamedArray]]:
        config, experts = self.config, self.experts
        matrices = experts.w1.weight, experts.w3.weight, experts.w2.weight
        out, logits, probabilities, loads = _routed(x, self.gate, config, matrices, experts.act)
        beside = {}
        if config.lbl_coef is not None:
            share = loads * (config.n_routed_experts / (config.num_experts_per_tok**2 * probabilities.shape[0]))
            beside[BALANCE] = config.lbl_coef * jnp.sum(share * jnp.mean(probabilities, axis=0))
        if config.rzl_coef is not None:
            beside[ROUTER_Z] = config.rzl_coef * jnp.mean(jax.nn.logsumexp(logits, axis=1) ** 2)
        named = {name: hax.named(value, ()) for name, value in beside.items()}
        return out, named | {LOADS: hax.named(loads, (config.Experts,))}


class _Qwen3(Qwen3MoeSparseMoeBlock):
    def __call__(self, x: NamedArray, *, key: Any = None) -> tuple[NamedArray, dict[str, NamedArray]]:
        config, experts = self.config, self.experts
        matrices = experts.gate_proj.weight, experts.up_proj.weight, experts.down_proj.weight
        out, _, probabilities, loads = _routed(x, self.gate, config, matrices, experts.act)
        beside = {LOADS: hax.named(loads, (config.Experts,))}
        if config.router_aux_loss_coef is not None:
            share = loads / probabilities.shape[0]
            balance = jnp.sum(share * jnp.mean(probabilities, axis=0)) * config.num_experts
            beside[BALANCE] = hax.named(config.router_aux_loss_coef * balance, ())
        return out, beside


def _routed(
    x: NamedArray, gate: hax.nn.Linear, config: Any, matrices: tuple[NamedArray, ...], activation: Any
) -> tuple[NamedArray, jax.Array, jax.Array, jax.Array]:
    """What the experts make of ``x``; logits and probabilities [tokens, experts], and the tokens of each expert (float32)."""
    laid = x.rearrange((..., config.Embed))
    tokens = laid.array.reshape(-1, config.Embed.size)
    logits = gate(laid).rearrange((..., config.Experts)).array.reshape(-1, config.Experts.size)
    probabilities = jax.nn.softmax(logits, axis=1)
    chosen = chosen_experts(probabilities, config.num_experts_per_tok)
    parts = tuple(weight.rearrange((config.Experts, ...)).array for weight in matrices)
    found = mixed(tokens, weights_of(probabilities, chosen), chosen, parts, activation)
    out = hax.named(found.reshape(laid.array.shape), laid.axes).rearrange(x.axes)
    return out, logits, probabilities, jnp.sum(chosen.astype(jnp.int32), axis=0).astype(jnp.float32)


class _Transformer(MixtralTransformer):
    """Levanter's, without the statistics that it sends to a tracker from inside of a program."""

    def __call__(
        self, x: NamedArray, attn_mask: Any, *, key: Any, pos_ids: NamedArray | None = None
    ) -> tuple[NamedArray, dict[str, NamedArray]]:
        keys = maybe_rng_split(key, self.config.num_layers) if key is not None else None
        x, beside = self.layers.scan(x, mask=attn_mask, key=keys)
        summed = {name: hax.sum(value, axis=self.config.Layers) for name, value in beside.items() if name != LOADS}
        return self.norm(x), {**summed, LOADS: beside[LOADS]}


def activated(
    model: MixtralLMHeadModel | Qwen3MoeLMHeadModel, tokens: NamedArray, mask: Any
) -> tuple[NamedArray, NamedArray | float, jax.Array]:
    """What the layers make of ``tokens``, their losses beside it, and how many tokens each expert got: float32[layers,
    experts]."""
    x, beside = model.transformer(model.embeddings.embed(tokens), attn_mask=mask, key=None)
    losses: list[NamedArray] = [beside[name] for name in (BALANCE, ROUTER_Z) if name in beside]
    return x, sum(losses[1:], start=losses[0]) if losses else 0.0, beside[LOADS].array


@dataclass(frozen=True)
class MixtralExperts(MixtralConfig):
    """A Mixtral whose tokens come to their experts by :mod:`marin.training.experts.dispatch`."""

    def build(self, Vocab: Axis, *, key: Any) -> MixtralLMHeadModel:
        model = MixtralLMHeadModel.init(Vocab, self, key=key)
        own = model.transformer.layers.stacked.block_sparse_moe
        block = _Mixtral(own.config, own.gate, own.experts)
        model = eqx.tree_at(lambda m: m.transformer.layers.stacked.block_sparse_moe, model, block)
        whole = model.transformer
        return eqx.tree_at(lambda m: m.transformer, model, _Transformer(whole.config, whole.layers, whole.norm))


@dataclass(frozen=True)
class Qwen3Experts(Qwen3MoeConfig):
    """A Qwen3-MoE likewise."""

    def build(self, Vocab: Axis, *, key: Any) -> Qwen3MoeLMHeadModel:
        model = Qwen3MoeLMHeadModel.init(Vocab, self, key=key)
        own = model.transformer.layers.stacked.mlp
        return eqx.tree_at(lambda m: m.transformer.layers.stacked.mlp, model, _Qwen3(own.config, own.gate, own.experts))
