#!/usr/bin/env bash
# Two data sets of other rows can have one fingerprint: Dataset.map(batched=True) with another num_proc begins its batches anew in every
# process, so a function that looks at its batch (packing, sorting, drawing) makes other rows, and the fingerprint, which names data sets in
# caches and records, does not know num_proc. batch_size is part of it.
#
#   bash findings/datasets-one-fingerprint.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, two minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-4.8.5}
folder=$(mktemp -d "${TMPDIR:-/tmp}/datasets-one-fingerprint.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "datasets==$version" "pyarrow==25.0.1" "pandas==3.1.1" "numpy==2.5.5" >&2
cd "$folder"
HF_HOME=hub HF_DATASETS_OFFLINE=1 "$folder/venv/bin/python" - <<'PYTHON'
import logging
import sys
from importlib.metadata import version

import datasets

print(f"datasets {version('datasets')}, Python {sys.version.split()[0]}")
datasets.disable_progress_bars()
logging.disable(logging.WARNING)


def size_of_batch(batch):
    return {"size": [len(batch["x"])] * len(batch["x"])}


rows = datasets.Dataset.from_dict({"x": list(range(10))})
CASES = {"num_proc=None, batch_size=4": {}, "num_proc=2, batch_size=4": {"num_proc": 2}, "num_proc=None, batch_size=5": {"batch_size": 5}}
seen = {}
for name, options in CASES.items():
    mapped = rows.map(size_of_batch, batched=True, **{"batch_size": 4, **options})
    seen[name] = mapped._fingerprint, mapped["size"][:]
    print(f"  {name + ':':29}{mapped._fingerprint} {mapped['size'][:]}")
alone, two, five = seen.values()
changed = []
if not (alone[0] == two[0] and alone[1] != two[1]):
    changed.append("another num_proc: another fingerprint, or the same rows")
if alone[0] == five[0]:
    changed.append("another batch_size: the same fingerprint")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
