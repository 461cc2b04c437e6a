#!/usr/bin/env bash
# At 0 the gradient of jax.nn.relu is 0, of jnp.maximum(x, 0) and jnp.clip(x, 0) 0.5, and of jnp.where(x > 0, x, 0) 0, though the four are one
# function; of jnp.abs it is 1, though jnp.sign(0) is 0 (jax#37820). Zeros are no rare numbers: weights that begin as zeros, masked places. A layer
# before jnp.maximum that begins with zeros learns, before jax.nn.relu it never does; and a penalty of abs pushes each weight that is 0 away from 0,
# so under L1 with SGD weights never stay at 0, and at equal rates all of them are negative at once.
#
#   bash findings/jax-gradient-at-zero.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.11.2}
folder=$(mktemp -d "${TMPDIR:-/tmp}/jax-gradient-at-zero.XXXXXX")
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

print(f"jax {version('jax')}, Python {sys.version.split()[0]}")
FUNCTIONS = {
    "jax.nn.relu(x)": (jax.nn.relu, 0.0),
    "jnp.where(x > 0, x, 0)": (lambda x: jnp.where(x > 0, x, 0.0), 0.0),
    "jnp.maximum(x, 0)": (lambda x: jnp.maximum(x, 0.0), 0.5),
    "jnp.clip(x, 0)": (lambda x: jnp.clip(x, 0.0), 0.5),
    "jnp.abs(x)": (jnp.abs, 1.0),
}
changed = []
for name, (function, expected) in FUNCTIONS.items():
    seen = float(jax.grad(function)(0.0))
    print(f"  gradient at 0 of {name:23} {seen}")
    if seen != expected:
        changed.append(f"{name}: {seen}")
inputs, targets = jax.random.normal(jax.random.key(0), (64, 4)), jnp.ones(64)
for name, function, learns in (("jax.nn.relu", jax.nn.relu, False), ("jnp.maximum", lambda x: jnp.maximum(x, 0.0), True)):
    weights = jnp.zeros(4), jnp.zeros(())
    loss = lambda w: jnp.mean((function(inputs @ w[0] + w[1]) - targets) ** 2)  # noqa: B023, E731
    before = float(loss(weights))
    for _ in range(100):
        weights = jax.tree.map(lambda w, g: w - 0.1 * g, weights, jax.grad(loss)(weights))
    print(f"  a layer of zeros before {name}: loss {before:.3f}, after 100 steps {float(loss(weights)):.3f}")
    if (float(loss(weights)) < 0.5) is not learns:
        changed.append(f"{name}: {float(loss(weights))}")
sparse = jnp.zeros(5)
path = []
for _ in range(4):
    sparse -= 0.25 * jax.grad(lambda w: jnp.sum(jnp.abs(w)))(sparse)
    path.append(float(sparse[0]))
print(f"  weights that are 0, under four steps of a penalty of abs: {path}")
if path != [-0.25, 0.0, -0.25, 0.0]:
    changed.append(f"{path}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
