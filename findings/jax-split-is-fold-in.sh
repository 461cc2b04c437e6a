#!/usr/bin/env bash
# jax.random.split(key, n)[i] is jax.random.fold_in(key, i), and 64 random bits drawn from a key are the key that split makes at that place. So a training that
# splits a root key (for the initial weights) and folds the number of the step into the same root (for dropout) draws at step 0 the very numbers of the first
# weights. It is meant so (jax-ml/jax#13341) and the default since jax 0.5.0; nothing warns, and "unsafe_rbg" does otherwise.
#
#   bash findings/jax-split-is-fold-in.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.11.2}
folder=$(mktemp -d "${TMPDIR:-/tmp}/jax-split-is-fold-in.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "jax==$version" "jaxlib==$version" "numpy==2.5.5" >&2
cd "$folder"
JAX_PLATFORMS=cpu JAX_ENABLE_X64=1 "$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

import jax
import numpy as np

print(f"jax {version('jax')}, Python {sys.version.split()[0]}")
root = jax.random.key(7)


def words(keys):
    return np.asarray(jax.random.key_data(keys)).astype(np.uint64)


apart = words(jax.random.split(root, 5))
folded = np.stack([words(jax.random.fold_in(root, place)) for place in range(5)])
drawn = np.asarray(jax.random.bits(root, (5,), "uint64"))
initial, loop = jax.random.split(root)
weights = jax.random.normal(initial, (1000,), "float32")
noise = jax.random.normal(jax.random.fold_in(root, 0), (1000,), "float32")
other = jax.random.normal(jax.random.fold_in(loop, 0), (1000,), "float32")
rbg = jax.random.key(7, impl="unsafe_rbg")
seen = {
    "split(key, 5)[i] is fold_in(key, i)": bool((apart == folded).all()),
    "64 bits drawn from a key are the keys that split makes of it": bool((drawn == (apart[:, 0] << 32) + apart[:, 1]).all()),
    "weights of split(root)[0] are the noise of fold_in(root, 0)": bool((weights == noise).all()),
    "the same with fold_in of the other half of the split": bool((weights == other).any()),
    'split(key, 5)[1] is fold_in(key, 1) with "unsafe_rbg"': bool((words(jax.random.split(rbg, 5)[1]) == words(jax.random.fold_in(rbg, 1))).all()),
}
for name, value in seen.items():
    print(f"  {name}: {value}")
changed = [name for name, value, expected in zip(seen, seen.values(), (True, True, True, False, False), strict=True) if value != expected]
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
