#!/usr/bin/env bash
# joblib.hash of equal values differs by whether a part is one object twice or two equal ones, for it is the digest of a pickle, and pickle writes the
# second occurrence of an object as a reference to the first: [row, row] and [row, equal row] of tuples or dictionaries have two hashes. So a
# configuration has another hash after it went through JSON, copy.deepcopy keeps it and a comprehension does not, and joblib.Memory (scikit-learn's
# memory=) computes anew what it has. Numbers and texts are not concerned. dill, by which datasets makes its fingerprints, does the same, with arrays
# too.
#
#   bash findings/joblib-hash-sharing.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-1.6.0}
folder=$(mktemp -d "${TMPDIR:-/tmp}/joblib-hash-sharing.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "joblib==$version" "numpy==2.4.6" "datasets==4.8.5" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import json
import sys
from copy import deepcopy
from importlib.metadata import version

import joblib
import numpy as np
from datasets.fingerprint import Hasher

print(f"joblib {version('joblib')}, datasets {version('datasets')}, Python {sys.version.split()[0]}")
block = {"width": 64, "heads": 4}
pair = (1, 2)
numbers = np.arange(3.0)
CASES = (  # two equal values, whether their hashes are equal by joblib and by datasets
    ("a configuration and what JSON makes of it", [block, block], json.loads(json.dumps([block, block])), (False, False)),
    ("a configuration and a deep copy of it", [block, block], deepcopy([block, block]), (True, True)),
    ("tuples", [pair, pair], [pair, tuple([1, 2])], (False, False)),
    ("arrays", [numbers, numbers], [numbers, numbers.copy()], (True, False)),
    ("texts", ["ab", "ab"], ["ab", "".join(["a", "b"])], (True, True)),
)
changed = []
for name, one, other, expected in CASES:
    seen = joblib.hash(one) == joblib.hash(other), Hasher.hash(one) == Hasher.hash(other)
    print(f"  {name:43} one hash: joblib {seen[0]}, datasets {seen[1]}")
    if seen != expected:
        changed.append(f"{name}: {seen}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
