#!/usr/bin/env bash
# A TensorStore array that was opened before another handle made it shorter goes on as if nothing had happened: reading a cell that is gone
# gives the fill value, and writing to it reports success, although the value is nowhere. Only opening again shows the new size. The handles
# may be in two processes.
#
#   bash findings/tensorstore-stale-handle.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.1.84}
folder=$(mktemp -d "${TMPDIR:-/tmp}/tensorstore-stale-handle.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "tensorstore==$version" "numpy==2.5.5" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

import tensorstore

print(f"tensorstore {version('tensorstore')}, Python {sys.version.split()[0]}")
SPEC = {"driver": "zarr3", "kvstore": {"driver": "file", "path": "array"}}
METADATA = {
    "shape": [4],
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
    "data_type": "int32",
    "fill_value": 7,
}
tensorstore.open({**SPEC, "metadata": METADATA}, create=True).result().write([1, 2, 3, 4]).result()
stale = tensorstore.open(SPEC, context=tensorstore.Context()).result()
tensorstore.open(SPEC, context=tensorstore.Context()).result().resize(exclusive_max=[2]).result()


def attempt(action):
    try:
        return action()
    except (ValueError, IndexError) as error:
        return type(error).__name__


seen = {
    "size that the first handle knows": stale.shape[0],
    "its cell 3": attempt(lambda: int(stale[3].read().result())),
    "writing 9 to its cell 3": attempt(lambda: stale[3].write(9).result() or "success"),
    "the array, opened again": tensorstore.open(SPEC, context=tensorstore.Context()).result().read().result().tolist(),
}
EXPECTED = [4, 7, "success", [1, 2]]
changed = []
for (name, value), expected in zip(seen.items(), EXPECTED, strict=True):
    print(f"  {name + ':':36}{value}")
    if value != expected:
        changed.append(f"{name}: {value}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
