#!/usr/bin/env bash
# In torch infinity becomes 448 in float8_e4m3fn, the largest finite number: a sum that has overflowed is finite again after the cast, and no check for infinity or NaN finds it. The same infinity
# stays infinity in float8_e5m2 and is NaN in both of torch's "fnuz" types, and ml_dtypes (jax, orbax, TensorStore) makes NaN of it in E4M3. Until torch 2.12 it was NaN there as
# well: pytorch/pytorch#178817 made casts saturate, infinity too; jax-ml/ml_dtypes#400 and #260 have the other side.
#
#   bash findings/torch-float8-infinity.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, minutes, and some GB where torch brings CUDA), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-2.13.0}
folder=$(mktemp -d "${TMPDIR:-/tmp}/torch-float8-infinity.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "torch==$version" "ml_dtypes==0.6.0" "numpy==2.4.6" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
import warnings
from importlib.metadata import version

import ml_dtypes
import numpy as np
import torch

warnings.simplefilter("ignore")  # NumPy's, of casts to NaN
print(f"torch {version('torch')}, ml_dtypes {version('ml_dtypes')}, Python {sys.version.split()[0]}")
values = [448.0, 1e6, np.inf]
expected = {
    "float8_e4m3fn": (["448.0", "448.0", "448.0"], ["448.0", "nan", "nan"]),
    "float8_e5m2": (["448.0", "inf", "inf"], ["448.0", "inf", "inf"]),
    "float8_e4m3fnuz": (["nan", "nan", "nan"], ["nan", "nan", "nan"]),
    "float8_e5m2fnuz": (["448.0", "nan", "nan"], ["448.0", "nan", "nan"]),
}
changed = []
for name, wanted in expected.items():
    ours = [str(x) for x in torch.tensor(values).to(getattr(torch, name)).float().tolist()]
    theirs = [str(float(x)) for x in np.array(values, np.float32).astype(getattr(ml_dtypes, name))]
    print(f"  448, 1e6 and infinity as {name + ':':17} torch {ours}, ml_dtypes {theirs}")
    if (ours, theirs) != wanted:
        changed.append(f"{name}: {ours}, {theirs}")
total = torch.full((100,), 1e37).sum() * 10
print(f"  a sum that overflowed, {total.item()}, passes through float8_e4m3fn as {total.to(torch.float8_e4m3fn).float().item()}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
