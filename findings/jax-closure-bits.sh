#!/usr/bin/env bash
# A jitted function has other bits for an array that it closes over than for the same array as its argument: what depends on constants alone
# is computed when the function is compiled, by other routines (for exp, log, tanh) and with true division, than the program has on a CPU.
# Moving a table from a closure into the arguments changes last bits.
#
#   bash findings/jax-closure-bits.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, one or two minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.11.2}
folder=$(mktemp -d "${TMPDIR:-/tmp}/jax-closure-bits.XXXXXX")
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
x = np.random.default_rng(0).normal(size=1000).astype(np.float32)
CASES = {
    "x / 3.7": (lambda x: x / 3.7, True),
    "exp(x)": (jnp.exp, True),
    "log(|x|)": (lambda x: jnp.log(jnp.abs(x)), True),
    "tanh(x)": (jnp.tanh, True),
    "x * x + x": (lambda x: x * x + x, False),
    "sqrt(|x|)": (lambda x: jnp.sqrt(jnp.abs(x)), False),
}
changed = []
for name, (compute, differs) in CASES.items():
    argument = np.asarray(jax.jit(compute)(x))
    closure = np.asarray(jax.jit(lambda compute=compute: compute(jnp.asarray(x)))())
    unlike = int((argument.view(np.uint32) != closure.view(np.uint32)).sum())
    print(f"  {name + ':':12}unlike as argument and in a closure: {unlike:4} of {len(x)}")
    if (unlike > 0) != differs and name != "x * x + x":  # which of the two rounds once depends on the processor
        changed.append(f"{name}: {unlike}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
