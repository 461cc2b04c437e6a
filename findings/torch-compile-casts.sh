#!/usr/bin/env bash
# torch.compile leaves out a rounding that was asked for: x.to(torch.bfloat16).to(torch.float32) and x.half().float() of a float32 tensor are x, bit
# for bit, on a CPU, as a kernel computes in float32 and only what it stores is rounded; so what was built to try a smaller type, or to measure its
# error, tries nothing and measures 0, and 1e5 by way of float16 is 1e5 instead of infinity. By way of float8_e4m3fn the rounding is there. jax.jit
# (question 356) and ONNX Runtime keep both. TORCHINDUCTOR_EMULATE_PRECISION_CASTS=1 is the switch (pytorch#185337).
#
#   bash findings/torch-compile-casts.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a C++ compiler, minutes, and some GB where torch brings CUDA), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-2.13.0}
folder=$(mktemp -d "${TMPDIR:-/tmp}/torch-compile-casts.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "torch==$version" "numpy==2.4.6" "setuptools==80.9.0" >&2
cd "$folder"
cat > main.py <<'PYTHON'
import sys
from importlib.metadata import version

import torch

print(f"torch {version('torch')}, Python {sys.version.split()[0]}")


def by_way_of(numbers):
    """float32 numbers through each of three smaller types and back."""
    return [numbers.to(dtype).to(torch.float32) for dtype in (torch.bfloat16, torch.float16, torch.float8_e4m3fn)]


numbers = torch.tensor([1.1, -0.3, 1e5])
plain, compiled = by_way_of(numbers), torch.compile(by_way_of)(numbers)
changed = []
for name, one, other, kept in zip(("bfloat16", "float16", "float8_e4m3fn"), plain, compiled, (False, False, True), strict=True):
    print(f"  by way of {name:14} {one.tolist()}, compiled {other.tolist()}")
    if torch.equal(one, other) is not kept or not (kept or torch.equal(other, numbers)):
        changed.append(f"{name}: {other.tolist()}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
"$folder/venv/bin/python" main.py
