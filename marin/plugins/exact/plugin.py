"""What this plugin adds: the profile ``exact`` (:class:`marin.training.runtime.profile.Profile`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from marin.errors import UsageError
from marin.plugins.exact.devices import check_batch, check_shares
from marin.recipe.schema import Execution, Recipe

if TYPE_CHECKING:
    from jax.sharding import Mesh

    from marin.plugins.exact.compiled import Exact
    from marin.training.state import TrainState
    from marin.training.step.contract import Step

KNOWN = f"{__package__}.known"
"""A program that says which known answers do not come out here."""


def check() -> None:
    """See :class:`marin.training.runtime.profile.Profile`."""
    from marin.plugins.exact import known

    known.check()


def check_devices(recipe: Recipe, execution: Execution) -> None:
    """See there.

    Raises:
        UsageError: batch, matrices or experts do not divide over the devices, or layers that lie over all would be shared out.
    """
    model, shared = recipe.model, execution.tensor_parallel
    apart = {"--tensor-parallel": shared, "--expert-parallel": execution.expert_parallel}
    if recipe.arithmetic.gather == "layer" and (several := [name for name, size in apart.items() if size > 1]):
        raise UsageError(
            "layers lie over all devices already",
            where=several[0],
            expected="1 with arithmetic.gather=layer",
            found=str(apart[several[0]]),
            cure="leave one of both out: neither decides a bit",
        )
    check_shares("--tensor-parallel", "matrices", {"heads": model.num_heads, "mlp": model.inner}, shared)
    check_shares("--expert-parallel", "experts", {"experts": model.num_experts or 1}, execution.expert_parallel)
    check_batch(recipe, execution.devices, shared)


def zero() -> Any:
    """See there."""
    from marin.plugins.exact.guarded import MINUS_ZERO

    return MINUS_ZERO


def fixed(function: Callable[..., Any], *examples: Any, recipe: Recipe | None = None) -> Exact:
    """See there."""
    from marin.plugins.exact.compiled import exact
    from marin.plugins.exact.program import NEAREST, factors_of

    return exact(function, *examples, factors=NEAREST if recipe is None else factors_of(recipe))


def causal_logits(model: Any, tokens: Any, places: Any) -> Any:
    """See there."""
    import jax.numpy as jnp

    from marin.plugins.exact.causal import head_logits, hidden_states

    states = jnp.take_along_axis(hidden_states(model, tokens), places[..., None], axis=1)
    return head_logits(model, states)


def differences(recipe: Recipe, vocab_size: int, recorded: Mapping[str, bytes]) -> Mapping[str, str]:
    """See there."""
    from marin.plugins.exact.program import first_difference
    from marin.plugins.exact.step import programs_of

    made = programs_of(recipe, vocab_size)
    return {name: first_difference(data, made[name]) for name, data in recorded.items() if name in made}


def step(recipe: Recipe, mesh: Mesh, example: TrainState) -> Step:
    """See there."""
    from marin.plugins.exact.step import ExactStep

    return ExactStep(recipe, mesh, example)
