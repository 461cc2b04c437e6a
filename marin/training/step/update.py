"""One slice of the state after a train step: clipping, optimizer, fingerprint. Traced into programs of one slice's shapes."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from marin.recipe.schema import Recipe
from marin.training.optimizers.rule import optimizer
from marin.training.step import fingerprint
from marin.training.step.slices import Layout, Leaves


def slice_square(grads: Leaves) -> jax.Array:
    """Sum of squares of one slice of the gradient sum, tensor after tensor."""
    return sum((jnp.sum(jnp.square(g)) for g in grads), jnp.zeros((), jnp.float32))


def slice_update(
    recipe: Recipe,
    layout: Layout,
    params: Leaves,
    moments: Leaves,
    grads: Leaves,
    square: jax.Array,
    loss: jax.Array,
    weight: jax.Array,
    number: jax.Array,
    *,
    apart: bool = False,
) -> tuple[Leaves, Leaves, jax.Array, jax.Array, jax.Array]:
    """One slice after the step: parameters, moments, fingerprint uint32[tensors, 2]; and mean loss and gradient norm.

    ``grads``, ``loss`` and ``weight`` are sums over the batch, ``square`` the whole gradient sum's sum of squares (all
    float32, as are loss and norm), ``number`` the slice's (uint32). Clipping by global norm is the one part of the optimizer
    that looks across tensors, so it is here. If loss or norm is not finite, the slice stays as it is. ``apart``: the
    fingerprints read what the update wrote; a compiler that fuses both (a TPU's) would compute the update again for each.
    """
    kept, mean_loss, norm = slice_after(recipe, layout, params, moments, grads, square, loss, weight)
    kept = jax.lax.optimization_barrier(kept) if apart else kept
    likes = zip(kept, layout.param_names + layout.moment_names, layout.params + layout.moments, strict=True)
    prints = [slice_print(x, like.shape, number, layout.leads.get(name, 1)) for x, name, like in likes]
    return tuple(kept[: len(params)]), tuple(kept[len(params) :]), jnp.stack(prints), mean_loss, norm


def slice_after(
    recipe: Recipe,
    layout: Layout,
    params: Leaves,
    moments: Leaves,
    grads: Leaves,
    square: jax.Array,
    loss: jax.Array,
    weight: jax.Array,
) -> tuple[list[jax.Array], jax.Array, jax.Array]:
    """Parameters and moments of one slice after the step, mean loss and gradient norm: :func:`slice_update` without the
    fingerprints."""
    mean_loss = loss / weight
    norm = jnp.sqrt(square) / weight
    limit = recipe.optimizer.max_grad_norm
    factor = jnp.where(norm < limit, 1.0, limit / norm) / weight
    finite = jnp.isfinite(mean_loss) & jnp.isfinite(norm)
    tree = jax.tree.unflatten(layout.tree, params)
    scaled = jax.tree.unflatten(layout.tree, [g * factor for g in grads])
    updates, after = optimizer(recipe).update(scaled, jax.tree.unflatten(layout.moments_tree, moments), tree)
    changed = [*(p + u for p, u in zip(params, jax.tree.leaves(updates), strict=True)), *jax.tree.leaves(after)]
    kept = [jnp.where(finite, new, old) for new, old in zip(changed, [*params, *moments], strict=True)]
    return kept, mean_loss, norm


def slice_print(x: jax.Array, shape: tuple[int, ...], number: jax.Array, lead: int = 1) -> jax.Array:
    """uint32[2]: what slice ``number`` of a tensor of ``shape`` adds to the tensor's fingerprint. ``lead``: of how many
    layers it has a part."""
    if not shape:
        return jnp.where(number == 0, fingerprint.words_sum(x), 0).astype(jnp.uint32)
    if lead == 1:
        return fingerprint.words_sum(x, number * np.uint32(x.size), math.prod(shape))
    return fingerprint.rows_sum(x.reshape(lead, -1), number, math.prod(shape[1:]))
