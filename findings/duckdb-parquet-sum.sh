#!/usr/bin/env bash
# DuckDB's sum of integers is a HUGEINT, and COPY ... TO a Parquet file writes HUGEINT as DOUBLE: sums (and ids of 128 bits) of more than
# 2**53 are rounded in silence, and read back by DuckDB itself as floats. A cast to DECIMAL or BIGINT before keeps them.
#
#   bash findings/duckdb-parquet-sum.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-2.0.0}
folder=$(mktemp -d "${TMPDIR:-/tmp}/duckdb-parquet-sum.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "duckdb==$version" "pyarrow==25.0.1" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

import duckdb
import pyarrow.parquet

print(f"duckdb {version('duckdb')}, pyarrow {version('pyarrow')}, Python {sys.version.split()[0]}")
VALUES = "(values (9007199254740992::bigint), (1::bigint)) as t(i)"
EXACT = 9007199254740993
CASES = {"sum(i)": False, "sum(i)::decimal(38, 0)": True, "sum(i)::bigint": True}
changed = []
for column, exact in CASES.items():
    there = duckdb.sql(f"select {column} from {VALUES}").fetchall()[0][0]
    duckdb.sql(f"copy (select {column} as s from {VALUES}) to 'sums.parquet' (format parquet)")
    back, kind = duckdb.sql("select s, typeof(s) from 'sums.parquet'").fetchall()[0]
    arrow = pyarrow.parquet.read_schema("sums.parquet").field("s").type
    print(f"  {column + ':':24}{int(there)} in the query, {int(back)} in the file ({arrow}; to DuckDB {kind})")
    if int(there) != EXACT or (int(back) == EXACT) != exact:
        changed.append(f"{column}: {there}, {back}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
