"""Data parallel training in plain jax over virtual devices: `jit` with a sharded batch and replicated parameters, SGD by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bench.census.journal import Journal, setting

CONTEXT, WIDTH, BATCH = 16, 128, 16
want = setting()
journal = Journal(want)
mesh = Mesh(np.array(jax.devices()), ("data",))
everywhere, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))


def losses_of(weights: Any, rows: Any) -> Any:
    x = weights["embed"][rows[:, :-1]].reshape(len(rows), -1)
    x = jnp.tanh(x @ weights["in"] + weights["bias"])
    logits = x @ weights["out"]
    return -jax.nn.log_softmax(logits)[jnp.arange(len(rows)), rows[:, -1]]


@jax.jit
def gradient_of(weights: Any, rows: Any) -> Any:
    return jax.value_and_grad(lambda w: losses_of(w, rows).mean())(weights)


@jax.jit
def update(weights: Any, gradient: Any) -> Any:
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradient)


keys = jax.random.split(jax.random.key(0), 3)
weights = {
    "embed": jax.random.normal(keys[0], (128, 32)),
    "in": jax.random.normal(keys[1], (CONTEXT * 32, WIDTH)) / 20,
    "bias": jnp.zeros(WIDTH),
    "out": jax.random.normal(keys[2], (WIDTH, 128)) / 10,
}
first = 0
if want.resume:
    weights, first = dict(np.load(want.checkpoint + ".npz")), 4
weights = jax.device_put(weights, everywhere)
text = np.frombuffer(want.text().encode("ascii"), dtype=np.uint8).astype(np.int32)
rows = text[: len(text) // (CONTEXT + 1) * (CONTEXT + 1)].reshape(-1, CONTEXT + 1)
for step in range(first, want.steps):
    batch = rows[BATCH * step : BATCH * step + BATCH]
    cuts = [gradient_of(weights, jax.device_put(cut, split)) for cut in np.split(batch, want.cut)]
    gradient = jax.tree.map(lambda *parts: sum(parts) / want.cut, *(part for _, part in cuts))
    weights = update(weights, gradient)
    journal.step(step, sum(float(loss) for loss, _ in cuts) / want.cut, weights, batch)

if want.steps < 8:
    np.savez(want.checkpoint + ".npz", **weights)
else:
    evaluate = jax.jit(losses_of)
    parts = [
        evaluate(weights, jax.device_put(rows[s : s + want.evaluation], everywhere))
        for s in range(0, 32, want.evaluation)
    ]
    journal.evaluation(np.concatenate(parts))
