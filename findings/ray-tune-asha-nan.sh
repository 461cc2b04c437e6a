#!/usr/bin/env bash
# Ray Tune's ASHA never stops a trial whose metric is NaN: at a rung it stops what is worse than the cutoff, and no comparison with NaN is true, so a
# trial that diverged keeps its machine to the last step, while one that is a little worse than the best goes at the first rung. Its NaN is left out
# of the cutoff as well (nanpercentile). Optuna's SuccessiveHalvingPruner stops it at the first rung. To do: report infinity for NaN, or a stopper.
#
#   bash findings/ray-tune-asha-nan.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, two minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-2.60.0}
folder=$(mktemp -d "${TMPDIR:-/tmp}/ray-tune-asha-nan.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "ray[tune]==$version" "optuna==5.0.0" "numpy==2.4.6" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import logging
import math
import sys
from importlib.metadata import version

import optuna
from ray.tune.experiment import Trial
from ray.tune.schedulers import ASHAScheduler, TrialScheduler

logging.disable(logging.CRITICAL)
print(f"ray {version('ray')}, optuna {version('optuna')}, Python {sys.version.split()[0]}")
LOSSES = {"good": 1.0, "fair": 1.5, "poor": 9.0, "diverged": math.nan}


def steps_by_ray():
    """How many of eight steps ASHA lets each trial do; they take turns."""
    scheduler = ASHAScheduler(metric="loss", mode="min", max_t=16, grace_period=1, reduction_factor=2)
    trials = {name: Trial("training", trial_id=name, stub=True) for name in LOSSES}
    for trial in trials.values():
        scheduler.on_trial_add(None, trial)
    steps = dict.fromkeys(LOSSES, 0)
    going = list(LOSSES)
    for step in range(1, 9):
        for name in list(going):
            steps[name] = step
            result = {"loss": LOSSES[name], "training_iteration": step}
            if scheduler.on_trial_result(None, trials[name], result) != TrialScheduler.CONTINUE:
                going.remove(name)
    return steps


def steps_by_optuna():
    """The same by Optuna's pruner."""
    study = optuna.create_study(pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2))
    trials = {name: study.ask() for name in LOSSES}
    steps = dict.fromkeys(LOSSES, 0)
    going = list(LOSSES)
    for step in range(1, 9):
        for name in list(going):
            steps[name] = step
            trials[name].report(LOSSES[name], step)
            if trials[name].should_prune():
                going.remove(name)
    return steps


changed = []
for name, steps, expected in (("ASHA of Ray Tune", steps_by_ray(), 8), ("Optuna", steps_by_optuna(), 1)):
    print(f"  {name}: " + ", ".join(f"{trial} (loss {LOSSES[trial]}) {count} steps of 8" for trial, count in steps.items()))
    if steps["diverged"] != expected or steps["poor"] == 8:
        changed.append(f"{name}: {steps}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
