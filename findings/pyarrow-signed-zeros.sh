#!/usr/bin/env bash
# pyarrow has two zeros where rows are grouped, and one where they are compared: unique, value_counts, group_by, join, is_in and
# count_distinct tell -0.0 from 0.0, while equal, sort and mode do not. pandas, Polars and DuckDB have one zero in all of them, so a
# pipeline that is moved to pyarrow has other groups, and joins lose rows.
#
#   bash findings/pyarrow-signed-zeros.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-25.0.1}
folder=$(mktemp -d "${TMPDIR:-/tmp}/pyarrow-signed-zeros.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "pyarrow==$version" "duckdb==2.0.0" "polars==2.1.0" "pandas==3.1.1" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

import duckdb
import pandas
import polars
import pyarrow
import pyarrow.compute as pc

print(f"pyarrow {version('pyarrow')}, duckdb {version('duckdb')}, polars {version('polars')}, pandas {version('pandas')}, Python {sys.version.split()[0]}")
zeros, plus, minus = [0.0, -0.0], {"x": [0.0]}, {"x": [-0.0]}
table = pyarrow.table({"x": zeros, "y": [1, 1]})
left, right = pyarrow.table(plus), pyarrow.table(minus)
for name, columns in (("zeros", table), ("plus", left), ("minus", right)):
    duckdb.register(name, columns)
seen = {  # groups, rows of a join, rows that are in [-0.0]
    "pyarrow": (
        table.group_by("x").aggregate([("y", "sum")]).num_rows,
        left.join(right, "x", join_type="inner").num_rows,
        left.filter(pc.is_in(left["x"], pyarrow.array([-0.0]))).num_rows,
    ),
    "pandas": (
        len(pandas.DataFrame({"x": zeros}).groupby("x").size()),
        len(pandas.DataFrame(plus).merge(pandas.DataFrame(minus), on="x")),
        int(pandas.Series([0.0]).isin([-0.0]).sum()),
    ),
    "Polars": (
        len(polars.DataFrame({"x": zeros}).group_by("x").len()),
        len(polars.DataFrame(plus).join(polars.DataFrame(minus), on="x")),
        int(polars.Series([0.0]).is_in([-0.0]).sum()),
    ),
    "DuckDB": (
        len(duckdb.sql("select x, count(*) from zeros group by x").fetchall()),
        len(duckdb.sql("select * from plus join minus using (x)").fetchall()),
        len(duckdb.sql("select 1 where 0.0::double in (-0.0::double)").fetchall()),
    ),
}
changed = []
for name, (groups, joined, contained) in seen.items():
    print(f"  {name + ':':9}{groups} groups, {joined} rows joined, {contained} rows in the list")
    if (groups, joined, contained) != ((2, 0, 0) if name == "pyarrow" else (1, 1, 1)):
        changed.append(f"{name}: {groups}, {joined}, {contained}")
counts, mode = pc.value_counts(table["x"]).to_pylist(), pc.mode(table["x"]).to_pylist()
equal = pc.equal(table["x"], 0.0).to_pylist()
print(f"  pyarrow:  value_counts {counts}, mode {mode}, equal to 0.0 {equal}")
if (len(counts), mode[0]["count"], equal) != (2, 2, [True, True]):
    changed.append(f"value_counts {counts}, mode {mode}, equal {equal}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
