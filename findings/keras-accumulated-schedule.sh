#!/usr/bin/env bash
# In Keras a learning-rate schedule and the moving average of the weights count microbatches where gradients are accumulated: with
# gradient_accumulation_steps=4 a decay over 8 updates is over after 2, a warm-up takes a quarter of its updates, and ema_momentum works four times
# for each update. The update itself is that of the whole batch, and optimizer.iterations, Adam's bias correction, clipping and weight decay count
# updates; so nothing is seen with a constant rate, and what optimizer.iterations says is not what the schedule is asked. optax.MultiSteps and
# transformers' Trainer ask the schedule once an update. To do: multiply the schedule's steps by gradient_accumulation_steps, and take its root of
# ema_momentum.
#
#   bash findings/keras-accumulated-schedule.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, two minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-3.15.1}
folder=$(mktemp -d "${TMPDIR:-/tmp}/keras-accumulated-schedule.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "keras==$version" "jax==0.11.2" "jaxlib==0.11.2" "optax==0.2.8" "numpy==2.5.5" >&2
cd "$folder"
KERAS_BACKEND=jax JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

import jax.numpy as jnp
import keras
import numpy as np
import optax

print(f"keras {keras.__version__}, optax {version('optax')}, jax {version('jax')}, Python {sys.version.split()[0]}")
CUT, UPDATES = 4, 8


def by_keras(cut):
    """The rate of each update, seen by a weight whose gradient is always 1; and what the optimizer counts at the end."""
    rate = keras.optimizers.schedules.PolynomialDecay(1.0, UPDATES, end_learning_rate=0.0)
    optimizer = keras.optimizers.SGD(rate, gradient_accumulation_steps=cut if cut > 1 else None)
    weight = keras.Variable(np.zeros(1, np.float32))
    optimizer.build([weight])
    seen = [0.0]
    for _ in range(UPDATES):
        for _ in range(cut):
            optimizer.apply([jnp.ones(1)], [weight])
        seen.append(float(weight.value[0]))
    return [round(before - after, 3) for before, after in zip(seen, seen[1:])], int(optimizer.iterations)


def by_optax(cut):
    rate = optax.linear_schedule(1.0, 0.0, UPDATES)
    optimizer = optax.MultiSteps(optax.sgd(rate), every_k_schedule=cut)
    weight = jnp.zeros(1)
    state = optimizer.init(weight)
    seen = [0.0]
    for _ in range(UPDATES):
        for _ in range(cut):
            updates, state = optimizer.update(jnp.ones(1), state, weight)
            weight = optax.apply_updates(weight, updates)
        seen.append(float(weight[0]))
    return [round(before - after, 3) for before, after in zip(seen, seen[1:])], int(state.gradient_step)


def average_by_keras(cut):
    """The moving average of a weight that goes from 0 to 1 in the second update and stays there for three more."""
    optimizer = keras.optimizers.SGD(1.0, gradient_accumulation_steps=cut if cut > 1 else None, use_ema=True, ema_momentum=0.5)
    weight = keras.Variable(np.zeros(1, np.float32))
    optimizer.build([weight])
    for update in range(5):
        for _ in range(cut):
            optimizer.apply([jnp.full(1, -1.0 if update == 1 else 0.0)], [weight])
    optimizer.finalize_variable_values([weight])
    return float(weight.value[0])


changed = []
for name, rates in (("Keras", by_keras), ("optax", by_optax)):
    (whole, counted), (cut, counted_of_cut) = rates(1), rates(CUT)
    print(f"  {name}, a decay over {UPDATES} updates: {whole}")
    print(f"  {name}, each in {CUT} microbatches:  {cut}; it counts {counted_of_cut} updates")
    if counted != UPDATES or counted_of_cut != UPDATES or (whole == cut) is not (name == "optax") or whole[0] != 1.0:
        changed.append(f"{name}: {whole} {cut} {counted} {counted_of_cut}")
    if name == "Keras" and sum(rate > 0 for rate in cut) != UPDATES // CUT:
        changed.append(f"{name}: {cut}")
whole, cut = average_by_keras(1), average_by_keras(CUT)
print(f"  Keras, moving average with momentum 0.5 of a weight that is 1 for four updates: {whole:.4f}, in microbatches {cut:.4f}")
if not (abs(whole - (1 - 0.5**4)) < 1e-3 and abs(cut - (1 - 0.5**13)) < 1e-3 and cut > 0.999):
    changed.append(f"average: {whole} {cut}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
