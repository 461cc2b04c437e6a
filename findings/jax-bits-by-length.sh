#!/usr/bin/env bash
# On a CPU, jnp.exp and jnp.log of one float32 value have other last bits by the length of the array and the place in it: the rest that
# fills no vector is computed by another routine. Fifteen equal numbers have two exponentials, and a batch of 3 or 7 other values than one of
# 4 or 8. Adding or leaving out rows (padding, the last batch) so changes the rows that stay. Seen with SSE4.2, AVX, AVX2 and AVX-512 alike.
#
#   bash findings/jax-bits-by-length.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, one or two minutes, x86-64), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.11.2}
folder=$(mktemp -d "${TMPDIR:-/tmp}/jax-bits-by-length.XXXXXX")
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
LENGTHS = (1, 2, 3, 4, 7, 8, 15, 16, 32)
values = np.random.default_rng(0).uniform(0.1, 3, 300).astype(np.float32)
changed = []
for function in (jnp.exp, jnp.log):
    name, compiled = function.__name__, jax.jit(function)
    outputs = {n: np.stack([np.asarray(compiled(jnp.full((n,), value))) for value in values]) for n in LENGTHS}
    assert all(np.array_equal(outputs[n], np.stack([np.asarray(compiled(jnp.full((n,), v))) for v in values])) for n in (3, 15))
    first = {n: int((outputs[n][:, 0] != outputs[4][:, 0]).sum()) for n in LENGTHS}
    within = {n: int((outputs[n] != outputs[n][:, :1]).any(axis=1).sum()) for n in LENGTHS}
    print(f"{name}, {len(values)} values, arrays of n times one value; every call repeated gives the same bits")
    print(f"  first place unlike that of n = 4:  {', '.join(f'n={n}: {count}' for n, count in first.items())}")
    print(f"  places of one array unlike:        {', '.join(f'n={n}: {count}' for n, count in within.items())}")
    example = int(np.flatnonzero((outputs[15] != outputs[15][:, :1]).any(axis=1))[0]) if within[15] else None
    if example is not None:
        results = [float(x) for x in outputs[15][example]]
        print(f"  {name}({values[example]!s}) in an array of 15: {results[0]!r} at place 0, {results[14]!r} at place 14")
    if not (first[3] and first[7] and within[15]):
        changed.append(f"{name}: the length makes no difference")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
