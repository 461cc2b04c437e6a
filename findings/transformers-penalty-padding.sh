#!/usr/bin/env bash
# transformers' generate counts padding as said: under repetition_penalty the prompts' padding on the left, which the mask hides from the model, is
# penalized like words of the prompt. Where the end token is the padding (as everybody sets it for GPT-2 and Llama), a shorter prompt of a batch is
# less likely to end, so greedy answers are other ones, and longer, than the same prompt has alone, by the length of its neighbours. Without
# a penalty, or with a padding token of its own, they are the same. text-generation-inference once had it too (text-generation-inference#1765). To
# do: a padding token that is not the end token, or prompts one by one.
#
#   bash findings/transformers-penalty-padding.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, minutes, and some GB where torch brings CUDA), prints the versions and what
# it sees. Exit status 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-5.12.1}
folder=$(mktemp -d "${TMPDIR:-/tmp}/transformers-penalty-padding.XXXXXX")
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
from transformers import GPT2Config, GPT2LMHeadModel

logging.disable(logging.CRITICAL)
torch.set_num_threads(1)
print(f"transformers {version('transformers')}, torch {torch.__version__}, Python {sys.version.split()[0]}")
END, OWN, PROMPTS, NEW = 0, 50, 12, 16
torch.manual_seed(1)
model = GPT2LMHeadModel(GPT2Config(vocab_size=51, n_positions=64, n_embd=48, n_layer=1, n_head=4, bos_token_id=END, eos_token_id=END)).eval()
for parameter in model.parameters():
    if parameter.dim() > 1:
        torch.nn.init.normal_(parameter, std=0.3)


def answer(prompt, padding, penalty, pad):
    """What the model says after a prompt of one row with so much padding on the left, up to its end token."""
    row = torch.cat([torch.full((1, padding), pad), prompt], 1)
    mask = torch.cat([torch.zeros(1, padding, dtype=torch.long), torch.ones_like(prompt)], 1)
    settings = {"do_sample": False, "max_new_tokens": NEW, "repetition_penalty": penalty, "pad_token_id": pad}
    said = model.generate(row, attention_mask=mask, suppress_tokens=[OWN], **settings)[0, row.shape[1] :].tolist()
    return said[: said.index(END)] if END in said else said


changed = []
for penalty, pad, name in ((1.0, END, "the end token"), (1.3, OWN, "a token of its own"), (1.3, END, "the end token")):
    other = longer = 0
    for seed in range(PROMPTS):
        prompt = torch.randint(1, OWN, (1, 3), generator=torch.Generator().manual_seed(seed))
        alone, padded = answer(prompt, 0, penalty, pad), answer(prompt, 5, penalty, pad)
        other += alone != padded
        longer += len(padded) > len(alone)
    print(f"  penalty {penalty}, padding by {name}: of {PROMPTS} prompts {other} have another answer when padded, {longer} a longer one")
    if (other > 0) is not (penalty > 1 and pad == END) or longer != other:
        changed.append(f"penalty {penalty}, {name}: {other} others, {longer} longer")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
