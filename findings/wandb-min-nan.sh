#!/usr/bin/env bash
# One NaN makes the minimum and the maximum of a W&B metric NaN for good: after define_metric(name, summary="min") the values 2, NaN, 1 have the
# minimum NaN in the run's summary, by which tables are sorted and sweeps choose, though the run went on to its best value; where the NaN came first,
# or last, it is the same. wandb-core (metricSummary.UpdateFloat) takes Go's min and max, which are NaN where an operand is, and the mean is of the
# sum; NaN was left for later when it was written (wandb#7781). summary="last", the default, forgets it. Beside it integers of 2**63 and more are
# floats in the summary, and -0.0 is 0.
#
#   bash findings/wandb-min-nan.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.31.0}
folder=$(mktemp -d "${TMPDIR:-/tmp}/wandb-min-nan.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "wandb==$version" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import logging
import math
import os
import sys
from importlib.metadata import version

os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=os.getcwd(), WANDB_CONSOLE="off")
import wandb

logging.disable(logging.CRITICAL)
print(f"wandb {version('wandb')}, Python {sys.version.split()[0]}")
CASES = {  # the values that are logged; the minimum and maximum of the summary
    "numbers": ([2.0, 3.0, 1.0], (1.0, 3.0)),
    "within": ([2.0, math.nan, 1.0], (math.nan, math.nan)),
    "first": ([math.nan, 2.0, 1.0], (math.nan, math.nan)),
    "last": ([2.0, 1.0, math.nan], (math.nan, math.nan)),
    "infinity": ([2.0, math.inf, 1.0], (1.0, math.inf)),
}
changed = []
with wandb.init(project="findings") as run:
    for name in CASES:
        for way in ("min", "max", "mean", "last"):
            run.define_metric(f"{name}-{way}", summary=way)
    for place in range(3):
        run.log({f"{name}-{way}": values[place] for name, (values, _) in CASES.items() for way in ("min", "max", "mean", "last")})
    run.log({"zero": -0.0, "large": 2**63 + 1})
    summary = dict(run.summary)
for name, (values, expected) in CASES.items():
    least, largest, mean, last = (summary[f"{name}-{way}"] for way in ("min", "max", "mean", "last"))
    seen = tuple(next(iter(dict(one).values())) if hasattr(one, "keys") else one for one in (least, largest, mean, last))
    print(f"  of {values}: minimum {seen[0]}, maximum {seen[1]}, mean {seen[2]}, last {seen[3]}")
    if any(one != other and not (one != one and other != other) for one, other in zip(seen, expected, strict=False)):
        changed.append(f"{values}: {seen}")
print(f"  -0.0 is {summary['zero']!r}, 2**63 + 1 is {summary['large']!r}")
if (repr(summary["zero"]), summary["large"]) != ("0", float(2**63)):
    changed.append(f"{summary['zero']!r}, {summary['large']!r}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
