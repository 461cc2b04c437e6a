"""Optimizers that look across a tensor, under profile exact: they are Levanter's and optax's on the same gradients, every bit
is that of NumPy and whole numbers, and neither devices nor a stop change one."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import optax
import pytest
from levanter.optim.adam_mini import MiniConfig
from levanter.optim.adamh import AdamHConfig
from levanter.optim.cautious import CautiousConfig
from levanter.optim.config import AdamConfig, LionConfig
from levanter.optim.muon import MuonConfig
from levanter.optim.muonh import MuonHConfig
from levanter.optim.scion import ScionConfig

from marin.errors import UsageError
from marin.plugins.exact import reference
from marin.plugins.exact.step import ExactStep, gradient_of, update_of
from marin.process.cache import compilation_cache
from marin.recipe.composition import compose
from marin.recipe.form.optimizer import OWN, UNREAD
from marin.recipe.schema import Arithmetic, Lora, Optimizer, Recipe, check, digest, from_mapping, from_plain, plain
from marin.training.initial import initial_state
from marin.training.loop import step_of
from marin.training.optimizers.rule import groups, optimizer
from marin.training.state import arrays_of, state_like
from marin.training.step.contract import mesh_of
from marin.training.step.slices import Layout
from tests.plugins.exact.ways import WAYS

ACROSS = [name for name in OWN if name not in ("adamw", "lion")]
EXACT = Arithmetic(profile="exact", logical_shards=1, microbatch_size=2, reduction="integer", isa="any", xla_flags=())

PORTABLE = Arithmetic(logical_shards=1, microbatch_size=2)


def recipe_of(worker: ModuleType, name: str, **fields: Any) -> Recipe:
    case = worker.Case(name, profile="exact", hidden=16, length=16, batch=4, steps=4, optimizer=name, **fields)
    made: Recipe = msgspec.structs.replace(worker.recipe_of(case), arithmetic=EXACT)
    check(made, where="recipe")
    return made


def levanters(name: str) -> optax.GradientTransformation:
    """The optimizer of :func:`recipe_of`, made by Levanter's and optax's own defaults and two names of fields."""
    common = COMMON
    match name:
        case "muon":
            return MuonConfig(**common, weight_decay=0.1).build(4)
        case "muonh":
            return MuonHConfig(**common).build(4)
        case "adamh":
            return AdamHConfig(**common).build(4)
        case "scion":
            return ScionConfig(**common, weight_decay=0.1).build(4)
        case "cautious":
            return CautiousConfig(**common, weight_decay=0.1, beta1=0.9).build(4)
        case "mini":
            return MiniConfig(**common, weight_decay=0.1).build(4)
    rate = MuonConfig(**common).lr_scheduler(4)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adafactor(rate, min_dim_size_to_factor=8))


@pytest.mark.parametrize("name", ACROSS)
def test_it_is_levanters_own_on_the_same_gradients(
    worker: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To float error. Levanter's Scion calls ``jax.tree_map``, which jax no longer has: here it has it."""
    monkeypatch.setattr(jax, "tree_map", jax.tree.map, raising=False)
    recipe = recipe_of(worker, name)
    if name == "adafactor":  # optax's decays by a share of its own, whatever the rate
        small = {"weight_decay": 0.0, "min_dim_size_to_factor": 8}
        recipe = msgspec.structs.replace(recipe, optimizer=msgspec.structs.replace(recipe.optimizer, **small))
    first = initial_state(recipe, worker.VOCABULARY)
    layout, theirs = Layout(first, optimizer(recipe), 1), levanters(name)
    update = update_of(recipe, layout).jitted()
    named = jax.tree.structure(layout.named)
    values = [np.asarray(x) for x in arrays_of(first).values()][3:]
    ours, count = values, len(layout.params)
    tree = jax.tree.unflatten(named, [jnp.asarray(x) for x in values[:count]])
    state = theirs.init(tree)
    for number in range(3):
        generator = np.random.default_rng([number, 3])
        grads = [generator.normal(size=x.shape).astype(np.float32) * (number + 1) for x in ours[:count]]
        square = np.float32(sum(float(np.square(g, dtype=np.float64).sum()) for g in grads))
        *after, _, _ = jax.tree.leaves(
            update(ours[:count], ours[count:], grads, square, np.float32(8.0), np.float32(4.0))
        )
        ours = [np.asarray(x) for x in after]
        mean = jax.tree.unflatten(named, [jnp.asarray(g / 4) for g in grads])
        moved, state = theirs.update(mean, state, tree)
        tree = jax.tree.map(jnp.add, tree, moved)
    changed = 0.0
    for before, one, other in zip(values, ours[:count], jax.tree.leaves(tree), strict=False):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-4)
        changed = max(changed, float(np.abs(one - before).max()))
    assert changed > 1e-3, "three steps of a rate near 1e-2 move something"


COMMON: dict[str, Any] = {"learning_rate": 1e-2, "warmup": 2, "min_lr_ratio": 0.1, "lr_schedule": "cosine"}
TURNS: dict[str, Any] = {"backend_steps": 3, "coefficient_type": "polar_express", "momentum": 0.9}
OTHERS: dict[str, tuple[str, dict[str, Any], Any]] = {
    "muon": (
        "mixtral",
        {**TURNS, "nesterov": False, "use_kimi_scaling": True, "adam_weight_decay": 0.3, "adam_lr": 3e-3, "beta2": 0.9},
        MuonConfig,
    ),
    "muonh": ("qwen3_moe", {**TURNS, "nesterov": False, "max_grad_norm": 0.5, "epsilon": 1e-3}, MuonHConfig),
    "adamh": ("mixtral", {"beta1": 0.8, "adam_lr": 3e-3, "max_grad_norm": 0.5}, AdamHConfig),
    "scion": ("qwen3_moe", {**TURNS, "beta1": 0.8, "scion_to_signum_lr": 0.5, "max_grad_norm": 0.5}, ScionConfig),
}
"""Every field that is not Levanter's default, of mixtures, whose experts are no matrices for its masks."""


@pytest.mark.long(seconds=5)
@pytest.mark.parametrize("name", OTHERS)
def test_so_it_is_of_mixtures_and_with_other_values(
    worker: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both by plain jax."""
    monkeypatch.setattr(jax, "tree_map", jax.tree.map, raising=False)
    architecture, fields, config = OTHERS[name]
    recipe = recipe_of(worker, name, architecture=architecture, experts=4, layers=1)
    recipe = msgspec.structs.replace(recipe, optimizer=msgspec.structs.replace(recipe.optimizer, **fields))
    check(recipe, where="recipe")
    named = Layout(state_like(recipe, worker.VOCABULARY), optimizer(recipe), 1).named
    decay = {"weight_decay": recipe.optimizer.weight_decay}
    rules = optimizer(recipe), config(**COMMON, **decay, **fields).build(4)

    def after(rule: optax.GradientTransformation) -> list[np.ndarray]:
        generator = np.random.default_rng(3)

        def drawn() -> Any:
            return jax.tree.map(lambda x: jnp.asarray(generator.normal(size=x.shape), jnp.float32), named)

        tree, update = drawn(), jax.jit(rule.update)
        state = rule.init(tree)
        for _ in range(3):
            moved, state = update(drawn(), state, tree)
            tree = jax.tree.map(jnp.add, tree, moved)
        return [np.asarray(x) for x in jax.tree.leaves(tree)]

    for ours, other in zip(*map(after, rules), strict=True):
        np.testing.assert_allclose(ours, other, rtol=1e-5, atol=1e-6)


OF_ALL = {"rewarmup", "cooldown", "cycle_length", "cycles", "haps", "weight_decay_modules", "default_weight_decay_mask"}
LEFT: dict[str, tuple[Any, set[str]]] = {
    "adamw": (
        AdamConfig,
        {"nesterov", "update_rms_clipping", "clip_update_norm", "skip_bad_steps", "adamc_weight_decay"},
    ),
    "lion": (LionConfig, set()),
    "muon": (MuonConfig, {"lr"}),
    "muonh": (MuonHConfig, set()),
    "adamh": (AdamHConfig, set()),
    "scion": (ScionConfig, {"lr"}),
    "cautious": (CautiousConfig, {"gamma", "adamc_weight_decay"}),
    "mini": (MiniConfig, {"lr", "nesterov"}),
}
"""What of Levanter's configurations no recipe says: cycles, masks of one's own, and what it never reads (``lr``, ``gamma``)."""


@pytest.mark.parametrize("name", LEFT)
def test_every_field_of_levanters_is_one_of_a_recipe_or_is_refused_by_name(name: str) -> None:
    """So a field that a newer Levanter has is not left out in silence."""
    config, left = LEFT[name]
    theirs = {field.name for field in dataclasses.fields(config)}
    other_names = {"lr_schedule": "schedule", "warmup": "warmup_steps"}
    ours = {other_names.get(field, field) for field in theirs - left - OF_ALL}
    common = {*Optimizer.__struct_fields__} - {field for own in OWN.values() for field in own} - {"name", "rounding"}
    assert ours == (common - UNREAD.get(name, frozenset())) | OWN[name].keys() | (ours & UNREAD.get(name, frozenset()))
    for field in left | OF_ALL:
        with pytest.raises(UsageError, match=rf"optimizer.{field}") as caught:
            given = {"name": name, field: 1, "weight_decay": 0.0}
            from_mapping({"optimizer": given, "arithmetic": msgspec.to_builtins(EXACT)}, where="test")
        assert "\n" not in str(caught.value)


@pytest.mark.long(seconds=10)
@pytest.mark.parametrize("name", ACROSS)
def test_two_steps_are_those_of_the_reference(worker: ModuleType, name: str) -> None:
    recipe = recipe_of(worker, name, layers=1)
    if name == "adafactor":
        small = msgspec.structs.replace(recipe.optimizer, min_dim_size_to_factor=8)
        recipe = msgspec.structs.replace(recipe, optimizer=small)
    first = initial_state(recipe, worker.VOCABULARY)
    step = step_of(recipe, mesh_of(1), first)
    assert isinstance(step, ExactStep) and step.foreign_products() == []
    layout = Layout(first, optimizer(recipe), 1)
    gradient, update = gradient_of(recipe, layout).program, update_of(recipe, layout).program
    assert (gradient.digest, update.digest) == (step.program()["gradient"], step.program()["update"])
    state, count = step.place(first), len(layout.params)
    own = [np.asarray(x) for x in arrays_of(first).values()][3:]
    for number in range(2):
        generator = np.random.default_rng(number)
        tokens = generator.integers(0, worker.VOCABULARY, (4, 16), dtype=np.int32)
        weights = (generator.random((4, 16)) < 0.7).astype(np.float32)
        state, outcome = step.run(state, step.batch(tokens), step.batch(weights))
        *grads, square, loss, weight = reference.run(gradient, [*own[:count], tokens, weights])
        *own, mean, norm = reference.run(update, [*own, *grads, square, loss, weight])
        assert outcome.finite
        assert [mean.tobytes(), norm.tobytes()] == [outcome.loss.tobytes(), outcome.grad_norm.tobytes()]
        found = list(arrays_of(step.collect(state)).values())[3:]
        assert [x.tobytes() for x in own] == [np.asarray(x).tobytes() for x in found]


@pytest.mark.determinism
def test_neither_devices_nor_a_stop_change_a_bit(worker: ModuleType) -> None:
    cases = [
        {
            "name": f"{name} {number}",
            "profile": "exact",
            "optimizer": name,
            "batch": 8,
            "hidden": 16,
            "length": 16,
            **way,
        }
        for name in ACROSS
        for number, way in enumerate(WAYS)
    ]
    command = [sys.executable, str(Path(worker.__file__)), "--devices", "8", *map(json.dumps, cases)]
    cache = os.environ | {"TEST_COMPILATION_CACHE": str(compilation_cache())}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=cache)
    found = {one["name"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert len(found) == len(cases)
    for name in ACROSS:
        alone, *others = (found[f"{name} {number}"] for number in range(len(WAYS)))
        for other in others:
            assert (other["state"], other["steps"]) == (alone["state"], alone["steps"]), other["name"]
    assert len({found[f"{name} 0"]["state"] for name in ACROSS}) == len(ACROSS), "each is an optimizer of its own"


def test_what_cannot_be_is_one_line_before_anything_begins(worker: ModuleType) -> None:
    def refused(message: str, recipe: Recipe, **changes: Any) -> None:
        fields = {name: value for name, value in changes.items() if name in Optimizer.__struct_fields__}
        others = {name: value for name, value in changes.items() if name not in fields}
        changed = msgspec.structs.replace(recipe.optimizer, **fields)
        with pytest.raises(UsageError, match=message) as caught:
            check(msgspec.structs.replace(recipe, optimizer=changed, **others), where="recipe")
        assert "\n" not in str(caught.value)

    muon = recipe_of(worker, "muon")
    refused(r"optimizer.name: expected adamw or lion: under profile portable-cpu", muon, arithmetic=PORTABLE)
    refused(r"optimizer.name: expected adamw or lion, where lora", muon, lora=Lora())
    refused(r"optimizer.momentum: expected a value, such as 0.95, found null", muon, momentum=None)
    refused(
        r"optimizer.scion_epsilon: expected null: muon has none, found 1e-08; .*name=scion", muon, scion_epsilon=1e-8
    )
    refused(r"optimizer.adam_lr: expected null: adamw has none", muon, name="adamw")
    refused(r"optimizer.weight_decay: expected 0.0: adamh keeps", recipe_of(worker, "adamh"), weight_decay=0.1)
    gpt2 = msgspec.structs.replace(muon.model, architecture="gpt2", intermediate_dim=64)
    refused(r"optimizer.use_kimi_scaling: expected true of a GPT-2", muon, model=gpt2)
    for name, field, value in (
        ("adafactor", "beta1", 0.8),
        ("adafactor", "epsilon", 1e-6),
        ("scion", "beta2", 0.99),
        ("lion", "epsilon", 1e-6),
    ):
        with pytest.raises(UsageError, match=rf"optimizer.{field}: expected .*: {name} does not read it, found"):
            given = {"name": name, field: value, "weight_decay": 0.0}
            from_mapping({"optimizer": given, "arithmetic": msgspec.to_builtins(EXACT)}, where="test")
    for name, reason in (
        ("soap", "eigenvectors and QR factors"),
        ("kron", "triangular systems"),
        ("mars", "jax.tree_map"),
        ("skipstep", "by the losses before"),
    ):
        with pytest.raises(UsageError, match=rf"optimizer.name: expected one of adamw.* found {name}: .*{reason}"):
            from_mapping({"optimizer": {"name": name}}, where="test")
        with pytest.raises(UsageError, match=rf"optimizer.name: .* found {name}: .*{reason}"):
            compose([f"optimizer={name}"])
    with pytest.raises(UsageError, match=r"optimizer.name: expected one of adafactor, adamh, adamw.*found 'moun'"):
        from_mapping({"optimizer": {"name": "moun"}}, where="test")


def test_a_new_recipe_says_every_field_of_its_optimizer_and_an_old_one_stays() -> None:
    exact = msgspec.to_builtins(EXACT)
    recipe = from_mapping({"optimizer": {"name": "muon"}, "arithmetic": exact, "trainer": {"batch_size": 8}}, where="t")
    assert recipe.optimizer.adam_lr == 6e-4 and recipe.optimizer.coefficient_type == "quintic"
    assert from_plain(plain(recipe), where="record") == recipe
    other = msgspec.structs.replace(recipe.optimizer, momentum=0.9)
    assert digest(msgspec.structs.replace(recipe, optimizer=other)) != digest(recipe)
    assert set(plain(Optimizer())) == {
        *("name", "learning_rate", "min_lr_ratio", "warmup_steps", "schedule", "weight_decay", "beta1", "beta2"),
        *("epsilon", "max_grad_norm"),
    }, "as before there were fields of others"


def test_groups_are_levanters(worker: ModuleType) -> None:
    recipe = recipe_of(worker, "muonh")
    layout = Layout(state_like(recipe, worker.VOCABULARY), optimizer(recipe), 1)
    found = {
        label: {layout.param_names[number].removeprefix("model/") for number in numbers}
        for label, numbers in groups(recipe, layout.named).items()
    }
    block = "transformer/layers/stacked/"
    assert found["muonh"] == {
        *(f"{block}self_attn/{name}/weight" for name in ("q_proj", "k_proj", "v_proj", "o_proj")),
        *(f"{block}mlp/{name}/weight" for name in ("gate_proj", "up_proj", "down_proj")),
    }
    assert found["adamh"] == {"lm_head/weight"}
    assert "embeddings/token_embeddings/weight" in found["adam"] and "transformer/norm/weight" in found["adam"]
    assert sum(map(len, found.values())) == len(layout.params)


def test_muon_without_a_matrix_is_refused(worker: ModuleType) -> None:
    with pytest.raises(
        UsageError, match=r"optimizer.name: expected a matrix that muon moves, found 1 tensors that adamw"
    ):
        groups(recipe_of(worker, "muon"), {"scale": jnp.zeros((3,))})
