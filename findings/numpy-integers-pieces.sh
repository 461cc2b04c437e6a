#!/usr/bin/env bash
# Generator.integers of 8 or 16 bits or bool gives other numbers in several calls than in one: what is left of a drawn word is thrown away
# at the end of each call. A stream that is drawn in other pieces (another buffer, another number of workers) is another stream, for uint8,
# uint16 and bool; for 32 and 64 bits, random() and standard_normal() it is the same.
#
#   bash findings/numpy-integers-pieces.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-2.5.5}
folder=$(mktemp -d "${TMPDIR:-/tmp}/numpy-integers-pieces.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "numpy==$version" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import numpy as np

print(f"numpy {np.__version__}, Python {sys.version.split()[0]}")
DRAWS = {
    "integers, uint8": (lambda g, n: g.integers(0, 200, n, dtype=np.uint8), False),
    "integers, uint16": (lambda g, n: g.integers(0, 200, n, dtype=np.uint16), False),
    "integers, bool": (lambda g, n: g.integers(0, 2, n, dtype=bool), False),
    "integers, int32": (lambda g, n: g.integers(0, 200, n, dtype=np.int32), True),
    "integers, int64": (lambda g, n: g.integers(0, 200, n), True),
    "random, float32": (lambda g, n: g.random(n, dtype=np.float32), True),
    "standard_normal": (lambda g, n: g.standard_normal(n), True),
}
changed = []
for name, (draw, expected) in DRAWS.items():
    whole = draw(np.random.default_rng(0), 10)
    generator = np.random.default_rng(0)
    pieces = np.concatenate([draw(generator, 3), draw(generator, 7)])
    equal = bool((whole == pieces).all())
    print(f"  {name + ':':18}10 in one call and 3 + 7: {'equal' if equal else f'{whole[:6].tolist()} and {pieces[:6].tolist()}'}")
    if equal != expected:
        changed.append(f"{name}: {'equal' if equal else 'different'}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
