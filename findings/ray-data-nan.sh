#!/usr/bin/env bash
# One NaN makes Ray Data's mean() and sum() of a column None, without a word, and min() and max() pass it over. By default (ignore_nulls=True)
# the documentation takes NaN for a missing value that is left out. So it is where the block is a pandas one: the same column has a mean of 2.0 there and
# of None in an Arrow block, so what reads the data decides, and a map_batches in between. groupby().mean() has NaN for the group. With
# ignore_nulls=False mean() is NaN. Upstream #20787 brought the rule in 2021. To do: drop NaN before, or add up what iter_batches gives.
#
#   bash findings/ray-data-nan.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, two minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-2.60.0}
folder=$(mktemp -d "${TMPDIR:-/tmp}/ray-data-nan.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "ray[data]==$version" "pyarrow==25.0.1" "pandas==3.1.1" "numpy==2.4.6" "aiohttp==3.14.5" >&2
cd "$folder"
export RAY_USAGE_STATS_ENABLED=0
"$folder/venv/bin/python" - <<'PYTHON'
import logging
import math
import sys
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import pyarrow as pa
import ray

logging.disable(logging.CRITICAL)
print(f"ray {version('ray')}, pyarrow {pa.__version__}, pandas {pd.__version__}, Python {sys.version.split()[0]}")
for _ in range(5):  # on a busy machine: Ray gives its node 15 seconds, and nothing lengthens them (#65983)
    try:
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, _temp_dir=str(Path.cwd() / "r"))
        break
    except Exception:
        ray.shutdown()
context = ray.data.DataContext.get_current()
context.enable_progress_bars = False
context.default_hash_shuffle_parallelism = 2
LOSSES = [1.0, math.nan, 3.0]
arrow = ray.data.from_arrow(pa.table({"key": [0, 0, 0], "loss": LOSSES}))
pandas = ray.data.from_pandas(pd.DataFrame({"loss": LOSSES}))
found = {
    "mean, sum and max of an Arrow block": (arrow.mean("loss"), arrow.sum("loss"), arrow.max("loss")),
    "mean, sum and max of a pandas block": (pandas.mean("loss"), pandas.sum("loss"), pandas.max("loss")),
    "mean of an Arrow block, ignore_nulls=False": (arrow.mean("loss", ignore_nulls=False),),
    "mean of the group of all rows": tuple(row["mean(loss)"] for row in arrow.groupby("key").mean("loss").take_all()),
}
expected = [(None, None, 3.0), (2.0, 4.0, 3.0), (math.nan,), (math.nan,)]
changed = []
for (name, seen), known in zip(found.items(), expected, strict=True):
    print(f"  {name}: {seen}")
    if repr(seen) != repr(known):
        changed.append(f"{name}: {seen}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
