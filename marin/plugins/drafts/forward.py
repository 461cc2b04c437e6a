"""Levanter's models, where keys and values of earlier positions are kept.

Nothing here decides a bit of anything: sums have whatever order is fast. Matrices lie as the products of this process want
them (:mod:`marin.training.runtime.products`), layer by layer, those of queries, keys and values in one. A cache has a place for
each position of a sequence, and behind these a few that all sequences share: what is new is written there, for all at once, and
goes to the positions of each sequence when a program ends (:func:`settle_cache`).
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import haliax as hax
import haliax.nn as hnn
import jax
import jax.numpy as jnp
import numpy as np
from haliax import Axis, NamedArray
from levanter.models.gpt2 import Gpt2LMHeadModel

HIDDEN = np.float32(-1e9)
FAR = 5e8
"""Logits of attention below it in magnitude give no weight to Levanter's -1e9."""


class Layer(NamedTuple):
    """One layer. ``joined``: float32[embed, (queries, keys, values)]; ``turned``: attention with its norms and rotary embeddings,
    None of GPT-2."""

    before: Any
    joined: jax.Array
    bias: jax.Array | None
    turned: Any
    out: hnn.Linear
    between: Any
    inner: Any


class Parts(NamedTuple):
    """A model in pieces. ``positions``: the embedding of positions, of GPT-2; ``head``: float32[embed, vocabulary]."""

    tokens: jax.Array
    positions: jax.Array | None
    layers: tuple[Layer, ...]
    norm: Any
    head: jax.Array


class LayerCache(NamedTuple):
    """Keys of one layer, float32[sequence, head, size, place], and values, float32[sequence, head, place, size]."""

    keys: jax.Array
    values: jax.Array


def parts(model: Any) -> Parts:
    """A model of any of Levanter's architectures that Marin has."""
    embeddings, transformer = model.embeddings, model.transformer
    embed, gpt2 = embeddings.token_embeddings.Embed, isinstance(model, Gpt2LMHeadModel)
    stacked, norm = (transformer.blocks, transformer.ln_f) if gpt2 else (transformer.layers, transformer.norm)
    return Parts(
        embeddings.token_embeddings.weight.rearrange((..., embed)).array,
        embeddings.position_embeddings.weight.rearrange((..., embed)).array if gpt2 else None,
        tuple((_gpt2_layer if gpt2 else _layer)(layer) for layer in stacked.unstacked()),
        norm,
        model.get_lm_head().rearrange((embed, ...)).array,
    )


def _layer(layer: Any) -> Layer:
    attention = layer.self_attn
    projections = attention.q_proj, attention.k_proj, attention.v_proj
    flat = [_laid(one).weight.array.reshape(one.In.size, -1) for one in projections]
    biases = [one.bias.array.reshape(-1) for one in projections if one.bias is not None]
    inner = getattr(layer, "block_sparse_moe", None)
    return Layer(
        layer.input_layernorm,
        jnp.concatenate(flat, axis=1),
        jnp.concatenate(biases) if biases else None,
        attention,
        _laid(attention.o_proj),
        layer.post_attention_layernorm,
        _laid(layer.mlp if inner is None else inner),
    )


def _gpt2_layer(layer: Any) -> Layer:
    joined = layer.attn.c_attn
    flat = _laid(joined).weight.rearrange((joined.In, "qkv", "heads", "head_size")).array
    bias = None if joined.bias is None else joined.bias.rearrange(("qkv", "heads", "head_size")).array.reshape(-1)
    made = layer.ln_1, flat.reshape(joined.In.size, -1), bias, None, _laid(layer.attn.c_proj), layer.ln_2
    return Layer(*made, _laid(layer.mlp))


def _laid(module: Any) -> Any:
    """With the summed axes of its matrices first."""

    def laid(one: Any) -> Any:
        if not isinstance(one, hnn.Linear):
            return one
        summed = (one.In,) if isinstance(one.In, Axis) else one.In
        return replace(one, weight=one.weight.rearrange((*summed, ...)))

    return jax.tree.map(laid, module, is_leaf=lambda one: isinstance(one, hnn.Linear))


def greatest_logit(model: Any) -> float:
    """What no logit of attention exceeds in magnitude, from the norms of what makes queries and keys; infinity where something
    else makes them. Levanter has -1e9 for a position that is not to be seen: where all others are less, what comes later has the
    weight, and a model could be made to read there what it is claimed to say. (The first axis is that of layers.)"""
    lengths = partial(jnp.linalg.norm, axis=-1)
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(model, eqx.is_inexact_array))
    named = {jax.tree_util.keystr(path): leaf for path, leaf in leaves}

    def most(names: str, measure: Any = lengths) -> float:
        found = [leaf for name, leaf in named.items() if re.search(names, name)]
        return math.hypot(*(float(jnp.max(measure(one.reshape(one.shape[0], -1)))) for one in found))

    size = heads_of(model.config)[2]
    read = most(r"(ln_1|input_layernorm)\.", jnp.abs) * math.sqrt(2 * model.config.hidden_dim)
    normed = most(r"[qk]_norm\.", jnp.abs) * math.sqrt(2 * size)
    made = {found[1] for name in named if (found := re.search(r"([qk]_proj|c_attn)\.weight", name))}
    if made not in ({"q_proj", "k_proj"}, {"c_attn"}) or not (read or normed):
        return math.inf
    longest = normed or read * most(r"([qk]_proj|c_attn)\.weight") + most(r"([qk]_proj|c_attn)\.bias")
    return longest**2 / math.sqrt(size)


def no_keys(config: Any, count: int, places: int) -> tuple[LayerCache, ...]:
    """Of ``count`` sequences of a model with this configuration, with nothing in it."""
    heads, size = heads_of(config)[1:]
    keys, values = (count, heads, size, places), (count, heads, places, size)
    return tuple(LayerCache(jnp.zeros(keys), jnp.zeros(values)) for _ in range(config.num_layers))


def heads_of(config: Any) -> tuple[int, int, int]:
    """Heads of queries, heads of keys, and the size of each."""
    size = getattr(config, "head_dim", None) or config.hidden_dim // config.num_heads
    return config.num_heads, getattr(config, "num_kv_heads", config.num_heads), size


def logits_of(model: Parts, states: jax.Array) -> jax.Array:
    """float32[sequence, vocabulary] of hidden states at one position, float32[sequence, 1, embed]."""
    return states[:, 0] @ model.head


def states_of(
    model: Parts,
    heads: tuple[int, int, int],
    tokens: jax.Array,
    positions: jax.Array,
    cache: tuple[LayerCache, ...],
    at: int | jax.Array,
    seen: jax.Array,
) -> tuple[jax.Array, tuple[LayerCache, ...]]:
    """float32[sequence, count, embed] of ``tokens`` at ``positions``, int32[sequence, count]; and the cache, in which they are
    at the places from ``at`` on. ``seen``: which places they see, bool[sequence, count, place]."""
    Batch, Pos = Axis("batch", tokens.shape[0]), Axis("position", tokens.shape[1])
    Embed = Axis("embed", model.tokens.shape[1])
    inside = jnp.take(model.tokens, tokens, axis=0)
    if model.positions is not None:
        inside = inside + jnp.take(model.positions, positions, axis=0)
    x, named, kept = hax.named(inside, (Batch, Pos, Embed)), hax.named(positions, (Batch, Pos)), []
    for layer, old in zip(model.layers, cache, strict=True):
        states = layer.before(x).rearrange((Batch, Pos, Embed)).array
        joined = states @ layer.joined
        found, after = _attended(layer, heads, joined, named, old, at, seen)
        kept.append(after)
        x = x + layer.out(found)
        told = layer.inner(layer.between(x))
        x = x + (told[0] if isinstance(told, tuple) else told)  # a mixture tells its losses beside it
    return model.norm(x).rearrange((Batch, Pos, Embed)).array, tuple(kept)


def _attended(
    layer: Layer,
    heads: tuple[int, int, int],
    joined: jax.Array,
    positions: NamedArray,
    old: LayerCache,
    at: int | jax.Array,
    seen: jax.Array,
) -> tuple[NamedArray, LayerCache]:
    (many, few, size), (batch, count, _) = heads, joined.shape
    joined = joined if layer.bias is None else joined + layer.bias
    split = joined.reshape(batch, count, -1, size)
    turned, values = split[:, :, : many + few], split[:, :, many + few :]
    if layer.turned is not None:
        turned = _turned(layer.turned, turned, many, positions)
    queries = turned[:, :, :many].reshape(batch, count, few, many // few, size).transpose(0, 2, 3, 1, 4)
    kept = LayerCache(
        jax.lax.dynamic_update_slice(old.keys, turned[:, :, many:].transpose(0, 2, 3, 1), (0, 0, 0, at)),
        jax.lax.dynamic_update_slice(old.values, values.transpose(0, 2, 1, 3), (0, 0, at, 0)),
    )
    kept = jax.lax.optimization_barrier(kept)  # else what reads it writes it once more, and all of it is copied
    flat = queries.reshape(batch, few, -1, size) * np.float32(1 / math.sqrt(size))
    visible = jnp.tile(seen, (1, many // few, 1))[:, None]
    weights = jax.nn.softmax(jnp.where(visible, flat @ kept.keys, HIDDEN), axis=-1)
    found = (weights @ kept.values).reshape(batch, many, count, size)
    axes = positions.axes[0], Axis("heads", many), positions.axes[1], Axis("head_size", size)
    return hax.named(found, axes), kept


def _turned(attention: Any, joined: jax.Array, many: int, positions: NamedArray) -> jax.Array:
    """Queries and keys with their norms and rotary embeddings: [sequence, count, head, size]."""
    axes = (*positions.axes, Axis("heads", joined.shape[2]), Axis("head_size", joined.shape[3]))
    if attention.q_norm is not None:
        halves = joined[:, :, :many], joined[:, :, many:]
        normed = (
            norm(hax.named(half, (*axes[:2], axes[2].resize(half.shape[2]), axes[3]))).array
            for norm, half in zip((attention.q_norm, attention.k_norm), halves, strict=True)
        )
        joined = jnp.concatenate(list(normed), axis=2)
    if attention.rot_embs is None:
        return joined
    turned: jax.Array = attention.rot_embs(hax.named(joined, axes), positions).rearrange(axes).array
    return turned


def settle_cache(cache: tuple[LayerCache, ...], places: int, begun: jax.Array) -> tuple[LayerCache, ...]:
    """``cache`` with what is behind its ``places`` at the positions of each sequence from ``begun`` on, int32[sequence]."""

    def put(old: jax.Array, axis: int) -> jax.Array:
        new = jax.lax.slice_in_dim(old, places, old.shape[axis], axis=axis)
        for row in range(old.shape[0]):
            start = [jnp.int32(row), *(jnp.int32(0) for _ in range(3))]
            start[axis] = begun[row]
            old = jax.lax.dynamic_update_slice(old, new[row : row + 1], start)
        return old

    return tuple(LayerCache(put(one.keys, 3), put(one.values, 2)) for one in cache)
