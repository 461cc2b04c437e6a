#!/usr/bin/env bash
# In Flax NNX a Dropout layer of rate 0 changes the initial weights of every layer after it: with Rngs(0) layers and dropout take their keys
# from one stream and count it on. So "the same model without dropout, same seed" is another model, and an ablation of dropout one of the initial weights too. With
# a stream for parameters, Rngs(params=0, dropout=1), it does not.
#
#   bash findings/flax-dropout-of-zero.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.12.12}
folder=$(mktemp -d "${TMPDIR:-/tmp}/flax-dropout-of-zero.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "flax==$version" "jax==0.11.2" "jaxlib==0.11.2" "numpy==2.5.5" >&2
cd "$folder"
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

from flax import nnx

print(f"flax {version('flax')}, jax {version('jax')}, Python {sys.version.split()[0]}")


class Model(nnx.Module):
    def __init__(self, rngs, rate):
        self.first = nnx.Linear(3, 3, rngs=rngs)
        if rate is not None:
            self.dropout = nnx.Dropout(rate, rngs=rngs)
        self.second = nnx.Linear(3, 3, rngs=rngs)


def alike(rngs, rate):
    """Whether each layer has the weights that it has without a Dropout layer."""
    one, two = Model(rngs(), None), Model(rngs(), rate)
    return [bool((getattr(one, name).kernel[...] == getattr(two, name).kernel[...]).all()) for name in ("first", "second")]


cases = {
    "Rngs(0), rate 0": (lambda: nnx.Rngs(0), 0.0, [True, False]),
    "Rngs(0), rate 0.1": (lambda: nnx.Rngs(0), 0.1, [True, False]),
    "Rngs(params=0, dropout=1), rate 0.1": (lambda: nnx.Rngs(params=0, dropout=1), 0.1, [True, True]),
}
changed = []
for name, (rngs, rate, expected) in cases.items():
    seen = alike(rngs, rate)
    print(f"  {name}: weights as without dropout, before it {seen[0]}, after it {seen[1]}")
    if seen != expected:
        changed.append(f"{name}: {seen}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
