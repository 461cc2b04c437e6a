#!/usr/bin/env bash
# optax.contrib.muon takes what has two dimensions for a matrix, and all else goes to Adam. So in layers that are stacked for lax.scan the matrices
# (layers, in, out) are trained by Adam, and the biases and scales (layers, width) are orthogonalized across the layers; in Flax's
# MultiHeadDotProductAttention the kernels of queries, keys, values and output go to Adam, and the biases (heads, width) to Muon. Both take the one
# learning_rate, so Adam has Muon's. One may say otherwise by muon_weight_dimension_numbers; without them the size of a step is by Flax's order of
# axes, so a weight of (out, in), as Equinox has it, gets another step than its transpose.
#
#   bash findings/optax-muon-stacked.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.2.8}
folder=$(mktemp -d "${TMPDIR:-/tmp}/optax-muon-stacked.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "optax==$version" "jax==0.11.2" "jaxlib==0.11.2" "numpy==2.5.5" "flax==0.12.12" >&2
cd "$folder"
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

import flax.linen as nn
import jax
import numpy as np
from optax.contrib import muon

print(f"optax {version('optax')}, flax {version('flax')}, jax {version('jax')}, Python {sys.version.split()[0]}")


def first_step(parameters):
    """What Muon of rate 1 makes of one random gradient."""
    draws, rule = np.random.default_rng(0), muon(1.0)
    gradients = jax.tree.map(lambda leaf: draws.standard_normal(leaf.shape, np.float32), parameters)
    return jax.jit(lambda tree: rule.update(tree, rule.init(tree), tree)[0])(gradients)


def taken_by(update):
    """Adam's first step has one size everywhere; Muon's has singular values near 1."""
    sizes = np.abs(update)
    return "Adam" if sizes.max() - sizes.min() < 1e-3 else "Muon"


def named(tree):
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


stacked = {"matrices": np.zeros((4, 16, 16)), "biases": np.zeros((4, 16)), "scales": np.zeros((4, 16))}
module = nn.MultiHeadDotProductAttention(num_heads=2, qkv_features=16)
attention = jax.eval_shape(module.init, jax.random.key(0), np.zeros((1, 3, 16), np.float32))["params"]
changed = []
for title, parameters, expected in (
    ("four layers, stacked", stacked, {"matrices": "Adam", "biases": "Muon", "scales": "Muon"}),
    ("Flax's attention", attention, {"query.kernel": "Adam", "query.bias": "Muon", "out.kernel": "Adam"}),
):
    seen = {name: (taken_by(update), update.shape) for name, update in named(first_step(parameters)).items()}
    print(f"  {title}: " + ", ".join(f"{name} {shape} by {which}" for name, (which, shape) in seen.items()))
    changed += [f"{name}: {seen[name]}" for name, which in expected.items() if seen[name][0] != which]
sizes = [float(np.linalg.norm(first_step({"weight": np.zeros(shape)})["weight"])) for shape in ((64, 256), (256, 64))]
print(f"  a gradient of shape (64, 256), and of (256, 64): steps of norm {sizes[0]:.2f} and {sizes[1]:.2f}")
if abs(sizes[0] / sizes[1] - 2) > 0.05:
    changed.append(f"norms {sizes}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
