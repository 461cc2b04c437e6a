#!/usr/bin/env bash
# The mean of an adapter with itself is twice the adapter: PEFT's add_weighted_adapter(["one", "two"], [0.5, 0.5], combination_type="linear") adds
# the factors A and B apart, each by the square root of its weight, so the product has every A with every B. "svd" and "cat" give the adapter. Of two unlike adapters the mean has half of each and half of two
# strangers, one's B with the other's A.
#
#   bash findings/peft-average-doubles.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, minutes, and some GB where torch brings CUDA), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.21.2}
folder=$(mktemp -d "${TMPDIR:-/tmp}/peft-average-doubles.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "peft==$version" "torch==2.13.0" "numpy==2.4.6" "transformers==5.12.1" "accelerate==1.15.0" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

import torch
from peft import LoraConfig, get_peft_model
from torch import nn

print(f"peft {version('peft')}, torch {version('torch')}, Python {sys.version.split()[0]}")
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8, bias=False)

    def forward(self, x):
        return self.layer(x)


torch.manual_seed(0)
plain, rows = Model(), torch.randn(4, 8)
without = plain(rows).detach()
config = LoraConfig(target_modules=["layer"], r=4, lora_alpha=4, init_lora_weights=False)
model = get_peft_model(plain, config, adapter_name="one")
model.add_adapter("two", config)
state = model.state_dict()
for name in [name for name in state if ".one." in name]:
    state[name.replace(".one.", ".two.")].copy_(state[name])


def adds(adapter):
    model.set_adapter(adapter)
    return (model(rows) - without).detach()


one = adds("one")
changed = []
for way, expected in (("linear", 2), ("svd", 1), ("cat", 1)):
    model.base_model.add_weighted_adapter(["one", "two"], [0.5, 0.5], f"mean_{way}", combination_type=way)
    times = float((adds(f"mean_{way}") * one).sum() / (one * one).sum())
    print(f"  {way + ':':8}the mean of two equal adapters is {times:.4f} times the adapter")
    if abs(times - expected) > 0.01:
        changed.append(f"{way}: {times}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
