#!/usr/bin/env bash
# optax.inject_hyperparams turns the numbers of an optimizer into the type of the parameters: with parameters in bfloat16 Adam's b2 of 0.999
# becomes 1, its bias correction divides by 0, and the first update is NaN. The same optimizer without inject_hyperparams trains. Upstream:
# google-deepmind/optax#1414 (open, about the type; not about NaN).
#
#   bash findings/optax-inject-bfloat16.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, one or two minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.2.6}
folder=$(mktemp -d "${TMPDIR:-/tmp}/optax-inject-bfloat16.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "optax==$version" "jax==0.11.2" "jaxlib==0.11.2" "numpy==2.5.5" >&2
cd "$folder"
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

import jax.numpy as jnp
import optax

print(f"optax {version('optax')}, jax {version('jax')}, Python {sys.version.split()[0]}")
changed = []
for dtype in (jnp.float32, jnp.bfloat16):
    parameters, gradients = jnp.ones(3, dtype), jnp.ones(3, dtype)
    for name, optimizer in (
        ("adam", optax.adam(0.1)),
        ("inject_hyperparams(adam)", optax.inject_hyperparams(optax.adam)(learning_rate=0.1)),
    ):
        state = optimizer.init(parameters)
        updates, state = optimizer.update(gradients, state, parameters)
        b2 = f", b2 = {float(state.hyperparams['b2']):.6g}" if hasattr(state, "hyperparams") else ""
        print(f"  {jnp.dtype(dtype).name:9}{name + ':':26}first update {[float(u) for u in updates]}{b2}")
        nan = bool(jnp.isnan(updates).any())
        if nan != (dtype == jnp.bfloat16 and name.startswith("inject")):
            changed.append(f"{name} in {jnp.dtype(dtype).name}: {updates}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
