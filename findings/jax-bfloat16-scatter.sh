#!/usr/bin/env bash
# In bfloat16 jax sums within sum() in float32, but the gradient of indexing (an embedding) and segment_sum are added up in bfloat16, one by
# one, on a CPU: at 256 the sum stands still. With float32 weights that are cast to bfloat16 for the computation, as in mixed precision, the
# gradient of a token that occurs 1,000 times in a batch is 256 instead of 1,000; a product with one-hot rows gives 1,000.
#
#   bash findings/jax-bfloat16-scatter.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, one or two minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.11.2}
folder=$(mktemp -d "${TMPDIR:-/tmp}/jax-bfloat16-scatter.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "jax==$version" "jaxlib==$version" "numpy==2.5.5" >&2
cd "$folder"
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

import jax
import jax.numpy as jnp
import numpy as np

print(f"jax {version('jax')}, jaxlib {version('jaxlib')}, numpy {version('numpy')}, Python {sys.version.split()[0]}")
TIMES = 1000
tokens, weights = jnp.zeros(TIMES, jnp.int32), jnp.ones((2, 4), jnp.float32)
ones = jnp.ones(TIMES, jnp.bfloat16)


def indexed(dtype):
    return lambda w: w.astype(dtype)[tokens].astype(jnp.float32).sum()


def one_hot(w):
    return (jax.nn.one_hot(tokens, 2, dtype=jnp.bfloat16) @ w.astype(jnp.bfloat16)).astype(jnp.float32).sum()


seen = {
    "gradient of w.astype(bfloat16)[tokens]": jax.jit(jax.grad(indexed(jnp.bfloat16)))(weights)[0, 0],
    "segment_sum in bfloat16": jax.ops.segment_sum(ones, tokens)[0],
    "gradient of w[tokens] in float32": jax.jit(jax.grad(indexed(jnp.float32)))(weights)[0, 0],
    "gradient of one_hot(tokens) @ w in bfloat16": jax.jit(jax.grad(one_hot))(weights)[0, 0],
    "sum in bfloat16": ones.sum(),
}
changed = []
for k, (name, value) in enumerate(seen.items()):
    print(f"  {name + ':':46}{float(value):g}")
    if float(value) != (256 if k < 2 else TIMES):
        changed.append(f"{name}: {float(value)}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
