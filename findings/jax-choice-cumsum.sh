#!/usr/bin/env bash
# The running sum of numbers that are not negative falls in places: jnp.cumsum adds in a tree on a CPU, so two neighbours are sums of other parts,
# each rounded by itself. jax.random.choice(p=...) looks its draw up in this sum, so of 100,000 choices and more it draws some whose probability is
# exactly 0 (jax#25498, of its float32, is open). It has 2 falls in 1,000 numbers and 4,000 in 1,000,000; NumPy's float32 sum, in order, has none.
# To do: jax.random.categorical(key, jnp.log(p)), or NumPy, for a sampler over documents; and no binary search in such a sum.
#
#   bash findings/jax-choice-cumsum.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.11.2}
folder=$(mktemp -d "${TMPDIR:-/tmp}/jax-choice-cumsum.XXXXXX")
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
import numpy as np

print(f"jax {version('jax')}, numpy {np.__version__}, Python {sys.version.split()[0]}")
changed = []
for size, drawn_at_zero in ((1_000, False), (100_000, True), (1_000_000, True)):
    weights = np.random.default_rng(0).random(size).astype(np.float32)
    weights[np.random.default_rng(1).random(size) < 0.5] = 0
    p = weights / np.float32(weights.sum(dtype=np.float64))
    falls = [int((np.diff(sums) < 0).sum()) for sums in (np.asarray(jnp.cumsum(jnp.asarray(p))), np.cumsum(p))]
    drawn = np.asarray(jax.random.choice(jax.random.key(0), size, (500_000,), p=jnp.asarray(p)))
    zeros = int((p[drawn] == 0).sum())
    by_logits = np.asarray(jax.random.categorical(jax.random.key(0), jnp.log(jnp.asarray(p)), shape=(100,)))
    print(f"  {size:9,} choices, half with p = 0: the running sum falls {falls[0]} times (NumPy's {falls[1]}), of 500,000 draws {zeros} have p = 0")
    if falls[0] == 0 or falls[1] > 0 or (zeros > 0) is not drawn_at_zero or (p[by_logits] == 0).any():
        changed.append(f"{size}: {falls} {zeros}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
