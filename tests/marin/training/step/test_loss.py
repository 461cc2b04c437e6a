"""The loss of every token is Levanter's, and one program on whatever device is there."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
import levanter.kernels.pallas.fused_cross_entropy_loss.api as levanters
import numpy as np
import pytest
from levanter.layers.attention import AttentionMask
from levanter.models.lm_model import LmExample, LmHeadModel

from marin.training import loss
from marin.training.initial import initial_state

KINDS = ["NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA GB10", "TPU v5p", "TPU v6 lite"]


@pytest.fixture(scope="module")
def model(worker: ModuleType) -> LmHeadModel[Any]:
    """Of one layer."""
    made: LmHeadModel[Any] = initial_state(worker.recipe_of(worker.Case("loss", layers=1)), worker.VOCABULARY).model
    return made


@pytest.fixture
def _forgetting() -> Iterator[None]:
    """What Levanter remembers of the device is asked anew, before and after."""
    levanters._default_implementations.cache_clear()
    yield
    levanters._default_implementations.cache_clear()


def example_of(model: LmHeadModel[Any], rows: int, vocabulary: int) -> LmExample:
    """Random tokens, one in four of which does not count."""
    generator = np.random.default_rng(5)
    axes = (hax.Axis("batch", rows), model.Pos)
    tokens = generator.integers(0, vocabulary, (rows, model.Pos.size), dtype=np.int32)
    weights = (generator.random(tokens.shape) < 0.75).astype(np.float32)
    return LmExample(
        hax.named(jnp.asarray(tokens), axes), hax.named(jnp.asarray(weights), axes), AttentionMask.causal()
    )


def ours(model: LmHeadModel[Any], example: LmExample) -> jax.Array:
    """The sum of all losses."""
    total: jax.Array = hax.sum(loss.token_losses(model, example, 1e-4)).array
    return total


def as_it_comes(model: LmHeadModel[Any], example: LmExample) -> jax.Array:
    """The same, of Levanter's choice."""
    total: jax.Array = hax.sum(model.compute_next_token_loss(example, reduction=None, logsumexp_weight=1e-4)).array
    return total


def program(function: Any, model: LmHeadModel[Any], example: LmExample) -> str:
    """What is computed after differentiation."""
    arrays, static = eqx.partition(model, eqx.is_inexact_array)
    return str(jax.make_jaxpr(jax.grad(lambda x: function(eqx.combine(x, static), example)))(arrays))


def test_it_is_the_loss_that_levanter_computes_on_a_processor(model: LmHeadModel[Any], worker: ModuleType) -> None:
    example = example_of(model, 3, worker.VOCABULARY)
    assert program(ours, model, example) == program(as_it_comes, model, example)


@pytest.mark.parametrize("rows, embed, vocabulary", [(96, 64, 8193), (2048, 256, 50257), (16384, 512, 128256)])
def test_a_large_vocabulary_is_cut_as_levanter_cuts_it_on_a_processor(rows: int, embed: int, vocabulary: int) -> None:
    shapes = [jax.ShapeDtypeStruct((rows, embed), jnp.float32), jax.ShapeDtypeStruct((embed, vocabulary), jnp.float32)]
    labels = jnp.zeros(rows, jnp.int32)

    def program(implementation: Any) -> str:
        kernel = levanters.fused_cross_entropy_loss_and_logsumexp_penalty
        return str(
            jax.make_jaxpr(jax.grad(lambda x, w: kernel(x, labels, w, implementation=implementation), (0, 1)))(*shapes)
        )

    assert program((loss.in_known_blocks,)) == program(None)


@pytest.mark.table
@pytest.mark.usefixtures("_forgetting")
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_one_program_whatever_device_is_found(
    kind: str, model: LmHeadModel[Any], worker: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = example_of(model, 8, worker.VOCABULARY)
    here = program(ours, model, example)
    backend = "tpu" if "TPU" in kind else "gpu"
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    found = SimpleNamespace(device_kind=kind, platform=backend, process_index=0)
    monkeypatch.setattr(jax, "devices", lambda *given: [found])
    assert program(ours, model, example) == here
    if kind == "NVIDIA H200":  # so a device can be heard: as it comes, it is another program there
        assert program(as_it_comes, model, example) != here
