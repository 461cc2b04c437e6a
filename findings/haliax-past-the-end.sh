#!/usr/bin/env bash
# Past the end of an axis Haliax has four answers: an index is moved back to the last element, dslice fills with zeros, take gives the
# smallest integer (NaN for floats), and hax.slice alone raises. z["x", -11] of ten elements is element 0.
#
#   bash findings/haliax-past-the-end.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, two minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.2.227.dev40316220070}
folder=$(mktemp -d "${TMPDIR:-/tmp}/haliax-past-the-end.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "marin-haliax==$version" "jax==0.11.2" "jaxlib==0.11.2" "numpy==2.5.5" >&2
cd "$folder"
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

import haliax as hax
import jax.numpy as jnp

print(f"marin-haliax {version('marin-haliax')}, jax {version('jax')}, Python {sys.version.split()[0]}")
X = hax.Axis("x", 10)
z = hax.arange(X) + 10


def sliced():
    try:
        return hax.slice(z, {"x": 8}, length={"x": 4}).array.tolist()
    except ValueError:
        return "ValueError"


seen = {
    'z["x", 99]': int(z["x", 99].array),
    'z["x", -11]': int(z["x", -11].array),
    'z["x", hax.dslice(8, 4)]': z["x", hax.dslice(8, 4)].array.tolist(),
    'hax.slice(z, {"x": 8}, length={"x": 4})': sliced(),
    'hax.take(z, "x", 99)': int(hax.take(z, "x", 99).array),
    'hax.take(z.astype(float32), "x", 99)': str(hax.take(z.astype(jnp.float32), "x", 99).array),
}
EXPECTED = [19, 10, [18, 19, 0, 0], "ValueError", -(2**31), "nan"]
changed = []
print(f"  z is {z.array.tolist()}")
for (name, value), expected in zip(seen.items(), EXPECTED, strict=True):
    print(f"  {name + ':':42}{value}")
    if value != expected:
        changed.append(f"{name}: {value}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
