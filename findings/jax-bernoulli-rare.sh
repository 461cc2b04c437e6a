#!/usr/bin/env bash
# jax.random.bernoulli(key, 1e-8) is true twelve times too often: it compares a float32 that is a multiple of 2**-23 with p, so each p > 0 below 2**-23
# is 2**-23 = 1.2e-7, and 1e-30 too. (NumPy's random() < p has 2**-53.) Rare events, noise by chance and rejection of unlikely tokens are affected.
# mode="high" is better.
#
#   bash findings/jax-bernoulli-rare.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.11.2}
folder=$(mktemp -d "${TMPDIR:-/tmp}/jax-bernoulli-rare.XXXXXX")
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
import numpy as np

print(f"jax {version('jax')}, Python {sys.version.split()[0]}")
DRAWS = 1 << 27
count = jax.jit(lambda key, p: sum(jax.random.bernoulli(part, p, (DRAWS // 8,)).sum() for part in jax.random.split(key, 8)))
changed = []
for p in (1e-8, 1e-30, 1e-5):
    seen = int(count(jax.random.key(0), p))
    print(f"  p = {p:g}: {seen} of {DRAWS} true, {p * DRAWS:.3g} expected, {DRAWS >> 23} if p were 2**-23")
    if p < 1e-6 and not 4 <= seen <= 40:
        changed.append(f"{p}: {seen}")
    assert p < 1e-6 or abs(seen / (p * DRAWS) - 1) < 0.2, "where p is not small it is as expected"
uniform = np.unique(np.asarray(jax.random.uniform(jax.random.key(0), (1 << 20,))) * 2**23 % 1)
print(f"  uniform has multiples of 2**-23 alone: {uniform.tolist() == [0.0]}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
