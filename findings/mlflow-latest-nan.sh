#!/usr/bin/env bash
# Where a metric has several values of one step and one time stamp (as log_batch with one time stamp makes them), MLflow's latest value is
# the largest, not the last; and NaN counts as 0 there. So NaN after 1 leaves the run at 1, as if nothing had happened, and -1 after NaN
# leaves it at NaN.
#
#   bash findings/mlflow-latest-nan.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, two minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-3.17.2}
folder=$(mktemp -d "${TMPDIR:-/tmp}/mlflow-latest-nan.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "mlflow-skinny==$version" "sqlalchemy==2.1.9" "alembic==1.20.1" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import logging
import sys
from importlib.metadata import version

import mlflow
from mlflow.entities import Metric

print(f"mlflow-skinny {version('mlflow-skinny')}, Python {sys.version.split()[0]}")
logging.disable(logging.WARNING)
client = mlflow.MlflowClient("sqlite:///runs.db")
experiment = client.create_experiment("one")
NAN = float("nan")
CASES = (  # values in the order of logging, the latest one
    ([1.0, 2.0], 2.0),
    ([2.0, 1.0], 2.0),
    ([1.0, NAN], 1.0),
    ([NAN, 1.0], 1.0),
    ([-1.0, NAN], NAN),
    ([NAN, -1.0], NAN),
)
changed = []
for values, expected in CASES:
    latest = []
    for together in (True, False):
        run = client.create_run(experiment).info.run_id
        if together:
            client.log_batch(run, metrics=[Metric("loss", value, 1_700_000_000_000, 7) for value in values])
        else:
            for value in values:
                client.log_metric(run, "loss", value, timestamp=1_700_000_000_000, step=7)
        latest.append(client.get_run(run).data.metrics["loss"])
    print(f"  logged {values}: latest is {latest[0]} (log_batch), {latest[1]} (log_metric)")
    if [repr(value) for value in latest] != [repr(expected)] * 2:
        changed.append(f"{values}: {latest}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
