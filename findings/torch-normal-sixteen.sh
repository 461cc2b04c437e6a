#!/usr/bin/env bash
# On a CPU, under one seed, torch.randn(15) is not the start of randn(16), nor randn(16) of randn(17), while randn(14) is the start of randn(15): from sixteen
# numbers on another algorithm draws, sixteen at a time, and draws the last sixteen again where the length is no multiple. And normal_() into a
# transposed tensor draws other numbers than into one of the same shape: so nn.init.normal_ of w.t() is another model.
#
#   bash findings/torch-normal-sixteen.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, minutes, and some GB where torch brings CUDA), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-2.13.0}
folder=$(mktemp -d "${TMPDIR:-/tmp}/torch-normal-sixteen.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "torch==$version" "numpy==2.4.6" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

import torch

print(f"torch {version('torch')}, Python {sys.version.split()[0]}")
def seeded():
    return torch.Generator().manual_seed(0)


changed = []
for length in (8, 14, 15, 16, 17, 24, 32):
    one, more = torch.randn(length, generator=seeded()), torch.randn(length + 1, generator=seeded())
    alike = int((one == more[:length]).sum())
    print(f"  randn({length}) and the start of randn({length + 1}): {alike} of {length} numbers equal")
    if (alike == length) != (length < 15):
        changed.append(f"{length}: {alike}")
rand = [torch.rand(length, generator=seeded()) for length in (16, 17)]
print(f"  rand(16) is the start of rand(17): {bool((rand[0] == rand[1][:16]).all())}")
straight = torch.empty(4, 8).normal_(generator=seeded())
transposed = torch.empty(8, 4).t().normal_(generator=seeded())
print(f"  normal_ into 4x8 and into a transposed 8x4: {int((straight == transposed).sum())} of 32 numbers equal")
if bool((straight == transposed).any()):
    changed.append("transposed: equal numbers")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
