#!/usr/bin/env bash
# train_test_split(..., stratify=y, random_state=0) makes another split when the classes have other names: labels 0 and 1 exchanged, or
# "neg" and "pos" for "b" and "a", put other rows into the test set, although the groups are the same. StratifiedKFold and
# StratifiedGroupKFold do not look at the names, only at the order in which classes first occur.
#
#   bash findings/sklearn-stratify-names.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-1.9.1}
folder=$(mktemp -d "${TMPDIR:-/tmp}/sklearn-stratify-names.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "scikit-learn==$version" "numpy==2.5.5" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

import numpy as np
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, StratifiedShuffleSplit, train_test_split

print(f"scikit-learn {version('scikit-learn')}, numpy {version('numpy')}, Python {sys.version.split()[0]}")
labels = np.random.default_rng(0).permutation([0] * 30 + [1] * 20)
NAMES = {"0, 1": [0, 1], "1, 0": [1, 0], "a, b": ["a", "b"], "b, a": ["b", "a"]}
rows = np.arange(len(labels))
SPLITTERS = {
    "train_test_split": (lambda y: train_test_split(rows, stratify=y, random_state=0)[1], True),
    "StratifiedShuffleSplit": (lambda y: next(StratifiedShuffleSplit(random_state=0).split(rows, y))[1], True),
    "StratifiedKFold": (lambda y: next(StratifiedKFold(shuffle=True, random_state=0).split(rows, y))[1], False),
    "StratifiedGroupKFold": (lambda y: next(StratifiedGroupKFold(shuffle=True, random_state=0).split(rows, y, rows))[1], False),
}
changed = []
for name, (split, by_name) in SPLITTERS.items():
    tests = {names: tuple(sorted(map(int, split(np.array(values)[labels])))) for names, values in NAMES.items()}
    print(f"  {name + ':':24}{', '.join(f'{names}: rows {test[:4]}...' for names, test in tests.items())}")
    if (tests["0, 1"] != tests["1, 0"], tests["0, 1"] != tests["a, b"]) != (by_name, False):
        changed.append(f"{name}: {tests}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
