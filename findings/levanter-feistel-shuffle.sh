#!/usr/bin/env bash
# Levanter's Feistel permutation (levanter.data._prp, the default of `shuffle: true`) is no shuffle: its round function adds and
# multiplies modulo a power of two, so the last bit of a number never depends on a higher one. Whole batches are of one parity.
#
#   bash findings/levanter-feistel-shuffle.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, some minutes), prints the version and what it measures beside
# NumPy's shuffle. Exit status 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.2.227.dev40316220070}
folder=$(mktemp -d "${TMPDIR:-/tmp}/levanter-feistel.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "marin-haliax==$version" "jax==0.11.2" "jaxlib==0.11.2" "numpy==2.5.5" "draccus==0.11.6" >&2
# Without its other dependencies: all that _prp imports is above.
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "marin-levanter==$version" >&2
cd "$folder"
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

import jax
import numpy as np
from levanter.data._prp import Permutation

print(f"marin-levanter {version('marin-levanter')}, jax {version('jax')}, numpy {version('numpy')}, Python {sys.version.split()[0]}")
BATCH = 8


def levanters(length, seed):
    return np.asarray(Permutation.make("feistel", length, jax.random.PRNGKey(seed))(np.arange(length)), dtype=np.int64)


def numpys(length, seed):
    return np.random.default_rng(seed).permutation(length)


def of_one_parity(order):
    batches = order[: len(order) // BATCH * BATCH].reshape(-1, BATCH)
    return int((np.ptp(batches % 2, axis=1) == 0).sum())


def stretch(order):
    """The worst stretch of sqrt(N): how far its count of odd numbers is off, in standard deviations."""
    width, total = int(len(order) ** 0.5), len(order)
    sums = (order[: total // width * width].reshape(-1, width) % 2).sum(axis=1)
    share = (total // 2) / total
    return float(np.abs(sums - width * share).max() / (width * share * (1 - share) * (total - width) / (total - 1)) ** 0.5)


changed = []
for length in (3710, 4096, 100_000):
    count = length // BATCH
    found = [[measure(draw(length, seed)) for seed in range(5)] for measure in (of_one_parity, stretch) for draw in (levanters, numpys)]
    print(f"{length:,} sequences, {count:,} batches of {BATCH}, seeds 0 to 4")
    print(f"  batches of one parity      Levanter {found[0]}, NumPy {found[1]}")
    print(f"  worst stretch of sqrt(N)   Levanter {[round(x, 1) for x in found[2]]}, NumPy {[round(x, 1) for x in found[3]]}  (standard deviations)")
    if np.mean(found[0]) < 3 * np.mean(found[1]):
        changed.append(f"{length}: no more batches of one parity than a shuffle has")
orders = {tuple(levanters(4, seed).tolist()) for seed in range(400)}
print(f"4 sequences, 400 seeds: {len(orders)} of 24 orders occur")
if len(orders) == 24:
    changed.append("every order of four sequences occurs")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
