#!/usr/bin/env bash
# Under jax.jit the compiler for CPUs regroups sums, products and quotients by constants, in float32 and by default: (x + 2**23) - 2**23,
# which rounds to integers, becomes x, (x + 0.1) + 0.2 becomes x + 0.3, and 1 / (1 / x) becomes x. Each operation for itself, without jit,
# has the bits of IEEE 754, but for a quotient by a constant, which is a product with its inverse there too.
#
#   bash findings/jax-jit-reassociates.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, one or two minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.11.2}
folder=$(mktemp -d "${TMPDIR:-/tmp}/jax-jit-reassociates.XXXXXX")
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
f = np.float32
x = np.random.default_rng(0).normal(size=1000).astype(f)
BIG = 2.0**23
CASES = {  # what is computed, the same by NumPy, unlike without jit, unlike under jit
    "(x + 2**23) - 2**23": (lambda x: (x + BIG) - BIG, lambda x: (x + f(BIG)) - f(BIG), False, True),
    "(x + 0.1) + 0.2": (lambda x: (x + 0.1) + 0.2, lambda x: (x + f(0.1)) + f(0.2), False, True),
    "(1 - x) - 1": (lambda x: (1.0 - x) - 1.0, lambda x: (f(1) - x) - f(1), False, True),
    "(x * 0.1) * 10": (lambda x: (x * 0.1) * 10.0, lambda x: (x * f(0.1)) * f(10), False, True),
    "1 / (1 / x)": (lambda x: 1.0 / (1.0 / x), lambda x: f(1) / (f(1) / x), False, True),
    "x / 3": (lambda x: x / 3.0, lambda x: x / f(3), True, True),
}
changed = []
for name, (compute, reference, eager_differs, jit_differs) in CASES.items():
    expected = reference(x)
    eager, jitted = np.asarray(compute(jnp.asarray(x))), np.asarray(jax.jit(compute)(x))
    unlike = [int((output.view(np.uint32) != expected.view(np.uint32)).sum()) for output in (eager, jitted)]
    print(f"  {name + ':':22}unlike NumPy without jit {unlike[0]:4}, under jit {unlike[1]:4} of {len(x)}")
    if (unlike[0] > 0, unlike[1] > 0) != (eager_differs, jit_differs):
        changed.append(f"{name}: {unlike}")
compute = CASES["(x + 2**23) - 2**23"][0]
print(f"  (x + 2**23) - 2**23 of {x[0]!s} is {compute(jnp.asarray(x))[0]!s} without jit, {jax.jit(compute)(x)[0]!s} under jit")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
