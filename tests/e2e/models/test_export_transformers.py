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

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
import jax.random as jrandom
import numpy as np
import pytest
from haliax import Axis
from levanter.layers.attention import AttentionMask

from marin.recipe.schema import Lora, Model, Recipe
from marin.training.adapters import adapters_of, merged, write_adapters
from marin.training.export import write_model
from marin.training.initial import initial_state
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
PEFT_PROGRAM = """
import sys, warnings, numpy as np, torch
from peft import PeftModel
from transformers import AutoModelForCausalLM
base, adapters, tokens, out = sys.argv[1:]
with warnings.catch_warnings():
    warnings.filterwarnings("error", message=".*missing adapter keys.*")
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, torch_dtype=torch.float32), adapters).eval()
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


every_architecture = pytest.mark.parametrize(
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
        Model(
            architecture="qwen3",
            hidden_dim=32,
            intermediate_dim=48,
            num_layers=2,
            num_heads=4,
            num_kv_heads=2,
            seq_len=16,
            tie_word_embeddings=True,
            rope_theta=1e6,
            initializer_range=0.3,
        ),
    ],
    ids=["llama", "llama-tied", "gpt2", "qwen3"],
)


@every_architecture
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


@every_architecture
def test_peft_reads_the_adapters(model: Model, tmp_path: Path) -> None:
    """The base's folder and the folder of adapters, as PEFT puts them together, are the merged model that is exported."""
    python = torch_python()
    if subprocess.run([python, "-c", "import peft"], capture_output=True, check=False).returncode:
        pytest.skip(f"{python} has no peft")
    recipe = Recipe(model=model, lora=(lora := Lora(rank=4, alpha=6.0)))
    drawn, draw = initial_state(recipe, VOCAB).model, np.random.default_rng(2)
    own = adapters_of(eqx.filter(drawn, eqx.is_array))
    adapters = jax.tree.map(lambda x: jnp.asarray(draw.normal(0, 0.3, x.shape), jnp.float32), own)
    base = merged(eqx.combine(jax.tree.map(jnp.zeros_like, own), drawn))
    (tmp_path / "base").mkdir()
    write_model(tmp_path / "base", base, recipe, VOCAB)
    write_adapters(tmp_path / "adapters", eqx.combine(adapters, drawn), lora, str(tmp_path / "base"))
    tokens = draw.integers(0, VOCAB, (2, model.seq_len), dtype=np.int32)
    np.save(tmp_path / "tokens.npy", tokens)
    ids = hax.named(tokens, ("batch", "position"))
    ours, alone = (
        np.asarray(one(ids, AttentionMask.causal()).array) for one in (merged(eqx.combine(adapters, drawn)), base)
    )
    done = subprocess.run(
        [python, "-c", PEFT_PROGRAM, *(tmp_path / name for name in ("base", "adapters", "tokens.npy", "logits.npy"))],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    theirs = np.load(tmp_path / "logits.npy")
    assert np.abs(ours - alone).max() > 0.1, "the adapters say something"
    np.testing.assert_allclose(ours, theirs, rtol=5e-4, atol=5e-4)


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
