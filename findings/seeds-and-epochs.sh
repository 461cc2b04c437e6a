#!/usr/bin/env bash
# Two seeds of a training see nearly the same orders of the data: torch's DistributedSampler, accelerate's SeedableRandomSampler (so Hugging Face's
# Trainer) and grain's MapDataset.shuffle().repeat() add the epoch to the seed, so epoch 1 of seed 0 is epoch 0 of seed 1. Ten epochs under the seeds 0, 1
# and 2 have 12 orders and not 30: runs that are called independent share their data, shifted.
#
#   bash findings/seeds-and-epochs.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, minutes, and some GB where torch brings CUDA), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-2.13.0}
folder=$(mktemp -d "${TMPDIR:-/tmp}/seeds-and-epochs.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "torch==$version" "accelerate==1.15.0" "grain==0.2.18" "numpy==2.4.6" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

import grain
import torch
from accelerate.data_loader import SeedableRandomSampler
from torch.utils.data import DistributedSampler

print(f"torch {version('torch')}, accelerate {version('accelerate')}, grain {version('grain')}, Python {sys.version.split()[0]}")
ROWS, EPOCHS, SEEDS = 50, 10, 3


def of_torch(seed, epoch):
    sampler = DistributedSampler(range(ROWS), num_replicas=1, rank=0, shuffle=True, seed=seed)
    sampler.set_epoch(epoch)
    return tuple(sampler)


def of_accelerate(seed, epoch):
    sampler = SeedableRandomSampler(range(ROWS), generator=torch.Generator(), data_seed=seed)
    sampler.set_epoch(epoch)
    return tuple(sampler)


def of_grain(seed, epoch):
    rows = grain.MapDataset.range(ROWS).shuffle(seed=seed).repeat(EPOCHS)
    return tuple(int(rows[place]) for place in range(epoch * ROWS, epoch * ROWS + ROWS))


changed = []
for name, order in (("torch", of_torch), ("accelerate", of_accelerate), ("grain", of_grain)):
    orders = {(seed, epoch): order(seed, epoch) for seed in range(SEEDS) for epoch in range(EPOCHS)}
    unlike = len(set(orders.values()))
    print(f"  {name + ':':12}{SEEDS} seeds, {EPOCHS} epochs: {unlike} orders; epoch 1 of seed 0 is epoch 0 of seed 1: {orders[0, 1] == orders[1, 0]}")
    if unlike != SEEDS + EPOCHS - 1:
        changed.append(f"{name}: {unlike} orders")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
