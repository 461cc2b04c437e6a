#!/usr/bin/env bash
# Counts stand still in torchmetrics: SumMetric adds in float32 whatever it is given, so a counter of tokens that has 16,777,216 stays there
# when 1 is added for ever, and MeanMetric is wrong by its weights likewise. Integers are taken without a word, and int tensors too;
# metric.set_dtype(torch.float64) helps.
#
#   bash findings/torchmetrics-counts.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, minutes, and some GB where torch brings CUDA), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-1.9.0}
folder=$(mktemp -d "${TMPDIR:-/tmp}/torchmetrics-counts.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "torchmetrics==$version" "torch==2.13.0" "numpy==2.4.6" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

import torch
from torchmetrics import MeanMetric, SumMetric

print(f"torchmetrics {version('torchmetrics')}, torch {version('torch')}, Python {sys.version.split()[0]}")
changed = []
for name, one in (("1", 1), ("torch.tensor(1)", torch.tensor(1))):
    tokens = SumMetric()
    tokens.update(torch.tensor(2**24))
    for _ in range(1000):
        tokens.update(one)
    wide = SumMetric().set_dtype(torch.float64)
    wide.update(torch.tensor(2**24))
    wide.update(one)
    print(f"  SumMetric, 2**24 and a thousand times {name}: 2**24 + {int(tokens.compute()) - 2**24}; in float64 and once: 2**24 + {int(wide.compute()) - 2**24}")
    if int(tokens.compute()) != 2**24:
        changed.append(f"{name}: {int(tokens.compute())}")
loss = MeanMetric()
loss.update(1.0, weight=2**24)
for _ in range(1000):
    loss.update(2001.0, weight=1)
print(f"  MeanMetric of 1 by weight 2**24 and of 2001 a thousand times: {float(loss.compute()):.6f}, and not {(2**24 + 2001e3) / (2**24 + 1000):.6f}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
