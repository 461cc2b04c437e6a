#!/usr/bin/env bash
# jax.random.categorical with one NaN among its logits does not give NaN, an error or a warning: it always answers the place of the NaN (of the first, where there
# are several), whatever the key, and random.choice with a NaN among its probabilities the same place too. So a decoder with one logit that is NaN writes one token for ever,
# which reads like a model that repeats itself. torch.multinomial and NumPy's choice raise. jnp.argmax prefers NaN, and a draw is the argmax of logits and noise.
#
#   bash findings/jax-categorical-nan.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.11.2}
folder=$(mktemp -d "${TMPDIR:-/tmp}/jax-categorical-nan.XXXXXX")
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

print(f"jax {version('jax')}, numpy {version('numpy')}, Python {sys.version.split()[0]}")
nan, keys = jnp.nan, [jax.random.key(seed) for seed in range(50)]
logits = {"one NaN": [9.0, 0.0, nan, 0.0], "two": [9.0, nan, 0.0, nan], "none": [0.0, 0.0, 0.0, 0.0]}
drawn = {name: {int(jax.random.categorical(key, jnp.array(row))) for key in keys} for name, row in logits.items()}
drawn["choice, one NaN"] = {int(jax.random.choice(key, 4, p=jnp.array([0.5, 0.2, nan, 0.3]))) for key in keys}
for name, places in drawn.items():
    print(f"  logits or chances with {name}: fifty keys draw the places {sorted(places)}")
try:
    np.random.default_rng(0).choice(4, p=[0.5, 0.2, nan, 0.3])
    refused = False
except ValueError as error:
    refused = True
    print(f"  NumPy's choice: ValueError, {error}")
expected = {"one NaN": {2}, "two": {1}, "none": {0, 1, 2, 3}, "choice, one NaN": {2}}
changed = [f"{name}: {sorted(drawn[name])}" for name in drawn if drawn[name] != expected[name]]
if not refused:
    changed.append("NumPy draws")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
