"""Advantages, losses and draws against NumPy written from the papers: GRPO (arXiv:2402.03300), DAPO (2503.14476), Dr. GRPO
(2503.20783), GSPO (2507.18071), REINFORCE (Williams, 1992), the estimator k3 (Schulman, 2020)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jrandom
import msgspec
import numpy as np
import pytest

from marin.plugins.rl.advantages import advantages, token_weight
from marin.plugins.rl.loss import divisor, losses_of
from marin.plugins.rl.policy import drawn_tokens, entropies, token_logprobs
from marin.recipe.arithmetic import EXACT
from marin.recipe.schema import Model, Objective, Recipe

LENGTHS = (5, 1, 7, 3)
"""Of four completions, each in a row of ten positions."""
WIDTH = 10


def objective(**changes: Any) -> Objective:
    return msgspec.convert({"num_generations": 2, "max_completion_length": 8, **changes}, Objective)


def recipe(**changes: Any) -> Recipe:
    return Recipe(arithmetic=EXACT, model=Model(seq_len=WIDTH), objective=objective(**changes))


def numbers() -> dict[str, np.ndarray]:
    """Log-probabilities that lie on both sides of both clips, and advantages of both signs."""
    draw = np.random.default_rng(5)
    now, old, reference = (-draw.gamma(2.0, 1.0, (4, WIDTH)) for _ in range(3))
    old = now + draw.normal(0.0, 0.3, (4, WIDTH))
    return {"now": now, "old": old, "reference": reference, "gain": np.array([1.3, -0.4, -1.1, 0.7])}


def oracle(of: Objective, now: np.ndarray, old: np.ndarray, reference: np.ndarray, gain: np.ndarray) -> float:
    """The loss, completion by completion and token by token, in float64."""
    by_completion = []
    for row, length in enumerate(LENGTHS):
        terms = []
        for t in range(length):
            log_ratio = now[row, t] - old[row, t]
            if of.importance_sampling_level == "sequence":
                log_ratio = np.mean(now[row, :length] - old[row, :length])
            ratio, a = np.exp(log_ratio), gain[row]
            low, high = 1 - of.epsilon, 1 + (of.epsilon if of.epsilon_high is None else of.epsilon_high)
            gained = min(ratio * a, min(max(ratio, low), high) * a) if of.name == "grpo" else a * now[row, t]
            over = reference[row, t] - now[row, t]
            terms.append(-gained + of.beta * (np.exp(over) - over - 1))
        by_completion.append(terms)
    if of.loss_type == "dapo":
        return sum(map(sum, by_completion)) / sum(LENGTHS)
    if of.loss_type == "dr_grpo":
        return sum(map(sum, by_completion)) / (len(LENGTHS) * of.max_completion_length)
    return float(np.mean([np.mean(terms) for terms in by_completion]))


CASES = [
    {},
    {"loss_type": "grpo"},
    {"loss_type": "dr_grpo", "epsilon": 0.1, "epsilon_high": 0.3},
    {"beta": 0.04},
    {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.05},
    {"name": "reinforce"},
    {"name": "reinforce", "beta": 0.1, "loss_type": "grpo"},
]


@pytest.mark.parametrize("changes", CASES, ids=lambda changes: " ".join(map(str, changes.values())) or "as shipped")
def test_loss_and_gradient_are_those_of_the_papers(changes: dict[str, Any]) -> None:
    made, given = recipe(**changes), numbers()
    of = made.objective
    assert of is not None
    columns = np.zeros((4, 4, WIDTH), np.float32)
    for row, length in enumerate(LENGTHS):
        values = (token_weight(of, length), given["gain"][row], given["old"][row], given["reference"][row])
        for column, value in enumerate(values):
            columns[row, column, :length] = value if np.ndim(value) == 0 else value[:length]
    by = float(divisor(made, jnp.zeros((4, WIDTH), jnp.int32), jnp.asarray(columns.reshape(4, -1))))

    def loss(now: jax.Array) -> jax.Array:
        return losses_of(made, now, *(jnp.asarray(columns[:, at]) for at in range(4))) / by

    now = given.pop("now")
    found, slope = jax.value_and_grad(loss)(jnp.asarray(now, jnp.float32))
    assert float(found) == pytest.approx(oracle(of, now, **given), rel=1e-5, abs=1e-6)
    for row, length in enumerate(LENGTHS):
        assert not np.asarray(slope)[row, length:].any(), "what is no token of a completion teaches nothing"
        for t in range(length):
            step = np.zeros_like(now)
            step[row, t] = 1e-6
            expected = (oracle(of, now + step, **given) - oracle(of, now - step, **given)) / 2e-6
            assert float(slope[row, t]) == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_a_policy_that_drew_itself_has_the_gradient_of_the_advantages() -> None:
    """On the first train step of an update every ratio is 1: nothing is clipped, and the slope is minus the advantage."""
    made, given = recipe(), numbers()
    one = jnp.ones((4, WIDTH), jnp.float32)
    gain, old = jnp.asarray(np.tile(given["gain"][:, None], WIDTH), jnp.float32), jnp.asarray(given["old"], jnp.float32)
    slope = jax.grad(lambda now: losses_of(made, now, one, gain, old, old))(old)
    assert np.allclose(slope, -np.asarray(gain), atol=1e-6)


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_advantages_are_distances_from_the_mean_of_the_group(scale: str) -> None:
    rewards = np.random.default_rng(1).normal(size=(3, 4))
    found = np.asarray(advantages(objective(scale_rewards=scale), rewards.tolist()))
    by = {"group": rewards.std(axis=1, ddof=1, keepdims=True) + 1e-4, "batch": rewards.std(ddof=1) + 1e-4, "none": 1.0}[
        scale
    ]
    assert np.allclose(found, (rewards - rewards.mean(axis=1, keepdims=True)) / by, rtol=1e-12)


def test_a_group_without_variance_teaches_nothing_and_reinforce_has_the_reward_itself() -> None:
    rewards = [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
    assert advantages(objective(), rewards) == [[0.0] * 3, [0.0] * 3]
    assert advantages(objective(name="reinforce"), rewards) == rewards
    for scale in ("group", "batch", "none"):  # three times 0.1 is no 0.3, and a third of it no 0.1
        assert advantages(objective(scale_rewards=scale), [[0.1] * 3, [0.7] * 6])[0] == [0.0] * 3
    assert advantages(objective(), [[0.7] * 6]) == [[0.0] * 6]


def test_log_probabilities_and_entropies_are_those_of_the_softmax() -> None:
    draw = np.random.default_rng(2)
    logits, after = draw.normal(size=(2, 5, 7)) * 3, draw.integers(0, 7, (2, 5))
    logs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    found = np.asarray(token_logprobs(jnp.asarray(logits, jnp.float32), jnp.asarray(after)))
    for row in range(2):
        for t in range(5):
            assert found[row, t] == pytest.approx(logs[row, t, after[row, t]], abs=1e-5)
    expected = -(np.exp(logs) * logs).sum(axis=-1)
    assert np.allclose(entropies(jnp.asarray(logits, jnp.float32)), expected, atol=1e-5)


def allowed(logits: np.ndarray, top_k: int, top_p: float) -> np.ndarray:
    """Which tokens may be drawn, by sorting: the k likeliest, and of these the fewest that have the share p together."""
    order = np.argsort(-logits, kind="stable")
    kept = order[:top_k] if top_k else order
    chances = np.exp(logits[kept] - logits[kept].max())
    chances /= chances.sum()
    count = int(np.searchsorted(np.cumsum(chances), top_p)) + 1
    found = np.zeros(len(logits), bool)
    found[kept[:count]] = True
    return found


@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (3, 1.0), (0, 0.6), (6, 0.7), (1, 1.0), (1000, 1.0)])
def test_what_is_drawn_is_the_likeliest_of_those_allowed_with_noise_of_its_own_place(top_k: int, top_p: float) -> None:
    draw = np.random.default_rng(3)
    logits = (draw.normal(size=(3, 6, 20)) * 2).astype(np.float32)
    keys = draw.integers(0, 2**32, (3, 2)).astype(np.uint32)
    positions = np.tile(np.arange(6, dtype=np.int32), (3, 1))
    found = np.asarray(
        drawn_tokens(
            objective(top_k=top_k, top_p=top_p), jnp.asarray(logits), jnp.asarray(keys), jnp.asarray(positions)
        )
    )
    for row in range(3):
        for t in range(6):
            noise = np.asarray(jrandom.gumbel(jrandom.fold_in(jnp.asarray(keys[row]), t), (20,)))
            within = allowed(logits[row, t].astype(np.float64), top_k, top_p)
            assert found[row, t] == np.argmax(np.where(within, logits[row, t] + noise, -np.inf))
