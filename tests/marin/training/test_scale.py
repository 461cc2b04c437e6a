"""What larger models are trained with: Llama 3.1's rotary embeddings, a stable rate with a decay at its end, z-loss; each
against its formula."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import equinox as eqx
import haliax as hax
import jax.numpy as jnp
import numpy as np
import pytest
from levanter.layers.attention import AttentionMask
from msgspec.structs import replace

from marin.errors import UsageError
from marin.plugins.explain.states import learning_rates
from marin.recipe.composition import compose
from marin.recipe.cost import flops_per_token, parameters
from marin.recipe.form.schedule import schedule_of, too_long
from marin.recipe.schema import Arithmetic, Model, Optimizer, Recipe, Trainer, check, digest, from_plain, recorded
from marin.training.initial import initial_state
from marin.training.model import model_config
from marin.training.step.shards import shard_sums


def test_a_rate_rises_stays_and_falls() -> None:
    """WSD: warm-up, stable, linear decay (arXiv:2404.06395)."""
    wsd = Optimizer(learning_rate=0.01, min_lr_ratio=0.1, warmup_steps=10, schedule="linear", decay=0.25)
    rates = learning_rates(Recipe(optimizer=wsd, trainer=Trainer(num_steps=100)), 0, 100)
    expected = [
        0.01 * step / 10 if step < 10 else 0.01 if step < 75 else 0.01 * (1 - 0.9 * (step - 75) / 25)
        for step in range(100)
    ]
    assert np.allclose(rates, expected, rtol=1e-5, atol=0)
    assert compose(["optimizer=wsd"]).recipe.optimizer.decay == 0.2


@pytest.mark.long
def test_the_square_of_the_log_of_the_sum_is_added_and_learned_from(worker: ModuleType) -> None:
    recipe = worker.recipe_of(worker.Case(name="z", hidden=16, layers=1, length=16, shards=1, batch=2))
    weighed = replace(recipe, trainer=replace(recipe.trainer, z_loss=0.5))
    state = initial_state(recipe, worker.VOCABULARY)
    arrays, static = eqx.partition(state.model, eqx.is_inexact_array)
    draw = np.random.default_rng(1)
    tokens = draw.integers(0, worker.VOCABULARY, (2, 16), dtype=np.int32)
    weights = (draw.random((2, 16)) < 0.7).astype(np.float32)
    weights[:, -1] = 0  # nothing comes after the last
    plain, z = (shard_sums(static, one, arrays, jnp.asarray(tokens), jnp.asarray(weights)) for one in (recipe, weighed))
    axes = (hax.Axis("batch", 2), hax.Axis("position", 16))
    logits = state.model(hax.named(jnp.asarray(tokens), axes), AttentionMask.causal()).array
    wide = np.asarray(logits, np.float64)
    squares = np.log(np.exp(wide).sum(-1)) ** 2
    assert math.isclose(float(z[1] - plain[1]), 0.5 * float((squares * weights).sum()), rel_tol=1e-4)
    assert float(z[2]) == float(plain[2]), "the same tokens count"
    first, second = (np.asarray(grads.embeddings.token_embeddings.weight.array) for grads in (plain[0], z[0]))
    assert not np.array_equal(first, second)


def test_the_frequencies_are_llamas() -> None:
    """Wavelengths above 8,192 positions are eight times as long, those below 2,048 unchanged, smooth between."""
    model = Model(hidden_dim=512, num_heads=4, num_kv_heads=4, intermediate_dim=1024, rope="llama3")
    config: Any = model_config(model)
    built = config.rope.build(hax.Axis("head_size", 128))
    expected = []
    for place in range(64):
        frequency = 500000.0 ** (-2 * place / 128)
        wave = 2 * math.pi / frequency
        if wave > 8192:
            frequency /= 8
        elif wave >= 2048:
            smooth = (8192 / wave - 1) / (4 - 1)
            frequency = (1 - smooth) * frequency / 8 + smooth * frequency
        expected.append(frequency)
    assert np.allclose(built._compute_inv_freq_llama().array, expected, rtol=1e-5, atol=0)
    assert model_config(replace(model, rope=None)).rope.theta == 10000  # type: ignore[union-attr]


@pytest.mark.parametrize(("name", "count"), [("llama-8b", 8.03e9), ("llama-32b", 32.5e9), ("llama-70b", 70.6e9)])
def test_the_large_ones_have_their_size(name: str, count: float) -> None:
    model = compose([f"model={name}"]).recipe.model
    assert model.rope == "llama3" and math.isclose(parameters(model, 128_256), count, rel_tol=0.01)


def test_what_is_not_asked_for_leaves_the_identity_as_it_was() -> None:
    text = repr(Recipe())
    assert "rope=None" in text and "decay=None" in text and "z_loss=None" in text
    asked = {
        digest(Recipe()),
        digest(Recipe(model=Model(rope="llama3"))),
        digest(Recipe(optimizer=Optimizer(decay=0.5))),
        digest(Recipe(trainer=Trainer(z_loss=1e-4))),
    }
    assert len(asked) == 4


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(model=Model(architecture="gpt2", intermediate_dim=256, rope="llama3")),
        Recipe(optimizer=Optimizer(schedule="constant", decay=0.5)),
    ],
)
def test_what_does_not_go_together_is_said(recipe: Recipe) -> None:
    assert isinstance(recipe.arithmetic, Arithmetic)
    with pytest.raises(UsageError, match="do not go together"):
        check(recipe, where="recipe")


def test_the_table_of_the_page_is_what_the_recipes_say(pytestconfig: pytest.Config) -> None:
    page = (pytestconfig.rootpath / "docs" / "scale.md").read_text("utf-8")
    for name in sorted(path.stem for path in (pytestconfig.rootpath / "conf" / "model").glob("llama-*.yaml")):
        recipe = compose([f"model={name}"]).recipe
        count, flops = parameters(recipe.model, 128_256), flops_per_token(recipe.model, 128_256)
        row = f"| `{name}` | {count / 1e9:.2f} | {3 * flops / 1e9:.1f} | {12 * count / 1e9:.1f} |"
        assert row in page


@pytest.mark.parametrize(
    ("decay", "steps", "fall"),
    [(0.29, 100, 29), (0.2, 240, 48), (0.015, 100, 2), (0.01, 100, 1), (1.0, 100, 90), (0.5, 7, 4)],
)
def test_a_decay_is_of_the_nearest_number_of_steps(decay: float, steps: int, fall: int) -> None:
    """By the rates themselves: those below the stable one, and the one after the last, which is the lowest."""
    wsd = Optimizer(
        learning_rate=0.01,
        min_lr_ratio=0.0,
        warmup_steps=10 if steps > 10 else 0,
        schedule="linear",
        decay=decay,
        rounding="nearest",
    )
    recipe = Recipe(optimizer=wsd, trainer=Trainer(num_steps=steps))
    rates = learning_rates(recipe, 0, steps + 1)
    begin = steps - fall
    assert math.isclose(rates[begin], 0.01, rel_tol=1e-6) and rates[steps] == 0.0
    assert all(rate < 0.01 * (1 - 0.5 / fall) for rate in rates[begin + 1 :])
    found = schedule_of(recipe)
    assert (found.whole, found.decay, found.warmup + found.stable) == (steps, fall, begin)


def test_a_recorded_decay_keeps_what_it_meant() -> None:
    """What is less than a step was cut off: 0.29 of 100 steps were 28, and the last of them is where they began."""
    old = Optimizer(learning_rate=0.01, min_lr_ratio=0.0, warmup_steps=10, schedule="linear", decay=0.29)
    recipe = Recipe(optimizer=old, trainer=Trainer(num_steps=100))
    rates = learning_rates(recipe, 0, 100)
    assert math.isclose(rates[72], 0.01, rel_tol=1e-6) and rates[73] < 0.0099
    assert (
        from_plain(recorded(recipe) | {}, where="record") == recipe and "rounding" not in recorded(recipe)["optimizer"]
    )
    assert compose(["optimizer=wsd", "optimizer.decay=0.29"]).recipe.optimizer.rounding == "nearest"


def test_a_decay_of_no_step_is_refused_and_a_longer_warm_up_is_said() -> None:
    with pytest.raises(
        UsageError, match=r"a decay of no train step: command line: optimizer.decay: expected at least 1 of 100"
    ):
        compose(["optimizer=wsd", "trainer.num_steps=100", "optimizer.decay=0.004"])
    recipe = compose(["trainer.num_steps=6"]).recipe
    assert too_long(recipe) == ["optimizer.warmup_steps=20 is cut to 6, in which the rate only rises"]
    assert not too_long(compose([]).recipe)
    recipe = compose(["optimizer=wsd", "optimizer.decay=0.95"]).recipe
    assert too_long(recipe) == ["optimizer.decay=0.95 (228 steps) is cut to the 220 behind the warm-up"]
