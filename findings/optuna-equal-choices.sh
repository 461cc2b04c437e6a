#!/usr/bin/env bash
# Optuna takes choices that Python calls equal for one: of suggest_categorical("max_features", [1, 1.0, True]) only the first is ever
# proposed, and GridSampler tries 1 three times. In scikit-learn max_features=1 is one feature and 1.0 all of them, so the half of the
# search that was asked for does not happen, without a word.
#
#   bash findings/optuna-equal-choices.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-5.0.0}
folder=$(mktemp -d "${TMPDIR:-/tmp}/optuna-equal-choices.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "optuna==$version" "numpy==2.5.5" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from collections import Counter
from importlib.metadata import version

import optuna

print(f"optuna {version('optuna')}, Python {sys.version.split()[0]}")
optuna.logging.set_verbosity(optuna.logging.ERROR)
CHOICES = {"[1, 1.0, True]": [1, 1.0, True], "[1.0, 1]": [1.0, 1], "[0, False, None]": [0, False, None], "[1, 2.0]": [1, 2.0]}
EXPECTED = {"[1, 1.0, True]": {"1"}, "[1.0, 1]": {"1.0"}, "[0, False, None]": {"0", "None"}, "[1, 2.0]": {"1", "2.0"}}
changed = []
for name, choices in CHOICES.items():
    samplers = {
        "random": optuna.samplers.RandomSampler(seed=0),
        "TPE": optuna.samplers.TPESampler(seed=0),
        "grid": optuna.samplers.GridSampler({"x": choices}, seed=0),
    }
    for kind, sampler in samplers.items():
        study = optuna.create_study(sampler=sampler)
        study.optimize(lambda trial: trial.suggest_categorical("x", choices) is None, n_trials=len(choices) if kind == "grid" else 60)
        counts = Counter(repr(trial.params["x"]) for trial in study.trials)
        print(f"  {name + ',':18}{kind + ':':8}proposed {dict(counts)}")
        if set(counts) != EXPECTED[name]:
            changed.append(f"{name}, {kind}: {dict(counts)}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
