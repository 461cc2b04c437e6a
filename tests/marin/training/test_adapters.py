"""Low-rank adapters: what is drawn, what moves, and that the merged model is base and adapters."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Literal

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from haliax import Axis
from levanter.adaptor.lora import merge_lora_modules
from levanter.models.lm_model import LmHeadModel
from safetensors.numpy import load_file

from marin.errors import UsageError
from marin.recipe.cost import adapter_parameters
from marin.recipe.schema import Arithmetic, Lora, Model, Optimizer, Recipe, check, digest, from_plain, plain
from marin.training.adapters import adapters_of, merged, write_adapters
from marin.training.export import write_model
from marin.training.imported import imported_state
from marin.training.initial import initial_state
from marin.training.model import model_config
from marin.training.optimizers.rule import optimizer
from marin.training.state import TrainState, arrays_of

VOCABULARY = 257


def recipe(architecture: Literal["llama", "gpt2", "qwen3"] = "llama") -> Recipe:
    model = Model(
        architecture=architecture,
        hidden_dim=16,
        intermediate_dim=64,
        num_layers=2,
        num_heads=2,
        num_kv_heads=2,
        seq_len=16,
    )
    return Recipe(model=model, lora=Lora(rank=4, alpha=6.0))


@cache
def begun(architecture: Literal["llama", "gpt2", "qwen3"] = "llama") -> TrainState:
    """The initial state of its recipe, which nobody changes."""
    return initial_state(recipe(architecture), VOCABULARY)


def moved(told: Recipe) -> LmHeadModel:
    """An adapted model whose adapters are no longer zero."""
    state = begun(told.model.architecture)
    draw = np.random.default_rng(1)
    own = adapters_of(eqx.filter(state.model, eqx.is_array))
    changed = jax.tree.map(lambda x: x + jnp.asarray(draw.normal(0, 0.1, x.shape), jnp.float32), own)
    model: LmHeadModel = eqx.combine(changed, state.model)
    return model


def logits(model: LmHeadModel) -> np.ndarray:
    tokens = hax.named(jax.random.randint(jax.random.PRNGKey(3), (16,), 0, VOCABULARY), "position")
    return np.asarray(eqx.filter_jit(model)(tokens).array)


def test_a_recipe_without_adapters_is_what_it_was() -> None:
    assert "lora" not in plain(Recipe()) and digest(recipe()) != digest(Recipe(model=recipe().model))
    assert from_plain(plain(recipe()), where="test") == recipe()
    with pytest.raises(UsageError, match="lora"):
        check(Recipe(lora=Lora(), arithmetic=Arithmetic(gather="layer")), where="test")


@pytest.mark.table
@pytest.mark.parametrize("architecture", ["llama", "gpt2", "qwen3"])
def test_adapters_change_nothing_before_the_first_step(architecture: Literal["llama", "gpt2", "qwen3"]) -> None:
    told, state = recipe(architecture), begun(architecture)
    found = arrays_of(state)
    second = [name for name in found if name.endswith("lora_B/weight") and name.startswith("model/")]
    assert len(second) == {"llama": 7, "gpt2": 4, "qwen3": 7}[architecture]
    assert all(not found[name].any() for name in second)
    assert all(found[name.replace("lora_B", "lora_A")].any() for name in second)
    assert not [name for name in found if name.startswith("moments/") and "wrapped" in name], "of adapters alone"
    own = [value for name, value in found.items() if name.startswith("model/") and "/lora/" in name]
    assert sum(value.size for value in own) == adapter_parameters(told.model, 4)
    whole, base = arrays_of(initial_state(Recipe(model=told.model), VOCABULARY)), merged(state.model)
    ours, alone = (jax.tree.leaves(eqx.filter(one, eqx.is_array)) for one in (base, state.model))
    assert len(ours) == len(alone) - 2 * len(second), "a plain model"
    for name, value in found.items():
        if name.startswith("model/") and "/lora/" not in name:
            assert np.array_equal(value, whole[name.replace("/wrapped", "")]), name


@pytest.mark.table
@pytest.mark.parametrize("architecture", ["llama", "gpt2", "qwen3"])
def test_the_merged_model_is_base_and_adapters(architecture: Literal["llama", "gpt2", "qwen3"], tmp_path: Path) -> None:
    """Against Levanter's own merge, and against the arithmetic of PEFT on the files that are exported."""
    told = recipe(architecture)
    model = moved(told)
    plain_model, theirs = merged(model), merge_lora_modules(model)
    for one, other in zip(jax.tree.leaves(plain_model), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(logits(plain_model), logits(model), rtol=1e-4, atol=1e-5)
    base = merged(eqx.combine(jax.tree.map(jnp.zeros_like, adapters_of(eqx.filter(model, eqx.is_array))), model))
    assert np.abs(logits(plain_model) - logits(base)).max() > 1e-3
    for name, one in (("merged", plain_model), ("base", base)):
        (tmp_path / name).mkdir()
        write_model(tmp_path / name, one, told, VOCABULARY)
    assert told.lora is not None
    write_adapters(tmp_path / "adapters", model, told.lora, "folder base")
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("base", "merged"))
    adapters = load_file(tmp_path / "adapters" / "adapter_model.safetensors")
    config = json.loads((tmp_path / "adapters" / "adapter_config.json").read_bytes())
    assert (config["r"], config["lora_alpha"], config["base_model_name_or_path"]) == (4, 6.0, "folder base")
    targets = {name for name in before if not np.array_equal(before[name], after[name])}
    assert len(targets) * 2 == len(adapters)
    assert {name.split(".")[-2] for name in targets} == set(config["target_modules"])
    for name in targets:
        stem = "base_model.model." + ("transformer." if architecture == "gpt2" else "") + name.removesuffix(".weight")
        product = adapters[f"{stem}.lora_B.weight"].astype(np.float64) @ adapters[f"{stem}.lora_A.weight"] * 6.0 / 4
        product = product.T if architecture == "gpt2" else product  # its folders have [in, out]
        np.testing.assert_allclose(before[name] + product, after[name], rtol=1e-5, atol=1e-6)


@pytest.mark.long
def test_a_model_from_elsewhere_is_the_base(tmp_path: Path) -> None:
    told = recipe()
    base = model_config(told.model).build(Axis("vocab", VOCABULARY), key=jax.random.PRNGKey(9))
    write_model(tmp_path, base, told, VOCABULARY)
    state = imported_state(told, VOCABULARY, tmp_path)
    drawn, own = arrays_of(begun()), arrays_of(state)
    for name, value in own.items():
        if "/lora/" in name or not name.startswith("model/"):
            assert np.array_equal(value, drawn[name]), name
    ours, theirs = jax.tree.leaves(merged(state.model)), jax.tree.leaves(base)
    assert all(
        np.asarray(one).tobytes() == np.asarray(other).tobytes() for one, other in zip(ours, theirs, strict=True)
    )


def test_the_optimizer_leaves_the_base_as_it_is() -> None:
    """To the bit, also a negative zero and whatever the gradient is."""
    told = msgspec.structs.replace(recipe(), optimizer=Optimizer(warmup_steps=0))
    model = moved(told)
    params = jax.tree.map(lambda x: x.at[(0,) * x.ndim].set(-0.0), eqx.filter(model, eqx.is_array))
    rule = optimizer(told)
    updates, _ = rule.update(jax.tree.map(jnp.ones_like, params), rule.init(params), params)
    after = jax.tree.map(jnp.add, params, updates)
    same = jax.tree.map(lambda a, b: np.asarray(a).tobytes() == np.asarray(b).tobytes(), params, after)
    in_adapters = jax.tree.leaves(adapters_of(same))
    assert len(in_adapters) == 14 and not any(in_adapters)
    rest = jax.tree.leaves(jax.tree.map(lambda _: True, adapters_of(same)))
    assert sum(jax.tree.leaves(same)) == len(jax.tree.leaves(same)) - len(rest)
