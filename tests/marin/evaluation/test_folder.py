"""A Hugging Face folder is read as the model that it is, or refused by the setting that makes it another."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import jax.random as jrandom
import ml_dtypes
import msgspec
import numpy as np
import pytest
from haliax import Axis
from safetensors.flax import save_file as save
from safetensors.numpy import load_file, save_file

from marin.errors import DataError, UsageError
from marin.evaluation.folder import folder_recipe, is_folder
from marin.evaluation.folder_subject import open_folder
from marin.evaluation.scoring import Prompt, Row, Scorer
from marin.evaluation.subject import Subject
from marin.recipe.model import MIXTURES
from marin.recipe.schema import Model, Recipe
from marin.training.export import config_files, hugging_face_config, write_model
from marin.training.model import model_config


def write_tokenizer(folder: Path, subject: Subject) -> None:
    """In the form that is kept, as an export has it: nobody asks transformers, in a process of its own, what it makes of it."""
    (folder / "tokenizer.json").write_text(subject.tokenizer.to_str(), "utf-8")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}', "utf-8")


@pytest.fixture
def exported(tmp_path: Path, subject: Subject, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("marin.training.runtime.canary.check", lambda arithmetic: None)  # this process has no contract
    write_model(tmp_path, subject.model, subject.recipe, 257)
    write_tokenizer(tmp_path, subject)
    return tmp_path


def test_an_exported_model_scores_with_the_same_bits(exported: Path, subject: Subject, scorer: Scorer) -> None:
    (exported / "tokenizer_config.json").unlink()  # here transformers is asked
    recipe = folder_recipe(exported)
    assert is_folder(str(exported)) and not is_folder("latest") and recipe.model == subject.recipe.model
    read = open_folder(exported, recipe)
    rows = [Row((0, *read.encode("the dog runs")), 8), Row((0, *read.encode("a")), 1)]
    assert Scorer(read.model, recipe).score(rows) == scorer.score(rows)


@pytest.mark.table
@pytest.mark.parametrize(
    ("architecture", "head"),
    [
        *(("llama", None), ("gpt2", None), ("qwen3", None), ("llama", 4), ("qwen3", 16)),
        *(("mixtral", None), ("qwen3_moe", None), ("qwen3_moe", 16)),
    ],
)
@pytest.mark.parametrize("tied", [False, True])
def test_both_layouts_come_back_tied_or_not(
    tmp_path: Path,
    subject: Subject,
    architecture: Literal["llama", "gpt2", "qwen3", "mixtral", "qwen3_moe"],
    head: int | None,
    tied: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every tensor, bit for bit: one that is tied is stored once."""
    monkeypatch.setattr("marin.training.runtime.canary.check", lambda arithmetic: None)
    size = Model(
        architecture=architecture,
        hidden_dim=16,
        intermediate_dim=64,
        num_layers=2,
        num_heads=2,
        num_kv_heads=2,
        seq_len=32,
        tie_word_embeddings=tied,
        head_dim=head,
        **({"num_experts": 4, "num_experts_per_tok": 2} if architecture in MIXTURES else {}),
    )
    model = model_config(size).build(Axis("vocab", 257), key=jrandom.PRNGKey(4))
    write_model(tmp_path, model, Recipe(model=size), 257)
    write_tokenizer(tmp_path, subject)
    once = tied or architecture == "gpt2"
    assert ("lm_head.weight" in load_file(tmp_path / "model.safetensors")) is not once
    recipe = folder_recipe(tmp_path)
    assert recipe.model.head_dim == head
    read = open_folder(tmp_path, recipe).model
    before, after = jax.tree.leaves(model), jax.tree.leaves(read)
    assert len(before) == len(after) > 8
    assert all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize(
    "model",
    [
        Model(),
        Model(rope="llama3"),
        Model(rope_theta=100000.0),
        Model(rope="llama3", rope_theta=250000.0, rope_factor=32.0),
        Model(num_kv_heads=2, tie_word_embeddings=True),
        Model(architecture="gpt2", intermediate_dim=512, tie_word_embeddings=False),
        Model(architecture="qwen3", num_kv_heads=2, rope_theta=1e6),
        Model(architecture="qwen3", hidden_dim=1024, num_heads=16, num_kv_heads=8, head_dim=128),
        Model(head_dim=8),
        Model(architecture="mixtral", num_experts=8, num_experts_per_tok=2, router_aux_loss_coef=0.01),
        Model(architecture="mixtral", num_experts=4, num_experts_per_tok=1, rope_theta=1e6),
        Model(architecture="qwen3_moe", num_experts=16, num_experts_per_tok=4, router_aux_loss_coef=0.002),
        Model(architecture="qwen3_moe", num_experts=4, num_experts_per_tok=2, head_dim=64, num_kv_heads=2),
    ],
)
def test_the_sizes_of_a_model_come_back(tmp_path: Path, model: Model) -> None:
    config = hugging_face_config(Recipe(model=model), 300)
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert folder_recipe(tmp_path).model == model


def test_a_padded_vocabulary_is_the_models(exported: Path, subject: Subject, scorer: Scorer) -> None:
    """As many folders have it: rows without a token. They count in every softmax, and come back as they are."""
    tensors = load_file(exported / "model.safetensors")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = np.concatenate([tensors[name], np.full((7, tensors[name].shape[1]), 0.25, np.float32)])
    save_file(tensors, exported / "model.safetensors")
    config = json.loads((exported / "config.json").read_bytes())
    (exported / "config.json").write_text(json.dumps(config | {"vocab_size": 264}), encoding="utf-8")
    recipe = folder_recipe(exported)
    assert recipe.model == msgspec.structs.replace(subject.recipe.model, embedding_rows=264)
    read, rows = open_folder(exported, recipe), [Row((0, 5, 6, 7, 8), 4)]
    ours, padded = scorer.score(rows)[0], Scorer(read.model, recipe).score(rows)[0]
    assert np.all(np.asarray(padded.logprobs) < np.asarray(ours.logprobs)), "seven more rows to choose from"
    write_model(exported, read.model, recipe, 264)
    assert load_file(exported / "model.safetensors")["lm_head.weight"].tobytes() == tensors["lm_head.weight"].tobytes()
    (exported / "config.json").write_text(json.dumps(config | {"vocab_size": 200}), encoding="utf-8")
    with pytest.raises(UsageError, match="a token without a row"):
        open_folder(exported, folder_recipe(exported))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model_type": "gemma"}, "llama, qwen3, mistral, olmo2, mixtral, qwen3_moe, gpt2"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"layer_types": ["sliding_attention"]}, "layer_types.*sliding_attention"),
        ({"layer_types": 5}, "layer_type"),
        ({"rope_parameters": {"rope_theta": "large"}}, "sizes of a model"),
        ({"rope_parameters": {"rope_theta": 0.5}}, "sizes of a model"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0}}, "low_freq_factor"),
        ({"rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5}}, "rope_type default"),
        ({"vocab_size": "many"}, "sizes of a model"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "rope_type default"),
        ({"rope_parameters": ["llama3"]}, "rope_parameters"),
        ({"rope_scaling": {"factor": 8.0}}, "rope_scaling"),
        ({"attention_bias": True}, "attention_bias"),
        ({"head_dim": 99}, "head_dim"),
        ({"eos_token_id": [1, None]}, "eos_token_id"),
        ({"bos_token_id": "<s>"}, "bos_token_id"),
        ({"hidden_size": None}, "hidden_size"),
        ({"hidden_size": "wide"}, "sizes of a model"),
        ({"is_causal": False}, "is_causal.*expected True"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"num_attention_heads": 0}, "config.json"),
    ],
)
def test_another_model_is_refused_by_what_makes_it_another(exported: Path, changed: dict[str, Any], said: str) -> None:
    path = exported / "config.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | changed), encoding="utf-8")
    with pytest.raises(UsageError, match=said):
        folder_recipe(exported)


def test_ends_of_text_are_the_folders(exported: Path) -> None:
    path = exported / "config.json"
    told = json.loads(path.read_bytes())
    for ends, found in (
        ({"bos_token_id": 1, "eos_token_id": 2}, (1, 2)),
        ({"bos_token_id": 50, "eos_token_id": [51, 52]}, (50, 51)),
        ({"bos_token_id": 7, "eos_token_id": 7}, (7, 7)),
        ({"bos_token_id": 0, "eos_token_id": 0}, (0, 0)),
    ):
        path.write_text(json.dumps(told | ends), encoding="utf-8")
        recipe = folder_recipe(exported)
        assert (recipe.tokens.begin, recipe.tokens.end) == found
    assert recipe.tokens == Recipe().tokens, "our own folders give our own recipe"


def test_a_generation_ends_with_the_folders_end_of_text(exported: Path, subject: Subject) -> None:
    path = exported / "config.json"
    prompt = Prompt((5, 6), 12, lambda new: False, 1.0, "ends")
    (free,) = Scorer(subject.model, subject.recipe).generate([prompt], 3)
    (exported / "generation_config.json").unlink()
    for ends in (free[2], [free[5], free[2]]):
        path.write_text(json.dumps(json.loads(path.read_bytes()) | {"eos_token_id": ends}), encoding="utf-8")
        read = open_folder(exported, folder_recipe(exported))
        (cut,) = Scorer(read.model, read.recipe).generate([prompt], 3)
        assert cut == free[:3] and read.decode(cut) == read.decode(cut[:2])


def test_every_end_of_generation_config_ends_a_text(exported: Path) -> None:
    """As ``generate`` of transformers 5.12.1 has it: the file alone counts where it is there, and may name none."""
    path, generation = exported / "config.json", exported / "generation_config.json"
    told = json.loads(path.read_bytes())
    for said, beside, end, stops in (
        (5, {"eos_token_id": [3, 4]}, 5, (3, 4)),
        ([5, 6], {"eos_token_id": 5}, 5, (5,)),
        (5, {"do_sample": True}, 5, ()),
        ([5, 6], None, 5, (5, 6)),
        (None, {"eos_token_id": 9}, 9, (9,)),
    ):
        path.write_text(json.dumps(told | {"eos_token_id": said}), encoding="utf-8")
        generation.unlink(missing_ok=True)
        if beside is not None:
            generation.write_text(json.dumps(beside), encoding="utf-8")
        recipe = folder_recipe(exported)
        assert (recipe.tokens.end, recipe.tokens.stops) == (end, stops)
        generation.unlink(missing_ok=True)
        again = exported / "again"
        again.mkdir(exist_ok=True)
        for name, content in config_files(recipe, 257).items():
            (again / name).write_text(json.dumps(content), encoding="utf-8")
        assert folder_recipe(again).tokens == recipe.tokens, "what is exported comes back"


def halved(folder: Path) -> None:
    """16 bits, in two files with an index."""
    tensors = {
        name: value.astype(ml_dtypes.bfloat16) for name, value in load_file(folder / "model.safetensors").items()
    }
    names = sorted(tensors)
    parts = {"model-1.safetensors": names[:3], "model-2.safetensors": names[3:]}
    for file, part in parts.items():
        save({name: jnp.asarray(tensors[name]) for name in part}, folder / file)
    (folder / "model.safetensors").unlink()
    where = {name: file for file, part in parts.items() for name in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}), "utf-8")


def test_sixteen_bits_in_parts_are_the_float32_that_they_are(exported: Path, subject: Subject) -> None:
    halved(exported)
    read = open_folder(exported, folder_recipe(exported)).model
    for before, after in zip(jax.tree.leaves(subject.model), jax.tree.leaves(read), strict=True):
        expected = np.asarray(before).astype(ml_dtypes.bfloat16).astype(np.float32)
        assert np.asarray(after).dtype == np.float32 and np.asarray(after).tobytes() == expected.tobytes()
    (exported / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../b.safetensors"}}', "utf-8")
    with pytest.raises(UsageError, match="cannot be read"):
        open_folder(exported, folder_recipe(exported))


def test_gpt2s_other_names_and_masks_are_read(
    tmp_path: Path, subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("marin.training.runtime.canary.check", lambda arithmetic: None)
    size = Model(
        architecture="gpt2", hidden_dim=16, intermediate_dim=64, num_layers=1, num_heads=2, num_kv_heads=2, seq_len=32
    )
    model = model_config(size).build(Axis("vocab", 257), key=jrandom.PRNGKey(4))
    write_model(tmp_path, model, Recipe(model=size), 257)
    write_tokenizer(tmp_path, subject)
    tensors = {f"transformer.{name}": value for name, value in load_file(tmp_path / "model.safetensors").items()}
    inner = {**tensors, "transformer.h.0.attn.bias": np.ones((1, 1, 32, 32), np.float32)}
    for head in ({}, {"lm_head.weight": tensors["transformer.wte.weight"]}):
        save_file({**inner, **head}, tmp_path / "model.safetensors")
        read = open_folder(tmp_path, folder_recipe(tmp_path)).model
        for before, after in zip(jax.tree.leaves(model), jax.tree.leaves(read), strict=True):
            assert np.asarray(before).tobytes() == np.asarray(after).tobytes()
    save_file({**inner, "lm_head.weight": tensors["transformer.wte.weight"] + 1}, tmp_path / "model.safetensors")
    with pytest.raises(UsageError, match="though its embeddings are tied"):
        open_folder(tmp_path, folder_recipe(tmp_path))


def renamed(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({f"x.{name}": value for name, value in tensors.items()}, folder / "model.safetensors")


def narrower(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = np.ones(3, np.float32)
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(
    "damage",
    [
        renamed,
        narrower,
        lambda folder: (folder / "model.safetensors").write_bytes(b"\xff" * 20),
        lambda folder: (folder / "model.safetensors").unlink(),
        lambda folder: (folder / "tokenizer.json").write_text("{}"),
    ],
)
def test_a_folder_whose_tensors_are_others_is_an_answer(exported: Path, damage: Callable[[Path], object]) -> None:
    recipe = folder_recipe(exported)
    damage(exported)
    with pytest.raises((UsageError, DataError), match="cannot be read"):
        open_folder(exported, recipe)
