#!/usr/bin/env bash
# Ray Data's count() is not the number of rows. It is taken from metadata: a Parquet file that is named twice counts twice and is read once (JSON,
# CSV and text are read twice, as upstream #33684 decided in 2023), so a data set that is repeated by its paths trains half as long as was planned. And
# where max_errored_blocks lets one row fail, its whole block is left out, but a count over that map does not execute it and says all. sum("id") over
# it does. To do: count what materialize() returns, or len(take_all()).
#
#   bash findings/ray-data-count.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, two minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-2.60.0}
folder=$(mktemp -d "${TMPDIR:-/tmp}/ray-data-count.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "ray[data]==$version" "pyarrow==25.0.1" "pandas==3.1.1" "numpy==2.4.6" "aiohttp==3.14.5" >&2
cd "$folder"
export RAY_USAGE_STATS_ENABLED=0
"$folder/venv/bin/python" - <<'PYTHON'
import logging
import sys
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import ray

logging.disable(logging.CRITICAL)
print(f"ray {version('ray')}, pyarrow {pa.__version__}, Python {sys.version.split()[0]}")
for _ in range(5):  # on a busy machine: Ray gives its node 15 seconds, and nothing lengthens them (#65983)
    try:
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, _temp_dir=str(Path.cwd() / "r"))
        break
    except Exception:
        ray.shutdown()
context = ray.data.DataContext.get_current()
context.enable_progress_bars = False
pq.write_table(pa.table({"a": [1, 2]}), "two.parquet")
Path("two.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
changed = []


def look(name, data, expected):
    """How many rows are counted, and how many there are."""
    seen = (data.count(), len(data.take_all()))
    print(f"  {name}: count() {seen[0]}, rows {seen[1]}")
    if seen != expected:
        changed.append(f"{name}: {seen}")


def fails_once(row):
    if row["id"] == 57:
        raise ValueError("this row")
    return row


look("a Parquet file of 2 rows, named twice", ray.data.read_parquet(["two.parquet"] * 2), (4, 2))
look("a JSON file of 2 rows, named twice", ray.data.read_json(["two.jsonl"] * 2), (4, 4))
context.max_errored_blocks = 1
look("100 rows in 4 blocks, one of which may fail", ray.data.range(100, override_num_blocks=4).map(fails_once), (100, 75))
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
