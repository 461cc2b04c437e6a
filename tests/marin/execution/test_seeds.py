"""A seed that is left open is drawn once, and found again by anyone who asks next."""

from __future__ import annotations

from pathlib import Path

import pytest

from marin.execution.seeds import with_seed
from marin.recipe.schema import Recipe, from_mapping
from marin.record.creation import create_root
from marin.record.events import SEED_DRAWN


def test_a_seed_is_drawn_once_for_a_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    root = create_root(str(tmp_path / ".marin"))
    open_seed = from_mapping({"seed": None}, where="test")
    first = with_seed(root, open_seed)
    assert first.seed is not None and with_seed(root, open_seed) == first
    other = with_seed(root, from_mapping({"seed": None, "tokenizer": {"vocab_size": 300}}, where="test"))
    assert other.seed not in (None, first.seed)
    assert with_seed(root, Recipe(seed=3)).seed == 3
    assert len(list(root.history().events(type=SEED_DRAWN))) == 2
