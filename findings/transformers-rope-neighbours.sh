#!/usr/bin/env bash
# In transformers a model with RoPE scaling "longrope" (Phi-3, Phi-4-mini) or "dynamic" has one set of frequencies for a whole batch, that of its
# longest row, and padding counts: the logits of a text that is well within the first context are others when it is padded past that length, or lies
# in a batch beside a longer text, though the mask says that nobody sees it. So an evaluation has other numbers by its batch size and by how texts
# are sorted, by far more than rounding; beside a neighbour within the first context they are the same. With "dynamic" the frequencies of a long
# text also stay for the short ones after it, in 5.x until transformers#46624. To do: batches of one length, or of one, for texts on both sides.
#
#   bash findings/transformers-rope-neighbours.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, minutes, and some GB where torch brings CUDA), prints the versions and what
# it sees. Exit status 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-5.12.1}
folder=$(mktemp -d "${TMPDIR:-/tmp}/transformers-rope-neighbours.XXXXXX")
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
from transformers import LlamaConfig, LlamaForCausalLM, Phi3Config, Phi3ForCausalLM

logging.disable(logging.CRITICAL)
torch.set_num_threads(1)
print(f"transformers {version('transformers')}, torch {torch.__version__}, Python {sys.version.split()[0]}")
FIRST = 64  # the context that the model was trained with before it was made longer
SIZES = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"num_key_value_heads": 4, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def longrope():
    pairs = SIZES["hidden_size"] // SIZES["num_attention_heads"] // 2
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": FIRST}
    rope |= {"short_factor": [1.0] * pairs, "long_factor": [1.0 + pair for pair in range(pairs)]}
    return Phi3ForCausalLM(
        Phi3Config(**SIZES, max_position_embeddings=4 * FIRST, original_max_position_embeddings=FIRST, rope_parameters=rope)
    )


def dynamic():
    rope = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}
    return LlamaForCausalLM(LlamaConfig(**SIZES, max_position_embeddings=FIRST, rope_parameters=rope))


def plain():
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    return LlamaForCausalLM(LlamaConfig(**SIZES, max_position_embeddings=4 * FIRST, rope_parameters=rope))


def fresh(make):
    """A model that has seen nothing yet, always with the same weights."""
    torch.manual_seed(0)
    model = make().eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    return model


@torch.no_grad()
def logits(model, *texts, width=0):
    """Those of the first of the texts, which are padded on the right and masked."""
    width = max(width, *(len(text) for text in texts))
    rows = torch.stack([torch.nn.functional.pad(text, (0, width - len(text))) for text in texts])
    mask = torch.stack([(torch.arange(width) < len(text)).long() for text in texts])
    return model(rows, attention_mask=mask).logits[0, : len(texts[0])]


torch.manual_seed(1)
text, near, far = (torch.randint(3, 64, (length,)) for length in (40, 60, 100))
changed = []
for make in (plain, longrope, dynamic):
    alone = logits(fresh(make), text)
    away = {
        "beside a text of 60": logits(fresh(make), text, near),
        "beside a text of 100": logits(fresh(make), text, far),
        "padded to 100": logits(fresh(make), text, width=100),
    }
    away = {name: float((other - alone).norm() / alone.norm()) for name, other in away.items()}
    print(f"  {make.__name__:9} logits of a text of 40 (first context {FIRST}): " + ", ".join(f"{k} {v:.0e} away" for k, v in away.items()))
    expected = [False, make is not plain, make is not plain]
    if [distance > 1e-2 for distance in away.values()] != expected or away["beside a text of 60"] > 1e-4:
        changed.append(f"{make.__name__}: {away}")
model = fresh(dynamic)
before = logits(model, text)
logits(model, far)
after = float((logits(model, text) - before).norm() / before.norm())
print(f"  dynamic   the same text alone, after a text of 100 went through the model: {after:.0e} away")
if version("transformers") == "5.12.1" and after < 1e-2:
    changed.append(f"after a long text {after}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
