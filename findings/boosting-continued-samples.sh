#!/usr/bin/env bash
# Boosting that goes on from a saved model draws its samples from the beginning again: with row sampling, trees 5 to 8 of four rounds and
# four more are grown on the very rows of trees 1 to 4, so four rounds eight times over see four samples and not thirty-two. Nothing says so.
# XGBoost does it after a model is loaded (in one process it goes on; dmlc/xgboost#10324 has the unequal results), LightGBM with init_model too.
#
#   bash findings/boosting-continued-samples.sh [VERSION OF XGBOOST] [VERSION OF LIGHTGBM]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

xgboost=${1:-3.4.1} lightgbm=${2:-4.7.0}
folder=$(mktemp -d "${TMPDIR:-/tmp}/boosting-continued-samples.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
    "xgboost==$xgboost" "lightgbm==$lightgbm" "numpy==2.5.5" "scipy==1.18.1" "narwhals==2.29.0" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import json
import sys
from importlib.metadata import version

import lightgbm
import numpy as np
import xgboost

print(f"xgboost {version('xgboost')}, lightgbm {version('lightgbm')}, numpy {version('numpy')}, Python {sys.version.split()[0]}")
draw = np.random.default_rng(0)
rows = draw.normal(size=(2000, 8)).astype(np.float32)
target = rows[:, 0] + draw.normal(size=2000)
RATE = 1e-6  # so small that all trees see the same gradients, and what differs between them is the sample alone


def of_xgboost(booster):
    """How many rows each tree was grown on."""
    model = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]["model"]
    return [int(tree["sum_hessian"][0]) for tree in model["trees"]]


def of_lightgbm(booster):
    """The gain of the first split of each tree."""
    return [round(tree["tree_structure"]["split_gain"], 1) for tree in booster.dump_model()["tree_info"]]


data = xgboost.DMatrix(rows, target)
settings = {"subsample": 0.5, "max_depth": 2, "eta": RATE, "seed": 0}
whole = of_xgboost(xgboost.train(settings, data, 8))
half = xgboost.train(settings, data, 4)
half.save_model("half.ubj")
here = of_xgboost(xgboost.train(settings, data, 4, xgb_model=half))
loaded = of_xgboost(xgboost.train(settings, data, 4, xgb_model="half.ubj"))
print("xgboost, subsample=0.5: rows of each tree")
print(f"  eight rounds:                     {whole}")
print(f"  four, and four in one process:    {here}")
print(f"  four, saved, loaded, and four:    {loaded}")

settings = {"bagging_fraction": 0.5, "bagging_freq": 1, "num_leaves": 4, "learning_rate": RATE, "verbose": -1, "seed": 0}
sets = [lightgbm.Dataset(rows, target) for _ in range(3)]
straight = of_lightgbm(lightgbm.train(settings, sets[0], 8))
lightgbm.train(settings, sets[1], 4).save_model("half.txt")
again = of_lightgbm(lightgbm.train(settings, sets[2], 4, init_model="half.txt"))
print("lightgbm, bagging_fraction=0.5: gain of each tree's first split")
print(f"  eight rounds:                     {straight}")
print(f"  four, saved, loaded, and four:    {again}")

changed = []
for name, one, two in (("xgboost", whole, loaded), ("lightgbm", straight, again)):
    assert len(set(one)) == 8 and len(two) == 8 and one[:4] == two[:4], f"{name}: eight samples, two of them alike"
    if two[4:] != two[:4]:
        changed.append(f"{name}: trees 5 to 8 have other samples than trees 1 to 4")
if here != whole:
    changed.append("xgboost: in one process four and four are not eight")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
