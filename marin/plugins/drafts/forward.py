"""Levanter's models, where keys and values of earlier positions are kept.

Nothing here decides a bit of anything: sums have whatever order is fast. Matrices lie as the products of this process want
them (:mod:`marin.training.runtime.products`), layer by layer, so that no step moves them. Keys and values of the positions
before are ``before``; those of a few new positions are ``new``, at places that all sequences share, and go to ``before`` together.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import haliax as hax
import haliax.nn as hnn
import jax
import jax.numpy as jnp
import numpy as np
from haliax import Axis, NamedArray
from levanter.models.gpt2 import Gpt2LMHeadModel

HIDDEN = np.float32(-1e9)


class Parts(NamedTuple):
    """A model in pieces. ``positions``: the embedding of positions, of GPT-2; ``head``: float32[embed, vocabulary]."""

    tokens: jax.Array
    positions: jax.Array | None
    layers: tuple[Any, ...]
    norm: Any
    head: jax.Array


class Kept(NamedTuple):
    """Keys of one layer, float32[sequence, head, size, place], and values, float32[sequence, head, place, size]."""

    keys: jax.Array
    values: jax.Array


def parts(model: Any) -> Parts:
    """A model of any of Levanter's architectures that Marin has."""
    embeddings, transformer = model.embeddings, model.transformer
    embed, gpt2 = embeddings.token_embeddings.Embed, isinstance(model, Gpt2LMHeadModel)
    stacked, norm = (
        (transformer.blocks, transformer.ln_f) if gpt2 else (transformer.layers, transformer.norm)
    )
    return Parts(
        embeddings.token_embeddings.weight.rearrange((..., embed)).array,
        embeddings.position_embeddings.weight.rearrange((..., embed)).array if gpt2 else None,
        tuple(_laid(layer) for layer in stacked.unstacked()),
        norm,
        model.get_lm_head().rearrange((embed, ...)).array,
    )


def _laid(layer: Any) -> Any:
    """With the summed axes of its matrices first."""

    def laid(one: Any) -> Any:
        if not isinstance(one, hnn.Linear):
            return one
        summed = (one.In,) if isinstance(one.In, Axis) else one.In
        return replace(one, weight=one.weight.rearrange((*summed, ...)))

    return jax.tree.map(laid, layer, is_leaf=lambda one: isinstance(one, hnn.Linear))


def no_keys(config: Any, count: int, places: int) -> tuple[Kept, ...]:
    """Of ``count`` sequences of a model with this configuration, with nothing in it."""
    heads = getattr(config, "num_kv_heads", config.num_heads)
    size = getattr(config, "head_dim", None) or config.hidden_dim // config.num_heads
    keys, values = (count, heads, size, places), (count, heads, places, size)
    return tuple(Kept(jnp.zeros(keys), jnp.zeros(values)) for _ in range(config.num_layers))


def logits_of(model: Parts, states: jax.Array) -> jax.Array:
    """float32[sequence, vocabulary] of hidden states at one position, float32[sequence, 1, embed]."""
    return states[:, 0] @ model.head


def states_of(
    model: Parts,
    tokens: jax.Array,
    positions: jax.Array,
    before: tuple[Kept, ...],
    seen: jax.Array,
    new: tuple[Kept, ...],
    at: jax.Array,
) -> tuple[jax.Array, tuple[Kept, ...]]:
    """float32[sequence, count, embed] of ``tokens`` at ``positions``, int32[sequence, count]; and ``new`` with their keys and
    values from its place ``at`` on. ``seen``: which places of ``before`` each sequence sees, bool[sequence, place]."""
    Batch, Pos = Axis("batch", tokens.shape[0]), Axis("position", tokens.shape[1])
    Embed = Axis("embed", model.tokens.shape[1])
    inside = jnp.take(model.tokens, tokens, axis=0)
    if model.positions is not None:
        inside = inside + jnp.take(model.positions, positions, axis=0)
    x, named = hax.named(inside, (Batch, Pos, Embed)), hax.named(positions, (Batch, Pos))
    own = jnp.arange(new[0].keys.shape[-1])[None, :] <= at + jnp.arange(Pos.size)[:, None]
    kept = []
    for layer, old, recent in zip(model.layers, before, new, strict=True):
        if model.positions is None:
            attention, residual = layer.self_attn, x
            q, k, v = attention._compute_qkv(layer.input_layernorm(x), key=None, pos_ids=named)
            found, recent = _attended(q, k, v, old, seen, recent, own, at)
            x = residual + attention.o_proj(found)
            inner = getattr(layer, "block_sparse_moe", None) or layer.mlp
            told = inner(layer.post_attention_layernorm(x))
            x = x + (told[0] if isinstance(told, tuple) else told)
        else:
            q, k, v = layer.attn.c_attn(layer.ln_1(x)).unbind("qkv")
            one = (name.rename({"heads": "kv_head"}) for name in (k, v))
            q = q.rename({"heads": "kv_head"}).broadcast_axis(Axis("q_heads_per_group", 1))
            found, recent = _attended(q, *one, old, seen, recent, own, at)
            x = x + layer.attn.c_proj(found)
            x = x + layer.mlp(layer.ln_2(x))
        kept.append(recent)
    return model.norm(x).rearrange((Batch, Pos, Embed)).array, tuple(kept)


def _attended(
    q: NamedArray,
    k: NamedArray,
    v: NamedArray,
    before: Kept,
    seen: jax.Array,
    new: Kept,
    own: jax.Array,
    at: jax.Array,
) -> tuple[NamedArray, Kept]:
    queries = q.rearrange(("batch", "kv_head", "q_heads_per_group", "position", "head_size")).array
    batch, heads, group, count, size = queries.shape
    keys = k.rearrange(("batch", "kv_head", "head_size", "position")).array
    values = v.rearrange(("batch", "kv_head", "position", "head_size")).array
    new = Kept(
        jax.lax.dynamic_update_slice(new.keys, keys, (0, 0, 0, at)),
        jax.lax.dynamic_update_slice(new.values, values, (0, 0, at, 0)),
    )
    flat = queries.reshape(batch, heads, group * count, size) * np.float32(1 / math.sqrt(size))
    visible = jnp.tile(own, (group, 1))[None, None]
    weights = jnp.concatenate(
        [
            jnp.where(seen[:, None, None], flat @ before.keys, HIDDEN),
            jnp.where(visible, flat @ new.keys, HIDDEN),
        ],
        axis=-1,
    )
    weights = jax.nn.softmax(weights, axis=-1)
    places = before.keys.shape[-1]
    found = weights[..., :places] @ before.values + weights[..., places:] @ new.values
    axes = q.resolve_axis("batch"), Axis("heads", heads * group), q.resolve_axis("position"), q.resolve_axis("head_size")
    return hax.named(found.reshape(batch, heads * group, count, size), axes), new


def kept_from(before: tuple[Kept, ...], new: tuple[Kept, ...], begun: jax.Array) -> tuple[Kept, ...]:
    """``before`` with the new places of each sequence from its own place ``begun`` on, int32[sequence]."""

    def put(row: int, old: jax.Array, more: jax.Array, axis: int) -> jax.Array:
        start = [jnp.int32(0)] * 4
        start[0], start[axis] = jnp.int32(row), begun[row]
        return jax.lax.dynamic_update_slice(old, more[row : row + 1], start)

    found = []
    for old, more in zip(before, new, strict=True):
        keys, values = old
        for row in range(keys.shape[0]):
            keys, values = put(row, keys, more.keys, 3), put(row, values, more.values, 2)
        found.append(Kept(keys, values))
    return tuple(found)
