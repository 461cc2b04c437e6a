"""Levanter's own Trainer on a tiny model of one of its families, with its defaults: FSDP over the devices.

The family is the argument: llama, gpt2 or qwen3.
"""

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import haliax as hax
import jax
import jmp
import numpy as np
from levanter.checkpoint import CheckpointerConfig, latest_checkpoint_path, load_checkpoint, save_checkpoint
from levanter.distributed import DistributedConfig
from levanter.layers.attention import AttentionMask
from levanter.models.gpt2 import Gpt2Config
from levanter.models.llama import LlamaConfig
from levanter.models.lm_model import LmExample
from levanter.models.qwen import Qwen3Config
from levanter.optim.config import AdamConfig
from levanter.tracker.tracker import NoopConfig
from levanter.trainer import Trainer, TrainerConfig

from bench.census.journal import Journal, setting

want = setting()
journal = Journal(want)
LENGTH, BATCH = 64, 16
size: dict[str, Any] = {"max_seq_len": LENGTH, "hidden_dim": 64, "num_layers": 2, "num_heads": 4}
config = {
    "llama": lambda: LlamaConfig(**size, num_kv_heads=4, intermediate_dim=176),
    "gpt2": lambda: Gpt2Config(**size),
    "qwen3": lambda: Qwen3Config(**size, num_kv_heads=4, intermediate_dim=176),
}[sys.argv[1]]()
trainer_config = TrainerConfig(
    id="census",
    require_accelerator=False,
    distributed=DistributedConfig(initialize_jax_distributed=False),
    tracker=NoopConfig(),
    mp=jmp.get_policy("f32"),
    train_batch_size=BATCH,
    per_device_parallelism=BATCH // want.devices // want.cut,
    num_train_steps=8,
    log_jaxprs=False,
    log_xla_hlo=False,
    load_checkpoint=False,
    checkpointer=CheckpointerConfig(base_path=want.checkpoint, save_interval=timedelta(days=1)),
    log_dir=Path(want.folder, "logs"),
)
optimizer = AdamConfig(learning_rate=1e-3, warmup=0.0).build(8)


def loss_of(model: Any, example: LmExample, key: Any = None) -> Any:
    return model.compute_next_token_loss(example, key=key)


def example_of(rows: Any) -> LmExample:
    axes = hax.Axis("batch", len(rows)), config.max_Pos
    weights = np.ones(rows.shape, np.float32)
    weights[:, -1] = 0
    tokens, weights = (hax.named(jax.numpy.asarray(values), axes) for values in (rows, weights))
    return LmExample(tokens, weights, AttentionMask.causal())


text = np.frombuffer(want.text().encode("ascii"), dtype=np.uint8).astype(np.int32)
rows = text[: len(text) // LENGTH * LENGTH].reshape(-1, LENGTH)
with Trainer(trainer_config, optimizer, loss_of, add_default_hooks=False) as trainer:
    vocabulary = hax.Axis("vocab", 128)
    state = trainer.initial_state(
        jax.random.PRNGKey(0), model_init=lambda: config.build(vocabulary, key=jax.random.PRNGKey(1))
    )
    first = 0
    if want.resume:
        saved = latest_checkpoint_path(want.checkpoint)
        state = load_checkpoint(state, saved, axis_mapping=trainer.parameter_axis_mapping, mesh=trainer.device_mesh)
        first = int(state.step)
    for step in range(first, want.steps):
        batch = rows[BATCH * step : BATCH * step + BATCH]
        example = example_of(batch)
        info = trainer.train_step(state, hax.shard(example, trainer.compute_axis_mapping))
        state = info.state
        journal.step(step, info.loss, state.model, batch)
    if want.steps < 8:
        save_checkpoint(state, want.steps, want.checkpoint)
    else:

        @hax.named_jit(axis_resources=trainer.compute_axis_mapping)
        def evaluate(model: Any, example: LmExample) -> Any:
            each = model.compute_next_token_loss(example, key=None, reduction=None, reduction_axis=())
            return hax.mean(each, config.max_Pos).array

        parts = (rows[start : start + want.evaluation] for start in range(0, 32, want.evaluation))
        journal.evaluation(np.concatenate([evaluate(state.model, example_of(part)) for part in parts]))
