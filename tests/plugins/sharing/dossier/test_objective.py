"""What a dossier says a training lowered is what its recipe says."""

from __future__ import annotations

from typing import Any

import pytest

from marin.plugins.sharing.dossier.facts import objective_of
from marin.recipe.arithmetic import EXACT
from marin.recipe.schema import from_mapping, plain, unplain

FILES = {"kind": "files", "globs": ["*.jsonl"]}
TWO = {"trainer": {"batch_size": 16}, "arithmetic": {"microbatch_size": 2}}
EXACTLY = {"arithmetic": unplain(plain(EXACT)), "seed": 1, "order": "swap-or-not"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "cross entropy of the next token"),
        ({"dataset": {**FILES, "chat": True}}, "cross entropy of the next token of what the assistant says"),
        (
            {
                "dataset": {**FILES, "preferences": True, "chat": True, "chat_reference": "transformers"},
                "lora": {"dpo_beta": 0.1},
                **TWO,
            },
            "direct preference optimization (DPO), beta 0.1",
        ),
        (
            {**EXACTLY, "objective": {"reward": "exact_match"}},
            "group relative policy optimization (GRPO) of completions that the model draws, by the reward exact_match",
        ),
        (
            {
                **EXACTLY,
                "objective": {
                    "name": "reinforce",
                    "reward": {"file": "r.py", "function": "short", "digest": f"sha256:{'0' * 64}"},
                },
            },
            "policy gradient (REINFORCE) of completions that the model draws, by the reward short",
        ),
    ],
)
def test_the_objective_is_the_recipes(values: dict[str, Any], said: str) -> None:
    assert objective_of(from_mapping(values, where="test")) == said
