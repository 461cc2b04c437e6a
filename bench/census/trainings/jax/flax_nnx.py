"""A small convolution and dense model of characters by Flax NNX, after its first tutorial: dropout, batch norm, nnx.jit."""

import pickle
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from bench.census.journal import Journal, setting

CONTEXT, BATCH = 32, 16
want = setting()
journal = Journal(want)


class Model(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.embed = nnx.Embed(128, 32, rngs=rngs)
        self.conv = nnx.Conv(32, 64, kernel_size=(5,), rngs=rngs)
        self.norm = nnx.BatchNorm(64, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.dense, self.head = nnx.Linear(CONTEXT * 64, 128, rngs=rngs), nnx.Linear(128, 128, rngs=rngs)

    def __call__(self, ids: Any) -> Any:
        x = nnx.relu(self.norm(self.conv(self.embed(ids))))
        x = self.dropout(x).reshape(len(ids), -1)
        return self.head(nnx.relu(self.dense(x)))


def losses_of(model: Any, rows: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(model(rows[:, :-1]), rows[:, -1])


@nnx.jit
def train(model: Any, optimizer: Any, rows: Any) -> Any:
    loss, gradient = nnx.value_and_grad(lambda m: losses_of(m, rows).mean())(model)
    optimizer.update(model, gradient)
    return loss


@nnx.jit
def evaluate(model: Any, rows: Any) -> Any:
    return losses_of(model, rows)


model = Model(nnx.Rngs(0))
adam = optax.adam(1e-3)
optimizer = nnx.Optimizer(model, optax.MultiSteps(adam, want.cut) if want.cut > 1 else adam, wrt=nnx.Param)
first = 0
if want.resume:
    saved = pickle.loads(Path(want.checkpoint).read_bytes())  # noqa: S301
    nnx.update(model, saved[0])
    nnx.update(optimizer, saved[1])
    first = 4
text = np.frombuffer(want.text().encode("ascii"), dtype=np.uint8).astype(np.int32)
rows = text[: len(text) // (CONTEXT + 1) * (CONTEXT + 1)].reshape(-1, CONTEXT + 1)
model.train()
for step in range(first, want.steps):
    batch = rows[BATCH * step : BATCH * step + BATCH]
    loss = sum(float(train(model, optimizer, jnp.asarray(cut))) for cut in np.split(batch, want.cut)) / want.cut
    journal.step(step, loss, nnx.to_pure_dict(nnx.state(model, nnx.Param)), batch)

if want.steps < 8:
    Path(want.checkpoint).write_bytes(pickle.dumps([nnx.state(model), nnx.state(optimizer)]))
else:
    model.eval()
    journal.evaluation(
        np.concatenate(
            [evaluate(model, jnp.asarray(rows[s : s + want.evaluation])) for s in range(0, 32, want.evaluation)]
        )
    )
