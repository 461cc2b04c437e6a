"""A transformer by Equinox and Optax, after their examples: filter_jit, vmap over rows, AdamW with clipping, MultiSteps."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from bench.census.journal import Journal, setting

CONTEXT, WIDTH, BATCH = 32, 64, 16
want = setting()
journal = Journal(want)


class Block(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    mlp: eqx.nn.MLP
    norm1: eqx.nn.LayerNorm
    norm2: eqx.nn.LayerNorm

    def __init__(self, key: Any) -> None:
        one, two = jax.random.split(key)
        self.attention = eqx.nn.MultiheadAttention(4, WIDTH, key=one)
        self.mlp = eqx.nn.MLP(WIDTH, WIDTH, 4 * WIDTH, 1, jax.nn.gelu, key=two)
        self.norm1, self.norm2 = eqx.nn.LayerNorm(WIDTH), eqx.nn.LayerNorm(WIDTH)

    def __call__(self, x: Any) -> Any:
        y = jax.vmap(self.norm1)(x)
        x = x + self.attention(y, y, y, mask=jnp.tril(jnp.ones((len(x), len(x)), bool)))
        return x + jax.vmap(self.mlp)(jax.vmap(self.norm2)(x))


class Transformer(eqx.Module):
    embed: eqx.nn.Embedding
    places: Any
    blocks: list[Block]
    head: eqx.nn.Linear

    def __init__(self, key: Any) -> None:
        keys = jax.random.split(key, 5)
        self.embed, self.places = (
            eqx.nn.Embedding(128, WIDTH, key=keys[0]),
            0.02 * jax.random.normal(keys[1], (CONTEXT, WIDTH)),
        )
        self.blocks = [Block(keys[2]), Block(keys[3])]
        self.head = eqx.nn.Linear(WIDTH, 128, key=keys[4])

    def __call__(self, ids: Any) -> Any:
        x = jax.vmap(self.embed)(ids) + self.places
        for block in self.blocks:
            x = block(x)
        return jax.vmap(self.head)(x)


def losses_of(model: Any, rows: Any) -> Any:
    logits = jax.vmap(model)(rows[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, rows[:, 1:]).mean(axis=1)


adam = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
optimizer = optax.MultiSteps(adam, want.cut) if want.cut > 1 else adam
model = Transformer(jax.random.PRNGKey(0))
moments = optimizer.init(eqx.filter(model, eqx.is_array))
first = 0
if want.resume:
    model, moments = eqx.tree_deserialise_leaves(want.checkpoint, (model, moments))
    first = 4


@eqx.filter_jit
def train(model: Any, moments: Any, rows: Any) -> Any:
    loss, gradient = eqx.filter_value_and_grad(lambda m: losses_of(m, rows).mean())(model)
    updates, moments = optimizer.update(gradient, moments, eqx.filter(model, eqx.is_array))
    return eqx.apply_updates(model, updates), moments, loss


text = np.frombuffer(want.text().encode("ascii"), dtype=np.uint8).astype(np.int32)
rows = text[: len(text) // (CONTEXT + 1) * (CONTEXT + 1)].reshape(-1, CONTEXT + 1)
for step in range(first, want.steps):
    batch = rows[BATCH * step : BATCH * step + BATCH]
    losses = []
    for cut in np.split(batch, want.cut):
        model, moments, loss = train(model, moments, cut)
        losses.append(float(loss))
    journal.step(step, sum(losses) / want.cut, eqx.filter(model, eqx.is_array), batch)

if want.steps < 8:
    eqx.tree_serialise_leaves(want.checkpoint, (model, moments))
else:
    evaluate = eqx.filter_jit(losses_of)
    journal.evaluation(
        np.concatenate([evaluate(model, rows[s : s + want.evaluation]) for s in range(0, 32, want.evaluation)])
    )
