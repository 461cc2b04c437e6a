#!/usr/bin/env bash
# TensorStore's resize writes zarr.json anew, and what it says of attributes: an integer of 2**64 and more becomes a float, so its digits
# are lost, and a digest in decimal digits is another. Names, order and smaller integers stay. zarr-python's resize changes none.
#
#   bash findings/tensorstore-resize-attributes.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.1.84}
folder=$(mktemp -d "${TMPDIR:-/tmp}/tensorstore-resize-attributes.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "tensorstore==$version" "zarr==3.4.2" "numpy==2.5.5" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import json
import sys
from importlib.metadata import version
from pathlib import Path

import tensorstore
import zarr

print(f"tensorstore {version('tensorstore')}, zarr {version('zarr')}, Python {sys.version.split()[0]}")
ATTRIBUTES = {"small": 2**60 + 1, "unsigned": 2**64 - 1, "seed": 2**64 + 1, "digest": int("9" * 77), "negative": -(2**63) - 1, "float": 0.1}
CHANGED = {"tensorstore": {"seed", "digest", "negative"}, "zarr": set()}


def by_tensorstore(path):
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": path}}
    tensorstore.open(spec).result().resize(exclusive_max=[6]).result()


changed = []
for name, resize in (("zarr", lambda path: zarr.open_array(path).resize((6,))), ("tensorstore", by_tensorstore)):
    zarr.create_array(name, shape=(4,), chunks=(2,), dtype="int32", attributes=ATTRIBUTES)
    resize(name)
    attributes = json.loads(Path(name, "zarr.json").read_text())["attributes"]
    others = {key: value for key, value in attributes.items() if repr(value) != repr(ATTRIBUTES[key])}
    print(f"  resized by {name + ':':13}{others or 'all attributes as they were'}")
    if set(others) != CHANGED[name]:
        changed.append(f"{name}: {sorted(others)}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
