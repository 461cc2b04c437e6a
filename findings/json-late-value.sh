#!/usr/bin/env bash
# One file of JSON lines, of which the last of 30,001 has 2.5 where all others have integers: pyarrow and pandas read 2.5, Polars stops with an error,
# and DuckDB reads 2 and says nothing (-2.7 is -3), for it decides by the first 20,480 lines and casts what comes later (duckdb#25786). Where the last
# line has one field more, Polars leaves it out without a word and DuckDB stops. So scores that are 0 and 1 until a partial credit comes are rounded,
# and a field that was added later is there or not by the reader. DuckDB's sample_size=-1 and Polars' infer_schema_length=None read all lines first.
#
#   bash findings/json-late-value.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-2.0.0}
folder=$(mktemp -d "${TMPDIR:-/tmp}/json-late-value.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "duckdb==$version" "polars==2.1.0" "pyarrow==25.0.1" "pandas==3.1.1" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import json
import sys
from importlib.metadata import version
from pathlib import Path

import duckdb
import pandas
import polars
import pyarrow.json

print(", ".join(f"{name} {version(name)}" for name in ("duckdb", "polars", "pyarrow", "pandas")) + f", Python {sys.version.split()[0]}")


def as_rows(relation):
    return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]


READERS = {
    "pyarrow": lambda path: pyarrow.json.read_json(path).to_pylist()[-1],
    "pandas": lambda path: pandas.read_json(path, lines=True).to_dict("records")[-1],
    "polars": lambda path: polars.read_ndjson(path).to_dicts()[-1],
    "polars, all": lambda path: polars.read_ndjson(path, infer_schema_length=None).to_dicts()[-1],
    "duckdb": lambda path: as_rows(duckdb.sql(f"from read_json('{path}')"))[-1],
    "duckdb, all": lambda path: as_rows(duckdb.sql(f"from read_json('{path}', sample_size=-1)"))[-1],
}
CASES = {  # the last line, and what each reader makes of it; None: an error
    '{"score": 2.5}': {"pyarrow": 2.5, "pandas": 2.5, "polars": None, "polars, all": 2.5, "duckdb": 2, "duckdb, all": 2.5},
    '{"score": -2.7}': {"pyarrow": -2.7, "pandas": -2.7, "polars": None, "polars, all": -2.7, "duckdb": -3, "duckdb, all": -2.7},
    '{"score": 1, "judge": 7}': {"pyarrow": 7, "pandas": 7, "polars": "left out", "polars, all": 7, "duckdb": None, "duckdb, all": 7},
}
changed = []
for last, expected in CASES.items():
    Path("rows.jsonl").write_text("".join(json.dumps({"score": place}) + "\n" for place in range(30_000)) + last + "\n")
    field = list(json.loads(last))[-1]
    for name, read in READERS.items():
        try:
            seen = read("rows.jsonl").get(field, "left out")
        except Exception:
            seen = None
        print(f"  {last:26} {name:12} {'an error' if seen is None else seen}")
        if seen != expected[name]:
            changed.append(f"{name}, {last}: {seen}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
