#!/usr/bin/env bash
# scipy.stats.bootstrap of two samples gives another interval for another batch, which is a setting of memory, under the same seed: each
# batch draws first all of one sample and then all of the other. With one sample batch does not matter. Anyone who sets it because memory is
# short reports other numbers.
#
#   bash findings/scipy-bootstrap-batch.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-1.18.1}
folder=$(mktemp -d "${TMPDIR:-/tmp}/scipy-bootstrap-batch.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "scipy==$version" "numpy==2.5.5" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

import numpy as np
from scipy.stats import bootstrap

print(f"scipy {version('scipy')}, numpy {version('numpy')}, Python {sys.version.split()[0]}")
draw = np.random.default_rng(1)
a, b = draw.normal(size=50), draw.normal(size=40)


def difference(x, y, axis=-1):
    return x.mean(axis) - y.mean(axis)


changed = []
for name, data, statistic, expected in (("one sample", (a,), np.mean, 1), ("two samples", (a, b), difference, 3)):
    intervals = {}
    for batch in (None, 100, 10):
        interval = bootstrap(data, statistic, n_resamples=2000, batch=batch, rng=0).confidence_interval
        intervals[batch] = (round(float(interval.low), 5), round(float(interval.high), 5))
    print(f"  {name + ':':13}{', '.join(f'batch={batch} {interval}' for batch, interval in intervals.items())}")
    if len(set(intervals.values())) != expected:
        changed.append(f"{name}: {intervals}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
