"""Screening: no honest run of Adam or Lion in float32 is called impossible, and forged states are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.plugins.explain import screening
from marin.recipe.schema import Optimizer
from marin.verify.segments.screening import Finding, Screening

SIZE = 64


def honest(
    optimizer: Optimizer,
    seed: int,
    steps: int,
    scale: float,
    state: dict[str, np.ndarray] | None = None,
    rates: list[float] | None = None,
) -> dict[str, np.ndarray]:
    """Adam as optax has it, in float32, on gradients that are the worst for reach half of the time: all of one sign."""
    generator = np.random.default_rng(seed)
    f = np.float32
    if state is None:
        state = {
            "step": np.int32(0),
            "cursor": np.uint32(0),
            "key": np.arange(2, dtype=np.uint32),
            "moments/count": np.int32(0),
            "model/w": generator.normal(size=SIZE).astype(f),
            "moments/inner_state/0/mu/w": np.zeros(SIZE, f),
            "moments/inner_state/0/nu/w": np.zeros(SIZE, f),
        }
    w, m, v = (state[name] for name in ("model/w", "moments/inner_state/0/mu/w", "moments/inner_state/0/nu/w"))
    count = int(state["moments/count"])
    for i in range(steps):
        g = (scale * generator.normal(size=SIZE) ** 3).astype(f)
        if seed % 2:
            g = (scale * np.ones(SIZE) * optimizer.beta2 ** (-i / 2)).astype(f)
        count += 1
        m = f(1 - optimizer.beta1) * g + f(optimizer.beta1) * m
        v = f(1 - optimizer.beta2) * (g * g) + f(optimizer.beta2) * v
        m_hat, v_hat = m / f(1 - f(optimizer.beta1) ** f(count)), v / f(1 - f(optimizer.beta2) ** f(count))
        u = m_hat / (np.sqrt(v_hat) + f(optimizer.epsilon)) + f(optimizer.weight_decay) * w
        w = w + f(-(rates or [optimizer.learning_rate] * steps)[i]) * u
    return {
        "step": np.int32(count),
        "cursor": np.uint32(4 * count),
        "key": state["key"],
        "moments/count": np.int32(count),
        "model/w": w,
        "moments/inner_state/0/mu/w": m,
        "moments/inner_state/0/nu/w": v,
    }


optimizers = st.builds(
    Optimizer,
    learning_rate=st.floats(1e-6, 0.1),
    weight_decay=st.floats(0, 1),
    beta1=st.sampled_from([0.0, 0.5, 0.9, 0.95]),
    beta2=st.sampled_from([0.9, 0.95, 0.99, 0.999]),
    epsilon=st.just(1e-8),
)


@given(optimizers, st.integers(0, 2**32 - 1), st.integers(1, 40), st.floats(1e-12, 1e6))
def test_an_honest_segment_is_possible(optimizer: Optimizer, seed: int, steps: int, scale: float) -> None:
    before = honest(optimizer, seed, 5, scale)
    after = honest(optimizer, seed + 2, steps, scale, before)
    assert screening.look(optimizer, 0, (5, 5 + steps), before, after, [optimizer.learning_rate] * steps, 4) == []


@pytest.mark.parametrize(
    ("tensor", "change", "check"),
    [
        ("model/w", lambda x: x + 0.5, "reach"),
        ("moments/inner_state/0/nu/w", lambda x: x * np.float32(0.5), "second moment"),
        (
            "moments/inner_state/0/nu/w",
            lambda x: np.where(np.arange(SIZE) == 7, np.float32(-1), x).astype("f4"),
            "second moment",
        ),
        ("moments/inner_state/0/mu/w", lambda x: x + np.float32(50), "first moment"),
        ("key", lambda x: x ^ 1, "counters"),
        ("cursor", lambda x: np.uint32(x + 1), "counters"),
        ("moments/count", lambda x: np.int32(x - 1), "counters"),
    ],
)
def test_a_forged_state_is_impossible(tensor: str, change: object, check: str) -> None:
    optimizer = Optimizer(learning_rate=1e-3)
    before = honest(optimizer, 4, 30, 1.0)
    after = honest(optimizer, 6, 8, 1.0, before)
    after[tensor] = change(after[tensor])  # type: ignore[operator]
    found = screening.look(optimizer, 3, (30, 38), before, after, [1e-3] * 8, 4)
    assert check in {finding.check for finding in found}
    assert all(finding.proof and finding.position == 3 for finding in found)


@given(
    st.sampled_from([0.0, 0.5, 0.9, 0.95]), st.sampled_from([0.9, 0.95, 0.99]), st.integers(1, 60), st.integers(0, 1000)
)
def test_the_bound_of_an_update_holds_and_is_met(beta1: float, beta2: float, number: int, seed: int) -> None:
    """Against sums written out in double precision; the gradients that reach it are those of equality in
    Cauchy-Schwarz."""
    optimizer = Optimizer(beta1=beta1, beta2=beta2)
    bound = screening.update_bound(optimizer, number)

    def update(gradients: np.ndarray) -> float:
        ages = np.arange(number)[::-1]
        m = (1 - beta1) * np.sum(beta1**ages * gradients) / (1 - beta1**number)
        v = (1 - beta2) * np.sum(beta2**ages * gradients**2) / (1 - beta2**number)
        return float(abs(m) / math.sqrt(v)) if v else 0.0

    assert update(np.random.default_rng(seed).normal(size=number)) <= bound * (1 + 1e-12)
    extreme = (beta1 / beta2) ** np.arange(number)[::-1] if beta1 else np.eye(number)[-1]
    assert update(extreme) == pytest.approx(bound, rel=1e-9)


def test_outliers_by_median_and_mad() -> None:
    scores = screening.outliers([1.0, 1.1, 0.9, 1.05, 0.95, 4.0])
    assert [abs(score) > screening.Z_LIMIT for score in scores] == [False] * 5 + [True]
    assert screening.outliers([0.0, 9.0]) == [0.0, 0.0]


def test_the_worst_segments_come_first() -> None:
    findings = tuple(
        Finding(i, i, i + 1, "norm", "t", "", proof, score)
        for i, proof, score in [(0, False, 9.0), (1, True, 0.1), (2, True, 5.0), (2, False, 99.0)]
    )
    assert Screening(3, 3, 0.0, findings).suspicious == (2, 1, 0)
