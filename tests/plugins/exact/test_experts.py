"""Mixtures of experts: tokens come to their experts by a total order, the model is Levanter's to float error, every bit of a
train step is that of NumPy and whole numbers, and neither devices nor who brings the tokens change one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
import jax.random as jrandom
import msgspec
import numpy as np
import pytest
from haliax import Axis
from haliax.partitioning import set_mesh
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import Mesh
from levanter.layers.attention import AttentionMask
from levanter.models.lm_model import LmConfig, LmExample
from levanter.models.mixtral import MixtralConfig, MixtralLMHeadModel
from levanter.models.qwen3_moe import Qwen3MoeConfig, Qwen3MoeLMHeadModel

from marin.errors import UsageError
from marin.plugins.exact import reference
from marin.plugins.exact.reading import read
from marin.plugins.exact.step import ExactStep, gradient_of, shares_of, update_of
from marin.process.arithmetic import check_devices
from marin.process.cache import compilation_cache
from marin.recipe.schema import Arithmetic, Execution, Lora, Model, Recipe, check, from_plain, plain
from marin.training.blank import weighted
from marin.training.experts.dispatch import chosen_experts, mixed, weights_of
from marin.training.experts.models import routing_balance
from marin.training.initial import initial_state
from marin.training.loop import step_of
from marin.training.loss import routed_losses, token_losses
from marin.training.model import attention_mask, model_config
from marin.training.optimizers.rule import optimizer
from marin.training.state import EXPERT, arrays_of, state_like
from marin.training.step.contract import mesh_of
from marin.training.step.slices import Layout
from tests.plugins.exact.ways import WAYS

EXACT = Arithmetic(profile="exact", logical_shards=1, microbatch_size=2, reduction="integer", isa="any", xla_flags=())

PORTABLE = Arithmetic(logical_shards=1, microbatch_size=2)


APART: tuple[dict[str, Any], ...] = (
    {"devices": 2, "apart": 2},
    {"devices": 8, "apart": 4},
    {"devices": 8, "tensor": 2, "apart": 2},
)
"""Experts that lie over devices: two with two each, four with one each in two groups, and shared matrices beside."""


def recipe_of(worker: ModuleType, architecture: str, **fields: Any) -> Recipe:
    case = worker.Case(
        architecture, architecture=architecture, profile="exact", hidden=16, length=16, batch=4, experts=4, **fields
    )
    made: Recipe = msgspec.structs.replace(worker.recipe_of(case), arithmetic=EXACT)
    check(made, where="recipe")
    return made


@given(st.lists(st.lists(st.integers(0, 3), min_size=5, max_size=5), min_size=1, max_size=4), st.integers(1, 5))
def test_the_most_probable_experts_and_of_equals_the_first(rows: list[list[int]], count: int) -> None:
    probabilities = np.asarray(rows, np.float32) / 8
    found = np.asarray(chosen_experts(jnp.asarray(probabilities), count))
    for row, mask in zip(probabilities, found, strict=True):
        assert sorted(np.argsort(-row, kind="stable")[:count]) == list(np.flatnonzero(mask))


def test_the_sum_is_that_of_each_token_by_itself() -> None:
    """In double precision, token by token, each by its own experts alone."""
    generator = np.random.default_rng(1)
    x, logits = generator.normal(size=(9, 6)), generator.normal(size=(9, 5))
    matrices = [generator.normal(size=shape) for shape in ((5, 6, 7), (5, 6, 7), (5, 7, 6))]
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    expected = np.zeros((9, 6))
    for token, row in enumerate(probabilities):
        own = np.argsort(-row)[:2]
        for expert in own:
            gate, up, down = (m[expert] for m in matrices)
            z = x[token] @ gate
            expected[token] += row[expert] / row[own].sum() * ((z / (1 + np.exp(-z)) * (x[token] @ up)) @ down)
    p = jnp.asarray(probabilities, jnp.float32)
    chosen = chosen_experts(p, 2)
    parts = tuple(jnp.asarray(m, jnp.float32) for m in matrices)
    found = mixed(jnp.asarray(x, jnp.float32), weights_of(p, chosen), chosen, parts, jax.nn.silu)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_who_brings_an_expert_its_own_tokens_alone_gets_the_same_bits() -> None:
    """Forward and backward, by the reference: the rows of other tokens are zeros, which add nothing and decide no exponent."""
    generator = np.random.default_rng(2)
    x = (generator.normal(size=(12, 8)) * np.exp2(generator.integers(-9, 9, (12, 1)))).astype(np.float32)
    probabilities = generator.dirichlet(np.ones(4), 12).astype(np.float32)
    matrices = [generator.normal(size=shape).astype(np.float32) for shape in ((4, 8, 6), (4, 8, 6), (4, 6, 8))]
    towards = generator.normal(size=(12, 8)).astype(np.float32)
    chosen = np.asarray(chosen_experts(jnp.asarray(probabilities), 2))

    def whole(x: Any, p: Any, gate: Any, up: Any, down: Any, towards: Any) -> Any:
        def made(x: Any, gate: Any, up: Any, down: Any) -> Any:
            picked = chosen_experts(p, 2)
            return mixed(x, weights_of(p, picked), picked, (gate, up, down), jax.nn.silu)

        found, back = jax.vjp(made, x, gate, up, down)
        return weights_of(p, chosen_experts(p, 2)), found, *back(towards)[1:]

    def alone(x: Any, gate: Any, up: Any, down: Any, towards: Any) -> Any:
        """One expert; ``towards``: of its own result."""
        found, back = jax.vjp(lambda *m: (jax.nn.silu(x @ m[0]) * (x @ m[1])) @ m[2], gate, up, down)
        return found, *back(towards)

    def run(function: Any, *values: Any) -> list[np.ndarray]:
        return reference.run(read(function, *values)[0], list(values))

    weights, mixture, *gradients = run(whole, x, probabilities, *matrices, towards)
    results = np.zeros((4, 12, 8), np.float32)
    for expert in range(4):
        own = np.flatnonzero(chosen[:, expert])
        assert 0 < len(own) < 12
        back = reference.TO.mul(weights[own, expert, None], towards[own])
        found, *parts = run(alone, x[own], *(m[expert] for m in matrices), back)
        results[expert, own] = reference.TO.mul(weights[own, expert, None], found)
        for one, gradient in zip(parts, gradients, strict=True):
            assert one.tobytes() == gradient[expert].tobytes()
    (summed,) = run(lambda r: jnp.sum(r, axis=0), results)
    assert summed.tobytes() == mixture.tobytes()


THEIRS: dict[str, Any] = {
    "mixtral": (MixtralConfig, MixtralLMHeadModel),
    "qwen3_moe": (Qwen3MoeConfig, Qwen3MoeLMHeadModel),
}


@pytest.mark.long(seconds=10)
@pytest.mark.parametrize("architecture", THEIRS)
def test_the_model_is_levanters(worker: ModuleType, architecture: str) -> None:
    """Its numbers and its losses beside those of the tokens, by Levanter's own blocks on the same parameters."""
    recipe = recipe_of(worker, architecture)
    config = model_config(recipe.model)
    kind, head = THEIRS[architecture]
    stock: LmConfig[Any] = kind(**{name: getattr(config, name) for name in kind.__dataclass_fields__})
    Vocab, key = Axis("vocab", worker.VOCABULARY), jrandom.PRNGKey(3)
    ours, theirs = config.build(Vocab, key=key), head.init(Vocab, stock, key=key)
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    assert all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)
    tokens, weights = worker.batch_of(worker.Case("one", batch=4, length=16), 0)
    axes = Axis("batch", 4), Axis("position", 16)
    ids, mask = hax.named(tokens, axes), AttentionMask.causal()
    with set_mesh(Mesh(np.array(jax.devices()[:1]), ("data",))):
        their_hidden, their_loss = theirs.activations(ids, mask, key=None)
    hidden, loss = ours.activations(ids, mask, key=None)
    np.testing.assert_allclose(hidden.array, their_hidden.array, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(loss.array, their_loss.array, rtol=1e-5)
    assert float(loss.array) > 0
    example = LmExample(tokens=ids, loss_weight=hax.named(jnp.asarray(weights), axes), attn_mask=mask)
    with_it, loads = routed_losses(ours, example, None)
    without = hax.sum(token_losses(ours, example)).array
    np.testing.assert_allclose(hax.sum(with_it).array - without, loss.array * np.sum(weights[:, :-1]), rtol=1e-3)
    assert loads.shape == (2, 4) and (np.sum(loads, axis=1) == 4 * 16 * 2).all(), "two experts for each token"
    np.testing.assert_array_equal(loads, np.round(loads))


@pytest.mark.parametrize("architecture", THEIRS)
def test_what_a_blank_position_is_embedded_as_is_in_no_loss_and_no_load(worker: ModuleType, architecture: str) -> None:
    recipe = recipe_of(worker, architecture)
    model = model_config(recipe.model).build(Axis("vocab", worker.VOCABULARY), key=jrandom.PRNGKey(3))
    tokens, _ = worker.batch_of(worker.Case("one", batch=4, length=16), 0)
    tokens[0, 3:9], tokens[2] = -1, -1
    axes = Axis("batch", 4), Axis("position", 16)
    mask = attention_mask(recipe, hax.named(tokens, axes), blank=True)
    weights = weighted(jnp.asarray(tokens), jnp.ones(tokens.shape, jnp.float32))

    def lost(model: Any, ids: Any) -> Any:
        example = LmExample(tokens=hax.named(ids, axes), loss_weight=hax.named(weights, axes), attn_mask=mask)
        per_token, loads = routed_losses(model, example, None)
        return hax.sum(per_token).array, loads

    jitted = eqx.filter_jit(lost)
    losses, loads = zip(*(jitted(model, np.where(tokens < 0, filler, tokens)) for filler in (0, 5)), strict=True)
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-6)
    np.testing.assert_array_equal(loads[0], loads[1])
    assert (np.sum(loads[0], axis=1) == 2 * (tokens >= 0).sum()).all()


@pytest.mark.long(seconds=20)
@pytest.mark.parametrize("architecture", THEIRS)
def test_two_steps_are_those_of_the_reference(worker: ModuleType, architecture: str) -> None:
    recipe = recipe_of(worker, architecture, layers=1)
    first = initial_state(recipe, worker.VOCABULARY)
    step = step_of(recipe, mesh_of(1), first)
    assert isinstance(step, ExactStep) and step.foreign_products() == []
    layout = Layout(first, optimizer(recipe), 1)
    gradient, update = gradient_of(recipe, layout).program, update_of(recipe, layout).program
    assert "sort" not in gradient.names()
    state, count = step.place(first), len(layout.params)
    own = [np.asarray(x) for x in arrays_of(first).values()][3:]
    for number in range(2):
        generator = np.random.default_rng(number)
        tokens = generator.integers(0, worker.VOCABULARY, (4, 16), dtype=np.int32)
        weights = (generator.random((4, 16)) < 0.7).astype(np.float32)
        state, outcome = step.run(state, step.batch(tokens), step.batch(weights))
        *grads, square, loss, weight, loads = reference.run(gradient, [*own[:count], tokens, weights])
        assert [x.tobytes() for x in outcome.loads] == [loads.tobytes()] and loads.sum() == 4 * 16 * 2
        flat = [x.reshape(-1) if x.ndim else x for x in (*own, *grads)]
        *after, mean, norm = reference.run(update, [*flat, square, loss, weight])
        own = [made.reshape(x.shape) for made, x in zip(after, own, strict=True)]
        assert [mean.tobytes(), norm.tobytes()] == [outcome.loss.tobytes(), outcome.grad_norm.tobytes()]
        found = list(arrays_of(step.collect(state)).values())[3:]
        assert [x.tobytes() for x in own] == [np.asarray(x).tobytes() for x in found]


@pytest.mark.determinism
def test_neither_devices_nor_a_stop_change_a_bit(worker: ModuleType) -> None:
    fields = {"profile": "exact", "experts": 4, "batch": 8, "hidden": 16, "length": 16}
    models = [("mixtral", "adamw"), ("qwen3_moe", "adamw"), ("mixtral", "muonh")]
    cases = [
        {"name": f"{model} {rule} {number}", "architecture": model, "optimizer": rule, **fields, **way}
        for model, rule in models
        for number, way in enumerate((*WAYS, *APART))
    ]
    command = [sys.executable, str(Path(worker.__file__)), "--devices", "8", *map(json.dumps, cases)]
    cache = os.environ | {"TEST_COMPILATION_CACHE": str(compilation_cache())}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=cache)
    found = {one["name"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert len(found) == len(cases)
    for model, rule in models:
        alone, *others = (found[f"{model} {rule} {number}"] for number in range(len(WAYS) + len(APART)))
        for other in others:
            assert (other["state"], other["steps"]) == (alone["state"], alone["steps"]), other["name"]


def test_three_numbers_say_how_even_loads_are() -> None:
    even = {"router/entropy": 1.0, "router/largest_share": 1.0, "router/idle_experts": 0.0}
    assert routing_balance(np.full((2, 4), 8, np.float32)) == pytest.approx(even)
    one = {"router/entropy": 0.0, "router/largest_share": 4.0, "router/idle_experts": 3.0}
    assert routing_balance(np.asarray([[32, 0, 0, 0]], np.float32)) == pytest.approx(one)


def test_what_cannot_be_is_one_line_before_anything_begins(worker: ModuleType) -> None:
    recipe = recipe_of(worker, "mixtral")
    assert from_plain(plain(recipe), where="record") == recipe

    def refused(message: str, **changes: Any) -> None:
        fields = {name: value for name, value in changes.items() if name in Model.__struct_fields__}
        others = {name: value for name, value in changes.items() if name not in fields}
        model = msgspec.structs.replace(recipe.model, **fields)
        with pytest.raises(UsageError, match=message) as caught:
            check(msgspec.structs.replace(recipe, model=model, **others), where="recipe")
        assert "\n" not in str(caught.value)

    refused(r"model.num_experts_per_tok: expected at most model.num_experts \(4\), found 5", num_experts_per_tok=5)
    refused(r"model.num_experts: expected how many experts a layer has, found null", num_experts=None)
    refused(r"model.num_experts_per_tok: expected how many experts a token gets", num_experts_per_tok=None)
    refused(r"model.router_z_loss_coef: expected null, or architecture=mixtral", architecture="qwen3_moe")
    refused(r"model.num_experts: expected null, or architecture=mixtral or .*qwen3_moe, found 4", architecture="llama")
    refused(r"model.head_dim: expected null: of mixtral", head_dim=4)
    refused(r"model.architecture: expected a dense one: under portable-cpu", arithmetic=PORTABLE)
    refused(r"model.architecture: expected a dense one, where lora is trained", lora=Lora())


def test_experts_that_do_not_divide_over_devices_are_refused_before_anything_begins(worker: ModuleType) -> None:
    recipe = recipe_of(worker, "mixtral")
    dense = msgspec.structs.replace(recipe, model=Model(num_heads=2, num_kv_heads=2))

    def refused(message: str, recipe: Recipe, **execution: Any) -> None:
        with pytest.raises(UsageError, match=message):
            check_devices(recipe, Execution(**execution))

    check_devices(recipe, Execution(devices=4, expert_parallel=4))
    refused(r"--expert-parallel: expected a divisor of experts \(4\), found 3", recipe, devices=3, expert_parallel=3)
    refused(r"--expert-parallel: expected a divisor of experts \(1\), found 2", dense, devices=2, expert_parallel=2)
    refused(r"--tensor-parallel: expected a divisor of heads \(2\), found 4", recipe, devices=4, tensor_parallel=4)
    refused(r"--devices: expected a divisor of trainer.batch_size \(4\), found 8", recipe, devices=8)
    portable = msgspec.structs.replace(dense, arithmetic=PORTABLE)
    refused(r"--expert-parallel: expected profile=exact", portable, expert_parallel=2)


def test_only_the_matrices_of_experts_lie_apart(worker: ModuleType) -> None:
    recipe = recipe_of(worker, "mixtral")
    layout = Layout(state_like(recipe, worker.VOCABULARY), optimizer(recipe), 1)
    shares = zip(layout.param_names, shares_of(layout.named, 1, 2), strict=True)
    assert {name.split("/")[-2] for name, share in shares if EXPERT in share} == {"w1", "w2", "w3"}
    with pytest.raises(UsageError, match=r"--expert-parallel: expected a divisor of experts \(4\), found 3"):
        shares_of(layout.named, 1, 3)


OVER_DEVICES = """
import json, re, sys
sys.path.insert(0, sys.argv[1])
import worker
from marin.training.loop import step_of
from marin.training.state import state_like
from marin.training.step.contract import mesh_of

recipe = worker.recipe_of(worker.Case("x", "mixtral", profile="exact", hidden=32, length=16, batch=4, layers=1, experts=4))
for devices, apart in ((1, 1), (2, 2)):
    step = step_of(recipe, mesh_of(devices, 1, 1, apart), state_like(recipe, worker.VOCABULARY))
    program = step.named["gradient"]
    print(json.dumps(program.cost_analysis()["flops"]))
    print(len(re.findall(" all-to-all\\\\(", program.as_text())))
"""


@pytest.mark.determinism
def test_tokens_go_to_the_devices_of_their_experts(on_two_devices: Callable[[str], list[float]]) -> None:
    alone, none, each, exchanged = on_two_devices(OVER_DEVICES)
    assert each < 0.6 * alone and none == 0 < exchanged
