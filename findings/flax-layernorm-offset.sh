#!/usr/bin/env bash
# flax's LayerNorm of float32 rows around 3000 with deviation 1 has values in the thousands instead of deviation 1: it computes the variance
# as the mean of squares less the square of the mean unless use_fast_variance=False is given, and what the subtraction leaves is clipped at 0.
# From an offset of 100 on digits are lost; the same layer of equinox, and of Keras on the same jax, has them all.
#
#   bash findings/flax-layernorm-offset.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.12.12}
folder=$(mktemp -d "${TMPDIR:-/tmp}/flax-layernorm-offset.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "flax==$version" "equinox==0.13.8" "keras==3.15.1" "jax==0.11.2" "jaxlib==0.11.2" "numpy==2.5.5" >&2
cd "$folder"
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import sys
import os
from importlib.metadata import version

os.environ["KERAS_BACKEND"] = "jax"
import equinox
import jax
import jax.numpy as jnp
import keras
import numpy as np
from flax import linen, nnx

print(f"flax {version('flax')}, equinox {version('equinox')}, keras {version('keras')}, jax {version('jax')}, Python {sys.version.split()[0]}")
WIDTH = 512
plain = jax.random.normal(jax.random.key(3), (4, WIDTH))
of_nnx, slow = (nnx.LayerNorm(WIDTH, use_fast_variance=fast, rngs=nnx.Rngs(0)) for fast in (True, False))
assert nnx.LayerNorm(WIDTH, rngs=nnx.Rngs(0)).use_fast_variance, "it is the default"
of_linen, of_keras = linen.LayerNorm(), keras.layers.LayerNormalization()
of_equinox = jax.vmap(equinox.nn.LayerNorm(WIDTH))
scale = of_linen.init(jax.random.key(0), plain)
changed = []
for offset in (0, 100, 1000, 3000):
    rows = plain + offset
    true = np.asarray(rows, np.float64)
    true = (true - true.mean(-1, keepdims=True)) / true.std(-1, keepdims=True)
    found = {
        "nnx": of_nnx(rows),
        "linen": of_linen.apply(scale, rows),
        "nnx, use_fast_variance=False": slow(rows),
        "equinox": of_equinox(rows),
        "keras": of_keras(rows),
    }
    far = {name: float(np.abs(np.asarray(values, np.float64) - true).max()) for name, values in found.items()}
    print(f"  offset {offset}: farthest from the normalized rows: {', '.join(f'{name} {value:.1g}' for name, value in far.items())}")
    if offset == 3000:
        changed += [f"{name}: {far[name]}" for name in ("nnx", "linen") if far[name] < 100]
        changed += [f"{name}: {value}" for name, value in far.items() if name not in ("nnx", "linen") and value > 0.01]
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
