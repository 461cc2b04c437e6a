"""A small policy: its recipe, its tokenizer, and what draws by it. Programs of exact arithmetic are compiled once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from compiled_once import compiled_once
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from marin.recipe.arithmetic import EXACT
from marin.recipe.schema import Recipe, from_mapping, plain, unplain

__all__ = ["compiled_once", "recipe_with", "vocabulary"]

VOCABULARY = 260
GIVEN = {
    "seed": 3,
    "order": "swap-or-not",
    "tokenizer": {"vocab_size": VOCABULARY},
    "model": {
        "hidden_dim": 16,
        "intermediate_dim": 24,
        "num_layers": 2,
        "num_heads": 2,
        "num_kv_heads": 1,
        "seq_len": 24,
    },
    "trainer": {"num_steps": 4, "batch_size": 4, "steps_per_segment": 2},
    "optimizer": {"learning_rate": 0.01, "warmup_steps": 0},
    "arithmetic": {**unplain(plain(EXACT)), "microbatch_size": 2},
    "objective": {"prompts": "sums", "num_generations": 2, "max_completion_length": 6},
}


def recipe_with(**changes: dict[str, Any]) -> Recipe:
    """The small recipe, with some values of some sections changed."""
    return from_mapping(
        {key: {**value, **changes.get(key, {})} if isinstance(value, dict) else value for key, value in GIVEN.items()},
        where="test",
    )


@pytest.fixture(scope="session")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a byte-level tokenizer of 260 tokens."""
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    library.train_from_iterator(["1+2=3 see the bee"], trainer)
    folder = tmp_path_factory.mktemp("tokenizer")
    library.save(str(folder / "tokenizer.json"))
    return folder
