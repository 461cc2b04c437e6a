"""An exported folder means the same to Levanter and to transformers: the logits of both on the same tokens.

transformers computes with torch, which is not among our dependencies: the test uses the interpreter that
``MARIN_TORCH_PYTHON`` names (any environment with torch and transformers), or this one if it has torch; else it skips.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import haliax as hax
import jax.random as jrandom
import numpy as np
import pytest
from haliax import Axis
from levanter.layers.attention import AttentionMask

from marin.recipe.schema import Model, Recipe
from marin.training.export import write_model
from marin.training.model import model_config

TORCH_PROGRAM = """
import sys, numpy as np, torch
from transformers import AutoModelForCausalLM
folder, tokens, out = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32).eval()
with torch.no_grad():
    logits = model(torch.from_numpy(np.load(tokens)).long()).logits
np.save(out, logits.numpy())
"""
VOCAB = 300


def torch_python() -> str:
    """An interpreter that has torch."""
    named = os.environ.get("MARIN_TORCH_PYTHON")
    if named:
        return named
    if importlib.util.find_spec("torch") is not None:
        return sys.executable
    pytest.skip("torch is not here: set MARIN_TORCH_PYTHON to a Python that has torch and transformers")


@pytest.mark.parametrize(
    "model",
    [
        Model(
            hidden_dim=32,
            intermediate_dim=48,
            num_layers=2,
            num_heads=4,
            num_kv_heads=2,
            seq_len=16,
            initializer_range=0.3,
        ),
        Model(
            hidden_dim=32,
            intermediate_dim=48,
            num_layers=2,
            num_heads=4,
            num_kv_heads=4,
            seq_len=16,
            tie_word_embeddings=True,
            initializer_range=0.3,
        ),
        Model(
            architecture="gpt2",
            hidden_dim=32,
            intermediate_dim=128,
            num_layers=2,
            num_heads=4,
            num_kv_heads=4,
            seq_len=16,
            initializer_range=1.0,
        ),
    ],
    ids=["llama", "llama-tied", "gpt2"],
)
def test_transformers_computes_the_same_logits(model: Model, tmp_path: Path) -> None:
    python = torch_python()
    recipe = Recipe(model=model)  # a wide initialisation, so that a swapped tensor can not hide in small logits
    built = model_config(model).build(Axis("vocab", VOCAB), key=jrandom.PRNGKey(3))
    folder = tmp_path / "model"
    folder.mkdir()
    write_model(folder, built, recipe, VOCAB)
    tokens = np.random.default_rng(1).integers(0, VOCAB, (2, model.seq_len), dtype=np.int32)
    np.save(tmp_path / "tokens.npy", tokens)
    mine = built(hax.named(tokens, ("batch", "position")), AttentionMask.causal()).array
    subprocess.run(
        [python, "-c", TORCH_PROGRAM, folder, tmp_path / "tokens.npy", tmp_path / "logits.npy"],
        check=True,
        capture_output=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        timeout=300,
    )
    theirs = np.load(tmp_path / "logits.npy")
    assert np.abs(theirs).max() > 0.5
    np.testing.assert_allclose(np.asarray(mine), theirs, rtol=2e-4, atol=2e-4)


def test_the_folder_is_the_same_bytes_twice(tmp_path: Path) -> None:
    recipe = Recipe(
        model=Model(
            hidden_dim=32,
            intermediate_dim=48,
            num_layers=2,
            num_heads=4,
            num_kv_heads=4,
            seq_len=16,
            initializer_range=0.3,
        )
    )
    written = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        built = model_config(recipe.model).build(Axis("vocab", VOCAB), key=jrandom.PRNGKey(3))
        write_model(tmp_path / name, built, recipe, VOCAB)
        written.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert written[0] == written[1]
    assert json.loads(written[0]["config.json"])["architectures"] == ["LlamaForCausalLM"]
