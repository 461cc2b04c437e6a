#!/usr/bin/env bash
# -100, which torch, transformers and TRL leave out of the loss, is a class to optax: softmax_cross_entropy_with_integer_labels counts from the end,
# so a padded token trains class 31,900 of 32,000. Where there are fewer than 100 classes the loss is NaN. Keras on jax makes 0 of it, and
# counts the row in the mean. Nothing warns.
#
#   bash findings/labels-minus-100.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.2.8}
folder=$(mktemp -d "${TMPDIR:-/tmp}/labels-minus-100.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "optax==$version" "keras==3.15.1" "jax==0.11.2" "jaxlib==0.11.2" "numpy==2.5.5" >&2
cd "$folder"
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import sys
import os
from importlib.metadata import version

os.environ["KERAS_BACKEND"] = "jax"
import jax
import jax.numpy as jnp
import keras
import numpy as np
import optax

print(f"optax {version('optax')}, keras {version('keras')}, jax {version('jax')}, Python {sys.version.split()[0]}")
CLASSES = 32_000
logits = jax.random.normal(jax.random.key(0), (4, CLASSES))
padded, named = jnp.array([1, 2, 3, -100]), jnp.array([1, 2, 3, CLASSES - 100])
loss = optax.softmax_cross_entropy_with_integer_labels
gradient = jax.grad(lambda values: loss(values, padded).sum())(logits)[3]
pushed = int(jnp.argmin(gradient))
few = float(loss(logits[:, :50], padded)[3])
of_keras = np.asarray(keras.losses.sparse_categorical_crossentropy(padded, logits, from_logits=True))
print(f"  optax, label -100:           loss {float(loss(logits, padded)[3]):.4f}, as of class {CLASSES - 100}: {float(loss(logits, named)[3]):.4f}")
print(f"  its gradient raises class:   {pushed}")
print(f"  optax, -100 of 50 classes:   {few}")
print(f"  keras on jax, label -100:    {abs(of_keras[3])}, and the mean of four is {of_keras.mean():.4f}, of three {of_keras[:3].mean():.4f}")
changed = []
if pushed != CLASSES - 100 or not jnp.array_equal(loss(logits, padded), loss(logits, named)):
    changed.append("optax: -100 is not the hundredth class from the end")
if few == few:
    changed.append(f"optax: {few} for -100 of 50 classes")
if of_keras[3] != 0:
    changed.append(f"keras: {of_keras[3]} for -100")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
