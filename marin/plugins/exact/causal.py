"""The forward pass of what draws tokens, in which no bit of a position depends on what comes after it.

Levanter's own pass is causal in real numbers. Under profile ``exact`` it is not in bits: the factors of a contraction become
whole numbers by the greatest of their row (docs/exact.md), and attention contracts over positions, so a value that no one may
look at yet decides how the others are rounded. Here the value of each position is divided by a power of two of its own, the
weight that it gets is multiplied by that, and a value of 1 that has no weight stands beside all of them: the greatest is 1
whatever comes later. What is drawn token by token, looked at in one pass, or learned from are then the same bits.
"""

from __future__ import annotations

import math
from typing import Any

import haliax as hax
import jax
import jax.numpy as jnp
import numpy as np
from haliax import Axis, NamedArray
from levanter.models.llama import LlamaLMHeadModel

HIDDEN = np.float32(-np.inf)
"""The logit of a position that is not to be looked at; its weight is exactly 0. Levanter's -1e9 is more than a logit may be."""


def hidden_states(model: LlamaLMHeadModel, tokens: jax.Array) -> jax.Array:
    """float32[batch, length, embed], before the head, of int32[batch, length]."""
    length = tokens.shape[1]
    positions = jnp.broadcast_to(jnp.arange(length, dtype=jnp.int32), tokens.shape)
    return _layers(model, tokens, positions)


def head_logits(model: LlamaLMHeadModel, states: jax.Array) -> jax.Array:
    """float32[batch, length, vocabulary] of hidden states."""
    Batch, Pos = Axis("batch", states.shape[0]), Axis("position", states.shape[1])
    named = hax.named(states, (Batch, Pos, model.Embed))
    logits = model.lm_head(named) if model.lm_head is not None else model.embeddings.unembed(named)
    return logits.rearrange((Batch, Pos, model.Vocab)).array


def _layers(model: LlamaLMHeadModel, tokens: jax.Array, positions: jax.Array) -> jax.Array:
    Batch, Pos = Axis("batch", tokens.shape[0]), Axis("position", tokens.shape[1])
    named = hax.named(positions, (Batch, Pos))
    x = model.embeddings.embed(hax.named(tokens, (Batch, Pos)))
    stacked, tree = jax.tree.flatten(model.transformer.layers.stacked, is_leaf=lambda x: isinstance(x, NamedArray))
    axes = [tuple(axis for axis in leaf.axes if axis.name != "layer") for leaf in stacked]
    layers = [leaf.rearrange(("layer", *own)).array for leaf, own in zip(stacked, axes, strict=True)]

    def one(x: jax.Array, leaves: list[jax.Array]) -> tuple[jax.Array, None]:
        layer = jax.tree.unflatten(tree, [hax.named(leaf, own) for leaf, own in zip(leaves, axes, strict=True)])
        after = _layer(layer, hax.named(x, (Batch, Pos, model.Embed)), named)
        return after.rearrange((Batch, Pos, model.Embed)).array, None

    numbers, _ = jax.lax.scan(one, x.rearrange((Batch, Pos, model.Embed)).array, layers)
    normed = model.transformer.norm(hax.named(numbers, (Batch, Pos, model.Embed)))
    return normed.rearrange((Batch, Pos, model.Embed)).array


def _layer(layer: Any, x: NamedArray, positions: NamedArray) -> NamedArray:
    """Levanter's decoder layer, around attention as it is here."""
    x = x + _attention(layer.self_attn, layer.input_layernorm(x), positions)
    return x + layer.mlp(layer.post_attention_layernorm(x))


def _attention(attention: Any, x: NamedArray, positions: NamedArray) -> NamedArray:
    config = attention.config
    q, k, v = attention._compute_qkv(x, key=None, pos_ids=positions)
    queries = q.rearrange(("batch", "kv_head", "q_heads_per_group", "position", "head_size")).array
    queries = queries * np.float32(1 / math.sqrt(config.HeadSize.size))
    keys, values = (one.rearrange(("batch", "kv_head", "position", "head_size")).array for one in (k, v))
    scales = jax.lax.stop_gradient(_power(jnp.max(jnp.abs(values), axis=-1)))
    values, own = values / scales[..., None], positions.array
    everywhere = jnp.arange(keys.shape[2], dtype=jnp.int32)
    seen = everywhere[None, None, :] <= own[:, :, None]
    logits = jnp.einsum("bhgqd,bhkd->bhgqk", queries, keys)
    weights = jax.nn.softmax(jnp.where(seen[:, None, None], logits, HIDDEN), axis=-1)
    weights = weights * scales[:, :, None, None, :]
    beside = jnp.ones((*values.shape[:2], 1, values.shape[3]), jnp.float32)
    no_weight = jnp.zeros((*weights.shape[:-1], 1), jnp.float32)
    weighed = jnp.einsum(
        "bhgqk,bhkd->bhgqd", jnp.concatenate([weights, no_weight], axis=-1), jnp.concatenate([values, beside], axis=2)
    )
    axes = (x.resolve_axis("batch"), config.KVHeads, config.QHeadsPerGroup, x.resolve_axis("position"), config.HeadSize)
    flat = hax.named(weighed, axes).flatten_axes(("kv_head", "q_heads_per_group"), "heads")
    return attention.o_proj(flat)


def _power(largest: jax.Array) -> jax.Array:
    """The power of two above a number; 1 of 0, and of what no power is above."""
    exponent = jax.lax.bitcast_convert_type(largest, jnp.int32) & np.int32(0x7F800000)
    above = jax.lax.bitcast_convert_type(exponent + np.int32(1 << 23), jnp.float32)
    return jnp.where((largest > 0.0) & (above < np.float32(2.0**120)), above, np.float32(1.0))
