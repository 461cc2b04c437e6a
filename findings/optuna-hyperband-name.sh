#!/usr/bin/env bash
# A seeded study with HyperbandPruner goes another way when it has another name: the bracket of a trial, and so whether it is pruned, is a hash
# of the study's name and the trial's number. A study without a name gets a random one, so the same seed in two processes gives two searches.
# Which bracket a trial is in decides what TPE has seen, so parameters differ too.
#
#   bash findings/optuna-hyperband-name.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-5.0.0}
folder=$(mktemp -d "${TMPDIR:-/tmp}/optuna-hyperband-name.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "optuna==$version" "numpy==2.5.5" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

import optuna

print(f"optuna {version('optuna')}, Python {sys.version.split()[0]}")
optuna.logging.set_verbosity(optuna.logging.ERROR)


def objective(trial):
    x = trial.suggest_float("x", 0, 1)
    for step in range(27):
        trial.report(abs(x - 0.3) + 1 / (step + 1), step)
        if trial.should_prune():
            raise optuna.TrialPruned()
    return abs(x - 0.3)


def searched(name, pruner):
    study = optuna.create_study(study_name=name, sampler=optuna.samplers.TPESampler(seed=0), pruner=pruner)
    study.optimize(objective, n_trials=40)
    return [(trial.params["x"], trial.state.name) for trial in study.trials]


def hyperband():
    return optuna.pruners.HyperbandPruner(min_resource=1, max_resource=27, reduction_factor=3)


changed = []
one, again, two = (searched(name, hyperband()) for name in ("a", "a", "b"))
free = [searched(None, hyperband()) for _ in range(2)]
median = [searched(name, optuna.pruners.MedianPruner()) for name in ("a", "b")]
for name, found in (("study a", one), ("study a again", again), ("study b", two), ("no name", free[0]), ("no name again", free[1])):
    print(f"  {name + ':':16}{sum(state == 'PRUNED' for _, state in found)} of 40 pruned, x of the last trial {found[-1][0]:.4f}")
print(f"  with MedianPruner studies a and b are equal: {median[0] == median[1]}")
assert one == again and median[0] == median[1], "the seed decides all but the brackets"
if one == two:
    changed.append("studies a and b have equal trials")
if free[0] == free[1]:
    changed.append("two studies without a name have equal trials")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
