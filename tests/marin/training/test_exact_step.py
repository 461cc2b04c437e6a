"""Levanter's Llama in exact arithmetic: its initial state and a whole train step, compiled and by the reference."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
import numpy as np
from levanter.models.lm_model import LmExample

from marin.exact import reference
from marin.exact.compiled import exact
from marin.training.model import attention_mask, optimizer
from marin.training.state import _make, state_like


def test_a_whole_train_step_is_that_of_the_reference(worker: ModuleType) -> None:
    recipe = worker.recipe_of(worker.Case(name="exact", shards=1, batch=4, length=8, steps=6, hidden=16, layers=1))
    tokens, weights = worker.batch_of(worker.Case(name="exact", batch=4, length=8), 0)
    like = state_like(recipe, worker.VOCABULARY)
    static = eqx.partition(like.model, eqx.is_inexact_array)[1]
    axes = (hax.Axis("batch", 4), hax.Axis("position", 8))

    def initial() -> Any:
        state = _make(recipe, worker.VOCABULARY)()
        return eqx.filter(state.model, eqx.is_inexact_array), state.moments

    def step(arrays: Any, moments: Any, tokens: jax.Array, weights: jax.Array) -> Any:
        def loss(arrays: Any) -> jax.Array:
            ids = hax.named(tokens, axes)
            example = LmExample(tokens=ids, loss_weight=hax.named(weights, axes), attn_mask=attention_mask(recipe, ids))
            return hax.sum(eqx.combine(arrays, static).compute_next_token_loss(example, reduction=None)).array

        total, grads = jax.value_and_grad(loss)(arrays)
        count = jnp.sum(weights)
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(grads))) / count
        factor = jnp.where(norm < 1.0, 1.0, 1.0 / norm) / count
        updates, after = optimizer(recipe).update(jax.tree.map(lambda g: g * factor, grads), moments, arrays)
        return jax.tree.map(jnp.add, arrays, updates), after, total / count, norm

    first = exact(initial)
    begun = reference.run(first.program, [])
    plain = jax.tree.leaves(jax.jit(initial)())
    assert all(np.allclose(a, b, atol=1e-5) for a, b in zip(begun, plain, strict=True))
    arrays, moments = jax.tree.unflatten(jax.tree.structure(first.shape), begun)
    made = exact(step, arrays, moments, tokens, weights)
    assert {"dot", "sum", "scatter_add", "gather", "scan", "sin", "exp", "log"} <= made.program.names()
    found = [np.asarray(x) for x in jax.tree.leaves(made.jitted()(arrays, moments, tokens, weights))]
    judged = reference.run(made.program, jax.tree.leaves((arrays, moments, tokens, weights)))
    assert [a.tobytes() for a in found] == [b.tobytes() for b in judged]
    loss, norm = found[-2:]
    *_, plain_loss, plain_norm = jax.tree.leaves(jax.jit(step)(arrays, moments, tokens, weights))
    assert abs(loss - plain_loss) < 1e-3 * plain_loss and abs(norm - plain_norm) < 1e-2 * plain_norm
