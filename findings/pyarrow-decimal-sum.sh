#!/usr/bin/env bash
# pyarrow.compute.sum of decimals beyond 38 digits wraps around to another number, also a negative one, without an error: three times
# 9999...9.1 in decimal128(38, 10) is minus 4028...7. DuckDB and Polars refuse the same column. Summed as decimal256 it is right.
#
#   bash findings/pyarrow-decimal-sum.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-25.0.1}
folder=$(mktemp -d "${TMPDIR:-/tmp}/pyarrow-decimal-sum.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "pyarrow==$version" "duckdb==2.0.0" "polars==2.1.0" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from decimal import Decimal, localcontext
from importlib.metadata import version

import duckdb
import polars
import pyarrow
import pyarrow.compute as pc

print(f"pyarrow {version('pyarrow')}, duckdb {version('duckdb')}, polars {version('polars')}, Python {sys.version.split()[0]}")
value = Decimal("9" * 28 + ".1")
narrow = pyarrow.array([value] * 3, pyarrow.decimal128(38, 10))
table = pyarrow.table({"x": narrow, "g": [1, 1, 1]})
duckdb.register("narrow_table", table)
with localcontext(prec=60):
    right = value * 3


def attempt(action):
    try:
        return action()
    except (pyarrow.ArrowInvalid, duckdb.Error, polars.exceptions.PolarsError) as error:
        return type(error).__name__


seen = {
    "pyarrow, sum": attempt(lambda: pc.sum(narrow).as_py()),
    "pyarrow, group_by sum": attempt(lambda: table.group_by("g").aggregate([("x", "sum")])["x_sum"][0].as_py()),
    "pyarrow, sum as decimal256": attempt(lambda: pc.sum(narrow.cast(pyarrow.decimal256(76, 10))).as_py()),
    "DuckDB": attempt(lambda: duckdb.sql("select sum(x) from narrow_table").fetchall()[0][0]),
    "Polars": attempt(lambda: polars.from_arrow(table)["x"].sum()),
}
changed = []
print(f"  right is {right}")
for name, output in seen.items():
    print(f"  {name + ':':28}{output}")
    wrong = isinstance(output, Decimal) and output != right
    if wrong != (name in ("pyarrow, sum", "pyarrow, group_by sum")):
        changed.append(f"{name}: {output}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
