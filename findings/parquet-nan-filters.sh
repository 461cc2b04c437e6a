#!/usr/bin/env bash
# Statistics in Parquet leave NaN out, and readers skip row groups by them although a NaN would match: pyarrow's filters lose rows of x != 1
# and of not (x > 0), DuckDB those of x > 5, where NaN is the greatest number to it, and its max(x). The same queries in memory have these
# rows. Polars, to which NaN is the greatest too, finds its rows in the same file.
#
#   bash findings/parquet-nan-filters.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-25.0.1}
folder=$(mktemp -d "${TMPDIR:-/tmp}/parquet-nan-filters.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "pyarrow==$version" "duckdb==2.0.0" "polars==2.1.0" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

import duckdb
import polars
import pyarrow
import pyarrow.compute as pc
import pyarrow.parquet

print(f"pyarrow {version('pyarrow')}, duckdb {version('duckdb')}, polars {version('polars')}, Python {sys.version.split()[0]}")
table = pyarrow.table({"x": [1.0, float("nan")]})
pyarrow.parquet.write_table(table, "x.parquet")
x, column = pc.field("x"), polars.col("x")
CASES = {  # rows in memory, rows of the file
    "pyarrow x != 1": (lambda: table.filter(x != 1), lambda: pyarrow.parquet.read_table("x.parquet", filters=x != 1), 1, 0),
    "pyarrow not (x > 0)": (lambda: table.filter(~(x > 0)), lambda: pyarrow.parquet.read_table("x.parquet", filters=~(x > 0)), 1, 0),
    "DuckDB x > 5": (lambda: duckdb.sql("from numbers where x > 5"), lambda: duckdb.sql("from 'x.parquet' where x > 5"), 1, 0),
    "Polars x > 5": (
        lambda: polars.from_arrow(table).filter(column > 5),
        lambda: polars.scan_parquet("x.parquet").filter(column > 5).collect(),
        1,
        1,
    ),
}
changed = []


def rows(result):
    return len(result.fetchall()) if hasattr(result, "fetchall") else len(result)


duckdb.register("numbers", table)
for name, (in_memory, of_file, *expected) in CASES.items():
    seen = [rows(in_memory()), rows(of_file())]
    print(f"  {name + ':':21}{seen[0]} rows in memory, {seen[1]} of the file")
    if seen != expected:
        changed.append(f"{name}: {seen}")
largest = [duckdb.sql(f"select max(x) from {source}").fetchall()[0][0] for source in ("numbers", "'x.parquet'")]
print(f"  DuckDB max(x):       {largest[0]} in memory, {largest[1]} of the file")
if str(largest) != "[nan, 1.0]":
    changed.append(f"DuckDB max(x): {largest}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
