#!/usr/bin/env bash
# zarr-python loses what a NaN carries. A chunk of NaNs of any payload counts as empty where the fill value is NaN, and is not written (R's
# NA is a NaN of payload 1954). A fill value that zarr.json gives by its bits ("0x7fc00001") becomes "NaN" in the file when the array is
# resized, so cells that were never written change. TensorStore keeps both.
#
#   bash findings/zarr-nan-payloads.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-3.4.2}
folder=$(mktemp -d "${TMPDIR:-/tmp}/zarr-nan-payloads.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "zarr==$version" "tensorstore==0.1.84" "numpy==2.5.5" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import json
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import tensorstore
import zarr

print(f"zarr {version('zarr')}, tensorstore {version('tensorstore')}, numpy {version('numpy')}, Python {sys.version.split()[0]}")
MISSING = np.array([0x7FF00000000007A2] * 4, np.uint64).view(np.float64)  # R's NA_real_


def bits(array):
    return sorted({f"0x{word:x}" for word in np.asarray(array).view(np.uint64).tolist()})


def by_tensorstore(path, **spec):
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": path}, **spec}
    return tensorstore.open(spec, create="metadata" in spec).result()


def metadata(fill):
    grid = {"name": "regular", "configuration": {"chunk_shape": [2]}}
    return {"shape": [4], "chunk_grid": grid, "data_type": "float64", "fill_value": fill}


seen = {}
array = zarr.create_array("one", shape=(4,), chunks=(2,), dtype="float64", fill_value=float("nan"))
array[:] = MISSING
seen["NA written by zarr-python"] = bits(zarr.open_array("one")[:])
by_tensorstore("two", metadata=metadata("NaN")).write(MISSING).result()
seen["NA written by TensorStore"] = bits(by_tensorstore("two").read().result())
by_tensorstore("three", metadata=metadata("0x7ff00000000007a2"))
seen["NA as fill value"] = bits(zarr.open_array("three")[:])
by_tensorstore("three").resize(exclusive_max=[6]).result()
seen["... resized by TensorStore"] = bits(zarr.open_array("three")[:])
zarr.open_array("three").resize((4,))
seen["... resized by zarr-python"] = bits(zarr.open_array("three")[:])
print(f"  chunks that zarr-python wrote: {sorted(str(p) for p in Path('one').rglob('*') if p.is_file() and p.name != 'zarr.json')}")
print(f"  fill value in zarr.json afterwards: {json.loads(Path('three/zarr.json').read_text())['fill_value']!r}")
NA, NAN = ["0x7ff00000000007a2"], ["0x7ff8000000000000"]
EXPECTED = [NAN, NA, NA, NA, NAN]
changed = []
for (name, words), expected in zip(seen.items(), EXPECTED, strict=True):
    print(f"  {name + ':':30}{words}")
    if words != expected:
        changed.append(f"{name}: {words}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
