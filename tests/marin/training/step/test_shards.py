"""The train step against an oracle that knows nothing of shards, slices or trees: one gradient of the whole batch."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import optax
import pytest
from levanter.layers.attention import AttentionMask
from levanter.models.lm_model import LmExample
from levanter.optim.config import AdamConfig, LionConfig

from marin.errors import UsageError
from marin.recipe.schema import Recipe
from marin.training.initial import initial_state
from marin.training.optimizers.rule import optimizer
from marin.training.state import TrainState, leaves, manifest_of
from marin.training.step import fingerprint
from marin.training.step.contract import StepOutcome, mesh_of
from marin.training.step.shards import TrainStep, fold, shard_sums
from marin.training.step.slices import SlicedState


def oracle(
    recipe: Recipe, state: TrainState, tokens: np.ndarray, weights: np.ndarray
) -> tuple[float, float, list[np.ndarray]]:
    """Loss, gradient norm and parameters after one step: token-weighted mean over the batch, Levanter's own
    clipping."""
    arrays, static = eqx.partition(state.model, eqx.is_inexact_array)
    axes = (hax.Axis("batch", tokens.shape[0]), hax.Axis("position", tokens.shape[1]))

    def mean_loss(arrays: Any) -> jax.Array:
        example = LmExample(
            hax.named(jnp.asarray(tokens), axes), hax.named(jnp.asarray(weights), axes), AttentionMask.causal()
        )
        per_token = eqx.combine(arrays, static).compute_next_token_loss(example, reduction=None)
        return per_token.array.sum() / weights.sum()

    loss, grads = jax.jit(jax.value_and_grad(mean_loss))(arrays)
    config, chosen = recipe.optimizer, {"adamw": AdamConfig, "lion": LionConfig}[recipe.optimizer.name]
    chain = chosen(
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        min_lr_ratio=config.min_lr_ratio,
        warmup=config.warmup_steps,
        lr_schedule=config.schedule,
        beta1=config.beta1,
        beta2=config.beta2,
        epsilon=config.epsilon,
        max_grad_norm=config.max_grad_norm,
    ).build(recipe.trainer.num_steps)

    @jax.jit
    def updated(grads: Any, arrays: Any) -> tuple[jax.Array, Any]:
        updates, _ = chain.update(grads, chain.init(arrays), arrays)
        return optax.global_norm(grads), optax.apply_updates(arrays, updates)

    norm, after = updated(grads, arrays)
    return float(loss), float(norm), [np.asarray(x) for x in jax.tree.leaves(after)]


Stepped = tuple[TrainStep, SlicedState, StepOutcome]


@pytest.fixture(scope="module")
def plain(worker: ModuleType) -> tuple[Recipe, TrainState, TrainStep]:
    """The recipe of a case without any field, its initial state, and its programs."""
    recipe = worker.recipe_of(worker.Case(name="plain"))
    state = initial_state(recipe, worker.VOCABULARY)
    return recipe, state, TrainStep(recipe, mesh_of(1), state)


def one_step(
    recipe: Recipe, state: TrainState, tokens: np.ndarray, weights: np.ndarray, step: TrainStep | None = None
) -> Stepped:
    """``step``: the programs of the recipe, where there are some."""
    step = step or TrainStep(recipe, mesh_of(1), state)
    after, outcome = step.run(step.place(state), step.batch(tokens), step.batch(weights))
    return step, after, outcome


def without_warmup(recipe: Recipe) -> Recipe:
    """A first step that moves the parameters."""
    return msgspec.structs.replace(recipe, optimizer=msgspec.structs.replace(recipe.optimizer, warmup_steps=0))


@pytest.mark.parametrize(
    "fields",
    [
        {"architecture": "llama"},
        {"architecture": "gpt2", "microbatch": 1},
        {"architecture": "llama", "optimizer": "lion", "shards": 2, "microbatch": 4, "batch": 8},
    ],
    ids=["llama", "gpt2-microbatches", "lion-two-shards"],
)
def test_ragged_masks_give_the_gradient_of_the_whole_batch(worker: ModuleType, fields: dict[str, Any]) -> None:
    case = worker.Case(name="oracle", **fields)
    recipe = without_warmup(worker.recipe_of(case))
    state = initial_state(recipe, worker.VOCABULARY)
    tokens, weights = worker.batch_of(case, 0)
    assert weights.sum(axis=1).min() == 0 and weights.sum(axis=1).max() > 20, "the masks are ragged"
    loss, norm, params = oracle(recipe, state, tokens, weights)
    step, after, outcome = one_step(recipe, state, tokens, weights)
    assert float(outcome.loss) == pytest.approx(loss, rel=1e-6)
    assert float(outcome.grad_norm) == pytest.approx(norm, rel=1e-5)
    found = jax.tree.leaves(eqx.filter(step.collect(after).model, eqx.is_inexact_array))
    before = jax.tree.leaves(eqx.filter(state.model, eqx.is_inexact_array))
    rate = recipe.optimizer.learning_rate
    for mine, theirs, old in zip(found, params, before, strict=True):
        assert np.abs(np.asarray(old) - theirs).max() > rate / 10, "the oracle's step moves every tensor"
        # Where a gradient is about nothing its sign, and so Adam's and Lion's first step, is rounding: few elements.
        far = np.abs(np.asarray(mine) - theirs) > rate * 2e-3
        assert far.mean() < 0.01


def test_the_mean_of_means_would_have_been_noticed(
    worker: ModuleType, plain: tuple[Recipe, TrainState, TrainStep]
) -> None:
    """The oracle's tolerance is far smaller than the error of weighting shards equally."""
    case, (_, state, _) = worker.Case(name="means"), plain
    tokens, weights = worker.batch_of(case, 0)
    axes = (hax.Axis("batch", tokens.shape[0]), hax.Axis("position", tokens.shape[1]))
    example = LmExample(
        hax.named(jnp.asarray(tokens), axes), hax.named(jnp.asarray(weights), axes), AttentionMask.causal()
    )
    losses = np.asarray(
        eqx.filter_jit(lambda model: model.compute_next_token_loss(example, reduction=None).array)(state.model)
    )
    shards = [slice(i, i + 2) for i in range(0, 16, 2)]
    means = np.mean([losses[i].sum() / weights[i].sum() for i in shards])
    assert abs(means - losses.sum() / weights.sum()) > 1e-4


def test_clipping_is_that_of_optax(worker: ModuleType) -> None:
    recipe = without_warmup(worker.recipe_of(worker.Case(name="clip")))
    clipped = msgspec.structs.replace(recipe.optimizer, max_grad_norm=0.01, epsilon=0.1)
    limited = msgspec.structs.replace(recipe, optimizer=clipped)
    state = initial_state(limited, worker.VOCABULARY)
    tokens, weights = worker.batch_of(worker.Case(name="clip"), 0)
    _, norm, params = oracle(limited, state, tokens, weights)
    assert norm > 0.1, "there is something to clip"
    step, after, _ = one_step(limited, state, tokens, weights)
    for mine, theirs in zip(
        jax.tree.leaves(eqx.filter(step.collect(after).model, eqx.is_inexact_array)), params, strict=True
    ):
        np.testing.assert_allclose(np.asarray(mine), theirs, atol=1e-6)


def test_the_fingerprint_is_that_of_the_state_after_the_step(
    worker: ModuleType, plain: tuple[Recipe, TrainState, TrainStep]
) -> None:
    case, (recipe, state, step) = worker.Case(name="print"), plain
    _, after, outcome = one_step(recipe, state, *worker.batch_of(case, 0), step)
    whole = step.collect(after)
    expected = np.stack([fingerprint.of(np.asarray(value)) for _, value in leaves(whole)])
    assert outcome.fingerprint.tolist() == expected.tolist()
    assert int(whole.step) == 1 and int(whole.cursor) == case.batch


def test_cutting_and_joining_a_state_changes_nothing(worker: ModuleType) -> None:
    recipe = worker.recipe_of(worker.Case(name="cut", hidden=20, length=8))  # sizes that do not divide by the slices
    state = initial_state(recipe, worker.VOCABULARY)
    step = TrainStep(recipe, mesh_of(1), state)
    assert manifest_of(step.collect(step.place(state))) == manifest_of(state)


@pytest.mark.parametrize("poison", ["parameter", "weights"])
def test_a_step_that_is_not_finite_is_not_taken(
    worker: ModuleType, plain: tuple[Recipe, TrainState, TrainStep], poison: str
) -> None:
    case, (recipe, state, step) = worker.Case(name="nan"), plain
    tokens, weights = worker.batch_of(case, 0)
    if poison == "weights":
        weights[3, 0] = np.nan
    else:
        state = eqx.tree_at(
            lambda s: s.model.embeddings.token_embeddings.weight.array,
            state,
            replace_fn=lambda x: x.at[int(tokens[1, 0])].set(jnp.inf),
        )
    _, after, outcome = one_step(recipe, state, tokens, weights, step)
    assert not outcome.finite
    assert manifest_of(step.collect(after)) == manifest_of(state)


def test_shards_that_do_not_divide_over_the_devices_are_refused(plain: tuple[Recipe, TrainState, TrainStep]) -> None:
    recipe, state, _ = plain
    mesh: Any = SimpleNamespace(devices=np.empty(3))
    with pytest.raises(
        UsageError, match=r"do not divide over the devices: --devices: expected a divisor of .*\(8\), found 3"
    ):
        TrainStep(recipe, mesh, state)
    with pytest.raises(UsageError, match="not so many devices: --devices: expected at most"):
        mesh_of(4096)


def test_the_tree_adds_neighbours_first() -> None:
    values = np.array([1e8, 1.0, -1e8, 1.0, 3.0, 1e-3, 7.0, 2.0], np.float32)
    left = (values[0] + values[1]) + (values[2] + values[3])
    right = (values[4] + values[5]) + (values[6] + values[7])
    assert np.asarray(fold(jnp.asarray(values))) == left + right
    assert np.asarray(fold(jnp.asarray(values[:1]))) == values[0]


def test_the_program_is_named_by_what_is_computed(plain: tuple[Recipe, TrainState, TrainStep]) -> None:
    recipe, state, step = plain
    program = step.program()
    assert sorted(program) == ["add", "fold", "gradient", "square", "update"]
    faster = msgspec.structs.replace(recipe, optimizer=msgspec.structs.replace(recipe.optimizer, learning_rate=0.5))
    other = TrainStep(faster, mesh_of(1), state).program()
    assert {name for name in program if program[name] != other[name]} == {"update"}


def test_warm_up_of_one_step_is_one_step(worker: ModuleType) -> None:
    """Levanter takes 1 for a fraction: the whole run."""
    recipe = worker.recipe_of(worker.Case(name="warm", steps=50))
    config = msgspec.structs.replace(recipe.optimizer, warmup_steps=1, schedule="constant")
    chain = optimizer(msgspec.structs.replace(recipe, optimizer=config))
    params, held, rates = {"w": jnp.ones(3)}, None, []
    held = chain.init(params)
    for _ in range(3):
        _, held = chain.update({"w": jnp.ones(3)}, held, params)
        rates.append(float(held.hyperparams["learning_rate"]))
    assert rates == pytest.approx([0.0, config.learning_rate, config.learning_rate])


@pytest.mark.parametrize("packing", [None, "isolated"])
def test_isolated_documents_do_not_see_each_other(worker: ModuleType, packing: str | None) -> None:
    """The loss of a second document, with another first one before it; id 0 ends a document."""
    recipe = worker.recipe_of(worker.Case(name="packing", microbatch=1))
    recipe = msgspec.structs.replace(recipe, trainer=msgspec.structs.replace(recipe.trainer, packing=packing))
    state = initial_state(recipe, worker.VOCABULARY)
    arrays, static = eqx.partition(state.model, eqx.is_inexact_array)
    tokens = np.random.default_rng(0).integers(1, worker.VOCABULARY, (1, 32), dtype=np.int32)
    tokens[0, 15] = 0
    other = tokens.copy()
    other[0, :15] = other[0, 14::-1]
    weights = np.zeros((1, 32), np.float32)
    weights[0, 16:31] = 1.0
    loss = jax.jit(lambda x: shard_sums(static, recipe, arrays, x, jnp.asarray(weights))[1])
    losses = [float(loss(x)) for x in (tokens, other)]
    assert (losses[0] == losses[1]) == (packing == "isolated")
