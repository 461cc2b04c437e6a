#!/usr/bin/env bash
# A step that is a NumPy integer is stored by MLflow's sqlite store as eight bytes, without an error: the first log_metric of a run with
# step=numpy.int64(5) succeeds, the second raises an exception of NumPy about ufunc 'greater', and reading the history fails in the same run.
# numpy.float32 as value is taken as a number.
#
#   bash findings/mlflow-numpy-step.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, two minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-3.17.2}
folder=$(mktemp -d "${TMPDIR:-/tmp}/mlflow-numpy-step.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "mlflow-skinny==$version" "sqlalchemy==2.1.9" "alembic==1.20.1" "numpy==2.5.5" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
import logging
import sqlite3
from importlib.metadata import version

import mlflow
import numpy as np

print(f"mlflow-skinny {version('mlflow-skinny')}, numpy {version('numpy')}, Python {sys.version.split()[0]}")
logging.disable(logging.WARNING)
mlflow.set_tracking_uri("sqlite:///runs.db")
changed = []
with mlflow.start_run():
    mlflow.log_metric("plain", 1.0, step=5)
    for step in (5, 6):
        try:
            mlflow.log_metric("loss", np.float32(1.0), step=np.int64(step))
            said = "no error"
        except Exception as error:
            said = f"{type(error).__name__}: {str(error)[:90]}"
        print(f"  log_metric(step=numpy.int64({step})): {said}")
        if (step == 5) != (said == "no error"):
            changed.append(f"step {step}: {said}")
kinds = dict(sqlite3.connect("runs.db").execute("select key, typeof(step) from metrics"))
print(f"  type of the stored step: {kinds['plain']} for 5, {kinds['loss']} for numpy.int64(5)")
if kinds["loss"] != "blob":
    changed.append(f"stored as {kinds['loss']}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
