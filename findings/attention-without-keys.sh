#!/usr/bin/env bash
# A query that may see no key sees all of them: jax.nn.dot_product_attention, flax and Keras on jax give the mean of all values, the masked
# ones, for they put one large negative number in the place of every score. torch's scaled_dot_product_attention gives 0. So a row of padding, or the
# first token of a packed document under a strict mask, has the future in it, and a mean over rows that does not leave it out is no error.
#
#   bash findings/attention-without-keys.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.11.2}
folder=$(mktemp -d "${TMPDIR:-/tmp}/attention-without-keys.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "jax==$version" "jaxlib==$version" "numpy==2.5.5" "flax==0.12.12" "keras==3.15.1" >&2
cd "$folder"
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import sys
import os
from importlib.metadata import version

os.environ["KERAS_BACKEND"] = "jax"
import jax
import jax.numpy as jnp
import keras
from flax import linen, nnx

print(f"jax {version('jax')}, flax {version('flax')}, keras {version('keras')}, Python {sys.version.split()[0]}")
keys = jax.random.split(jax.random.key(0), 3)
query, key, value = (jax.random.normal(each, (1, 5, 1, 4)) for each in keys)
mask = jnp.tril(jnp.ones((1, 1, 5, 5), bool), k=-1)  # strict: the first query may see nothing
mean = value.mean(axis=1)[0, 0]
found = {
    "jax.nn": jax.nn.dot_product_attention(query, key, value, mask=mask)[0, 0, 0],
    "flax.linen": linen.dot_product_attention(query, key, value, mask=mask)[0, 0, 0],
    "flax.nnx": nnx.dot_product_attention(query, key, value, mask=mask)[0, 0, 0],
    "keras": keras.ops.dot_product_attention(query, key, value, mask=mask)[0, 0, 0],
}
changed = []
for name, row in found.items():
    print(f"  {name + ':':12}{[round(float(each), 4) for each in row]}, the mean of all values: {bool(jnp.allclose(row, mean, atol=1e-5))}")
    if not jnp.allclose(row, mean, atol=1e-5):
        changed.append(f"{name}: {row}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
