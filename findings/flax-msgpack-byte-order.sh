#!/usr/bin/env bash
# flax.serialization writes the bytes of a NumPy array as they are and the name of its type without the byte order: an array in big-endian
# order, as IDX (MNIST) and FITS files have it, is read back as other numbers, without an error. Strides and Fortran order are kept.
#
#   bash findings/flax-msgpack-byte-order.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, one or two minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.12.12}
folder=$(mktemp -d "${TMPDIR:-/tmp}/flax-msgpack-byte-order.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "flax==$version" "jax==0.11.2" "jaxlib==0.11.2" "numpy==2.5.5" >&2
cd "$folder"
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

import numpy as np
from flax.serialization import msgpack_restore, msgpack_serialize

print(f"flax {version('flax')}, numpy {version('numpy')}, Python {sys.version.split()[0]}")
x = np.arange(6, dtype=np.int32).reshape(2, 3)
CASES = {
    "little-endian": (x.astype("<i4"), True),
    "big-endian": (x.astype(">i4"), False),
    "big-endian float64": (x.astype(">f8"), False),
    "Fortran order": (np.asfortranarray(x), True),
    "reversed": (x[::-1, ::-2], True),
}
changed = []
for name, (array, expected) in CASES.items():
    output = msgpack_restore(msgpack_serialize({"x": array}))["x"]
    equal = bool(np.array_equal(output, array))
    print(f"  {name + ':':20}{array.tolist()} comes back as {output.tolist()} of {output.dtype}")
    if equal != expected:
        changed.append(f"{name}: {'equal' if equal else output.tolist()}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
