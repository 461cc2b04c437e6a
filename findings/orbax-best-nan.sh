#!/usr/bin/env bash
# orbax's CheckpointManager with best_fn and max_to_keep=1 deletes the best checkpoint when one metric is NaN: the one with NaN takes its
# place, and the next takes the place of that, whatever its metric. Of the metrics 1.0, NaN, 0.5 best_mode "max" keeps 0.5, and of 0.5, NaN,
# 1.0 "min" keeps 1.0.
#
#   bash findings/orbax-best-nan.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, two minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.12.8}
folder=$(mktemp -d "${TMPDIR:-/tmp}/orbax-best-nan.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "orbax-checkpoint==$version" "jax==0.11.2" "jaxlib==0.11.2" "numpy==2.5.5" >&2
cd "$folder"
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import logging
import math
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp

logging.disable(logging.CRITICAL)
print(f"orbax-checkpoint {version('orbax-checkpoint')}, jax {version('jax')}, Python {sys.version.split()[0]}")
NAN = math.nan
CASES = (  # mode, metrics of the steps 0, 1, 2; the step that is kept
    ("max", [1.0, 0.7, 0.5], 0),
    ("max", [1.0, NAN, 0.5], 2),
    ("min", [0.5, 0.7, 1.0], 0),
    ("min", [0.5, NAN, 1.0], 2),
)
changed = []
for mode, metrics, expected in CASES:
    options = ocp.CheckpointManagerOptions(
        max_to_keep=1, best_fn=lambda logged: logged["score"], best_mode=mode, enable_async_checkpointing=False
    )
    with ocp.CheckpointManager(Path(f"{mode}-{metrics[1]}").absolute(), options=options) as manager:
        for step, metric in enumerate(metrics):
            manager.save(step, args=ocp.args.StandardSave({"x": np.full(1, step)}), metrics={"score": metric})
        kept = list(manager.all_steps())
    print(f"  best_mode={mode!r}, metrics {metrics}: kept is step {kept}, of metric {[metrics[step] for step in kept]}")
    if kept != [expected]:
        changed.append(f"{mode}, {metrics}: {kept}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
