#!/usr/bin/env bash
# Levanter's per_device_parallelism, a setting of memory, changes what is trained where rows have unequal numbers of counted tokens (prompts
# that are masked, packed or padded rows): loss and gradient of a step are the mean of the microbatches' means, and not the mean over the
# tokens of the batch, as they are when the batch is not cut. With rows of equal masks the two are the same but for rounding. A change that was
# proposed upstream (marin-community/levanter#842) is open.
#
#   bash findings/levanter-microbatch-mean.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, three minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.2.227.dev40316220070}
folder=$(mktemp -d "${TMPDIR:-/tmp}/levanter-microbatch-mean.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "marin-levanter==$version" "marin-haliax==$version" "jax==0.11.2" "jaxlib==0.11.2" "numpy==2.5.5" >&2
cd "$folder"
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - 2>messages <<'PYTHON' || { status=$?; cat messages >&2; exit $status; }
import sys
from importlib.metadata import version
from pathlib import Path

import haliax as hax
import jax
import jax.numpy as jnp
import jmp
import numpy as np
import optax
from levanter.checkpoint import CheckpointerConfig
from levanter.distributed import DistributedConfig
from levanter.layers.attention import AttentionMask
from levanter.models.llama import LlamaConfig
from levanter.models.lm_model import LmExample
from levanter.tracker.tracker import NoopConfig
from levanter.trainer import Trainer, TrainerConfig

print(f"marin-levanter {version('marin-levanter')}, jax {version('jax')}, Python {sys.version.split()[0]}")
LENGTH, ROWS = 16, 4
model = LlamaConfig(max_seq_len=LENGTH, hidden_dim=32, intermediate_dim=64, num_layers=1, num_heads=2, num_kv_heads=2)


def loss_of_step(counted, at_once):
    """The loss that a train step reports, of rows with so many counted tokens, ``at_once`` rows in a microbatch."""
    config = TrainerConfig(
        id="finding", require_accelerator=False, distributed=DistributedConfig(initialize_jax_distributed=False),
        tracker=NoopConfig(), mp=jmp.get_policy("f32"), train_batch_size=ROWS, per_device_parallelism=at_once,
        num_train_steps=1, log_jaxprs=False, log_xla_hlo=False, load_checkpoint=False,
        checkpointer=CheckpointerConfig(base_path="checkpoints"), log_dir=Path("logs"),
    )
    loss = lambda model, example, key=None: model.compute_next_token_loss(example, key=key)
    with Trainer(config, optax.sgd(1.0), loss, add_default_hooks=False) as trainer:
        axes, vocabulary = (hax.Axis("batch", ROWS), model.max_Pos), hax.Axis("vocab", 64)
        state = trainer.initial_state(
            jax.random.PRNGKey(0), model_init=lambda: model.build(vocabulary, key=jax.random.PRNGKey(1))
        )
        tokens = jax.random.randint(jax.random.PRNGKey(2), (ROWS, LENGTH), 0, 64)
        weights = (np.arange(LENGTH) < np.array(counted)[:, None]).astype(np.float32)
        example = LmExample(hax.named(tokens, axes), hax.named(jnp.asarray(weights), axes), AttentionMask.causal())
        return float(trainer.train_step(state, example).loss)


CASES = {"equal": [15, 15, 15, 15], "unequal": [1, 1, 15, 15]}
seen = {name: [loss_of_step(counted, at_once) for at_once in (4, 2)] for name, counted in CASES.items()}
for name, (whole, cut) in seen.items():
    print(f"{name} numbers of counted tokens {CASES[name]}: loss of the step {whole:.6f}, with per_device_parallelism=2 {cut:.6f}")
changed = []
assert abs(seen["equal"][0] - seen["equal"][1]) < 1e-5, "a cut of rows alike changes the rounding alone"
if abs(seen["unequal"][0] - seen["unequal"][1]) < 1e-3:
    changed.append("the cut does not change the loss")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
