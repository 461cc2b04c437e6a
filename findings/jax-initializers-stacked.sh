#!/usr/bin/env bash
# jax.nn.initializers take all axes of an array but the last two for a window, as of a convolution: the weights of twelve layers in one array of (12,
# in, out), as lax.scan wants them, come out smaller by the square root of 12 with lecun_normal, glorot and he, so twelve layers carry a signal down
# by 12**6; and orthogonal makes no layer orthogonal, for it lays them below one another. normal(stddev) is as it says. With batch_axis=0
# (variance_scaling's alone), or a key for each layer under vmap, each layer is as if it stood by itself.
#
#   bash findings/jax-initializers-stacked.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.11.2}
folder=$(mktemp -d "${TMPDIR:-/tmp}/jax-initializers-stacked.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "jax==$version" "jaxlib==0.11.2" "numpy==2.5.5" >&2
cd "$folder"
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

import jax
import jax.numpy as jnp
from jax.nn import initializers

print(f"jax {version('jax')}, Python {sys.version.split()[0]}")
LAYERS, WIDTH = 12, 64
key = jax.random.key(0)
changed = []
for name, ratio in (("lecun_normal", 12**0.5), ("glorot_uniform", 12**0.5), ("he_normal", 12**0.5), ("normal", 1.0)):
    initializer = getattr(initializers, name)()
    one = float(initializer(key, (WIDTH, WIDTH)).std())
    stacked = float(initializer(key, (LAYERS, WIDTH, WIDTH)).std())
    each = float(jax.vmap(lambda k, make=initializer: make(k, (WIDTH, WIDTH)))(jax.random.split(key, LAYERS)).std())
    print(f"  {name:15} deviation of one layer {one:.4f}, of twelve in one array {stacked:.4f}, of twelve by vmap {each:.4f}")
    if abs(one / stacked / ratio - 1) > 0.05 or abs(one / each - 1) > 0.05:
        changed.append(f"{name}: {one}, {stacked}, {each}")
weights = initializers.lecun_normal()(key, (LAYERS, WIDTH, WIDTH))
told = initializers.lecun_normal(batch_axis=0)(key, (LAYERS, WIDTH, WIDTH))
signals = []
for layers in (weights, told):
    signal = jax.random.normal(key, (WIDTH,))
    signals.append(float(jnp.linalg.norm(jax.lax.scan(lambda x, w: (x @ w, None), signal, layers)[0]) / jnp.linalg.norm(signal)))
print(f"  a signal after twelve layers: {signals[0]:.1e} of its size; with batch_axis=0 {signals[1]:.2f}")
if not (signals[0] < 1e-5 and 0.1 < signals[1] < 10):
    changed.append(f"signals {signals}")
square = initializers.orthogonal()(key, (LAYERS, WIDTH, WIDTH))[0]
off = float(jnp.abs(square.T @ square - jnp.eye(WIDTH)).max())
print(f"  orthogonal: the first layer is {off:.2f} from orthogonal")
if off < 0.5:
    changed.append(f"orthogonal {off}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
