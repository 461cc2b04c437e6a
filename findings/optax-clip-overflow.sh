#!/usr/bin/env bash
# One gradient of 1e20, finite in float32, makes optax.clip_by_global_norm send zeros for every parameter: its square overflows, the norm is
# infinite, and all is divided by it. One infinite gradient gives NaN for itself and zeros for the rest, so only a part of the model shows
# that something was wrong. A NaN makes all NaN.
#
#   bash findings/optax-clip-overflow.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, one or two minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.2.6}
folder=$(mktemp -d "${TMPDIR:-/tmp}/optax-clip-overflow.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "optax==$version" "jax==0.11.2" "jaxlib==0.11.2" "numpy==2.5.5" >&2
cd "$folder"
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import math
import sys
from importlib.metadata import version

import jax.numpy as jnp
import optax

print(f"optax {version('optax')}, jax {version('jax')}, Python {sys.version.split()[0]}")
EXPECTED = {1e18: "clipped", 1e20: "zeros", math.inf: "NaN for itself, zeros for the rest", math.nan: "NaN"}
changed = []
for value, expected in EXPECTED.items():
    gradients = {"a": jnp.array([value, 1.0]), "b": jnp.array([1e18, -2.0])}
    updates, _ = optax.clip_by_global_norm(1.0).update(gradients, optax.EmptyState())
    first, rest = float(updates["a"][0]), [float(updates["a"][1]), *map(float, updates["b"])]
    if all(map(math.isnan, [first, *rest])):
        seen = "NaN"
    elif math.isnan(first) and not any(rest):
        seen = "NaN for itself, zeros for the rest"
    else:
        seen = "clipped" if any([first, *rest]) else "zeros"
    print(f"  gradients {value:g}, 1, 1e18, -2: {seen}: {[first, *rest]}")
    if seen != expected:
        changed.append(f"{value}: {seen}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
