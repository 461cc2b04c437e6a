#!/usr/bin/env bash
# The digest that mlflow.data gives a table leaves out whole columns: booleans, times, dates, bytes and lists. Two tables with other labels
# (True for False) or other days have one digest, and no word is said. Texts and numbers count.
#
#   bash findings/mlflow-digest-columns.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, two minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-3.17.2}
folder=$(mktemp -d "${TMPDIR:-/tmp}/mlflow-digest-columns.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "mlflow-skinny==$version" "pandas==3.1.1" "numpy==2.5.5" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import datetime
import logging
import sys
from importlib.metadata import version

import mlflow.data
import pandas

print(f"mlflow-skinny {version('mlflow-skinny')}, pandas {version('pandas')}, Python {sys.version.split()[0]}")
logging.disable(logging.WARNING)
PAIRS = {  # two columns, and whether their digests differ
    "texts": (["a", "b"], ["c", "d"], True),
    "floats": ([1.0, 2.0], [3.0, 4.0], True),
    "times": ([pandas.Timestamp("2024")] * 2, [pandas.Timestamp("2025")] * 2, False),
    "booleans": ([True, False], [False, True], False),
    "bytes": ([b"a", b"b"], [b"c", b"d"], False),
    "dates": ([datetime.date(2024, 1, 1)] * 2, [datetime.date(2025, 1, 1)] * 2, False),
    "lists": ([[1], [2]], [[3], [4]], False),
}
changed = []
for name, (first, second, expected) in PAIRS.items():
    digests = [mlflow.data.from_pandas(pandas.DataFrame({"id": [1, 2], "label": column})).digest for column in (first, second)]
    differ = digests[0] != digests[1]
    print(f"  {name + ':':10}{digests}{'' if differ else '  one digest'}")
    if differ != expected:
        changed.append(f"{name}: {digests}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
