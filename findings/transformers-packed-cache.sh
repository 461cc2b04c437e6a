#!/usr/bin/env bash
# A row of two documents whose position ids begin again at the second one: transformers keeps the documents apart by itself, and tells so by neither
# word nor argument, only where no mask is given and use_cache=False. With the default use_cache=True (though nothing is cached before a first
# call), or with a mask of ones as every tokenizer and collator gives, the second document sees the first; so a packed evaluation with the defaults
# has other losses than packed training by TRL, which sets both. The same of sdpa and eager. transformers#46634 (the mask) was closed. To do: for
# packed rows attention_mask=None and use_cache=False, and a test that changes the first document.
#
#   bash findings/transformers-packed-cache.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, minutes, and some GB where torch brings CUDA), prints the versions and what
# it sees. Exit status 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-5.12.1}
folder=$(mktemp -d "${TMPDIR:-/tmp}/transformers-packed-cache.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "transformers==$version" "torch==2.13.0" "numpy==2.4.6" >&2
cd "$folder"
HF_HUB_OFFLINE=1 "$folder/venv/bin/python" - <<'PYTHON'
import logging
import sys
from importlib.metadata import version

import torch
from transformers import LlamaConfig, LlamaForCausalLM

logging.disable(logging.CRITICAL)
torch.set_num_threads(1)
print(f"transformers {version('transformers')}, torch {torch.__version__}, Python {sys.version.split()[0]}")
torch.manual_seed(0)
sizes = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
model = LlamaForCausalLM(LlamaConfig(**sizes)).eval()
for parameter in model.parameters():
    if parameter.dim() > 1:
        torch.nn.init.normal_(parameter, std=0.2)
first, other, second = (torch.randint(3, 64, (1, 10)) for _ in range(3))
places = torch.tensor([[*range(10), *range(10)]])


@torch.no_grad()
def of_second(before, **settings):
    """The logits of the second document, behind another one."""
    return model(torch.cat([before, second], 1), position_ids=places, **settings).logits[:, 10:]


changed = []
ones = torch.ones_like(places)
for kind in ("sdpa", "eager"):
    model.set_attn_implementation(kind)
    with torch.no_grad():
        alone = model(second).logits
    for name, settings, apart in (
        ("no mask, use_cache=False", {"use_cache": False}, True),
        ("no mask, use_cache=True", {}, False),
        ("mask of ones, use_cache=False", {"use_cache": False, "attention_mask": ones}, False),
        ("mask of ones, use_cache=True", {"attention_mask": ones}, False),
    ):
        behind, away = of_second(first, **settings), of_second(other, **settings)
        distance = float((behind - alone).norm() / alone.norm())
        seen = float((behind - away).norm() / alone.norm())
        print(f"  {kind:5} {name:30} the second document is {distance:.0e} from itself alone, {seen:.0e} behind another first one")
        if (distance < 1e-4 and seen < 1e-4) is not apart:
            changed.append(f"{kind}, {name}: {distance}, {seen}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
