#!/usr/bin/env bash
# A warm-up of no steps is a learning rate of nothing for ever: optax.linear_schedule(0, peak, 0), polynomial_schedule and
# warmup_constant_schedule(0, peak, 0) stay at the first value instead of the last, with a line of logging at level INFO only, which nobody
# sees. warmup_cosine_decay_schedule with no warm-up steps begins at the peak.
#
#   bash findings/optax-zero-warmup.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, one or two minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.2.6}
folder=$(mktemp -d "${TMPDIR:-/tmp}/optax-zero-warmup.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "optax==$version" "jax==0.11.2" "jaxlib==0.11.2" "numpy==2.5.5" >&2
cd "$folder"
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

import optax

print(f"optax {version('optax')}, jax {version('jax')}, Python {sys.version.split()[0]}")
PEAK, STEPS = 1e-3, (0, 1, 10, 1000)
CASES = {
    "linear_schedule(0, peak, 0)": (optax.linear_schedule(0.0, PEAK, 0), 0.0),
    "polynomial_schedule(0, peak, 1, 0)": (optax.polynomial_schedule(0.0, PEAK, 1, 0), 0.0),
    "warmup_constant_schedule(0, peak, 0)": (optax.warmup_constant_schedule(0.0, PEAK, 0), 0.0),
    "linear_schedule(0, peak, 1)": (optax.linear_schedule(0.0, PEAK, 1), PEAK),
    "warmup_constant_schedule(0, peak, 1)": (optax.warmup_constant_schedule(0.0, PEAK, 1), PEAK),
    "warmup_cosine_decay_schedule(0, peak, 0, 10**6)": (optax.warmup_cosine_decay_schedule(0.0, PEAK, 0, 10**6), PEAK),
}
changed = []
for name, (schedule, later) in CASES.items():
    rates = [float(schedule(step)) for step in STEPS]
    print(f"  {name + ':':50}{', '.join(f'step {step}: {rate:.3g}' for step, rate in zip(STEPS, rates, strict=True))}")
    if abs(rates[2] - later) > PEAK / 1000:
        changed.append(f"{name}: {rates}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
