#!/usr/bin/env bash
# XLA's count of floating-point operations has the body of a loop once: cost_analysis()["flops"] of twelve layers under jax.lax.scan is a twelfth of
# that of the same layers written out, before and after compilation, though the number of turns stands in the program. What divides it by time
# (utilization, in reports of models that stack their layers) is too small by the number of layers, and microbatches count once as well.
# jax-ml/jax#18672 met it by way of Flax's remat_scan.
#
#   bash findings/xla-flops-of-a-scan.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.11.2}
folder=$(mktemp -d "${TMPDIR:-/tmp}/xla-flops-of-a-scan.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "jax==$version" "jaxlib==$version" "numpy==2.5.5" >&2
cd "$folder"
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

import jax
import jax.numpy as jnp

print(f"jax {version('jax')}, Python {sys.version.split()[0]}")
LAYERS, WIDTH, ROWS = 12, 64, 8
weights = jnp.ones((LAYERS, WIDTH, WIDTH))
rows = jnp.ones((ROWS, WIDTH))


def scanned(weights, rows):
    return jax.lax.scan(lambda x, layer: (jnp.tanh(x @ layer), None), rows, weights)[0]


def written_out(weights, rows):
    for layer in range(LAYERS):
        rows = jnp.tanh(rows @ weights[layer])
    return rows


product = 2 * ROWS * WIDTH * WIDTH
changed = []
for name, function in (("scan", scanned), ("written out", written_out)):
    lowered = jax.jit(function).lower(weights, rows)
    counts = [each.cost_analysis()["flops"] / product for each in (lowered, lowered.compile())]
    print(f"  {name + ':':13}{counts[0]:.2f} products of one layer before compilation, {counts[1]:.2f} after it")
    expected = 1 if name == "scan" else LAYERS
    if any(round(count) != expected for count in counts):
        changed.append(f"{name}: {counts}")
assert bool(jnp.allclose(scanned(weights, rows), written_out(weights, rows))), "one function"
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
