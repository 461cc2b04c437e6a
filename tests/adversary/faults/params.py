"""The small run of the fault bench, in words that need no jax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marin.recipe.schema import Execution, Recipe, from_mapping

PARAMS: Mapping[str, Any] = {
    "seed": 3,
    "dataset": {"kind": "grammar", "train_bytes": 60_000, "validation_bytes": 10_000, "minimal_pairs": 8},
    "tokenizer": {"vocab_size": 400},
    "model": {
        "hidden_dim": 16,
        "intermediate_dim": 24,
        "num_layers": 2,
        "num_heads": 2,
        "num_kv_heads": 2,
        "seq_len": 16,
    },
    "optimizer": {"warmup_steps": 2},
    "trainer": {"num_steps": 12, "batch_size": 4, "steps_per_segment": 4},
    "arithmetic": {"logical_shards": 2, "microbatch_size": 1},
    "evaluation": {"max_sequences": 8, "batch_size": 8, "minimal_pairs": 8},
}
EXECUTION = Execution(devices=1)


def recipe() -> Recipe:
    """What the honest run executes."""
    return from_mapping(PARAMS, where="fault bench")
