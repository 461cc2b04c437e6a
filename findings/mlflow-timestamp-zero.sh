#!/usr/bin/env bash
# mlflow.log_metric and log_metrics with timestamp=0 store the present time, and any other number as given; MlflowClient.log_metric stores 0.
# Who logs by a fixed time, that two runs of one experiment record the same, gets two different records in silence.
#
#   bash findings/mlflow-timestamp-zero.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, two minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-3.17.2}
folder=$(mktemp -d "${TMPDIR:-/tmp}/mlflow-timestamp-zero.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "mlflow-skinny==$version" "sqlalchemy==2.1.9" "alembic==1.20.1" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import logging
import sys
import time
from importlib.metadata import version

import mlflow

print(f"mlflow-skinny {version('mlflow-skinny')}, Python {sys.version.split()[0]}")
logging.disable(logging.WARNING)
mlflow.set_tracking_uri("sqlite:///runs.db")
client = mlflow.MlflowClient()
start = time.time_ns() // 1_000_000
changed = []
with mlflow.start_run() as run:
    identity = run.info.run_id
    ways = {
        "mlflow.log_metric": lambda name, stamp: mlflow.log_metric(name, 1.0, timestamp=stamp),
        "mlflow.log_metrics": lambda name, stamp: mlflow.log_metrics({name: 1.0}, timestamp=stamp),
        "MlflowClient.log_metric": lambda name, stamp: client.log_metric(identity, name, 1.0, timestamp=stamp),
    }
    for way, log in ways.items():
        stored = []
        for stamp in (0, 1):
            name = f"{way}-{stamp}"
            log(name, stamp)
            stored.append(client.get_metric_history(identity, name)[0].timestamp)
        present = start <= stored[0] <= time.time_ns() // 1_000_000
        print(f"  {way + ':':25}timestamp 0 is stored as {'the present time' if present else stored[0]}, timestamp 1 as {stored[1]}")
        if present == way.startswith("Mlflow") or stored[1] != 1:
            changed.append(f"{way}: {stored}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
