"""A small policy: its recipe, its tokenizer, and what draws by it. Programs of exact arithmetic are compiled once."""

from __future__ import annotations

from pathlib import Path

import pytest
from compiled_once import compiled_once

from tests.adversary.forgeries.rewards import VOCABULARY, put_tokenizer, recipe_with

__all__ = ["VOCABULARY", "compiled_once", "recipe_with", "vocabulary"]


@pytest.fixture(scope="session")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a byte-level tokenizer of 260 tokens."""
    return put_tokenizer(tmp_path_factory.mktemp("tokenizer"))
