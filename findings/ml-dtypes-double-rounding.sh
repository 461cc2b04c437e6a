#!/usr/bin/env bash
# ml_dtypes turns float64 and int32 into bfloat16 and the 8-bit types by way of float32, so they are rounded twice: a number just above the
# middle between two becomes the lower one, and 2**24 + 2**16 + 1 becomes 2**24. NumPy's own float16 is rounded once.
#
#   bash findings/ml-dtypes-double-rounding.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.6.0}
folder=$(mktemp -d "${TMPDIR:-/tmp}/ml-dtypes-double-rounding.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "ml-dtypes==$version" "numpy==2.5.5" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from fractions import Fraction
from importlib.metadata import version

import ml_dtypes
import numpy as np

print(f"ml_dtypes {version('ml_dtypes')}, numpy {version('numpy')}, Python {sys.version.split()[0]}")
CASES = (  # type, value, its two neighbours in the type
    (ml_dtypes.bfloat16, 1 + 2**-8 + 2**-40, 1.0, 1.0078125),
    (ml_dtypes.bfloat16, 1 + 3 * 2**-8 - 2**-40, 1.0078125, 1.015625),
    (ml_dtypes.bfloat16, np.int32(2**24 + 2**16 + 1), 2.0**24, 2.0**24 + 2.0**17),
    (ml_dtypes.float8_e4m3fn, 1 + 2**-4 + 2**-40, 1.0, 1.125),
    (ml_dtypes.float8_e5m2, 1 + 2**-3 + 2**-40, 1.0, 1.25),
    (np.float16, 1 + 2**-11 + 2**-40, 1.0, 1 + 2**-10),
)
changed = []
for dtype, value, low, high in CASES:
    output = float(np.array([value]).astype(dtype)[0])
    nearest = min((low, high), key=lambda end: abs(Fraction(end) - Fraction(value if isinstance(value, float) else int(value))))
    print(f"  {value!r:32} as {np.dtype(dtype).name + ':':15}{output!r:12} nearest {nearest!r}{'' if output == nearest else '  rounded twice'}")
    if (output != nearest) != (dtype is not np.float16):
        changed.append(f"{value!r} as {np.dtype(dtype).name}: {output!r}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
