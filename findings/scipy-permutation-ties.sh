#!/usr/bin/env bash
# scipy.stats.permutation_test over all permutations misses ties: its tolerance is relative to the observed statistic, while the rounding
# error grows with the values. For paired scores in percent the difference of means is small beside the means, equal differences count
# as smaller ones, and p comes out too small, at times by half or more: a model is "significantly better" by rounding.
#
#   bash findings/scipy-permutation-ties.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-1.18.1}
folder=$(mktemp -d "${TMPDIR:-/tmp}/scipy-permutation-ties.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "scipy==$version" "numpy==2.5.5" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import itertools
import random
import sys
from fractions import Fraction
from importlib.metadata import version

import numpy as np
from scipy.stats import permutation_test

print(f"scipy {version('scipy')}, numpy {version('numpy')}, Python {sys.version.split()[0]}")


def difference_of_means(x, y, axis):
    return np.mean(x, axis=axis) - np.mean(y, axis=axis)


def by_scipy(a, b):
    return permutation_test(
        (np.array(a, float), np.array(b, float)), difference_of_means,
        permutation_type="samples", n_resamples=np.inf, alternative="greater", vectorized=True,
    ).pvalue  # fmt: skip


def by_counting(a, b):
    differences = [Fraction(x) - Fraction(y) for x, y in zip(a, b, strict=True)]
    sums = [sum(s * d for s, d in zip(signs, differences, strict=True)) for signs in itertools.product((1, -1), repeat=len(a))]
    return sum(value >= sum(differences) for value in sums) / len(sums)


changed = []
a, b = ["39.0", "53.4", "70.2", "39.4", "59.4", "62.8"], ["38.8", "53.2", "70.1", "39.5", "59.0", "62.7"]
print(f"model A {' '.join(a)}\nmodel B {' '.join(b)}")
print(f"  p by scipy {by_scipy(a, b)}, by counting with fractions {by_counting(a, b)}")
tenths = [[round(float(x) * 10) for x in scores] for scores in (a, b)]
print(f"  p by scipy of the same scores in tenths, without rounding until the mean: {by_scipy(*tenths)}")
if (by_scipy(a, b), by_counting(a, b)) != (0.03125, 0.0625):
    changed.append("the example gives another p")

draw = random.Random(3)
below = above = crossed = 0
TRIALS = 500
for _ in range(TRIALS):
    b = [draw.randint(200, 900) for _ in range(6)]
    a = [score + draw.randint(-2, 6) for score in b]
    a, b = ([f"{score // 10}.{score % 10}" for score in scores] for scores in (a, b))
    scipys, counted = by_scipy(a, b), by_counting(a, b)
    below += scipys < counted - 1e-9
    above += scipys > counted + 1e-9
    crossed += scipys < 0.05 < counted
print(f"{TRIALS} draws of six pairs of percents with one decimal: p too small {below}, too large {above}, below 0.05 by rounding alone {crossed}")
if not below or not crossed:
    changed.append("ties are counted")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
