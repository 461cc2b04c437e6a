#!/usr/bin/env bash
# pyarrow has no year after 32767 and does not say so: timestamps beyond it (milliseconds since 1970 read as seconds are) cast to text as
# "<value out of range: N>", also in CSV, and compute.year and compute.strftime wrap to a year before Christ. No error and no null, though
# the cast is a safe one; the safe cast to nanoseconds and to_pylist() raise.
#
#   bash findings/pyarrow-timestamp-text.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-25.0.1}
folder=$(mktemp -d "${TMPDIR:-/tmp}/pyarrow-timestamp-text.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "pyarrow==$version" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import io
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

print(f"pyarrow {pa.__version__}, Python {sys.version.split()[0]}")
SECONDS = 1_700_000_000


def written(column):
    file = io.BytesIO()
    pyarrow.csv.write_csv(pa.table({"t": column}), file)
    return file.getvalue().decode().split("\n")[1]


ways = {
    "cast to text": lambda column: column.cast(pa.string(), safe=True)[0].as_py(),
    "write_csv": written,
    "compute.year": lambda column: pc.year(column)[0].as_py(),
    "compute.strftime": lambda column: pc.strftime(column)[0].as_py(),
    "cast to nanoseconds": lambda column: column.cast(pa.timestamp("ns"), safe=True)[0].value,
    "to_pylist": lambda column: str(column.to_pylist()[0]),
}
EXPECTED = {
    "cast to text": "<value out of range: 1700000000000>",
    "write_csv": "<value out of range: 1700000000000>",
    "compute.year": -9696,
    "compute.strftime": "-9696-11-08T22:13:20",
    "cast to nanoseconds": "ArrowInvalid",
    "to_pylist": "OverflowError",
}
changed = []
for name, way in ways.items():
    seen = []
    for value in (SECONDS, SECONDS * 1000):
        try:
            seen.append(way(pa.array([value], pa.timestamp("s"))))
        except (pa.ArrowInvalid, OverflowError) as error:
            seen.append(f"{type(error).__name__}")
    print(f"  {name + ':':22}{seen[0]!r:24}a thousand times later {seen[1]!r}")
    if seen[1] != EXPECTED[name]:
        changed.append(f"{name}: {seen[1]!r}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
