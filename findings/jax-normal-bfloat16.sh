#!/usr/bin/env bash
# jax.random.normal in bfloat16 has 128 values, none of them zero, none beyond 2.9 standard deviations, and a mean of -0.012; in float16 it
# has 1,024 and ends at 3.5. uniform draws as many bits as the type has fraction. A model that is initialised in bfloat16 has other weights
# than one that is initialised in float32 and rounded, and no seed gives the same start for both.
#
#   bash findings/jax-normal-bfloat16.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, one or two minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.11.2}
folder=$(mktemp -d "${TMPDIR:-/tmp}/jax-normal-bfloat16.XXXXXX")
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
COUNT = 1_000_000
changed = []
for dtype, values, largest in ((jnp.bfloat16, 128, 3.0), (jnp.float16, 1024, 3.6)):
    draws = np.asarray(jax.random.normal(jax.random.key(0), (COUNT,), dtype)).astype(np.float64)
    rounded = np.asarray(jax.random.normal(jax.random.key(0), (COUNT,)).astype(dtype)).astype(np.float64)
    for label, numbers in (("drawn in it", draws), ("drawn in float32, rounded", rounded)):
        print(
            f"  {jnp.dtype(dtype).name:9}{label + ':':27}{len(np.unique(numbers)):6} values, largest {np.abs(numbers).max():.3f}, "
            f"mean {numbers.mean():+.4f} (error {1 / COUNT**0.5:.4f}), zeros {(numbers == 0).sum()}"
        )
    if len(np.unique(draws)) != values or np.abs(draws).max() > largest or np.abs(rounded).max() < 4:
        changed.append(f"{jnp.dtype(dtype).name}: {len(np.unique(draws))} values, largest {np.abs(draws).max()}")
biased = np.asarray(jax.random.normal(jax.random.key(1), (COUNT,), jnp.bfloat16)).astype(np.float64).mean()
if not -0.02 < biased < -0.008:
    changed.append(f"the mean in bfloat16 is {biased}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
